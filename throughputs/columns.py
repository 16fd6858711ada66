"""The general column form: every way to spend GPU time, as sparse matrices.

A *configuration* (column ``c``) is one way to spend GPU time: a job on an accelerator type with its gang, a
job with another gang size, a pair of jobs sharing GPUs. It says whom it occupies (``time``), how fast each of
them goes (``rate``) and what it takes (``usage``). An allocation ``x[c] >= 0`` gives each column a share of
time.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from throughputs.matrix import ThroughputMatrix

if TYPE_CHECKING:
    from scipy.sparse import csr_array


@dataclass(frozen=True, eq=False)
class Columns:
    """C configurations of N jobs on M accelerator types.

    Attributes
    ----------
    time : (N, C) 1 where the column occupies the job's time.
    rate : (N, C) throughput of the job in that column, steps/s.
    usage : (M, C) GPUs of each accelerator type that the column takes while it runs.
    members : for each column, the positions of the jobs it runs (one, or two for a pair).
    accelerator : (C,) position of the accelerator type each column runs on.
    jobs, accelerators : the labels.
    """

    time: csr_array
    rate: csr_array
    usage: csr_array
    members: tuple[tuple[int, ...], ...]
    accelerator: NDArray[np.int64]
    jobs: tuple[Hashable, ...]
    accelerators: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class PlainColumns:
    """The plain case: each job with its fixed gang on each accelerator type, no sharing.

    Column ``i * M + j`` is job i on type j. Kept as the dense matrix that the fast solvers read; the sparse
    general form is built when asked for.
    """

    matrix: ThroughputMatrix

    @property
    def rates(self) -> NDArray[np.float64]:
        """(N, M) throughput, steps/s."""
        return self.matrix.rates

    @property
    def scale_factors(self) -> NDArray[np.int64]:
        """(N,) GPUs per gang."""
        return self.matrix.scale_factors

    @cached_property
    def general(self) -> Columns:
        """The same columns as sparse matrices."""
        from scipy.sparse import csr_array

        N, M = self.rates.shape
        C = N * M
        job = np.repeat(np.arange(N), M)
        accelerator = np.tile(np.arange(M), N)
        column = np.arange(C)
        return Columns(
            time=csr_array((np.ones(C), (job, column)), shape=(N, C)),
            rate=csr_array((self.rates.ravel(), (job, column)), shape=(N, C)),
            usage=csr_array((np.repeat(self.scale_factors, M).astype(float), (accelerator, column)), shape=(M, C)),
            members=tuple((int(i),) for i in job),
            accelerator=accelerator,
            jobs=self.matrix.jobs,
            accelerators=self.matrix.accelerators,
        )
