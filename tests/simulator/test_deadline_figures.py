"""Figures of deadlines: who was in time by which measure, what was wasted, and cluster efficiency."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from allocator.cluster import Cluster
from allocator.presets import preset
from allocator.registry import get_policy
from allocator.report.html import render_report
from allocator.report.page.payload import efficiency_series
from allocator.report.terminal import comparison_table, extra_figures
from allocator.results.deadlines import deadline_figures
from allocator.results.efficiency import efficiency_table, single_gpu_rates
from allocator.results.output import save_result
from allocator.results.result import SimulationResult
from allocator.simulator import simulate
from tests.simulator.worlds import SharesPolicy, make_trace
from throughputs import Configurations, InputError, ThroughputTable, Trace

JOBS = pd.DataFrame(
    {
        "deadline": [10.0, 10.0, 10.0, np.nan, 10.0, np.nan],
        "met": [True, False, False, None, False, None],
        "value_kept": [1.0, 0.8, 0.0, np.nan, 0.0, np.nan],
        "status": ["completed", "completed", "rejected", "completed", "completed", "unfinished"],
        "jct": [9.0, 11.0, np.nan, 30.0, 99.0, np.nan],
        "gpu_seconds": [3600.0, 7200.0, 0.0, 100.0, 1800.0, 1.0],
    }
)


@pytest.mark.parametrize(
    ("measure", "ratio", "met", "late", "wasted"),
    [("first", 0.25, 1, 2, 2.5), ("last", 0.5, 2, 1, 0.5), ("value", 0.45, 2, 1, 0.5)],
)
def test_measures(measure: str, ratio: float, met: int, late: int, wasted: float) -> None:
    found = deadline_figures(JOBS, measure)
    assert found.pop("deadline_ratio") == pytest.approx(ratio)
    assert found.pop("value_miss_rate") == pytest.approx(0.55)
    assert found == {
        "deadline_jobs": 4,
        "admitted": 3,
        "rejected": 1,
        "met": met,
        "late": late,
        "best_effort_jobs": 2,
        "best_effort_average_jct": 30.0,
        "wasted_gpu_hours": wasted,
    }


def test_best_effort_that_cannot_run_is_not_a_deadline_that_was_rejected() -> None:
    jobs = JOBS.assign(status=JOBS["status"].where(JOBS.index != 5, "rejected"))
    assert deadline_figures(jobs) == deadline_figures(JOBS)


def test_with_one_deadline_each_all_measures_are_one() -> None:
    hard = JOBS.drop(columns="value_kept")
    assert deadline_figures(hard, "first") == deadline_figures(hard, "last") == deadline_figures(hard, "value")
    assert deadline_figures(hard)["value_miss_rate"] == 0.75
    assert deadline_figures(JOBS.drop(columns="deadline")) == {}
    assert deadline_figures(JOBS.iloc[[3, 5]])["deadline_ratio"] is None


def test_the_measure_is_a_setting_of_the_preset() -> None:
    with pytest.raises(InputError, match="deadline_measure"):
        preset("default").replace(deadline_measure="loosest")
    assert preset("default").as_dict()["deadline_measure"] == "first"


TABLE = ThroughputTable([("a", 1), ("a", 2), ("b", 2), ("b", 4)], ["a100"], [[1.0], [1.5], [3.0], [4.0]])
CLUSTER = Cluster({"a100": 4})


def run(measure: str = "first") -> SimulationResult:
    # On four GPUs at once: 720 s, 1440 s and 2160 s.
    trace = Trace(
        ["a", "a", "b"], [1, 1, 2], [720.0, 1440.0, 6480.0], [0.0] * 3,
        deadline=[720.0, np.nan, np.nan], deadline_options=[(), ((700.0, 10.0), (1500.0, 4.0)), ()],
    )  # fmt: skip
    settings = preset("default").replace(deadline_measure=measure)
    return simulate(trace, CLUSTER, get_policy("fifo"), TABLE, preset=settings)


def test_a_run_with_soft_deadlines(tmp_path: Path) -> None:
    result = run("value")
    jobs = result.jobs
    assert jobs["completion_time"].tolist() == [720.0, 1440.0, 2160.0]
    assert jobs["met"].tolist() == [True, False, None]
    assert np.array_equal(jobs["last_deadline"], [720.0, 1500.0, np.nan], equal_nan=True)
    assert np.array_equal(jobs["value_kept"], [1.0, 0.4, np.nan], equal_nan=True)
    summary = save_result(result, tmp_path)
    assert (summary["deadline_ratio"], summary["met"], summary["late"]) == (pytest.approx(0.7), 2, 0)
    assert summary["deadline_jobs"] == 2
    assert summary["best_effort_average_jct"] == 2160.0
    assert json.loads((tmp_path / "summary.json").read_text())["settings"]["deadline_measure"] == "value"
    assert sorted(path.name for path in tmp_path.glob("*.csv")) == ["efficiency.csv", "jobs.csv"]
    assert run().summary()["deadline_ratio"] == 0.5


def test_deadlines_are_judged_as_the_world_says() -> None:
    result = run()
    jobs = result.record.jobs
    # later than the completion, earlier, and not said
    jobs.columns["judged_time"] = np.array([721.0, 700.0, np.nan])
    assert result.jobs["met"].tolist() == [False, True, None]
    assert np.array_equal(result.record.judged_time, [721.0, 700.0, 2160.0])
    assert result.jobs["jct"].tolist() == [720.0, 1440.0, 2160.0]


def test_progress_per_gpu() -> None:
    result = run()
    # b on 2 of the GPUs that it needs at least counts for two
    assert result.efficiency.to_numpy().tolist() == [[0.0, 1.0], [720.0, 0.75], [1440.0, 0.5], [2160.0, 0.0]]
    assert result.summary()["cluster_efficiency"] == pytest.approx((1.0 + 0.75 + 0.5) / 3)
    ways = Configurations.from_table(TABLE, ["a", "b"], ["a100"])
    assert single_gpu_rates(ways).tolist() == [[1.0], [1.5]]
    assert len(efficiency_table(None)) == 0


def test_runs_without_deadlines_say_nothing_of_them(tmp_path: Path) -> None:
    result = simulate(make_trace([720.0]), Cluster({"v100": 1}), SharesPolicy(), np.ones((1, 1)))
    summary = save_result(result, tmp_path)
    assert {"deadline_ratio", "admitted", "cluster_efficiency"}.isdisjoint(summary)
    assert "met" not in result.jobs
    assert not (tmp_path / "efficiency.csv").exists()


def test_an_array_of_rates_tells_nothing_by_number_of_gpus() -> None:
    trace = Trace(["a"], [1], [720.0], [0.0], deadline=[800.0])
    result = simulate(trace, Cluster({"v100": 1}), SharesPolicy(), np.ones((1, 1)))
    assert result.summary()["cluster_efficiency"] is None
    assert result.summary()["deadline_ratio"] == 1.0


def test_shown() -> None:
    result = run()
    summary = result.summary().to_dict() | {"settings": result.settings}
    headings = [str(column.header).replace("\n", " ") for column in comparison_table([summary]).columns]
    assert [heading for heading in headings if heading.startswith(("in time", "cluster", "best-effort"))] == [
        "in time (%)",
        "cluster efficiency (%)",
        "best-effort JCT (h)",
    ]
    assert "deadlines: 2 admitted, 1 met, 1 late; 0.4 GPU hours on jobs that were not in time" in (
        extra_figures(summary)
    )
    page = render_report([result])
    assert "jobs with a deadline that were in time" in page
    assert 'id="chart-efficiency"' in page
    plain = simulate(make_trace([720.0]), Cluster({"v100": 1}), SharesPolicy(), np.ones((1, 1)))
    assert 'id="chart-efficiency"' not in render_report([plain])


def test_the_series_of_the_report() -> None:
    assert efficiency_series(run().efficiency) == {"time": [0, 720, 1440, 2160], "value": [1, 0.75, 0.5]}
    assert efficiency_series(efficiency_table(None)) == {"time": [], "value": []}
    times = np.arange(1001) * 10.0
    many = pd.DataFrame({"time": times, "efficiency": np.append(np.tile([0.25, 0.75], 500), 0.0)})
    series = efficiency_series(many)
    assert len(series["time"]) == len(series["value"]) + 1 == 151
    lengths = np.diff(series["time"])
    assert (lengths * series["value"]).sum() / lengths.sum() == pytest.approx(0.5, rel=1e-2)
