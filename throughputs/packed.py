"""Columns of jobs with fixed gangs: without space sharing, and with it.

With space sharing a job is alone on its GPUs, or two jobs are on the same ones. N jobs have N (N - 1)/2 pairs, but
their rates are known by *group* (a job type with a scale factor): the tables here are over G groups and a group for
each job, so nothing grows with the square of N. Written out they are `throughputs.Configurations`.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from throughputs.arrays import Floats, Ints
from throughputs.errors import InputError, expect
from throughputs.limits import require_all, whole_numbers
from throughputs.matrix import ThroughputMatrix

_SOURCE = "packed columns"


@dataclass(frozen=True, eq=False)
class PlainColumns:
    """The plain case: each job with its fixed gang on each accelerator type, no sharing.

    Column ``i * M + j`` is job i on type j. Kept as the dense matrix that the fast solvers read.
    """

    matrix: ThroughputMatrix

    @property
    def jobs(self) -> tuple[Hashable, ...]:
        """N labels."""
        return self.matrix.jobs

    @property
    def rates(self) -> Floats:
        """(N, M) throughput, steps/s."""
        return self.matrix.rates

    @property
    def scale_factors(self) -> Ints:
        """(N,) GPUs per gang."""
        return self.matrix.scale_factors


@dataclass(frozen=True, eq=False)
class PackedColumns:
    """What N jobs can do on M accelerator types, alone or in pairs, by G groups of jobs with equal rates.

    Parameters
    ----------
    group : (N,) group of each job.
    alone : (G, M) throughput of a job of the group that has its GPUs to itself, steps/s.
    together : (G, G, M) ``together[a, b, j]``: throughput of a job of group a that shares its GPUs of type j with a
        job of group b; 0 where the two cannot share, as gangs of different sizes never can.
    group_scale_factors : (G,) GPUs that a job of the group occupies; 1 for every group when omitted.
    jobs : N distinct labels; 0 .. N - 1 when omitted.
    accelerators : M distinct names; ``type0`` .. when omitted.

    Raises
    ------
    InputError
        A shape does not fit, a group is unknown, a label is repeated, a rate is negative or not finite, a scale factor
        is not a positive whole number, or gangs of different sizes have a rate together.
    """

    group: Ints
    alone: Floats
    together: Floats
    group_scale_factors: Ints
    jobs: tuple[Hashable, ...]
    accelerators: tuple[str, ...]

    def __init__(
        self,
        group: ArrayLike,
        alone: ArrayLike,
        together: ArrayLike,
        group_scale_factors: ArrayLike | None = None,
        *,
        jobs: Sequence[Hashable] | None = None,
        accelerators: Sequence[str] | None = None,
    ) -> None:
        rates = np.array(alone, dtype=float)
        expect(rates.ndim == 2, _SOURCE, "alone", rates.shape, "two dimensions: groups, accelerators")
        G, M = rates.shape
        shared = np.array(together, dtype=float)
        expect(shared.shape == (G, G, M), _SOURCE, "together", shared.shape, f"shape {(G, G, M)}")
        groups = whole_numbers(group, _SOURCE, "group")
        if groups.ndim != 1 or (groups.size and not (groups.min() >= 0 and groups.max() < G)):
            raise InputError(_SOURCE, field="group", found=groups.tolist(), expected=f"a group below {G} for each job")
        # the checks of rates, labels and scale factors are those of the throughput matrix
        names = [f"type{j}" for j in range(M)] if accelerators is None else accelerators
        by_group = ThroughputMatrix(rates, range(G), names, group_scale_factors)
        labels = tuple(range(len(groups))) if jobs is None else tuple(jobs)
        expect(
            len(labels) == len(groups) and len(set(labels)) == len(labels),
            _SOURCE,
            "jobs",
            labels,
            f"{len(groups)} distinct labels",
        )
        sizes = by_group.scale_factors
        even = (shared <= 0) | (sizes[:, None] == sizes[None, :])[:, :, None]
        for good, expected in (
            (np.isfinite(shared) & (shared >= 0), "a finite throughput of at least 0 steps/s"),
            (even, "0, as gangs of different sizes cannot share GPUs"),
        ):
            require_all(good, shared, _SOURCE, lambda a, b, j: f"group {a} beside group {b} on {names[j]!r}", expected)
        vars(self).update(
            group=groups,
            alone=rates,
            together=shared,
            group_scale_factors=sizes,
            jobs=labels,
            accelerators=by_group.accelerators,
        )

    @classmethod
    def from_jobs(
        cls,
        matrix: ThroughputMatrix,
        together: ArrayLike,
    ) -> PackedColumns:
        """Columns of N jobs with a table of their own: `together` (N, N, M), ``[i, k, j]`` the rate of i beside k.

        Jobs that no figure tells apart become one group; what a job would do beside itself is not read.
        """
        shared = np.array(together, dtype=float)
        N, M = matrix.rates.shape
        expect(shared.shape == (N, N, M), _SOURCE, "together", shared.shape, f"shape {(N, N, M)}")
        shared[np.arange(N), np.arange(N)] = 0.0
        group, first, second = _interchangeable(matrix, shared)
        tables = shared[np.ix_(first, first)]
        own = np.arange(len(first))
        tables[own, own] = shared[first, second]
        return cls(
            group,
            matrix.rates[first],
            tables,
            matrix.scale_factors[first],
            jobs=matrix.jobs,
            accelerators=matrix.accelerators,
        )

    @property
    def n_jobs(self) -> int:
        """N, the number of jobs."""
        return len(self.group)

    @property
    def n_accelerators(self) -> int:
        """M, the number of accelerator types."""
        return len(self.accelerators)

    @cached_property
    def rates(self) -> Floats:
        """(N, M) throughput of each job alone, steps/s."""
        return self.alone[self.group]

    @cached_property
    def scale_factors(self) -> Ints:
        """(N,) GPUs per gang."""
        return self.group_scale_factors[self.group]

    @cached_property
    def plain(self) -> PlainColumns:
        """The same jobs without sharing."""
        return PlainColumns(
            ThroughputMatrix.trusted(
                self.rates, jobs=self.jobs, accelerators=self.accelerators, scale_factors=self.scale_factors
            )
        )


def _interchangeable(matrix: ThroughputMatrix, together: Floats) -> tuple[Ints, Ints, Ints]:
    """Groups of jobs that may be swapped without any figure changing: (N,) group, (G,) a member, (G,) another."""
    N = matrix.n_jobs
    figures = np.column_stack([matrix.scale_factors, matrix.rates])
    # what a job meets, whoever it meets it with: equal for jobs that can be swapped
    met = np.sort(np.concatenate([together, together.transpose(1, 0, 2)], axis=2), axis=1).reshape(N, -1)
    _, bucket = np.unique(np.column_stack([figures, met]), axis=0, return_inverse=True)
    bucket = bucket.ravel()
    group = np.full(N, -1, dtype=np.int64)
    first: list[int] = []
    second: list[int] = []
    for i in range(N):
        if group[i] >= 0:
            continue
        group[i] = len(first)
        first.append(i)
        second.append(i)
        for k in np.flatnonzero((bucket == bucket[i]) & (group < 0)):
            if all(_may_swap(together, int(member), int(k)) for member in np.flatnonzero(group == group[i])):
                group[k] = group[i]
                second[-1] = int(k)
    return group, np.array(first, dtype=np.int64), np.array(second, dtype=np.int64)


def _may_swap(together: Floats, i: int, k: int) -> bool:
    others = np.ones(len(together), dtype=bool)
    others[[i, k]] = False
    return bool(
        np.array_equal(together[i, others], together[k, others])
        and np.array_equal(together[others, i], together[others, k])
        and np.array_equal(together[i, k], together[k, i])
    )
