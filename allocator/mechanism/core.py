"""The decision core: policy, executor of its answers and placement behind one door.

A world (the simulator, a runtime) tells it what happened and asks who runs as what next:

    core.arrive(jobs); core.complete(jobs); core.record(decision, seconds); core.tell(trigger)
    decision = core.next(clock)

It does not know whether the world is simulated.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from allocator.cluster import Cluster
from allocator.mechanism.executor import Executor, Step
from allocator.mechanism.isolated import IsolatedTime
from allocator.mechanism.placement.anew import PlacementAnew
from allocator.mechanism.placement.fractions import FractionPlacement
from allocator.mechanism.placement.placement import Placement
from allocator.mechanism.placement.rounds import RoundPlacement
from allocator.mechanism.plans import PlanBook
from allocator.mechanism.rounds import RoundMechanism
from allocator.mechanism.settings import MechanismSettings
from allocator.mechanism.shares import IdealShares
from allocator.protocol.assignment import Assignment, among_ids
from allocator.protocol.decision import Decision
from allocator.protocol.jobs import JobTable
from allocator.protocol.plan import UpcomingRounds
from allocator.protocol.policy import Need, Policy, SharePolicy, Trigger
from allocator.protocol.state import ClusterState
from allocator.room import Room
from throughputs import InputError

if TYPE_CHECKING:
    from allocator.protocol.allocation import Allocation
    from throughputs.prices import PriceTable

_Ids = NDArray[np.int64]

Returned = TypeVar("Returned")


class DecisionCore:
    """Decides who runs as what on which GPUs.

    Parameters
    ----------
    policy : decides.
    cluster : the GPUs.
    jobs : all jobs that the world knows of. The world keeps their progress up to date; the core keeps
        `isolated_seconds`, `current_accelerator` and `current_partner`.
    settings : of the mechanism.
    seed : of the draw of types for policies that do not distinguish them.
    prices : dollars per GPU hour over time, for policies that read them; None: not known.
    ideal : shares of time are carried out as they are, without rounds and placement.

    Attributes
    ----------
    active : (n,) ids of the active jobs, ascending.
    next_price_change : when a policy that watches prices is to be asked anew, seconds; inf for never.
    allocation : what the policy last decided; None before its first call, and from policies that have none.
    keeps_service : whether the policy needs to know how long jobs have trained; the world then tells it.
    more_arrivals : whether the world still expects arrivals; it may know better than True.
    restart_seconds : what it takes a gang to start at most, as the world says.
    slot_seconds : how long the world waits from decision to decision at least.
    decisions : how often it was time to ask the policy since the first arrival, be it that nobody was there.
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
        ideal: bool = False,
    ) -> None:
        self.policy = policy
        self.cluster = cluster
        self.jobs = jobs
        self.settings = settings = settings or MechanismSettings()
        self.active: _Ids = np.empty(0, dtype=np.int64)
        self.allocation: Allocation | None = None
        self.policy_calls = 0
        self.policy_seconds = 0.0
        self.more_arrivals = True
        self.slot_seconds = self.restart_seconds = 0.0
        self.decisions = 0
        self.keeps_service = Need.SERVICE in policy.needs
        if self.keeps_service:
            for name in _SERVICE:
                jobs.register(name, 0.0)
        self._prices = prices
        watched = prices is not None and Trigger.PRICES in policy.triggers
        self.next_price_change = 0.0 if watched else np.inf
        self._executor = _executor(policy, cluster, jobs, settings, seed, ideal)
        self._isolated = IsolatedTime(jobs, cluster)
        self._placement = self._placed_by(settings, ideal)
        every = settings.decide_every_seconds
        self._period = policy.period_seconds if every is None else min(every, policy.period_seconds)
        self._triggers = policy.triggers.value
        self._keeps_isolated_time = Need.ISOLATED_TIME in policy.needs
        self._news = False
        self._rates_version = 0
        self._asked_at = -np.inf
        self._rounds = 0
        self._last: tuple[Step, Decision] | None = None
        self._running = Assignment.none()
        # Ids of those who have left since `_running` was decided.
        self._left: list[int] = []
        self._held: tuple[tuple[int, ...], ...] = ()

    def _placed_by(
        self, settings: MechanismSettings, ideal: bool
    ) -> Placement | PlacementAnew | RoundPlacement | FractionPlacement | None:
        """What places the rows of this policy; None where nobody does."""
        rule = "off" if ideal else settings.placement
        if self.jobs.fractions is not None:
            return FractionPlacement.under(self.policy, self.cluster, rule, self.jobs)
        return None if rule == "off" else self._executor.placement(self.cluster, rule)

    def arrive(self, jobs: ArrayLike) -> None:
        """Jobs of the table (ids) arrived."""
        ids = np.asarray(jobs, dtype=np.int64)
        if len(ids):
            self._executor.arrived(ids)
            active = np.concatenate([self.active, ids])
            active.sort()
            self.active = active
            self.tell(Trigger.ARRIVAL)

    def complete(self, jobs: ArrayLike) -> None:
        """Active jobs completed, or were given up. Report their last round with `record` first."""
        ids = np.asarray(jobs, dtype=np.int64)
        if len(ids):
            self._leave(ids)
            self.tell(Trigger.COMPLETION)

    def _leave(self, ids: _Ids) -> None:
        at = self.active.searchsorted(ids)
        if not len(self.active) or np.count_nonzero(self.active.take(at, mode="clip") != ids):
            raise InputError("jobs", found=ids.tolist(), expected="active jobs")
        self._executor.left(ids)
        self._left += ids.tolist()
        stays = np.ones(len(self.active), dtype=np.bool_)
        stays[at] = False
        self.active = self.active[stays]

    def tell(self, trigger: Trigger) -> None:
        """Something happened; the policy is asked about it if it chose this trigger."""
        if trigger.value & self._triggers:
            self._news = True

    def record(self, decision: Decision, seconds: NDArray[np.float64]) -> None:
        """The (K,) rows of `decision` ran for `seconds` (K,) each; to be told while their jobs are still active."""
        self._rounds += 1
        self._executor.record(decision.assignment, seconds)
        if self.keeps_service:
            self.record_service(decision.assignment, self.jobs.rows(decision.jobs), seconds)

    def record_service(self, rows: Assignment, at: _Ids, seconds: NDArray[np.float64] | float) -> None:
        """The (K,) `rows` trained for `seconds` (K,) each, outside rounds; kept for policies that need to know.

        Their jobs are `at` these rows (K,) of the table.
        """
        if self.keeps_service:
            columns = self.jobs.columns
            columns["service_seconds"][at] += seconds
            columns["service_gpu_seconds"][at] += seconds * rows.gpus_taken

    @property
    def asked_at(self) -> float:
        """When it was last time to ask the policy, seconds; -inf before the first arrival."""
        return self._asked_at if self.decisions else -np.inf

    @property
    def period_seconds(self) -> float:
        """The policy is asked at the latest after so many seconds."""
        return self._period

    def due_at(self, clock: float) -> float:
        """When somebody will run although nobody does at `clock`, whatever happens, in seconds; inf: never."""
        due = self._executor.due_at(clock)
        return min(due, self._asked_at + self._period) if due < np.inf else due

    def record_rounds(self, rounds: int) -> None:
        """So many further rounds went exactly like the last one; their time is entered elsewhere."""
        self._rounds += rounds

    def measured_together(self, one: _Ids, other: _Ids, accelerator: _Ids) -> bool:
        """Jobs `one` and `other` (K,) shared GPUs of `accelerator` (K,), so what they do there is known from now on.

        Answers whether that is news; the policy is then asked about it.
        """
        if not self.jobs.measure_together(one, other, accelerator):
            return False
        self._executor.beliefs_changed()
        self.tell(Trigger.RATES)
        return True

    def rates_changed(self, jobs: _Ids, step_factor: NDArray[np.float64] | None = None) -> None:
        """The (K,) jobs of the table have other rates and steps from now on (their batch size changed).

        `step_factor` (K,) is new steps over old; without it progress is reckoned on as if the steps were the same.
        """
        self._rates_version += 1
        self._executor.rates_changed()
        self._isolated.rates_changed(jobs, step_factor)
        if self.settings.decide_at_rate_changes:
            self.tell(Trigger.RATES)

    def sums(self) -> list[NDArray[np.float64]]:
        """What every round adds to, changed in place."""
        service = [self.jobs.columns[name] for name in _SERVICE] if self.keeps_service else []
        return self._executor.sums() + service

    def steady_rounds(self) -> bool:
        """Whether every coming round is like the last one, as long as the world has no news."""
        return not self._news and self._executor.steady_rounds()

    def next(self, clock: float, *, waive_interval: bool = False) -> Decision:
        """Who runs as what from `clock` (seconds) on.

        With `waive_interval` the policy is asked about any news since its last call, however recent that was.
        """
        return finished(self.deciding(clock, waive_interval=waive_interval))

    def deciding(self, clock: float, *, waive_interval: bool = False) -> Generator[ClusterState, None, Decision]:
        """`next` in steps: stops before each call of the policy, with the state that it is about to be asked about."""
        if clock >= self.next_price_change:
            assert self._prices is not None
            self.next_price_change = self._prices.next_change(clock, self.cluster.accelerators)
            self._news = True
        if clock >= self._asked_at + self._period:
            self._news = True
        executor, calls = self._executor, self.policy_calls
        rejected = _NOBODY
        if executor.due(clock, self._news, waive_interval):
            rejected = yield from self._ask(clock)
        step = executor.next(clock, self._running)
        if executor.starved(step, self._news):
            rejected = yield from self._ask(clock)
            step = executor.next(clock, self._running)
        return self._placed(step, clock, self.policy_calls != calls, rejected)

    def _ask(self, clock: float) -> Generator[ClusterState, None, _Ids]:
        """Ask the policy about the active jobs; returns those that it rejected, who are gone then."""
        self._news, self._asked_at = False, clock
        active = self.active
        self.decisions += len(active) > 0 or self.decisions > 0
        if not len(active):
            self._executor.nobody(clock)
            return _NOBODY
        if self._keeps_isolated_time:
            self._isolated.advance(active)
        prices = None if self._prices is None else self._prices.price_at(clock, self.cluster.accelerators)
        state = self.jobs.snapshot(active, clock, self.cluster, prices, self.policy.needs, self._running)
        state.more_arrivals, state.slot_seconds = self.more_arrivals, self.slot_seconds
        state.restart_seconds = self.restart_seconds
        state.rates_version = self._rates_version
        state.upcoming = UpcomingRounds(self._rounds, self.settings.round_seconds)
        if isinstance(self._placement, Placement):
            state.room_source = partial(self._room, self._placement, active, self._left)
        elif isinstance(self._placement, FractionPlacement):
            state.room_source = partial(self._placement.room, active, self._running)
        yield state
        answer = self._executor.ask(self.policy, state, active)
        self.policy_seconds += answer.seconds
        self.policy_calls += 1
        self.allocation = answer.allocation
        if len(answer.rejected):
            self._leave(answer.rejected)
        return answer.rejected

    def _room(self, placement: Placement, active: _Ids, left: list[int]) -> Room:
        """What is free when those who `left` (ids) have given back their GPUs; jobs are positions in `active` (ids)."""

        def held(position: int) -> tuple[int, tuple[int, ...]]:
            job = int(active[position])
            return placement.pool_of(job), placement.gpus_of(job)

        return Room(lambda pool: placement.free_gpus(pool, left), held)

    def _placed(self, step: Step, clock: float, recomputed: bool, rejected: _Ids) -> Decision:
        """Place the rows. Steps that repeat the one before share its arrays."""
        seconds = min(step.seconds, self._asked_at + self._period - clock)
        last = self._last
        gpus: tuple[tuple[int, ...], ...] = ()
        change, assignment = None, step.assignment
        if last is not None and last[0] is step:
            same = last[1].recomputed == recomputed and last[1].seconds == seconds and not len(rejected)
            # the first decision of a step tells of its starts, which are not to be paid for again
            if same and last[1].before is last[1].assignment:
                return last[1]
            gpus, assignment = last[1].gpus, last[1].assignment
        elif step.interruptible and isinstance(self._placement, Placement | PlacementAnew | FractionPlacement):
            # A round is written down with all its GPUs; of a step that may be short only what changes.
            change = self._placement.place_changes(assignment)
            assignment = change.next
        elif self._placement is not None:
            gpus = self._placement.place(assignment)
        decision = Decision(
            assignment=assignment,
            gpus=gpus,
            seconds=seconds,
            interruptible=step.interruptible,
            recomputed=recomputed,
            shares=step.shares,
            rejected=rejected,
            before=self._running,
            change=change,
            gpus_before=self._held,
        )
        if assignment is not self._running:
            self._left = []
        self._last, self._running, self._held = (step, decision), assignment, gpus
        return decision

    @property
    def memory(self) -> Any:
        """What the planner remembers; None under a policy that remembers nothing."""
        return self._executor.memory

    def gpus_of(self, job: int) -> tuple[int, ...]:
        """Ids of the GPUs of a job that runs; empty when placement is off."""
        return () if self._placement is None else self._placement.gpus_of(job)

    def state(self) -> dict[str, Any]:
        """What a checkpoint keeps; the last allocation is not among it."""
        running = self._running
        return {
            "active": self.active,
            "decisions": self.decisions,
            "policy_calls": self.policy_calls,
            "policy_seconds": self.policy_seconds,
            "next_price_change": self.next_price_change,
            "news": self._news,
            "asked_at": self._asked_at,
            "rounds": self._rounds,
            "running": (running.jobs, running.pool, running.gpus, running.partner),
            "executor": self._executor.state(),
            "isolated": self._isolated.state(),
            "placement": None if self._placement is None else self._placement.state(),
        }

    def restore(self, state: dict[str, Any], allocation: Allocation | None) -> None:
        """Go on from `state`, with the last `allocation` of before."""
        for name in ("active", "decisions", "policy_calls", "policy_seconds", "next_price_change"):
            setattr(self, name, state[name])
        self._news, self._asked_at, self._rounds = state["news"], state["asked_at"], state["rounds"]
        self._running = self.jobs.with_fractions(Assignment(*state["running"]))
        self._left = self._running.jobs[~among_ids(self._running.jobs, self.active)].tolist()
        self._executor.restore(state["executor"])
        self._isolated.restore(state["isolated"])
        if self._placement is not None and state["placement"] is not None:
            self._placement.restore(state["placement"])
            self._held = tuple(map(self._placement.gpus_of, self._running.jobs.tolist()))
        self.allocation, self._last = allocation, None

    def resume(self, state: dict[str, Any], running: Assignment, gpus: Sequence[tuple[int, ...]]) -> None:
        """Go on from the `state` of a core for the same jobs under the same policy, with other GPUs of the same types.

        `running` and their `gpus` are as in `adopt`. The policy is asked anew.
        """
        self.restore(state | {"placement": None}, None)
        self._executor.capacity_changed()
        self._news = True
        self.adopt(running, gpus)

    def adopt(self, running: Assignment, gpus: Sequence[tuple[int, ...]]) -> None:
        """The (K,) rows `running` of active jobs hold these GPUs (ids, ascending) already."""
        running = self.jobs.with_fractions(running)
        self._running, self._left, self._held, self._last = running, [], tuple(gpus), None
        if self._placement is not None:
            self._placement.adopt(running, gpus)


_NOBODY: _Ids = np.empty(0, dtype=np.int64)

# Columns of the job table that are kept for policies with Need.SERVICE.
_SERVICE = ("service_seconds", "service_gpu_seconds")


def finished(steps: Generator[Any, None, Returned]) -> Returned:
    """What `steps` returns when it is not stopped anywhere."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            returned: Returned = end.value
            return returned


def _executor(
    policy: Policy, cluster: Cluster, jobs: JobTable, settings: MechanismSettings, seed: int, ideal: bool
) -> Executor[Any]:
    """What carries out the answers of this kind of policy."""

    def shares(policy: SharePolicy) -> Executor[SharePolicy]:
        return IdealShares(cluster, jobs) if ideal else RoundMechanism(policy, cluster, jobs, settings, seed)

    kinds: dict[str, Callable[[Any], Executor[Any]]] = {
        "shares": shares,
        "plan": lambda policy: PlanBook(policy, jobs, settings.round_seconds),
    }
    return kinds[policy.answers](policy)
