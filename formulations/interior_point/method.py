"""A primal-dual interior point method for programs whose jobs couple only through capacity.

The program, for K classes of `count` identical jobs on M accelerator types::

    maximise    t  +  sum_k n_k ( q_k . x_k - h_k/2 |x_k|^2 + B_k log v_k )
    subject to  a_k . x_k - v_k = f_k + w_k t     multiplier lambda_k    (only for jobs with a demand)
                sum_j x_kj + y_k = 1              multiplier m_k
                sum_k n_k s_k x_kj + z_j + g_j t = c_j    multiplier p_j (the price of type j)
                x, v, y, z >= 0

Newton's system splits (`newton_system`): every job is a 2x2 block in (lambda_k, m_k), and only the M prices and t
are common, so an iteration costs O(K M^2) and one dense solve of size M + 1. Predictor-corrector steps after
Mehrotra (SIAM J. Optim. 2(4), 1992).

With budgets B the slack v_k is the throughput itself: its complementarity is v_k lambda_k = B_k where the other rows
strive for 0, and everything else is the same.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from formulations.interior_point.newton_system import Direction, NewtonSystem, Residuals
from throughputs.arrays import Floats
from throughputs.numerics import dot, einsum, matmul

_MOST_ITERATIONS = 250
"""Iterations after which the best iterate so far is the answer."""
# relative gap from which iterates are compared (further off, residuals do not say which is best), and iterates without
# progress after which rounding has stopped it
_NEARLY_SOLVED, _PATIENCE = 1e-5, 4
_STEP_TO_BOUNDARY = 0.9995
"""Part of the way to the boundary that a step goes at most."""
_NEARNESS = 0.5
"""Weight of a given starting point against the centre."""
_FILLED = 0.8
"""Part of the time of jobs, or of the capacity of types, that is in use at the start."""
_INSIDE = 0.3
"""What a job's time is worth at the start beyond what it earns, relative to the most that it could earn."""
_SMALLEST_CLASS = 1e-12
"""Part of the largest class that any class counts as at least when their products are balanced."""
# With log utilities (budgets):
_STEP_WITH_BUDGETS = 0.99
"""Part of the way to the boundary that a step goes at most."""
_FASTEST, _SLOWEST = 0.005, 0.8
"""Least and most of the mean complementarity product that a step aims at; more while budgets are not met."""
_SHORTEST = 0.1
"""Step length below which the corrector of the predictor-corrector pair is left out."""
_SMALLEST = 0.1
"""Least complementarity product aimed at, relative to that of the precision asked for."""


@dataclass(frozen=True, eq=False)
class StructuredProgram:
    """Data of the program above; arrays over types and classes are (M, K).

    `slopes` w (K,) makes it a threshold program whose level t is maximised; `floors` f (K,) alone keeps t out of it;
    with neither, no job has a demand. `start` (M, K) are feasible shares to begin near. `drift` g (M,) is what jobs
    outside the program take of each type per unit of the level (what they take at level 0 is not in `capacity`).
    `budgets` B (K,), positive, weigh the logarithms of the throughputs; slopes and floors are then None.
    """

    rates: Floats
    scale_factors: Floats
    counts: Floats
    capacity: Floats
    slopes: Floats | None = None
    floors: Floats | None = None
    gains: Floats | None = None
    curvature: Floats | None = None
    start: Floats | None = None
    drift: Floats | None = None
    budgets: Floats | None = None


@dataclass(frozen=True, eq=False)
class InteriorPoint:
    """Last iterate: shares (M, K), multipliers of demands or throughputs (K,), prices (M,) and the level t."""

    shares: Floats
    demand_multipliers: Floats
    prices: Floats
    iterations: int
    level: float = 0.0


Engine = Callable[[StructuredProgram, float], InteriorPoint]
"""Solves a program to a relative gap."""


def solve_structured(program: StructuredProgram, tolerance: float = 1e-10) -> InteriorPoint:
    """Solve the program; the caller certifies the answer.

    Stops when the relative complementarity gap is below `tolerance`, when rounding stops all progress, or after
    250 iterations; the best iterate is returned in every case.
    """
    with np.errstate(all="ignore"):
        return _Iteration(program).run(tolerance)


# The ufunc itself: at tens of classes the method's wrapper costs as much as the sum.
_sum = np.add.reduce


class _Iteration:
    """State of one solve.

    `values` are those of all classes and then z, in one array, and `duals` theirs and then p. By class, rows of `X` are
    M shares, then y, then (where jobs have demands) v; rows of `S` are M reduced costs, then m, then lambda. Newton
    steps work with e = rc / values, the complementarity targets over values.
    """

    def __init__(self, program: StructuredProgram) -> None:
        A, s, n, c = program.rates, program.scale_factors, program.counts, program.capacity
        self.log = program.budgets is not None
        self.weight = self._weights(program)
        s, n = s / self.weight, n * self.weight
        if program.budgets is not None:
            self.B = program.budgets / self.weight
            self.total_budget = dot(n, self.B)
        M, K = A.shape
        self.program = program
        self.A, self.s, self.n, self.c, self.M, self.K = A, s, n, c, M, K
        self.ns = n * s
        self.h = None if program.curvature is None else program.curvature / self.weight
        self.q = None if program.gains is None else program.gains / self.weight
        self.drift = np.zeros(M) if program.drift is None else program.drift
        self.fixed = program.slopes is None
        self.has_demand = not self.fixed or program.floors is not None or self.log
        self.slope = np.zeros(K) if program.slopes is None else program.slopes
        self.floors = np.zeros(K) if program.floors is None else program.floors
        self.system = NewtonSystem(
            A, s, n, slope=program.slopes, drift=self.drift, curvature=self.h, has_demand=self.has_demand
        )
        self.size_of_capacity = np.abs(c) + np.abs(self.drift)
        rows = M + 1 + self.has_demand
        self.values, self.duals = np.empty(rows * K + M), np.empty(rows * K + M)
        # how often each product counts, but for those that budgets keep from vanishing
        self.counted = np.append(np.tile(n, rows), np.ones(M))
        if self.log:
            self.system.by_class(self.counted)[M + 1] = 0.0
        self.size = float(self.counted.sum())
        self._start()

    @staticmethod
    def _weights(program: StructuredProgram) -> Floats:
        """(K,) w. n jobs of gangs of s that are worth q are n w jobs of gangs of s / w that are worth q / w, for any w.

        With the root of what a class spends, is worth or takes, classes in which that differs by orders of magnitude
        are made half alike, and all their products can shrink together.
        """
        if program.budgets is not None:
            size = program.budgets
        elif program.gains is not None:
            size = program.gains.max(0)
        elif program.slopes is not None:
            size = program.scale_factors * program.slopes
        else:
            return np.ones(len(program.counts))
        size = np.maximum(size, max(_SMALLEST_CLASS * float(size.max()), 1e-300))
        return np.asarray(np.sqrt(size * (float(program.counts.sum()) / dot(program.counts, size))))

    def _start(self) -> None:
        """A point inside, its shares feasible, its duals feasible too."""
        M, A, c = self.M, self.A, self.c
        total = float(self.ns.sum())
        self.X, self.S = X, S = self.system.by_class(self.values), self.system.by_class(self.duals)
        self.z, self.p = self.values[-M:], self.duals[-M:]
        # with drift, the level is near 1 and the others' share of capacity near what they take there
        room = c if self.program.drift is None else np.maximum(c - self.drift, 0.01 * self.size_of_capacity)
        X[:M] = (_FILLED * np.minimum(1.0 / M, room / total))[:, None]
        if self.log:
            # every job spends its budget evenly, as far as its time allows
            X[:M] = _FILLED * np.minimum(1.0 / M, (c / self.total_budget)[:, None] * (self.B / self.s))
        if self.program.start is not None:
            X[:M] = _NEARNESS * self.program.start + (1.0 - _NEARNESS) * X[:M]
        self.z[:] = c - matmul(X[:M], self.ns)
        X[M] = 1.0 - _sum(X[:M])
        self.t = 0.0
        worth = np.zeros_like(A) if self.q is None else self.q
        if self.log:
            X[M + 1] = _sum(A * X[:M])
            S[M + 1] = self.B / X[M + 1]
            worth = worth + A * S[M + 1]
        elif self.has_demand:
            u = _sum(A * X[:M])
            if not self.fixed:
                self.t = 0.5 * max(float(((u - self.floors) / self.slope).min()), 0.0)
            g = self.floors + self.slope * self.t
            X[M + 1] = np.maximum(u - g, 0.05 * (1e-3 + np.abs(g)))
            if self.program.drift is not None:
                self.z[:] = np.maximum(self.z - self.drift * self.t, 0.05 * self.size_of_capacity)
            S[M + 1] = 1.0 if self.fixed else 1.0 / dot(self.n, self.slope)
            worth = worth + A * S[M + 1]
        at_best = worth.max(0)
        at_best = np.maximum(at_best, max(_SMALLEST_CLASS * float(at_best.max()), 1e-300))
        weight = float(at_best.max()) if self.h is not None else dot(self.n, at_best) / float(self.n.sum())
        self.p[:] = 0.5 * weight * np.minimum(1.0, self.n.sum() / (M * room))
        if self.log:
            self.p[:] = 2.0 * self.total_budget / c
        spent = worth - self.s * self.p[:, None]
        S[M] = np.maximum(spent.max(0), 0.0) * 1.05 + _INSIDE * at_best
        S[:M] = S[M] - spent
        if self.h is not None:
            S[:M] += self.h * X[:M]

    def run(self, tolerance: float) -> InteriorPoint:
        best, least, stalled = self._snapshot(0), np.inf, 0
        if self.log:
            # products need not get smaller than is asked for: budgets are met by full steps only
            self.smallest = _SMALLEST * tolerance * self.total_budget / self.size
        for iteration in range(_MOST_ITERATIONS + 1):
            gap = self._gap()
            relative = gap / max(self._objective(), 1e-300)
            left = self._residuals()
            near, last = relative < _NEARLY_SOLVED, iteration == _MOST_ITERATIONS
            merit = max(relative, self._largest(left)) if near else relative
            if not np.isfinite(merit):
                break
            if near and merit >= least:
                stalled += 1
            elif near or last or least == np.inf:
                best, least, stalled = self._snapshot(iteration), merit if near else np.inf, 0
            solved = relative < tolerance and not (self.log and self._off_budget() > 10.0 * tolerance)
            if solved or stalled > _PATIENCE or last or not self._step(gap, relative, left):
                break
        return best

    def _snapshot(self, iteration: int) -> InteriorPoint:
        M = self.M
        demand = self.S[M + 1] * self.weight if self.has_demand else np.zeros(self.K)
        return InteriorPoint(self.X[:M].copy(), demand, self.p.copy(), iteration, self.t)

    def _gap(self) -> float:
        """Complementarity gap."""
        self.products = self.values * self.duals
        return float(matmul(self.products, self.counted))

    def _objective(self) -> float:
        """A size of the objective to compare the gap with."""
        if not self.fixed:
            return abs(self.t)
        if self.log:
            return self.total_budget
        if self.q is None:
            return float(self.n.sum())
        return abs(dot(_sum(self.q * self.X[: self.M]), self.n))

    def _residuals(self) -> Residuals:
        M, X, S = self.M, self.X, self.S
        x, rows_of = X[:M], self.system.rows
        dual = einsum("rmk,rk->mk", rows_of, S[M:])
        dual += self.s * self.p[:, None]
        dual -= S[:M]
        if self.h is not None:
            dual += self.h * x
        if self.q is not None:
            dual -= self.q
        rows, level = einsum("rmk,mk->rk", rows_of, x), 0.0
        rows += X[M:]
        rows[0] -= 1.0
        if self.has_demand:
            rows[1] += self.floors
        if not self.fixed:
            rows[1] += self.slope * self.t
            level = dot(self.n, S[M + 1] * self.slope) + dot(self.p, self.drift) - 1.0
        return Residuals(dual, rows, matmul(x, self.ns) + self.z + self.drift * self.t - self.c, level)

    def _largest(self, left: Residuals) -> float:
        """The largest residual, relative; the level's is left out: it only scales the multipliers, which the
        certificate does not mind."""
        paid = float(self.S[self.M].max() + self.p.max() * self.s.max())
        rows = np.abs(left.rows)
        if self.log:
            rows[1] /= self.X[self.M + 1]
        worst = max(float(rows.max()), float(np.abs(left.capacity / self.size_of_capacity).max()))
        worst = max(worst, float(np.abs(left.dual).max()) / max(paid, 1e-300))
        return max(worst, self._off_budget()) if self.log else worst

    def _off_budget(self) -> float:
        """Largest relative distance of a product v lambda from its budget."""
        return float(np.abs(self.X[self.M + 1] * self.S[self.M + 1] / self.B - 1.0).max())

    def _step(self, gap: float, relative: float, left: Residuals) -> bool:
        """Predictor, corrector, and as far along as the boundary allows; False when no step can be found."""
        self.system.factor(self.values, self.duals)
        if self.log:
            return self._step_with_budgets(gap, left)
        S, over = self.duals, self.system.over
        step = self.system.towards(left, -S)
        # where all products are to vanish, X dS + S dX = -X S: what one of them changes by is known from the other
        change = np.multiply(step.values, over, out=step.values)
        primal = min(1.0, -1.0 / min(float(change.min()), -1e-300))
        dual = min(1.0, -1.0 / min(-1.0 - float(change.max()), -1e-300))
        # the products (X + primal dX) (S + dual dS), summed by powers of the change
        of_change = np.multiply(self.products, change, out=self.products)
        after = (1.0 - dual) * gap + (primal * (1.0 - dual) - dual) * matmul(of_change, self.counted)
        of_change *= change
        after -= primal * dual * matmul(of_change, self.counted)
        part = max(after / gap, 0.0)
        target = gap / self.size * part * part * part
        # targets (target - dX dS) / X - S
        e = change + 1.0
        e *= change
        e -= 1.0
        e *= S
        e += np.multiply(over, target, out=change)
        step = self.system.towards(left, e)
        dS = self.system.of_duals(e, step)
        # without demands there always is an interior, and what is kept from its boundary would be left of the gap
        share = _STEP_TO_BOUNDARY if self.has_demand else max(_STEP_TO_BOUNDARY, 1.0 - relative)
        primal, dual = self._lengths(step, dS, share)
        if self.h is not None:
            # with curvature, shares enter the dual equations: both sides must move together
            primal = dual = min(primal, dual)
        return self._move(primal, dual, step, dS)

    def _step_with_budgets(self, gap: float, left: Residuals) -> bool:
        """The step where v lambda = B is wanted.

        The predictor's curvature (`bend`) is taken only as far as the predictor could go, and the other products
        shrink no faster than these near their budgets. Where even that leads straight into the boundary, the
        curvature says nothing: a step without it, back towards the centre.
        """
        X, S, over, system, v = self.values, self.duals, self.system.over, self.system, self.M + 1
        of_budget = system.by_class(over)[v]
        e = -S
        system.by_class(e)[v] += self.B * of_budget
        step = system.towards(left, e)
        dS = system.of_duals(e, step)
        primal, dual = self._lengths(step, dS, 1.0)
        part = max(matmul((X + primal * step.values) * (S + dual * dS), self.counted) / gap, 0.0)
        bend, mean = step.values * dS, gap / self.size
        least = mean * min(_SLOWEST, max(_FASTEST, 2.0 * self._off_budget()))
        target = max(mean * part * part * part, least, self.smallest)
        for weight, goal in ((primal * dual, target), (0.0, max(target, mean))):
            e = (goal - weight * bend) * over - S
            system.by_class(e)[v] += (self.B - goal) * of_budget
            step = system.towards(left, e)
            dS = system.of_duals(e, step)
            primal, dual = self._lengths(step, dS, _STEP_WITH_BUDGETS)
            if min(primal, dual) > _SHORTEST:
                break
        return self._move(primal, dual, step, dS)

    def _lengths(self, step: Direction, dS: Floats, share: float) -> tuple[float, float]:
        """Largest primal and dual steps up to 1 that keep `share` of the way to the boundary."""
        primal = -min(float((step.values * self.system.over).min()), -1e-300)
        dual = -min(float((dS / self.duals).min()), -1e-300)
        return min(1.0, share / primal), min(1.0, share / dual)

    def _move(self, primal: float, dual: float, step: Direction, dS: Floats) -> bool:
        if not np.isfinite(primal + dual):
            return False
        step.values *= primal
        self.values += step.values
        self.t += primal * step.t
        dS *= dual
        self.duals += dS
        return True
