"""Rows that whole columns keep and shares of them need not: capacity in units of several GPUs, rounded down.

Where a pool has 767 GPUs and nearly all columns take multiples of 4, the relaxation puts the last 3 GPUs to use as well
and whole columns cannot. Divided by d and rounded down on both sides,

    sum_c floor(gpus_c / d) x_c  <=  floor(capacity / d),

a row of capacity holds for every whole x and cuts that off, so that the bound of the relaxation comes close to the
optimum.

Source: V. Chvatal, "Edmonds polytopes and a hierarchy of combinatorial problems", Discrete Mathematics 4 (1973).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from formulations.columns.written import Written

_MOST = 0.75
"""A divisor is tried where at least this share of the numbers of GPUs from it on, two at least, are multiples of it."""


def rounded_rows(written: Written) -> tuple[Any, NDArray[np.float64]] | None:
    """Rows (R, V) and their upper limits (R,), by pool and divisor ascending; None where there are none to add.

    Rows of capacity count whose variables are all whole and at least 0, and divisors that leave something of the limit.
    """
    from scipy.sparse import csr_array, vstack

    rows, limits = [], []
    for at in written.capacity_rows.tolist():
        row, limit = written.matrix[[at]].tocsr(), float(written.upper[at])
        if not np.isfinite(limit) or not written.whole[row.indices].all() or (written.least[row.indices] < 0).any():
            continue
        gpus = row.data
        if (gpus <= 0).any() or (gpus != np.rint(gpus)).any():
            continue
        numbers = np.unique(gpus[gpus > 1])
        for k, divisor in enumerate(numbers[:-1].tolist()):
            if limit % divisor and (numbers[k:] % divisor == 0).mean() >= _MOST:
                rows.append(csr_array((np.floor(gpus / divisor), row.indices, row.indptr), shape=row.shape))
                limits.append(np.floor(limit / divisor))
    return (csr_array(vstack(rows, format="csr")), np.array(limits)) if rows else None
