"""A bound on a stated program from the multipliers of its conic form, by products that no solver had a hand in.

With shares y and further columns t (epigraphs, the author's own variables), v = (y, t), the conic form is::

    min  c.v + v'Pv / 2      subject to   b - A v in K

For any z in K* no v does better than the linear function below, P linearised at the point found::

    -b.z - v^'P v^ / 2 + r.v,      r = c + P v^ + A'z

Shares of time are at least 0 and a job's sum to at most 1, which bounds r.y from below for any r. Nothing bounds t:
there r must be 0. A solver leaves a small r, so multipliers are moved by the least weighted step that takes it away;
what then remains is rounding, and charged at the size of t. Where more remains there is no proof.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from formulations.stated.cones import into_dual, scaling
from throughputs.arrays import Flags, Floats, Ints
from throughputs.numerics import dot

_STEPS = 5
"""Times that multipliers are moved at most; after two the rest is usually rounding."""

_NEGLIGIBLE = 1e-10
"""Part of the largest multiplier below which others are taken for 0: to move what is next to nothing so that nothing
remains is beyond rounding."""

_ROUNDING = 1e-11
"""Part of the terms of a sum up to which the sum is taken for 0."""


@dataclass(frozen=True, eq=False)
class ConicForm:
    """``min c.v + v'Pv / 2`` subject to ``b - A v in K``, with what is known of its columns.

    Attributes
    ----------
    cost, limit : (C,) c and (R,) b.
    matrix : A (R, C), sparse.
    quadratic : P (C, C), sparse, symmetric; None for none.
    cones : dimensions of K, as cvxpy states them.
    job : (C,) the job whose share of time a column is; -1 for all other columns.
    """

    cost: Floats
    limit: Floats
    matrix: Any
    quadratic: Any
    cones: Any
    job: Ints

    def slope(self, point: Floats) -> Floats:
        """(C,) ``c + P v``."""
        return self.cost if self.quadratic is None else self.cost + self.quadratic.dot(point)

    def value(self, point: Floats) -> float:
        """``c.v + v'Pv / 2``."""
        return dot(0.5 * (self.cost + self.slope(point)), point)


def lower_bound(form: ConicForm, point: Floats, multipliers: Floats) -> tuple[float, Floats]:
    """No point is better than this; and the multipliers that prove it. -inf where they prove nothing.

    Parameters
    ----------
    point : (C,) columns at which the quadratic part is linearised, and by which rounding is charged.
    multipliers : (R,) as a solver left them.
    """
    if not (np.isfinite(point).all() and np.isfinite(multipliers).all()):
        return -np.inf, np.zeros_like(multipliers)
    size = np.abs(multipliers)
    multipliers = np.where(size > _NEGLIGIBLE * size.max(initial=0.0), multipliers, 0.0)
    slope, free = form.slope(point), form.job < 0
    z = _without_residual(form, slope, free, into_dual(form.cones, multipliers))
    if not np.isfinite(z).all():
        return -np.inf, np.zeros_like(z)
    residual = slope + form.matrix.T.dot(z)
    terms = np.abs(slope) + abs(form.matrix).T.dot(np.abs(z))
    if (np.abs(residual) > _ROUNDING * terms)[free].any():
        return -np.inf, z
    of_jobs = np.zeros(int(form.job.max(initial=-1)) + 1)
    np.minimum.at(of_jobs, form.job[~free], residual[~free])
    charged = float(np.add.reduce(of_jobs)) - dot(np.abs(residual[free]), np.abs(point[free]))
    return form.value(point) - dot(slope, point) - dot(form.limit, z) + charged, z


def _without_residual(form: ConicForm, slope: Floats, free: Flags, multipliers: Floats) -> Floats:
    """Multipliers in K* near those given under which no free column gains, as far as they can be found."""
    from scipy.sparse import diags_array
    from scipy.sparse.linalg import spsolve

    z, rows = multipliers, form.matrix[:, np.flatnonzero(free)].tocsr()
    if not rows.shape[1] or not np.isfinite(z).all():
        return z
    terms = np.abs(slope[free]) + abs(rows).T.dot(np.abs(z))
    for _ in range(_STEPS):
        residual = slope[free] + rows.T.dot(z)
        if not (np.abs(residual) > 0.01 * _ROUNDING * terms).any():
            break
        weighted = scaling(form.cones, z).dot(rows)
        system = rows.T.dot(weighted)
        shift = 1e-14 * float(np.max(system.diagonal(), initial=0.0)) or 1.0
        step = spsolve((system + diags_array(np.full(rows.shape[1], shift))).tocsc(), -residual)
        z = into_dual(form.cones, z + weighted.dot(np.atleast_1d(step)))
        if not np.isfinite(z).all():
            break
    return z
