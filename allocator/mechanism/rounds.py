"""The round mechanism: from shares of time to who runs in each round. Source: Gavel, OSDI'20, sec. 5.

Who comes first in a round, what time is counted and who fills idle GPUs is said by a *discipline*. What a discipline
keeps in a run is a `RoundMechanism`.
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from allocator.cluster import Cluster
from allocator.conversion import check_fields
from allocator.mechanism.executor import Answer, Executor, Step, ask_for_shares
from allocator.mechanism.ledger import Ledger
from allocator.protocol.assignment import Assignment
from allocator.protocol.jobs import JobTable
from allocator.protocol.policy import Need, SharePolicy
from allocator.protocol.state import ClusterState
from throughputs.arrays import Floats, Ints


class Queues:
    """Orders the eligible (row, type) by priority; holds what stays the same from round to round.

    Priorities are given negated, (M, R), as sorting is ascending; those that are inf stay out of a round.

    Parameters
    ----------
    ties : (M, R) arrays that decide between equal priorities, the most important last, smaller first; then the lower
        job id.
    """

    def __init__(self, ties: Sequence[Floats]) -> None:
        # Ties are settled once: rows are stored in tie order, and the stable sort of a round keeps it.
        self._tie_order = np.lexsort(ties, axis=-1)
        types, rows = self._tie_order.shape
        self._row_start = rows * np.arange(types)[:, None]
        self._rows = self._tie_order + self._row_start

    def per_type(self, negated: Floats) -> list[list[int]]:
        """For each type the rows, as positions in the ledger, highest priority first."""
        values = negated.take(self._rows)
        order = values.argsort(axis=1, kind="stable")
        rows = self._tie_order.take(order + self._row_start)
        lengths = np.count_nonzero(values < np.inf, axis=1).tolist()
        return [row[:length].tolist() for row, length in zip(rows, lengths, strict=True)]

    def merged(self, negated: Floats, visit_order: Sequence[int]) -> tuple[list[int], list[int]]:
        """All rows and the type of each, highest priority first, equal ones in `visit_order` of the types."""
        visit = np.array(visit_order)
        values = negated.take(self._rows.take(visit, axis=0)).ravel()
        order = values.argsort(kind="stable")[: np.count_nonzero(values < np.inf)]
        rows = self._tie_order.take(visit, axis=0).ravel().take(order)
        return rows.tolist(), visit.take(order // self._tie_order.shape[1]).tolist()


_SHUFFLE = 5
"""Added to the seed of the run for the draw of types, so that it is another draw than that of the jobs."""


@dataclass(frozen=True)
class Rounds:
    """What a discipline is told of a run.

    Attributes
    ----------
    policy : its class data are read: whether it tells types apart, fills idle GPUs, has a strict queue, packs.
    cluster, jobs : the GPUs and the jobs.
    seconds : length of a round.
    interval_seconds : least time between two decisions of the policy; 0: decide at every change.
    seed : of the draw of types for policies that do not distinguish them.
    """

    policy: SharePolicy
    cluster: Cluster
    jobs: JobTable
    seconds: float
    interval_seconds: float = 0.0
    seed: int = 0

    @property
    def packs(self) -> bool:
        """Whether two jobs may share GPUs."""
        return Need.COLOCATION in self.policy.needs


@dataclass(frozen=True)
class Discipline(ABC):
    """Who comes first in a round, what time is counted, who fills idle GPUs; subclasses are frozen dataclasses.

    Their fields are settings by name, beside those of `MechanismSettings`.

    Attributes
    ----------
    name : what it is called in the settings of a run.
    """

    name: ClassVar[str]

    def __post_init__(self) -> None:
        check_fields(self, "mechanism settings")

    @abstractmethod
    def start(self, run: Rounds) -> RoundMechanism:
        """What it keeps and does in a run."""


class RoundMechanism(Executor[SharePolicy]):
    """Chooses the rows of each round by priority, so that the time they get follows their shares.

    Attributes
    ----------
    ledger : shares, and the time received.
    draws_types : whether the order in which types choose is drawn in every round: for policies that do not distinguish
        them.
    """

    def __init__(self, run: Rounds, ledger: Ledger) -> None:
        policy, cluster = run.policy, run.cluster
        self.ledger = ledger
        self.draws_types = not policy.heterogeneity_aware and len(cluster.accelerators) > 1
        self._table, self._seconds, self._interval = run.jobs, run.seconds, run.interval_seconds
        self._types = list(range(len(cluster.accelerators)))
        self._shuffler = random.Random(run.seed + _SHUFFLE)
        self._strict = policy.strict_queue
        self._capacity: list[int] = cluster.capacity.tolist()
        self._asked_at: float | None = None
        self._queues: Queues | None = None
        self._last: tuple[int, list[list[int]], Step] | None = None

    @abstractmethod
    def new_queues(self) -> Queues:
        """Queues for the rows and shares as they are now."""

    @abstractmethod
    def negated_priorities(self, clock: float, running: Assignment) -> Floats:
        """(M, R) negated priority of each row for a round at `clock` (seconds) after that of the rows `running`.

        inf: it may not be chosen. The queues are those of now.
        """

    @abstractmethod
    def choose(self, clock: float, queues: Queues, negated: Floats, types: list[int]) -> list[list[int]]:
        """The rows of the round at `clock` for each type, by negated priorities; `types` choose in this order."""

    def _prepared(self) -> Queues:
        if self._queues is None:
            self._queues = self.new_queues()
        return self._queues

    def priorities(self, clock: float, running: Assignment) -> Floats:
        """(M, R) priority of each row for a round at `clock` (seconds); -inf where it may not run."""
        self._prepared()
        return -self.negated_priorities(clock, running)

    def arrived(self, jobs: Ints) -> None:
        """They have no share yet."""
        self.ledger.add(jobs)
        self._queues = None

    def left(self, jobs: Ints) -> None:
        """Their rows are gone."""
        self.ledger.remove(jobs)
        self._queues = None

    def due(self, clock: float, news: bool, waive_interval: bool) -> bool:
        """About any news, but not within the least interval between two decisions."""
        first = self._asked_at is None and len(self.ledger.jobs) > 0
        return (news or first) and (waive_interval or self.interval_elapsed(clock))

    def interval_elapsed(self, clock: float) -> bool:
        """Whether the least interval since the last decision is over."""
        return self._asked_at is None or clock - self._asked_at >= self._interval

    def nobody(self, clock: float) -> None:
        """A new count of the time received begins all the same."""
        self.ledger.start_count(clock)
        self._queues, self._asked_at = None, clock

    def ask(self, policy: SharePolicy, state: ClusterState, active: Ints) -> Answer:
        """New shares, and a new count of the time received."""
        self.nobody(state.clock)
        answer, shares, pairs = ask_for_shares(policy, state, self._table, active)
        self.ledger.set_shares(shares, pairs)
        return answer

    def decided(self, clock: float, shares: Floats) -> None:
        """Take over (n, M) `shares` of the active jobs that were decided at `clock` (seconds) in a run of the past."""
        self.nobody(clock)
        self.ledger.set_shares(shares)

    def record(self, assignment: Assignment, seconds: Floats) -> None:
        """Enter the time of a round."""
        self.ledger.record(assignment, seconds)

    def can_run_changed(self) -> None:
        """Look again."""
        self.ledger.refresh()
        self._queues = None

    def next(self, clock: float, running: Assignment) -> Step:
        """The rows of the coming round."""
        types, queues = self._types, self._prepared()
        negated = self.negated_priorities(clock, running)
        if self.draws_types:
            types = types.copy()
            self._shuffler.shuffle(types)
        chosen = self.choose(clock, queues, negated, types)
        last = self._last
        if last is not None and last[0] == self.ledger.version and last[1] == chosen:
            return last[2]
        step = Step(self.ledger.assignment(chosen, self._types), self._seconds)
        self._last = self.ledger.version, chosen, step
        return step

    def steady_rounds(self) -> bool:
        """Whether the choice hangs on no priority: all rows with a share run, and no job waits or is drawn for."""
        last, ledger = self._last, self.ledger
        if last is None or last[0] != ledger.version:
            return False
        chosen = np.zeros(ledger.shares.shape, dtype=np.bool_)
        for j, rows in enumerate(last[1]):
            chosen[j, rows] = True
        # With one row for each job no other choice is possible, whoever comes first.
        return len(last[2].assignment) == len(ledger.jobs) and bool((chosen == (ledger.shares > 0)).all())

    def sums(self) -> list[Floats]:
        """Time received."""
        return self.ledger.sums()

    def state(self) -> dict[str, Any]:
        """What a checkpoint keeps."""
        return {"ledger": self.ledger.state(), "shuffler": self._shuffler.getstate(), "asked_at": self._asked_at}

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from `state`."""
        self.ledger.restore(state["ledger"])
        self._shuffler.setstate(state["shuffler"])
        self._asked_at = state["asked_at"]
        self._queues = self._last = None
