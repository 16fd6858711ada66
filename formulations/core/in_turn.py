"""One engine after the other, until an answer is proven well enough: the same for all families of programs."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from time import perf_counter
from typing import Generic, TypeVar

import numpy as np

from formulations.core.solution import Attempt, InfeasibleError, NotAcceptedError, SolverError

T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class Judged(Generic[T]):
    """An answer with the gap that it is proven to, and the engine whose method it is where that is another one."""

    answer: T
    gap: float
    solver: str = ""


@dataclass(frozen=True, eq=False)
class Turn(Generic[T]):
    """An engine by name, and what it does: solve and prove, or raise RuntimeError.

    `note`: what it is asked for, where that is not the same for all.
    """

    name: str
    run: Callable[[], Judged[T]]
    note: str = ""


def solve_in_turn(turns: Iterable[Turn[T]], enough: float, attempts: list[Attempt]) -> tuple[T, str]:
    """The first answer that is proven within `enough`, else that of the smallest gap; and whose it is.

    Every attempt is added to `attempts`. An engine that does not take a program (`NotAcceptedError`) has not been
    tried.

    Raises
    ------
    InfeasibleError
        An engine says that there is no answer.
    SolverError
        No engine returned an answer; says what each had to say.
    """
    best: Judged[T] | None = None
    solver, before = "", len(attempts)
    declined: list[str] = []
    for turn in turns:
        began = perf_counter()
        try:
            found = turn.run()
        except InfeasibleError:
            raise
        except (RuntimeError, np.linalg.LinAlgError) as error:
            if isinstance(error, NotAcceptedError):
                declined.append(f"{turn.name}: {error}")
            else:
                note = f"{turn.note}: {error}" if turn.note else str(error)
                attempts.append(Attempt(turn.name, np.inf, perf_counter() - began, note))
            continue
        name = found.solver or turn.name
        attempts.append(Attempt(name, found.gap, perf_counter() - began, turn.note))
        if best is None or found.gap < best.gap:
            best, solver = found, name
        if best.gap <= enough:
            break
    if best is None:
        raise SolverError("; ".join([*declined, *(f"{tried.solver}: {tried.note}" for tried in attempts[before:])]))
    return best.answer, solver
