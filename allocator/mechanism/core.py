"""The decision core: policy, executor of its answers and placement behind one door.

A world (the simulator, a runtime) tells it what happened and asks who runs as what next:

    core.arrive(jobs); core.complete(jobs); core.record(decision, seconds); core.tell(trigger)
    decision = core.next(clock)

It does not know whether the world is simulated.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np
from numpy.typing import ArrayLike

from allocator.cluster import Cluster
from allocator.mechanism.executor import Executor, Step
from allocator.mechanism.isolated import IsolatedTime
from allocator.mechanism.placement.fractions import FractionPlacement
from allocator.mechanism.placement.gangs import Consolidated, rule_of_others
from allocator.mechanism.placement.placement import Placement
from allocator.mechanism.placement.rounds import RoundPlacement
from allocator.mechanism.plans import PlanBook
from allocator.mechanism.settings import MechanismSettings
from allocator.mechanism.shares import IdealShares
from allocator.protocol.assignment import NOBODY, Assignment, among_ids
from allocator.protocol.decision import Decision
from allocator.protocol.jobs import JobTable
from allocator.protocol.plan import UpcomingRounds
from allocator.protocol.policy import Need, PlanPolicy, Policy, SharePolicy, Trigger, is_ours
from allocator.protocol.state import ClusterState
from throughputs import InputError
from throughputs.arrays import Floats, Ints

if TYPE_CHECKING:
    from allocator.protocol.allocation import Allocation
    from throughputs.prices import PriceTable


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
    keeps_service : whether the policy needs a view that grows with training time (`View.adds`), which the world then
        reports.
    more_arrivals : whether the world still expects arrivals; True where it does not know.
    period_seconds : the policy is asked at the latest after so many seconds.
    restart_seconds : the longest start of a gang in this world.
    slot_seconds : least time between two decisions in this world.
    decisions : how many decisions were due since the first arrival, those without an active job included.
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
        self.jobs = jobs
        self.settings = settings = settings or MechanismSettings()
        self.ideal, self._seed, self._whole = ideal, seed, cluster
        self.active: Ints = np.empty(0, dtype=np.int64)
        self.allocation: Allocation | None = None
        self.policy_calls = 0
        self.policy_seconds = 0.0
        self.more_arrivals = True
        self.slot_seconds = self.restart_seconds = 0.0
        self.decisions = 0
        self._kept = [view for view in policy.needs if view.adds is not None]
        for view in self._kept:
            jobs.register(view.column, view.default)
        self.keeps_service = bool(self._kept)
        self._prices = prices
        watched = prices is not None and Trigger.PRICES in policy.triggers
        self.next_price_change = 0.0 if watched else np.inf
        self._equip(None)
        every = settings.decide_every_seconds
        self.period_seconds = policy.period_seconds if every is None else min(every, policy.period_seconds)
        self._triggers = policy.triggers.value
        self._keeps_isolated_time = Need.ISOLATED_TIME in policy.needs
        self._news = False
        self._rates_version = 0
        self._asked_at = -np.inf
        self._rounds = 0
        self._last: tuple[Step, Decision] | None = None
        self._running = Assignment.none()
        # Ids of those who have left since `_running` was decided and may be in it.
        self._left: list[int] = []
        self._held: tuple[tuple[int, ...], ...] = ()

    def _equip(self, gpus: tuple[int, ...] | None) -> None:
        """Be ready for these GPUs (ids, ascending); None: all."""
        # Placement numbers the GPUs that are there from 0; these are their ids.
        self._gpus, cluster, settings = gpus, self._whole, self.settings
        if gpus is not None:
            first = [*cluster.first_gpu.tolist(), cluster.total_gpus]
            counts = np.diff(np.searchsorted(gpus, first)).tolist()
            cluster = Cluster(dict(zip(cluster.accelerators, counts, strict=True)), cluster.gpus_per_server)
        self.cluster = cluster
        self._executor = _executor(self.policy, cluster, self.jobs, settings, self._seed, self.ideal)
        self._isolated = IsolatedTime(self.jobs, cluster)
        placement = _placement(self.policy, cluster, self.jobs, "off" if self.ideal else settings.placement)
        self._placement = placement
        self._room = placement.room if isinstance(placement, Placement | FractionPlacement) else None
        # Rounds are recorded with the GPUs of all rows; steps between events, many of them short, with changes only.
        self._by_changes = None if isinstance(placement, RoundPlacement | None) else placement

    def arrive(self, jobs: ArrayLike) -> None:
        """Jobs of the table (ids) arrived."""
        ids = np.asarray(jobs, dtype=np.int64)
        if len(ids):
            self._executor.arrived(ids)
            active = np.concatenate([self.active, ids])
            if len(ids) > 1 or (active[-2:-1] > ids).any():
                active.sort()
            self.active = active
            self.tell(Trigger.ARRIVAL)

    def complete(self, jobs: ArrayLike) -> None:
        """Active jobs completed, or were given up. Report their last round with `record` first."""
        ids = np.asarray(jobs, dtype=np.int64)
        if len(ids):
            self._leave(ids)
            self.tell(Trigger.COMPLETION)

    def _leave(self, ids: Ints) -> None:
        at = self.active.searchsorted(ids)
        if not len(self.active) or np.count_nonzero(self.active.take(at, mode="clip") != ids):
            raise InputError("jobs", found=ids.tolist(), expected="active jobs")
        self._executor.left(ids)
        jobs = ids.tolist()
        rows = None if self._held or self._by_changes is None else self._by_changes.leave(jobs)
        if rows is None:
            self._left += jobs
        else:
            self._running = rows
        if len(at) == 1:  # mostly; a mask of a long line takes longer than two slices of it
            self.active = np.concatenate((self.active[: at[0]], self.active[at[0] + 1 :]))
        else:
            stays = np.ones(len(self.active), dtype=np.bool_)
            stays[at] = False
            self.active = self.active[stays]

    def tell(self, trigger: Trigger) -> None:
        """Something happened; the policy is asked about it if it chose this trigger."""
        if trigger.value & self._triggers:
            self._news = True

    def record(self, decision: Decision, seconds: Floats) -> None:
        """The (K,) rows of `decision` ran for `seconds` (K,) each; to be told while their jobs are still active."""
        self._rounds += 1
        self._executor.record(decision.assignment, seconds)
        if self.keeps_service:
            self.record_service(decision.assignment, self.jobs.rows(decision.jobs), seconds)

    def record_service(self, rows: Assignment, at: Ints, seconds: Floats | float) -> None:
        """The (K,) `rows` trained for `seconds` (K,) each, outside rounds; kept for policies that need to know.

        Their jobs are `at` these rows (K,) of the table.
        """
        for view in self._kept:
            assert view.adds is not None
            added = view.adds(self.cluster, rows, seconds)
            if not is_ours(str(getattr(view.adds, "__module__", ""))):
                _check_added(added, at, f"view {view.name}")
            self.jobs.columns[view.column][at] += added

    @property
    def asked_at(self) -> float:
        """When it was last time to ask the policy, seconds; -inf before the first arrival."""
        return self._asked_at if self.decisions else -np.inf

    def due_at(self, clock: float) -> float:
        """When somebody will run although nobody does at `clock`, whatever happens, in seconds; inf: never."""
        due = self._executor.due_at(clock)
        return min(due, self._asked_at + self.period_seconds) if due < np.inf else due

    def record_rounds(self, rounds: int) -> None:
        """So many more rounds repeated the last one; what they add has been added to `sums`."""
        self._rounds += rounds

    def measured_together(self, one: Ints, other: Ints, accelerator: Ints) -> bool:
        """Jobs `one` and `other` (K,) shared GPUs of `accelerator` (K,), so what they do there is known from now on.

        Answers whether that is news; the policy is then asked about it.
        """
        if not self.jobs.measure_together(one, other, accelerator):
            return False
        self._executor.can_run_changed()
        self.tell(Trigger.RATES)
        return True

    def rates_changed(self, jobs: Ints, step_factor: Floats | None = None, *, news: bool = True) -> None:
        """The (K,) jobs of the table have other rates and steps from now on (their batch size changed).

        `step_factor` (K,) is new steps over old; without it progress is extrapolated as if the steps were the same. The
        policy is asked about it where it is `news`.
        """
        self._rates_version += 1
        self.jobs.rates_changed()
        self._executor.rates_changed()
        self._isolated.rates_changed(jobs, step_factor)
        if news:
            self.tell(Trigger.RATES)

    def sums(self) -> list[Floats]:
        """What every round adds to, changed in place."""
        return self._executor.sums() + [self.jobs.columns[view.column] for view in self._kept]

    def steady_rounds(self) -> bool:
        """Whether every coming round is like the last one, as long as the world has no news."""
        return not self._news and self._executor.steady_rounds()

    def next(self, clock: float) -> Decision:
        """Who runs as what from `clock` (seconds) on."""
        return finished(self.deciding(clock))

    def deciding(self, clock: float, *, waive_interval: bool = False) -> Generator[ClusterState, None, Decision]:
        """`next` in steps: stops before each call of the policy, with the state that it is about to be asked about.

        With `waive_interval` the policy is asked about any news since its last call, however recent that was.
        """
        if clock >= self.next_price_change:
            assert self._prices is not None
            self.next_price_change = self._prices.next_change(clock, self.cluster.accelerators)
            self._news = True
        if clock >= self._asked_at + self.period_seconds:
            self._news = True
        executor, calls = self._executor, self.policy_calls
        rejected = NOBODY
        if executor.due(clock, self._news, waive_interval):
            rejected = yield from self._ask(clock)
        step = executor.next(clock, self._running)
        if executor.starved(step, self._news):
            rejected = yield from self._ask(clock)
            step = executor.next(clock, self._running)
        return self._placed(step, clock, self.policy_calls != calls, rejected)

    def _ask(self, clock: float) -> Generator[ClusterState, None, Ints]:
        """Ask the policy about the active jobs; returns those that it rejected, who are gone then."""
        self._news, self._asked_at = False, clock
        active = self.active
        self.decisions += len(active) > 0 or self.decisions > 0
        if not len(active):
            self._executor.nobody(clock)
            return NOBODY
        if self._keeps_isolated_time:
            self._isolated.advance(active)
        given: dict[str, Any] = {
            "more_arrivals": self.more_arrivals,
            "slot_seconds": self.slot_seconds,
            "restart_seconds": self.restart_seconds,
            "rates_version": self._rates_version,
            "upcoming": UpcomingRounds(self._rounds, self.settings.round_seconds),
        }
        if self._prices is not None:
            given["gpu_prices"] = self._prices.price_at(clock, self.cluster.accelerators)
        running = self._running.among(active) if self._left else self._running
        state = self.jobs.snapshot(active, clock, self.cluster, self.policy.needs, running, **given)
        if self._room is not None:
            state.room_source = partial(self._room, active, self._left)
        yield state
        answer = self._executor.ask(self.policy, state, active)
        self.policy_seconds += answer.seconds
        self.policy_calls += 1
        self.allocation = answer.allocation
        if len(answer.rejected):
            self._leave(answer.rejected)
        return answer.rejected

    def _placed(self, step: Step, clock: float, recomputed: bool, rejected: Ints) -> Decision:
        """Place the rows. Steps that repeat the one before share its arrays."""
        seconds = min(step.seconds, self._asked_at + self.period_seconds - clock)
        last = self._last
        gpus: tuple[tuple[int, ...], ...] = ()
        change, assignment = None, step.assignment
        if last is not None and last[0] is step:
            same = last[1].recomputed == recomputed and last[1].seconds == seconds and not len(rejected)
            # only the first decision of a step has starts in its transition: a repetition does not pay for them again
            if same and last[1].before is last[1].assignment:
                return last[1]
            gpus, assignment = last[1].gpus, last[1].assignment
        elif step.interruptible and self._by_changes is not None:
            change = self._by_changes.place_changes(assignment)
            assignment = change.next
        elif self._placement is not None:
            gpus = self._named(self._placement.place(assignment))
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
        return () if self._placement is None else self._named([self._placement.gpus_of(job)])[0]

    def _named(self, gpus: Sequence[tuple[int, ...]]) -> tuple[tuple[int, ...], ...]:
        """The ids of GPUs that placement knows by number."""
        names = self._gpus
        return tuple(gpus) if names is None else tuple(tuple(names[number] for number in held) for held in gpus)

    def _numbered(self, held: Sequence[tuple[int, ...]]) -> tuple[tuple[int, ...], ...]:
        """The numbers by which placement knows GPUs with these ids."""
        if self._gpus is None:
            return tuple(held)
        number = {gpu: place for place, gpu in enumerate(self._gpus)}
        return tuple(tuple(number[gpu] for gpu in gpus) for gpus in held)

    @property
    def running(self) -> Assignment:
        """Who runs as what by the last decision; jobs that have completed since may be among them."""
        return self._running

    @property
    def missing_gpus(self) -> int:
        """GPUs of the cluster that are not there."""
        return self._whole.total_gpus - self.cluster.total_gpus

    def use(self, gpus: Sequence[int], stopped: Iterable[int]) -> None:
        """From now on there are these GPUs (ids, ascending); `stopped` are the ids of the jobs that had others.

        Those who run keep theirs, what jobs are owed and what the policy has promised stays, and the policy is asked.
        """
        gone = {*stopped, *self._left}
        stays = np.array([job not in gone for job in self._running.jobs.tolist()], dtype=np.bool_)
        running = self._running.take(stays.nonzero()[0])
        held = [self.gpus_of(job) for job in running.jobs.tolist()]
        state, columns = self.state() | {"placement": None}, dict(self.jobs.columns)
        self._equip(tuple(gpus))
        self.jobs.columns |= columns
        self.resume(state | {"there": self._gpus}, running, self._numbered(held))
        self._held = tuple(held)

    def state(self) -> dict[str, Any]:
        """What a checkpoint keeps; the last allocation is not among it."""
        running = self._running
        return {name: getattr(self, name) for name in _STATE} | {
            "there": self._gpus,
            "running": running,
            "executor": self._executor.state(),
            "isolated": self._isolated.state(),
            "gpus": self._held or tuple(map(self.gpus_of, running.jobs.tolist())),
            "placement": None if self._placement is None else self._placement.state(),
        }

    def restore(self, state: dict[str, Any], allocation: Allocation | None) -> None:
        """Go on from `state`, with the last `allocation` of before."""
        if state["there"] != self._gpus:
            self._equip(None if state["there"] is None else tuple(state["there"]))
        for name in _STATE:
            setattr(self, name, state[name])
        self._running = self.jobs.with_fractions(state["running"])
        self._left = self._running.jobs[~among_ids(self._running.jobs, self.active)].tolist()
        self._executor.restore(state["executor"])
        self._isolated.restore(state["isolated"])
        if self._placement is not None and state["placement"] is not None:
            self._held = tuple(state["gpus"])
            self._placement.restore(self._running, self._numbered(self._held), state["placement"])
        self.allocation, self._last = allocation, None

    def resume(self, state: dict[str, Any], running: Assignment, gpus: Sequence[tuple[int, ...]]) -> None:
        """Go on from the `state` of a core for the same jobs under the same policy, with other GPUs of the same types.

        `running` and their `gpus` are as in `adopt`. The policy is asked anew.
        """
        self.restore(state | {"placement": None}, None)
        self._executor.can_run_changed()
        self._news = True
        self.adopt(running, gpus)

    def adopt(self, running: Assignment, gpus: Sequence[tuple[int, ...]]) -> None:
        """The (K,) rows `running` of active jobs hold these GPUs (ids, ascending) already."""
        running = self.jobs.with_fractions(running)
        self._running, self._left, self._held, self._last = running, [], tuple(gpus), None
        if self._placement is not None:
            self._placement.adopt(running, gpus)


_STATE = ("active", "decisions", "policy_calls", "policy_seconds", "next_price_change", "_news", "_asked_at", "_rounds")


def _check_added(given: Any, at: Ints, source: str) -> None:
    """Raise InputError unless it is a number, or one for each of the rows `at`."""
    added = np.asarray(given)
    if added.shape not in ((), at.shape) or added.dtype.kind not in "biuf" or np.isnan(added).any():
        expected = f"a number, or one for each row, of shape {at.shape}"
        raise InputError(source, field="adds", found=added.tolist(), expected=expected)


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
    if policy.answers == "plan":
        return PlanBook(cast(PlanPolicy, policy), jobs, settings.round_seconds)
    return IdealShares(cluster, jobs) if ideal else settings.start(cast(SharePolicy, policy), cluster, jobs, seed)


def _placement(
    policy: Policy, cluster: Cluster, jobs: JobTable, rule: str
) -> Placement | RoundPlacement | FractionPlacement | None:
    """What places the rows of this policy; None where nobody does."""
    if jobs.fractions is not None:
        return FractionPlacement.under(policy, cluster, rule, jobs)
    if rule == "off":
        return None
    if policy.in_rounds and rule in ("best_fit", "first_fit"):
        rule = "consolidated"  # a round is full, so in it no gang waits for a server
    if policy.answers == "shares" and rule in ("in_order", "consolidated"):
        return RoundPlacement(cluster, rule == "consolidated")
    other = rule_of_others(rule)
    if other is None or issubclass(other, Consolidated):
        return Placement(cluster, rule)
    placement: Placement = other(cluster)
    return placement
