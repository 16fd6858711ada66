"""From jobs to classes of interchangeable ones, and back.

The price of an accelerator type without GPUs is what its first GPU would bring.

A type without GPUs takes no part in a program, and any price of it proves the same bound. The least price at which no
job would earn more on it than its time is worth already is the one at which the bound holds for programs with some of
its GPUs as well. So it bounds what they bring, and where multipliers are unique it is the improvement per GPU.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from formulations.core.certificate import Certificate
from formulations.core.polytope import Polytope, parts
from formulations.core.reductions import Classes, classes_of, types_in_order
from formulations.core.solution import Pairs
from formulations.levels.residual_program import ResidualProgram, WholeProgram
from formulations.solving.choice import Among
from throughputs.arrays import Flags, Floats, Positions


@dataclass(frozen=True, eq=False)
class Reduction(ABC):
    """Which jobs and types take part in a program, its classes of interchangeable jobs, and the way back.

    Attributes
    ----------
    served : (N,) whether the job gains anything from any column.
    types : positions of the accelerator types that have GPUs, in the order of the program.
    jobs : (N',) positions of the served jobs. of : (N',) class of each of them.
    first : (K,) position of one job of each class.
    program : the polytope over the classes.
    """

    served: Flags
    types: Positions
    jobs: Positions
    of: Positions
    first: Positions
    program: Polytope

    def of_jobs(self, figures: Floats) -> Floats:
        """(N,) figures of all jobs from those of the classes (K,); 0 for who takes no part."""
        whole = np.zeros(len(self.served))
        whole[self.jobs] = figures[self.of]
        return whole

    @abstractmethod
    def among(self, best: Certificate) -> Among:
        """The optima of the program, of which `best` is one."""

    @abstractmethod
    def residual(self) -> ResidualProgram | WholeProgram:
        """What levels of water leave of the program."""

    @abstractmethod
    def allocation(self, shares: Floats) -> tuple[Floats, Pairs]:
        """Shares (N, M) of all jobs on all types, and pairs of jobs, from shares of the classes."""

    @abstractmethod
    def all_prices(self, worth: Floats, prices: Floats, time: Floats, gpu_cost: Floats | None = None) -> Floats:
        """(M,) prices of all types, given those of the types with GPUs.

        The least price at which no column of a type without GPUs earns more than the time of its jobs is worth.

        Parameters
        ----------
        worth : (N,) or (N, M) worth of a unit of throughput, multipliers of demands included.
        time : (K,) worth of one job's time, where it does not follow from prices.
        gpu_cost : (M,) cost of a GPU in use; none when omitted.
        """

    @abstractmethod
    def prices_of_others(self) -> Floats:
        """(M,) nan for types on which jobs run that take no part: on any of its GPUs they would; 0 for others."""


@dataclass(frozen=True, eq=False)
class PlainReduction(Reduction):
    """The reduction of a polytope without pairs.

    `of_type` (T,): the type of the program for each of `types`, which may be several (`merged_types`).
    """

    whole: Polytope
    of_type: Positions

    @classmethod
    def of_figures(
        cls,
        polytope: Polytope,
        figures: Sequence[Floats],
        *,
        sort_types: bool = True,
        merge_types: bool = False,
        aggregates: bool = True,
    ) -> PlainReduction:
        """Classes of the jobs that agree in rates, gang and `figures` (N,), in one order for all ways to list them:
        sums then have the same last bits.

        Where another solver's own point is asked for, every job is its own class: that point depends on how it is
        asked. That of the types depends on their content too where they are sorted.
        """
        served: Flags = np.asarray((polytope.rates[:, polytope.capacity > 0] > 0).any(axis=1))
        jobs, types = np.flatnonzero(served), np.flatnonzero(polytope.capacity > 0)
        if sort_types:
            types = types_in_order(polytope.rates, polytope.fastest, polytope.capacity)
        if aggregates and len(jobs):
            columns = [*polytope.rates.T[types], polytope.scale_factors, *figures]
            if (polytope.counts != 1).any():
                columns.append(polytope.counts)
            classes = classes_of(columns if len(jobs) == polytope.n_jobs else [column[jobs] for column in columns])
        else:
            classes = Classes.single(len(jobs))
        first = jobs[classes.first]
        part = polytope.restricted(first, types, classes.counts * polytope.counts[first])
        part, of_type = merged_types(part) if merge_types else (part, np.arange(len(types)))
        return cls(served, types, jobs, classes.of, first, part, polytope, of_type)

    def among(self, best: Certificate) -> Among:
        """In shares."""
        return Among(self.program, best)

    def residual(self) -> ResidualProgram | WholeProgram:
        """Without the jobs that are settled."""
        return ResidualProgram(self.program)

    def allocation(self, shares: Floats) -> tuple[Floats, Pairs]:
        """No time on a type that yields nothing."""
        rates, capacity = self.program.rates, self.program.capacity
        if any(((shares[part] > 0) & ~(rates[part] > 0)).any() for part in parts(len(shares))):
            shares = np.where(rates > 0, shares, 0.0)
        if len(capacity) < len(self.types):
            shares = shares[:, self.of_type] * (self.whole.capacity[self.types] / capacity[self.of_type])
        of_jobs: Floats = shares.take(self.of, axis=0, mode="clip")
        if of_jobs.shape == self.whole.rates.shape and (self.types[:-1] < self.types[1:]).all():
            return of_jobs, Pairs.none()
        whole = np.zeros(self.whole.rates.shape)
        whole[np.ix_(self.jobs, self.types)] = of_jobs
        return whole, Pairs.none()

    def all_prices(
        self,
        worth: Floats,
        prices: Floats,
        time: Floats,  # noqa: ARG002
        gpu_cost: Floats | None = None,
    ) -> Floats:
        """From what each job earns on the types with GPUs."""
        whole, completed = self.whole, np.zeros(len(self.whole.capacity))
        completed[self.types] = prices[self.of_type]
        if len(self.types) == len(completed):
            return completed
        earned = (worth[:, None] if worth.ndim == 1 else worth) * whole.rates
        if gpu_cost is not None:
            earned -= whole.scale_factors[:, None] * gpu_cost
        present, absent = self.types, np.flatnonzero(~(whole.capacity > 0))
        for part in parts(len(earned)):
            sizes = whole.scale_factors[part].astype(np.float64)
            of_time = np.zeros(len(sizes))
            for j in present:
                np.maximum(of_time, earned[part, j] - sizes * completed[j], out=of_time)
            for j in absent:
                completed[j] = max(completed[j], float(((earned[part, j] - of_time) / sizes).max(initial=0.0)))
        return completed

    def prices_of_others(self) -> Floats:
        """By their rates."""
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
