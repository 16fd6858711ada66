"""The ECOS path: the interior point method of ECOS for linear programs, on the structure of the polytope.

Gavel acts on the point at which ECOS stops. Its programs have many optima, so whoever wants that point has to walk the
same path: this module restates the algorithm from its papers, with linear algebra in O(K M^2) per iteration.

A program ``min c.x, G x + s = h, s >= 0`` (written out in `ecos_system`) is embedded, with its dual,
in one homogeneous self-dual system: find x and z, s, tau, kappa >= 0 with::

    G'z + c tau = 0,    G x + s = h tau,    c.x + h.z + kappa = 0,    s z = 0,    tau kappa = 0

and ``x / tau`` is the answer. An iteration solves with ``K = [[D, G'], [G, -V]]``, ``V = s/z + regularisation``, for
``(-c, h)``, for the affine step (sigma = 0) and for the centred, corrected step.

What decides at which optimum the path ends, all of it found to matter:

* equilibration of G before anything else (`Scaling`). Here all iterates stay in original units, and the scaling enters
  only where the method is not invariant: first point, regularisation, norms of the stopping rule;
* regularisation of K, which is solved as regularised;
* the first point, the least sigma, the longest step and the stopping rule.

Identical jobs walk identical paths, so rows with counts in every sum walk the path of the jobs they stand for.

Sources: Domahidi, Chu, Boyd, "ECOS: An SOCP solver for embedded systems", ECC 2013 (embedding, directions, step length,
regularisation); Vandenberghe, "The CVXOPT linear and quadratic cone program solvers", 2010 (first point, stopping
rule). Constants that the papers leave open are those of ECOS;
THIRD_PARTY.md says what is on record about them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from formulations.core.objectives import MaxMin, MaxSum, Method, Objective
from formulations.core.polytope import Polytope
from formulations.core.solution import Answer, NotAcceptedError
from formulations.published.ecos_system import EmbeddedProgram, Layout, PathLayout, PathSystem, Scaling, System
from throughputs.numerics import dot, matmul

Array = NDArray[np.float64]

_LEAST_CENTRING = 1e-4
_LONGEST_STEP = 0.999
_STEP_FRACTION = 0.99
_TOLERANCE = 1e-8
"""Feasibility, absolute and relative gap: the published solver's defaults."""

_INFEASIBLE = 1e-30
"""Ratio of tau and kappa at which a program has no feasible point: long after any that has one would have arrived, and
long before squares are too small for numbers."""

_MOST_ITERATIONS = 100


def solve(polytope: Polytope, objective: Objective) -> Answer:
    """Where the published solver stops, for `MaxMin` and `MaxSum`; any optimum for `Makespan`.

    Every job must have a positive rate on a type with GPUs, and every type must have GPUs.

    Raises
    ------
    RuntimeError
        Another objective (finish-time fairness is no linear program), or the stopping rule is never met.
    """
    return objective.accept(_Published(polytope))


@dataclass(frozen=True, eq=False)
class _Published(Method[Answer]):
    polytope: Polytope

    def weighted_sum(self, objective: MaxSum) -> Answer:
        return _walk(self.polytope, gains=_by_type(objective.gains[:, None] * self.polytope.rates))

    def linear_level(self, objective: MaxMin) -> Answer:
        weights = objective.published_weights(self.polytope)
        # the path depends on how rows are stated: each is divided by its weight
        relative = self.polytope.rates * (1.0 / weights)[:, None]
        answer = _walk(self.polytope, demand=_by_type(relative), levelled=True)
        return Answer(answer.shares, answer.multipliers / weights, answer.prices, answer.iterations)

    def refusal(self, objective: Objective) -> Exception:
        name = type(objective).__name__
        return NotAcceptedError(f"the published path takes max-min, makespan and sums, not {name}")


def feasible_point(polytope: Polytope, floors: Array) -> Array:
    """Shares (N, M) that give every job a throughput of at least `floors` (N,): where the published solver stops.

    Raises
    ------
    RuntimeError
        There are none, as far as the path can tell.
    """
    return _walk(polytope, demand=_by_type(polytope.rates), floors=floors).shares


def _by_type(values: Array) -> Array:
    """(M, K) of (K, M)."""
    return np.ascontiguousarray(values.T)


def _walk(
    polytope: Polytope,
    *,
    demand: Array | None = None,
    floors: Array | None = None,
    levelled: bool = False,
    gains: Array | None = None,
) -> Answer:
    program = EmbeddedProgram(
        scale_factors=polytope.scale_factors.astype(np.float64),
        counts=polytope.counts,
        capacity=polytope.capacity,
        demand=demand,
        floors=floors,
        levelled=levelled,
        gains=gains,
    )
    with np.errstate(all="ignore"):
        return ClassPath(program).walk()


class EcosPath:
    """One walk over a program that a subclass lays out.

    The point is one stacked vector ``[x, y, z (rows), tau, s (rows), kappa]``, so that the pairs (z, s) and
    (tau, kappa) are the two halves of its cone part. `b` is ``[-c, h]``, sums over classes are weighted by counts.
    """

    at: PathLayout
    system: PathSystem
    weights: Array
    b: Array
    weighted_b: Array
    refined: int
    pair_weights: Array
    n_pairs: float
    norm_weights: Array
    dual_norm_weights: Array

    def _start(self, squares: Array) -> None:
        """Least-squares primal and dual points, moved into the cone along its axis."""
        at = self.at
        self.system.factor(squares[at.rows :])
        b = np.zeros((2, at.size))
        b[0, at.rows :], b[1, : at.rows] = self.b[at.rows :], self.b[: at.rows]
        primal, dual = self.system.solve(b)
        F = np.sqrt(squares[at.rows :])
        self.point = np.ones(at.size + 1 + len(F) + 1)
        self.point[: at.rows] = primal[: at.rows]
        self.point[at.rows : at.size] = _inside(dual[at.rows :] * F) / F
        self.point[at.size + 1 : -1] = _inside(-primal[at.rows :] * F) * F
        self.cone = self.point[at.rows :]
        self.z, self.s = self.point[at.rows : at.size + 1], self.point[at.size + 1 :]

    def run(self) -> int:
        """Step until the stopping rule holds; RuntimeError when rounding or `_MOST_ITERATIONS` come first."""
        for iteration in range(_MOST_ITERATIONS):
            residual, of_gap = self._residuals()
            total = dot(self.z * self.s, self.pair_weights)
            if self._arrived(residual, total):
                return iteration
            if not (np.isfinite(total) and np.isfinite(of_gap)):
                break
            if self.point[self.at.size] < _INFEASIBLE * self.point[-1]:
                break
            try:
                self._step(residual, of_gap, total / self.n_pairs)
            except np.linalg.LinAlgError:
                break
        raise RuntimeError(f"the homogeneous path met no stopping rule in {iteration + 1} iterations")

    def _residuals(self) -> tuple[Array, float]:
        """``b tau - [G'z, G x + s]``, and ``c.x + h.z + kappa``."""
        at, point = self.at, self.point
        residual = point[at.size] * self.b
        residual -= self.system.apply(point[: at.size])
        residual[at.rows :] -= self.s[:-1]
        self.cost = -dot(self.weighted_b[: at.rows], point[: at.rows])
        self.worth = -dot(self.weighted_b[at.rows :], point[at.rows : at.size])
        return residual, float(point[-1]) + self.cost - self.worth

    def _arrived(self, residual: Array, total: float) -> bool:
        at, point = self.at, self.point
        tau = float(point[at.size])
        gap = total - tau * float(point[-1])
        cost, worth = self.cost / tau, self.worth / tau
        value = -cost if cost < 0 else max(worth, 0.0)
        if not (gap < _TOLERANCE or gap < _TOLERANCE * value):
            return False
        columns, rows = slice(0, at.rows), slice(at.rows, at.size)
        x, z = _norm(point, self.norm_weights, columns), _norm(point, self.norm_weights, rows)
        s = float(np.sqrt(matmul(self.s[:-1] ** 2, self.dual_norm_weights[rows])))
        primal = _norm(residual, self.dual_norm_weights, rows)
        dual = _norm(residual, self.dual_norm_weights, columns)
        primal /= max(max(1.0, _norm(self.b, self.dual_norm_weights, rows)) + x + s, 1.0) * tau
        dual /= max(max(1.0, _norm(self.b, self.dual_norm_weights, columns)) + z, 1.0) * tau
        return primal < _TOLERANCE and dual < _TOLERANCE

    def _step(self, residual: Array, of_gap: float, mu: float) -> None:
        """Predict, choose sigma, correct, move.

        Near the optimum K is close to singular. The right-hand side ``(-c, h)`` stays large even then, so its solution
        needs refinement; those of the steps need it only where shares are in the cost.
        """
        at, system, s = self.at, self.system, self.s
        ratio = s / self.z
        system.factor(ratio[:-1])
        b = np.empty((2, at.size))
        b[0], b[1] = self.b, residual
        b[1, at.rows :] += s[:-1]
        fixed, affine = solutions = system.solve(b)
        system.refine(solutions[: self.refined], b[: self.refined])
        direction = self._direction(fixed, affine, b[1], of_gap - float(s[-1]), s, ratio)
        left = 1.0 - self._length(direction)
        sigma = min(max(left * left * left, _LEAST_CENTRING), 1.0)
        dz, ds = direction[at.rows : at.size + 1], direction[at.size + 1 :]
        target = s + (ds * dz - sigma * mu) / self.z
        np.multiply(residual, 1.0 - sigma, out=b[1])
        b[1, at.rows :] += target[:-1]
        solutions = system.solve(b[1:])
        system.refine(solutions[: self.refined - 1], b[1 : self.refined])
        direction = self._direction(
            fixed, solutions[0], b[1], (1.0 - sigma) * of_gap - float(target[-1]), target, ratio
        )
        self.point += _STEP_FRACTION * self._length(direction) * direction

    def _direction(self, fixed: Array, moving: Array, b: Array, of_gap: float, target: Array, ratio: Array) -> Array:
        """Full direction from ``K fixed = (-c, h)`` and ``K moving = b``.

        ``d_tau = (of_gap + c.x + h.z) / (kappa/tau - c.x' - h.z')`` for (x, z) moving and (x', z') fixed. Both sides
        cancel near the optimum, but K is symmetric: ``-c.x' - h.z'`` is the sum of positive terms
        ``D x'^2 + V z'^2``, and ``c.x + h.z = 2 c.x + fixed . b``.
        """
        at = self.at
        weighted = self.weights * fixed
        numerator = of_gap - 2.0 * dot(self.weighted_b[: at.rows], moving[: at.rows]) + dot(weighted, b)
        denominator = float(ratio[-1]) + dot(weighted * fixed, self.system.diagonal)
        d_tau = numerator / denominator
        direction = np.empty_like(self.point)
        direction[: at.size] = moving + d_tau * fixed
        direction[at.size] = d_tau
        direction[at.size + 1 :] = -(target + ratio * direction[at.rows : at.size + 1])
        return direction

    def _length(self, direction: Array) -> float:
        """Longest step that keeps the point in the cone."""
        steepest = -float((direction[self.at.rows :] / self.cone).min())
        return min(1.0 / steepest, _LONGEST_STEP) if steepest > 0 else _LONGEST_STEP


class ClassPath(EcosPath):
    """The walk over classes of jobs."""

    def __init__(self, program: EmbeddedProgram) -> None:
        at = self.layout = self.at = Layout(len(program.capacity), len(program.counts), program.demand is not None)
        scaling = Scaling(program, at)
        self.system = System(program, at, scaling)
        self.weights = at.stack(program.counts, 1.0, program.counts, program.counts, program.counts, 1.0)
        floors = 0.0 if program.floors is None else -program.floors
        gains = 0.0 if program.gains is None else program.gains
        self.b = at.stack(gains, -float(program.levelled), 0.0, floors, 1.0, program.capacity)
        # with gains, errors of the shares enter the cost and so the step of tau: all solutions are then refined
        self.refined = 1 if program.gains is None else 2
        self.weighted_b = self.weights * self.b
        self.pair_weights = np.append(self.weights[at.rows :], 1.0)
        self.n_pairs = float(self.pair_weights.sum())
        # squared norms in equilibrated units: columns of x and rows of z are multiplied by E and F, rows of s divided
        self.norm_weights, self.dual_norm_weights = self.weights * scaling.squares, self.weights / scaling.squares
        self._start(scaling.squares)

    def walk(self) -> Answer:
        """Where the walk ends; RuntimeError when it does not."""
        iterations, at = self.run(), self.layout
        answer = self.point[: at.size] / self.point[at.size]
        multipliers = answer[at.demand] if at.has_demand else np.zeros(at.K)
        return Answer(np.ascontiguousarray(at.shares_of(answer).T), multipliers, answer[at.prices], iterations)


def _norm(values: Array, weights: Array, part: slice) -> float:
    return float(np.sqrt(matmul(values[part] ** 2, weights[part])))


def _inside(point: Array) -> Array:
    """The point, moved along (1, ..., 1): until its least entry is 1, or by a little where all are positive."""
    least = point.min()
    return np.asarray(point + (1.0 - least if least <= 0 else 1.0 - _STEP_FRACTION))
