"""The price of an accelerator type without GPUs: what its first GPU would bring.

A type without GPUs takes no part in a program, and any price of it proves the same bound. The least price at which no
job would earn more on it than its time is worth already is the one at which the bound holds for programs with some of
its GPUs as well. So it bounds what they bring, and where multipliers are unique it is the improvement per GPU.
"""

from __future__ import annotations

import numpy as np

from formulations.core.polytope import parts
from throughputs.arrays import Floats, Ints


def with_absent_types(worth: Floats, scale_factors: Ints | Floats, prices: Floats, capacity: Floats) -> Floats:
    """`prices` (M,) completed by those of types without GPUs.

    Parameters
    ----------
    worth : (N, M) what a share of each column earns its job, multipliers of its demand included.
    scale_factors : (N,) GPUs per gang.
    prices : (M,) of the types with GPUs, at least 0.
    capacity : (M,) GPUs of each type.
    """
    absent = np.flatnonzero(~(capacity > 0))
    present = np.flatnonzero(capacity > 0)
    completed = prices.copy()
    completed[absent] = 0.0
    for part in parts(len(worth)) if len(absent) else ():
        sizes = np.asarray(scale_factors[part], dtype=np.float64)
        of_time = np.zeros(len(sizes))
        for j in present:
            np.maximum(of_time, worth[part, j] - sizes * prices[j], out=of_time)
        for j in absent:
            earned = (worth[part, j] - of_time) / sizes
            completed[j] = max(completed[j], float(earned.max(initial=0.0)))
    return completed


def prices_of_none(rates: Floats) -> Floats:
    """(M,) prices where jobs with `rates` (N, M) stand outside of the program: not known for types that they run on.

    With GPUs for a job that gains nothing from any other type, an objective over all jobs would be one over more jobs.
    """
    return np.where((rates > 0).any(axis=0), np.nan, 0.0)
