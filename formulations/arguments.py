"""Arguments of public functions: one that cannot be used is named in one line, with what was expected."""

from __future__ import annotations

from typing import Any

import numpy as np

from throughputs import InputError
from throughputs.arrays import Floats


def figures(
    source: str, field: str, values: Any, shape: tuple[int | None, ...], numbers: str = "numbers above 0"
) -> Floats:
    """`values` as an array of finite numbers.

    Parameters
    ----------
    shape : that it must have; None for any length.
    numbers : "numbers above 0", "numbers of at least 0", or "numbers" of any sign.

    Raises
    ------
    InputError
        Names the field, with the position of the first figure that is wrong, what was found and what was expected.
    """
    lengths = ", ".join("N" if n is None else str(n) for n in shape)
    expected = f"finite {numbers}, shape ({lengths}{',' if len(shape) == 1 else ''})"
    try:
        if values is None or np.iscomplexobj(values):
            raise TypeError
        array = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError(source, field=field, found=values, expected=expected) from None
    if array.ndim != len(shape) or any(n not in (None, have) for n, have in zip(shape, array.shape, strict=True)):
        raise InputError(source, field=field, found=Described(f"shape {array.shape}"), expected=expected)
    wrong = ~np.isfinite(array)
    if numbers != "numbers":
        wrong |= array <= 0 if numbers == "numbers above 0" else array < 0
    if wrong.any():
        at = f"[{', '.join(map(str, np.argwhere(wrong)[0]))}]" if array.ndim else ""
        raise InputError(source, field=field + at, found=array[wrong].item(0), expected=expected)
    return array


class Described(str):
    """What was found, in words rather than quoted."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def instance(source: str, field: str, value: Any, kind: type, how: str = "") -> None:
    """InputError unless `value` is of a `kind`, which is made as `how` says."""
    if not isinstance(value, kind):
        expected = f"{_article(kind.__name__)}{f', as in {how}' if how else ''}"
        raise InputError(source, field=field, found=described(value), expected=expected)


def tolerance_of(source: str, tolerance: Any) -> None:
    """InputError unless a `tolerance` is a finite number of at least 0."""
    figures(source, "tolerance", tolerance, (), "numbers of at least 0")


def _article(name: str) -> str:
    return f"{'an' if name[0] in 'AEIOU' else 'a'} {name}"


def described(value: Any) -> Any:
    """What an error says that it found: short values as they are, of others the kind and shape."""
    if isinstance(value, type):
        return Described(f"the class {value.__name__}")
    if value is None or isinstance(value, str | int | float):
        return value
    shape = getattr(value, "shape", None)
    return Described(f"{_article(type(value).__name__)}{f' of shape {shape}' if isinstance(shape, tuple) else ''}")
