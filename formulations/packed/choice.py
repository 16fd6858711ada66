"""The choice among optima of a threshold objective.

An optimum with ``lambda_k > 0`` for every class has ``u_k = demand_k(t)`` for every class (complementary slackness, and
any optimal multipliers go with any optimal point): the throughputs are unique, and as an allocation that is better for
somebody and worse for nobody would be optimal too, nobody can gain. Otherwise a second program takes, of all
allocations that attain the level, one with the largest total normalised throughput::

    max  sum_i (s_i / p_i) u_i        u_i >= demand_i(t)

with p_i the throughput of the job alone under the proportional share (its fastest rate should that be 0). It leaves no
GPU idle that some job could use. Several allocations may give the same throughputs; which of them is returned is up to
the solver, the same for the same jobs in whatever order.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from formulations.core.objectives import MaxSum, Method, Objective, Threshold
from formulations.core.polytope import proportional_throughput
from formulations.core.solution import SolverError
from formulations.packed.class_pairs import ClassPairs
from formulations.packed.levels import Proof, solve_for_sum
from formulations.packed.program import Goal, PackedPoint, PackedProgram
from throughputs.arrays import Floats
from throughputs.numerics import dot

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


def choose(pairs: ClassPairs, objective: Objective, proof: Proof) -> PackedChoice:
    """The efficient optimum; the point of `proof` should no better one be found."""
    return objective.accept(_Choices(pairs, proof))


@dataclass(frozen=True, eq=False)
class _Choices(Method[PackedChoice]):
    pairs: ClassPairs
    proof: Proof

    def weighted_sum(self, objective: MaxSum) -> PackedChoice:
        # every throughput counts in a sum with positive gains
        return PackedChoice(self.proof.point, self.proof.gap if (objective.gains > 0).all() else np.nan)

    def level(self, objective: Threshold) -> PackedChoice:
        program, proof = self.pairs.program, self.proof
        worth, level = _worth(program), objective.level(proof.throughput)
        best = PackedChoice(proof.point, _gap_by_multipliers(program, worth, proof))
        for relaxation in _RELAXATIONS:
            if best.efficiency_gap <= _PROVEN:
                break
            goal = Goal(floors=objective.demand(objective.relaxed(level, relaxation)), gains=worth)
            try:
                found = solve_for_sum(self.pairs, goal)
            except SolverError:
                continue
            attained = objective.level(found.throughput)
            loss = level - attained if objective.higher_level_is_better else attained - level
            if loss <= _ACCEPTED_LOSS * abs(level) and found.gap < best.efficiency_gap:
                best = PackedChoice(found.point, found.gap)
        return best


def _worth(program: PackedProgram) -> Floats:
    """(K,) normalised throughput of one step per second."""
    normaliser = proportional_throughput(program.rates, program.capacity)
    return program.gangs / np.where(normaliser > 0, normaliser, program.fastest)


def _gap_by_multipliers(program: PackedProgram, worth: Floats, proof: Proof) -> float:
    """How much more total worth there can be at this level, from the multipliers of the level alone.

    With ``mu = max_k worth_k / lambda_k`` and demands f, any allocation with ``u >= f`` has
    ``sum worth (u - f) <= mu sum lambda (u - f) <= mu (supply - sum lambda f)``.
    """
    multipliers = proof.point.demand_multipliers
    total = dot(program.counts * worth, proof.throughput)
    if not (multipliers > 0).all() or not total > 0:
        return np.inf
    return float((worth / multipliers).max()) * max(proof.excess, 0.0) / total
