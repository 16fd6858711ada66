"""Chronus: leases for jobs with deadlines, whatever is left for the others."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Literal

import numpy as np
from numpy.typing import NDArray

from allocator.cluster import Cluster
from allocator.policies.base.one_type import the_one_type
from allocator.policies.chronus.admission import Newcomer, Promises, admit
from allocator.policies.chronus.clock import LeaseClock
from allocator.policies.chronus.leases import LeaseRecord, begin_lease
from allocator.policies.chronus.memory import LOWEST, UNACCEPTED, ChronusMemory
from allocator.policies.chronus.opportunistic import NoOffers, Offers, fill, look_at_running, serve_waiting
from allocator.policies.chronus.rules import LeaseRules
from allocator.protocol import Assignment, ClusterState, Need, Plan, PlanPolicy, PlanStep, Trigger
from allocator.protocol.allocation import Allocation
from allocator.registry import register
from formulations.leases import SIGNS, TIE_BREAKS
from throughputs import InputError, ThroughputMatrix
from throughputs.tie_order import tie_order

_OBJECTIVES: Final = ("adaptive", *SIGNS)
_FILLING: Final = ("between_slots", "off")

_UNPROMISED: Final = (UNACCEPTED, LOWEST)

# Where a job without a stated value of its deadline has one.
_VALUE = 1.0


@register(
    "chronus",
    paper="Gao et al., SoCC 2021",
    program="max_{x,S} sum_r v_r S_r -+ sum_j g_j x_j0 / C, sum_{t < D_r} x_jt = n_j S_r, sum_j g_j x_jt <= C_t",
)
@dataclass(frozen=True)
class Chronus(PlanPolicy):
    """Promise deadlines to jobs that fit, run them on leases, and everybody else on what is left.

    Jobs have one deadline (strict), several with values (soft), or none (best effort). Time is cut into leases; a job
    with a promise needs n of them before its deadline, from an estimate of its run time with the cost of starts and a
    margin. When a lease begins all GPUs are returned, and `formulations.leases.LeaseProgram` says who runs in it.

    Arrivals are looked at once a slot, one after the other: a job is promised a deadline if all promises can be packed,
    latest lease first. At every slot GPUs that no lease uses go first to jobs without a promise that end within the
    lease, which keep them to its end, and then, first fit, to jobs without a promise and of best effort by the GPU time
    they have left, to jobs with a promise by slack, and to jobs past hope. Between slots GPUs that a job gives back are
    offered once more. A world with slots of its own, or a clock of real time, may ask late, after a slot or a lease has
    begun: what was to be done then is done at once, by the time of the last tick.

    A solver that fails or runs out of time without a schedule is warned of, and the greedy rule decides; the decision
    then has status "greedy" and names the solver among its `fallbacks`. Its `dropped_slos` are the jobs that have a
    deadline and no promise, or no hope.

    For clusters with one type of accelerator.

    Parameters
    ----------
    lease_seconds, slot_seconds, tick_seconds : length of a lease, time between two admissions, and between two looks at
        the cluster. Whole units.
    time_unit_seconds : estimates are whole units.
    objective : of the lease program: "minimize" or "maximize" the GPUs of the coming lease once the most value is
        promised, "random" (the program of the public code, which promises any), or "adaptive": "minimize" if a job
        without a promise is there, else "maximize".
    solver : "highs", "cbc", or "none": the greedy rule.
    time_limit_seconds, relative_gap, tie_break : of the solver and among its optima, see
        `formulations.leases.solve_leases`.
    filling : who is offered GPUs between slots. "between_slots": the same as at slots; "off": nobody.
    forced_guarantee : whether jobs without a promise that end within the lease keep GPUs to its end.
    accepted_run_early : whether jobs with a promise run without a lease where GPUs are left.
    start_cost : what it costs to start a job on one GPU, units; w(g) = start_cost (1 + log2 g) on g of them.
    margin : by which estimates exceed the duration.
    noise : standard deviation of the duration that is believed, relative to the true one.
    noise_seed : of the generator of the noise.
    trusted_noise : noise up to which a job counts as past hope by its true duration.
    tolerate_ratio : a promise may be later than the last deadline by this factor of the time to it.
    max_search_options : deadlines in one lease program; where there are more, wide jobs keep the plans they have. None:
        no limit.
    """

    lease_seconds: float = 1200.0
    slot_seconds: float = 300.0
    tick_seconds: float = 60.0
    time_unit_seconds: float = 60.0
    objective: str = "adaptive"
    solver: Literal["highs", "cbc", "none"] = "highs"
    time_limit_seconds: float = 5.0
    relative_gap: float | None = None
    tie_break: str = "urgent"
    filling: str = "between_slots"
    forced_guarantee: bool = True
    accepted_run_early: bool = True
    start_cost: float = 0.5
    margin: float = 1.1
    noise: float = 0.0
    noise_seed: int = 0
    trusted_noise: float = 0.4
    tolerate_ratio: float = 1.0
    max_search_options: int | None = 400

    needs = Need.DEADLINE_OPTIONS
    triggers: ClassVar[Trigger] = Trigger.ARRIVAL | Trigger.COMPLETION
    heterogeneity_aware: ClassVar[bool] = False

    def __post_init__(self) -> None:
        whole = all(
            length > 0 and length % step == 0
            for length, step in (
                (self.tick_seconds, self.time_unit_seconds),
                (self.slot_seconds, self.tick_seconds),
                (self.lease_seconds, self.tick_seconds),
            )
        )
        for name, valid, expected in (
            ("time_unit_seconds", self.time_unit_seconds > 0, "a time above 0"),
            ("lease_seconds", whole, "leases and slots of whole ticks, ticks of whole units of time"),
            ("objective", self.objective in _OBJECTIVES, f"one of {', '.join(_OBJECTIVES)}"),
            ("time_limit_seconds", self.time_limit_seconds > 0, "a time above 0"),
            ("relative_gap", self.relative_gap is None or self.relative_gap >= 0, "at least 0, or None"),
            ("tie_break", self.tie_break in TIE_BREAKS, f"one of {', '.join(TIE_BREAKS)}"),
            ("filling", self.filling in _FILLING, f"one of {', '.join(_FILLING)}"),
            ("start_cost", self.start_cost >= 0, "at least 0"),
            ("margin", self.margin >= 1, "at least 1"),
            ("noise", self.noise >= 0, "at least 0"),
            ("tolerate_ratio", self.tolerate_ratio >= 1, "at least 1"),
            ("max_search_options", self.max_search_options is None or self.max_search_options >= 1, "at least 1"),
        ):
            if not valid:
                raise InputError("policy chronus", field=name, found=getattr(self, name), expected=expected)

    def prepare(self) -> None:
        """Import the solver, by a plan for one job."""
        matrix = ThroughputMatrix([[1.0]], ["job"], ["v100"])
        self.allocate(ClusterState(Cluster({"v100": 1}), matrix, deadlines=[10 * self.lease_seconds]))

    def new_memory(self) -> ChronusMemory:
        """An empty memory."""
        return ChronusMemory(self.noise_seed)

    def plan(self, state: ClusterState, memory: ChronusMemory) -> Plan:
        """Who runs until the next tick at which something can change.

        Raises
        ------
        InputError
            More than one type of the cluster has GPUs.
        """
        kind = the_one_type(state, "chronus", "leases do not tell types apart")
        rules = self._rules(int(state.capacity[kind]))
        clock = rules.clock
        place = memory.keep(state.throughputs.jobs)
        now, tick = state.clock, clock.tick_at(state.clock)
        last, since = clock.last_tick(now), _earliest(state, clock)
        slot, lease = clock.last_slot(now), clock.running_lease(last)
        missed_slot, missed_lease = (
            begin != tick and memory.looked_at < begin and since < begin for begin in (slot, lease * clock.lease)
        )
        if missed_slot:
            tick = last
        if tick is None or not (missed_slot or self._concerns(memory, rules, tick)):
            return self._plan(state, kind, [_Shift(memory.running, self._seconds(memory, rules, now))], memory, place)
        ran = set(memory.running)
        waited_since = memory.seen.copy()
        memory.looked_at = tick
        look_at_running(memory, rules, tick)
        record, shifts = LeaseRecord(), []
        if (missed_lease or tick % clock.lease == 0) and lease > memory.lease_begun:
            record = begin_lease(memory, rules, tick)
            leased = list(memory.running)
        else:
            leased = None
        if lease > memory.lease_begun:
            # nobody was there when it began
            memory.lease_begun, memory.unaccepted = lease, 0
        if missed_slot or tick % clock.slot == 0:
            place = self._look_at_arrivals(state, kind, memory, rules, tick, place)
            serve_waiting(memory, rules, tick)
            memory.filled = rules.offers.end_at_slots()
        started: list[int] = []
        if rules.offers.are_made_at(tick, clock) and not memory.filled:
            started = fill(memory, rules, tick)
        self._note_starts(memory, rules, tick, [row for row in leased or () if row not in ran], waited_since, started)
        if leased is not None:
            holders = set(leased)
            if any(row in ran and row not in holders for row in memory.running):
                # who had no lease stops, and what starts again pays for it
                shifts.append(_Shift(leased, 0.0))
        shifts.append(_Shift(memory.running, self._seconds(memory, rules, now)))
        return self._plan(state, kind, shifts, memory, place, record)

    def _note_starts(
        self,
        memory: ChronusMemory,
        rules: LeaseRules,
        tick: int,
        leased: list[int],
        waited_since: NDArray[np.float64],
        offered: list[int],
    ) -> None:
        """Told at a tick (units) who starts by a lease, having waited since then (N,), and who between slots."""

    def _promises(self) -> Promises:
        return Promises()

    def _offers(self) -> Offers:
        return NoOffers() if self.filling == "off" else Offers()

    def _rules(self, capacity: int) -> LeaseRules:
        unit = self.time_unit_seconds
        tick, slot, lease = (round(t / unit) for t in (self.tick_seconds, self.slot_seconds, self.lease_seconds))
        return LeaseRules(
            clock=LeaseClock(unit, tick, slot, lease),
            capacity=capacity,
            objective=self.objective,
            solver=self.solver,
            time_limit_seconds=self.time_limit_seconds,
            relative_gap=self.relative_gap,
            tie_break=self.tie_break,
            promises=self._promises(),
            offers=self._offers(),
            forced_guarantee=self.forced_guarantee,
            accepted_run_early=self.accepted_run_early,
            start_cost=self.start_cost,
            margin=self.margin,
            noise=self.noise,
            trusted_noise=self.trusted_noise,
            tolerate_ratio=self.tolerate_ratio,
            max_search_options=self.max_search_options,
        )

    def _concerns(self, memory: ChronusMemory, rules: LeaseRules, tick: int) -> bool:
        """Whether there is anything to do at a tick. What happens once it has been looked at is noticed at the next."""
        clock = rules.clock
        if tick == memory.looked_at:
            return False
        if tick % clock.slot == 0 or tick % clock.lease == 0:
            return True
        return rules.offers.are_made_at(tick, clock) and not memory.filled

    def _seconds(self, memory: ChronusMemory, rules: LeaseRules, seconds: float) -> float:
        """Seconds from a time on the clock to the next tick that concerns the policy."""
        clock = rules.clock
        now = seconds / clock.unit
        until = clock.next_slot(now)
        if not memory.filled and memory.waiting and memory.free(rules.capacity) > 0:
            tick = clock.next_tick(now)
            while tick < until and not rules.offers.are_made_at(tick, clock):
                tick += clock.tick
            until = min(until, tick)
        return clock.seconds_until(until, seconds)

    def _look_at_arrivals(
        self,
        state: ClusterState,
        kind: int,
        memory: ChronusMemory,
        rules: LeaseRules,
        tick: int,
        place: NDArray[np.int64],
    ) -> NDArray[np.int64]:
        """Take new jobs over; answers where in the state the rows of the memory are."""
        labels = state.throughputs.jobs
        new = np.setdiff1d(np.arange(len(labels)), place)
        new = new[(state.rates[new, kind] > 0) & (state.steps_remaining[new] > 0)]
        if not len(new):
            return place
        unit = rules.clock.units
        submitted = np.array([unit(state.clock - waited) for waited in state.elapsed_seconds[new].tolist()])
        rank = np.empty(len(labels), dtype=np.int64)
        rank[tie_order(labels)] = np.arange(len(labels))
        new = new[np.lexsort((rank[new], submitted))]
        submitted.sort()
        # who came after a tick that is looked at late waits for the next slot
        new, submitted = new[submitted <= tick], submitted[submitted <= tick]
        arrivals = [
            Newcomer(
                labels[i], int(state.scale_factors[i]), at, unit(state.steps_remaining[i] / state.rates[i, kind]), *due
            )
            for i, at, due in zip(new.tolist(), submitted.tolist(), self._deadlines(state, rules, new), strict=True)
        ]
        admit(memory, rules, arrivals, tick)
        return np.concatenate([place, new])

    def _deadlines(
        self, state: ClusterState, rules: LeaseRules, jobs: NDArray[np.intp]
    ) -> list[tuple[NDArray[np.float64], NDArray[np.float64]]]:
        """Deadlines (units) and values of some jobs (positions)."""
        found = []
        options = state.deadline_options
        for job in jobs.tolist():
            if options is None:
                at = float(state.deadlines[job])
                due, value = (np.array([at]), np.array([_VALUE])) if np.isfinite(at) else (np.empty(0), np.empty(0))
            else:
                own = slice(int(options.offsets[job]), int(options.offsets[job + 1]))
                due, value = options.seconds[own], options.value[own]
            found.append((np.array([rules.clock.units(at) for at in due.tolist()], dtype=np.float64), value))
        return found

    def _plan(
        self,
        state: ClusterState,
        kind: int,
        shifts: list[_Shift],
        memory: ChronusMemory,
        place: NDArray[np.int64],
        record: LeaseRecord | None = None,
    ) -> Plan:
        steps = []
        for shift in shifts:
            jobs = place[shift.rows]
            rows = Assignment.of(jobs, np.full(len(jobs), kind), state.scale_factors[jobs])
            steps.append(PlanStep(rows, shift.seconds))
        if record is None or record.status == "empty":
            return Plan(tuple(steps))
        without = [label for label, of in zip(memory.labels, memory.kind.tolist(), strict=True) if of in _UNPROMISED]
        allocation = self._allocation(state, kind, steps[-1].assignment, record, tuple(without))
        return Plan(tuple(steps), allocation=allocation)

    def _allocation(
        self, state: ClusterState, kind: int, rows: Assignment, record: LeaseRecord, without: tuple[Any, ...]
    ) -> Allocation:
        """Who runs, with what is known of the lease program."""
        shares = np.zeros((state.n_jobs, len(state.capacity)))
        shares[rows.jobs, kind] = 1.0
        return Allocation(
            policy=self.name,
            throughputs=state.throughputs,
            shares=shares,
            status=record.status,
            objective=record.objective,
            objective_unit="value",
            bound=record.bound,
            certified=True,
            gap=record.gap,
            solver=record.solver,
            seconds=record.seconds,
            fallbacks=record.failed,
            dropped_slos=without,
            assignment=rows,
        )


@dataclass(frozen=True)
class _Shift:
    """Rows of the memory that run for so long."""

    rows: list[int]
    seconds: float


def _earliest(state: ClusterState, clock: LeaseClock) -> float:
    """When the first of the jobs that are there was submitted, units; inf if nobody is."""
    return clock.units(state.clock - float(state.elapsed_seconds.max())) if state.n_jobs else math.inf
