"""Ways to solve a packed program; each returns an unproven point, and goes on from one goal to the next."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeVar

from formulations.core.in_turn import Judged, Turn, solve_in_turn
from formulations.core.solution import Attempt
from formulations.packed.class_pairs import ClassPairs
from formulations.packed.program import Goal, PackedPoint, PackedProgram
from formulations.packed.sparse_form import Explicit
from throughputs import InputError
from throughputs.errors import one_of

T = TypeVar("T")

Solve = Callable[[Goal], PackedPoint]
"""Solves for a goal; RuntimeError when it cannot."""


ENGINES: dict[str, Callable[[PackedProgram], Solve]] = {"class_pairs": ClassPairs, "highs": Explicit}
"""Engines by name, in the order in which they are tried: how each is started on a program."""


class Engines:
    """The engines that are asked about one program, and every attempt.

    Parameters
    ----------
    solver : "auto" for all engines in order, or the name of one.
    enough : gap within which an answer is proven well enough.

    Raises
    ------
    InputError
        The solver is not known.
    """

    def __init__(self, solver: str, program: PackedProgram, enough: float) -> None:
        if not isinstance(solver, str) or solver not in ("auto", *ENGINES):
            raise InputError("solver", found=solver, expected=one_of(solver, ("auto", *ENGINES)))
        self.names = list(ENGINES) if solver == "auto" else [solver]
        self.program, self.enough = program, enough
        self.attempts: list[Attempt] = []
        self._running: dict[str, Solve] = {}

    def running(self, name: str) -> Solve:
        """The engine where it is, or at its start."""
        if name not in self._running:
            self._running[name] = ENGINES[name](self.program)
        return self._running[name]

    def ask(self, answer: Callable[[Solve], Judged[T]]) -> tuple[T, str]:
        """The first answer that is proven well enough, else that of the smallest gap, and whose it is.

        Raises
        ------
        SolverError
            No engine returned an answer.
        """
        turns = [Turn(name, partial(self._turn, name, answer)) for name in self.names]
        return solve_in_turn(turns, self.enough, self.attempts)

    def _turn(self, name: str, answer: Callable[[Solve], Judged[T]]) -> Judged[T]:
        return answer(self.running(name))
