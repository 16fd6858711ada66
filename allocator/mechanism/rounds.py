"""The round mechanism: from shares of time to who runs in each round. Source: Gavel, OSDI'20, sec. 5."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from allocator.cluster import Cluster
from allocator.mechanism.executor import Answer, Executor, Step, ask_for_shares, consolidated_in_rounds
from allocator.mechanism.gang_packing import Vacancies, pack_best_type, pack_global, pack_per_type, preference
from allocator.mechanism.ledger import TimeLedger
from allocator.mechanism.pair_ledger import PairLedger
from allocator.mechanism.placement.placement import Placement
from allocator.mechanism.placement.rounds import RoundPlacement
from allocator.mechanism.queues import Queues
from allocator.mechanism.settings import MechanismSettings
from allocator.protocol.assignment import Assignment
from allocator.protocol.jobs import JobTable
from allocator.protocol.policy import Need, SharePolicy
from allocator.protocol.state import ClusterState

_Ids = NDArray[np.int64]


class RoundMechanism(Executor[SharePolicy]):
    """Chooses the rows of each round by priority, so that the time they get follows their shares.

    Parameters
    ----------
    policy : its class data are read: whether it tells types apart, fills idle GPUs, has a strict queue, packs.
    cluster, jobs, settings : the GPUs, the jobs, the settings.
    seed : of the draw of types for policies that do not distinguish them.
    """

    def __init__(
        self, policy: SharePolicy, cluster: Cluster, jobs: JobTable, settings: MechanismSettings, seed: int
    ) -> None:
        self._table = jobs
        self._settings = settings
        ledger = PairLedger if Need.COLOCATION in policy.needs else TimeLedger
        self._ledger: TimeLedger = ledger(jobs, len(cluster.accelerators), settings)
        self._visit_order = settings.visit_order(cluster.accelerators)
        self._aware = policy.heterogeneity_aware
        draws = settings.shuffle_accelerators and not policy.heterogeneity_aware
        self._shuffles = draws and len(cluster.accelerators) > 1
        self._shuffler = random.Random(seed + settings.shuffle_seed_offset)
        self._idle_fill = (settings.idle_fill or "best_type") if policy.fills_idle_gpus else "off"
        binding = not policy.fills_idle_gpus and not policy.relative_shares
        accounted = settings.idle_fill is None and settings.time_counted == "since_decision"
        self._only_due = settings.idle_fill == "off" or (accounted and binding)
        self._strict = policy.strict_queue
        self._keeps = settings.hysteresis_rounds > 0
        self._notes_incumbents = self._keeps or self._only_due
        self._capacity: list[int] = cluster.capacity.tolist()
        self._last_decision_clock: float | None = None
        self._queues: Queues | None = None
        self._blocked: set[int] = set()
        self._waiting: _Waiting | None = None
        self._last: tuple[int, list[list[int]], Step] | None = None

    def arrived(self, jobs: _Ids) -> None:
        """Jobs came; they have no share yet."""
        self._ledger.add(jobs, self._table.rates[self._table.rows(jobs)].T > 0)
        self._queues = None

    def left(self, jobs: _Ids) -> None:
        """Jobs are gone; the time they had still counts for the types."""
        self._ledger.remove(jobs)
        self._queues = None

    def due(self, clock: float, news: bool, waive_interval: bool) -> bool:
        """About any news, but not within the least interval between two decisions."""
        first = self._last_decision_clock is None and len(self._ledger.jobs) > 0
        return (news or first) and (waive_interval or self._interval_elapsed(clock))

    def _interval_elapsed(self, clock: float) -> bool:
        last = self._last_decision_clock
        if last is None or (last == 0.0 and self._settings.free_decision_at_start):
            return True
        return clock - last >= self._settings.recompute_interval_seconds

    def _start_count(self, clock: float) -> None:
        self._ledger.start_count(clock)
        self._queues, self._last_decision_clock = None, clock

    def nobody(self, clock: float) -> None:
        """A new count of the time received begins all the same."""
        self._start_count(clock)

    def ask(self, policy: SharePolicy, state: ClusterState, active: _Ids) -> Answer:
        """New shares, and a new count of the time received."""
        self._start_count(state.clock)
        answer, shares, pairs = ask_for_shares(policy, state, self._table, active)
        self._ledger.set_shares(shares, pairs)
        return answer

    def decided(self, clock: float, shares: NDArray[np.float64]) -> None:
        """Take over (n, M) `shares` of the active jobs that were decided at `clock` (seconds) in a run of the past."""
        self._start_count(clock)
        self._ledger.set_shares(shares)

    @property
    def ledger(self) -> TimeLedger:
        """Shares, and the time received."""
        return self._ledger

    def priorities(self, clock: float, running: Assignment) -> NDArray[np.float64]:
        """(M, rows) priority of each row of the ledger on each type for a round at `clock`; nan where it may not run.

        Rows without a share have -inf where they may fill idle GPUs; `running` are those of the round before.
        """
        if self._notes_incumbents:
            self._ledger.note_incumbents(running)
        return (self._queues or self._prepare_queues()).priorities(clock, self._due(clock))

    def record(self, assignment: Assignment, seconds: NDArray[np.float64]) -> None:
        """Enter the time of a round."""
        self._ledger.record(assignment, seconds)

    def beliefs_changed(self) -> None:
        """Look again where pairs can run."""
        assert isinstance(self._ledger, PairLedger)
        self._ledger.refresh_pairs()
        self._queues = None

    def capacity_changed(self) -> None:
        """Look again where jobs can run."""
        self._ledger.refresh()
        self._queues = self._last = None

    def rates_changed(self) -> None:
        """Other types may be the fastest now."""
        self._waiting = None

    def placement(self, cluster: Cluster, rule: str) -> Placement | RoundPlacement:
        """Whole rounds at once; blocks of powers of two are kept in proportion to what changes."""
        rule = consolidated_in_rounds(rule)
        at_once = rule in ("in_order", "consolidated")
        return RoundPlacement(cluster, rule == "consolidated") if at_once else super().placement(cluster, rule)

    def starved(self, step: Step, news: bool) -> bool:
        """Nobody runs although some are there, and something is news."""
        early = news and self._settings.decide_early_when_idle
        return early and len(self._ledger.jobs) > 0 and not len(step.assignment)

    def next(self, clock: float, running: Assignment) -> Step:
        """The rows of the coming round."""
        if self._notes_incumbents:
            self._ledger.note_incumbents(running)
        chosen = self._choose(clock)
        last = self._last
        if last is not None and last[0] == self._ledger.version and last[1] == chosen:
            return last[2]
        step = Step(self._ledger.assignment(chosen, self._visit_order), self._settings.round_seconds)
        self._last = self._ledger.version, chosen, step
        return step

    def _prepare_queues(self) -> Queues:
        """Queues for the jobs and shares as they are now."""
        ledger, settings = self._ledger, self._settings
        eligible = ledger.can_run if self._idle_fill == "queue_order" else ledger.can_run & (ledger.shares > 0)
        blocked = ~ledger.decided if settings.undecided_jobs_block_gpus else np.zeros_like(ledger.decided)
        self._blocked = set(np.flatnonzero(blocked).tolist())
        self._queues, self._waiting = Queues(ledger, eligible, settings), None
        return self._queues

    def _choose(self, clock: float) -> list[list[int]]:
        """The rows of the coming round for each type, in the order of their choice."""
        queues = self._queues or self._prepare_queues()
        visit_order = self._visit_order
        if self._shuffles:
            visit_order = visit_order.copy()
            self._shuffler.shuffle(visit_order)
        due = self._due(clock)
        gpus = self._capacity if due is None else self._ledger.due_gpus(due, clock, self._capacity)
        rows, left = self._ledger.rows, Vacancies(gpus, len(self._ledger.jobs))
        if self._settings.queue == "per_type":
            chosen = pack_per_type(queues.per_type(clock, due), visit_order, rows, left, self._strict)
        else:
            chosen = pack_global(zip(*queues.merged(clock, visit_order, due), strict=True), rows, left, self._strict)
        if self._idle_fill == "best_type" and left.waiting:
            self._fill_idle(clock, chosen, visit_order, left)
        if self._blocked:
            chosen = [[row for row in mine if row not in self._blocked] for mine in chosen]
        return chosen

    def _due(self, clock: float) -> NDArray[np.bool_] | None:
        """(M, rows) that may be chosen in the round at `clock`; None: all."""
        return self._ledger.due(clock) if self._only_due else None

    def due_at(self, clock: float) -> float:
        """The beginning of the next round in which somebody's time is due; inf where nobody waits for his time."""
        rounds = self._ledger.rounds_to_due(clock) if self._only_due else np.inf
        return clock + max(rounds, 1.0) * self._settings.round_seconds

    def _fill_idle(self, clock: float, chosen: list[list[int]], visit_order: list[int], left: Vacancies) -> None:
        """Add waiting jobs, alone, where GPUs are left; those that are owed most time first."""
        if not any(left.free):
            return
        ledger, taken = self._ledger, left.taken
        waiting = self._waiting or self._look_up_waiting()
        blocked, row_alone = waiting.blocked, waiting.row_alone
        owed = ledger.owed(clock)
        if self._keeps:
            stays = ledger.incumbent[:, ledger.alone(np.arange(len(owed)))].any(axis=0)
            owed = owed + stays * ledger.hysteresis_seconds
        most_owed_first = (-owed).argsort(kind="stable")
        jobs = [job for job in most_owed_first.tolist() if not taken[job] and job not in blocked]

        def preferred(job: int) -> list[int]:
            types = waiting.fastest_first[job]
            return types if self._aware else [j for j in visit_order if j in types]

        for job, j in pack_best_type(jobs, preferred, waiting.gpus, left.free):
            chosen[j].append(row_alone[job])

    def _look_up_waiting(self) -> _Waiting:
        """Types and GPUs of the active jobs, once for each set of queues."""
        ledger, table = self._ledger, self._table
        at = table.rows(ledger.jobs)
        row_alone = ledger.alone(np.arange(len(at))).tolist()
        blocked = {job for job, row in enumerate(row_alone) if row in self._blocked}
        self._waiting = _Waiting(preference(table.rates[at]), table.scale_factor[at].tolist(), row_alone, blocked)
        return self._waiting

    def steady_rounds(self) -> bool:
        """Whether the choice hangs on no priority: all rows with a share run, and no job waits or is drawn for."""
        last, ledger = self._last, self._ledger
        drawn = self._shuffles and self._idle_fill != "off"
        if last is None or last[0] != ledger.version or drawn or self._blocked:
            return False
        if self._only_due and ((ledger.shares > 0) & (ledger.shares < 1)).any():
            return False
        chosen = np.zeros(ledger.shares.shape, dtype=np.bool_)
        for j, rows in enumerate(last[1]):
            chosen[j, rows] = True
        # With one row for each job no other choice is possible, whoever comes first.
        return len(last[2].assignment) == len(ledger.jobs) and bool((chosen == (ledger.shares > 0)).all())

    def sums(self) -> list[NDArray[np.float64]]:
        """Time received, by row and by type."""
        return [self._ledger.received, self._ledger.type_time]

    def state(self) -> dict[str, Any]:
        """What a checkpoint keeps."""
        return {
            "ledger": self._ledger.state(),
            "shuffler": self._shuffler.getstate(),
            "last_decision_clock": self._last_decision_clock,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from `state`."""
        self._ledger.restore(state["ledger"])
        self._shuffler.setstate(state["shuffler"])
        self._last_decision_clock = state["last_decision_clock"]
        self._queues = self._last = None


@dataclass(frozen=True)
class _Waiting:
    """What idle GPUs are filled by: of each active job the types, fastest first, the GPUs, and the row in which it runs
    alone; and the jobs that may not run yet."""

    fastest_first: list[list[int]]
    gpus: list[int]
    row_alone: list[int]
    blocked: set[int]
