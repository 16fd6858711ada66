"""Errors in policies of one's own: their file, line and exception, and nothing of our stack."""

from __future__ import annotations

import traceback
from pathlib import Path

import numpy as np
import pytest

import allocator
from allocator import OrderPolicy
from allocator.protocol import Allocation, Assignment, ClusterState, Need, Plan, PlanPolicy, SharePolicy
from allocator.protocol.policy import told
from allocator.registry import get_policy, import_policies, policies_of_others
from tests.cli.command import run
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


VIEWS = {
    "colocation": "COLOCATION",
    "packed": "COLOCATION",
    "configurations": "CONFIGURATIONS",
    "training": "TRAINING",
    "deadline_options": "DEADLINE_OPTIONS",
    "run_seconds": "SERVICE",
    "gpu_seconds": "SERVICE",
    "predicted_seconds": "PREDICTIONS",
    "isolated_seconds": "ISOLATED_TIME",
}


def reader(view, declared, base):
    """A policy that reads the view, and lets the first job run."""

    class Reads(base):
        name, needs = "reads", declared

        def plan(self, state, memory):
            del memory
            getattr(state, view)
            return Plan.until_next_event(Assignment.of([0], pool=[0], gpus=[1]))

        def allocate(self, state):
            getattr(state, view)
            return Allocation(self.name, state.throughputs, np.ones((state.n_jobs, 1)), "closed form")

    return Reads()


@pytest.mark.parametrize("base", [PlanPolicy, SharePolicy])
@pytest.mark.parametrize("view", VIEWS)
def test_what_is_read_without_being_declared_is_an_error_that_names_the_declaration(view, base):
    need = VIEWS[view]
    doors = {
        "simulate": lambda policy: allocator.simulate(TRACE, "v100:1", policy, [[1.0]]),
        "solve": lambda policy: allocator.solve(policy, {"v100": [1.0]}, "v100:1"),
    }
    for door in doors.values():
        with pytest.raises(AttributeError, match=rf"state\.{view} .*needs = Need\.{need}\b"):
            door(reader(view, Need.NOTHING, base))
    doors["solve"](reader(view, getattr(Need, need), base))


def test_a_state_made_by_hand_can_be_read_whole_and_a_part_of_a_declared_one_cannot():
    state = ClusterState("v100:1", {"v100": [1.0, 2.0]}, run_seconds=[3.0, 4.0])
    assert state.take(np.array([1])).run_seconds.tolist() == [4.0]
    part = state.for_needs(Need.ISOLATED_TIME).take(np.array([1]))
    assert part.isolated_seconds.tolist() == [0.0]
    for read in (part, part.with_throughputs(part.throughputs)):
        with pytest.raises(AttributeError, match=r"run_seconds.*Need\.SERVICE"):
            _ = read.run_seconds
    assert state.run_seconds.tolist() == [3.0, 4.0]


@pytest.mark.parametrize(
    ("named", "data"),
    [
        ("need", {"need": Need.SERVICE}),
        ("in_order_of_row", {"in_order_of_row": True}),
        ("triggers", {"triggers": "ARRIVAL"}),
        ("period_seconds", {"period_seconds": -5.0}),
        ("key", {"key": lambda _, state: ["a"] * state.n_jobs}),
        ("key", {"key": lambda _, state: 1j * np.ones(state.n_jobs)}),
    ],
)
def test_class_data_that_would_do_nothing_or_harm_are_named_with_the_class(named, data):
    policy = type("LeastSlack", (OrderPolicy,), {"key": lambda _, state: np.arange(state.n_jobs)} | data)()
    with pytest.raises(InputError, match=rf"policy least_slack: field '{named}'"):
        allocator.simulate(TRACE, "v100:1", policy, [[1.0]])
    with pytest.raises(InputError, match=rf"policy least_slack: field '{named}'"):
        allocator.solve(policy, {"v100": [1.0]}, "v100:1")


def test_an_answer_that_is_none_is_an_input_error(mine):
    del mine
    with pytest.raises(InputError, match="Allocation"):
        allocator.simulate(TRACE, "v100:1", get_policy("without_answer"), [[1.0]])


@pytest.mark.parametrize("name", ["below", "unmade"])
def test_on_the_command_line(mine, tmp_path, name):
    write_trace(gavel_trace(3, 60.0), tmp_path / "t.csv")
    where = f"--trace {tmp_path}/t.csv --cluster v100:4 --out {tmp_path}/o"
    done = run(f"simulate --import {mine} --policy {name} {where}")
    assert done.code == 1
    assert str(mine) in done.err
    assert "/allocator/" not in done.err
    assert len(done.err.splitlines()) < 15
