"""Dual cones: whether multipliers of conic rows are some, and the nearest above them that are.

A conic program in the form of Clarabel and SCS has rows ``b - A v in K`` with K a product of cones, in the order of
cvxpy: equations, inequalities, second-order cones, exponential cones, power cones. Any multipliers in the dual cone K*
prove a bound; a solver's are in it up to its tolerance.
"""

from __future__ import annotations

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


def provable(dims: Any) -> bool:
    """Whether cones of these dimensions, as cvxpy states them, are all of a kind known here."""
    return not (dims.psd or getattr(dims, "pnd", None))


def _blocks(dims: Any, z: Floats) -> tuple[Floats, Floats, list[Floats], Floats, list[Floats]]:
    """Views of multipliers (R,) by cone.

    Of equations; of inequalities; of each second-order cone ``|s_2..| <= s_1``; of all exponential cones
    ``s_2 exp(s_1 / s_2) <= s_3``; of each power cone ``s_1^a s_2^(1 - a) >= |s_3|``.
    """
    lengths = [dims.zero, dims.nonneg, *dims.soc, 3 * dims.exp, *(3 for _ in dims.p3d)]
    equations, inequalities, *rest, _ = np.split(z, np.cumsum(lengths))
    n = len(dims.soc)
    return equations, inequalities, rest[:n], rest[n], rest[n + 1 :]


def into_dual(dims: Any, multipliers: Floats) -> Floats:
    """(R,) multipliers in the dual cone, as close to those given as raising a few of them brings them there."""
    z = multipliers.copy()
    _, inequalities, second_order, exponential, power = _blocks(dims, z)
    np.maximum(inequalities, 0.0, out=inequalities)
    for one in second_order:
        one[0] = max(one[0], _norm(one[1:]) * _UP)
    exponential[:] = _into_dual_exponential(exponential.reshape(-1, 3)).ravel()
    for one, exponent in zip(power, dims.p3d, strict=True):
        one[:] = _into_dual_power(one, exponent)
    return z


def scaling(dims: Any, multipliers: Floats) -> Any:
    """(R, R) sparse, positive: directions in which multipliers can be moved by about as much as it says.

    Equations' freely, others' in proportion to their size; those of a second-order cone along the ray that they are on,
    so that one on the boundary stays there, and hardly across.
    """
    from scipy.sparse import block_diag, diags_array

    equations, inequalities, second_order, exponential, power = _blocks(dims, multipliers)
    largest = np.abs(multipliers).max(initial=0.0)
    plain = diags_array(np.concatenate([np.full_like(equations, largest), inequalities]) ** 2)
    rays = [z[:, None] * z + np.diag(_ACROSS * z**2) for z in second_order]
    blocks: list[Any] = [plain, *rays, diags_array(np.concatenate([exponential, *power]) ** 2)]
    return block_diag(blocks, format="csr")


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
