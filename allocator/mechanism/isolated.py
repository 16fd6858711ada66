"""Time that the work done so far would have taken on an isolated share of the cluster."""

from __future__ import annotations

import numpy as np

from allocator.checkpoint.kept import Kept
from allocator.cluster import Cluster
from allocator.protocol.jobs import JobTable
from throughputs.arrays import Floats, Ints


class IsolatedTime(Kept):
    """Keeps `JobTable.isolated_seconds`: progress since the policy was last asked, at the isolated rate of that time.

    On an isolated share each of n jobs has 1/n of every type that its gang fits on: over these types
    q_i = sum_j c_j T_ij / max(n s_i, sum_j c_j) steps/s (Gavel, OSDI'20, sec. 4.2).
    """

    keeps = ("_ids", "_remaining", "_rate")

    def __init__(self, jobs: JobTable, cluster: Cluster) -> None:
        self._table = jobs
        self._types = cluster.by_name
        self._capacity = cluster.capacity[self._types].astype(np.float64)
        self._ids: Ints = np.empty(0, dtype=np.int64)
        self._remaining: Floats = np.empty(0)
        self._rate: Floats = np.empty(0)

    def rates_changed(self, jobs: Ints, step_factor: Floats | None) -> None:
        """Some jobs have other rates; the progress since the last decision is still counted at the rates of then.

        `step_factor` (K,) is new steps over old; without it progress is extrapolated as if the steps were the same.
        """
        if step_factor is None or not len(self._ids):
            return
        row = self._ids.searchsorted(jobs)
        known = self._ids.take(row, mode="clip") == jobs
        self._remaining[row[known]] *= step_factor[known]
        self._rate[row[known]] *= step_factor[known]

    def advance(self, active: Ints) -> None:
        """Bring the ledger up to now and remember the present state of the `active` jobs."""
        table = self._table
        moved = (self._rate > 0) & table.has(self._ids)
        then = table.rows(self._ids[moved])
        now = np.maximum(table.total_steps[then] - table.steps_done[then], 0.0)
        table.isolated_seconds[then] += (self._remaining[moved] - now) / self._rate[moved]
        at = table.rows(active)
        self._ids = active
        self._remaining = np.maximum(table.total_steps[at] - table.steps_done[at], 0.0)
        self._rate = self._isolated_rates(at)

    def _isolated_rates(self, at: Ints) -> Floats:
        """(n,) isolated rates q of the active jobs in rows `at`.

        As `formulations.isolated_throughput` has them, types in the order of their names: the published system, whose
        policy keeps this ledger itself, has the same last digits.
        """
        sizes = self._table.scale_factor[at][:, None]
        shares = np.where(sizes <= self._capacity, self._capacity / max(len(at), 1) / sizes, 0.0)
        shares /= np.maximum(shares.sum(axis=1, keepdims=True), 1.0)
        return np.asarray((self._table.rates[at][:, self._types] * shares).sum(axis=1))
