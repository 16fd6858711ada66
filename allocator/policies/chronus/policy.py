"""Chronus: leases for jobs with deadlines, whatever is left for the others."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Annotated, ClassVar, Final, Literal

import numpy as np

from allocator.conversion import AtLeastOne, NotNegative, Positive, PositiveSeconds, Range
from allocator.policies.base.ordering import in_order_of_arrival
from allocator.policies.base.programs import Prepared
from allocator.policies.chronus.clock import LeaseClock
from allocator.policies.chronus.memory import ACCEPTED, BEST_EFFORT, LOWEST, UNACCEPTED, UNSEEN, ChronusMemory
from allocator.protocol import Assignment, ClusterState, Need, Plan, PlanPolicy, PlanStep, Trigger
from allocator.protocol.state import the_one_type
from allocator.registry import register
from formulations.leases import LeaseProgram, LeaseSolution, packs, solve_leases
from throughputs import InputError
from throughputs.arrays import Floats, Ints
from throughputs.numerics import log2

_VALUE = 1.0
"""Where a job without a stated value of its deadline has one."""

_FAR = 20_000
"""Leases that a job may be put off beyond those that it needs: a deadline further away than that is as good as one."""

_WIDEST: Final = 1000
"""Jobs of so many GPUs keep the plan that they have where options are too many, as published."""


@register(
    "chronus",
    paper="Gao et al., SoCC 2021",
    program="max_{x,S} sum_r v_r S_r -+ sum_j g_j x_j0 / C, sum_{t < D_r} x_jt = n_j S_r, sum_j g_j x_jt <= C_t",
)
@dataclass(frozen=True)
class Chronus(Prepared, PlanPolicy):
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

    lease_seconds: PositiveSeconds = 1200.0
    slot_seconds: PositiveSeconds = 300.0
    tick_seconds: PositiveSeconds = 60.0
    time_unit_seconds: Positive = 60.0
    objective: Literal["adaptive", "minimize", "maximize", "random"] = "adaptive"
    solver: Literal["highs", "cbc", "none"] = "highs"
    time_limit_seconds: Positive = 5.0
    relative_gap: NotNegative | None = None
    tie_break: Literal["urgent", "solver"] = "urgent"
    filling: Literal["between_slots", "off"] = "between_slots"
    forced_guarantee: bool = True
    accepted_run_early: bool = True
    start_cost: NotNegative = 0.5
    margin: Annotated[float, Range(1)] = 1.1
    noise: NotNegative = 0.0
    noise_seed: int = 0
    trusted_noise: float = 0.4
    tolerate_ratio: Annotated[float, Range(1)] = 1.0
    max_search_options: AtLeastOne | None = 400

    needs = Need.DEADLINE_OPTIONS | Need.LENGTHS
    triggers: ClassVar[Trigger] = Trigger.ARRIVAL | Trigger.COMPLETION
    heterogeneity_aware: ClassVar[bool] = False
    promises_may_be_lost: ClassVar[bool] = False
    """Whether the greedy rule may lose promises; otherwise it goes back to the order of admission then."""
    slots_fill: ClassVar[bool] = True
    """Whether what was offered at a slot is not offered again before something happens."""

    def __post_init__(self) -> None:
        super().__post_init__()
        lengths = self.tick_seconds, self.slot_seconds, self.lease_seconds
        steps = self.time_unit_seconds, self.tick_seconds, self.tick_seconds
        if any(length % step for length, step in zip(lengths, steps, strict=True)):
            expected = "leases and slots of whole ticks, ticks of whole units of time"
            raise InputError("policy chronus", field="lease_seconds", found=self.lease_seconds, expected=expected)

    def new_memory(self) -> ChronusMemory:
        """An empty memory."""
        return ChronusMemory(noise=np.random.PCG64(self.noise_seed).state)

    @cached_property
    def clock(self) -> LeaseClock:
        """Units, ticks, slots and leases."""
        unit = self.time_unit_seconds
        return LeaseClock(unit, *(round(t / unit) for t in (self.tick_seconds, self.slot_seconds, self.lease_seconds)))

    def plan(self, state: ClusterState, memory: ChronusMemory) -> Plan:
        """Who runs until the next tick at which something can change.

        Raises
        ------
        InputError
            More than one type of the cluster has GPUs.
        """
        pool = the_one_type(state, "chronus", "leases do not tell types apart")
        memory.recall(state)
        clock, now, gpus = self.clock, state.clock, int(state.capacity[pool])
        if gpus != memory.capacity:
            memory.capacity, memory.filled = gpus, False
            self._give_back(memory, clock.units(now))
        tick, last = clock.tick_at(now), clock.last_tick(now)
        # when the first of the jobs that are there was submitted
        since = clock.units(now - float(state.elapsed_seconds.max())) if state.n_jobs else math.inf
        slot, lease = clock.last_slot(now), clock.running_lease(last)
        missed_slot, missed_lease = (
            begin != tick and memory.looked_at < begin and since < begin for begin in (slot, lease * clock.lease)
        )
        if missed_slot:
            tick = last
        if tick is None or not (missed_slot or self._concerns(memory, tick)):
            return Plan((self._step(state, memory, pool),))
        memory.looked_at, ran, steps, found = tick, set(memory.running), [], None
        self.look_at_running(memory, tick)
        if (missed_lease or tick % clock.lease == 0) and lease > memory.lease_begun:
            found = self.begin_lease(memory, tick)
            steps.append(self._step(state, memory, pool, 0.0))
        holders = set(memory.running)
        if lease > memory.lease_begun:
            # nobody was there when it began
            memory.lease_begun, memory.unaccepted = lease, 0
        if missed_slot or tick % clock.slot == 0:
            self._look_at_arrivals(state, memory, pool, tick)
            self.serve_waiting(memory, tick)
            memory.filled = self.slots_fill
        if self.offers_at(tick) and not memory.filled:
            self._fill(memory, tick)
        if not any(row in ran and row not in holders for row in memory.running):
            # nobody who had no lease stops, to pay for it when it starts again
            steps.clear()
        steps.append(self._step(state, memory, pool))
        if found is None:
            return Plan(tuple(steps))
        solution, failed = found
        without = np.isin(memory.kind, (UNACCEPTED, LOWEST))
        allocation = self.as_shares(
            state,
            steps[-1].assignment,
            status=solution.status,
            objective=solution.objective,
            objective_unit="value",
            bound=solution.bound,
            certified=True,
            gap=solution.gap,
            solver=solution.method,
            seconds=solution.seconds,
            fallbacks=failed,
            dropped_slos=tuple(memory.jobs[row] for row in np.flatnonzero(without)),
        )
        return Plan(tuple(steps), allocation=allocation)

    def _step(self, state: ClusterState, memory: ChronusMemory, pool: int, seconds: float | None = None) -> PlanStep:
        """Who runs, for so many seconds or to the next tick that concerns the policy."""
        jobs = np.array(memory.running, dtype=np.int64)
        rows = Assignment.of(jobs, np.full(len(jobs), pool), memory.gpus[jobs])
        return PlanStep(rows, self._seconds(memory, state.clock) if seconds is None else seconds)

    def _concerns(self, memory: ChronusMemory, tick: int) -> bool:
        """Whether there is anything to do at a tick. What happens once it has been looked at is noticed at the next."""
        if tick == memory.looked_at:
            return False
        begins = tick % self.clock.slot == 0 or tick % self.clock.lease == 0
        return begins or (self.offers_at(tick) and not memory.filled)

    def _seconds(self, memory: ChronusMemory, seconds: float) -> float:
        """Seconds from a time on the clock to the next tick that concerns the policy."""
        clock = self.clock
        now = seconds / clock.unit
        until = clock.next_slot(now)
        if not memory.filled and memory.waiting and memory.free > 0:
            tick = clock.next_tick(now)
            while tick < until and not self.offers_at(tick):
                tick += clock.tick
            until = min(until, tick)
        return clock.seconds_until(until, seconds)

    # How long jobs are believed to run.

    def estimates(self, duration: Floats, gpus: Ints) -> Ints:
        """Time that jobs are given: with the cost of one start in each lease, and a margin; whole units."""
        longer = 1.0 + (1.0 + log2(gpus)) * self.start_cost / self.clock.lease
        return np.floor(duration * longer * self.margin).astype(np.int64)

    def leases_for(self, units: Floats | Ints) -> Ints:
        """Leases in which a job can run for so many units."""
        return np.maximum(np.ceil(units / self.clock.lease), 0).astype(np.int64)

    # Arrivals: each is packed, latest slot first, beside those that were promised their deadlines.

    def _look_at_arrivals(self, state: ClusterState, memory: ChronusMemory, pool: int, now: int) -> None:
        """Take new jobs over, compute what they need, and promise those that fit a deadline (`now`: units)."""
        rows, unit, first = [], self.clock.units, self.clock.running_lease(now) + 1
        able = (memory.kind == UNSEEN) & (state.rates[:, pool] > 0) & (state.steps_remaining > 0)
        for row in in_order_of_arrival(state, np.flatnonzero(able)).tolist():
            submitted = unit(state.clock - float(state.elapsed_seconds[row]))
            if submitted > now:
                # who came after a tick that is looked at late waits for the next slot
                break
            known, scale = unit(state.steps_remaining[row] / state.rates[row, pool]), 0.0
            while self.noise > 0 and not 0.5 < scale < 2:
                scale = 1.0 + self.noise * memory.normal()
            memory.submitted[row], memory.seen[row], memory.known_duration[row] = submitted, now, known
            memory.duration[row] = int(known * scale) if self.noise > 0 else known
            memory.options[row] = due, _ = self._deadlines(state, row)
            memory.kind[row], memory.due[row] = (UNACCEPTED, due[0]) if len(due) else (BEST_EFFORT, np.inf)
            rows.append(row)
        memory.waiting += rows
        memory.estimate[rows] = self.estimates(memory.duration[rows], memory.gpus[rows])
        memory.needed[rows] = self.leases_for(memory.estimate[rows])
        promises = self._promises(memory, first) if rows else Promises(memory.capacity)
        for row in rows:
            if memory.kind[row] == UNACCEPTED:
                slots, fits = self.promise(memory, promises, row, first)
                memory.planned[row] = True
                if fits:
                    memory.kind[row], memory.due[row] = ACCEPTED, self.clock.lease * (slots + first)
                else:
                    memory.unaccepted += 1

    def _deadlines(self, state: ClusterState, job: int) -> tuple[Floats, Floats]:
        """Deadlines (units on the clock) and their values."""
        options = state.deadline_options
        if options is None:
            due = state.deadlines[[job]]
            due = due[np.isfinite(due)]
            value = np.full(len(due), _VALUE)
        else:
            own = slice(int(options.offsets[job]), int(options.offsets[job + 1]))
            due, value = options.seconds[own], options.value[own]
        return np.array([self.clock.units(at) for at in due.tolist()], dtype=np.float64), value

    def _promises(self, memory: ChronusMemory, first: int) -> Promises:
        """Promised jobs without a plan, and the GPUs that plans take of the slots from lease number `first` on."""
        promises, plans = Promises(memory.capacity), []
        for row in memory.promised:
            leases = memory.leases[row]
            if leases is None:
                slots = self.slots_before(memory, row, self.considered(memory, row), first)
                promises.add(int(rounded_gpus(memory.gpus[row])), int(memory.needed[row]), slots, row)
            else:
                plans.append((leases - first, int(memory.gpus[row])))
        promises.taken = np.zeros(max((int(slots[-1]) + 1 for slots, _ in plans if len(slots)), default=0), np.int64)
        for slots, gpus in plans:
            promises.taken[slots[slots >= 0]] += gpus
        return promises

    def slots_before(self, memory: ChronusMemory, row: int, due: Floats, first: int) -> Ints:
        """Whole leases from number `first` on before each deadline (units on the clock) of a job.

        A plan has an entry for each of them, so that far deadlines count as nearer ones.
        """
        furthest = first + int(memory.needed[row]) + _FAR
        return np.minimum(np.floor(due / self.clock.lease), furthest).astype(np.int64) - first

    def considered(self, memory: ChronusMemory, row: int) -> Floats:
        """Deadlines, units on the clock, of a job with a promise and without a plan that others fit in beside."""
        return np.asarray(memory.due[[row]])

    def open_options(self, memory: ChronusMemory, row: int) -> tuple[Floats, Floats]:
        """Deadlines and values by which a job may be given leases: none later than the one that it was promised."""
        due, value = memory.options[row]
        promised = int(memory.granted[row]) + 1
        return due[:promised], value[:promised]

    def promise(self, memory: ChronusMemory, promises: Promises, row: int, first: int) -> tuple[int, bool]:
        """Slots of the first deadline for which there is room beside all other promises, and whether there is one.

        With `tolerate_ratio` above 1 a deadline as much later counts as the last of the job's own.
        """
        due, submitted = memory.options[row][0], memory.submitted[row]
        gpus, needed = int(rounded_gpus(memory.gpus[row])), int(memory.needed[row])
        tolerated = submitted + self.tolerate_ratio * (due[-1:] - submitted)
        slots, latest = (self.slots_before(memory, row, at, first).tolist() for at in (due, tolerated))
        for option, count in enumerate([*slots, *range(slots[-1] + 1, latest[0] + 1)]):
            if count < needed:
                continue
            promises.add(gpus, needed, [count], row)
            if promises.fit():
                memory.granted[row] = min(option, len(slots) - 1)
                if option >= len(slots):
                    memory.extend(row, float(self.clock.lease * (count + first)))
                return count, True
            promises.options.pop()
        return 0, False

    # Giving out a lease: everybody's GPUs are returned, and the lease program says who runs in the coming one.

    def begin_lease(self, memory: ChronusMemory, now: int) -> tuple[LeaseSolution, tuple[str, ...]] | None:
        """Release all jobs, plan, and start those that have the coming lease (`now`: units).

        Returns the solution of the lease program, and the solver whose answer was of no use; None where nobody needs
        leases.
        """
        lease = self.clock.running_lease(now)
        if lease > memory.lease_begun + 1:
            # leases went by in which there was nobody
            memory.unaccepted = 0
        objective: str = self.objective
        if objective == "adaptive":
            objective = "minimize" if memory.unaccepted > 0 else "maximize"
        released = memory.running
        self.count_needed(memory, [row for row in released if memory.kind[row] == ACCEPTED])
        memory.forced[released] = False
        memory.stop(released, now)
        promised = memory.promised
        found = self._plan_leases(memory, promised, lease, objective) if promised else None
        holders = []
        for row in memory.waiting:
            plan = memory.leases[row]
            if memory.kind[row] == ACCEPTED and plan is not None and len(plan) and plan[0] == lease:
                memory.leases[row] = plan[1:]
                holders.append(row)
        # plans may be older than the loss of GPUs
        wanted, holders = holders, _first_fit(memory, holders)
        for row in set(wanted) - set(holders):
            memory.leases[row] = None
        memory.needed[holders] -= 1
        self.begin(memory, holders, now)
        memory.leased[holders] = True
        memory.lease_begun = lease
        memory.unaccepted = int((memory.kind == UNACCEPTED).sum())
        return found

    def begin(self, memory: ChronusMemory, rows: list[int], now: int, offered: bool = False) -> None:  # noqa: ARG002
        """Jobs start with a lease, or as they were `offered` GPUs between slots."""
        memory.start(rows, now)

    def count_needed(self, memory: ChronusMemory, rows: list[int]) -> None:
        """What jobs still need after what they ran; leases too many are taken off their plans, early ones first."""
        needed = self.leases_for(memory.estimate[rows] - memory.ran[rows])
        for row, count in zip(rows, needed.tolist(), strict=True):
            surplus = int(memory.needed[row]) - count
            if surplus > 0:
                plan = memory.leases[row]
                memory.leases[row] = None if plan is None else plan[surplus:]
                memory.needed[row] = count

    def _plan_leases(
        self, memory: ChronusMemory, rows: list[int], lease: int, objective: str
    ) -> tuple[LeaseSolution, tuple[str, ...]]:
        """Bring the plans of promised jobs up to date."""
        failed: tuple[str, ...] = ()
        if self.solver != "none":
            kept = self._keep_planned(memory, rows, lease)
            solution = self._solve(memory, rows, kept, lease, objective, self.solver)
            if solution.status != "failed":
                return solution, failed
            failed = (self.solver,)
            begin = lease * self.clock.lease * self.clock.unit
            warnings.warn(
                f"chronus: {self.solver} found no schedule for the lease at {begin:g} s ({solution.note}); "
                "the greedy rule decides",
                RuntimeWarning,
                stacklevel=2,
            )
        planned = {row for row in rows if memory.leases[row] is not None}
        solution = self._solve(memory, rows, planned, lease, objective, "greedy")
        if len(solution.dropped) and not self.promises_may_be_lost:
            # in the order in which they were admitted all promises fitted
            memory.kind[rows] = ACCEPTED
            solution = self._solve(memory, rows, planned, lease, objective, "greedy", promised_only=True)
        for row in memory.waiting:
            if memory.kind[row] == ACCEPTED and memory.leases[row] is None:
                memory.kind[row] = UNACCEPTED
        return solution, failed

    def _solve(
        self,
        memory: ChronusMemory,
        rows: list[int],
        planned: set[int],
        lease: int,
        objective: str,
        method: str,
        *,
        promised_only: bool = False,
    ) -> LeaseSolution:
        """Plan jobs beside those of them that keep what is `planned`; jobs that are dropped lose their promise."""
        rows = [row for row in rows if row not in planned]
        options = [self.open_options(memory, row) for row in rows]
        if promised_only:
            options = [(due[-1:], np.zeros(1)) for due, _ in options]
        slots = [self.slots_before(memory, row, due, lease) for row, (due, _) in zip(rows, options, strict=True)]
        horizon = max([1, *(int(each.max()) for each in slots)])
        capacity = np.full(horizon, memory.capacity)
        for row in planned:
            plan = memory.leases[row]
            assert plan is not None
            ahead = plan - lease
            capacity[ahead[(ahead >= 0) & (ahead < horizon)]] -= memory.gpus[row]
        program = LeaseProgram(
            rounded_gpus(memory.gpus[rows]),
            memory.needed[rows],
            np.repeat(np.arange(len(rows)), [len(each) for each in slots]),
            np.concatenate([np.empty(0, dtype=np.int64), *slots]),
            np.concatenate([np.empty(0), *(value for _, value in options)]),
            np.maximum(capacity, 0),
            objective,
        )
        solution = solve_leases(
            program,
            method,
            relative_gap=self.relative_gap,
            time_limit_seconds=self.time_limit_seconds,
            tie_break=self.tie_break,
        )
        if solution.status != "failed":
            for row, option, runs in zip(rows, solution.option.tolist(), solution.schedule, strict=True):
                memory.leases[row] = None if option < 0 else lease + np.flatnonzero(runs)
                if option < 0:
                    memory.kind[row] = UNACCEPTED
        return solution

    def _keep_planned(self, memory: ChronusMemory, rows: list[int], lease: int) -> set[int]:
        """Jobs that keep their plan as there are more options than are searched: the widest, then those due last."""
        if self.max_search_options is None:
            return set()
        entries = [
            (-int(rounded_gpus(memory.gpus[row])), -slots, row, option)
            for row in rows
            for option, slots in enumerate(
                self.slots_before(memory, row, self.open_options(memory, row)[0], lease).tolist()
            )
        ]
        surplus = len(entries) - self.max_search_options
        kept: set[int] = set()
        for gpus, _, row, _ in sorted(entries) if surplus > 0 else ():
            if memory.leases[row] is not None and (surplus > 0 or row in kept or -gpus >= _WIDEST):
                kept.add(row)
                surplus -= 1
        return kept

    # GPUs that no lease uses: who runs on them, and who must give them back.

    def look_at_running(self, memory: ChronusMemory, now: int) -> None:
        """Enter what running jobs did up to `now` (units). Who has run for its estimate loses its promise."""
        rows = np.array(memory.running, dtype=np.int64)
        memory.ran[rows] += now - memory.seen[rows]
        memory.seen[rows] = now
        over = memory.ran[rows] >= memory.estimate[rows]
        if now % self.clock.lease:
            over &= ~memory.leased[rows]
        late = rows[over]
        memory.kind[late], memory.overrun[late], memory.planned[late] = UNACCEPTED, True, False
        for row in late.tolist():
            memory.leases[row] = None
        early = ~(memory.leased[rows] | memory.forced[rows]) & (memory.kind[rows] == ACCEPTED)
        self.count_needed(memory, rows[early].tolist())
        if 0 < self.noise <= self.trusted_noise:
            shorter = rows[memory.known_duration[rows] < memory.duration[rows]]
            part = memory.ran[shorter] / memory.duration[shorter]
            known = memory.duration[shorter] + (memory.known_duration[shorter] - memory.duration[shorter]) * part
            memory.estimate[shorter] = self.estimates(known, memory.gpus[shorter])

    def serve_waiting(self, memory: ChronusMemory, now: int) -> None:
        """Guarantee GPUs to jobs that end within the lease, then run who can (`now`: units)."""
        if self.forced_guarantee:
            self._guarantee(memory, now)
        waiting = np.array(memory.waiting, dtype=np.int64)
        memory.seen[waiting] = now
        self._judge(memory, waiting, now)
        forced = [row for row in memory.waiting if memory.forced[row]]
        wanted = int(memory.gpus[forced].sum())
        if wanted > memory.free:
            self._preempt(memory, wanted, now)
        memory.start(forced, now)
        waiting = np.array(memory.waiting, dtype=np.int64)
        by_class = (-memory.submitted[waiting], -memory.urgency[waiting], -memory.kind[waiting])
        memory.waiting = waiting[np.lexsort(by_class)].tolist()
        if memory.free > 0:
            memory.start(_first_fit(memory, self._line(memory)), now)
        memory.filled = False

    def _fill(self, memory: ChronusMemory, now: int) -> None:
        """Offer GPUs that are left between slots to jobs that wait (`now`: units)."""
        memory.filled = True
        if memory.free > 0 and memory.waiting:
            self.begin(memory, _first_fit(memory, self.offered(memory)), now, offered=True)

    def offers_at(self, tick: int) -> bool:
        """Whether GPUs are offered at a tick, units."""
        return self.filling != "off" and tick % self.clock.slot != 0

    def offered(self, memory: ChronusMemory) -> list[int]:
        """To whom they are offered between slots, the first in line first."""
        return self._line(memory)

    def _line(self, memory: ChronusMemory) -> list[int]:
        """Bring the line in order; those in it who may run without a lease."""
        memory.waiting = _in_order(memory, memory.waiting, last_first=True)
        return [row for row in memory.waiting if self.accepted_run_early or memory.kind[row] != ACCEPTED]

    def _guarantee(self, memory: ChronusMemory, now: int) -> None:
        """Jobs without a promise that end within the lease have their GPUs to its end, shortest first in GPU time."""
        end = (self.clock.running_lease(now) + 1) * self.clock.lease
        waiting = np.array(memory.waiting, dtype=np.int64)
        left = memory.known_duration - memory.ran
        short = waiting[(memory.kind[waiting] == UNACCEPTED) & (left[waiting] <= end - now)]
        holding = waiting[memory.forced[waiting] & (memory.kind[waiting] == ACCEPTED)]
        running = np.array(memory.running, dtype=np.int64)
        kept = running[memory.leased[running] | memory.forced[running]]
        room = memory.capacity - int(memory.gpus[kept].sum()) - int(memory.gpus[holding].sum())
        for row in short[np.argsort((left * memory.gpus)[short], kind="stable")].tolist():
            if memory.gpus[row] <= room:
                room -= int(memory.gpus[row])
                memory.forced[row], memory.planned[row] = True, False
                if memory.submitted[row] >= end - self.clock.lease:
                    memory.kind[row] = ACCEPTED

    def _judge(self, memory: ChronusMemory, rows: Ints, now: int) -> None:
        """Jobs that would end after their deadline if they ran from now on come last; and how urgent all are.

        Minus the GPU time that is left or, of jobs with a promise or past hope, minus slack times GPUs.
        """
        duration = memory.known_duration if self.noise <= self.trusted_noise else memory.duration
        late = memory.due[rows] < now + duration[rows] - memory.ran[rows]
        memory.kind[rows[late & (memory.kind[rows] != BEST_EFFORT)]] = LOWEST
        left = memory.estimate[rows] - memory.ran[rows]
        free = (memory.kind[rows] == BEST_EFFORT) | (memory.kind[rows] == UNACCEPTED)
        due = np.where(free, 0.0, memory.due[rows])
        memory.urgency[rows] = -np.where(free, left, due - now - left) * memory.gpus[rows]

    def _give_back(self, memory: ChronusMemory, now: float) -> None:
        """Of jobs that ran on more GPUs than there are now (`now`: units), those without a guarantee go first."""
        guaranteed, stopped, free = memory.leased | memory.forced, [], memory.free
        for row in sorted(_in_order(memory, memory.running, last_first=False), key=lambda row: bool(guaranteed[row])):
            if free >= 0:
                break
            stopped.append(row)
            free += int(memory.gpus[row])
        memory.ran[stopped] += now - memory.seen[stopped]
        memory.stop(stopped, now)

    def _preempt(self, memory: ChronusMemory, wanted: int, now: int) -> None:
        """Jobs without a guarantee give GPUs back, those last in the order first, until `wanted` are free."""
        running = np.array(memory.running, dtype=np.int64)
        rows = running[~(memory.leased[running] | memory.forced[running])]
        self._judge(memory, rows, now)
        free, stopped = memory.free, []
        for row in _in_order(memory, rows.tolist(), last_first=False):
            if free >= wanted:
                break
            stopped.append(row)
            free += int(memory.gpus[row])
        self.count_needed(memory, stopped)
        memory.stop(stopped, now)


@dataclass(eq=False)
class Promises:
    """Options that are packed together, of jobs that have no plan yet, beside the plans of others.

    Attributes
    ----------
    capacity : GPUs of the cluster.
    options : GPUs, leases needed, slots up to the deadline, and row of the job.
    taken : GPUs that plans take of the coming slots.
    """

    capacity: int
    options: list[tuple[int, int, int, int]] = field(default_factory=list)
    taken: Ints = field(default_factory=lambda: np.zeros(0, dtype=np.int64))

    def add(self, gpus: int, needed: int, slots: Iterable[int], job: int) -> None:
        """The options of a job, by their numbers of slots."""
        self.options += [(gpus, needed, int(count), job) for count in slots]

    def fit(self) -> bool:
        """Whether there is room for all options."""
        if not self.options:
            return True
        gpus, needed, slots, job = np.array(self.options).T
        free = np.full(max(0, int(slots.max())), self.capacity)
        planned = self.taken[: len(free)]
        free[: len(planned)] -= planned
        return packs(free, gpus, needed, slots, job)


def rounded_gpus(gpus: Ints) -> Ints:
    """GPUs that the lease program counts with: up to 8, the next power of two."""
    steps = np.array([1, 2, 4, 8])
    return np.where(gpus <= 8, steps[np.minimum(np.searchsorted(steps, gpus), 3)], gpus)


def _in_order(memory: ChronusMemory, rows: list[int], *, last_first: bool) -> list[int]:
    """By overrun, class (without a promise and best effort as one), urgency and arrival; equal ones as they stand."""
    at = np.array(rows, dtype=np.int64)
    kind = np.minimum(memory.kind[at], UNACCEPTED)
    keys = (-memory.submitted[at], memory.urgency[at], kind, memory.overrun[at].astype(np.int64))
    ordered: list[int] = at[np.lexsort(tuple(-key for key in keys) if last_first else keys)].tolist()
    return ordered


def _first_fit(memory: ChronusMemory, rows: list[int]) -> list[int]:
    """Jobs in order, each whose GPUs are there."""
    free, chosen = memory.free, []
    for row, gpus in zip(rows, memory.gpus[rows].tolist(), strict=True):
        if gpus <= free:
            chosen.append(row)
            free -= gpus
    return chosen
