"""Every public name says what it is, and the examples in docstrings are true."""

from __future__ import annotations

import doctest
import importlib

import pytest

import allocator
import throughputs

NAMES = [*allocator.__all__, *throughputs.__all__]
OBJECTS = {name: getattr(allocator if name in allocator.__all__ else throughputs, name) for name in NAMES}

# What needs files, a cluster that runs, or cvxpy is shown in the pages of docs instead.
SHOWN_ELSEWHERE = {
    "AdmissionTest", "ConvexPolicy", "Decision", "Entities", "Estimation", "Policy", "read_cluster", "read_table",
    "read_trace", "register", "write_report",
}  # fmt: skip


def test_every_public_name_is_described() -> None:
    for name, thing in OBJECTS.items():
        first = (thing.__doc__ or "").strip().partition("\n")[0] if callable(thing) else "Data."
        assert first.endswith((".", ":")), f"{name}: {first!r}"
        # a dataclass without a docstring is described by its signature
        assert not first.startswith(f"{name}(")
    shown = set(allocator.__all__) - SHOWN_ELSEWHERE
    assert [name for name in sorted(shown) if ">>>" not in OBJECTS[name].__doc__] == []


MODULES = sorted({thing.__module__ for name, thing in OBJECTS.items() if name in allocator.__all__})


@pytest.mark.parametrize(
    "name", ["allocator", "allocator.environment.environment", "allocator.registry", "allocator.testing", *MODULES]
)
def test_examples_are_true(name: str) -> None:
    found = doctest.testmod(importlib.import_module(name))
    assert found.failed == 0
