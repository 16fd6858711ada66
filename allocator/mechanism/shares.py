"""No mechanism at all: at every moment each job has exactly its shares, as far as there are GPUs."""

from __future__ import annotations

from typing import Any

import numpy as np

from allocator.cluster import Cluster
from allocator.mechanism.executor import Answer, Executor, Step, ask_for_shares
from allocator.protocol.assignment import Assignment
from allocator.protocol.jobs import JobTable
from allocator.protocol.policy import SharePolicy
from allocator.protocol.state import ClusterState
from formulations import Pairs
from throughputs.arrays import Flags, Floats, Ints
from throughputs.numerics import matmul


class IdealShares(Executor[SharePolicy]):
    """Rows with the shares of the allocation, until something happens; the policy is asked about any news.

    Shares that take more GPUs of a type than there are, as published baselines may return them, are cut in proportion;
    a job that the policy has not seen yet has none.

    Parameters
    ----------
    cluster, jobs : the GPUs and the jobs.
    """

    def __init__(self, cluster: Cluster, jobs: JobTable) -> None:
        self._capacity = cluster.capacity
        self._table = jobs
        self.nobody(0.0)

    def _decided(self, active: Ints, shares: Floats, pairs: Pairs | None) -> None:
        """Shares of the `active` jobs (ids) from now on, alone and in pairs."""
        self._asked_about, self._shares, self._pairs = active, shares, Pairs.none() if pairs is None else pairs
        self._step: Step | None = None

    def arrived(self, jobs: Ints) -> None:
        """They have no share before the policy was asked."""

    def left(self, jobs: Ints) -> None:
        """Their shares are gone."""
        kept = ~np.isin(self._asked_about, jobs)
        self._decided(self._asked_about[kept], self._shares[kept], _among(self._pairs, kept))

    def due(self, clock: float, news: bool, waive_interval: bool) -> bool:  # noqa: ARG002
        """At any news."""
        return news

    def nobody(self, clock: float) -> None:  # noqa: ARG002
        """Nobody has a share."""
        self._decided(np.empty(0, dtype=np.int64), np.empty((0, len(self._capacity))), None)

    def ask(self, policy: SharePolicy, state: ClusterState, active: Ints) -> Answer:
        """New shares."""
        answer, shares, pairs = ask_for_shares(policy, state, self._table, active)
        self._decided(active, shares, pairs)
        return answer

    def rates_changed(self) -> None:
        """Where a job can run may have changed."""
        self._step = None

    def next(self, clock: float, running: Assignment) -> Step:  # noqa: ARG002
        """One row per job and type with a share, two per pair."""
        if self._step is None:
            self._step = self._feasible()
        return self._step

    def _feasible(self) -> Step:
        """Shares cut to the GPUs of each type and to the time of each job; none where a job cannot run."""
        table, active, n = self._table, self._asked_about, len(self._asked_about)
        at = table.rows(active)
        sizes, shares, pairs = table.scale_factor[at], np.where(table.rates[at] > 0, self._shares, 0.0), self._pairs
        used = matmul(sizes, shares)
        if len(pairs):
            pairs = self._that_run(pairs, at)
            used = used + pairs.gpus(sizes, len(used))
        kept = np.minimum(1.0, self._capacity / np.maximum(used, 1e-300))
        shares, together = shares * kept, pairs.share * kept[pairs.accelerator]
        busy = np.maximum(shares.sum(axis=1) + pairs.of_jobs(together, together, n), 1.0)
        together = together * (1.0 / np.maximum(busy[pairs.first], busy[pairs.second]))
        shares = shares / busy[:, None]
        row, pool = np.nonzero(shares)
        both, beside = (
            np.stack(each, axis=1).ravel() for each in ((pairs.first, pairs.second), (pairs.second, pairs.first))
        )
        who = np.concatenate([row, both])
        rows = Assignment(
            active[who],
            np.concatenate([pool, np.repeat(pairs.accelerator, 2)]),
            sizes[who],
            np.concatenate([np.full(len(row), -1, dtype=np.int64), active[beside]]),
        )
        share = np.concatenate([shares[row, pool], np.repeat(together, 2)])
        return Step(rows, np.inf, interruptible=True, shares=share)

    def _that_run(self, pairs: Pairs, at: Ints) -> Pairs:
        """The pairs that have a share and are believed to make progress, the lower job first."""
        columns = self._table.colocation
        assert columns is not None
        together, group = self._table.believed_together, columns.group[at]
        first, second = np.minimum(pairs.first, pairs.second), np.maximum(pairs.first, pairs.second)
        one, other, j = group[first], group[second], pairs.accelerator
        kept = (pairs.share > 0) & (together[one, other, j] > 0) & (together[other, one, j] > 0)
        return type(pairs)(first[kept], second[kept], j[kept], pairs.share[kept])

    def state(self) -> dict[str, Any]:
        """What a checkpoint keeps."""
        return {"asked_about": self._asked_about, "shares": self._shares, "pairs": self._pairs}

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from `state`."""
        self._decided(state["asked_about"], state["shares"], state["pairs"])


def _among(pairs: Pairs, kept: Flags) -> Pairs:
    """The pairs of those who are left, numbered anew."""
    position = np.cumsum(kept) - 1
    alive = kept[pairs.first] & kept[pairs.second]
    first, second = position[pairs.first[alive]], position[pairs.second[alive]]
    return type(pairs)(first, second, pairs.accelerator[alive], pairs.share[alive])
