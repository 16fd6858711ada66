"""Runs of every policy are as they were."""

from __future__ import annotations

import pytest

from tests.golden.kept import Case, check, read
from tests.golden.policies import cases

CASES = cases()


@pytest.mark.parametrize("case", [case.parameter for case in CASES])
def test_run(case: Case) -> None:
    check(case)


def test_no_golden_is_left_over() -> None:
    wanted = {(case.file, case.name) for case in CASES}
    files = {case.file for case in CASES}
    assert {(file, name) for file in files for name in read(file)} <= wanted
