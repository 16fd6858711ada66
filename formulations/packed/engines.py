"""Ways to solve a packed program; each returns an unproven point, and goes on from one goal to the next."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from difflib import get_close_matches

from formulations.packed.methods.class_pairs import ColumnGeneration
from formulations.packed.methods.sparse_form import Explicit
from formulations.packed.program import Goal, PackedPoint, PackedProgram
from throughputs import InputError

__all__ = ["ENGINES", "Engine", "Solve", "engines_of"]

Solve = Callable[[Goal], PackedPoint]
"""Solves for a goal; RuntimeError when it cannot."""


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
        Engine("highs", Explicit, "times beside groups, written out, in HiGHS"),
    )
}
"""Engines by name, in the order in which they are tried."""


def engines_of(solver: str) -> list[Engine]:
    """The engines that `solver` stands for: all in order for "auto"; InputError with a suggestion for none."""
    if solver == "auto":
        return list(ENGINES.values())
    if solver not in ENGINES:
        close = get_close_matches(solver, ENGINES, n=1)
        hint = f" (did you mean {close[0]!r}?)" if close else ""
        raise InputError("solver", found=solver, expected=f"'auto' or one of {', '.join(ENGINES)}{hint}")
    return [ENGINES[solver]]
