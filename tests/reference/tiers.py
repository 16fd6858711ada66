"""Which recorded cases are repeated when: always, in the gate, or by ``make test-deep`` only."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def tiered(cases: Iterable[Any], *, daily: Iterable[Any] = (), gate: Iterable[Any] = ()) -> list[Any]:
    """Parameters of a test: cases of `daily` as they are, those of `gate` exhaustive, all others deep."""
    cases, marks = list(cases), dict.fromkeys(gate, pytest.mark.exhaustive) | dict.fromkeys(daily, ())
    assert set(marks) <= set(cases), set(marks) - set(cases)
    return [
        pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=marks.get(case, pytest.mark.deep))
        for case in cases
    ]
