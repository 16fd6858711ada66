"""The decision core: policy, round mechanism and placement behind one door.

A world (the simulator, a runtime) tells it what happened and asks who runs next:

    core.arrive(jobs); core.complete(jobs); core.record(decision, seconds)
    decision = core.next_round(clock)

It does not know whether the world is simulated.
"""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from allocator.cluster import Cluster
from allocator.jobs import JobTable
from allocator.mechanism.filling import fill_best_type, fill_merged, fill_types, preference
from allocator.mechanism.pairs import (
    PackedLedger,
    RowSizes,
    checked_pairs,
    fill_merged_rows,
    fill_type_rows,
    members,
    row_alone,
)
from allocator.mechanism.placement import Placement
from allocator.mechanism.plans import PlanBook
from allocator.mechanism.priorities import Queues, TimeLedger
from allocator.mechanism.settings import MechanismSettings
from allocator.planning import Planner
from allocator.protocol import ClusterState, Policy, RoundDecision
from throughputs import InputError
from throughputs.numerics import matmul

if TYPE_CHECKING:
    from allocator.allocation import Allocation
    from formulations import Pairs
    from throughputs.prices import PriceTable

__all__ = ["DecisionCore"]

_Ids = NDArray[np.int64]


class DecisionCore:
    """Decides round by round who runs where.

    Parameters
    ----------
    policy : decides on shares of time.
    cluster : the GPUs.
    jobs : all jobs that the world knows of. The world keeps their progress up to date; the core keeps
        `isolated_seconds` and `current_accelerator`.
    settings : of the mechanism.
    seed : of the draw of types for policies that do not distinguish them.
    prices : dollars per GPU hour over time, for policies that read them; None: not known.

    Attributes
    ----------
    next_price_change : when a policy that reads prices is to be asked anew, seconds; inf for never.
    allocation : what the policy last decided; None before its first call.
    policy_calls, policy_seconds : how often the policy was asked and how long it took in all.
    """

    def __init__(
        self,
        policy: Policy,
        cluster: Cluster,
        jobs: JobTable,
        settings: MechanismSettings | None = None,
        seed: int = 0,
        prices: PriceTable | None = None,
    ) -> None:
        self.policy = policy
        self.cluster = cluster
        self.jobs = jobs
        self.settings = settings = settings or MechanismSettings()
        self.allocation: Allocation | None = None
        self.policy_calls = 0
        self.policy_seconds = 0.0
        n_types = len(cluster.accelerators)
        # With pairs the rows of ledger and queues are jobs alone and pairs; without, they are jobs.
        self._packed = None if jobs.colocation is None else PackedLedger(jobs, n_types, settings)
        self._ledger = TimeLedger(n_types, settings) if self._packed is None else self._packed
        self._isolated = _IsolatedTime(jobs, cluster)
        self._placement = (
            None if settings.placement == "off" else Placement(cluster, settings.placement == "consolidated")
        )
        self._visit_order = settings.visit_order(cluster.accelerators)
        self._shuffles = settings.shuffle_accelerators and not policy.heterogeneity_aware
        self._shuffler = random.Random(seed + settings.shuffle_seed_offset)
        self._idle_fill = settings.idle_fill if policy.fills_idle_gpus else "off"
        self._strict = bool(getattr(policy, "strict_queue", False))
        self._capacity: list[int] = cluster.capacity.tolist()
        self._sizes: list[int] = jobs.scale_factor.tolist()
        self._preferences = preference(jobs.rates) if policy.heterogeneity_aware else None
        self._prices = prices
        watched = prices is not None and getattr(policy, "reads_prices", False)
        self.next_price_change = 0.0 if watched else np.inf
        self._changed = False
        self._last_decision_clock: float | None = None
        self._queues: Queues | None = None
        self._pairs: Pairs | None = None
        self._blocked: set[int] = set()
        self._last_rows: tuple[list[list[int]], RoundDecision] | None = None
        self._rounds = 0
        self._plans = PlanBook(policy, n_types) if isinstance(policy, Planner) else None

    @property
    def active(self) -> NDArray[np.int64]:
        """(n,) ids of the active jobs, ascending."""
        return self._ledger.jobs

    @property
    def pairs(self) -> Pairs | None:
        """The pairs of the last decision, as positions among the jobs that were active then."""
        return None if self._packed is None else self._pairs

    def arrive(self, jobs: ArrayLike) -> None:
        """Jobs of the table (positions) arrived."""
        ids = np.asarray(jobs, dtype=np.int64)
        if len(ids):
            self._ledger.add(ids, self.jobs.rates[ids].T > 0)
            self._note_change()

    def complete(self, jobs: ArrayLike) -> None:
        """Active jobs completed, or were given up. Report their last round with `record` first."""
        ids = np.asarray(jobs, dtype=np.int64)
        if len(ids):
            self._ledger.remove(ids)
            self._note_change()

    def record(self, decision: RoundDecision, seconds: NDArray[np.float64]) -> None:
        """The (K,) jobs of `decision` ran for `seconds` (K,) each; to be told while they are still active."""
        self._rounds += 1
        if self._packed is None:
            self._ledger.record(decision.jobs, decision.accelerator, seconds)
        else:
            self._packed.record_round(decision, seconds)

    def measured_together(self, one: _Ids, other: _Ids, accelerator: _Ids) -> bool:
        """Jobs `one` and `other` (K,) shared GPUs of `accelerator` (K,), so what they do there is known from now on.

        Answers whether that is news; the policy is then asked about it.
        """
        believed, columns = self.jobs.believed, self.jobs.colocation
        if self._packed is None or believed is None or columns is None:
            return False
        if not believed.measure(columns.group[one], columns.group[other], accelerator):
            return False
        self._packed.refresh_pairs()
        self._note_change()
        return True

    def jobs_appended(self) -> None:
        """The job table has grown at its end (`JobTable.append`)."""
        known = len(self._sizes)
        self._sizes += self.jobs.scale_factor[known:].tolist()
        if self._preferences is not None:
            self._preferences += preference(self.jobs.rates[known:])
        self._isolated.jobs_appended()

    def rates_changed(self, jobs: NDArray[np.int64], step_factor: NDArray[np.float64] | None = None) -> None:
        """The (K,) jobs of the table have other rates and steps from now on (their batch size changed).

        `step_factor` (K,) is new steps over old; without it progress is reckoned on as if the steps were the same.
        """
        if self._preferences is not None:
            for job, order in zip(jobs.tolist(), preference(self.jobs.rates[jobs]), strict=True):
                self._preferences[job] = order
        self._isolated.rates_changed(jobs, step_factor)
        self._changed |= self.settings.decide_at_rate_changes

    def shares(self, clock: float) -> NDArray[np.float64]:
        """(n, M) shares of the active jobs alone, for a world without rounds; the policy is asked about any change."""
        if clock >= self.next_price_change:
            self._note_price_change(clock)
        if self._changed:
            self._decide(clock)
        return self._ledger.shares.T if self._packed is None else self._packed.shares_alone

    def note_trouble(self) -> None:
        """Something else happened that the policy should be asked about, such as a round without a single step."""
        self._changed = True

    def next_round(self, clock: float, *, waive_interval: bool = False) -> RoundDecision:
        """Who runs in the round that starts at `clock` (seconds).

        With `waive_interval` the policy is asked about any change since its last call, however recent that was.
        """
        calls = self.policy_calls
        if clock >= self.next_price_change:
            self._note_price_change(clock)
        if self._plans is not None:
            if self._plans.outdated or waive_interval:
                self._decide(clock)
            return self._decision(self._plans.next_rows(), recomputed=self.policy_calls != calls)
        if self._changed and (waive_interval or self._interval_elapsed(clock)):
            self._decide(clock)
        rows = self._choose(clock)
        if self._changed and self.settings.decide_early_when_idle and len(self._ledger.jobs) and not any(rows):
            self._decide(clock)
            rows = self._choose(clock)
        return self._decision(rows, recomputed=self.policy_calls != calls)

    def __getstate__(self) -> dict[str, Any]:
        """All but the policy, which keeps no state; whoever restores the core sets it again."""
        return {name: value for name, value in self.__dict__.items() if name != "policy"}

    def _note_price_change(self, clock: float) -> None:
        assert self._prices is not None
        self.next_price_change = self._prices.next_change(clock, self.cluster.accelerators)
        self._changed = True

    def _note_change(self) -> None:
        self._changed = True
        self._queues = None
        if self._plans is not None:
            self._plans.jobs_changed = True

    def _interval_elapsed(self, clock: float) -> bool:
        last = self._last_decision_clock
        if last is None or (last == 0.0 and self.settings.free_decision_at_start):
            return True
        return clock - last >= self.settings.recompute_interval_seconds

    def _decide(self, clock: float) -> None:
        """Ask the policy for new shares and start a new count of the time received."""
        ledger = self._ledger
        ledger.start_count(clock)
        self._changed, self._queues, self._last_decision_clock = False, None, clock
        active = ledger.jobs
        if not len(active):
            if self._plans is not None:
                self._plans.clear()
            return
        self._isolated.advance(active)
        prices = None if self._prices is None else self._prices.price_at(clock, self.cluster.accelerators)
        state = self.jobs.snapshot(active, clock, self.cluster, prices, training=self._plans is not None)
        started = time.perf_counter()
        if self._plans is None:
            allocation = self.policy.allocate(state.after(self.allocation))
        else:
            allocation = self._plans.renew(self.policy, state, active, self._rounds, self.settings.round_seconds)
        self.policy_seconds += time.perf_counter() - started
        self.policy_calls += 1
        shares = _checked_shares(allocation.shares, state, self.policy.name)
        self.allocation = allocation
        if self._packed is None:
            ledger.set_shares(shares)
        else:
            self._pairs = checked_pairs(allocation.pairs, state, self.policy.name)
            self._packed.set_packed_shares(shares, self._pairs)
            self._note_partners(active, self._pairs)
        if not self.policy.preemptive:
            given = shares.max(axis=1) >= 1 - 1e-9
            self.jobs.current_accelerator[active] = np.where(given, shares.argmax(axis=1), -1)

    def _note_partners(self, active: NDArray[np.int64], pairs: Pairs) -> None:
        """Keep who shares with whom; with several partners, whichever comes last."""
        partner = self.jobs.current_partner
        partner[active] = -1
        partner[active[pairs.first]] = active[pairs.second]
        partner[active[pairs.second]] = active[pairs.first]

    def _prepare_queues(self) -> Queues:
        """Queues for the jobs and shares as they are now."""
        ledger, settings = self._ledger, self.settings
        eligible = ledger.can_run if self._idle_fill == "queue_order" else ledger.can_run & (ledger.shares > 0)
        blocked = ~ledger.decided if settings.undecided_jobs_block_gpus else np.zeros_like(ledger.decided)
        self._blocked = set(ledger.active[blocked].tolist())
        sizes = self.jobs.scale_factor[ledger.active] if self._packed is None else self._packed.row_sizes
        self._queues = Queues(ledger, eligible, sizes, settings)
        return self._queues

    def _choose(self, clock: float) -> list[list[int]]:
        """The rows (jobs; jobs alone and pairs) of the coming round for each type, in the order of their choice."""
        queues = self._queues or self._prepare_queues()
        visit_order = self._visit_order
        if self._shuffles:
            visit_order = visit_order.copy()
            self._shuffler.shuffle(visit_order)
        free, taken, sizes = self._capacity.copy(), set[int](), self._sizes
        if self._packed is not None:
            n_jobs = len(self._packed.jobs)
            if self.settings.queue == "per_type":
                rows = fill_type_rows(queues.per_type(clock), visit_order, sizes, free, taken, n_jobs)
            else:
                merged = zip(*queues.merged(clock, visit_order), strict=True)
                rows = fill_merged_rows(merged, sizes, free, taken, n_jobs)
        elif self.settings.queue == "per_type":
            rows = fill_types(queues.per_type(clock), visit_order, sizes, free, taken, self._strict)
        else:
            rows = fill_merged(zip(*queues.merged(clock, visit_order), strict=True), sizes, free, taken, self._strict)
        if self._idle_fill == "best_type" and len(taken) < len(self._ledger.jobs):
            self._fill_idle(clock, rows, visit_order, free, taken)
        if self._blocked:
            rows = [[job for job in chosen if job not in self._blocked] for chosen in rows]
        return rows

    def _fill_idle(
        self, clock: float, rows: list[list[int]], visit_order: list[int], free: list[int], taken: set[int]
    ) -> None:
        """Add waiting jobs to `rows` where GPUs are left; those that are owed most time first."""
        if not any(free):
            return
        ledger = self._ledger
        most_owed_first = (-ledger.owed(clock)).argsort(kind="stable")
        packed, blocked = self._packed is not None, self._blocked
        if packed and blocked:
            blocked = {job for row in blocked if len(who := members(row)) == 1 for job in who}
        waiting = [job for job in ledger.jobs[most_owed_first].tolist() if job not in taken and job not in blocked]
        fastest_first, rates = self._preferences, self.jobs.rates

        def preferred(job: int) -> list[int]:
            return fastest_first[job] if fastest_first is not None else [j for j in visit_order if rates[job, j] > 0]

        for job, j in fill_best_type(waiting, preferred, self._sizes, free):
            rows[j].append(row_alone(job) if packed else job)

    def _decision(self, rows: list[list[int]], recomputed: bool) -> RoundDecision:
        """Place the rows. Rounds that repeat the one before share its arrays."""
        if self._last_rows is not None and self._last_rows[0] == rows:
            last = self._last_rows[1]
            if last.recomputed == recomputed:
                return last
            return RoundDecision(last.jobs, last.accelerator, last.gpus, recomputed, last.partner)
        decision = self._placed(rows, recomputed) if self._packed is None else self._placed_pairs(rows, recomputed)
        self._last_rows = (rows, decision)
        return decision

    def _placed(self, rows: list[list[int]], recomputed: bool) -> RoundDecision:
        gpus: list[tuple[int, ...]] = []
        jobs: list[int] = []
        types: list[int] = []
        for j in self._visit_order:
            chosen = rows[j]
            jobs += chosen
            types += [j] * len(chosen)
            if self._placement is not None:
                gpus += self._placement.place(j, chosen, self._sizes)
        return RoundDecision(np.array(jobs, dtype=np.int64), np.array(types, dtype=np.int64), tuple(gpus), recomputed)

    def _placed_pairs(self, rows: list[list[int]], recomputed: bool) -> RoundDecision:
        jobs: list[int] = []
        types: list[int] = []
        partner: list[int] = []
        gpus: list[tuple[int, ...]] = []
        sizes = RowSizes(self._sizes)
        for j in self._visit_order:
            if self._placement is not None and self._placement.consolidated:
                self._placement.hand_over(j, rows[j], members)
            placed = [()] * len(rows[j]) if self._placement is None else self._placement.place(j, rows[j], sizes)
            for row, ids in zip(rows[j], placed, strict=True):
                who = members(row)
                jobs += who
                types += [j] * len(who)
                partner += who[::-1] if len(who) == 2 else (-1,)
                if self._placement is not None:
                    gpus += [ids] * len(who)
        chosen, on, beside = (np.array(values, dtype=np.int64) for values in (jobs, types, partner))
        return RoundDecision(chosen, on, tuple(gpus), recomputed, beside)


class _IsolatedTime:
    """Keeps `JobTable.isolated_seconds`: progress since the policy was last asked, at the isolated rate of that time.

    On an isolated share each of n jobs has 1/n of every type: q_i = sum_j c_j T_ij / max(n s_i, sum_j c_j) steps/s
    (Gavel, OSDI'20, sec. 4.2).
    """

    def __init__(self, jobs: JobTable, cluster: Cluster) -> None:
        self.jobs = jobs
        self._capacity = cluster.capacity
        self._all_gpus_rate: NDArray[np.float64] = matmul(jobs.rates, cluster.capacity)
        self._total_gpus = float(cluster.total_gpus)
        self._ids: NDArray[np.int64] = np.empty(0, dtype=np.int64)
        self._remaining: NDArray[np.float64] = np.empty(0)
        self._rate: NDArray[np.float64] = np.empty(0)

    def jobs_appended(self) -> None:
        """The job table has grown at its end."""
        new = self.jobs.rates[len(self._all_gpus_rate) :]
        self._all_gpus_rate = np.concatenate([self._all_gpus_rate, matmul(new, self._capacity)])

    def rates_changed(self, jobs: NDArray[np.int64], step_factor: NDArray[np.float64] | None) -> None:
        """Some jobs have other rates; the progress since the last decision is still reckoned at the rates of then."""
        self._all_gpus_rate[jobs] = matmul(self.jobs.rates[jobs], self._capacity)
        if step_factor is None or not len(self._ids):
            return
        row = self._ids.searchsorted(jobs)
        known = self._ids.take(row, mode="clip") == jobs
        self._remaining[row[known]] *= step_factor[known]
        self._rate[row[known]] *= step_factor[known]

    def advance(self, active: NDArray[np.int64]) -> None:
        """Bring the ledger up to now and remember the present state of the `active` jobs."""
        jobs = self.jobs
        now = np.maximum(jobs.total_steps[self._ids] - jobs.steps_done[self._ids], 0.0)
        moved = self._rate > 0
        ids = self._ids[moved]
        jobs.isolated_seconds[ids] += (self._remaining[moved] - now[moved]) / self._rate[moved]
        self._ids = active
        self._remaining = np.maximum(jobs.total_steps[active] - jobs.steps_done[active], 0.0)
        self._rate = self._all_gpus_rate[active] / np.maximum(len(active) * jobs.scale_factor[active], self._total_gpus)


def _checked_shares(shares: NDArray[np.float64], state: ClusterState, name: str) -> NDArray[np.float64]:
    if np.shape(shares) != state.rates.shape:
        raise InputError(
            f"policy {name}", field="shares", found=np.shape(shares), expected=f"shape {state.rates.shape}"
        )
    if not np.isfinite(shares).all() or (shares < 0).any():
        row, column = np.argwhere(~(np.isfinite(shares) & (shares >= 0)))[0]
        raise InputError(
            f"policy {name}",
            field=f"share of job {state.throughputs.jobs[row]!r} on {state.cluster.accelerators[column]!r}",
            found=float(shares[row, column]),
            expected="a share of time of at least 0",
        )
    return shares
