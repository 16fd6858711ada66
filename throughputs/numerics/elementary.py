"""Exponential, logarithm and powers from operations that IEEE 754 defines to the last bit.

Both reduce the argument by powers of two, which is exact, and sum a Taylor series in one order. Errors are below one
unit in the last place; the limits (0, infinity, negative numbers, nan) are those of NumPy.
"""

from __future__ import annotations

from collections.abc import Callable
from math import factorial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from throughputs.arrays import Floats

_LN2_HIGH = float.fromhex("0x1.62e42feep-1")
"""ln 2 to 32 bits, so that its product with an exponent is exact."""
_LN2_LOW = float.fromhex("0x1.a39ef35793c76p-33")
"""The rest of ln 2."""
_ROOT_HALF = 0.7071067811865476
"""Mantissas below it are doubled, so that logarithms are taken near 1."""
_LN10_HIGH, _LN10_LOW = 2.302585092994046, -2.1707562233822494e-16
"""ln 10 as a sum of two."""
_SPLITTER = 2.0**27 + 1.0
"""Dekker's: its product splits a number into two halves of 26 bits."""
_BEYOND = 800.0
"""An argument whose exponential is beyond all numbers, or with the other sign below all."""

_EXP_SERIES = tuple(1.0 / factorial(n) for n in range(13, 1, -1))
"""Coefficients of (e^r - 1 - r) / r^2, the highest power first; |r| <= ln(2)/2 leaves less than 1e-17 of e^r."""
_LOG_SERIES = tuple(2.0 / n for n in range(23, 1, -2))
"""Coefficients of (2 artanh(s) - 2 s) / s^3 in s^2, the highest power first; |s| <= 0.172 leaves less than 1e-18."""

_CHUNK = 8192
"""Entries worked on at a time, for the sake of the caches."""


def exp(x: ArrayLike) -> Floats:
    """e to the power of each entry."""
    return _in_chunks(_exp, np.asarray(x, dtype=float))


def log(x: ArrayLike) -> Floats:
    """Natural logarithm of each entry; -inf of 0 and nan of what is negative."""
    return _in_chunks(_log, np.asarray(x, dtype=float))


def log2(x: ArrayLike) -> Floats:
    """Binary logarithm of positive numbers, exact for powers of two."""
    given: Floats = np.asarray(x, dtype=float)
    mantissa, exponent = np.frexp(given)
    powers = mantissa == 0.5
    if powers.all():
        return np.asarray(exponent - 1.0)
    return np.where(powers, exponent - 1.0, exponent + log(mantissa) / (_LN2_HIGH + _LN2_LOW))


def power_of_ten(exponent: ArrayLike) -> Floats:
    """Ten to the power of each entry."""
    y = np.asarray(exponent, dtype=float)
    # the product in two parts: what rounding took of it would be an error of as much relative to the power
    whole, rest = _product_in_two(y, _LN10_HIGH)
    raised = exp(whole)
    with np.errstate(all="ignore"):
        return np.asarray(np.where((raised > 0) & (raised < np.inf), raised + raised * (rest + y * _LN10_LOW), raised))


def _in_chunks(function: Callable[[Floats], Floats], x: Floats) -> Floats:
    with np.errstate(all="ignore"):
        if x.size <= _CHUNK:
            return function(x)
        flat, out = x.reshape(-1), np.empty(x.size)
        for start in range(0, x.size, _CHUNK):
            part = slice(start, start + _CHUNK)
            out[part] = function(flat[part])
        return out.reshape(x.shape)


def _exp(x: Floats) -> Floats:
    x = np.minimum(np.maximum(x, -_BEYOND), _BEYOND)
    exponent = np.rint(x * (1.0 / (_LN2_HIGH + _LN2_LOW)))
    high, low = x - exponent * _LN2_HIGH, exponent * _LN2_LOW
    r = high - low
    # what the subtraction has rounded away
    lost = (high - r) - low
    series = r * _EXP_SERIES[0] + _EXP_SERIES[1]
    for coefficient in _EXP_SERIES[2:]:
        series *= r
        series += coefficient
    series *= r * r
    series += lost
    series += r
    series += 1.0
    # not a number stays one, whatever its exponent is taken for
    return np.asarray(np.ldexp(series, np.where(exponent == exponent, exponent, 0.0).astype(np.int32)))


def _log(x: Floats) -> Floats:
    mantissa, exponent = np.frexp(x)
    below = mantissa < _ROOT_HALF
    f = np.where(below, 2.0 * mantissa, mantissa) - 1.0
    twos = exponent - below.astype(float)
    s = f / (2.0 + f)
    square = s * s
    series = square * _LOG_SERIES[0] + _LOG_SERIES[1]
    for coefficient in _LOG_SERIES[2:]:
        series *= square
        series += coefficient
    series *= square
    # ln(1 + f) = 2 artanh(s), and 2 s = f - s f = f - f^2 / 2 + s f^2 / 2
    half = 0.5 * f * f
    low = twos * _LN2_LOW + s * (half + series)
    whole = twos * _LN2_HIGH
    high = whole + f
    # the sum of the large parts exactly: |whole| > |f|, or it is 0
    low += np.where(twos == 0.0, 0.0, f - (high - whole))
    value = high + (low - half)
    return np.asarray(np.where(x > 0, np.where(x == np.inf, np.inf, value), np.where(x == 0, -np.inf, np.nan)))


def _product_in_two(a: Floats, b: float) -> tuple[Floats, Floats]:
    """A product and what rounding took of it."""
    with np.errstate(all="ignore"):
        whole = a * b
        a_high, b_high = _upper_half(a), _upper_half(b)
        a_low, b_low = a - a_high, b - b_high
        return whole, ((a_high * b_high - whole) + a_high * b_low + a_low * b_high) + a_low * b_low


def _upper_half(a: Floats | float) -> Any:
    """The upper 26 bits of each number, rounded."""
    scaled = a * _SPLITTER
    return scaled - (scaled - a)


def power(base: ArrayLike, exponent: float) -> Floats:
    """Each entry of `base`, above 0, to the power of `exponent`; roots and quotients where these do."""
    x = np.asarray(base, dtype=float)
    size = abs(exponent)
    if size in (0.5, 1.0, 2.0):
        raised = np.sqrt(x) if size == 0.5 else x if size == 1.0 else x * x
        return np.asarray(1.0 / raised if exponent < 0 else raised, dtype=float)
    return exp(exponent * log(x))
