"""Errors in policies of one's own: their file, line and exception, and nothing of our stack."""

from __future__ import annotations

import subprocess
import sys
import traceback
from pathlib import Path

import pytest

import allocator
from allocator.protocol.faults import fault_of, told
from allocator.registry import get_policy, import_policies, policies_of_others
from tests.policies.test_registry import fresh_registry  # noqa: F401
from throughputs import InputError, gavel_trace, write_trace

MINE = """
import numpy as np
from allocator import ConvexPolicy, Need, PlanPolicy, SharePolicy

class Undeclared(PlanPolicy):
    def plan(self, state, memory):
        return self.helper(state)
    def helper(self, state):
        return state.configurations.job[0]

class Declared(Undeclared):
    needs = Need.CONFIGURATIONS
    def helper(self, state):
        return None.job

class InNumpy(SharePolicy):
    def allocate(self, state):
        return np.linalg.solve(np.zeros((2, 3)), np.zeros(2))

class Below(ConvexPolicy):
    def statement(self, cp, shares, state):
        return {}["objective"]

class Chained(SharePolicy):
    def allocate(self, state):
        try:
            state.rates.nonsense
        except AttributeError:
            raise ValueError("no rates") from None

class WithoutAnswer(SharePolicy):
    def allocate(self, state):
        return None

class Unmade(SharePolicy):
    def __init__(self):
        self.part = 1 / 0
    def allocate(self, state):
        raise NotImplementedError
"""

FAULTS = {
    "undeclared": ("AttributeError", "return state.configurations.job[0]"),
    "in_numpy": ("LinAlgError", "return np.linalg.solve"),
    "below": ("KeyError", 'return {}["objective"]'),
    "chained": ("ValueError: no rates", 'raise ValueError("no rates")'),
}

TRACE = allocator.Trace(["a"], scale_factor=[1], total_steps=[360.0], arrival_time=[0.0])


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    path = tmp_path / "mine_faulty.py"
    path.write_text(MINE)
    import_policies(str(path))
    return path


def files_of(error: BaseException) -> list[str]:
    return [entry.filename for entry in traceback.extract_tb(error.__traceback__)]


@pytest.mark.parametrize("name", FAULTS)
@pytest.mark.parametrize("door", ["simulate", "solve"])
def test_in_python_the_stack_ends_at_our_door(mine, name, door):
    doors = {
        "simulate": lambda: allocator.simulate(TRACE, "v100:1", get_policy(name), [[1.0]]),
        "solve": lambda: allocator.solve(name, {"v100": [1.0]}, "v100:1"),
    }
    with pytest.raises(Exception, match=r".") as caught:
        doors[door]()
    files = files_of(caught.value)
    own = files.index(str(mine))
    ours = [file for file in files if "/allocator/" in file or "/formulations/" in file]
    assert len(ours) == 1, "the door, and nothing behind it"
    assert own == files.index(ours[0]) + 1
    kind, line = FAULTS[name]
    shown = told(caught.value, policies_of_others())
    assert kind in shown
    assert line in shown
    assert "/allocator/" not in shown


def test_what_was_read_without_being_declared_is_named(mine):
    del mine
    with pytest.raises(AttributeError) as caught:
        allocator.simulate(TRACE, "v100:1", get_policy("undeclared"), [[1.0]])
    (note,) = caught.value.__notes__
    assert "state.configurations" in note
    assert "Need.CONFIGURATIONS" in note
    with pytest.raises(AttributeError) as caught:
        allocator.solve("declared", {"v100": [1.0]}, "v100:1")
    assert not hasattr(caught.value, "__notes__")


def test_an_answer_that_is_none_is_an_input_error(mine):
    del mine
    with pytest.raises(InputError, match="Allocation"):
        allocator.simulate(TRACE, "v100:1", get_policy("without_answer"), [[1.0]])


def test_errors_of_ours_keep_their_stack(mine):
    del mine
    with pytest.raises(InputError) as caught:
        allocator.solve("below", {"v100": [1.0]}, "k80:1")
    before = files_of(caught.value)
    assert fault_of(caught.value, *policies_of_others()) is None
    assert files_of(caught.value) == before


@pytest.mark.parametrize("name", ["below", "unmade"])
def test_on_the_command_line(mine, tmp_path, name):
    trace = tmp_path / "t.csv"
    write_trace(gavel_trace(3, 60.0), trace)
    words = ["simulate", "--import", mine, "--trace", trace, "--policy", name, "--cluster", "v100:4", "--out", "o"]
    command = [sys.executable, "-m", "allocator", *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 1
    assert str(mine) in done.stderr
    assert "/allocator/" not in done.stderr.replace("-m allocator", "")
    assert len(done.stderr.splitlines()) < 15
