"""The most total worth with space sharing at which every job keeps its throughput."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from formulations.packed.certificate import dual_bound, repaired
from formulations.packed.engines import auto
from formulations.packed.levels import PRECISION
from formulations.packed.polytope import PackedPolytope
from formulations.packed.program import Goal
from formulations.packed.reduction import reduce
from formulations.solution import SolverError

__all__ = ["PackedWorth", "maximise_packed_worth"]

Array = NDArray[np.float64]

_RELAXATIONS = (0.0, 1e-10, 1e-9)
"""Fractions by which floors are relaxed so that there is an interior to search, tried in turn."""

_SHORT = 1e-7
_ENOUGH = 1e-7


@dataclass(frozen=True, eq=False)
class PackedWorth:
    """What was found and what is proven.

    Attributes
    ----------
    throughput : (N,) steps/s of each job.
    worth, bound : ``g . u`` there, and the most that is possible.
    prices : (M,) worth of one more GPU of each type.
    """

    throughput: Array
    worth: float
    bound: float
    prices: Array


def maximise_packed_worth(polytope: PackedPolytope, gains: Array, floors: Array) -> PackedWorth:
    """Throughputs of the largest worth that keep the floors::

        max  sum_i g_i u_i        x, z in the packed polytope,   u_i >= f_i

    Parameters
    ----------
    gains : (N,) g, positive.
    floors : (N,) f in steps/s, attainable together; 0 for jobs that cannot be served.

    Raises
    ------
    SolverError
        No engine found an allocation that keeps the floors.
    """
    prices, u = np.zeros(len(polytope.capacity)), np.zeros(polytope.n_jobs)
    reduction = reduce(polytope, np.column_stack([floors, gains]))
    program = reduction.program
    if program is None:
        return PackedWorth(u, 0.0, 0.0, prices)
    f, g = floors[reduction.first], gains[reduction.first]
    best: tuple[float, PackedWorth] | None = None
    notes = []
    for engine in auto(program.n_classes):
        try:
            solve = engine.start(program)
        except RuntimeError as error:
            notes.append(f"{engine.name}: {error}")
            continue
        for relaxation in _RELAXATIONS:
            try:
                answer = solve(Goal(floors=f * (1.0 - relaxation), gains=g), PRECISION)
            except (RuntimeError, np.linalg.LinAlgError) as error:
                notes.append(f"{engine.name}: {error}")
                continue
            attained = program.throughput(repaired(program, answer))
            if (attained < f * (1.0 - _SHORT)).any():
                notes.append(f"{engine.name}: missed a floor")
                continue
            multipliers = np.clip(np.nan_to_num(answer.demand_multipliers), 0.0, None)
            dual = dual_bound(program, g + multipliers, answer.time_multipliers, answer.prices)
            bound = dual.supply - float((program.counts * multipliers) @ f)
            worth = float((program.counts * g) @ attained)
            gap = max(bound - worth, 0.0) / max(worth, 1e-300)
            if best is None or gap < best[0]:
                of_jobs, of_types = u.copy(), prices.copy()
                of_jobs[reduction.jobs] = attained[reduction.of]
                of_types[reduction.types] = dual.prices
                best = gap, PackedWorth(of_jobs, worth, max(bound, worth), of_types)
            if best[0] <= _ENOUGH:
                return best[1]
    if best is None:
        raise SolverError("; ".join(notes))
    return best[1]
