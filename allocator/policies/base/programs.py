"""What policies that solve a program have in common."""

from __future__ import annotations

from abc import abstractmethod
from contextlib import suppress
from dataclasses import dataclass, replace
from time import perf_counter
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from allocator.cluster import Cluster
from allocator.protocol import ClusterState, Policy, SharePolicy
from allocator.protocol.allocation import Allocation
from formulations import Polytope, solve
from formulations.solving.reduction import prices_of_none
from throughputs import InputError, PackedColumns, PlainColumns, PriceTable, ThroughputMatrix
from throughputs.arrays import Flags, Floats, Ints, Positions

if TYPE_CHECKING:
    from formulations import Objective, Solution


class Prepared(Policy):
    """A policy that has a solver to load."""

    def prepare(self) -> None:
        """Load it, by a decision about two jobs of which one has to wait: a first real one is as quick as any other."""
        prices = getattr(self, "prices", None)
        priced = prices.accelerators if isinstance(prices, PriceTable) else tuple(prices or ())
        name = getattr(self, "reference_accelerator", None) or next(iter(priced), "v100")
        matrix = ThroughputMatrix([[1.0], [1.0]], [0, 1], [name])
        pairs = PackedColumns([0, 0], [[1.0]], [[[0.6]]], accelerators=[name])
        # a policy of its own kind of cluster says what is wrong when it is asked about a real one
        with suppress(Exception):
            self.allocate(ClusterState(Cluster({name: 1}), matrix, colocation=pairs, deadlines=[_FAR, _FAR]))


_FAR = 1e6
"""Seconds to the deadlines of these jobs."""


@dataclass(frozen=True)
class ProgramPolicy(Prepared, SharePolicy):
    """A policy that is an objective over the polytope of allocations.

    Parameters
    ----------
    solver : "auto" or the name of a backend (`formulations.solving.backends`).
    choice : which of the optima, "balanced" or that of a package (`formulations.solving.choice`). Only "balanced" looks
        at what a gang can really use: types on which the job's throughput is 0, or that have fewer GPUs than its scale
        factor, are closed to it. Others believe the rates as the paper states the program, and list the types by name,
        as published systems do: where their solvers end depends on the order of the columns.

    >>> from formulations import MaxMin
    >>> class EqualSteps(ProgramPolicy):
    ...     name = "equal_steps"
    ...     def objective(self, state, rates):
    ...         return MaxMin(np.ones(state.n_jobs))
    >>> import allocator
    >>> answer = allocator.solve(EqualSteps(), {"v100": [3.0, 1.0]}, "v100:1")
    >>> answer.status, answer.effective_throughput.round(6).tolist()
    ('optimal', [0.75, 0.75])
    """

    solver: str = "auto"
    choice: str = "balanced"

    def believed_rates(self, state: ClusterState) -> Floats:
        """(N, M) throughput the policy counts with: the true one."""
        return state.rates

    @abstractmethod
    def objective(self, state: ClusterState, rates: Floats) -> Objective:
        """The objective for the jobs of `state` when their rates are `rates`."""

    def solved(self, state: ClusterState, polytope: Polytope, objective: Objective) -> Solution:  # noqa: ARG002
        """The best shares of the jobs of `state`, which all gain something."""
        return solve(polytope, objective, solver=self.solver, choice=self.choice)

    def allocate(self, state: ClusterState) -> Allocation:
        """Solve the program for `state`."""
        started = perf_counter()
        believed = np.asarray(self.believed_rates(state))
        shape = state.rates.shape
        good = believed.shape == shape and believed.dtype.kind in "fiu"
        if not good or not ((believed >= 0) & (believed < np.inf)).all():
            expected = f"finite numbers of at least 0, of shape {shape}"
            raise InputError(f"policy {self.name}", field="believed_rates", found=believed.tolist(), expected=expected)
        open_to = np.where(priced_rates(state) > 0, believed, 0.0)
        usable = open_to if self.choice == "balanced" else believed
        # a job that gains nothing anywhere has no place in an objective
        can_gain = (open_to[:, state.capacity > 0] > 0).any(axis=1) & (state.steps_remaining > 0)
        able = np.flatnonzero(can_gain)
        whole = len(able) == state.n_jobs
        part = state if whole else state.take(able)
        if not whole:
            believed, usable = believed[able], usable[able]
        types = np.arange(len(state.capacity))
        if self.choice != "balanced":
            types = state.cluster.by_name
            part, believed, usable = with_types(part, types), believed[:, types], usable[:, types]
        polytope = Polytope(PlainColumns(part.throughputs.with_rates(usable)), part.capacity)
        solution = self.solved(part, polytope, self.objective(part, believed))
        if self.choice != "balanced":
            listed = np.argsort(types)
            solution = replace(solution, shares=solution.shares[:, listed], prices=solution.prices[listed])
        shares = solution.shares
        if not whole:
            shares = np.zeros((state.n_jobs, len(state.capacity)))
            shares[able] = solution.shares
        seconds = perf_counter() - started
        return certified(self, state, solution, shares, ~can_gain, seconds)


def with_types(state: ClusterState, types: Positions) -> ClusterState:
    """The same state with its accelerator types in another order (M positions), as far as programs alone read it."""
    matrix, names, now = state.throughputs, [state.cluster.accelerators[j] for j in types], state.current_accelerator
    return state.replace(
        cluster=Cluster({name: state.cluster.gpus[name] for name in names}, state.cluster.gpus_per_server),
        throughputs=ThroughputMatrix.trusted(
            matrix.rates[:, types],
            jobs=matrix.jobs,
            accelerators=names,
            scale_factors=matrix.scale_factors,
            unit=matrix.unit,
        ),
        current_accelerator=np.where(now < 0, now, np.argsort(types)[now]),
        gpu_prices=state.gpu_prices[types],
    )


def certified(
    policy: Policy,
    state: ClusterState,
    solution: Solution,
    shares: Floats,
    left_out: Flags,
    seconds: float,
    **more: Any,
) -> Allocation:
    """The allocation of a program's solution.

    Parameters
    ----------
    shares : (N, M) share of time of every job alone, those that took no part in the program included.
    left_out : (N,) whether the job cannot be served.
    seconds : time the decision took.
    more : other fields of the allocation.
    """
    return Allocation(
        policy=policy.name,
        throughputs=state.throughputs,
        shares=np.clip(shares, 0.0, 1.0),
        status=solution.status,
        objective=solution.objective,
        objective_unit=solution.unit,
        bound=solution.bound,
        gap=solution.gap,
        prices=_with_jobs_left_out(solution.prices, state, left_out),
        row_prices=_of_rows(solution),
        unserved=tuple(state.throughputs.jobs[i] for i in np.flatnonzero(left_out)),
        solver=solution.solver,
        seconds=seconds,
        certified=True,
        fallbacks=fallbacks_of(solution),
        **more,
    )


def _of_rows(solution: Solution) -> dict[str, float]:
    """Price of each row, or of all rows of a name together, where it is known."""
    found = {name: float(np.sum(price)) for name, price in getattr(solution, "row_prices", {}).items()}
    return {name: price for name, price in found.items() if np.isfinite(price)}


def fallbacks_of(solution: Any) -> tuple[str, ...]:
    """Who was asked before the solver that answered."""
    return tuple(dict.fromkeys(t.solver for t in solution.attempts if t.solver != solution.solver))


def _with_jobs_left_out(prices: Floats, state: ClusterState, left_out: Flags) -> Floats:
    """Not known for types without GPUs that are the only ones for some job: with the first GPU it would take part."""
    absent, waiting = ~(state.capacity > 0), left_out & (state.steps_remaining > 0)
    if not absent.any() or not waiting.any():
        return prices
    return prices + np.where(absent, prices_of_none(priced_rates(state)[waiting]), 0.0)


def priced_rates(state: ClusterState) -> Floats:
    """(N, M) throughput, 0 where a gang does not fit; but for single-GPU jobs on types that have no GPU.

    What the first GPU of a type would bring is its price.
    """
    fits = state.scale_factors[:, None] <= np.maximum(state.capacity, 1)[None, :]
    return np.where(fits, state.rates, 0.0)


def fitting_gpus(state: ClusterState) -> Ints:
    """(N, M) GPUs of each type, 0 where a gang does not fit."""
    return np.where(state.scale_factors[:, None] <= state.capacity, state.capacity, 0)


@dataclass(frozen=True)
class ClosedFormPolicy(SharePolicy):
    """A policy whose shares need no program; a gang has none of a type on which it does not fit."""

    heterogeneity_aware: ClassVar[bool] = False
    status: ClassVar[str] = "closed form"

    @abstractmethod
    def shares(self, state: ClusterState) -> Floats:
        """(N, M) share of time of each job on each type, those on which its gang does not fit included."""

    def allocate(self, state: ClusterState) -> Allocation:
        """The shares for `state`."""
        started = perf_counter()
        shares = np.where(fitting_gpus(state) > 0, self.shares(state), 0.0)
        seconds = perf_counter() - started
        return Allocation(self.name, state.throughputs, shares, self.status, seconds=seconds)


class TimePolicy(ProgramPolicy):
    """A program over shares of time, all types alike: every throughput is taken for 1."""

    heterogeneity_aware: ClassVar[bool] = False

    def believed_rates(self, state: ClusterState) -> Floats:
        """1 everywhere."""
        return np.ones_like(state.rates)


@dataclass(frozen=True)
class BlindPolicy(ProgramPolicy):
    """A program that takes every accelerator type for one reference type.

    Parameters
    ----------
    reference_accelerator : type whose throughput stands for all; None: v100, as in the paper, if the cluster has it,
        otherwise the type with the highest mean throughput. A job that cannot run there is counted with its fastest.
    """

    reference_accelerator: str | None = None

    heterogeneity_aware: ClassVar[bool] = False

    def believed_rates(self, state: ClusterState) -> Floats:
        """(N, M) each job's throughput on the reference type, whatever type it runs on."""
        reference = state.rates[:, self._reference(state)]
        reference = np.where(reference > 0, reference, state.rates.max(axis=1, initial=0.0))
        return np.repeat(reference[:, None], len(state.capacity), axis=1)

    def _reference(self, state: ClusterState) -> int:
        names = state.cluster.accelerators
        wanted = self.reference_accelerator
        if wanted is None and "v100" not in names:
            return int(np.argmax(state.rates.mean(axis=0))) if state.n_jobs else 0
        if wanted is not None and wanted not in names:
            known = f"one of {', '.join(names)}"
            raise InputError(f"policy {self.name}", field="reference_accelerator", found=wanted, expected=known)
        return names.index(wanted or "v100")
