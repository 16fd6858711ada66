"""Compiled twins of the innermost loops, for those who install numba: the same answers, sooner.

With tens or hundreds of classes of jobs an iteration in NumPy is bound by the number of its calls, not by its
arithmetic; compiled, it is five to thirty times as fast. NumPy is the default, and what the compiled code is tested
against: responses to prices agree to the last bit, the interior point but for the order of its sums.

The rule. numba compiles for half a minute, once; a process that loads what was compiled needs half a second. So
nothing is ever compiled unasked::

    pip install cluster-allocator[fast]
    python -m formulations.fast            # compiles, and notes what for

From then on every process uses the compiled loops, from its first program to its last: answers differ in their last
digits, and those of a process must not depend on when it came to switch. After a change of the code, of Python, of
numba or of the processor the note no longer holds and NumPy is used, until the command is run again. The environment
variable ``ALLOCATOR_FAST`` overrides: 0 for never, 1 for always, to be compiled where it must be.

>>> from formulations import fast
>>> fast.in_use(False)
False
"""

from __future__ import annotations

import os
from functools import cache as _once
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from formulations.fast import cache
from throughputs import InputError

__all__ = ["available", "in_use", "prepare"]

_SWITCH = "ALLOCATOR_FAST"
_COMPILED = ("newton", "mixes")
"""Modules that compile a function when they are imported."""


def available() -> bool:
    """Whether numba is installed and not disabled; does not import it."""
    return find_spec("numba") is not None and os.environ.get("NUMBA_DISABLE_JIT", "") in ("", "0")


def in_use(wanted: bool | None = None) -> bool:
    """Whether to call the compiled loops; `wanted` decides where it is given.

    Raises
    ------
    InputError
        ``ALLOCATOR_FAST`` is neither 0 nor 1, or it is 1 and numba is not there.
    """
    return _decided() if wanted is None else wanted


def prepare() -> Path:
    """Compile the loops for this machine, or load them, and use them from now on, in later processes too.

    Returns the file that notes it.

    Raises
    ------
    InputError
        numba is not there, or no folder can be written to.
    """
    _require_numba("prepare")
    for module in _COMPILED:
        import_module(f"{__name__}.{module}")
    try:
        note = cache.note()
    except OSError as error:
        raise InputError("prepare", expected="a folder to write to", found=str(error)) from error
    _decided.cache_clear()
    return note


@_once
def _decided() -> bool:
    """What this process does, decided once."""
    switch = os.environ.get(_SWITCH, "")
    if switch not in ("", "0", "1"):
        raise InputError(f"the environment variable {_SWITCH}", expected="0 or 1", found=switch)
    if switch == "1":
        _require_numba(f"the environment variable {_SWITCH}")
    return switch == "1" or (switch == "" and available() and cache.noted())


def _require_numba(source: str) -> None:
    if not available():
        expected = "it to be installed and not disabled: pip install cluster-allocator[fast]"
        raise InputError(source, field="numba", expected=expected, found="no compiler")
