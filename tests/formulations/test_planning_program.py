"""The planning program as stated: priorities, fairness rows, bad input."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from formulations.shockwave import PlanningProgram
from tests.formulations.planning_programs import finish_inside
from throughputs import InputError

GOOD: dict[str, Any] = {
    "gpus": 4,
    "rounds": 3,
    "round_seconds": 120.0,
    "widths": np.array([1, 2]),
    "epochs": np.array([10.0, 20.0]),
    "epochs_done": np.array([0.0, 5.0]),
    "epoch_seconds": np.array([60.0, 30.0]),
    "remaining_seconds": np.array([600.0, 450.0]),
    "target_seconds": np.array([900.0, 900.0]),
    "now_seconds": 240.0,
    "share": 0.5,
}

BAD: list[tuple[str, Any]] = [
    ("gpus", -1),
    ("rounds", 0),
    ("round_seconds", 0.0),
    ("widths", np.array([1.0, 2.0])),
    ("widths", np.array([0, 1])),
    ("epochs", np.array([10.0])),
    ("epochs_done", np.array([0.0, 21.0])),
    ("epoch_seconds", np.array([0.0, 30.0])),
    ("remaining_seconds", np.array([-1.0, 1.0])),
    ("target_seconds", np.array([0.0, 1.0])),
    ("now_seconds", -1.0),
    ("share", 0.0),
    ("share", np.array([0.5, 1.5])),
    ("makespan_weight", -1e-3),
    ("fairness_exponent", np.inf),
    ("largest_rho", 0.0),
    ("bases", (0.0, 0.5, 0.5, 1.0)),
    ("priority_cap", 0.5),
    ("fairness_rows", "some"),
]


@pytest.mark.parametrize(("name", "value"), BAD)
def test_bad_input_is_named(name: str, value: Any) -> None:
    with pytest.raises(InputError, match=name):
        PlanningProgram(**(GOOD | {name: value}))


def test_a_late_job_has_priority() -> None:
    program = PlanningProgram(**GOOD)
    # rho = (240 + 600 / 0.5) / 900 and (240 + 450 / 0.5) / 900
    assert program.priorities == pytest.approx([min(1.6**12, 1e5), (1140 / 900) ** 12])
    capped = PlanningProgram(**GOOD, priority_cap=10.0)
    assert capped.priorities.tolist() == [10.0, 10.0]
    patient = PlanningProgram(**GOOD, largest_rho=1.3)
    assert patient.priorities == pytest.approx([1.6**12, 1.0])


def test_a_late_job_with_less_than_a_round_left_comes_before_all_others() -> None:
    figures = GOOD | {"remaining_seconds": np.array([600.0, 119.0]), "target_seconds": np.array([900.0, 400.0])}
    program = PlanningProgram(**figures, priority_cap=None)
    assert program.priorities == pytest.approx([1.6**12, (478 / 400) ** 100])
    beyond = PlanningProgram(**(figures | {"target_seconds": np.array([900.0, 1e-3])}), priority_cap=None)
    assert np.isfinite(beyond.priorities).all()
    assert beyond.priorities[1] > 1e290


def test_published_rows_cannot_hold_for_a_target_inside_the_window() -> None:
    program = PlanningProgram(**(GOOD | {"target_seconds": np.array([599.0, 2000.0])}), fairness_rows="published")
    assert program.end_seconds == 600.0
    assert program.longest_remaining == pytest.approx([-0.5, 700.0])
    own = PlanningProgram(**(GOOD | {"target_seconds": np.array([599.0, 2000.0])}))
    assert own.longest_remaining.tolist() == [np.inf, 700.0]


@given(
    remaining=st.floats(1.0, 700.0),
    due=st.floats(1.0, 359.0),
    running=st.lists(st.booleans(), min_size=3, max_size=3),
)
def test_the_row_of_first_rounds_says_that_the_job_finishes_in_time(
    remaining: float, due: float, running: list[bool]
) -> None:
    """Beside the moment at which rounding decides."""
    figures = GOOD | {
        "remaining_seconds": np.array([remaining, 0.0]),
        "target_seconds": np.array([240.0 + due, 2000.0]),
    }
    program = PlanningProgram(**figures)
    (needed, _), (until, _) = (part.tolist() for part in program.deadlines)
    finish = finish_inside(program, np.array(running), remaining)
    if abs(finish - 240.0 - due) > 1e-3 and abs(remaining / 120 - round(remaining / 120)) > 1e-6:
        in_time = sum(running[: max(until, 0)]) >= needed
        assert in_time == (finish <= 240.0 + due)
