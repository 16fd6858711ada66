"""The simulated world: one loop over wake-ups.

    while jobs are left:
        admit arrivals; ask the core who runs as what; let time pass until the next wake-up; note completions

A wake-up is the end of the step that the core announced, an arrival, a completion or a change of prices. How time
passes in a step is known by two executions: whole rounds (`allocator.simulator.rounds`), in which jobs come and go at
the ends only, and stretches from event to event (`allocator.simulator.events`). A round of jobs that train epoch by
epoch is a stretch that nothing cuts short.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from allocator.cluster import Cluster
from allocator.mechanism.core import DecisionCore, finished
from allocator.mechanism.settings import MechanismSettings
from allocator.protocol.decision import Decision
from allocator.protocol.jobs import JobTable
from allocator.protocol.policy import Policy, Trigger
from allocator.results.observers import Observer, StretchOutcome
from allocator.results.outcomes import COMPLETED, CUT_OFF, DROPPED, OPEN, REJECTED
from allocator.simulator.arrivals import Arrivals, MoreJobs
from allocator.simulator.events import EventExecution
from allocator.simulator.rounds import RoundExecution
from allocator.simulator.rules.base import Rules, RunningRule, all_hooks, check_called, rule_of, saved, started
from allocator.simulator.rules.general import IdealShares
from allocator.simulator.truth import Truth
from throughputs import InputError
from throughputs.arrays import Flags, Floats, Ints

if TYPE_CHECKING:
    from allocator.protocol.allocation import Allocation
    from allocator.protocol.assignment import Assignment
    from allocator.protocol.state import ClusterState
    from throughputs.prices import PriceTable

Progress = Callable[[float, int, int], None]


class SimulationStalledError(RuntimeError):
    """The policy left all active jobs without progress for too many rounds."""


class World:
    """Clock, arrivals and progress of the jobs.

    Parameters
    ----------
    jobs : the job table: what is known.
    truth : what is so.
    cluster, policy, seed, prices : as in `simulate`.
    mechanism : settings of the decision core.
    rules : of the world.
    window : (first, end) ids of the jobs that are measured: the run ends when all of them are through. None: all jobs.
    more_jobs : lengthens the trace as the window needs it; None: the trace is all there is.

    Attributes
    ----------
    clock : seconds. seed : of the run, for rules that draw.
    round : rounds (between events: stretches) so far.
    outcome : (N,) column of the job table: one of `allocator.results.outcomes.STATUSES`, by position.
    stop_reason : why the run was cut short, "" if it was not.
    capacity : (seconds, GPUs of each type from then on), from the begin of the run on; empty as long as all are there.
    """

    def __init__(
        self,
        jobs: JobTable,
        truth: Truth,
        cluster: Cluster,
        policy: Policy,
        mechanism: MechanismSettings,
        rules: Rules,
        seed: int,
        window: tuple[int, int] | None = None,
        prices: PriceTable | None = None,
        more_jobs: MoreJobs | None = None,
        progress: Progress | None = None,
        observers: Sequence[Observer] = (),
    ) -> None:
        self.jobs = jobs
        self.truth = truth
        self.rules = rules
        self.core = DecisionCore(policy, cluster, jobs, mechanism, seed, prices, rule_of(rules, IdealShares).ideal)
        self.more_jobs = more_jobs
        self.progress = progress
        self.observers = observers
        self.clock = 0.0
        self.round = 0
        self.completed = 0
        self.stop_reason = ""
        self._stalled_rounds = 0
        self._window = window
        self._window_left = -1
        self.arrivals = Arrivals(jobs)
        jobs.register("outcome", OPEN)
        jobs.register("leave_time", np.inf)
        if window is not None:
            first, end = window
            self._window_left = end - first
            self._count_unserved(0)
        self.seed, self._total = seed, len(cluster.servers)
        self._away: dict[int, frozenset[int]] = {}
        self.capacity: list[tuple[float, list[int]]] = []
        made = [started(rule, self) for rule in rules]
        self.running = [running for some in made for running in some]
        self.hooks = all_hooks(self.running)
        self._all_in_stretches = any(running.in_stretches for running in self.running)
        rounds = policy.in_rounds and not self._all_in_stretches
        run = "as ideal shares" if self.core.ideal else "in rounds" if rounds else "between events"
        for rule, some in zip(rules, made, strict=True):
            check_called(rule, some, run)
        self._rounds = RoundExecution(self)
        self._events = EventExecution(self)

    def run(self, until_round: float = np.inf) -> bool:
        """Run to the end, or until so many rounds are over; returns whether the end was reached."""
        return finished(self.questions(until_round))

    def questions(self, until_round: float = np.inf) -> Generator[ClusterState, None, bool]:
        """`run` in steps: stops before each call of the policy, with the state that it is about to be asked about.

        Who answers from outside has the answer ready in the policy before going on. Going on is the only thing that may
        be done with a run that has stopped, but to drop it.
        """
        arrivals = self.arrivals
        self._lengthen()
        while self.round < until_round:
            if self._window_left == 0 or self.stop_reason:
                break
            if arrivals.next_time <= self.clock:
                self._admit()
            for happen in self.hooks.happen:
                happen()
            if self.hooks.happen and self.next_event <= self.clock:
                raise self._stuck_event()
            if not (yield from self._step()):
                break
            self.watch_limits(0)
        else:
            return False
        self._events.close()
        return True

    def _step(self) -> Generator[ClusterState, None, bool]:
        """Go on to the next wake-up; False when nobody is left to run."""
        if not self.core.cluster.total_gpus and len(self.core.active):
            until = min(self.next_event, self.arrivals.next_time)
            if until == np.inf:
                raise self._stalled("all GPUs are gone for good, so these jobs can never run")
            if not self.gpus_may_return:
                self.note_stall()
            self.clock = until
            return True
        decision = yield from self._ask()
        if self._window_left == 0:
            return True
        if len(decision.jobs):
            self._carry_out(decision)
        elif decision.interruptible and len(self.core.active):
            self._events.wait(decision)
        elif len(self.core.active) and (due := self.core.due_at(self.clock)) < np.inf:
            if due <= self.clock + self._rounds.seconds:
                self.note_stall()  # its gang may not fit
            self.clock = min(due, self.arrivals.next_time, self.core.next_price_change, self.next_event)
        elif self.arrivals.next_time < np.inf:
            arrival = self.arrivals.next_time
            arrival = self._events.seen_at(arrival) if self._in_stretches(decision) else arrival
            wake_up = min(self.next_event, self.core.next_price_change, self.core.asked_at + self.core.period_seconds)
            self.clock = min(arrival, wake_up) if len(self.core.active) else arrival
        elif len(self.core.active):
            yield from self._run_out()
        else:
            return False
        return True

    def _in_stretches(self, decision: Decision) -> bool:
        return decision.interruptible or self._all_in_stretches

    def _carry_out(self, decision: Decision) -> None:
        (self._events if self._in_stretches(decision) else self._rounds).run(decision)

    def _ask(self, waive_interval: bool = False) -> Generator[ClusterState, None, Decision]:
        calls = self.core.policy_calls
        self.core.more_arrivals = not self.arrivals.all_admitted
        decision = yield from self.core.deciding(self.clock, waive_interval=waive_interval)
        if self.core.policy_calls != calls:
            self._tell_decision()
            if len(decision.rejected):
                self._events.leave(decision.rejected)
                self._leave(decision.rejected, REJECTED)
        return decision

    def _run_out(self) -> Generator[ClusterState, None, None]:
        """Nothing runs and nothing will arrive: only a new decision can help."""
        decision = yield from self._ask(waive_interval=True)
        if len(decision.jobs):
            self._carry_out(decision)
        elif len(self.core.active):
            if not self.gpus_may_return:
                self.note_stall()
            self.clock += self._rounds.seconds
            self.core.tell(Trigger.TROUBLE)

    def _admit(self) -> None:
        self._arrive(self.arrivals.due(self.clock))
        if self.more_jobs is not None:
            self._lengthen()

    def _arrive(self, jobs: Ints) -> None:
        for arrive in self.hooks.arrive:
            arrive(jobs)
        self.core.arrive(jobs)

    def _lengthen(self) -> None:
        """Lengthen the trace before the last of its jobs has had an effect: the cluster never runs dry."""
        while self.more_jobs is not None and self.arrivals.all_admitted:
            known = len(self.jobs)
            self._append(self.more_jobs)
            self._count_unserved(known)
            if self.arrivals.next_time <= self.clock:
                self._arrive(self.arrivals.due(self.clock))

    def _append(self, more_jobs: MoreJobs) -> None:
        more_jobs.append_to(self.jobs, self.truth)
        self.arrivals.refresh()
        self.rates_changed()
        for lengthen in self.hooks.lengthen:
            lengthen()

    @property
    def next_event(self) -> float:
        """When a rule lets something happen next, seconds."""
        return float(min([next_event() for next_event in self.hooks.next_event])) if self.hooks.next_event else np.inf

    @property
    def gpus_may_return(self) -> bool:
        """Whether GPUs are missing, and a rule lets something happen yet."""
        return self.core.missing_gpus > 0 and self.next_event < np.inf

    def withhold(self, rule: RunningRule, away: Iterable[int], stopped: Iterable[int]) -> None:
        """From now on these GPUs (ids) are away because of a rule, beside those that others withhold.

        `stopped` are the jobs (ids) that run on some of them.
        """
        if not self.capacity:
            self.capacity.append((0.0, self.core.cluster.capacity.tolist()))
        self._away[self.running.index(rule)] = frozenset(away)
        gone = frozenset().union(*self._away.values())
        stopped = sorted(set(stopped))
        self._events.leave(np.array(stopped, dtype=np.int64))
        self.core.use([gpu for gpu in range(self._total) if gpu not in gone], stopped)
        self.capacity.append((self.clock, self.core.cluster.capacity.tolist()))
        self.rates_changed()

    def set_back(self, at: Ints, steps: Floats) -> None:
        """The (K,) jobs `at` these rows of the table lose so many steps; every rule hears of it."""
        self.jobs.steps_done[at] -= steps
        for set_back in self.hooks.set_back:
            set_back(at, steps)

    def adopt(self, rows: Assignment, gpus: Sequence[tuple[int, ...]]) -> None:
        """Active jobs run as these (K,) rows already, on these GPUs (ids, ascending)."""
        self.core.adopt(rows, gpus)
        self._events.leases.begin(self.core.running, self.clock, self.jobs)

    def rates_changed(self) -> None:
        """Rates that are kept are looked up anew."""
        self._rounds.rates_changed()
        self._events.rates_changed()

    def _count_unserved(self, known: int) -> None:
        """Jobs of the window that can never run are not waited for."""
        if self._window is not None:
            ids = known + np.flatnonzero(~np.any(self.jobs.rates[known:] > 0, axis=1))
            self._leave_window(ids)

    def _leave_window(self, jobs: Ints) -> None:
        if self._window is not None:
            first, end = self._window
            self._window_left -= int(((jobs >= first) & (jobs < end)).sum())

    def _tell_decision(self) -> None:
        allocation = self.core.allocation
        if allocation is not None:
            for observer in self.observers:
                observer.decided(self.round, self.clock, allocation)

    def tell_stretch(self, outcome: StretchOutcome) -> None:
        """A round or stretch is over."""
        for observer in self.observers:
            observer.round_ended(outcome)

    def complete(self, jobs: Ints, finish: Floats, cut_off: Flags | None) -> None:
        """Jobs are through at `finish` (seconds); with their last step, or `cut_off` before."""
        table = self.jobs
        table.columns["outcome"][jobs] = COMPLETED
        table.columns["steps_trained"][jobs] = table.steps_done[jobs]
        if cut_off is not None:
            table.columns["outcome"][jobs[cut_off]] = CUT_OFF
        table.steps_done[jobs] = table.total_steps[jobs]
        table.completion_time[jobs] = finish
        self.core.complete(jobs)
        self.completed += len(jobs)
        self._leave_window(jobs)
        if self.progress is not None:
            self.progress(float(finish.max()), self.completed, len(table))

    def give_up(self, jobs: Ints) -> None:
        """Jobs that get nowhere are taken off."""
        if len(jobs):
            self.core.complete(jobs)
            self._leave(jobs, DROPPED)

    def _leave(self, jobs: Ints, outcome: int) -> None:
        self.jobs.columns["outcome"][jobs] = outcome
        self.jobs.columns["leave_time"][jobs] = self.clock
        self._leave_window(jobs)

    def watch_limits(self, waiting: int) -> None:
        """Cut the run short where a rule says so, now that so many jobs are `waiting`."""
        for cut_short in self.hooks.cut_short:
            self.stop_reason = cut_short(waiting) or self.stop_reason

    def _stuck_event(self) -> InputError:
        """Of the rule whose next event is no later than now although what was to happen has happened."""
        late = next(rule for rule in self.running if rule.next_event() <= self.clock)
        expected = f"a time later than now, {self.clock:g} s, or inf, once `happen` has been called"
        return InputError(f"rule {type(late).__name__}", field="next_event", found=late.next_event(), expected=expected)

    def note_progress(self) -> None:
        """A job did a step."""
        self._stalled_rounds = 0

    def note_stall(self, why: str = "") -> None:
        """No job did a step; `why`, where that is known.

        Raises
        ------
        SimulationStalledError
            As in too many rounds before.
        """
        self._stalled_rounds += 1
        if any(stalls(self._stalled_rounds) for stalls in self.hooks.stalls):
            found = f"no job made progress in {self._stalled_rounds} rounds up to {self.clock:.0f} s"
            raise self._stalled(f"{found}, as {why}" if why else found)

    def _stalled(self, why: str) -> SimulationStalledError:
        waiting = self.core.active.tolist()
        shown = ", ".join(map(str, waiting[:5])) + (", ..." if len(waiting) > 5 else "")
        return SimulationStalledError(f"policy {self.core.policy.name}: {why}; {len(waiting)} active jobs: {shown}")

    def lengthen_to(self, jobs: int) -> None:
        """Make the table as long as it was in a run that is restored."""
        while len(self.jobs) < jobs:
            if self.more_jobs is None:
                raise ValueError(f"{jobs} jobs, where the trace has {len(self.jobs)}")
            self._append(self.more_jobs)

    def state(self) -> dict[str, Any]:
        """What a checkpoint keeps."""
        return {name: getattr(self, name) for name in _STATE} | {
            "last_end": self._rounds.last_end,
            "arrivals": self.arrivals.state(),
            "jobs": self.jobs.state(),
            "truth": self.truth.state(),
            "core": self.core.state(),
            "rules": [saved(running) for running in self.running],
            "away": [(at, sorted(gpus)) for at, gpus in self._away.items()],
            "leases": self._events.leases.state(),
        }

    def restore(self, state: dict[str, Any], allocation: Allocation | None) -> None:
        """Go on from `state`, with the last `allocation` of before."""
        for name in _STATE:
            setattr(self, name, state[name])
        self._rounds.last_end = state["last_end"]
        self.arrivals.restore(state["arrivals"])
        self.jobs.restore(state["jobs"])
        self.truth.restore(state["truth"])
        self.core.restore(state["core"], allocation)
        for running, kept in zip(self.running, state["rules"], strict=True):
            running.restore(kept)
        self._away = {at: frozenset(gpus) for at, gpus in state["away"]}
        self._events.leases.restore(state["leases"])


_STATE = ("clock", "round", "completed", "stop_reason", "capacity", "_stalled_rounds", "_window_left")
