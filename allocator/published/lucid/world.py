"""What the simulator of Lucid does that others do not (Hu et al., ASPLOS 2023, public artifact).

It goes second by second, and tells two jobs on the same GPUs apart.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from allocator.conversion import Seconds
from allocator.protocol.assignment import among_ids
from allocator.protocol.jobs import JobTable
from allocator.simulator.rules.base import Rule, RunningRule, Stretch, rule_of
from throughputs.arrays import Ints

if TYPE_CHECKING:
    from allocator.simulator.world import World


# What the rounding of a day's seconds may add up to.
_COUNTING_TOLERANCE = 1e-4


@dataclass(frozen=True)
class SharedGpus(Rule):
    """Of two jobs on the same GPUs the one that joined, the guest, is told apart from the one that was there, the host.

    Attributes
    ----------
    guests_stay_slow : a job that joined another one on its GPUs keeps the rate that it had there when the other one is
        through and it has the GPUs to itself. Between events only.
    pairs_of_one_type : (job type, fraction, fraction): what a job keeps of its throughput that joined one of its own
        type, and what that one keeps, where a table has two figures. Between events only.
    """

    guests_stay_slow: bool = False
    pairs_of_one_type: tuple[tuple[str, float, float], ...] = ()

    def start(self, world: World) -> Iterable[RunningRule]:
        """Who is whose guest, where anybody asks."""
        counted = rule_of(world.rules, SecondsCountedDown).seconds_counted_down
        asked = self.guests_stay_slow or self.pairs_of_one_type or counted
        return (_SharedGpus(self, world.jobs),) if asked else ()


class _SharedGpus(RunningRule):
    """The host of a guest, and the rate beside it, are columns of the table."""

    def __init__(self, rule: SharedGpus, jobs: JobTable) -> None:
        self._stay_slow, self._jobs = rule.guests_stay_slow, jobs
        self._of_one_type = {name: (guest, host) for name, guest, host in rule.pairs_of_one_type}
        jobs.register("guest_rate", np.nan)
        jobs.register("guest_of", -1)

    def begin(self, s: Stretch) -> None:
        """Note who joins whom; say how fast two of one type go, and guests that are left alone."""
        rows, columns = s.decision.assignment, self._jobs.columns
        if rows.shares_gpus:
            shared = np.flatnonzero(rows.partner >= 0)
            joins = shared[among_ids(rows.jobs[shared], s.decision.transition.start)]
            columns["guest_of"][s.at[joins]] = rows.partner[joins]
            if self._of_one_type:
                self._tell_apart(s, shared)
            columns["guest_rate"][s.at[joins]] = s.rates[joins]
        if self._stay_slow:
            kept = columns["guest_rate"].take(s.at)
            s.rates = np.where((rows.partner < 0) & (kept > 0), kept, s.rates)

    def _tell_apart(self, s: Stretch, shared: Ints) -> None:
        """Give guests and hosts of one type their rates; of the `shared` rows two of a pair follow each other."""
        rows, at, types = s.decision.assignment, s.at, self._jobs.job_type
        same = types[at[shared[::2]]] == types[at[shared[1::2]]]
        rates, guest_of = s.rates.copy(), self._jobs.columns["guest_of"]
        for first in shared[::2][same].tolist():
            fractions = self._of_one_type.get(types[at[first]])
            if fractions is not None:
                pair = (first, first + 1) if guest_of[at[first]] == rows.partner[first] else (first + 1, first)
                for row, fraction in zip(pair, fractions, strict=True):
                    rates[row] = self._jobs.rates[at[row], rows.pool[row]] * fraction
        s.rates = rates


@dataclass(frozen=True)
class SecondsCountedDown(Rule):
    """When a job that has done its last step is through.

    Attributes
    ----------
    seconds_counted_down : at the second at which nothing is left if each takes the rate off in floating point;
        otherwise then.
    end_delay_seconds : a job keeps its GPUs for so long after that: the loop looks for those who have ended before it
        counts the second.
    """

    seconds_counted_down: bool = False
    end_delay_seconds: Seconds = 0.0

    def start(self, world: World) -> Iterator[RunningRule]:
        """Counted first, then late."""
        if self.seconds_counted_down:
            shared = rule_of(world.rules, SharedGpus)
            if shared not in world.rules:
                yield from shared.start(world)
            yield _EndsCountedDown(world.jobs, guests_recover=not shared.guests_stay_slow)
        if self.end_delay_seconds:
            yield _EndsLate(self.end_delay_seconds)


class _EndsLate(RunningRule):
    """A job is through some time after its last step, and has its GPUs until then."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def shape(self, s: Stretch) -> None:
        """Later."""
        s.finish = s.finish + self._seconds
        s.judged = s.judged + self._seconds


class _EndsCountedDown(RunningRule):
    """Each second takes a job's rate off what it has left; it is through at the first one at which nothing is.

    That is a sum of rounded terms: where the seconds are nearly a whole number it may be one more than their ceiling.

    Parameters
    ----------
    guests_recover : the end of a host puts off that of its guest, which is not through in the same second but in the
        next.
    """

    def __init__(self, jobs: JobTable, *, guests_recover: bool) -> None:
        # the steps that were left when the rate last changed, that rate, the time, and the end are columns
        self._guests_recover, self._jobs = guests_recover, jobs
        for name, fill in (("counted_rate", np.nan), ("counted_left", 0.0), ("counted_since", 0.0)):
            jobs.register(name, fill)
        jobs.register("counted_end", np.inf)

    def shape(self, s: Stretch) -> None:
        """Count anew for those who start or go at another rate than before."""
        columns = self._jobs.columns
        rate, left = columns["counted_rate"], columns["counted_left"]
        since, end = columns["counted_since"], columns["counted_end"]
        starts = among_ids(s.decision.jobs, s.decision.transition.start)
        for row in np.flatnonzero(starts | (rate[s.at] != s.rates)).tolist():
            at, pace = int(s.at[row]), float(s.rates[row])
            if starts[row] or np.isnan(rate[at]):
                left[at] = self._jobs.total_steps[at] - self._jobs.steps_done[at]
            else:
                left[at] = _counted_down(float(left[at]), float(rate[at]), round(s.clock - float(since[at])))
            rate[at], since[at] = pace, s.clock
            end[at] = s.clock + _seconds_counted(float(left[at]), pace)
        if self._guests_recover and s.decision.assignment.shares_gpus:
            self._put_off_guests(s)
        s.finish = end[s.at]
        s.judged = s.finish

    def _put_off_guests(self, s: Stretch) -> None:
        """Let guests that would be through with their hosts be so a second later; rows of a pair follow each other."""
        rows, end = s.decision.assignment, self._jobs.columns["counted_end"]
        shared = np.flatnonzero(rows.partner >= 0)
        one, other = end[s.at[shared[::2]]], end[s.at[shared[1::2]]]
        guests = self._jobs.columns["guest_of"][s.at[shared]] == rows.partner[shared]
        end[s.at[shared[guests & (one == other).repeat(2)]]] += 1.0


def _counted_down(left: float, rate: float, seconds: int) -> float:
    """What is left of `left` steps after so many seconds."""
    terms = np.full(seconds + 1, rate)
    terms[0] = left
    return float(np.subtract.accumulate(terms)[-1])


def _seconds_counted(left: float, rate: float) -> float:
    """Seconds until nothing is left of `left` steps."""
    if not rate > 0:
        return np.inf
    exact = left / rate
    if abs(exact - round(exact)) > _COUNTING_TOLERANCE or rate == 1.0:
        return max(float(np.ceil(exact)), 0.0)
    terms = np.full(round(exact) + 3, rate)
    terms[0] = left
    return float(np.argmax(np.subtract.accumulate(terms) <= 0))
