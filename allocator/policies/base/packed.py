"""What policies with space sharing have in common: programs over the polytope with pairs of jobs on the same GPUs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from time import perf_counter
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from allocator.policies.base.programs import Prepared, ProgramPolicy, certified
from allocator.protocol import ClusterState, Need, Policy, SharePolicy
from allocator.protocol.allocation import Allocation
from formulations import PackedPolytope, Pairs, solve
from throughputs import PackedColumns
from throughputs.arrays import Flags, Ints

if TYPE_CHECKING:
    from formulations import Objective, Solution


@dataclass(frozen=True)
class PairingPolicy(Prepared, SharePolicy):
    """A policy that is a program over the polytope with pairs.

    Parameters
    ----------
    solver : "auto" or "class_pairs", which is the one there is (`formulations.packed.class_pairs`).
    """

    solver: str = "auto"

    needs = Need.COLOCATION | Need.ISOLATED_TIME


@dataclass(frozen=True)
class PackedPolicy(PairingPolicy):
    """A policy that is an objective over the polytope with pairs.

    Attributes
    ----------
    alone : the policy without pairs whose objective it has.
    """

    alone: ClassVar[ProgramPolicy]

    def objective(self, state: ClusterState) -> Objective:
        """The objective for the jobs of `state`."""
        return self.alone.objective(state, state.rates)

    def allocate(self, state: ClusterState) -> Allocation:
        """Solve the program for `state`."""
        started = perf_counter()
        part = served_part(state)
        solution = solve(part.polytope, self.objective(part.state), solver=self.solver)
        return part.allocation(self, solution, started)


@dataclass(frozen=True, eq=False)
class ServedPart:
    """The jobs of a state that gain something alone and have steps left.

    Attributes
    ----------
    whole : the state with all N jobs. state : that with these jobs only.
    able : (N,) which they are.
    polytope : over these jobs, without columns on types that have fewer GPUs than the gang needs.
    """

    whole: ClusterState
    state: ClusterState
    able: Flags
    polytope: PackedPolytope

    def allocation(self, policy: Policy, solution: Solution, started: float, **more: Any) -> Allocation:
        """Of all jobs, from the solution for these; `started` is when the decision began, `more` as in `certified`."""
        jobs, found = np.flatnonzero(self.able), solution.pairs
        shares = np.zeros(self.whole.rates.shape)
        shares[jobs] = solution.shares
        pairs = Pairs(jobs[found.first], jobs[found.second], found.accelerator, np.clip(found.share, 0.0, 1.0))
        more |= {"pairs": pairs, "pair_rates": found.rates(self.polytope.columns)}
        return certified(policy, self.whole, solution, shares, ~self.able, perf_counter() - started, **more)


def served_part(state: ClusterState, *, priced: bool = True) -> ServedPart:
    """What a program with pairs is about: a job that gains nothing alone has no normaliser, one that is through needs
    nothing. Types without GPUs are `priced` by what single-GPU jobs would do on them."""
    able = np.asarray((_fitting(state.packed, state.capacity).rates > 0).any(axis=1) & (state.steps_remaining > 0))
    part = state if able.all() else state.take(np.flatnonzero(able))
    columns = _fitting(part.packed, np.maximum(state.capacity, 1) if priced else state.capacity)
    return ServedPart(state, part, able, PackedPolytope(columns, state.capacity))


def _fitting(columns: PackedColumns, gpus: Ints) -> PackedColumns:
    """The columns with 0 on types that have fewer GPUs, of (M,) `gpus`, than a gang needs."""
    fits = columns.group_scale_factors[:, None] <= gpus
    if fits.all():
        return columns
    return replace(
        columns,
        alone=np.where(fits, columns.alone, 0.0),
        together=np.where(fits[:, None, :], columns.together, 0.0),
    )
