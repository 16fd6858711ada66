"""Buddy placement within one pool: gangs on aligned blocks of 1, 2, 4, ... GPUs. Source: ElasticFlow, ASPLOS'23.

The pool is cut into blocks whose numbers of GPUs are powers of two: a server of 8 GPUs is a block of 8, which consists
of two blocks of 4, its buddies, and so on; a server whose size is no power of two is cut into the binary blocks of its
size (6 = 4 + 2). Where servers have a power of two of GPUs, aligned neighbours make larger blocks. A block is free when
all of its GPUs are, so that blocks merge with their buddies as soon as both are given back.

GPUs stand as bits in a mask in which each server begins at a multiple of a power of two, so that a block of 2^k GPUs
begins at a multiple of 2^k. Bits that stand for no GPU are never free.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heapify, heappop, heappush

from allocator.mechanism.placement.gangs import Gang, Gpus, lowest, positions


class Buddy:
    """Gangs keep their GPUs as long as there is room for new ones beside them; larger gangs are placed first.

    A gang takes the smallest free block that holds it, of equal ones the first. One whose size is no power of two takes
    the first GPUs of such a block and leaves the others to smaller gangs; if there is no such block it takes one for
    each power of two in its size, larger ones first (6 = 4 + 2).

    Where GPUs suffice but blocks do not, smaller gangs move (compaction): the gang takes that block, among those
    without a part of a gang of its size or larger, of which the fewest GPUs are in use; the gangs there are placed
    anew, larger ones first, and may in turn displace smaller ones. If gangs and servers have powers of two of GPUs this
    always succeeds; else a gang for which no block can be had takes two of half the size.

    A shrinking gang keeps the block at which its first GPU is; a growing gang keeps its GPUs if the block around them
    that holds its new size has room.
    """

    resizes_anew = False

    def __init__(self, first: int, capacity: int, per_server: int) -> None:
        self._first = first
        self._per_server = per_server
        self._stride = 1 << (per_server - 1).bit_length()
        self._free = 0
        self._held: dict[int, int] = {}
        self._by_size: dict[int, int] = {}
        self._free = self._mask(tuple(range(first, first + capacity)))
        self._levels = self._free.bit_length().bit_length()
        self._starts = [self._multiples(1 << level) for level in range(self._levels + 1)]
        self._owner = [-1] * self._free.bit_length()

    def release(self, jobs: list[int]) -> None:
        """See PoolRule."""
        for job in jobs:
            mask = self._held.pop(job)
            self._by_size[mask.bit_count()] ^= mask
            self._free |= mask

    def hold(self, job: int, gpus: Gpus) -> None:
        """See PoolRule."""
        self._occupy(job, self._mask(gpus))

    def subset(self, gpus: Gpus, size: int) -> Gpus:
        """See PoolRule."""
        mask = self._mask(gpus)
        return self._ids(self._pieces(mask, size) or lowest(mask, size))

    def place(self, gangs: list[Gang]) -> dict[int, Gpus]:
        """See PoolRule."""
        placed: dict[int, Gpus] = {}
        growing = {job for _, job, _, grows in gangs if grows}
        # Of equal size, gangs that had to move (row -1) come first, in the order of their ids.
        waiting = [(-size, row, job) for row, job, size, _ in gangs]
        heapify(waiting)
        while waiting:
            smaller, _, job = heappop(waiting)
            size, mask = -smaller, 0
            if job in growing:
                mask = self._around(self._held[job], size)
                self.release([job])
            if not mask:
                mask, displaced = self._find(size)
                for other in displaced:
                    if other in growing:
                        growing.remove(other)
                    else:
                        heappush(waiting, (-self._held[other].bit_count(), -1, other))
                    self.release([other])
            self._occupy(job, mask)
            placed[job] = self._ids(mask)
        return placed

    def _find(self, size: int) -> tuple[int, set[int]]:
        """GPUs for a gang of `size`, and the jobs that have to make room for it."""
        mask = self._pieces(self._free, size)
        return (mask, set()) if mask else self._compact(size)

    def _pieces(self, free: int, size: int) -> int:
        """A gang of `size` in the smallest block of `free` GPUs, else in one for each power of two; 0: no room."""
        block = _smallest_block(free, (size - 1).bit_length(), self._starts)
        if block:
            # The bits of a block follow each other, so these are the first GPUs of it.
            return block * ((1 << size) - 1)
        taken = 0
        for level in _binary(size):
            block = _smallest_block(free ^ taken, level, self._starts)
            if not block:
                return 0
            taken |= block * ((1 << (1 << level)) - 1)
        return taken

    def _compact(self, size: int) -> tuple[int, set[int]]:
        """Blocks for a gang of `size`, free or in use by smaller gangs, and the jobs that lose GPUs to it."""
        movable = 0
        for other, mask in self._by_size.items():
            if other < size:
                movable |= mask
        taken = 0
        levels = list(_binary(size))
        while levels:
            level = levels.pop(0)
            whole = (1 << (1 << level)) - 1
            # Prefer a free block, though the gang as a whole found none.
            block = _smallest_block(self._free & ~taken, level, self._starts)
            if not block:
                usable = (self._free | movable) & ~taken
                block = self._least_used(_blocks(usable, level, self._starts), whole)
            if block:
                taken |= block * whole
            else:
                levels[:0] = (level - 1, level - 1)
        return taken, {self._owner[at] for at in positions(taken & ~self._free)}

    def _least_used(self, starts: int, whole: int) -> int:
        """The first bit of that block, of those that begin at `starts`, which has the most free GPUs."""
        best, most = 0, -1
        for at in positions(starts):
            free = (self._free >> at & whole).bit_count()
            if free > most:
                best, most = 1 << at, free
        return best

    def _around(self, mask: int, size: int) -> int:
        """The GPUs of `mask` and others in the block around them that holds `size` GPUs; 0: it has no room."""
        width = 1 << (size - 1).bit_length()
        start = (mask & -mask).bit_length() - 1
        start -= start % width
        block = ((1 << width) - 1) << start
        if mask & ~block:
            return 0
        more = size - mask.bit_count()
        room = self._free & block
        if room.bit_count() < more:
            return 0
        return mask | (self._pieces(room, more) or lowest(room, more))

    def _occupy(self, job: int, mask: int) -> None:
        self._held[job] = mask
        size = mask.bit_count()
        self._by_size[size] = self._by_size.get(size, 0) | mask
        self._free ^= mask
        for at in positions(mask):
            self._owner[at] = job

    def _multiples(self, step: int) -> int:
        """The bits at the multiples of `step`."""
        return sum(1 << at for at in range(0, self._free.bit_length(), step))

    def _mask(self, gpus: Gpus) -> int:
        mask = 0
        for gpu in gpus:
            server, at = divmod(gpu - self._first, self._per_server)
            mask |= 1 << (server * self._stride + at)
        return mask

    def _ids(self, mask: int) -> Gpus:
        if self._stride == self._per_server:
            return tuple([self._first + at for at in positions(mask)])
        found = []
        for bit in positions(mask):
            server, at = divmod(bit, self._stride)
            found.append(self._first + server * self._per_server + at)
        return tuple(found)


def _binary(size: int) -> Iterator[int]:
    """The powers of two that add up to `size`, as exponents, largest first."""
    return (level for level in range(size.bit_length() - 1, -1, -1) if size >> level & 1)


def _blocks(free: int, level: int, starts: list[int]) -> int:
    """The first bits of the blocks of 2^level GPUs that are wholly `free`."""
    for k in range(level):
        if k + 1 >= len(starts):
            return 0
        free &= free >> (1 << k) & starts[k + 1]
    return free


def _smallest_block(free: int, level: int, starts: list[int]) -> int:
    """The first bit of the smallest free block of at least 2^level GPUs, the lowest of equal ones; 0 for none."""
    found = 0
    blocks = _blocks(free, level, starts)
    while blocks:
        if level + 1 >= len(starts):
            found = blocks
            break
        merged = blocks & blocks >> (1 << level) & starts[level + 1]
        unmerged = blocks & ~(merged | merged << (1 << level))
        if unmerged:
            found = unmerged
            break
        blocks, level = merged, level + 1
    return found & -found
