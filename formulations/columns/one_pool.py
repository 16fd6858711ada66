"""Whole columns on one pool, of which each job has one at most: the best choice by dynamic programming over GPUs.

    F_i(g) = max( F_{i-1}(g),  max_{c of job i} v_c + F_{i-1}(g - gpus_c) )

is what the first i jobs are worth with g GPUs. With the few columns near the relaxation (`formulations.columns.near`)
that takes a fraction of what branch and bound does, and leaves no gap.
"""

from __future__ import annotations

import numpy as np

from formulations.columns.near import Search
from formulations.columns.written import Written
from formulations.core.solution import InfeasibleError
from throughputs.arrays import Flags, Floats, Ints


def search_one_pool(written: Written, cost: Floats) -> Search | None:
    """A search for the most `cost` z among some of the variables; None where there are other rows or variables."""
    if len(written.capacity_rows) != 1:
        return None
    of_pool = int(written.capacity_rows[0])
    others = np.delete(np.arange(len(written.row_lower)), of_pool)
    gpus, times = written.matrix[[of_pool]].toarray()[0], written.matrix[others].tocsc()
    if not (
        written.whole.all()
        and ((gpus > 0) & (gpus == np.rint(gpus))).all()
        and (np.diff(times.indptr) == 1).all()
        and (times.data == 1).all()
        and (written.row_upper[others] == 1).all()
    ):
        return None
    job, must, capacity = times.indices, written.row_lower[others] == 1, np.floor(written.row_upper[of_pool])
    gpus = gpus.astype(np.int64)

    def search(opened: Flags, point: Floats, start: Floats | None) -> tuple[Floats, float, bool]:  # noqa: ARG001
        z = np.where(opened, 0.0, point)
        held = np.bincount(job[z > 0], minlength=len(must))
        room = int(capacity - (gpus * z).sum())
        some = np.flatnonzero(opened & (written.upper == 1) & (held[job] == 0) & (gpus <= room))
        needed = np.flatnonzero(must & (held == 0))
        if room < 0 or (held > 1).any() or len(np.setdiff1d(needed, job[some])):
            raise InfeasibleError("the other columns leave no room")
        some = some[np.argsort(job[some], kind="stable")]
        worth: Floats = np.zeros(room + 1)
        chosen: list[Ints] = []
        for group in np.split(some, np.flatnonzero(np.diff(job[some])) + 1) if len(some) else []:
            best = np.full(room + 1, -np.inf) if job[group[0]] in needed else worth.copy()
            which = np.full(room + 1, -1)
            for column, count in zip(group.tolist(), gpus[group].tolist(), strict=True):
                value = worth[: room + 1 - count] + cost[column]
                better = value > best[count:]
                best[count:][better], which[count:][better] = value[better], column
            worth = best
            chosen.append(which)
        if worth[room] == -np.inf:
            raise InfeasibleError("jobs that must run do not fit")
        for which in reversed(chosen):
            column = int(which[room])
            if column >= 0:
                z[column], room = 1.0, room - int(gpus[column])
        return z, float(np.add.reduce(cost * z)), True

    return search
