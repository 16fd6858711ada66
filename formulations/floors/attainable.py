"""Floors of throughput that cannot all be kept: as few as possible are given up, with space sharing and without."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from formulations.arguments import figures
from formulations.core.polytope import Polytope
from formulations.core.solution import SolverError
from formulations.packed.polytope import PackedPolytope, check_polytope
from formulations.packed.program import Goal
from formulations.packed.reduction import reduced
from formulations.reference.mixed_integer import Highs, MixedProgram
from formulations.reference.stopping import StopRule
from throughputs.arrays import Flags, Floats, Positions

_UNMET = 1e-6
"""Fraction of a floor that may be missing for it to count as attainable: what branch and bound resolves."""


@dataclass(frozen=True, eq=False)
class KeptFloors:
    """The largest set of floors that can be kept together.

    Attributes
    ----------
    kept : (N,) whether the job's floor is kept; False also where there is none.
    dropped : (N,) whether the job had a floor and it was given up.
    floors : (N,) steps/s that are kept, 0 where none is.
    """

    kept: Flags
    dropped: Flags
    floors: Floats


def keep_most_floors(
    polytope: Polytope | PackedPolytope, floors: ArrayLike, order: ArrayLike | None = None
) -> KeptFloors:
    """Give up as few floors as possible so that the others can all be kept::

        max  sum_i y_i      y_i in {0, 1},   x, z in the polytope,   u_i >= f_i y_i

    Of several sets of the largest size it is the one that branch and bound meets first when the jobs are listed by
    their figures and, where these are equal, in `order`: the same whatever the order in which they come. Jobs without a
    floor, and those whose floor is given up, may still be somebody's partner. Attainability is proven by the max-min
    program ``max_x min_i u_i / f_i``, the number that must be given up by HiGHS's branch and bound. A floor counts as
    kept from a fraction 1 - 1e-6 on.

    Parameters
    ----------
    floors : (N,) f in steps/s; 0 for a job without, inf for one that cannot be kept at all.
    order : (N,) positions of the jobs in an order that is always the same; as they come when omitted.

    Raises
    ------
    SolverError
        HiGHS found no optimum, or did not finish branch and bound.
    """
    check_polytope("keep_most_floors", polytope)
    # inf: cannot be kept
    needed = np.asarray(floors, dtype=np.float64)
    finite = np.where(np.isposinf(needed), 0.0, needed)
    figures("floors", "floors", finite, (polytope.n_jobs,), "numbers of at least 0")
    wanted, whole = needed > 0, reduced(polytope, np.zeros((polytope.n_jobs, 1)))
    kept = np.asarray(wanted & (whole.of_jobs(whole.program.fastest) >= needed * (1.0 - _UNMET)))
    asked = np.where(kept, needed, 0.0)
    level = _attainable(polytope, asked)
    if level < 1.0 - _UNMET:
        kept = _largest_set(polytope, asked, np.arange(len(needed)) if order is None else np.asarray(order))
        asked = np.where(kept, needed, 0.0)
        level = _attainable(polytope, asked)
    # what falls short by rounding is asked for as far as it goes
    return KeptFloors(kept, wanted & ~kept, asked * min(level, 1.0))


def _attainable(polytope: Polytope | PackedPolytope, floors: Floats) -> float:
    """The largest fraction of floors that can be kept together; 1 where there are none."""
    reduction = reduced(polytope, floors[:, None])
    program, f = reduction.program, floors[reduction.first]
    if not f.any():
        return 1.0
    u = program.throughput(program.repaired(program.best(Goal(slopes=f)).shares))
    return float((u[f > 0] / f[f > 0]).min())


def _largest_set(polytope: Polytope | PackedPolytope, floors: Floats, order: Positions) -> Flags:
    """By branch and bound over a switch for each floor; every job with a floor is a class of its own.

    Columns: switches, and then times alone and in pairs, all of them listed.
    """
    rank = np.empty(len(floors))
    rank[order] = np.arange(1, len(floors) + 1)
    reduction = reduced(polytope, np.where(floors > 0, rank, 0.0)[:, None])
    program = reduction.program
    one, other = np.triu_indices(len(program.counts))
    many = (one != other) | (program.counts[one] > 1)
    pair, j = np.nonzero(program.useful[program.group[one], program.group[other]] & many[:, None])
    program.add_pairs(program.code(one[pair], other[pair], j))
    f = floors[reduction.first]
    held = np.flatnonzero(f > 0)
    switched = (held, np.arange(len(held)), (f / program.reach)[held])
    rows = program.rows(switched, len(held), 0.0)
    matrix, lower, upper = rows.collected
    is_switch = np.arange(matrix.shape[1]) < len(held)
    mixed = MixedProgram.of(matrix, is_switch.astype(float), (lower, upper), upper=1.0, whole=is_switch, maximise=True)
    # a count within less than 1 of its bound is the largest
    answer = Highs(mixed).solve(StopRule(absolute_gap=0.99, seconds=np.inf))
    if answer.columns is None or not answer.proven:
        raise SolverError(f"floors to keep: HiGHS stopped with status {answer.note}")
    kept_floors = np.zeros(len(floors), dtype=bool)
    kept_floors[reduction.first[held]] = answer.columns[is_switch] > 0.5
    return kept_floors
