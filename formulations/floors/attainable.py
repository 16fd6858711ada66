"""Floors of throughput that cannot all be kept: as few as possible are given up."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from formulations.columns import ColumnProgram, MostFloors, solve_columns
from formulations.core.highs_model import with_model
from formulations.core.objectives import MaxMin
from formulations.core.polytope import Polytope
from formulations.core.solution import SolverError
from formulations.solving.solver import solve
from throughputs import Configurations

__all__ = ["UNMET", "KeptFloors", "fastest_mix", "keep_most_floors", "most_switched_on"]

Array = NDArray[np.float64]

UNMET = 1e-6
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

    kept: NDArray[np.bool_]
    dropped: NDArray[np.bool_]
    floors: Array

    def among(self, jobs: NDArray[np.bool_], needed: Array) -> KeptFloors:
        """The same of more jobs, of which `jobs` (N,) marks those of this set; what others need (N,) is given up."""
        kept, dropped, floors = np.zeros(len(jobs), dtype=bool), np.asarray(needed > 0), np.zeros(len(jobs))
        kept[jobs], dropped[jobs], floors[jobs] = self.kept, self.dropped, self.floors
        return KeptFloors(kept, dropped, floors)


def keep_most_floors(polytope: Polytope, floors: ArrayLike, order: ArrayLike | None = None) -> KeptFloors:
    """Give up as few floors as possible so that the others can all be kept::

        max  sum_i y_i      y_i in {0, 1},   x in the polytope,   sum_j T_ij x_ij >= f_i y_i

    Of several sets of the largest size it is the one that branch and bound meets first when the jobs are listed by
    their figures and, where these are equal, in `order`: the same whatever the order in which they come.
    Attainability is proven by the certified max-min program ``max_x min_i u_i / f_i``, the number that must be given up
    by HiGHS's branch and bound. A floor counts as kept from a fraction 1 - 1e-6 on.

    Parameters
    ----------
    floors : (N,) f in steps/s; 0 for a job without, inf for one that cannot be kept at all.
    order : (N,) positions of the jobs in an order that is always the same; as they come when omitted.
    """
    needed = np.asarray(floors, dtype=np.float64)
    types = np.flatnonzero(polytope.capacity > 0)
    fits = np.minimum(1.0, polytope.capacity[types] / polytope.scale_factors[:, None])
    # alone on the cluster a job goes as fast as its best mix of types
    wanted = needed > 0
    hopeless = wanted & ~(fastest_mix(polytope.rates[:, types], fits) >= needed * (1.0 - UNMET))
    open_ = np.flatnonzero(wanted & ~hopeless)
    if not len(open_):
        return KeptFloors(np.zeros(len(needed), dtype=bool), hopeless, np.zeros(len(needed)))
    kept, level = open_, _attainable(polytope, open_, needed)
    if level < 1.0 - UNMET:
        listed = open_ if order is None else np.asarray(order)[np.isin(order, open_)]
        kept = _branch_and_bound(polytope, listed, needed)
        level = _attainable(polytope, kept, needed) if len(kept) else 1.0
    mask = np.zeros(len(needed), dtype=bool)
    mask[kept] = True
    # what falls short by rounding is asked for as far as it goes
    return KeptFloors(mask, wanted & ~mask, np.where(mask, needed, 0.0) * min(level, 1.0))


def fastest_mix(rates: Array, fits: Array) -> Array:
    """(N,) throughput of each job when it has the cluster to itself: fastest types first until its time is used.

    Parameters
    ----------
    rates : (N, M) steps/s.
    fits : (N, M) share of time for which a type has room for the job's gang.
    """
    order = np.argsort(-rates, axis=1, kind="stable")
    ranked, room = np.take_along_axis(rates, order, axis=1), np.take_along_axis(fits, order, axis=1)
    before = np.cumsum(room, axis=1) - room
    return np.asarray((ranked * np.clip(1.0 - before, 0.0, room)).sum(axis=1))


def _attainable(polytope: Polytope, jobs: NDArray[np.intp], floors: Array) -> float:
    """Largest fraction of the floors of `jobs` that can be kept together."""
    part = polytope.restricted(jobs, np.arange(len(polytope.capacity)))
    return float(solve(part, MaxMin(floors[jobs])).objective)


def _branch_and_bound(polytope: Polytope, jobs: NDArray[np.intp], floors: Array) -> NDArray[np.intp]:
    """A largest set among `jobs` whose floors can be kept."""
    part = polytope.restricted(jobs, np.flatnonzero(polytope.capacity > 0))
    program = ColumnProgram(Configurations.from_matrix(part.columns.matrix), part.capacity)
    goal = MostFloors(floors[jobs])
    return jobs[goal.kept(program, solve_columns(program, goal, solver="highs").x)]


def most_switched_on(rows: Any, lower: Array, upper: Array, n_switches: int) -> NDArray[np.bool_]:
    """Which of the last columns are 1 when as many as possible are, by HiGHS's branch and bound::

        max  sum y      lower <= rows (x, y) <= upper,   0 <= x <= 1,   y_i in {0, 1}

    Parameters
    ----------
    rows : sparse (R, C), its last `n_switches` columns those of y.
    lower, upper : (R,), -inf and inf for no limit.

    Raises
    ------
    SolverError
        HiGHS did not finish.
    """
    import highspy

    C, K = rows.shape[1], n_switches
    cost = np.concatenate([np.zeros(C - K), np.ones(K)])
    # a count within less than 1 of its bound is the largest
    options = {"mip_rel_gap": 0.0, "mip_abs_gap": 0.99}
    try:
        solver = with_model(
            rows, cost, (lower, upper), upper=1.0, maximise=True, whole=np.arange(C) >= C - K, options=options
        )
    except RuntimeError as error:
        raise SolverError(str(error)) from error
    solver.run()
    status = solver.getModelStatus()
    if status != highspy.HighsModelStatus.kOptimal:
        raise SolverError(f"HiGHS on the floors to keep: {solver.modelStatusToString(status)}")
    return np.asarray(np.asarray(solver.getSolution().col_value)[-K:] > 0.5)
