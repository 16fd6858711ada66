"""Placement: which GPUs the jobs of an assignment get. Sources: Gavel, OSDI'20, sec. 5; ElasticFlow, ASPLOS'23.

    placement = Placement(cluster, "consolidated")
    gpus = placement.place(assignment)            # ids for each row; or, where few of many jobs change:
    change = placement.place_changes(assignment)  # what changes
    gpus = placement.gpus_of(job)

GPUs are numbered from 0, type by type in the cluster's order, server by server. GPUs left over by a partial last server
are usable.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import numpy as np

from allocator.cluster import Cluster
from allocator.mechanism.placement.buddy import Buddy
from allocator.mechanism.placement.gangs import (
    Consolidated,
    FirstFit,
    Gang,
    Gpus,
    Places,
    PoolRule,
    rule_names,
    rule_of_others,
)
from allocator.mechanism.placement.roster import NOT_RUNNING, Change, Roster, runs_as
from allocator.mechanism.placement.whole import FreeServers, WholeServers
from allocator.protocol.assignment import NOBODY, Assignment
from allocator.protocol.decision import Transition
from allocator.room import CountedGpus, FreeGpus, Held, Room
from throughputs import InputError
from throughputs.arrays import Ints, Positions

_ALONE: Final = -1

# Of a gang that needs GPUs: its row in the assignment, its (first) job, its GPUs, and its second job or -1.
_Row = tuple[int, int, int, int]
# Of a gang that ends: its (first) job, and its second job or -1.
_Ended = tuple[int, int]


class Placement(Places):
    """GPU ids for the jobs of one assignment after the other; remembers who holds which.

    Jobs (alone or two together) that go on with the same partner, pool and number of GPUs hold what they have. The rule
    says what others get:

    - ``in_order``: free GPUs in the order of their ids, larger gangs first. A gang may take GPUs from smaller ones,
      which then move. A job whose number of GPUs or whose partner changes starts anew.
    - ``consolidated``: as few servers as possible, larger gangs first; nobody else moves. A job that begins or ceases
      to share stays where it is: the first of the two takes its GPUs along. A job that gets fewer GPUs keeps some
      of those it has, one that gets more keeps them all if that needs no more servers.
    - ``buddy``: aligned blocks of 1, 2, 4, ... GPUs (`allocator.mechanism.placement.buddy`); jobs that share or resize
      as with ``consolidated``. Where GPUs suffice but blocks do not, smaller gangs move.

    - ``best_fit``, ``first_fit``: gangs stand on as few servers as their size allows, first come, first placed; one for
      which there is no such room waits (`allocator.mechanism.placement.whole`). Otherwise as ``consolidated``.

    Of gangs of one size, the one that comes first in the assignment chooses first. Work is in proportion to what
    changes: some array operations for all rows, Python for the others only.

    Parameters
    ----------
    cluster : the GPUs and their servers.
    rule : as above, or one of another package (`allocator.mechanism.placement.gangs`).
    """

    def __init__(self, cluster: Cluster, rule: str) -> None:
        if rule not in rule_names()[1:]:
            raise InputError("placement", field="rule", found=rule, expected=f"one of {', '.join(rule_names()[1:])}")
        self.rule = rule
        self._cluster = cluster
        counts = zip(cluster.first_gpu.tolist(), cluster.capacity.tolist(), strict=True)
        self._pool_of_gpu = [pool for pool, (_, count) in enumerate(counts) for _ in range(count)]
        self._clear()

    def _clear(self) -> None:
        self._roster = Roster()
        self._pools = _pool_rules(self._cluster, self.rule, self._roster.row_of)
        self._lets_wait = any(isinstance(rule, WholeServers) for rule in self._pools)
        self._left: list[int] = self._cluster.capacity.tolist()
        self._gpus: dict[int, Gpus] = {}
        self._tuples: tuple[Gpus, ...] | None = None
        # The second job of each gang that two share, by the first.
        self._second: dict[int, int] = {}

    def place(self, assignment: Assignment) -> tuple[Gpus, ...]:
        """See Places; InputError where it needs more GPUs than a pool has, and nothing has changed then."""
        self.place_changes(assignment)
        if self._tuples is None:
            self._tuples = tuple(map(self._gpus.__getitem__, assignment.jobs.tolist()))
        return self._tuples

    def place_changes(self, assignment: Assignment) -> Transition:
        """The same, but answers only what changes: `Transition.rows` have other GPUs than before or had none.

        Under a rule that lets gangs wait, `Transition.next` is the assignment without those who do.
        """
        change = self._roster.change_to(assignment)
        if change is None:
            return Transition.nothing(self._roster.last)
        waits = self._without_room(change) if self._lets_wait else None
        if waits:
            change = change.without(waits)
            assignment = change.assignment
        left = self._left.copy()
        ended: dict[int, list[_Ended]] = {}
        changed = assignment.jobs.take(change.rows)
        some_go_on = self._note_ended(changed, change.before, ended, left)
        self._note_ended(change.stopped, change.stopped_before, ended, left)
        wanted = self._wanted(assignment, change.rows, left)
        self._check_left(left)
        self._left = left
        placed = self._change(ended, wanted, some_go_on and not self._pools[0].resizes_anew)
        self._roster.accept(change)
        self._tuples = None
        other = self._keep(placed, change.stopped.tolist())
        # Mostly those whose rows have changed; others had to move for them.
        row_of = dict(zip(changed.tolist(), change.rows.tolist(), strict=True))
        rows = sorted([row_of[job] if job in row_of else self._roster.row_of(job) for job in other])
        return change.transition(np.array(rows, dtype=np.int64) if rows else NOBODY)

    def gpus_of(self, job: int) -> Gpus:
        """See Places."""
        return self._gpus[job]

    def pool_of(self, job: int) -> int:
        """Position of the pool of a job of the last assignment; KeyError for others."""
        return self._pool_of_gpu[self._gpus[job][0]]

    def free_gpus(self, pool: int, gone: Sequence[int] = ()) -> FreeGpus:
        """What is free of a pool, to be tried on, when the jobs that are `gone` (ids) have given back theirs."""
        rule = self._pools[pool]
        free: FreeGpus = rule.room() if isinstance(rule, WholeServers) else CountedGpus(self._left[pool])
        self._give_back(free, pool, self._roster.codes_of([job for job in gone if job in self._gpus]))
        return free

    def room(self, active: Ints, gone: Sequence[int]) -> Room:
        """What is free when those who are `gone` (ids) have given back theirs; jobs are positions in `active` (ids)."""

        def held(position: int) -> Held:
            job = int(active[position])
            return Held(self.pool_of(job), self.gpus_of(job))

        return Room(lambda pool: self.free_gpus(pool, gone), held)

    def _give_back(self, free: FreeGpus, pool: int, stopped: Mapping[int, int]) -> None:
        """To the `free` GPUs of a pool add those of jobs that stop, which ran as these codes.

        GPUs on which another job goes on are not free.
        """
        for job, code in stopped.items():
            own, _, partner = runs_as(code)
            if own == pool and (partner < 0 or (partner in stopped and job < partner)):
                free.give_back(Held(pool, self._gpus[job]))

    def leave(self, jobs: Sequence[int]) -> Assignment | None:
        """See Places; None where somebody else may have the GPUs of one of them."""
        ran = self._roster.codes_of([job for job in jobs if job in self._gpus])
        held = [(job, *runs_as(code)) for job, code in ran.items()]
        if any(partner >= 0 for _, _, _, partner in held):
            return None
        for job, pool, gpus, _ in held:
            self._pools[pool].release([job])
            self._left[pool] += gpus
            del self._gpus[job]
        return self._roster.leave([*ran])

    def _without_room(self, change: Change) -> set[int]:
        """Ids of the jobs that would start and find no room."""
        rows = change.rows[change.before == NOT_RUNNING]
        all_rows, tried, waits = change.assignment, dict[int, FreeServers](), set[int]()
        columns = [c[rows].tolist() for c in (all_rows.jobs, all_rows.pool, all_rows.gpus, all_rows.partner)]
        stopped = dict(zip(change.stopped.tolist(), change.stopped_before.tolist(), strict=True))
        starting = set(columns[0])
        for job, pool, size, partner in zip(*columns, strict=True):
            rule = self._pools[pool] if 0 <= pool < len(self._pools) else None
            # One that joins a job which runs needs no more GPUs.
            if not isinstance(rule, WholeServers) or (partner >= 0 and (partner not in starting or partner < job)):
                continue
            if pool not in tried:
                tried[pool] = rule.room()
                self._give_back(tried[pool], pool, stopped)
            if not tried[pool].take(size):
                waits.update((job, partner))
        return waits

    def adopt(self, running: Assignment, gpus: Sequence[Gpus]) -> None:
        """See Places."""
        running.check(self._cluster.capacity, "placement")
        self._clear()
        change = self._roster.change_to(running)
        if change is None:
            return
        self._roster.accept(change)
        rows = zip(running.jobs.tolist(), running.pool.tolist(), running.partner.tolist(), gpus, strict=True)
        for job, pool, partner, held in rows:
            if partner < 0 or job < partner:
                self._pools[pool].hold(job, held)
                self._left[pool] -= len(held)
                self._gpus[job] = held
                if partner >= 0:
                    self._gpus[partner], self._second[job] = held, partner

    def _note_ended(self, jobs: Ints, codes: Ints, ended: dict[int, list[_Ended]], left: list[int]) -> bool:
        """Add to `ended`, by pool, the gangs that `jobs` were, which ran as `codes`, and their GPUs to those `left`.

        Answers whether any of them ran.
        """
        any_ran = False
        for job, code in zip(jobs.tolist(), codes.tolist(), strict=True):
            if code != NOT_RUNNING:
                any_ran = True
                pool, gpus, partner = runs_as(code)
                if partner < 0 or job < partner:
                    ended.setdefault(pool, []).append((job, partner))
                    left[pool] += gpus
        return any_ran

    def _wanted(self, assignment: Assignment, rows: Positions, left: list[int]) -> dict[int, list[_Row]]:
        """By pool the gangs of `rows`, whose GPUs are taken from those `left`."""
        wanted: dict[int, list[_Row]] = {}
        if not len(rows):
            return wanted
        columns = (assignment.jobs, assignment.pool, assignment.gpus, assignment.partner)
        for row, job, pool, size, partner in zip(rows.tolist(), *[c[rows].tolist() for c in columns], strict=True):
            if size < 1 or not 0 <= pool < len(left) or job < 0:
                found, expected = f"{size} GPUs of pool {pool}", f"at least 1 GPU of a pool below {len(left)}"
                raise InputError("placement", field=f"job {job}", found=found, expected=expected)
            if partner < 0 or job < partner:
                wanted.setdefault(pool, []).append((row, job, size, partner))
                left[pool] -= size
        return wanted

    def _check_left(self, left: list[int]) -> None:
        """Raise InputError where a pool has less than no GPU left."""
        if min(left) < 0:
            capacity = self._cluster.capacity.tolist()
            used = [count - free for count, free in zip(capacity, left, strict=True)]
            expected = f"at most {capacity} GPUs of the pools"
            raise InputError("placement", field="assignment", found=f"{used} GPUs", expected=expected)

    def _change(
        self, ended: dict[int, list[_Ended]], wanted: dict[int, list[_Row]], hand_over: bool
    ) -> dict[int, Gpus]:
        """Release and place; answers the GPUs of new gangs and of those that had to move, by (first) job.

        `hand_over`: jobs that go on in another gang or with another number of GPUs stay where they were.
        """
        self._note_pairs(ended, wanted)
        placed: dict[int, Gpus] = {}
        for pool in sorted(ended.keys() | wanted):
            rule, gone, coming = self._pools[pool], ended.get(pool, []), wanted.get(pool)
            if gone:
                rule.release([job for job, _ in gone])
            if coming:
                gangs = [(row, job, size, False) for row, job, size, _ in coming]
                if gone and hand_over:
                    gangs = self._hand_over(rule, gone, coming, placed)
                if gangs:
                    placed |= rule.place(gangs)
        return placed

    def _note_pairs(self, ended: dict[int, list[_Ended]], wanted: dict[int, list[_Row]]) -> None:
        second = self._second
        if second:
            for gone in ended.values():
                for job, _ in gone:
                    second.pop(job, None)
        for coming in wanted.values():
            for _, job, _, partner in coming:
                if partner >= 0:
                    second[job] = partner

    def _hand_over(self, rule: PoolRule, ended: list[_Ended], rows: list[_Row], placed: dict[int, Gpus]) -> list[Gang]:
        """Let new gangs go on where their jobs were; answers those that need other GPUs or more."""
        # The gang that each job leaves, and those gangs whose GPUs nobody has taken over yet.
        leaves = {job: job for job, _ in ended} | {partner: job for job, partner in ended if partner >= 0}
        vacant = {job for job, _ in ended}
        gangs: list[Gang] = []
        for row, job, size, partner in rows:
            old = leaves.get(job, _ALONE)
            if old not in vacant and partner >= 0:
                old = leaves.get(partner, _ALONE)
            goes_on = old in vacant
            if goes_on:
                vacant.remove(old)
                gpus = self._gpus[old]
                if len(gpus) > size:
                    gpus = rule.subset(gpus, size)
                rule.hold(job, gpus)
                if len(gpus) == size:
                    placed[job] = gpus
                    continue
            gangs.append((row, job, size, goes_on))
        return gangs

    def _keep(self, placed: dict[int, Gpus], stopped: list[int]) -> list[int]:
        """Note who holds what from now on; answers the jobs with other GPUs than before."""
        of_job, other = self._gpus, []
        for first, gpus in placed.items():
            partner = self._second.get(first, _ALONE)
            for job in (first,) if partner < 0 else (first, partner):
                if of_job.get(job) != gpus:
                    other.append(job)
                of_job[job] = gpus
        for job in stopped:
            del of_job[job]
        return other


def _pool_rules(cluster: Cluster, rule: str, row_of: Callable[[int], int]) -> list[PoolRule]:
    """One for each pool, all of its GPUs free; `row_of` gives the row of a job in the present assignment."""
    rules: list[PoolRule] = []
    other = rule_of_others(rule)
    for name, first in zip(cluster.accelerators, cluster.first_gpu.tolist(), strict=True):
        capacity, per_server = int(cluster.gpus[name]), int(cluster.gpus_per_server[name])
        if rule == "in_order":
            rules.append(FirstFit(first, capacity, row_of))
        elif other is not None and (per_server > 1 or other.for_single_gpus):
            rules.append(other(first, capacity, per_server))
        elif rule != "buddy" and per_server == 1:
            rules.append(FirstFit(first, capacity, None))
        elif rule == "consolidated":
            rules.append(Consolidated(first, capacity, per_server))
        elif rule == "best_fit" or rule == "first_fit":
            rules.append(WholeServers(first, capacity, per_server, "best_fit" if rule == "best_fit" else "first_fit"))
        else:
            rules.append(Buddy(first, capacity, per_server))
    return rules
