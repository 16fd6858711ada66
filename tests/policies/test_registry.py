"""Policies by name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pandas as pd
import pytest

import allocator
from allocator import registry
from allocator.policies.base.programs import ProgramPolicy
from formulations import MaxMin
from throughputs import InputError


def test_misspelt_name_is_answered_with_the_nearest():
    with pytest.raises(InputError, match="did you mean 'max_min_fairness_perf'"):
        allocator.get_policy("max_min_fairnes_perf")


def test_unknown_setting_lists_the_known_ones():
    with pytest.raises(InputError, match=r"field 'colour'.*solver, choice"):
        allocator.get_policy("max_min_fairness", colour="red")


def test_unknown_solver_is_found_when_used():
    policy = allocator.get_policy("max_min_fairness", solver="gurobi")
    with pytest.raises(InputError, match="structured"):
        allocator.solve(policy, pd.DataFrame({"v100": [1.0]}), "v100:1")


def test_a_taken_name_is_refused():
    with pytest.raises(InputError, match="not taken"):

        @registry.register("isolated", paper="-", program="-")
        class Another(allocator.SharePolicy):
            """Another."""


def test_aliases_are_of_one_policy_and_come_after_names(monkeypatch):
    monkeypatch.setattr(registry, "_ENTRIES", dict(registry._ENTRIES))
    monkeypatch.setattr(registry, "_ALIASES", dict(registry._ALIASES))

    @registry.register("waiting", paper="-", program="-")
    @dataclass(frozen=True)
    class Waiting(allocator.SharePolicy):
        """Wait."""

        aliases = ("idling", "isolated")

        def allocate(self, state):
            raise NotImplementedError

    @registry.register("waiting_longer", paper="-", program="-")
    @dataclass(frozen=True)
    class WaitingLonger(Waiting):
        """Wait for longer."""

    assert isinstance(allocator.get_policy("idling"), Waiting)
    assert allocator.get_policy("idling").name == "waiting"
    assert allocator.get_policy("isolated").name == "isolated"
    with pytest.raises(InputError, match="an alias that is not taken"):

        @registry.register("another", paper="-", program="-")
        class Another(allocator.SharePolicy):
            """Another."""

            aliases = ("idling",)


def test_what_is_no_policy_is_refused():
    with pytest.raises(InputError, match="a subclass of SharePolicy or PlanPolicy"):

        @registry.register("another", paper="-", program="-")
        class Another:
            """Another."""


def test_a_policy_of_ones_own(monkeypatch):
    """An objective and the state it reads is all it takes."""
    monkeypatch.setattr(registry, "_ENTRIES", dict(registry._ENTRIES))

    @allocator.register("equal_steps", paper="none", program="max min_i u_i")
    @dataclass(frozen=True)
    class EqualSteps(ProgramPolicy):
        """Give every job the same number of steps per second."""

        def believed_rates(self, state):
            return state.rates

        def objective(self, state, rates):  # noqa: ARG002
            return MaxMin(np.ones(state.n_jobs))

    speeds = pd.DataFrame({"v100": [4.0, 1.0]}, index=["fast", "slow"])
    answer = allocator.solve("equal_steps", speeds, "v100:1")
    np.testing.assert_allclose(answer.effective_throughput, [0.8, 0.8], rtol=1e-6)
    assert "equal_steps" in {entry.name for entry in allocator.list_policies()}


def test_plugins_come_by_entry_point(monkeypatch):
    @dataclass(frozen=True)
    class Idle(allocator.SharePolicy):
        """Run nothing."""

        name: ClassVar[str] = ""
        paper: ClassVar[str] = "none"
        program: ClassVar[str] = "x = 0"

        def allocate(self, state):
            return allocator.Allocation(self.name, state.throughputs, np.zeros(state.rates.shape), "closed form")

    class Entry:
        name = "idle"

        def load(self):
            return Idle

    monkeypatch.setattr(registry, "_ENTRIES", {})
    monkeypatch.setattr(registry, "_loaded", False)
    monkeypatch.setattr(
        "importlib.metadata.entry_points", lambda group: [Entry()] if group == "allocator.policies" else []
    )
    assert allocator.get_policy("idle").name == "idle"


def test_solve_from_a_table():
    speeds = pd.DataFrame({"k80": [1.0, 1.0], "v100": [4.0, 2.0], "scale_factor": [1, 1]}, index=["a", "b"])
    answer = allocator.solve("max_min_fairness_perf", speeds, "v100:1,k80:1")
    assert answer.to_frame().columns.tolist() == ["v100", "k80"]
    # by hand: a has v100 half of the time, (1 + 3/2) / 2.5 = (2 - 1/2) / 1.5 = 1
    assert answer.objective == pytest.approx(1.0, rel=1e-8)
    jobs = pd.DataFrame({"priority_weight": [1.0, 9.0]}, index=["b", "a"])
    favoured = allocator.solve("max_min_fairness_perf", speeds, "v100:1,k80:1", jobs=jobs)
    assert favoured.effective_throughput[0] > answer.effective_throughput[0]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"cluster": "v100:1,tpu:2"}, "also a column 'tpu'"),
        ({"cluster": "v100"}, "TYPE:COUNT"),
        ({"jobs": pd.DataFrame({"priority_weight": [1.0]}, index=["a"])}, "no row 'b'"),
        ({"jobs": pd.DataFrame({"weight": [1.0, 1.0]}, index=["a", "b"])}, "field 'weight'"),
        ({"jobs": pd.DataFrame({"priority_weight": [1.0, -1.0]}, index=["a", "b"])}, "priority_weights of job 'b'"),
        ({"throughputs": pd.DataFrame({"v100": [1.0, -2.0]}, index=["a", "b"])}, "job 'b' on 'v100'"),
        ({"throughputs": pd.DataFrame({"v100": ["x", "y"]}, index=["a", "b"])}, "expected numbers"),
    ],
)
def test_bad_input_says_where(arguments, message):
    given = {"throughputs": pd.DataFrame({"v100": [4.0, 2.0]}, index=["a", "b"]), "cluster": "v100:1"} | arguments
    with pytest.raises(InputError, match=message):
        allocator.solve("max_min_fairness_perf", **given)
