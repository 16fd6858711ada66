"""What-if scenarios: rows are plain simulations, set beside the first."""

from __future__ import annotations

import json
import math
import re

import numpy as np
import pandas as pd
import pytest

import allocator
from allocator import whatif
from allocator.experiments.whatif import Scenarios
from allocator.experiments.whatif.page import render_page
from allocator.presets import preset
from allocator.recorded import recorded_schedule
from allocator.results.measures.calibration import hours
from allocator.variants import read_variants
from throughputs import InputError, Trace, TraceGenerator, default_table, read_trace, write_trace

MOMENT = ("policy_seconds", "wall_seconds")


def log(n: int = 24, seed: int = 3, **more: object) -> Trace:
    """Jobs of known durations, as an imported log has them."""
    rng = np.random.default_rng(seed)
    hours = np.round(rng.uniform(600, 9000, n), 1)
    gpus = rng.choice([1, 1, 2, 4], n)
    arrival = np.round(np.sort(rng.uniform(0, 20_000, n)), 1)
    return Trace([f"model-{i % 3}" for i in range(n)], gpus, hours, arrival, duration=hours, source="log", **more)


def without_times(summary):
    return {name: value for name, value in summary.items() if name not in MOMENT}


@pytest.fixture(scope="module")
def answer():
    """Two clusters, loads, penalties and policies, and each row with two more GPUs."""
    return whatif(
        log(10),
        ["a100:4", "a100:6"],
        ["fifo", "max_min_fairness"],
        loads=[1.5, 1.0],
        vary={"restart_penalty_seconds": [0, 60]},
        prices={"a100": 2.0},
        next_gpus=2,
    )


def recorded_log(late: float = 500.0) -> Trace:
    """The jobs as they ran somewhere: each some seconds after its arrival."""
    plain = log()
    start = plain.arrival_time + late
    return log(recorded_start_seconds=start, recorded_end_seconds=start + plain.duration)


def test_what_a_trace_records_stands_beside_the_rows(tmp_path):
    answer = whatif(
        recorded_log(), ["a100:64", "a100:96"], loads=[2.0], prices={"a100": 2.0}, next_gpus=0, out=tmp_path
    )
    assert [row.label for row in answer.side_by_side] == ["a100:64", "a100:96", "recorded"]
    expected = recorded_schedule(recorded_log(), "a100:64", prices={"a100": 2.0}).summary()
    assert answer.recorded.figures["average_queueing_time"] == pytest.approx(500.0)
    assert answer.recorded.figures["owned_cost"] == expected.owned_cost
    last = answer.table.iloc[-1]
    assert (last["row"], last["cluster"], last["load"], last["policy"]) == ("recorded", "a100:64", 1.0, "recorded")
    assert last["average_jct_ratio"] == pytest.approx(expected.average_jct / answer.rows[0].figures["average_jct"])
    assert len(pd.read_csv(tmp_path / "3-recorded" / "jobs.csv")) == 24
    page = (tmp_path / "whatif.html").read_text()
    assert "recorded: the schedule that the trace records, not simulated." in page
    assert len(answer.next_gpus) == 0
    assert any(line.split()[:1] == ["recorded"] for line in str(answer).splitlines())


def test_a_record_that_does_not_fit_is_told():
    few = whatif(recorded_log(), ["a100:4"], next_gpus=0)
    assert re.fullmatch(r"the recorded schedule has up to \d+ GPUs in use, a100:4 has 4", few.notes[-1])
    two = whatif(recorded_log(), ["a100:4,k80:4"], next_gpus=0, settings={"gang_rates": "duration"})
    assert two.recorded is None
    assert two.notes[-1].startswith("the recorded schedule is left out: ")
    assert whatif(log(), ["a100:4"], next_gpus=0).side_by_side[-1].label != "recorded"


def test_the_record_stands_beside_the_row_at_its_load():
    start = log().arrival_time + 500.0
    ended = log(
        recorded_start_seconds=start, recorded_end_seconds=start + log().duration, recorded_status=["completed"] * 24
    )
    loads = whatif(ended, ["a100:4"], loads=[0.5, 1.0], next_gpus=0)
    waits = [hours(row.figures["average_queueing_time"]) for row in loads.rows]
    assert loads.calibration.table.loc[0, "simulated"] == loads.rows[1].figures["average_queueing_time"]
    assert f"Under slurm they would have waited {waits[1]}" in loads.answer
    assert loads.answer.endswith(f"Jobs would wait {waits[0]} at load 0.5.")
    assert whatif(ended, ["a100:4"], loads=[0.5], next_gpus=0).answer.startswith("Under slurm at load 0.5 jobs wait")


@pytest.mark.exhaustive
def test_every_row_is_the_simulation_of_its_circumstances(answer):
    labels = [row.label for row in answer.rows]
    assert len(labels) == len(set(labels)) == 16
    assert labels[1] == "a100:4, load 1.5, restart_penalty_seconds=0, max_min_fairness"
    assert labels[-1] == "a100:6, load 1, restart_penalty_seconds=60, max_min_fairness"
    trace = log(10)
    for row in answer.rows:
        expected = allocator.simulate(
            trace.at_load(row.load),
            row.cluster,
            allocator.get_policy(row.policy),
            preset=preset("default").replace(restart_penalty_seconds=row.changes["restart_penalty_seconds"]),
            prices={"a100": 2.0},
        )
        assert without_times(row.figures) == without_times(expected.summary())
        pd.testing.assert_frame_equal(
            row.jobs.astype({"status": str}), expected.jobs.astype({"status": str}), check_dtype=False
        )


def test_the_first_row_has_ratios_of_1_and_the_others_are_over_it(answer):
    table = answer.table
    ratios = [name for name in table if name.endswith("_ratio")]
    assert {"average_jct_ratio", "owned_cost_ratio", "loaded_utilization_ratio"} <= set(ratios)
    first = table.loc[0, ratios].astype(float)
    assert (first[first.notna()] == 1.0).all()
    for name in ratios:
        value = table[name.removesuffix("_ratio")].astype(float)
        np.testing.assert_allclose(table[name].astype(float), value / value[0] if value[0] else np.nan)


def test_the_next_gpus_are_the_difference_to_the_larger_cluster(answer):
    row, more = answer.rows[0], answer.rows[0].next_gpus["a100"]
    free = {"restart_penalty_seconds": 0}
    larger = whatif(log(10), "a100:6", "fifo", loads=[1.5], settings=free, prices={"a100": 2.0}, next_gpus=0).rows[0]
    assert without_times(more.figures) == without_times(larger.figures)
    change = answer.next_gpus.iloc[0]
    assert (change["accelerator"], change["gpus"]) == ("a100", 2)
    assert change["average_jct_change"] == pytest.approx(larger.figures["average_jct"] - row.figures["average_jct"])
    assert change["owned_cost_change"] == pytest.approx(larger.figures["owned_cost"] - row.figures["owned_cost"])
    assert len(answer.next_gpus) == 16


@pytest.mark.exhaustive
def test_types_that_differ_need_a_table_and_have_a_worth_each():
    (none_yet,) = whatif(log(8), "a100:2,h100:0", next_gpus=4).rows
    more = none_yet.next_gpus["h100"]
    assert str(none_yet.cluster) == "a100:2,h100:0"
    assert more.figures["average_jct"] < none_yet.figures["average_jct"]
    drawn = TraceGenerator(n_jobs=12, mean_interarrival=300, seed=2, table=default_table()).generate()
    (row,) = whatif(drawn, "v100:2,k80:2", "max_min_fairness_perf").rows
    assert list(row.next_gpus) == ["v100", "k80"]
    assert set(row.prices) == {"v100", "k80"}
    assert row.price_unit == "normalised throughput"
    with pytest.raises(InputError, match="model-0"):
        whatif(log(), "v100:2,k80:2")


@pytest.fixture
def scenarios(tmp_path):
    """Makes scenarios of eight jobs on four GPUs, with changes."""
    file = tmp_path / "jobs.csv"
    write_trace(log(8), file)

    def make(**changes):
        usual = {"trace": str(file), "clusters": (allocator.Cluster.of("a100:4"),), "policies": read_variants("fifo")}
        return Scenarios(**usual | changes)

    return make


def test_next_gpus_are_simulated_unasked_where_that_takes_few_runs(scenarios):
    assert scenarios().more_gpus == 1
    many = scenarios(loads=tuple(range(1, 10)))
    assert many.more_gpus == 0
    assert len(many.sweep.points()) == 9
    asked = scenarios(loads=tuple(range(1, 10)), next_gpus=1)
    assert (asked.more_gpus, len(asked.sweep.points())) == (1, 18)
    # eight further runs are few: of one cluster, or of two of which one is the other with one GPU more
    four, five = allocator.Cluster.of("a100:4"), allocator.Cluster.of("a100:5")
    for clusters in ((four,), (four, five)):
        assert scenarios(clusters=clusters, loads=tuple(range(1, 9))).more_gpus == 1
    # all dimensions count
    three = tuple(range(1, 4))
    assert scenarios(loads=three, vary={"round_seconds": [60.0, 120.0, 360.0]}).more_gpus == 0
    # the larger of the two is the smaller one with another GPU
    two = scenarios(clusters=(allocator.Cluster.of("a100:4"), allocator.Cluster.of("a100:5")))
    assert sorted({point.cluster for point in two.sweep.points()}) == ["a100:4", "a100:5", "a100:6"]


def test_gangs_larger_than_a_cluster_are_named_and_left_out():
    answer = whatif(log(), ["a100:8", "a100:2"], next_gpus=2)
    (note,) = answer.notes
    wide = int((log().scale_factor > 2).sum())
    assert note.startswith(f"a100:2: {wide} of 24 jobs need more GPUs")
    assert f"24 jobs, up to {wide} of them left out as too large" in str(answer)
    changes = answer.next_gpus.set_index("row")["average_jct_change"]
    # with two more GPUs the gangs of 4 run as well: those would be averages of other jobs
    assert math.isnan(changes["a100:2"])
    assert not math.isnan(changes["a100:8"])


def test_a_run_that_is_cut_short_shows_nothing_that_hangs_on_who_completed():
    answer = whatif(log(), ["a100:16", "a100:4"], settings={"max_waiting_jobs": 3}, next_gpus=0)
    assert [row.status for row in answer.rows] == ["completed", "saturated"]
    assert answer.rows[1].figures["average_jct"] is None
    assert answer.rows[1].figures["completed_jobs"] < 24
    assert answer.notes == [f"a100:4 saturated: {answer.rows[1].status_detail}"]


def test_what_is_asked_for_is_in_every_point(scenarios):
    cluster = allocator.Cluster({"a100": 4}, {"a100": 2})
    varied = {"round_seconds": [120.0, 360.0]}
    asked = scenarios(clusters=(cluster,), seed=7, next_gpus=1, vary=varied, settings={"preset": "gavel"})
    assert [each.row.label for each in asked.rows] == ["round_seconds=120.0", "round_seconds=360.0"]
    two = scenarios(clusters=tuple(map(allocator.Cluster.of, ("a100:4,v100:2", "a100:8,v100:2"))))
    assert [each.row.label for each in two.rows] == ["a100:4", "a100:8"]
    points = {
        (p.cluster, p.gpus_per_server, p.seed, p.preset, p.settings["round_seconds"]) for p in asked.sweep.points()
    }
    assert points == {
        (gpus, "a100:2", 7, "gavel", seconds) for gpus in ("a100:4", "a100:5") for seconds in varied["round_seconds"]
    }


@pytest.mark.exhaustive
def test_deadlines_are_drawn_by_the_seed_and_users_are_entities():
    drawn = [whatif(log(8), "a100:8", slos=True, seed=seed, next_gpus=0).rows[0] for seed in (1, 1, 2)]
    first, again, other = (row.jobs["deadline"].to_numpy(dtype=float) for row in drawn)
    assert (first > drawn[0].jobs["arrival_time"]).all()
    assert (first == again).all()
    assert (first != other).any()
    assert drawn[0].figures["deadline_ratio"] is not None
    owned = log(8, user=["ada", "ben"] * 4)
    (row,) = whatif(owned, "a100:4", "max_min_fairness_water_filling", entities_by="user", next_gpus=0).rows
    assert [entity["entity"] for entity in row.figures["by_entity"]] == ["ada", "ben"]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"clusters": ()}, "'clusters'"),
        ({"clusters": (allocator.Cluster.of("a100:4"),) * 2}, "'clusters' a100:4"),
        ({"loads": (1.0, 1.0)}, "'loads'"),
        ({"loads": (-1.0,)}, "-1.0"),
        ({"vary": {"restart_penalty_seconds": [5.0, 5.0]}}, "once"),
        ({"vary": {"restart_penalty_seconds": [-5.0]}}, "restart_penalty_seconds"),
        ({"policies": read_variants("fifoo")}, "'fifo'"),
        ({"next_gpus": -1}, "-1"),
        ({"vary": {"round_second": [1.0]}}, "'round_seconds'"),
        ({"workload": {"entities_by": "team"}}, "user partition"),
        ({"workload": {"prices": "none.csv"}}, "none.csv"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_runs(scenarios, changes, words):
    with pytest.raises(InputError) as caught:
        scenarios(**changes)
    assert [word for word in words.split() if word not in str(caught.value)] == [], caught.value
    assert "\n" not in str(caught.value)


def test_a_run_that_fails_is_a_row_with_its_reason(monkeypatch):
    def fail(_self, _state):
        raise ValueError("no such luck")

    monkeypatch.setattr(type(allocator.get_policy("isolated")), "allocate", fail)
    answer = whatif(log(6), "a100:4", ["fifo", "isolated"], next_gpus=0)
    assert [row.status for row in answer.rows] == ["completed", "failed"]
    assert answer.failed == ["isolated failed: ValueError: no such luck"]
    assert (answer.rows[1].jobs, answer.n_jobs) == (None, 6)
    assert math.isnan(answer.table["average_jct_ratio"][1])
    # where every run fails there is still an answer
    answer = whatif(log(6), "a100:4", "isolated", next_gpus=1)
    assert len(answer.failed) == 2
    assert answer.failed[1].startswith("a100:4 with 1 more a100 failed")
    assert answer.table["status"].tolist() == answer.next_gpus["status"].tolist() == ["failed"]
    assert "failed" in str(answer)
    assert "failed" in render_page(answer)


@pytest.mark.exhaustive
def test_files_and_what_is_not_run_again(tmp_path):
    trace, out = tmp_path / "jobs.csv", tmp_path / "out"
    write_trace(log(), trace)
    first = whatif(trace, ["a100:8", "a100:12"], out=out)
    kept = {path: path.stat().st_mtime_ns for path in (out / "runs" / "points").iterdir()}
    again = whatif(trace, ["a100:8", "a100:12", "a100:16"], out=out)
    assert {path: path.stat().st_mtime_ns for path in kept} == kept
    pd.testing.assert_frame_equal(again.table.iloc[:2], first.table)
    assert pd.read_csv(out / "rows.csv")["row"].tolist() == ["a100:8", "a100:12", "a100:16"]
    assert len(pd.read_csv(out / "3-a100-16" / "jobs.csv")) == 24
    told = json.loads((out / "whatif.json").read_text())["rows"]
    assert [row["row"] for row in told] == again.table["row"].tolist()
    assert told[0]["ratios"]["average_jct"] == 1.0
    assert told[0]["next_gpus"][0]["changes"]["average_jct"] <= 0
    write_trace(read_trace(trace).head(20), trace)
    assert whatif(trace, ["a100:8"], out=out).n_jobs == 20
