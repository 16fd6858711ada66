"""What similar jobs took lately: for each job, those of its group that had ended when it was submitted."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_Floats = NDArray[np.float64]


def recent(
    group: NDArray[np.int64], submitted: _Floats, ended: _Floats, values: _Floats, most: int
) -> tuple[_Floats, _Floats]:
    """Of the jobs of the same group that had ended before each job was submitted: the last value, and a mean.

    Parameters
    ----------
    group : (N,) of each job, from 0.
    submitted, ended : (N,) seconds; jobs whose end is nan never count.
    values : (N,) what is averaged.
    most : the mean is over so many jobs, those that ended last.

    Returns
    -------
    Last and mean, (N,) each; nan where none had ended. Sums are over the same few values in the same order whatever
    other jobs there are, so that later jobs change no bit.
    """
    n = len(group)
    known = np.flatnonzero(~np.isnan(ended))
    done = known[np.lexsort((known, ended[known], group[known]))]
    first = np.searchsorted(group[done], np.arange(group.max(initial=-1) + 1))
    # Ends and submissions in one line, group by group; at the same second the end comes first.
    both = np.concatenate([done, np.arange(n)])
    is_job = np.repeat([False, True], [len(done), n])
    line = np.lexsort((is_job, np.concatenate([ended[done], submitted]), group[both]))
    ends_so_far = np.cumsum(~is_job[line])
    asks = is_job[line]
    behind = np.empty(n, dtype=np.int64)
    behind[both[line][asks]] = ends_so_far[asks]
    begin = first[group] if n else np.empty(0, dtype=np.int64)
    count = np.minimum(behind - begin, most)
    total = np.zeros(n)
    for back in range(1, most + 1):
        there = count >= back
        total[there] += values[done[behind[there] - back]]
    last = np.full(n, np.nan)
    some = count > 0
    last[some] = values[done[behind[some] - 1]]
    return last, np.divide(total, count, out=np.full(n, np.nan), where=some)
