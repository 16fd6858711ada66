"""One engine after the other: who is asked, whose answer is taken, and what is on record."""

from __future__ import annotations

import numpy as np
import pytest

from formulations.core.in_turn import Judged, Turn, solve_in_turn
from formulations.core.solution import Attempt, NotAcceptedError, SolverError


def answers(name: str, gap: float, *, by: str = "", warm: bool = False) -> Turn[str]:
    return Turn(name, lambda: Judged(f"answer of {name}", gap, by), warm)


def fails(name: str, error: Exception) -> Turn[str]:
    def run() -> Judged[str]:
        raise error

    return Turn(name, run)


def test_the_first_that_is_good_enough():
    attempts: list[Attempt] = []
    turns = [answers("a", 1e-3), answers("b", 1e-9), answers("c", 0.0)]
    assert solve_in_turn(turns, 1e-7, attempts) == ("answer of b", "b")
    assert [(each.solver, each.gap) for each in attempts] == [("a", 1e-3), ("b", 1e-9)]


def test_else_the_smallest_gap_the_first_of_equals():
    turns = [answers("a", 1e-3), answers("b", 1e-5), answers("c", 1e-5), answers("d", np.inf)]
    attempts: list[Attempt] = []
    assert solve_in_turn(turns, 1e-7, attempts) == ("answer of b", "b")
    assert len(attempts) == 4


def test_failures_are_on_record_and_refusals_are_not():
    turns = [
        fails("small", NotAcceptedError("too many jobs")),
        fails("broken", RuntimeError("no progress")),
        fails("singular", np.linalg.LinAlgError("singular")),
        answers("sound", 1e-9, by="another", warm=True),
    ]
    attempts: list[Attempt] = []
    assert solve_in_turn(turns, 1e-7, attempts) == ("answer of sound", "another")
    assert [(each.solver, each.note, each.warm) for each in attempts] == [
        ("broken", "no progress", False),
        ("singular", "singular", False),
        ("another", "", True),
    ]


def test_nobody_has_an_answer():
    earlier = Attempt("earlier", 0.0, 0.0, "of another program")
    turns = [fails("small", NotAcceptedError("too many jobs")), fails("broken", RuntimeError("no progress"))]
    with pytest.raises(SolverError, match=r"^small: too many jobs; broken: no progress$"):
        solve_in_turn(turns, 1e-7, [earlier])


def test_other_errors_are_not_swallowed():
    with pytest.raises(KeyError):
        solve_in_turn([fails("mistaken", KeyError("typo")), answers("sound", 0.0)], 1e-7, [])
