"""Running sweeps: results, what is run again and what is not, saturation, processes that die."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

import allocator
from allocator.presets import preset
from allocator.sweep import Point, Sweep, load, load_jobs, run
from allocator.sweep.engines.engine import Ended, Lost, Task
from allocator.sweep.engines.local import LocalEngine
from allocator.sweep.execute import Materials, Outcome, run_point
from allocator.sweep.progress import Display
from allocator.sweep.saturation import first_saturated
from allocator.sweep.store import Store
from allocator.sweep.summary import summary_table
from tests.sweep.sweep_definitions import OF_THE_MOMENT, TINY, continuous, static
from throughputs import InputError, default_table, gavel_trace

DOCS = Path(__file__).resolve().parents[2] / "docs" / "sweeps.md"


def single(point: Point, **options) -> Outcome:
    return run_point(point, Materials.of([point]), log=lambda _: None, report=lambda _: None, **options)


def measured(table: pd.DataFrame) -> pd.DataFrame:
    return table.drop(columns=list(OF_THE_MOMENT))


# One run


def test_a_run_is_the_simulation_that_it_describes():
    point = Sweep.from_dict(continuous(policies=["max_min_fairness_perf"], settings={"preset": "gavel"})).points()[-1]

    def jobs(n):
        return gavel_trace(n, 3600 / point.load, seed=1, whole_steps=False)

    expected = allocator.simulate(
        jobs(20),
        allocator.Cluster.parse(TINY),
        allocator.get_policy("max_min_fairness_perf", choice="published"),
        default_table(),
        preset=preset("gavel"),
        seed=1,
        window=(10, 20),
        extend=jobs,
    ).summary()
    record = single(point).record
    assert (record["status"], record["point"]) == ("completed", point.key)
    assert record["version"] == allocator.sweep.execute.package_version()
    timed = {"policy_seconds", "wall_seconds"}
    assert {k: v for k, v in record["figures"].items() if k not in timed} == {
        k: v for k, v in expected.items() if k not in timed
    }
    json.dumps(record)


def test_what_fails_is_a_result():
    # The embedded table has no figures for gangs spread over servers.
    point = Point("static", "fifo_perf", TINY, 5, 0, settings={"unconsolidated_throughputs": True})
    lines: list[str] = []
    outcome = run_point(point, Materials.of([point]), log=lines.append, report=lambda _: None)
    assert outcome.record["status"] == "failed"
    assert outcome.record["status_detail"].startswith("InputError: ")
    assert any("Traceback" in line for line in lines)


def test_an_unknown_accelerator_is_told_before_anything_runs(tmp_path):
    with pytest.raises(InputError, match="a100"):
        run(Sweep.from_dict(static(clusters=["a100:4"])), tmp_path / "out")
    assert not (tmp_path / "out").exists()


# A sweep


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sweep")
    sweep = Sweep.from_dict(
        static(workload={"priorities": True, "prices": {"v100": 2.0, "p100": 1.0, "k80": 0.5}}, keep_jobs=True)
    )
    return folder, sweep, run(sweep, folder, jobs=2)


def test_one_row_per_run(finished):
    folder, sweep, table = finished
    assert list(table["point"]) == [point.key for point in sweep.points()]
    assert set(table["status"]) == {"completed"}
    assert list(table["submitted_jobs"]) == list(table["jobs"]) == [5, 5, 8, 8]
    assert (table["cost"] > 0).all()
    assert (table["makespan"] >= table["average_jct"]).all()
    pd.testing.assert_frame_equal(load(folder), table)
    written = pd.read_parquet(folder / "results.parquet")
    pd.testing.assert_frame_equal(measured(written), measured(table), check_dtype=False)


def test_figures_by_weight(finished):
    folder, _, table = finished
    jobs = load_jobs(folder)
    for row in table.to_dict("records"):
        own = jobs[jobs["point"] == row["point"]]
        assert len(own) == row["submitted_jobs"]
        assert own["jct"].mean() == pytest.approx(row["average_jct"])
        if own["priority_weight"].nunique() == 2:
            heavy = own[own["priority_weight"] == 5]
            assert heavy["jct"].mean() == pytest.approx(row["average_jct_weight_5"])
            assert len(heavy) == row["jobs_weight_5"]


def test_every_run_has_a_log(finished):
    folder, sweep, _ = finished
    for point in sweep.points():
        text = Store(folder).log_path(point).read_text()
        assert point.key in text
        assert text.strip().endswith("completed")


def test_a_second_call_runs_nothing(finished):
    folder, sweep, table = finished
    before = {path: path.stat().st_mtime_ns for path in (folder / "points").iterdir()}
    again = run(sweep, folder, jobs=2)
    assert {path: path.stat().st_mtime_ns for path in (folder / "points").iterdir()} == before
    pd.testing.assert_frame_equal(again, table)


def test_columns_are_documented(finished):
    _, _, table = finished
    documented = set(re.findall(r"`([a-z0-9_]+)`", DOCS.read_text()))
    documented |= {f"{name}_weight_{w}" for name in ("jobs", "average_jct", "p99_jct", "average_rho") for w in (1, 5)}
    assert set(table.columns) <= documented


def test_the_examples_of_the_page_run(tmp_path, monkeypatch, capsys):
    text = DOCS.read_text()
    (tmp_path / "mine.toml").write_text(re.findall(r"```toml\n(.*?)```", text, flags=re.DOTALL)[0])
    full, small = Sweep.from_toml(tmp_path / "mine.toml"), Sweep.from_toml(tmp_path / "mine.toml", small=True)
    assert len(full.points()) == 15 * len(small.points())
    monkeypatch.chdir(tmp_path)
    code = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)[0]
    exec(compile(code, "sweeps.md", "exec"), {"__name__": "page"})
    assert "min_total_duration_perf" in capsys.readouterr().out


def test_only_what_is_missing_is_run(tmp_path):
    run(Sweep.from_dict(static(seeds=[0])), tmp_path, jobs=1)
    kept = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "points").iterdir()}
    damaged = sorted(kept)[0]
    (tmp_path / "points" / damaged).write_text('{"point": ')
    assert len(load(tmp_path)) == 1
    table = run(Sweep.from_dict(static(seeds=[0, 1])), tmp_path, jobs=1)
    assert len(table) == 4
    for name, changed in kept.items():
        assert ((tmp_path / "points" / name).stat().st_mtime_ns == changed) == (name != damaged)
    narrower = run(Sweep.from_dict(static(seeds=[1])), tmp_path, jobs=1)
    assert set(narrower["seed"]) == {1}
    assert len(list((tmp_path / "points").iterdir())) == 4


def test_jobs_that_are_wanted_later_are_made(tmp_path):
    run(Sweep.from_dict(static(seeds=[0])), tmp_path, jobs=1)
    with pytest.raises(InputError, match="keep_jobs"):
        load_jobs(tmp_path)
    run(Sweep.from_dict(static(seeds=[0], keep_jobs=True)), tmp_path, jobs=1)
    assert len(load_jobs(tmp_path)) == 5 + 8


def test_failed_runs_are_kept_until_a_retry_is_wanted(tmp_path):
    sweep = Sweep.from_dict(static(settings={"unconsolidated_throughputs": True}, seeds=[0], jobs=[5]))
    first = run(sweep, tmp_path, jobs=1)
    assert first["status"].tolist() == ["failed"]
    assert first["average_jct"].isna().all()
    path = next((tmp_path / "points").iterdir())
    record = json.loads(path.read_text())
    path.write_text(json.dumps(record | {"status_detail": "as it was"}))
    assert run(sweep, tmp_path, jobs=1)["status_detail"].tolist() == ["as it was"]
    assert run(sweep, tmp_path, jobs=1, retry_failed=True)["status_detail"].tolist() == first["status_detail"].tolist()


@pytest.mark.parametrize(("options", "field"), [({"jobs": 0}, "jobs"), ({"engine": "slurm"}, "engine")])
def test_bad_options(tmp_path, options, field):
    with pytest.raises(InputError, match=field):
        run(Sweep.from_dict(static()), tmp_path, **options)


def test_a_folder_that_is_no_sweep(tmp_path):
    with pytest.raises(InputError, match=r"sweep\.json"):
        load(tmp_path)
    (tmp_path / "sweep.json").write_text('{"format": 99}')
    with pytest.raises(InputError, match="format"):
        load(tmp_path)


# Saturation


def test_saturation_ends_a_series(tmp_path):
    definition = continuous(
        policies=["isolated", "fifo_perf"], rates=[0.1, 40.0, 60.0], settings={"max_waiting_jobs": 15}
    )
    table = run(Sweep.from_dict(definition), tmp_path, jobs=2)
    for _, series in table.groupby("policy"):
        assert series["status"].tolist() == ["completed"] * 2 + ["saturated"] * 4
        assert series["by_rule"].tolist() == [False] * 3 + [True] * 3
        assert series["saturated_load"].tolist()[2:] == [40.0] * 4
        assert series["average_jct"].isna().tolist() == [False] * 2 + [True] * 4
        assert "jobs waiting" in series["status_detail"].iloc[2]
        assert series["status_detail"].iloc[5] == "not run: saturated at 40 jobs/h with seed 0"
    # The same results, whoever ran beside whom.
    alone = run(Sweep.from_dict(definition), tmp_path / "alone", jobs=1)
    pd.testing.assert_frame_equal(measured(alone), measured(table))
    assert len(list((tmp_path / "alone" / "points").iterdir())) == 6  # of 12 points
    # Every point on its own, if that is wanted; what has run stays.
    every = run(Sweep.from_dict(definition | {"skip_saturated": False}), tmp_path, jobs=2)
    assert not every["by_rule"].any()
    assert every["rounds"].notna().all()


@given(
    st.lists(
        st.tuples(st.sampled_from("ab"), st.integers(1, 4), st.integers(0, 3), st.booleans()),
        max_size=30,
        unique_by=lambda p: p[:3],
    )
)
def test_the_first_saturated_place_is_the_smallest(places):
    named = [(f"{s}{a}{b}", s, (float(a), b)) for s, a, b, _ in places]
    records = {key: {"status": "saturated" if bad else "completed"}
               for (key, _, _), (*_, bad) in zip(named, places, strict=True)}  # fmt: skip
    first = first_saturated(named, records)
    for series in "ab":
        bad = [place for (_, s, place), (*_, is_bad) in zip(named, places, strict=True) if is_bad and s == series]
        assert first.get(series) == (min(bad) if bad else None)


# Processes that die


def test_a_killed_process_loses_its_run_only(tmp_path):
    points = Sweep.from_dict(continuous(policies=["max_min_fairness"], rates=[0.5], window=[3000, 4000])).points()
    quick = Sweep.from_dict(static(seeds=[0])).points()[0]
    engine = LocalEngine(Materials.of(points), 2)
    try:
        engine.start(Task(points[0], False, tmp_path / "a.log"))
        engine.start(Task(quick, False, tmp_path / "b.log"))
        victim = next(worker for worker in engine._workers if worker.key == points[0].key)
        os.kill(victim.process.pid, signal.SIGKILL)
        over: dict[str, Ended | Lost] = {}
        deadline = time.monotonic() + 300
        while len(over) < 2 and time.monotonic() < deadline:
            over |= {event.key: event for event in engine.wait(1.0) if isinstance(event, Ended | Lost)}
        lost, ended = over[points[0].key], over[quick.key]
        assert isinstance(lost, Lost)
        assert lost.reason == "its process ended by signal 9"
        assert isinstance(ended, Ended)
        # The engine goes on.
        engine.start(Task(quick, False, tmp_path / "c.log"))
        again: list[object] = []
        while not again and time.monotonic() < deadline:
            again = [event for event in engine.wait(1.0) if isinstance(event, Ended)]
        assert again
    finally:
        engine.close()


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_a_killed_sweep_is_continued(tmp_path, how):
    arguments = ["sweep", "static", "--jobs", "10,20,400", "--seeds", "0:4", "--cluster", TINY, "-j", "2",
                 "--policies", "max_min_fairness_perf", "--preset", "gavel", "--out", str(tmp_path)]  # fmt: skip
    command = [sys.executable, "-m", "allocator", *arguments]
    # Where the tests run in the background, SIGINT is ignored by them and by what they start.
    process = subprocess.Popen(
        command,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    deadline = time.monotonic() + 300
    while len(list(tmp_path.glob("points/*.json"))) < 3 and time.monotonic() < deadline:
        assert process.poll() is None
        time.sleep(0.02)
    process.send_signal(how)
    _, errors = process.communicate(timeout=300)
    assert process.returncode == (-9 if how == signal.SIGKILL else 130), errors
    kept = {path: path.stat().st_mtime_ns for path in tmp_path.glob("points/*.json")}
    assert 3 <= len(kept) < 12
    for path in kept:
        json.loads(path.read_text())
    partial = load(tmp_path)
    assert len(partial) == len(kept)
    done = subprocess.run([*command, "--json"], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["points"] == 12
    assert {path: path.stat().st_mtime_ns for path in kept} == kept
    table = load(tmp_path)
    assert table["status"].tolist() == ["completed"] * 12
    same = table[table["point"].isin(partial["point"])].reset_index(drop=True)
    np.testing.assert_array_equal(same["average_jct"], partial["average_jct"])


# What is seen of it


def test_progress_on_a_terminal():
    first, second, third = Sweep.from_dict(static(jobs=[5], seeds=[0, 1, 2])).points()
    screen = Console(file=io.StringIO(), force_terminal=True, width=160)
    display = Display(4, screen)
    assert display.remaining_text() == ""
    display.settle(1)
    display.begin(first)
    display.begin(second)
    display.advance(first.key, 0.5)
    assert re.fullmatch(r"about \d+ s left", display.remaining_text())
    display.end(first, "completed")
    display.end(second, "saturated")
    display.settle(1)
    display.close()
    assert display.remaining_text() == ""
    written = screen.file.getvalue()
    assert "fifo_perf, 5 jobs, seed 0: completed" in written
    assert "3 of 4: fifo_perf, 5 jobs, seed 1: saturated" in written
    assert third.label not in written


def test_the_table_on_the_screen_has_means_over_seeds(finished):
    _, _, table = finished
    screen = Console(file=io.StringIO(), width=160)
    screen.print(summary_table(table, title="mine", rows=1))
    written = screen.file.getvalue()
    assert f"{table['average_jct'][:2].mean() / 3600:.2f}" in written
    assert "1 more rows" in written


def test_a_sweep_of_which_nothing_has_run(tmp_path):
    sweep = Sweep.from_dict(static())
    store = Store(tmp_path)
    store.begin(sweep, sweep.points())
    assert len(load(tmp_path)) == 0
    assert len(store.write_results()) == 0
    assert len(pd.read_parquet(store.results)) == 0
    with pytest.raises(InputError, match="keep_jobs"):
        load_jobs(tmp_path)
