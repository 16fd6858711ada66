"""Water filling with space sharing: the same levels, each a packed program.

Complementary slackness holds for packed programs too: a class whose demand has a positive multiplier is held at its
demand in every allocation that attains the level. What ends a level may be company instead of capacity, when the time
of somebody's partners is used up, so there may be more levels than types.

Source: Narayanan et al., OSDI 2020, sections 3.1 (space sharing) and 4.3 (water filling).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from formulations.levels.water_filling import PROVEN_ALONE, Level, WaterFilling, WaterLevel, fill
from formulations.packed.levels import Proof
from formulations.packed.program import PackedProgram

__all__ = ["fill_packed"]


def fill_packed(program: PackedProgram, objective: WaterFilling, solve: Callable[[WaterLevel], Proof]) -> Proof:
    """The point of the last level, with the bound, prices and multipliers of the first.

    Parameters
    ----------
    program : over K classes.
    objective : over the same classes.
    solve : solves and proves one level.

    The gap is the largest of any level.
    """

    def solve_level(level: WaterLevel) -> Level:
        proof = solve(level)
        return Level(proof.objective, proof.gap, proof.throughput, proof.point.demand_multipliers, proof)

    levels = fill(objective, program.fastest, solve_level)
    first, last = levels[0].source, levels[-1].source
    iterations = sum(level.source.point.iterations for level in levels)
    most = objective.value(program.fastest)
    proof: Proof = replace(
        first,
        point=replace(last.point, demand_multipliers=first.point.demand_multipliers, iterations=iterations),
        throughput=last.throughput,
        objective=min(first.objective, most),
        bound=min(first.bound, most),
        gap=max(level.gap for level in levels),
    )
    if first.bound >= most * (1.0 - PROVEN_ALONE):
        # a member of the top can have no more, whatever the first level costs
        held = objective.held_by(program.fastest)
        proof = replace(proof, proving=(held, held * program.fastest, np.zeros_like(first.prices)))
    return proof
