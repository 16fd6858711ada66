"""How functions of this package are compiled. Importing it imports numba."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any, TypeVar

from formulations.fast.cache import folder

__all__ = ["compiled", "entry"]

Function = TypeVar("Function", bound=Callable[..., Any])

_numba: Any = import_module("numba")

_RULES: dict[str, Any] = {"nogil": True, "error_model": "numpy"}
"""Divisions by zero give infinities and NaN, as in NumPy."""


def compiled(function: Function) -> Function:
    """Compile as a part of the functions that call it.

    Sums may be taken in another order, which lets loops run on vectors. Products are not fused into them: where two of
    them cancel, near the optimum, both must be rounded alike.
    """
    return _numba.njit(fastmath={"reassoc"}, **_RULES)(function)  # type: ignore[no-any-return]


def entry(signature: str) -> Callable[[Function], Function]:
    """Compile a function that is called from Python, for one signature, when its module is imported.

    Arithmetic in the entry itself is strict. The code is kept on disk, in a folder of ours: numba alone would not
    notice a change of a function that the entry calls from another file.
    """

    def decorate(function: Function) -> Function:
        before = _numba.config.CACHE_DIR
        _numba.config.CACHE_DIR = str(folder())
        try:
            return _numba.njit(signature, cache=True, **_RULES)(function)  # type: ignore[no-any-return]
        finally:
            _numba.config.CACHE_DIR = before

    return decorate
