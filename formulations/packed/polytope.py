"""The polytope of allocations with space sharing, stated over jobs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from formulations.arguments import figures, instance
from formulations.core.polytope import Polytope
from formulations.core.solution import Pairs
from throughputs.arrays import Floats
from throughputs.numerics import matmul
from throughputs.packed import PackedColumns


@dataclass(frozen=True, eq=False)
class PackedPolytope:
    """Shares of time of jobs alone (x_ij) and of pairs of jobs on the same GPUs (z_ikj), all at least 0::

        sum_j ( x_ij + sum_k z_ikj )                     <= 1     for every job i
        sum_i s_i x_ij + sum_{i<k} s_i z_ikj             <= c_j   for every type j
        z_ikj = 0                                        where s_i != s_k

    and the throughput they yield, ``u_i = sum_j ( T_ij x_ij + sum_k T'_{i|k,j} z_ikj )``.

    Parameters
    ----------
    columns : what jobs can do alone and in pairs.
    capacity : (M,) GPUs of each type.

    Source: Narayanan et al., OSDI 2020, section 3.1 (space sharing).
    """

    columns: PackedColumns
    capacity: Floats

    def __init__(self, columns: PackedColumns, capacity: ArrayLike) -> None:
        instance("packed polytope", "columns", columns, PackedColumns)
        of_type = (columns.n_accelerators,)
        gpus = figures("packed polytope", "capacity", capacity, of_type, "numbers of at least 0")
        object.__setattr__(self, "columns", columns)
        object.__setattr__(self, "capacity", gpus)

    @property
    def n_jobs(self) -> int:
        """N."""
        return self.columns.n_jobs

    def throughput(self, shares: Floats, pairs: Pairs) -> Floats:
        """(N,) throughput u that `shares` (N, M) of jobs alone and `pairs` yield."""
        alone = (self.columns.rates * shares).sum(axis=1)
        return np.asarray(alone + pairs.throughput(pairs.rates(self.columns), self.n_jobs))

    def used(self, shares: Floats, pairs: Pairs) -> Floats:
        """(M,) GPUs in use, those of a pair counted once."""
        sizes = self.columns.scale_factors
        return np.asarray(matmul(sizes, shares) + pairs.gpus(sizes, shares.shape[1]))

    def violation(self, shares: Floats, pairs: Pairs) -> float:
        """Largest violation of a row, as a fraction of its right-hand side (of 1 GPU where capacity is below)."""
        N = len(shares)
        if N == 0:
            return 0.0
        sizes = self.columns.scale_factors
        time = shares.sum(axis=1) + pairs.time(N)
        over_capacity = (self.used(shares, pairs) - self.capacity) / np.maximum(self.capacity, 1.0)
        uneven = float(pairs.share[sizes[pairs.first] != sizes[pairs.second]].sum())
        least = min(float(shares.min()), float(pairs.share.min(initial=0.0)))
        return max(float(time.max()) - 1.0, float(over_capacity.max()), -least, uneven, 0.0)


def check_polytope(source: str, polytope: Any) -> None:
    """InputError unless it is a polytope, with pairs or without."""
    if not isinstance(polytope, PackedPolytope):
        instance(source, "polytope", polytope, Polytope, "Polytope(PlainColumns(matrix), capacity)")
