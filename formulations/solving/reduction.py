"""From jobs to classes of interchangeable ones, and back.

The price of an accelerator type without GPUs is what its first GPU would bring.

A type without GPUs takes no part in a program, and any price of it proves the same bound. The least price at which no
job would earn more on it than its time is worth already is the one at which the bound holds for programs with some of
its GPUs as well. So it bounds what they bring, and where multipliers are unique it is the improvement per GPU.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from formulations.core.certificate import Certificate
from formulations.core.polytope import Polytope
from formulations.core.reductions import Classes, classes_of, types_in_order
from formulations.core.solution import Pairs
from formulations.solving.choice import Among
from throughputs.arrays import Flags, Floats, Positions


@dataclass(frozen=True, eq=False)
class Reduction:
    """Which jobs and types take part in a program, its classes of interchangeable jobs, and the way back.

    Attributes
    ----------
    served : (N,) whether the job gains anything from any column.
    types : positions of the accelerator types that have GPUs, in the order of the program.
    jobs : (N',) positions of the served jobs. of : (N',) class of each of them.
    first : (K,) position of one job of each class.
    program : the polytope over the classes.
    whole : the polytope over all jobs and types.
    of_type : the type of the program for each of `types`, which may be several (`merged_types`).
    """

    served: Flags
    types: Positions
    jobs: Positions
    of: Positions
    first: Positions
    program: Polytope
    whole: Any
    of_type: Positions

    @classmethod
    def of_figures(
        cls, polytope: Polytope, figures: Sequence[Floats], *, as_stated: bool = False, merge_types: bool = False
    ) -> Reduction:
        """Classes of the jobs that agree in rates, gang and `figures` (N,), in one order for all ways to list them:
        sums then have the same last bits.

        Where another solver's own point is asked for, the program is left `as_stated`, every job its own class: that
        point depends on how it is asked.
        """
        served: Flags = np.asarray((polytope.rates[:, polytope.capacity > 0] > 0).any(axis=1))
        jobs, types = np.flatnonzero(served), np.flatnonzero(polytope.capacity > 0)
        if as_stated:
            classes = Classes.single(len(jobs))
        else:
            types = types_in_order(polytope.rates, polytope.fastest, polytope.capacity)
            columns = [*polytope.rates.T[types], polytope.scale_factors, *figures]
            if (polytope.counts != 1).any():
                columns.append(polytope.counts)
            classes = classes_of(columns if served.all() else [column[jobs] for column in columns])
        first = jobs[classes.first]
        part = polytope.restricted(first, types, classes.counts * polytope.counts[first])
        part, of_type = merged_types(part) if merge_types else (part, np.arange(len(types)))
        return cls(served, types, jobs, classes.of, first, part, polytope, of_type)

    def of_jobs(self, figures: Floats) -> Floats:
        """(N,) figures of all jobs from those of the classes (K,); 0 for who takes no part."""
        whole = np.zeros(len(self.served))
        whole[self.jobs] = figures[self.of]
        return whole

    def among(self, best: Certificate) -> Among:
        """The optima of the program, of which `best` is one."""
        return Among(self.program, best)

    def allocation(self, shares: Floats) -> tuple[Floats, Pairs]:
        """Shares (N, M) of all jobs on all types, and pairs of jobs, from shares of the classes; no time on a type that
        yields nothing."""
        K, (N, M) = len(shares), self.whole.rates.shape
        parts = self.whole.capacity[self.types] / self.program.capacity[self.of_type]
        # of each class, and of none
        split = np.zeros((K + 1, M))
        split[:K, self.types] = np.where(self.program.rates > 0, shares, 0.0)[:, self.of_type] * parts
        rows = np.full(N, K)
        rows[self.jobs] = self.of
        return split.take(rows, axis=0), Pairs.none()

    def all_prices(
        self,
        worth: Floats,
        prices: Floats,
        time: Floats,  # noqa: ARG002
        gpu_cost: Floats | None = None,
    ) -> Floats:
        """(M,) prices of all types, given those of the types with GPUs.

        The least price at which no column of a type without GPUs earns more than the time of its jobs is worth.

        Parameters
        ----------
        worth : (N,) or (N, M) worth of a unit of throughput, multipliers of demands included.
        time : (K,) worth of one job's time, where it does not follow from prices.
        gpu_cost : (M,) cost of a GPU in use; none when omitted.
        """
        whole, completed = self.whole, np.zeros(len(self.whole.capacity))
        completed[self.types] = prices[self.of_type]
        absent = ~(whole.capacity > 0)
        if absent.any():
            per_gpu = (worth[:, None] if worth.ndim == 1 else worth) * whole.rates / whole.scale_factors[:, None]
            per_gpu -= 0.0 if gpu_cost is None else gpu_cost
            of_time = (per_gpu - completed)[:, ~absent].max(axis=1, initial=0.0)
            completed[absent] = (per_gpu[:, absent] - of_time[:, None]).max(axis=0, initial=0.0)
        return completed

    def prices_of_others(self) -> Floats:
        """(M,) nan for types on which jobs run that take no part: on any of its GPUs they would; 0 for others."""
        return prices_of_none(self.whole.rates[~self.served])


def merged_types(polytope: Polytope) -> tuple[Polytope, Positions]:
    """The polytope in which types on which every job is as fast are one, and the one that each (M,) has become.

    Shares of it are split over them as their GPUs are.
    """
    columns = list(polytope.rates.T)
    like = [next(k for k, other in enumerate(columns) if np.array_equal(column, other)) for column in columns]
    kept, of_type = np.unique(like, return_inverse=True)
    if len(kept) == len(columns):
        return polytope, of_type
    part = polytope.restricted(np.arange(polytope.n_jobs), kept)
    return Polytope(part.columns, np.bincount(of_type, polytope.capacity), part.counts), of_type


def prices_of_none(rates: Floats) -> Floats:
    """(M,) prices where jobs with `rates` (N, M) stand outside of the program: not known for types that they run on.

    With GPUs for a job that gains nothing from any other type, an objective over all jobs would be one over more jobs.
    """
    return np.where((rates > 0).any(axis=0), np.nan, 0.0)
