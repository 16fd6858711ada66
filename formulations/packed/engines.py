"""Ways to solve a packed program; each returns an unproven point, and goes on from one goal to the next."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from difflib import get_close_matches
from functools import partial

from formulations.packed.methods.class_pairs import ColumnGeneration
from formulations.packed.methods.partners import Partners
from formulations.packed.methods.sparse_form import Explicit, clarabel, highs
from formulations.packed.program import Goal, PackedPoint, PackedProgram
from throughputs import InputError

__all__ = ["ENGINES", "Engine", "Solve", "auto", "get_engine"]

Solve = Callable[[Goal, float], PackedPoint]
"""Solves for a goal to a relative gap; RuntimeError when it cannot."""


@dataclass(frozen=True)
class Engine:
    """One way: its name, how to start it on a program, and what it is."""

    name: str
    start: Callable[[PackedProgram], Solve]
    description: str


ENGINES = {
    engine.name: engine
    for engine in (
        Engine("class_pairs", ColumnGeneration, "pairs of job classes, generated as they pay, in HiGHS"),
        Engine("partners", Partners, "times beside groups, interior point on prices of types and of partners"),
        Engine("highs", partial(Explicit, run=highs), "times beside groups, written out, in HiGHS"),
        Engine("clarabel", partial(Explicit, run=clarabel), "times beside groups, written out, in Clarabel"),
    )
}

_MOST_CLASSES_FOR_PAIRS = 800
"""Classes above which times beside groups are faster than a simplex method with two rows per class."""


def auto(n_classes: int) -> list[Engine]:
    """The engines that ``solver="auto"`` tries, in order, until one is proven to be within tolerance."""
    first = ("class_pairs", "partners") if n_classes <= _MOST_CLASSES_FOR_PAIRS else ("partners", "class_pairs")
    return [ENGINES[name] for name in (*first, "highs", "clarabel")]


def get_engine(name: str) -> Engine:
    """Engine by name; InputError with a suggestion otherwise."""
    if name not in ENGINES:
        close = get_close_matches(name, ENGINES, n=1)
        hint = f" (did you mean {close[0]!r}?)" if close else ""
        raise InputError("solver", found=name, expected=f"'auto' or one of {', '.join(ENGINES)}{hint}")
    return ENGINES[name]
