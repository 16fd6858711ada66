"""The published path: the interior point method of ECOS for linear programs, on the structure of the polytope.

Gavel acts on the point at which ECOS stops, and its programs have many optima; whoever wants the same point has to walk
the same path. This module restates the algorithm from its papers, with linear algebra in O(K M^2) per iteration.

A program ``min c.x, G x + s = h, s >= 0`` (written out in `backends.homogeneous_system`) is embedded, with its dual,
in one homogeneous self-dual system: find x and z, s, tau, kappa >= 0 with::

    G'z + c tau = 0,    G x + s = h tau,    c.x + h.z + kappa = 0,    s z = 0,    tau kappa = 0

"""
from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from formulations.backends.homogeneous_system import REGULARISATION, EmbeddedProgram, Layout, Scaling, System
from formulations.objectives import MaxMin, MaxSum, Objective
from formulations.polytope import Polytope
from formulations.reductions import Classes, aggregate
from formulations.solution import Answer

__all__ = ["feasible_point", "solve"]

Array = NDArray[np.float64]

_LEAST_CENTRING = 1e-4
_LONGEST_STEP = 0.999
_SHORTEST_STEP = 1e-6
_STEP_FRACTION = 0.99
_TOLERANCE = 1e-8
_MOST_ITERATIONS = 100


def solve(polytope: Polytope, objective: Objective) -> Answer:
    """x"""
    if isinstance(objective, MaxSum):
        worth = objective.gains[:, None] * polytope.rates
        classes = aggregate(worth, polytope.scale_factors)
        return _run(polytope, classes, gains=np.ascontiguousarray(worth[classes.first].T))
    if isinstance(objective, MaxMin):
        relative = polytope.rates * (1.0 / objective.weights)[:, None]
        classes = aggregate(relative, polytope.scale_factors)
        demand = np.ascontiguousarray(relative[classes.first].T)
        answer = _run(polytope, classes, demand=demand, levelled=True)
        return Answer(answer.shares, answer.multipliers / objective.weights, answer.prices, answer.iterations)
    raise RuntimeError(f"the homogeneous path does not take {type(objective).__name__}")


def feasible_point(polytope: Polytope, floors: Array) -> Array:
    """x"""
    classes = aggregate(polytope.rates, polytope.scale_factors, floors)
    demand = np.ascontiguousarray(polytope.rates[classes.first].T)
    return _run(polytope, classes, demand=demand, floors=floors[classes.first]).shares


def _run(polytope: Polytope, classes: Classes, *, demand: Array | None=None, floors: Array|None=None, levelled: bool=False, gains: Array | None=None) -> Answer:
    program = EmbeddedProgram(polytope.scale_factors[classes.first].astype(np.float64), classes.counts, polytope.capacity, demand, floors, levelled, gains)
    with np.errstate(all="ignore"):
        path = _Path(program)
        iterations = path.walk()
    x, l, p = path.end()
    return Answer(x.T[classes.of], l[classes.of], p, iterations)


class _Path:
    def __init__(self, program: EmbeddedProgram) -> None:
        M, K = len(program.capacity), len(program.counts)
        self.at = at = Layout(M, K, program.demand is not None)
        self.scaling = Scaling(program, at)
        self.system = System(program, at, self.scaling)
        n = program.counts
        self.L = at.size - at.rows
        weights = np.ones(at.size)
        at.shares_of(weights)[:] = n
        at.bounds_of(weights)[:] = n
        weights[at.time] = n
        self.b = b = np.zeros(at.size)
        if program.gains is not None:
            at.shares_of(b)[:] = program.gains
        b[at.y] = -float(program.levelled)
        b[at.time] = 1.0
        b[at.prices] = program.capacity
        if program.demand is not None:
            weights[at.demand] = n
            if program.floors is not None:
                b[at.demand] = -program.floors
        self.weights = weights
        self.cost = weights * b
        self.cost[:at.rows] *= -1.0
        # rows plus tau kappa
        self.pairs = np.append(weights[at.rows:], 1.0)
        self.count = self.pairs.sum()
        sq = self.scaling.squares
        self.primal_norm = weights / sq # for G x + s - h tau and s
        self.primal_norm[:at.rows] = weights[:at.rows] / sq[:at.rows]
        self.u = np.empty(at.size + 1 + self.L + 1)
        self.start()

    def start(self) -> None:
        at, sq = self.at, self.scaling.squares
        self.system.factor(sq + self.system.regularised)
        rhs = np.zeros((2, at.size))
        rhs[0, at.rows:] = self.b[at.rows:]
        rhs[1, :at.rows] = self.b[:at.rows]
        sol = self.system.solve(rhs)
        u = self.u
        u[:at.size] = sol[0]
        F = np.sqrt(sq[at.rows:])
        u[at.rows:at.size] = _inside(sol[1, at.rows:] * F) / F
        u[at.size] = 1.0
        u[at.size+1:-1] = _inside(-sol[0, at.rows:] * F) * F
        u[-1] = 1.0

    def walk(self) -> int:
        at = self.at
        z, s = self.u[at.rows:at.size + 1], self.u[at.size + 1:]
        for it in range(_MOST_ITERATIONS + 1):
            R = self.residuals()
            gap_all = (z * s) @ self.pairs
            if self.done(R, gap_all):
                return it
            if not np.isfinite(gap_all): break
            self.step(R, gap_all / self.count)
        raise RuntimeError("x")

    def residuals(self) -> Array:
        at, u = self.at, self.u
        R = u[at.size] * self.b - self.system.apply(u[:at.size])
        R[at.rows:] -= u[at.size+1:-1]
        return R

    def done(self, R: Array, total: float) -> bool:
        at, u = self.at, self.u
        tau, kappa = u[at.size], u[-1]
        gap = total - tau * kappa
        cost = self.cost * u[:at.size]
        cx, hz = cost[:at.rows].sum(), cost[at.rows:].sum()
        self.rt = kappa + cx + hz
        pcost, dcost = cx/tau, -hz/tau
        if not (gap < _TOLERANCE or (pcost<0 and gap < -pcost*_TOLERANCE) or (pcost>=0 and dcost>0 and gap < dcost*_TOLERANCE)):
            return False
        sq, w = self.scaling.squares, self.weights
        c, r = at.rows, at.size
        def norm(v, wt): return float(np.sqrt((v*v)@wt))
        wc, wr = w[:c], w[c:]
        nx = norm(u[:c], wc*sq[:c]); nz = norm(u[c:r], wr*sq[c:]); ns=norm(u[r+1:-1], wr/sq[c:])
        resx0=max(1.,norm(self.b[:c], wc/sq[:c])); resz0=max(1.,norm(self.b[c:], wr/sq[c:]))
        pres = norm(R[c:], wr/sq[c:])/max(resz0+nx+ns,1)/tau
        dres = norm(R[:c], wc/sq[:c])/max(resx0+nz,1)/tau
        return pres<_TOLERANCE and dres < _TOLERANCE

    def step(self, R, mu):
        at, u, sys = self.at, self.u, self.system
        c, r = at.rows, at.size
        z, s = u[c:r+1], u[r+1:]
        ratio = s / z
        V = sys.regularised.copy()
        V[c:] += ratio[:-1]
        sys.factor(V)
        rhs = np.empty((2, r))
        rhs[0] = self.b
        rhs[1] = R
        rhs[1, c:] += s[:-1]
        sol = sys.solve(rhs)
        d1 = sol[0]
        den = ratio[-1] - self.cost @ d1
        cone = u[c:]
        def finish(d2, f, over):
            d = np.empty_like(u)
            dt = (f*self.rt - over[-1] + self.cost@d2)/den
            d[:r] = d2 + dt*d1
            d[r] = dt
            d[r+1:] = -(over + ratio*d[c:r+1])
            worst = -(d[c:]/cone).min()
            return d, min(max(1.0/worst if worst>0 else 1e9, _SHORTEST_STEP), _LONGEST_STEP)
        d, a = finish(sol[1], 1.0, s)
        sigma = min(max((1-a)**3, _LEAST_CENTRING), 1.0)
        over = s + (d[c:r+1]*d[r+1:] - sigma*mu)/z
        b = (1-sigma)*R
        b[c:] += over[:-1]
        d, a = finish(sys.solve(b), 1-sigma, over)
        u += (_STEP_FRACTION*a)*d

    def end(self):
        at, u = self.at, self.u
        q = u[:at.size]/u[at.size]
        K = at.K
        return at.shares_of(q), (q[at.demand] if self.system.has_demand else np.zeros(K)), q[at.prices]


def _inside(v):
    low = v.min()
    return v if low > 0 else v + (1.0 - low)
