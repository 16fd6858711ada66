"""What policies share that keep jobs in line from decision to decision."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from itertools import repeat
from typing import Any

import numpy as np
from numpy.typing import NDArray

from allocator.protocol import ClusterState
from throughputs.tie_order import tie_order

_Ids = NDArray[np.int64]


def positions_of(jobs: Sequence[Hashable], known: Sequence[Hashable]) -> _Ids:
    """(N,) where in `known` each of the N `jobs` stands, -1 for one that is not there."""
    if jobs == known:
        return np.arange(len(jobs))
    place = dict(zip(known, range(len(known)), strict=True))
    return np.fromiter(map(place.get, jobs, repeat(-1)), np.int64, len(jobs))


def carried_over(column: NDArray[Any], before: _Ids, new: _Ids) -> NDArray[Any]:
    """(N,) what jobs had that were at `before` (N,) in a `column` of the last decision; 0 for the `new` ones."""
    if not len(column):
        return np.zeros(len(before), dtype=column.dtype)
    carried: NDArray[Any] = column.take(before)
    carried[new] = 0
    return carried


def in_order_of_arrival(state: ClusterState, jobs: _Ids) -> _Ids:
    """The `jobs` (positions), the first to arrive first; of several at once the order of labels decides."""
    if len(jobs) < 2:
        return jobs
    labels = state.throughputs.jobs
    by_label = jobs[tie_order([labels[i] for i in jobs.tolist()])]
    return np.asarray(by_label[np.argsort(-state.elapsed_seconds[by_label], kind="stable")])
