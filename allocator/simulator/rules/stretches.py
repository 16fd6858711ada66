"""What published simulators do between events that others do not: small rules, which a preset lists by its settings.

A stretch goes from one event to the next. A rule may say what a decision costs those who run on, when a job that has
done its last step counts as through, and how long the world waits before it looks. The loop knows none of them by name.
Sources of those here: ElasticFlow (Gu et al., ASPLOS 2023, public artifact) and Lucid (Hu et al., ASPLOS 2023, public
artifact).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from allocator.mechanism.core import DecisionCore
from allocator.protocol.assignment import Assignment, among_ids
from allocator.protocol.jobs import JobTable
from allocator.simulator.rules.base import Stretch, StretchRule
from allocator.simulator.rules.counted import EndsCountedDown, GuestsAndHosts
from throughputs.numerics import log2

if TYPE_CHECKING:
    from allocator.simulator.settings import SimulatorSettings

_Floats = NDArray[np.float64]
_Ids = NDArray[np.int64]

# What the rounding of some ten thousand stretches may leave of a time that is a whole number of seconds.
_SECONDS_TOLERANCE = 1e-5


@dataclass(frozen=True)
class OverheadCost:
    """Seconds that a job of n GPUs loses: ``base + doubling (1 + log2 n)``.

    Attributes
    ----------
    base, doubling : seconds.
    restart : seconds that a restart of everything costs in addition.
    """

    base: float
    doubling: float
    restart: float

    def of(self, gpus: _Ids, restart: bool) -> _Floats:
        """(K,) seconds for jobs of so many `gpus`."""
        anew = self.doubling * (1.0 + log2(gpus))
        return np.asarray(self.base + (anew + self.restart if restart else anew))


class DecisionsCostTime(StretchRule):
    """Jobs lose time at each decision, in the next stretch in which they run.

    Sets of GPUs on which a job has run before may be known (communication groups are kept), and everything may be
    started anew at every so many decisions, when known sets are forgotten.

    Parameters
    ----------
    cost : what is lost.
    who : "starts", "running" or "active", as in `SimulatorSettings.overhead`.
    reuse : whether known sets of GPUs cost the base only.
    restart_decisions : everything starts anew at every so many decisions; None: never.
    while_arrivals : nothing is lost by decisions after the last arrival.
    delays_end : whether what is lost in a stretch delays an end in it, or what a restart costs only.
    """

    def __init__(
        self,
        cost: OverheadCost,
        who: str,
        *,
        reuse: bool,
        restart_decisions: int | None,
        while_arrivals: bool,
        delays_end: bool,
    ) -> None:
        self._cost, self._who = cost, who
        self._reuse, self._every = reuse, restart_decisions
        self._while_arrivals, self._delays_end = while_arrivals, delays_end
        self._restarts = 0
        self._known: set[tuple[int, ...]] = set()
        self._restarting = False

    def bind(self, jobs: JobTable, core: DecisionCore) -> None:
        """The time that each job is still to lose, and what it lost by the last decision, are columns of the table."""
        self._jobs, self._core = jobs, core
        counts = np.arange(1, int(core.cluster.capacity.max(initial=1)) + 1)
        self._costs = [self._cost.of(counts, restart) for restart in (False, True)]
        jobs.register("overhead_seconds", 0.0)
        jobs.register("lost_seconds", 0.0)
        jobs.register("restart_gpu_seconds", 0.0)

    def begin(self, s: Stretch) -> None:
        """Charge at decisions, and let those who run lose what they are charged with."""
        overhead = self._jobs.columns["overhead_seconds"]
        self._restarting = False
        if s.decision.recomputed and (self._core.more_arrivals or not self._while_arrivals):
            self._charge(s, overhead)
        lost = overhead.take(s.at)
        if s.decision.recomputed:
            self._jobs.columns["lost_seconds"][s.at] = lost
        s.begin = s.clock + lost
        self._jobs.columns["restart_gpu_seconds"][s.at] += lost * s.decision.assignment.gpus_taken
        overhead[s.at] = 0.0

    def _charge(self, s: Stretch, overhead: _Floats) -> None:
        number = self._core.decisions - 1
        if self._every is not None and number // self._every > self._restarts:
            self._restarts = number // self._every
            self._restarting = number % self._every == 0
            # One that passed while nobody ran is not felt, but by what is known.
            self._known = self._known if self._restarting else set()
        rows, at, cost = s.decision.assignment, s.at, self._costs[self._restarting]
        if self._who == "active":
            everybody = self._jobs.rows(self._core.active)
            overhead[everybody] = cost.take(self._jobs.scale_factor.take(everybody) - 1)
        lost = cost.take(rows.gpus - 1)
        if self._reuse:
            groups = list(map(self._core.gpus_of, rows.jobs.tolist()))
            lost[[group in self._known for group in groups]] = self._cost.base
            if self._restarting:
                self._known = set()
            else:
                self._known.update(groups)
        if self._who == "starts" and not self._restarting:
            started = among_ids(rows.jobs, s.decision.transition.start)
            at, lost = at[started], lost[started]
        overhead[at] = lost

    def shape(self, s: Stretch) -> None:
        """Ends that are not delayed."""
        if not self._delays_end and not self._restarting:
            s.finish = s.finish - (s.begin - s.clock)
            s.judged = s.judged - (s.begin - s.clock)

    def state(self) -> Any:
        """Restarts so far, and the known sets of GPUs."""
        return {"restarts": self._restarts, "known": sorted(self._known)}

    def restore(self, state: Any) -> None:
        """Go on from `state`."""
        self._restarts, self._known = state["restarts"], {tuple(group) for group in state["known"]}


class PreemptionsCostWork(StretchRule):
    """A job that is stopped loses steps, possibly more than it has done: it has so much more to do.

    Parameters
    ----------
    by_gpus : pairs (GPUs, seconds), ascending: what a job of so many GPUs or more loses, as time at the rate at which
        it ran.
    """

    notes_stops = True

    def __init__(self, by_gpus: tuple[tuple[int, float], ...]) -> None:
        self._counts = np.array([gpus for gpus, _ in by_gpus], dtype=np.int64)
        self._seconds = np.array([0.0, *(seconds for _, seconds in by_gpus)])

    def bind(self, jobs: JobTable, core: DecisionCore) -> None:  # noqa: ARG002
        """Steps done are in the table."""
        self._jobs = jobs

    def stop(self, rows: Assignment, at: _Ids, rates: _Floats) -> None:
        """Take steps back."""
        self._jobs.steps_done[at] -= rates * self._seconds[self._counts.searchsorted(rows.gpus, side="right")]


class EndsLate(StretchRule):
    """A job is through some time after its last step, and has its GPUs until then."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def shape(self, s: Stretch) -> None:
        """Later."""
        s.finish = s.finish + self._seconds
        s.judged = s.judged + self._seconds


class EndsInWholeSeconds(StretchRule):
    """A job is through at the next whole second of its training."""

    def shape(self, s: Stretch) -> None:
        """Round the seconds of training up."""
        seconds = np.ceil(s.finish - s.begin - _SECONDS_TOLERANCE)
        s.finish = s.begin + seconds
        s.judged = s.finish


class EndsWithSlots(StretchRule):
    """A job is through when the slot of the stretch in which it does its last step is over.

    What was lost before it began is not made up for in the rest of the slot: a job that is interrupted there has so
    much left.

    Parameters
    ----------
    slot : seconds.
    waits_at_deadline : whether a job that is not through by its deadline waits for the end of that slot, unless it is
        interrupted.
    """

    def __init__(self, slot: float, *, waits_at_deadline: bool) -> None:
        self._slot, self._waits = slot, waits_at_deadline

    def bind(self, jobs: JobTable, core: DecisionCore) -> None:  # noqa: ARG002
        """Deadlines are read from the table."""
        self._jobs = jobs

    def shape(self, s: Stretch) -> None:
        """Round the seconds of training up to slots."""
        seconds = np.ceil(s.finish - s.begin - _SECONDS_TOLERANCE)
        if self._waits:
            s.trained = s.clock + seconds
            left = self._jobs.deadline[s.at] - s.clock
            late = (left > 0) & (left < seconds)
            seconds[late] += np.ceil(left[late] / self._slot) * self._slot - left[late]
        s.judged = s.begin + seconds
        s.finish = s.begin + np.ceil(seconds / self._slot) * self._slot
        s.until = s.clock + seconds


class JudgedByTraining(StretchRule):
    """A deadline is compared with the second of the last step, as if nothing had been lost in the last stretch."""

    def shape(self, s: Stretch) -> None:
        """Without overhead."""
        s.judged = s.judged - (s.begin - s.clock)


class JudgedByEnd(StretchRule):
    """A deadline is compared with the end."""

    def shape(self, s: Stretch) -> None:
        """As the completion time."""
        s.judged = s.finish


def stretch_rules(settings: SimulatorSettings) -> list[StretchRule]:
    """The rules that the settings of a preset name, in the order in which a stretch goes through them."""
    rules: list[StretchRule] = []
    if settings.guests_stay_slow or settings.pairs_of_one_type or settings.ends == "counted":
        of_one_type = {name: (guest, host) for name, guest, host in settings.pairs_of_one_type}
        rules.append(GuestsAndHosts(settings.guests_stay_slow, of_one_type))
    if settings.ends == "counted":
        rules.append(EndsCountedDown(guests_recover=not settings.guests_stay_slow))
    elif settings.ends != "exact":
        slots = EndsWithSlots(settings.slot_seconds, waits_at_deadline=settings.late_jobs_wait)
        rules.append(EndsInWholeSeconds() if settings.ends == "second" else slots)
    if settings.end_delay_seconds:
        rules.append(EndsLate(settings.end_delay_seconds))
    if settings.preemption_penalty_by_gpus:
        rules.append(PreemptionsCostWork(settings.preemption_penalty_by_gpus))
    if settings.overhead != "off":
        every = settings.overhead_restart_decisions
        cost = OverheadCost(
            settings.overhead_base_seconds, settings.overhead_doubling_seconds, settings.overhead_restart_seconds
        )
        rules.append(
            DecisionsCostTime(
                cost,
                settings.overhead,
                reuse=settings.overhead_reuses_groups,
                restart_decisions=int(settings.slot_seconds) if every == "slot" else every,
                while_arrivals=settings.overhead_while_arrivals,
                delays_end=settings.overhead_delays_end == "always",
            )
        )
    if settings.deadlines_judged_by == "training":
        rules.append(JudgedByTraining())
    elif settings.ends == "slot":
        rules.append(JudgedByEnd())
    return rules
