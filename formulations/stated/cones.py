"""Dual cones: whether multipliers of conic rows are some, and the nearest above them that are.

A conic program in the form of Clarabel and SCS has rows ``b - A v in K`` with K a product of cones, in the order of
cvxpy: equations, inequalities, second-order cones, exponential cones, power cones. Any multipliers in the dual cone K*
prove a bound; a solver's are in it up to its tolerance.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from throughputs.arrays import Floats
from throughputs.numerics import exp, log

_UP = 1.0 + 4.0 * float(np.finfo(np.float64).eps)
"""Factor that keeps a multiplier on the boundary of its cone on the inner side of rounding."""

_LEAST = 1e-250
"""What is smaller is 0."""

_LARGEST_EXPONENT = 200.0
"""Exponent from which what belongs to it is taken for infinite."""

_ACROSS = 1e-4
"""Part of its size by which a multiplier of a second-order cone may be moved across the ray that it is on, squared."""


@dataclass(frozen=True)
class Cones:
    """The product of cones of a program's rows.

    Attributes
    ----------
    equations, inequalities : numbers of rows.
    second_order : rows of each second-order cone ``|s_2..| <= s_1``.
    exponential : number of exponential cones ``s_2 exp(s_1 / s_2) <= s_3``.
    power : exponent a of each power cone ``s_1^a s_2^(1 - a) >= |s_3|``.
    """

    equations: int
    inequalities: int
    second_order: tuple[int, ...]
    exponential: int
    power: tuple[float, ...]

    @classmethod
    def of(cls, dims: Any) -> Cones | None:
        """From the dimensions that cvxpy states; None where there are cones of other kinds."""
        if dims.psd or getattr(dims, "pnd", None):
            return None
        return cls(dims.zero, dims.nonneg, tuple(dims.soc), dims.exp, tuple(dims.p3d))

    def into_dual(self, multipliers: Floats) -> Floats:
        """(R,) multipliers in the dual cone, as close to those given as raising a few of them brings them there."""
        z = multipliers.copy()
        at = self.equations
        z[at : at + self.inequalities] = np.maximum(z[at : at + self.inequalities], 0.0)
        at += self.inequalities
        for size in self.second_order:
            z[at] = max(z[at], _norm(z[at + 1 : at + size]) * _UP)
            at += size
        three = z[at : at + 3 * self.exponential].reshape(-1, 3)
        three[:] = _into_dual_exponential(three)
        at += 3 * self.exponential
        for exponent in self.power:
            z[at : at + 3] = _into_dual_power(z[at : at + 3], exponent)
            at += 3
        return z

    def scaling(self, multipliers: Floats) -> Any:
        """(R, R) sparse, positive: directions in which multipliers can be moved by about as much as it says.

        Equations' freely, others' in proportion to their size; those of a second-order cone along its own scaling
        (Nesterov and Todd), so that one on the boundary moves along its ray, and hardly across.
        """
        from scipy.sparse import block_diag, diags_array

        size = np.abs(multipliers)
        size[: self.equations] = size.max(initial=0.0)
        blocks, at = [], self.equations + self.inequalities
        plain = size**2
        for rows in self.second_order:
            z = multipliers[at : at + rows]
            reflected = np.diag(np.where(np.arange(rows) == 0, 1.0, -1.0))
            determinant = max(float(z[0] ** 2 - np.add.reduce(z[1:] ** 2)), 0.0)
            blocks.append(
                2.0 * z[:, None] * z[None, :] - determinant * reflected + np.diag(_ACROSS * plain[at : at + rows])
            )
            at += rows
        before, after = diags_array(plain[: self.equations + self.inequalities]), diags_array(plain[at:])
        return block_diag([before, *blocks, after], format="csr")


def _norm(values: Floats) -> float:
    """Euclidean, also where squares would vanish."""
    largest = float(np.abs(values).max(initial=0.0))
    return largest * float(np.sqrt(np.add.reduce((values / largest) ** 2))) if largest > 0 else 0.0


def _into_dual_exponential(z: Floats) -> Floats:
    """(K, 3) within ``u < 0, -u exp(v / u) <= e w``, the third raised; rows with u >= 0 are taken for u = 0.

    Infinite where it would have to be raised beyond all reason.
    """
    u, v, w = np.where(z[:, 0] < -_LEAST, z[:, 0], 0.0), z[:, 1], np.maximum(z[:, 2], 0.0)
    inner = u < 0
    v = np.where(inner, v, np.maximum(v, 0.0))
    ratio = np.divide(v, u, out=np.zeros_like(v), where=inner)
    least = np.where(inner, -u * exp(np.minimum(ratio - 1.0, _LARGEST_EXPONENT)), 0.0)
    least[ratio - 1.0 > _LARGEST_EXPONENT] = np.inf
    return np.column_stack([u, v, np.maximum(w, least * _UP)])


def _into_dual_power(z: Floats, exponent: float) -> Floats:
    """(3,) within ``(u / a)^a (v / (1 - a))^(1 - a) >= |w|``, the first two raised."""
    u, v, w = max(float(z[0]), 0.0), max(float(z[1]), 0.0), float(z[2])
    if abs(w) < _LEAST:
        return np.array([u, v, 0.0])
    least = 1e-16 * abs(w)
    u, v = max(u, least), max(v, least)
    mean = exponent * log(np.array(u / exponent)) + (1.0 - exponent) * log(np.array(v / (1.0 - exponent)))
    short = abs(w) / float(exp(mean))
    factor = max(short * _UP, 1.0)
    return np.array([u * factor, v * factor, w])
