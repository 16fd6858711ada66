"""Running sweeps: results, what is run again and what is not, saturation, processes that die."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import allocator
from allocator.experiments.engines import LocalEngine, Task
from allocator.experiments.execute import Outcome
from allocator.experiments.run import Materials
from allocator.experiments.store import Store, first_saturated
from allocator.presets import preset
from allocator.results.summary import NUMBERS
from allocator.sweep import Point, Sweep, load, load_jobs, run
from tests.sweep.sweep_definitions import (
    DOCS,
    ENTITIES,
    TINY,
    continuous,
    decision,
    definition,
    measured,
    single,
    static,
    timeless,
    trace_of,
)
from tests.sweep.test_sweep_jobs import LOG
from throughputs import InputError, default_table, read_trace, write_trace

# One run is the simulation that it describes


@pytest.mark.exhaustive
def test_a_run_with_entities():
    own = static(policies=["max_min_fairness_water_filling_perf"], workload={"entities": ENTITIES})
    point = Sweep.from_dict(own).points()[-1]
    trace = trace_of(point, default_table())(8)
    options = {"seed": 1, "entities": point.owners(trace)}
    expected = allocator.simulate(trace, TINY, point.make_policy(), default_table(), **options).summary()
    assert timeless(single(point).record["figures"]) == timeless(dict(expected))


@pytest.fixture
def log(tmp_path):
    write_trace(LOG, tmp_path / "jobs.csv")
    return tmp_path / "jobs.csv"


def swept(log, **changes):
    return Sweep.from_dict(definition("trace", workload={"trace": str(log)}) | changes)


def test_a_run_of_a_denser_trace_and_its_prices(log):
    (point,) = swept(log, loads=[2.0], settings={"restart_penalty_seconds": 60.0}).points()
    assert "load 2" in point.label
    chosen = preset("default").replace(restart_penalty_seconds=60.0)
    trace = read_trace(log)
    expected = allocator.simulate(trace.at_load(2.0), "a100:4", allocator.get_policy("fifo"), preset=chosen)
    record = single(point).record
    assert timeless(record["figures"]) == timeless(dict(expected.summary()))
    assert record["prices"] == {}  # an order has no prices
    # prices are averaged over the time in which decisions hold
    (point,) = swept(log, policies=["max_min_fairness_perf"]).points()
    prices = single(point).record["prices"]
    result = allocator.simulate(trace, "a100:4", point.make_policy())
    rows, decisions = result.timeline, result.decisions
    clocks = [clock for _, clock, _ in decisions]
    held = [decisions[np.searchsorted(clocks, start, "right") - 1][2].prices[0] for start in rows["start_time"]]
    assert prices["average_prices"]["a100"] == pytest.approx(
        np.average(held, weights=rows["end_time"] - rows["start_time"])
    )
    assert prices["price_unit"] == decisions[0][2].objective_unit


def test_what_fails_is_a_result():
    # The embedded table has no figures for gangs spread over servers.
    point = Point("static", "fifo_perf", TINY, 5, 0, settings={"unconsolidated_throughputs": True})
    lines: list[str] = []
    outcome = single(point, log=lines.append)
    assert outcome.record["status"] == "failed"
    assert outcome.record["status_detail"].startswith("InputError: ")
    assert any("Traceback" in line for line in lines)


def test_what_cannot_run_is_said_before_anything_does(log, tmp_path):
    def told(sweep, **options):
        with pytest.raises(InputError) as caught:
            run(sweep, tmp_path / "out", **options)
        return str(caught.value)

    assert "a100" in told(Sweep.from_dict(static(clusters=["a100:4"])))
    assert "unet" in told(swept(log, clusters=["a100:4", "a100:2,v100:2"]))
    assert "h100" in told(swept(log, clusters=["a100:4,h100:4"], workload={"trace": str(log), "prices": {"a100": 2.0}}))
    for options in ({"jobs": 0}, {"engine": "slurm"}):
        assert all(str(word) in told(swept(log), **options) for word in next(iter(options.items())))
    log.write_text("job_type,scale_factor,total_steps,arrival_time\n")
    assert "no jobs" in told(swept(log))
    assert not (tmp_path / "out").exists()


# A sweep


def stamps(folder):
    return {path.name: path.stat().st_mtime_ns for path in (folder / "points").iterdir()}


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sweep")
    workload = {"priorities": True, "prices": {"v100": 2.0, "p100": 1.0, "k80": 0.5}}
    sweep = Sweep.from_dict(static(workload=workload, keep_jobs=True))
    return folder, sweep, run(sweep, folder, jobs=1)


def test_one_row_per_run(finished):
    folder, sweep, table = finished
    assert list(table["point"]) == [point.key for point in sweep.points()]
    assert set(table["status"]) == {"completed"}
    assert list(table["submitted_jobs"]) == list(table["jobs"]) == [5, 5, 8, 8]
    assert (table["cost"] > 0).all()
    pd.testing.assert_frame_equal(load(folder), table)
    written = pd.read_parquet(folder / "results.parquet")
    pd.testing.assert_frame_equal(measured(written), measured(table), check_dtype=False)
    jobs = load_jobs(folder)
    for row in table.to_dict("records"):
        own = jobs[jobs["point"] == row["point"]]
        assert (len(own), own["jct"].mean()) == (row["submitted_jobs"], pytest.approx(row["average_jct"]))
        heavy = own[own["priority_weight"] == 5]
        if 0 < len(heavy) < len(own):
            assert (len(heavy), heavy["jct"].mean()) == (
                row["jobs_weight_5"], pytest.approx(row["average_jct_weight_5"]),
            )  # fmt: skip
    for point in sweep.points():
        text = Store(folder).log_path(point).read_text()
        assert point.key in text
        assert text.strip().endswith("completed")


def test_a_second_call_runs_nothing(finished):
    folder, sweep, table = finished
    before = stamps(folder)
    pd.testing.assert_frame_equal(run(sweep, folder, jobs=1), table)
    assert stamps(folder) == before


@pytest.mark.exhaustive
def test_the_example_of_the_page_runs(tmp_path, monkeypatch, capsys):
    text = DOCS.read_text()
    (tmp_path / "mine.toml").write_text(re.findall(r"```toml\n(.*?)```", text, flags=re.DOTALL)[0])
    full, small = (Sweep.from_toml(tmp_path / "mine.toml", small=small) for small in (False, True))
    assert len(full.points()) == 15 * len(small.points())
    monkeypatch.chdir(tmp_path)
    code = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)[0]
    exec(compile(code, "sweeps.md", "exec"), {"__name__": "page"})
    assert "min_total_duration_perf" in capsys.readouterr().out


@pytest.mark.exhaustive
def test_only_what_is_missing_is_run(tmp_path):
    def table(**changes):
        return run(Sweep.from_dict(static(**changes)), tmp_path, jobs=1)

    table(seeds=[0])
    kept = stamps(tmp_path)
    damaged = sorted(kept)[0]
    (tmp_path / "points" / damaged).write_text('{"point": ')
    assert len(load(tmp_path)) == 1
    with pytest.raises(InputError, match="keep_jobs"):
        load_jobs(tmp_path)
    assert len(table()) == 4
    assert {name for name, changed in kept.items() if stamps(tmp_path)[name] != changed} == {damaged}
    assert set(table(seeds=[1])["seed"]) == {1}
    assert len(stamps(tmp_path)) == 4
    # tables of jobs that are wanted later are made
    table(seeds=[0], keep_jobs=True)
    assert len(load_jobs(tmp_path)) == 5 + 8


@pytest.mark.exhaustive
def test_failed_runs_are_kept_until_a_retry_is_wanted(tmp_path):
    sweep = Sweep.from_dict(static(settings={"unconsolidated_throughputs": True}, seeds=[0], jobs=[5]))
    first = run(sweep, tmp_path, jobs=1)
    assert first["status"].tolist() == ["failed"]
    assert first["average_jct"].isna().all()
    path = next((tmp_path / "points").iterdir())
    path.write_text(json.dumps(json.loads(path.read_text()) | {"status_detail": "as it was"}))
    assert run(sweep, tmp_path, jobs=1)["status_detail"].tolist() == ["as it was"]
    assert run(sweep, tmp_path, jobs=1, retry_failed=True)["status_detail"].tolist() == first["status_detail"].tolist()


def test_folders_of_which_nothing_has_run(tmp_path):
    for text in ("", '{"format": 99}'):
        if text:
            (tmp_path / "sweep.json").write_text(text)
        with pytest.raises(InputError, match=r"format" if text else r"sweep\.json"):
            load(tmp_path)
    sweep = Sweep.from_dict(static())
    store = Store(tmp_path)
    store.begin(sweep, sweep.points())
    assert len(load(tmp_path)) == len(store.write_results()) == len(pd.read_parquet(store.results)) == 0


# Decisions and jobs that change


@pytest.mark.parametrize("policy", ["max_min_fairness_perf", "max_min_fairness_packed", "gandiva"])
def test_a_decision_is_that_of_the_policy_on_jobs_as_they_are(policy):
    """Valued at the truth, also where the policy sees estimates of what pairs do."""
    for estimated in (False, True):
        workload = {"generator": "gavel", "multi_gpu": not estimated}
        if estimated:
            workload |= {"profiling_percentage": 0.1, "reference_models": 2}
        own = decision(policies=[policy], workload=workload, settings={"preset": "gavel"})
        point = Sweep.from_dict(own).points()[-1]
        outcome = single(point, keep_jobs=True)
        figures, jobs = outcome.record["figures"], outcome.jobs
        table = allocator.load_throughputs(colocated=True)
        trace = trace_of(point, table)(9)
        cluster = allocator.Cluster.parse(TINY)
        rates = table.rates(trace.job_type, trace.scale_factor, cluster.accelerators)
        shares = np.column_stack([jobs[f"share_{name}"] for name in cluster.accelerators])
        alone = (np.asarray(rates) * shares).sum(axis=1)
        together = (jobs["paired_share"] > 0).to_numpy()
        np.testing.assert_allclose(jobs["throughput"][~together], alone[~together], rtol=1e-12)
        assert (jobs["throughput"][together] >= alone[together]).all()
        assert (shares.sum(axis=1) + jobs["paired_share"]).between(0, 1 + 1e-7).all()
        assert figures["decision_seconds"] > 0
        assert (jobs["normalised_throughput"] > 0).sum() == 9 - figures["unserved_jobs"]
        assert figures["total_normalised_throughput"] == pytest.approx(jobs["normalised_throughput"].sum())
        packs = policy != "max_min_fairness_perf"
        assert ("estimation_error" in figures) == (estimated and packs)
        assert (figures["objective"] is None) == (policy == "gandiva")


@pytest.fixture(scope="module")
def decided(tmp_path_factory):
    folder = tmp_path_factory.mktemp("decisions")
    workload = {"generator": "gavel", "entities": ENTITIES}
    own = {"policies": ["max_min_fairness_water_filling_perf"], "jobs": [6, 12], "workload": workload}
    sweep = Sweep.from_dict(decision(**own, keep_jobs=True, repetitions=2))
    return folder, sweep, run(sweep, folder, jobs=1)


@pytest.mark.exhaustive
def test_jobs_go_to_entities_in_turn(decided):
    folder, sweep, table = decided
    pd.testing.assert_frame_equal(run(sweep, folder, jobs=1), table)
    for (_, rows), (_, row) in zip(load_jobs(folder).groupby("point", sort=False), table.iterrows(), strict=True):
        n = len(rows)
        assert rows["entity"].tolist() == (["first", "first", "second"] * n)[:n]
        shares = rows.groupby("entity")["normalised_throughput"].sum() / rows["normalised_throughput"].sum()
        assert row["throughput_share_entity_first"] == pytest.approx(shares["first"])
        assert (row["jobs_entity_second"], row["jobs_entity_above"]) == (n // 3, 0)


def test_of_repeated_decisions_the_first_is_not_measured(decided):
    assert decided[2]["measured_decisions"].tolist() == [2, 2]


def test_columns_are_documented(finished, decided):
    text = DOCS.read_text()
    documented = set(re.findall(r"`([a-z0-9_]+)`", text))
    for table in (finished[2], decided[2]):
        columns = {re.sub(r"_weight_[15]$|_entity_\w+$", "", name) for name in table.columns}
        assert {name for name in columns - documented - {*NUMBERS} if f"`{name}_entity_NAME`" not in text} == set()


@pytest.mark.exhaustive
def test_a_decision_that_takes_too_long_ends_its_series(tmp_path):
    own = decision(jobs=[8, 16, 32], max_decision_seconds=1e-9, repetitions=3)
    table = run(Sweep.from_dict(own), tmp_path, jobs=1)
    assert table["status"].tolist() == ["saturated"] * 3
    assert table["by_rule"].tolist() == [False, True, True]
    assert "1e-09" in table["status_detail"][0]
    assert table["measured_decisions"][0] == 1
    assert table["decision_seconds"].notna().tolist() == [True, False, False]


# Saturation


@pytest.mark.exhaustive
def test_saturation_ends_a_series(tmp_path):
    own = continuous(rates=[0.1, 40.0, 60.0], settings={"max_waiting_jobs": 15})
    table = run(Sweep.from_dict(own), tmp_path, jobs=2)
    for _, series in table.groupby("policy"):
        assert series["status"].tolist() == ["completed"] * 2 + ["saturated"] * 4
        assert series["by_rule"].tolist() == [False] * 3 + [True] * 3
        assert series["saturated_load"].tolist()[2:] == [40.0] * 4
        assert series["average_jct"].isna().tolist() == [False] * 2 + [True] * 4
        assert "jobs waiting" in series["status_detail"].iloc[2]
        assert series["status_detail"].iloc[5] == "not run: saturated at 40 jobs/h with seed 0"
    # the same results, whoever ran beside whom
    alone = run(Sweep.from_dict(own), tmp_path / "alone", jobs=1)
    pd.testing.assert_frame_equal(measured(alone), measured(table))
    assert len(stamps(tmp_path / "alone")) == 6  # of 12 points
    # every point on its own, if that is wanted; what has run stays
    every = run(Sweep.from_dict(own | {"skip_saturated": False}), tmp_path, jobs=1)
    assert not every["by_rule"].any()
    assert every["rounds"].notna().all()


def test_the_run_that_saturates_is_told_without_what_depends_on_its_last_jobs(finished):
    folder, _, table = finished
    store, records = Store(folder), Store(folder).records(table["point"])
    records[table["point"][2]]["status"] = "saturated"
    told = store.table(records)
    assert told["status"].tolist() == ["completed"] * 2 + ["saturated"] * 2
    assert told["by_rule"].tolist() == [False] * 3 + [True]
    assert told["average_jct"].notna().tolist() == [True] * 2 + [False] * 2
    assert told["rounds"][:3].tolist() == table["rounds"][:3].tolist()


places_of_runs = st.tuples(st.sampled_from("ab"), st.integers(1, 4), st.integers(0, 3), st.booleans())


@given(st.lists(places_of_runs, max_size=30, unique_by=lambda p: p[:3]))
def test_the_first_saturated_place_is_the_smallest(places):
    named = [(f"{s}{a}{b}", s, (float(a), b)) for s, a, b, _ in places]
    records = {f"{s}{a}{b}": {"status": "saturated" if bad else "completed"} for s, a, b, bad in places}
    first = first_saturated(named, records)
    for series in "ab":
        bad = [(float(a), b) for s, a, b, is_bad in places if is_bad and s == series]
        assert first.get(series) == min(bad, default=None)


# Processes that die


@pytest.mark.exhaustive
def test_a_killed_process_loses_its_run_only(tmp_path):
    points = Sweep.from_dict(continuous(policies=["max_min_fairness"], rates=[0.5], window=[3000, 4000])).points()
    quick = Sweep.from_dict(static(seeds=[0])).points()[0]
    engine = LocalEngine(Materials.of(points), 2)
    deadline = time.monotonic() + 300

    def over(*keys):
        found: dict[str, Outcome | str] = {}
        while not found.keys() >= set(keys) and time.monotonic() < deadline:
            found |= {key: news for key, news in engine.wait(1.0) if not isinstance(news, float)}
        return [found[key] for key in keys]

    try:
        engine.start(Task(points[0], False, tmp_path / "a.log"))
        engine.start(Task(quick, False, tmp_path / "b.log"))
        victim = next(worker for worker in engine._workers if worker.key == points[0].key)
        os.kill(victim.process.pid, signal.SIGKILL)
        lost, ended = over(points[0].key, quick.key)
        assert "signal 9" in lost
        assert isinstance(ended, Outcome)
        # the engine goes on
        engine.start(Task(quick, False, tmp_path / "c.log"))
        assert isinstance(over(quick.key)[0], Outcome)
    finally:
        engine.close()


@pytest.mark.exhaustive
@pytest.mark.parametrize("how", [pytest.param(signal.SIGKILL, marks=pytest.mark.exhaustive), signal.SIGINT])
def test_a_killed_sweep_is_continued(tmp_path, how):
    asked = "sweep static --jobs 5,10,100 --seeds 0:2 -j 2 --policies max_min_fairness_perf --preset gavel"
    command = [sys.executable, "-m", "allocator", *asked.split(), "--cluster", TINY, "--out", str(tmp_path)]
    # Where the tests run in the background, SIGINT is ignored by them and by what they start.
    process = subprocess.Popen(
        command,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    deadline = time.monotonic() + 300
    while len(list(tmp_path.glob("points/*.json"))) < 2 and time.monotonic() < deadline:
        assert process.poll() is None
        time.sleep(0.02)
    process.send_signal(how)
    _, errors = process.communicate(timeout=300)
    assert process.returncode == (-9 if how == signal.SIGKILL else 130), errors
    kept = {name: stamp for name, stamp in stamps(tmp_path).items() if name.endswith(".json")}
    assert 2 <= len(kept) < 6
    partial = load(tmp_path)
    assert len(partial) == len(kept)
    subprocess.run(command, capture_output=True, check=True)
    assert kept.items() <= stamps(tmp_path).items()
    table = load(tmp_path)
    assert table["status"].tolist() == ["completed"] * 6
    same = table[table["point"].isin(partial["point"])].reset_index(drop=True)
    np.testing.assert_array_equal(same["average_jct"], partial["average_jct"])


# What is seen of it
