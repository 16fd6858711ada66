"""Sweeps whose jobs are those of a trace: loads, what is run anew, what is refused."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

import allocator
from allocator import registry
from allocator.cli.app import app
from allocator.sweep import Sweep, load, run
from allocator.sweep.execute import Materials, run_point
from throughputs import InputError, Trace, TraceGenerator, read_trace, write_trace

LOG = Trace(
    ["unet", "vit", "unet", "llama", "vit"],
    [1, 4, 2, 1, 4],
    [7200.0, 3600.0, 5400.0, 9000.0, 1800.0],
    [0.0, 600.0, 660.0, 4000.0, 4000.0],
    duration=[7200.0, 3600.0, 5400.0, 9000.0, 1800.0],
    deadline=[np.nan, 9000.0, 660.0, 30000.0, np.nan],
    deadline_options=[(), (), (), (), ((12000.0, 2.0), (15000.0, 1.0))],
)


@pytest.fixture
def log(tmp_path):
    write_trace(LOG, tmp_path / "jobs.csv")
    return tmp_path / "jobs.csv"


def swept(log, **changes):
    definition = {"kind": "trace", "policies": ["fifo"], "clusters": ["a100:4"], "seeds": [0]}
    return Sweep.from_dict(definition | {"workload": {"trace": str(log)}} | changes)


@given(st.floats(0.01, 100.0))
def test_a_load_divides_times_of_submission_and_keeps_the_time_to_a_deadline(factor):
    moved = LOG.at_load(factor)
    np.testing.assert_array_equal(moved.arrival_time, LOG.arrival_time / factor)
    given_time = LOG.deadline - LOG.arrival_time
    np.testing.assert_allclose(moved.deadline - moved.arrival_time, given_time, atol=1e-6)
    assert [value for _, value in moved.deadline_options[4]] == [2.0, 1.0]
    for name in ("job_type", "scale_factor", "total_steps", "duration", "slo"):
        np.testing.assert_array_equal(getattr(moved, name), getattr(LOG, name))


def test_a_load_that_stretches_the_trace_beyond_any_clock_is_refused():
    with pytest.raises(InputError, match=r"field 'load': found 1e-300, expected a number with which the last job"):
        Trace(["a", "a"], [1, 1], [5, 5], [0, 10]).at_load(1e-300)


def test_load_1_is_the_trace_to_the_last_digit():
    same = LOG.at_load(1.0)
    for name in Trace.column_names():
        np.testing.assert_array_equal(getattr(same, name), getattr(LOG, name))
    with pytest.raises(InputError, match=r"load.*found 0.*above 0"):
        LOG.at_load(0.0)


def test_measured_use_of_gpus_is_a_column_where_the_trace_has_it(log, tmp_path):
    written = pd.read_csv(log).assign(gpu_utilization=[0.5, 0.25, 1.0, np.nan, 0.75])
    written.to_csv(tmp_path / "measured.csv", index=False)
    table = run(swept(tmp_path / "measured.csv"), tmp_path / "out", jobs=1)
    expected = allocator.simulate(
        read_trace(tmp_path / "measured.csv"), "a100:4", allocator.get_policy("fifo")
    ).summary()
    for name in ("gpu_utilization", "busy_gpu_utilization", "known_gpu_utilization"):
        assert table[name].tolist() == [getattr(expected, name)]
    assert run(swept(log), tmp_path / "unmeasured", jobs=1)["gpu_utilization"].isna().all()


def test_a_run_is_the_simulation_of_the_denser_trace(log):
    (point,) = swept(log, loads=[2.0], settings={"restart_penalty_seconds": 60.0}).points()
    assert "load 2" in point.label
    done = run_point(point, Materials.of([point]), log=lambda _: None, report=lambda _: None)
    expected = allocator.simulate(
        read_trace(log).at_load(2.0),
        "a100:4",
        allocator.get_policy("fifo"),
        preset=allocator.presets.preset("default").replace(restart_penalty_seconds=60.0),
    ).summary()
    timed = {"policy_seconds", "wall_seconds"}
    assert {k: v for k, v in done.record["figures"].items() if k not in timed} == {
        k: v for k, v in expected.items() if k not in timed
    }
    assert done.record["prices"] == {}  # an order has no prices


def test_prices_are_averaged_over_the_time_in_which_decisions_hold(log):
    (point,) = swept(log, policies=["max_min_fairness_perf"]).points()
    prices = run_point(point, Materials.of([point]), log=lambda _: None, report=lambda _: None).record["prices"]
    result = allocator.simulate(read_trace(log), "a100:4", point.make_policy())
    rows, decisions = result.timeline, result.decisions
    clocks = [clock for _, clock, _ in decisions]
    held = [decisions[np.searchsorted(clocks, start, "right") - 1][2].prices[0] for start in rows["start_time"]]
    length = rows["end_time"] - rows["start_time"]
    assert prices["average_prices"]["a100"] == pytest.approx(float((np.array(held) * length).sum() / length.sum()))
    assert prices["price_unit"] == decisions[0][2].objective_unit


def test_loads_clusters_and_policies_and_a_changed_file(log, tmp_path):
    sweep = swept(log, loads=[1.0, 1.5], clusters=["a100:4", "a100:8"], policies=["fifo", "srtf"])
    table = run(sweep, tmp_path / "out", jobs=1)
    assert len(table) == 8
    assert sorted(set(table["load"])) == [1.0, 1.5]
    assert (table["average_queueing_time"] + table["average_running_time"]).tolist() == pytest.approx(
        table["average_jct"].tolist()
    )
    kept = {path.name for path in (tmp_path / "out" / "points").iterdir()}
    assert run(swept(log), tmp_path / "out", jobs=1)["started_at"].tolist() == table["started_at"].tolist()[:1]
    write_trace(LOG.head(4), log)
    changed = run(swept(log), tmp_path / "out", jobs=1)
    assert changed["jobs"].tolist() == [4]
    assert {path.name for path in (tmp_path / "out" / "points").iterdir()} > kept
    assert load(tmp_path / "out")["point"].tolist() == changed["point"].tolist()


def test_loads_are_1_unless_said(log):
    assert [point.load for point in swept(log).points()] == [1.0]
    cases = [{"name": "dense", "loads": [2.0]}, {"name": "as it is"}]
    assert [point.load for point in swept(log, cases=cases).points()] == [2.0, 1.0]


@pytest.mark.parametrize(
    ("change", "field", "message"),
    [
        ({"loads": [0]}, "loads", "above 0"),
        ({"loads": [1, 1.0]}, "loads", "once"),
        ({"vary": {"round_seconds": [60, 360, 60.0]}}, "vary.round_seconds", "once"),
        ({"jobs": [5]}, "jobs", "one of"),
        ({"window": [0, 2]}, "window", "no window"),
        ({"workload": {}}, "workload.trace", "the file of a trace"),
        ({"workload": {"trace": "missing.csv"}}, "workload.trace", "file that exists"),
        ({"clusters": [{"gpus": "a100:1", "per_jobs": 4}]}, "clusters[0].per_jobs", "nothing"),
    ],
)
def test_bad_definitions_name_the_key(log, change, field, message):
    with pytest.raises(InputError) as caught:
        swept(log, **change)
    assert caught.value.field == field
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("name", "value"), [("generator", "gavel"), ("multi_gpu", True), ("fixed_duration_seconds", 60.0)]
)
def test_what_would_draw_jobs_is_refused(log, name, value):
    with pytest.raises(InputError) as caught:
        swept(log, workload={"trace": str(log), name: value})
    assert caught.value.field == f"workload.{name}"


def test_a_trace_without_jobs_is_refused(log, tmp_path):
    log.write_text("job_type,scale_factor,total_steps,arrival_time\n")
    with pytest.raises(InputError, match=r"found 'no jobs', expected at least one"):
        run(swept(log), tmp_path / "out", jobs=1)
    assert not (tmp_path / "out").exists()


def test_what_cannot_run_is_said_before_anything_does(log, tmp_path):
    for clusters, message in ((["a100:4", "a100:2,v100:2"], "unet"), (["a100:4,h100:4"], "h100")):
        sweep = swept(log, clusters=clusters, workload={"trace": str(log), "prices": {"a100": 2.0}})
        with pytest.raises(InputError, match=message):
            run(sweep, tmp_path / "out", jobs=1)
    assert not (tmp_path / "out").exists()


def test_the_command(tmp_path):
    write_trace(TraceGenerator(n_jobs=6, mean_interarrival=600, seed=1).generate(), tmp_path / "jobs.csv")
    arguments = ["sweep", "trace", "--trace", tmp_path / "jobs.csv", "--load", "1,2", "--cluster", "v100:2,k80:2"]
    arguments += ["-p", "fifo_perf", "--out", tmp_path / "out", "-j", 1]
    done = CliRunner().invoke(app, list(map(str, arguments)))
    assert done.exit_code == 0, done.output
    assert "2 of 2 points have results" in done.stdout
    shown = CliRunner().invoke(app, ["sweep", "show", str(tmp_path / "out"), "--json"])
    assert [row["load"] for row in json.loads(shown.stdout)["results"]] == [1.0, 2.0]


def test_a_policy_of_ones_own_that_has_changed_is_another_run(log, tmp_path, monkeypatch):
    monkeypatch.setattr(registry, "_ENTRIES", dict(registry._ENTRIES))
    written = tmp_path / "mine_of_a_trace.py"
    written.write_text(
        "import allocator\n\nclass MineOfATrace(allocator.OrderPolicy):\n"
        "    paper = program = 'none'\n\n    def key(self, state):\n        return state.elapsed_seconds\n"
    )
    (name,) = registry.import_policies(str(written))
    assert registry.source_of(name) == written
    assert registry.source_of("fifo") is None
    before, own = (swept(log, policies=[policy]).points()[0].key for policy in (name, "fifo"))
    assert swept(log, policies=[name]).points()[0].key == before
    written.write_text(written.read_text() + "# sooner\n")
    assert swept(log, policies=[name]).points()[0].key != before
    assert swept(log).points()[0].key == own
