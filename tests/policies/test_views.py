"""Views: declared once, and all that follows from a declaration."""

from __future__ import annotations

import json
import pickle
from typing import Any

import numpy as np
import pandas as pd
import pytest

import allocator
from allocator import ClusterState, InputError, Need, View
from allocator.instance import state_from_json
from allocator.protocol.views import VIEWS, Views
from docs.site import views as page_of_views

SPEEDS = {"v100": [4.0, 2.0, 1.0]}
RACK = View[np.ndarray]("number of the rack of the data", name="rack", kind="whole", default=-1)


def test_a_view_of_ones_own_is_a_keyword_a_column_and_cut() -> None:
    state = ClusterState("v100:1", SPEEDS, rack=[3, 4, 5])
    assert state[RACK].tolist() == state.rack.tolist() == [3, 4, 5]
    assert state.take([2, 0])[RACK].tolist() == [5, 3]
    assert ClusterState("v100:1", SPEEDS)[RACK].tolist() == [-1, -1, -1]
    jobs = [{"throughputs": {"v100": 1.0}, "rack": 7}, {"throughputs": {"v100": 1.0}, "other": None}]
    assert state_from_json({"cluster": {"v100": 1}, "jobs": jobs})[RACK].tolist() == [7, -1]
    frame = pd.DataFrame({"rack": [1, 2, 3], "queue": ["a", "b", "a"]})
    solved = allocator.solve("isolated", SPEEDS, "v100:1", jobs=frame).state
    assert (solved[RACK].tolist(), solved.queue.tolist()) == ([1, 2, 3], ["a", "b", "a"])


@pytest.mark.parametrize(
    ("views", "words"),
    [
        ({"step_remaining": [1.0] * 3}, "step_remaining 'steps_remaining'"),
        ({"steps_remaining": [1.0] * 2}, "steps_remaining (2,) (3,)"),
        ({"gpu_seconds": [1.0, -2.0, 1.0]}, "gpu_seconds 1 -2.0"),
        ({"rack": [1.0, np.nan, 1.0]}, "rack 1 nan"),
        ({"deadlines": [10.0] * 3, "slo_seconds": [1.0] * 3}, "slo_seconds 1.0 10.0 deadlines"),
        ({"queue": ["a", 2, "b"]}, "queue 1 2 text"),
        ({"gpu_prices": [1.0, 2.0]}, "gpu_prices (2,) (1,)"),
        ({"current_partner": [1, 0, 3]}, "current_partner 3"),
    ],
)
def test_what_a_state_cannot_have_is_refused_with_field_and_value(views: dict[str, object], words: str) -> None:
    with pytest.raises(InputError) as caught:
        ClusterState("v100:1", SPEEDS, **views)
    assert [word for word in words.split() if word not in str(caught.value)] == [], caught.value


def test_the_same_values_are_refused_in_files_by_their_place() -> None:
    jobs = [{"throughputs": {"v100": 1.0}}, {"throughputs": {"v100": 1.0}, "run_seconds": "long"}]
    with pytest.raises(InputError) as caught:
        state_from_json(json.loads(json.dumps({"cluster": {"v100": 1}, "jobs": jobs})), source="i.json")
    assert (caught.value.source, caught.value.field, caught.value.found) == ("i.json", "jobs[1].run_seconds", "long")


def test_needs_are_sets_of_views_also_in_other_processes() -> None:
    needs = Need.SERVICE | RACK | Need.NOTHING
    assert needs == {Views.run_seconds, Views.gpu_seconds, RACK}
    assert (RACK in Need.SERVICE, RACK in RACK, needs & Need.SERVICE == Need.SERVICE) == (False, True, True)
    assert pickle.loads(pickle.dumps(needs)) == needs


@pytest.mark.parametrize("name", ["gpu_seconds", "take", "clock", "two words"])
def test_a_name_that_a_state_has_already_is_refused(name: str) -> None:
    with pytest.raises(InputError, match=name):
        View("something else", name=name)


def test_a_job_has_no_deadline_where_none_is_said() -> None:
    state = ClusterState("v100:1", SPEEDS, clock=4.0, deadlines=[10.0, None, 5.0])
    assert (state.deadlines.tolist(), state.slo_seconds.tolist()) == ([10.0, np.inf, 5.0], [6.0, np.inf, 1.0])


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"name": "rack"}, "rack number of the rack"),
        ({"name": "own_sum", "adds": max, "default": len}, "own_sum default"),
    ],
)
def test_a_view_of_another_ones_name_or_that_nothing_begins_at_is_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError) as refused:
        View("something else", **changes)
    assert all(word in str(refused.value) for word in words.split())


@pytest.mark.parametrize("added", [None, "a", np.nan, np.ones(3)])
def test_what_a_view_adds_is_a_number_for_each_row(added: Any) -> None:
    energy = View("what is added", name="own_added", needed=True, adds=lambda *_: added)
    policy = type("LeastAdded", (allocator.OrderPolicy,), {"needs": energy, "key": lambda _, state: state[energy]})()
    with pytest.raises(InputError, match=r"own_added.*adds"):
        allocator.simulate(allocator.Trace(["a"], [1], [100.0], [0.0]), "v100:1", policy, [[1.0]])


def test_the_page_has_a_line_for_every_view() -> None:
    shown = page_of_views.PAGE.read_text()
    assert page_of_views.page(shown) == shown, "python -m docs.site.views writes it anew"
    assert all(f"| `{name}` |" in shown for name in VIEWS if name in vars(Views))
