"""The choice among optima of a threshold objective.

An optimum with ``lambda_k > 0`` for every class has ``u_k = demand_k(t)`` for every class (complementary slackness, and
any optimal multipliers go with any optimal point): the throughputs are unique, and as an allocation that is better for
somebody and worse for nobody would be optimal too, nobody can gain. Otherwise a second program takes, of all
allocations that attain the level, one with the largest total normalised throughput::

    max  sum_i (s_i / p_i) u_i        u_i >= demand_i(t)

with p_i the throughput of the job alone under the proportional share (its fastest rate should that be 0). It leaves no
GPU idle that some job could use. Several allocations may give the same throughputs; which of them is returned is up to
the engine, the same for the same jobs in whatever order.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

import numpy as np
from numpy.typing import NDArray

from formulations.core.objectives import MaxSum, Method, Objective, Threshold
from formulations.core.polytope import proportional_throughput
from formulations.packed.engines import Engines, Solve
from formulations.packed.levels import Proof, solve_for_sum
from formulations.packed.program import Goal, PackedPoint, PackedProgram
from throughputs.numerics import dot

Array = NDArray[np.float64]

_RELAXATIONS = (1e-10, 1e-9)
"""Fractions by which the level is relaxed so that the second program has room, tried in turn."""

_ACCEPTED_LOSS = 2e-9
"""Relative loss of the objective up to which a choice is accepted."""

_PROVEN = 1e-7
"""Efficiency gap up to which the optimum at hand is taken for the efficient one."""


@dataclass(frozen=True, eq=False)
class PackedChoice:
    """The chosen point, and how far its total worth is from the most possible, relative; nan: not known."""

    point: PackedPoint
    efficiency_gap: float


def choose(engines: Engines, objective: Objective, proof: Proof, solver: str) -> PackedChoice:
    """The efficient optimum; the point of `proof` should no better one be found.

    The engine `solver` goes on from its proof; the others are asked in turn until one finds a choice that is proven.
    """
    return objective.accept(_Choices(engines, proof, solver))


@dataclass(frozen=True, eq=False)
class _Choices(Method[PackedChoice]):
    engines: Engines
    proof: Proof
    solver: str

    def weighted_sum(self, objective: MaxSum) -> PackedChoice:
        # every throughput counts in a sum with positive gains
        return PackedChoice(self.proof.point, self.proof.gap if (objective.gains > 0).all() else np.nan)

    def level(self, objective: Threshold) -> PackedChoice:
        program, proof = self.engines.program, self.proof
        worth = _worth(program)
        best = PackedChoice(proof.point, _gap_by_multipliers(program, worth, proof))
        names = sorted(self.engines.names, key=lambda name: name != self.solver)
        for name, relaxation in product(names, _RELAXATIONS):
            if best.efficiency_gap <= _PROVEN:
                break
            solve = self.engines.running(name)
            chosen = _chosen(program, objective, objective.level(proof.throughput), relaxation, worth, solve)
            if chosen is not None and chosen.efficiency_gap < best.efficiency_gap:
                best = chosen
        return best


def _chosen(
    program: PackedProgram, objective: Threshold, level: float, relaxation: float, worth: Array, solve: Solve
) -> PackedChoice | None:
    """One attempt; None when the engine finds nothing that keeps the level."""
    goal = Goal(floors=objective.demand(objective.relaxed(level, relaxation)), gains=worth)
    try:
        found = solve_for_sum(program, goal, solve)
    except (RuntimeError, np.linalg.LinAlgError):
        return None
    attained = objective.level(found.throughput)
    loss = level - attained if objective.higher_level_is_better else attained - level
    return PackedChoice(found.point, found.gap) if loss <= _ACCEPTED_LOSS * abs(level) else None


def _worth(program: PackedProgram) -> Array:
    """(K,) normalised throughput of one step per second."""
    normaliser = proportional_throughput(program.rates, program.capacity)
    return program.gangs / np.where(normaliser > 0, normaliser, program.fastest)


def _gap_by_multipliers(program: PackedProgram, worth: Array, proof: Proof) -> float:
    """How much more total worth there can be at this level, from the multipliers of the level alone.

    With ``mu = max_k worth_k / lambda_k`` and demands f, any allocation with ``u >= f`` has
    ``sum worth (u - f) <= mu sum lambda (u - f) <= mu (supply - sum lambda f)``.
    """
    multipliers = proof.point.demand_multipliers
    total = dot(program.counts * worth, proof.throughput)
    if not (multipliers > 0).all() or not total > 0:
        return np.inf
    return float((worth / multipliers).max()) * max(proof.excess, 0.0) / total
