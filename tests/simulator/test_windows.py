"""Windows of measured jobs, traces that grow, clusters that are full from the start."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from allocator.cluster import Cluster
from allocator.registry import get_policy
from allocator.simulator import SimulationResult, preload, simulate
from tests.simulator.worlds import SharesPolicy, make_trace
from throughputs import InputError, Trace, default_table, gavel_trace

ONE_GPU = Cluster({"v100": 1})
SMALL = Cluster({"v100": 4, "p100": 4, "k80": 4})


@pytest.fixture(scope="module")
def public_data(gavel_inputs):
    """Inputs of Gavel, made anew where the public files are absent."""
    return gavel_inputs


def test_the_run_ends_with_the_last_job_of_the_window() -> None:
    trace = make_trace([360, 360, 360, 7200], arrivals=[0.0, 0.0, 400.0, 450.0])
    result = simulate(trace, Cluster({"v100": 2}), SharesPolicy(), np.ones((4, 1)), window=(1, 3))
    assert result.jobs["measured"].tolist() == [False, True, True, False]
    assert result.jobs["status"].tolist() == ["completed", "completed", "completed", "unfinished"]
    # The third starts as it arrives, the cluster being idle; the fourth would have run from the next round on.
    assert result.timeline["end_time"].iloc[-1] == 760.0
    summary = result.summary()
    assert (summary["jobs"], summary["completed_jobs"], summary["unfinished_jobs"]) == (2, 2, 0)
    assert summary["average_jct"] == 360.0
    assert (summary["window_start"], summary["window_end"]) == (0.0, 760.0)
    assert summary["window_utilization"] == pytest.approx(3 * 360 / 1520)
    assert result.settings["window"] == [1, 3]


def test_jobs_of_the_window_that_cannot_run_are_not_waited_for() -> None:
    trace = make_trace([360, 360, 360], arrivals=[0.0, 0.0, 5000.0])
    result = simulate(trace, ONE_GPU, SharesPolicy(), [[1.0], [0.0], [1.0]], window=(0, 2))
    assert result.jobs["status"].tolist() == ["completed", "unserved", "unfinished"]
    assert result.makespan == 360.0


def test_a_window_of_all_jobs_is_the_whole_run() -> None:
    trace = gavel_trace(30, 1200.0, seed=5)
    whole = simulate(trace, SMALL, get_policy("isolated"), default_table(), preset="gavel")
    window = simulate(trace, SMALL, get_policy("isolated"), default_table(), preset="gavel", window=(0, 30))
    assert window.jobs.drop(columns="measured").equals(whole.jobs)
    assert window.rounds.equals(whole.rounds)


@pytest.mark.parametrize("ideal", [False, True])
def test_a_growing_trace_gives_the_run_of_a_long_one(ideal: bool) -> None:
    from allocator.simulator import preset

    def jobs(n: int) -> Trace:
        return gavel_trace(n, 9000.0, seed=2, multi_gpu=True)

    chosen = preset("default").replace(ideal=ideal)
    policy, table = get_policy("max_min_fairness_perf"), default_table()
    grown = simulate(jobs(5), SMALL, policy, table, preset=chosen, window=(20, 30), extend=jobs)
    long = simulate(jobs(600), SMALL, policy, table, preset=chosen, window=(20, 30))
    assert 30 < len(grown.jobs) < 600
    assert grown.rounds.equals(long.rounds)
    assert grown.jobs["jct"][20:30].equals(long.jobs["jct"][20:30])
    assert grown.jobs["isolated_jct"][20:30].equals(long.jobs["isolated_jct"][20:30])


def test_bad_windows_and_traces_are_named() -> None:
    trace = make_trace([1, 1])

    def other(n: int) -> Trace:
        return make_trace([2] * n)

    for window in ((1, 1), (-1, 2), (0, 3)):
        with pytest.raises(InputError, match="window"):
            simulate(trace, ONE_GPU, SharesPolicy(), np.ones((2, 1)), window=window)
    with pytest.raises(InputError, match="never end"):
        simulate(trace, ONE_GPU, SharesPolicy(), default_table(), extend=other)
    with pytest.raises(InputError, match="a throughput table"):
        simulate(trace, ONE_GPU, SharesPolicy(), np.ones((2, 1)), window=(0, 9), extend=other)
    real = gavel_trace(3, 60.0)
    with pytest.raises(InputError, match="the same jobs as before"):
        simulate(
            real,
            SMALL,
            get_policy("isolated"),
            default_table(),
            window=(0, 9),
            extend=lambda n: gavel_trace(n, 60.0, seed=1),
        )
    with pytest.raises(InputError, match="16 jobs"):
        simulate(real, SMALL, get_policy("isolated"), default_table(), window=(0, 9), extend=lambda _: real)


def test_preloading_fills_every_type_once() -> None:
    trace = make_trace([1] * 7, sizes=[2, 1, 2, 1, 1, 1, 1], arrivals=[0.0, 5.0, 6.0, 8.0, 11.0, 12.0, 20.0])
    full = preload(trace, Cluster({"a": 2, "b": 3, "c": 1}))
    # 2 for a; 1 + 2 for b; 1 for c: four jobs. The rest keep their distances from the fifth, which comes at 0.
    assert full.arrival_time.tolist() == [0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 9.0]
    assert full.scale_factor.tolist() == trace.scale_factor.tolist()
    with pytest.raises(InputError, match="enough to fill"):
        preload(trace, Cluster({"a": 10}))


def test_the_published_window_of_fifo(public_data) -> None:
    """Jobs 4000-4999 at 4 jobs per hour on 108 GPUs: what the original's code gives for these seeds."""
    from throughputs import read_table

    table = read_table(public_data("gavel/simulation_throughputs.json.gz"))

    def jobs(n: int) -> Trace:
        return gavel_trace(n, 900.0, seed=0, whole_steps=False, table=table)

    cluster = Cluster({"v100": 36, "p100": 36, "k80": 36})
    result = simulate(
        jobs(4000), cluster, get_policy("fifo_perf"), table, preset="gavel", window=(4000, 5000), extend=jobs
    )
    assert result.summary()["average_jct"] == pytest.approx(62_392.457, abs=1e-3)
    assert result.timeline["end_time"].iloc[-1] == pytest.approx(4_924_757.557, abs=1e-3)
    # The original counts the moment after the last round as one more.
    assert len(result.timeline) == 13_681 - 1


def test_a_recorded_window(public_data, reference_data) -> None:
    """Jobs 40-59 at one job per hour on 12 GPUs under max_min_fairness_perf, within a percent of the original's run."""
    from throughputs import read_table

    table = read_table(public_data("gavel/simulation_throughputs.json.gz"))
    import csv

    with open(reference_data("gavel/special_summary.csv")) as file:
        runs = [row for row in csv.DictReader(file) if row["window"] == "40,60" and row["ideal"] == "False"]
    run = next(row for row in runs if row["policy"] == "max_min_fairness_perf")

    def jobs(n: int) -> Trace:
        return gavel_trace(n, 3600.0, seed=0, whole_steps=False, table=table)

    policy = get_policy("max_min_fairness_perf", choice="published")
    result = simulate(jobs(60), SMALL, policy, table, preset="gavel", window=(40, 60), extend=jobs)
    summary = result.summary()
    assert summary["average_jct"] == pytest.approx(float(run["avg_jct_s"]), rel=0.01)
    assert result.timeline["end_time"].iloc[-1] == pytest.approx(float(run["makespan_s"]), rel=0.001)
    rate = int(run["lease_ext"]) / int(run["lease_opp"])
    assert summary["lease_extension_rate"] == pytest.approx(rate, abs=0.01)


def test_the_example_of_the_documentation() -> None:
    text = (Path(__file__).parents[2] / "docs" / "simulator.md").read_text()
    example = text.split("```python\n", 1)[1].split("```", 1)[0]
    scope: dict[str, object] = {}
    exec(example, scope)
    result = scope["result"]
    assert isinstance(result, SimulationResult)
    assert result.summary()["completed_jobs"] == 50
