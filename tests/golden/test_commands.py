"""Commands and the service answer as they did, and refuse what they refused."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from tests.golden import commands, service
from tests.golden.kept import Case, check, read

CASES = [*commands.cases(), *service.cases()]


@pytest.mark.parametrize("case", [case.parameter for case in CASES])
def test_answer(case: Case) -> None:
    check(case)


def test_no_golden_is_left_over() -> None:
    wanted = {(case.file, case.name) for case in CASES}
    files = {case.file for case in CASES}
    assert {(file, name) for file in files for name in read(file)} <= wanted


@cache
def refused() -> dict[str, Any]:
    """All that is refused, in one folder."""
    return commands.answer_of([line for *_, line in commands.refusals()], commands.inputs)


@pytest.mark.parametrize(
    ("code", "words", "line"), commands.refusals(), ids=lambda one: one if isinstance(one, str) else ""
)
def test_refusal(code: int, words: list[str], line: str) -> None:
    """The exit code; and that the message names all that it must, on standard error alone, without a traceback."""
    told = refused()[line]
    message = " ".join(told["stderr"])
    assert told["exit"] == code, message
    assert [word for word in words if word not in message] == [], message
    assert "Traceback" not in message
    assert set(told) == {"exit", "stdout", "stderr"}, "nothing is written"
