"""Floors of throughput that cannot all be kept even with space sharing: as few as possible are given up."""

from __future__ import annotations

from functools import partial

import numpy as np
from numpy.typing import ArrayLike, NDArray

from formulations.core.in_turn import Judged, Turn, solve_in_turn
from formulations.floors.attainable import UNMET, KeptFloors, fastest_mix, most_switched_on
from formulations.packed.certificate import dual_bound, repaired
from formulations.packed.engines import ENGINES, Engine
from formulations.packed.methods.sparse_form import Explicit
from formulations.packed.polytope import PackedPolytope
from formulations.packed.program import Goal, useful_pairs
from formulations.packed.reduction import reduce
from throughputs.numerics import dot

__all__ = ["keep_most_packed_floors"]

Array = NDArray[np.float64]


def keep_most_packed_floors(polytope: PackedPolytope, floors: ArrayLike, order: ArrayLike | None = None) -> KeptFloors:
    """Give up as few floors as possible so that the others can all be kept::

        max  sum_i y_i      y_i in {0, 1},   x, z in the packed polytope,   u_i >= f_i y_i

    As `formulations.floors.attainable.keep_most_floors`, with pairs. Jobs without a floor, and those whose floor is
    given up, may still be somebody's partner.

    Parameters
    ----------
    floors : (N,) f in steps/s; 0 for a job without, inf for one that cannot be kept at all.
    order : (N,) positions of the jobs in an order that is always the same; as they come when omitted.

    Raises
    ------
    SolverError
        No engine found whether all floors can be kept, or branch and bound did not finish.
    """
    needed = np.asarray(floors, dtype=np.float64)
    wanted = needed > 0
    hopeless = wanted & ~(_most(polytope) >= needed * (1.0 - UNMET))
    kept = wanted & ~hopeless
    asked = np.where(kept, needed, 0.0)
    level = _attainable(polytope, asked)
    if level < 1.0 - UNMET:
        kept = _largest_set(polytope, asked, np.arange(len(needed)) if order is None else np.asarray(order))
        asked = np.where(kept, needed, 0.0)
        level = _attainable(polytope, asked)
    # what falls short by rounding is asked for as far as it goes
    return KeptFloors(kept, wanted & ~kept, asked * min(level, 1.0))


def _most(polytope: PackedPolytope) -> Array:
    """(N,) no job has more throughput than this, whoever it shares with."""
    columns = polytope.columns
    jobs = np.bincount(columns.group, minlength=len(columns.alone)).astype(np.float64)
    sizes = columns.group_scale_factors.astype(np.float64)
    useful = useful_pairs(columns.alone, columns.together, sizes, jobs)
    fastest = np.maximum(columns.alone, np.where(useful, columns.together, 0.0).max(axis=1))
    types = polytope.capacity > 0
    fits = np.minimum(1.0, polytope.capacity[types] / sizes[:, None])
    return fastest_mix(fastest[:, types], fits)[columns.group]


def _attainable(polytope: PackedPolytope, floors: Array) -> float:
    """Largest fraction of the floors (N,) that can be kept together, as far as it matters whether that is 1."""
    reduction = reduce(polytope, floors[:, None])
    program, f = reduction.program, floors[reduction.first]
    if program is None or not f.any():
        return 1.0
    held, fractions = f > 0, [0.0]

    def attempt(engine: Engine) -> Judged[float]:
        answer = engine.start(program)(Goal(slopes=f))
        u = program.throughput(repaired(program, answer))
        fractions.append(float((u[held] / f[held]).min()))
        weights = np.where(held, np.clip(np.nan_to_num(answer.demand_multipliers), 0.0, None), 0.0)
        most = dual_bound(program, weights, answer.time_multipliers, answer.prices).supply
        proven = most < (1.0 - UNMET) * dot(program.counts * weights, f)
        best = max(fractions)
        return Judged(best, 0.0 if best >= 1.0 - UNMET or proven else 1.0 - best)

    turns = [Turn(engine.name, partial(attempt, engine)) for engine in ENGINES.values()]
    return solve_in_turn(turns, 0.0, [], declining_counts=True)[0]


def _largest_set(polytope: PackedPolytope, floors: Array, order: NDArray[np.intp]) -> NDArray[np.bool_]:
    """(N,) a largest set of jobs whose floors (N,) can be kept; every job with a floor is a class of its own."""
    from scipy.sparse import csr_array, hstack, vstack

    rank = np.empty(len(floors))
    rank[order] = np.arange(1, len(floors) + 1)
    reduction = reduce(polytope, np.where(floors > 0, rank, 0.0)[:, None])
    program = reduction.program
    assert program is not None
    f = floors[reduction.first]
    statement = Explicit(program).statement(Goal(floors=f))
    K, matrix = program.n_classes, statement.matrix.tocsr()
    held = np.flatnonzero(f > 0)
    R, S = matrix.shape[0] - K, len(held)
    switches = csr_array((f[held] / program.fastest[held], (np.arange(S), np.arange(S))), shape=(S, S))
    blocks = [(matrix[:R], csr_array((R, S))), (matrix[R + held], switches)]
    rows = csr_array(vstack([hstack(block) for block in blocks], format="csr"))
    upper = np.concatenate([statement.limit[:R], np.zeros(S)])
    lower = np.where(np.append(statement.equal[:R], np.zeros(S, dtype=bool)), upper, -np.inf)
    kept = np.zeros(len(floors), dtype=bool)
    kept[reduction.first[held]] = most_switched_on(rows, lower, upper, S)
    return kept
