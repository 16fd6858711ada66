"""What policies that solve a program have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from time import perf_counter
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from allocator.allocation import Allocation
from allocator.cluster import Cluster
from allocator.protocol import ClusterState
from throughputs import PlainColumns, ThroughputMatrix

if TYPE_CHECKING:
    from formulations import Objective

__all__ = ["Array", "ProgramPolicy", "reference_rates", "runnable_rates"]

Array = NDArray[np.float64]


@dataclass(frozen=True)
class ProgramPolicy(ABC):
    """A policy that is an objective over the polytope of allocations.

    Parameters
    ----------
    solver : "auto" or the name of a backend (`formulations.backends`).
    choice : which of the optima, "balanced" or "published" (`formulations.selection`). Only "balanced" looks at what
        a gang can really use: types on which the job's throughput is 0, or that have fewer GPUs than its scale
        factor, are closed to it. "published" believes the rates as the paper states the program.
    """

    solver: str = "auto"
    choice: str = "balanced"

    name: ClassVar[str] = ""
    heterogeneity_aware: ClassVar[bool] = True
    fills_idle_gpus: ClassVar[bool] = True
    preemptive: ClassVar[bool] = True

    @abstractmethod
    def believed_rates(self, state: ClusterState) -> Array:
        """(N, M) throughput the policy reckons with."""

    @abstractmethod
    def objective(self, state: ClusterState, rates: Array) -> Objective:
        """The objective for the jobs of `state` when their rates are `rates`."""

    def prepare(self) -> None:
        """Import the solver, by a decision about nothing: a first real one is then as quick as any other."""
        nothing = ThroughputMatrix([[1.0]], ["job"], ["v100"])
        reference: dict[str, Any] = {"reference_accelerator": None} if hasattr(self, "reference_accelerator") else {}
        replace(self, **reference).allocate(ClusterState(Cluster({"v100": 1}), nothing))

    def allocate(self, state: ClusterState) -> Allocation:
        """Solve the program for `state`."""
        from formulations import Polytope, solve

        started = perf_counter()
        matrix = state.throughputs
        believed = self.believed_rates(state)
        usable = np.where(runnable_rates(state) > 0, believed, 0.0) if self.choice == "balanced" else believed
        # a job that gains nothing anywhere has no place in an objective
        can_gain = (usable[:, state.capacity > 0] > 0).any(axis=1) & (state.steps_remaining > 0)
        able = np.flatnonzero(can_gain)
        whole = len(able) == state.n_jobs
        part = state if whole else state.subset(able)
        if not whole:
            believed, usable = believed[able], usable[able]
        solution = solve(
            Polytope(PlainColumns(part.throughputs.with_rates(usable)), state.capacity),
            self.objective(part, believed),
            solver=self.solver,
            choice=self.choice,
        )
        shares = solution.shares
        if not whole:
            shares = np.zeros((state.n_jobs, len(state.capacity)))
            shares[able] = solution.shares
        return Allocation(
            policy=self.name,
            throughputs=matrix,
            shares=np.clip(shares, 0.0, 1.0),
            status=solution.status,
            objective=solution.objective,
            objective_unit=solution.unit,
            bound=solution.bound,
            gap=solution.gap,
            prices=solution.prices,
            unserved=tuple(matrix.jobs[i] for i in np.flatnonzero(~can_gain)),
            solver=solution.solver,
            seconds=perf_counter() - started,
            fallbacks=tuple(attempt.solver for attempt in solution.attempts if attempt.solver != solution.solver),
        )


def runnable_rates(state: ClusterState) -> Array:
    """(N, M) throughput, 0 on types that have fewer GPUs than the job's gang needs."""
    fits = state.scale_factors[:, None] <= state.capacity[None, :]
    return np.where(fits, state.rates, 0.0)


def reference_rates(state: ClusterState, accelerator: str | None) -> Array:
    """(N, M) each job's throughput on one reference type, whatever type it runs on.

    `accelerator` None takes "v100", as the paper does, when the cluster has it, otherwise the type with the highest
    mean throughput. A job that cannot run on the reference type is reckoned with its fastest.
    """
    names = state.cluster.accelerators
    if accelerator is None:
        column = (
            names.index("v100") if "v100" in names else int(np.argmax(state.rates.mean(axis=0))) if state.n_jobs else 0
        )
    elif accelerator in names:
        column = names.index(accelerator)
    else:
        from throughputs import InputError

        raise InputError(
            "policy", field="reference_accelerator", found=accelerator, expected=f"one of {', '.join(names)}"
        )
    reference = state.rates[:, column]
    reference = np.where(reference > 0, reference, state.rates.max(axis=1, initial=0.0))
    return np.repeat(reference[:, None], len(names), axis=1)
