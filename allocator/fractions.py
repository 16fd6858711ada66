"""Fractions of a GPU: who asks for them, and what is free where fractions of at most one in sum share a GPU.

Fractions are counted in thousandths of a GPU, in whole numbers, so that their sums are exact: ten jobs of 0.1 fill a
GPU. Those who share a GPU in this way do not slow each other down: each runs at its own rate.

Source of the workload: Q. Weng et al., "Beware of Fragmentation: Scheduling GPU-Sharing Workloads with Fragmentation
Gradient Descent", USENIX ATC 2023, whose traces count thousandths (``gpu_milli``).
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import MutableMapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from throughputs import InputError, Trace
from throughputs.arrays import Floats, Ints, Values

if TYPE_CHECKING:
    from allocator.room import FreeGpus, Held


WHOLE: Final = 1000
"""A GPU in thousandths."""

ROUNDING_OF_SUMS: Final = 0.5 / WHOLE
"""GPUs: fractions are whole thousandths, and what is less than half of one is left by the rounding of sums."""

# What rounding may take off a fraction that is meant to be a whole number of thousandths.
_ROUNDING = 1e-6

_NO_ROOM: Final = -1


@dataclass(frozen=True, eq=False)
class GpuFractions:
    """What N jobs ask for of each of their GPUs.

    Attributes
    ----------
    thousandths : (N,) of a GPU, at least 1; 1000 for a job that has its GPUs whole.
    source : where they came from, for messages.

    >>> trace = Trace(["a", "b"], [1, 1], [60.0, 30.0], [0.0, 0.0], gpu_fraction=[1 / 3, 1.0])
    >>> GpuFractions.of_trace(trace).thousandths.tolist()
    [333, 1000]
    """

    thousandths: Ints
    source: str

    @classmethod
    def of_trace(cls, trace: Trace) -> GpuFractions | None:
        """Those of a trace, rounded down to thousandths; None where all jobs have their GPUs whole.

        Raises
        ------
        InputError
            A fraction of less than a thousandth.
        """
        if not (trace.gpu_fraction < 1).any():
            return None
        thousandths = thousandths_of(trace.gpu_fraction)
        if thousandths.min() < 1:
            row = int(thousandths.argmin())
            found, expected = float(trace.gpu_fraction[row]), "at least a thousandth of a GPU"
            raise InputError(trace.source, field=f"gpu_fraction of job {row}", found=found, expected=expected)
        return cls(thousandths, trace.source)

    def take(self, rows: Ints) -> GpuFractions:
        """Of some of the jobs."""
        return GpuFractions(self.thousandths[rows], self.source)

    def joined(self, later: GpuFractions | None, count: int) -> GpuFractions:
        """Append fractions for `count` new jobs; None means whole GPUs."""
        more = np.full(count, WHOLE) if later is None else later.thousandths
        return GpuFractions(np.concatenate([self.thousandths, more]), self.source)

    def check(self, gpus: Ints, hindrance: str) -> None:
        """Raise InputError where fractions cannot be had: for a `hindrance` if there is one, or of several GPUs."""
        some = self.thousandths < WHOLE
        wrong = some if hindrance else some & (gpus > 1)
        if wrong.any():
            row = int(wrong.argmax())
            why = hindrance or f"the job has {gpus[row]} GPUs, and only a job with 1 may share it"
            expected = f"1, as {why} (--whole-gpus, or Trace.with_whole_gpus(), lets jobs have their GPUs whole)"
            found = float(self.thousandths[row] / WHOLE)
            raise InputError(self.source, field=f"gpu_fraction of job {row}", found=found, expected=expected)


def thousandths_of(fraction: Floats) -> Ints:
    """(N,) of fractions of a GPU, rounded down."""
    return np.floor(fraction * WHOLE + _ROUNDING).astype(np.int64)


def exact_sums(gpus: Floats) -> Floats:
    """Sums of GPUs without what rounding leaves of fractions of them."""
    return np.asarray(np.rint(gpus * WHOLE) / WHOLE)


def taken_of(gpus: Ints, thousandths: Ints | None) -> Values:
    """(N,) GPUs that gangs of so many `gpus` take which need so many `thousandths` of each; None: all of each."""
    return gpus if thousandths is None else gpus * thousandths / WHOLE


class SharedGpus:
    """The GPUs of one pool that have jobs with fractions, by number; which GPU a number stands for is not known here.

    A fraction goes to the GPU with the least left on which it fits (best fit), of several to the one with the lowest
    number. A GPU that is opened takes the lowest number that is not in use.

    >>> shared = SharedGpus()
    >>> shared.open(600), shared.open(300), shared.fit(400), shared.fit(400), shared.fit(301)
    (0, 1, 0, 1, -1)
    >>> shared.leave(0, 400), shared.leave(0, 600), shared.left
    (False, True, 300)
    """

    def __init__(self) -> None:
        # By number what is left of each GPU, and by what is left the numbers that have it, as bits.
        self._changed: dict[int, int] = {}
        self._left: MutableMapping[int, int] = self._changed
        self._with_left: dict[int, int] = {}
        # Numbers in use, as bits, and those that were when this copy was made: they are not given again on it, so that
        # a number stands for one GPU from one decision to the next.
        self._used = self._before = 0

    def copy(self) -> SharedGpus:
        """To try on, as long as this one does not change."""
        other = SharedGpus()
        other._left = ChainMap(other._changed, self._left)
        other._with_left, other._used, other._before = self._with_left.copy(), self._used, self._used
        return other

    def become(self, tried: SharedGpus) -> None:
        """Take over what was tried on a copy; at a cost of what changed there."""
        self._left.update(tried._changed)
        self._with_left, self._used = tried._with_left, tried._used

    @property
    def left(self) -> int:
        """Thousandths that are free on all of them together."""
        return sum(left * bits.bit_count() for left, bits in self._with_left.items())

    def fit(self, thousandths: int) -> int:
        """The number of the GPU that a fraction gets, -1 where it fits on none."""
        least = min((left for left in self._with_left if left >= thousandths), default=_NO_ROOM)
        if least < 0:
            return _NO_ROOM
        bits = self._with_left[least]
        number = (bits & -bits).bit_length() - 1
        self._set(number, least, least - thousandths)
        return number

    def open(self, thousandths: int) -> int:
        """The number of another GPU, on which a fraction is alone."""
        taken = self._used | self._before
        bit = ~taken & (taken + 1)
        self._used |= bit
        number = bit.bit_length() - 1
        self._set(number, None, WHOLE - thousandths)
        return number

    def leave(self, number: int, thousandths: int) -> bool:
        """A fraction is given back; whether nobody is left on its GPU, which has no number then."""
        before = self._left[number]
        if before + thousandths == WHOLE:
            self.close(number)
            return True
        self._set(number, before, before + thousandths)
        return False

    def close(self, number: int) -> None:
        """All fractions of a GPU are given back."""
        self._take_out(number, self._left[number])
        self._used ^= 1 << number

    def hold(self, number: int, thousandths: int) -> None:
        """A fraction is on the GPU with this number already."""
        if self._used >> number & 1:
            self._set(number, self._left[number], self._left[number] - thousandths)
        else:
            self._used |= 1 << number
            self._set(number, None, WHOLE - thousandths)

    def _set(self, number: int, before: int | None, now: int) -> None:
        if before is not None:
            self._take_out(number, before)
        self._left[number] = now
        self._with_left[now] = self._with_left.get(now, 0) | 1 << number

    def _take_out(self, number: int, left: int) -> None:
        self._with_left[left] ^= 1 << number
        if not self._with_left[left]:
            del self._with_left[left]


class FreeFractions:
    """What is free of a pool whose GPUs are shared in fractions; see `allocator.room.FreeGpus`.

    Parameters
    ----------
    whole : GPUs that nobody has.
    shared : those that have jobs with fractions.
    """

    def __init__(self, whole: FreeGpus, shared: SharedGpus) -> None:
        self._whole = whole
        self.shared = shared

    @property
    def count(self) -> float:
        """GPUs that are free in sum, whether or not a job finds room on them."""
        return (self._whole.count * WHOLE + self.shared.left) / WHOLE

    def take(self, gpus: float) -> bool:
        """Take whole GPUs for a gang, or less than one for a job that shares it; whether it finds room."""
        if gpus >= 1:
            return self._whole.take(int(gpus))
        return self.number_for(round(gpus * WHOLE)) != _NO_ROOM

    def number_for(self, thousandths: int) -> int:
        """Take a fraction of a GPU; the number of the GPU, -1 where it finds no room."""
        number = self.shared.fit(thousandths)
        if number == _NO_ROOM and self._whole.take(1):
            number = self.shared.open(thousandths)
        return number

    def give_back(self, held: Held) -> None:
        """What a job has is free."""
        if held.number < 0 or self.shared.leave(held.number, held.thousandths):
            self._whole.give_back(held._replace(thousandths=WHOLE))
