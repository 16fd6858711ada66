"""The loss of a throughput model against measured steps, its derivatives, and its minimum.

    loss = rms(log T_grad - log measured gradient time) + rms(log T_step - log measured step time)
           + 0.001 (gamma - 1)^2 + 0.01 ((beta_node / alpha_node)^2 + (beta_local / alpha_local)^2)

over lower <= parameters <= upper. The model depends on the GPUs, on whether they are on one node, and on the batch
size; so samples are first averaged by these, which leaves the loss as it is but for constants under the two roots.

The minimum is found by the method of Gauss and Newton, projected on the bounds, with Levenberg's and Marquardt's
damping. Many problems of one size are solved at once, each as if it were alone, and with the same digits on every
processor, which SciPy's `least_squares` does not promise; nor is the sum of two roots one of squares (reweighted until
it stands still, it takes several times as long and ends up to 5e-8 above).

Source of the loss: A. Qiao et al., "Pollux", OSDI 2021, section 4.1, and its public artifact.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from throughputs.arrays import Flags, Floats, Positions
from throughputs.goodput.model import LARGEST_GAMMA, NO_TIME
from throughputs.goodput.samples import Samples
from throughputs.numerics import einsum, exp, log
from throughputs.numerics.systems import solve_definite

LEAST = 1e-8
"""Lower bound of parameters that are times, seconds."""
_LEAST = np.array([LEAST] * 6 + [1.0])
_MOST = np.array([np.inf] * 6 + [LARGEST_GAMMA])

_OVERLAPS = (1.001, 1.5, 2.0, 3.0)
"""Values of gamma with which the data say what the other parameters are about."""
_LEAST_SYNC = 1e-3
"""Of the time of a step to the power of gamma, where a starting point is made."""
_WEIGHT_OF_OVERLAP, _WEIGHT_OF_SLOPE = 1e-3, 1e-2
"""Weights of the published penalties: on the overlap exponent, and on slopes relative to their constants."""
_PENALISED = (2, 3), (4, 5)
"""Constant and slope of synchronisation, on several nodes and on one."""

_ENOUGH = 1e-13
"""Of the loss: a step that gains less is the last."""
_ITERATIONS = 200
"""Gauss-Newton steps after which a fit ends."""
_DAMPING = (1e-3, 1e-9, 1e8)
"""First, least and largest, relative to the diagonal."""
_VANISHED = 1e-24
"""Added to squares of errors, so that the root has derivatives where samples are met exactly."""


class Cells(NamedTuple):
    """P problems with C cells each: averages of samples that the model does not tell apart.

    Attributes
    ----------
    basis : (P, 6, C) by which the first two parameters make the time of gradients and the next four that of
        synchronisation.
    unsynchronised : (P, C) `NO_TIME` for a single GPU, 0 elsewhere.
    weight : (P, C) share of the samples in each cell.
    log_gradient, log_step : (P, C) mean logarithms of the measured times.
    rest_gradient, rest_step : (P,) variance of the logarithms inside cells.
    lower, upper : (P, 7) bounds of the parameters, equal for those that are held.
    """

    basis: Floats
    unsynchronised: Floats
    weight: Floats
    log_gradient: Floats
    log_step: Floats
    rest_gradient: Floats
    rest_step: Floats
    lower: Floats
    upper: Floats

    @classmethod
    def of(cls, samples: Samples) -> Cells:
        """One problem, with the published rules for parameters that samples say nothing about.

        With one batch size half of the time for gradients counts as constant. Without samples of several nodes, of
        several GPUs on a node, or of more than two GPUs, what only those could tell is held at its least value.
        """
        one_node = samples.nodes == 1
        regime = np.where(samples.gpus == 1, 0, np.where(one_node, 1, 2))
        keys = np.stack([regime, samples.gpus, samples.batch_size], axis=1)
        unique, cell = _distinct(keys)
        count = np.bincount(cell).astype(float)
        logs = log(np.stack([samples.gradient_time, samples.step_time]))
        mean = np.stack([np.bincount(cell, row) / count for row in logs])
        rest = np.add.reduce((logs - mean[:, cell]) ** 2, axis=1) / len(samples)
        kind, gpus, size = unique.T
        more = np.maximum(gpus - 2.0, NO_TIME)
        on = [(kind == regime).astype(float) for regime in (2, 1)]
        basis = np.stack([np.ones(len(size)), size, on[0], on[0] * more, on[1], on[1] * more])
        lower, upper = _LEAST.copy(), _MOST.copy()
        if len(np.unique(samples.batch_size)) == 1:
            lower[0] = upper[0] = float(np.add.reduce(samples.gradient_time)) / len(samples) / 2.0
        for told, held in ((kind == 2, [2, 3]), (kind == 1, [4, 5]), (gpus > 2, [3, 5])):
            if not told.any():
                upper[held] = LEAST
        none = np.where(kind == 0, NO_TIME, 0.0)
        arrays = (basis, none, count / len(samples), mean[0], mean[1], rest[0], rest[1], lower, upper)
        return cls(*(np.asarray(array)[None] for array in arrays))

    @classmethod
    def together(cls, problems: Iterable[Cells]) -> Cells:
        """Several problems of as many cells as one."""
        return cls(*map(np.concatenate, zip(*problems, strict=True)))

    def take(self, rows: Positions | Flags) -> Cells:
        """Some of the problems."""
        return Cells(*(array[rows] for array in self))


class Point(NamedTuple):
    """P losses and their derivatives by the seven parameters; `gauss` the second ones without curvature of errors."""

    loss: Floats
    gradient: Floats
    gauss: Floats

    def replaced(self, better: Flags, other: Point) -> Point:
        """That of `other` where it is better."""
        if better.all():
            return other
        pairs = zip(self, other, strict=True)
        return Point(*(np.where(better.reshape(-1, *(1,) * (a.ndim - 1)), b, a) for a, b in pairs))

    def take(self, rows: Flags) -> Point:
        """Some of them."""
        return Point(*(array[rows] for array in self))


class Loss:
    """The loss of P problems as a function of the parameters (P, 7)."""

    def __init__(self, cells: Cells) -> None:
        self.cells = cells

    def __call__(self, theta: Floats) -> Floats:
        """(P,) losses."""
        return self._value(theta, *self._errors(theta)[2:4])[0]

    def _errors(self, theta: Floats) -> tuple[Floats, ...]:
        """Times, errors of their logarithms, and what the derivatives of the overlap follow from."""
        cells = self.cells
        gradient = einsum("pi,pic->pc", theta[:, :2], cells.basis[:, :2])
        sync = cells.unsynchronised + einsum("pi,pic->pc", theta[:, 2:6], cells.basis[:, 2:])
        gamma = theta[:, 6, None]
        u, v = log(np.stack([gradient, sync]))
        ratio = exp(-gamma * np.abs(u - v))
        more = 1.0 / (1.0 + ratio)
        # shares of the two in their sum of powers
        p, q = np.where(u > v, (more, 1.0 - more), (1.0 - more, more))
        step = np.maximum(u, v) - log(more) / gamma
        return gradient, sync, u - cells.log_gradient, step - cells.log_step, u, v, p, q, step

    def _value(self, theta: Floats, error_gradient: Floats, error_step: Floats) -> tuple[Floats, Floats, Floats]:
        cells = self.cells
        first, second = (
            np.sqrt(np.add.reduce(cells.weight * error * error, axis=1) + (rest + _VANISHED))
            for error, rest in ((error_gradient, cells.rest_gradient), (error_step, cells.rest_step))
        )
        slopes = (theta[:, 3] / theta[:, 2]) ** 2 + (theta[:, 5] / theta[:, 4]) ** 2
        penalty = _WEIGHT_OF_OVERLAP * (theta[:, 6] - 1.0) ** 2 + _WEIGHT_OF_SLOPE * slopes
        return first + second + penalty, first, second

    def slope(self, theta: Floats) -> tuple[Floats, Floats]:
        """(P,) losses, and (P, 7) their first derivatives."""
        loss, gradient, *_ = self._derivatives(theta)
        return loss, gradient

    def at(self, theta: Floats) -> Point:
        """Loss and derivatives; of the second ones the products of first ones, as Gauss and Newton have them."""
        loss, gradient, scaled, w1, w2, p, q, h_gamma = self._derivatives(theta)
        by_step = np.concatenate([scaled[:, :2] * p[:, None], scaled[:, 2:] * q[:, None], h_gamma[:, None]], axis=1)
        gauss = einsum("pic,pc,pjc->pij", by_step, w2, by_step)
        gauss[:, :2, :2] += einsum("pic,pc,pjc->pij", scaled[:, :2], w1, scaled[:, :2])
        gauss[:, 6, 6] += 2.0 * _WEIGHT_OF_OVERLAP
        for alpha, beta in _PENALISED:
            over = 1.0 / theta[:, alpha]
            ratio, weight = theta[:, beta] * over, 2.0 * _WEIGHT_OF_SLOPE * over
            gauss[:, beta, beta] += weight * over
            gauss[:, alpha, alpha] += weight * over * ratio * ratio
            for i, j in ((alpha, beta), (beta, alpha)):
                gauss[:, i, j] -= weight * over * ratio
        return Point(loss, gradient, gauss)

    def _derivatives(self, theta: Floats) -> tuple[Floats, ...]:
        """Loss and first derivatives, and what the second ones follow from.

        With u = log T_grad, v = log T_sync and h = log T_step = log(e^(gamma u) + e^(gamma v)) / gamma,

            h_u = p,  h_v = q = 1 - p,  h_gamma = (p u + q v - h) / gamma.
        """
        gradient, sync, e1, e2, u, v, p, q, h = self._errors(theta)
        loss, *roots = self._value(theta, e1, e2)
        h_gamma = (p * u + q * v - h) / theta[:, 6, None]
        scaled = self.cells.basis / np.repeat(np.stack([gradient, sync], axis=1), (2, 4), axis=1)
        w1, w2 = (self.cells.weight / root[:, None] for root in roots)
        total = np.zeros(theta.shape)
        total[:, :2] = einsum("pic,pc->pi", scaled[:, :2], w1 * e1)
        total[:, :2] += einsum("pic,pc->pi", scaled[:, :2], w2 * e2 * p)
        total[:, 2:6] = einsum("pic,pc->pi", scaled[:, 2:], w2 * e2 * q)
        total[:, 6] = np.add.reduce(w2 * e2 * h_gamma, axis=1)
        total[:, 6] += 2.0 * _WEIGHT_OF_OVERLAP * (theta[:, 6] - 1.0)
        for alpha, beta in _PENALISED:
            over = 1.0 / theta[:, alpha]
            ratio = theta[:, beta] * over
            total[:, beta] += 2.0 * _WEIGHT_OF_SLOPE * over * ratio
            total[:, alpha] -= 2.0 * _WEIGHT_OF_SLOPE * over * ratio * ratio
        return loss, total, scaled, w1, w2, p, q, h_gamma


def minimised(cells: Cells, start: Floats) -> tuple[Floats, Floats]:
    """(P, 7) parameters at which the losses are least, found from the starting points (P, 7), and the losses (P,)."""
    theta, best = start.copy(), np.empty(len(start))
    problem = np.arange(len(start))
    x, loss = start, Loss(cells)
    point = loss.at(x)
    damping = np.full(len(x), _DAMPING[0])
    for _ in range(_ITERATIONS):
        trial = x + _step(point, x, loss.cells, damping)
        trial = np.minimum(np.maximum(trial, loss.cells.lower), loss.cells.upper)
        found = loss.at(trial)
        better = found.loss < point.loss
        gain = point.loss - found.loss
        moved = (np.abs(trial - x) > 1e-12 * x).any(axis=1)
        over = (better & (gain < _ENOUGH)) | ~moved | (damping > _DAMPING[2])
        x, point = np.where(better[:, None], trial, x), point.replaced(better, found)
        damping = np.where(better, np.maximum(damping * 0.1, _DAMPING[1]), np.maximum(damping * 10.0, 1e-6))
        if over.any():
            theta[problem[over]], best[problem[over]] = x[over], point.loss[over]
            if over.all():
                return theta, best
            rest = ~over
            problem, x, damping, point = problem[rest], x[rest], damping[rest], point.take(rest)
            loss = Loss(loss.cells.take(rest))
    theta[problem], best[problem] = x, point.loss
    return theta, best


def _step(point: Point, x: Floats, cells: Cells, damping: Floats) -> Floats:
    """(P, 7) damped steps that stay within the bounds.

    Parameters that a step would take across a bound go to the bound, and the others are solved for again: cutting the
    step instead would leave them where only the whole step is good.
    """
    g = point.gradient
    held = ((x <= cells.lower) & (g >= 0)) | ((x >= cells.upper) & (g <= 0)) | (cells.lower == cells.upper)
    free, to_bounds = ~held, np.zeros(x.shape)
    matrix = point.gauss + np.eye(x.shape[1]) * (damping[:, None] * np.einsum("pii->pi", point.gauss))[:, :, None]
    step = _solved(matrix, -g, free)
    step[~np.isfinite(step)] = 0.0
    for _ in range(x.shape[1]):
        end = x + step
        reached = np.minimum(np.maximum(end, cells.lower), cells.upper)
        crossing = free & (reached != end)
        if not crossing.any():
            break
        to_bounds[crossing] = (reached - x)[crossing]
        free &= ~crossing
        step = _solved(matrix, -g - einsum("pij,pj->pi", matrix, to_bounds), free) + to_bounds
    return step


def _solved(matrix: Floats, rhs: Floats, free: Flags) -> Floats:
    """(P, 7) solutions in the free parameters, 0 for the others; nan where the matrix is not positive definite."""
    with np.errstate(all="ignore"):
        among = free[:, :, None] & free[:, None, :]
        system = np.where(among, matrix, np.eye(free.shape[1]))
        return np.asarray(solve_definite(system, np.where(free, rhs, 0.0)))


def starting_points(cells: Cells) -> Floats:
    """(P, 7) parameters from the data alone: lines through the times, at the overlap that suits them best."""
    P = len(cells.weight)
    tried = cells.take(np.tile(np.arange(P), len(_OVERLAPS)))
    candidates = _lines(tried, np.repeat(_OVERLAPS, P)[:, None])
    best = np.argmin(Loss(tried)(candidates).reshape(len(_OVERLAPS), P), axis=0)
    return np.asarray(candidates[best * P + np.arange(P)])


def _lines(cells: Cells, gamma: Floats) -> Floats:
    """(P, 7) parameters of which lines of least relative squares say what gradients and synchronisation take."""
    longer = np.maximum(cells.log_step - cells.log_gradient, 0.0)
    gradient, step, apart = exp(np.stack([cells.log_gradient, cells.log_step, -gamma * longer]))
    # a step that seems to take no longer than its gradients still synchronises
    sync = step * exp(log(np.maximum(1.0 - apart, _LEAST_SYNC)) / gamma)
    theta = np.empty(cells.lower.shape)
    theta[:, 0], theta[:, 1] = _line(cells.basis[:, 1], gradient, cells.weight)
    for alpha in (2, 4):
        constant, slope = _line(cells.basis[:, alpha + 1], sync, cells.weight * cells.basis[:, alpha])
        theta[:, alpha], theta[:, alpha + 1] = constant, np.minimum(slope, 2.0 * constant)
    theta[:, 6] = gamma[:, 0]
    return np.minimum(np.maximum(theta, cells.lower), cells.upper)


def _line(x: Floats, y: Floats, weight: Floats) -> tuple[Floats, Floats]:
    """(P,) constants and slopes, none below `LEAST`, of lines with the least squares of errors relative to y."""
    weight = weight / (y * y)
    s, sx, sy, sxx, sxy = (np.add.reduce(weight * z, axis=1) for z in (np.ones_like(x), x, y, x * x, x * y))
    known = s > 0
    s = np.where(known, s, 1.0)
    spread = s * sxx - sx * sx
    several = spread > 1e-12 * s * sxx
    slope = np.where(several, (s * sxy - sx * sy) / np.where(several, spread, 1.0), 0.0)
    flat = slope <= LEAST
    slope = np.where(flat, LEAST, slope)
    constant = np.where(flat, sy / s, (sy - slope * sx) / s)
    steep = known & (constant <= LEAST)
    slope = np.where(steep & ~flat, sxy / np.where(sxx > 0, sxx, 1.0), slope)
    return np.where(constant <= LEAST, LEAST, constant), slope


def _distinct(keys: Floats) -> tuple[Floats, Positions]:
    """Distinct rows in lexicographic order, and which of them each row is."""
    order = np.lexsort(keys.T[::-1])
    ordered = keys[order]
    new = np.ones(len(keys), dtype=bool)
    new[1:] = (ordered[1:] != ordered[:-1]).any(axis=1)
    cell = np.empty(len(keys), dtype=np.intp)
    cell[order] = np.cumsum(new) - 1
    return ordered[new], cell
