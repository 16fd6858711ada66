"""Deadlines and priorities: drawn, shown to the policy, judged by each measure, and told."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from allocator.presets import preset
from allocator.registry import get_policy
from allocator.results.deadlines import PUBLISHED_SLOS, assign_slos, deadline_figures
from allocator.results.efficiency import single_gpu_rates
from allocator.results.output import save_result
from allocator.simulator import simulate
from tests.simulator.worlds import SharesPolicy, make_trace
from throughputs import Configurations, InputError, ThroughputTable, Trace

NAN = np.nan
JOBS = pd.DataFrame(
    {
        "deadline": [10.0, 10.0, 10.0, NAN, 10.0, NAN],
        "met": [True, False, False, None, False, None],
        "value_kept": [1.0, 0.8, 0.0, NAN, 0.0, NAN],
        "status": ["completed", "completed", "rejected", "completed", "completed", "unfinished"],
        "jct": [9.0, 11.0, NAN, 30.0, 99.0, NAN],
        "gpu_seconds": [3600.0, 7200.0, 0.0, 100.0, 1800.0, 1.0],
    }
)


@pytest.mark.parametrize(
    ("measure", "ratio", "met", "late", "wasted"),
    [("first", 0.25, 1, 2, 2.5), ("last", 0.5, 2, 1, 0.5), ("value", 0.45, 2, 1, 0.5)],
)
def test_measures(measure, ratio, met, late, wasted):
    found = deadline_figures(JOBS, measure)
    assert found.pop("deadline_ratio") == pytest.approx(ratio)
    assert found.pop("value_miss_rate") == pytest.approx(0.55)
    told = {"deadline_jobs": 4, "admitted": 3, "rejected": 1, "met": met, "late": late, "best_effort_jobs": 2}
    assert found == told | {"best_effort_average_jct": 30.0, "wasted_gpu_hours": wasted}
    # best effort that cannot run is no deadline that was rejected, and with one deadline each all measures are one
    assert deadline_figures(JOBS.replace({"status": {"unfinished": "rejected"}})) == deadline_figures(JOBS)
    hard = JOBS.drop(columns="value_kept")
    assert deadline_figures(hard, measure) == deadline_figures(hard)
    assert deadline_figures(hard)["value_miss_rate"] == 0.75
    assert deadline_figures(JOBS.drop(columns="deadline")) == {}
    assert deadline_figures(JOBS.iloc[[3, 5]])["deadline_ratio"] is None


TABLE = ThroughputTable([("a", 1), ("a", 2), ("b", 2), ("b", 4)], ["a100"], [[1.0], [1.5], [3.0], [4.0]])


def run(measure="first"):
    """On four GPUs at once: 720 s, 1440 s and 2160 s; b on 2 of the GPUs that it needs at least counts for two."""
    options = [(), ((700.0, 10.0), (1500.0, 4.0)), ()]
    steps, due = [720.0, 1440.0, 6480.0], [720.0, NAN, NAN]
    trace = Trace(["a", "a", "b"], [1, 1, 2], steps, [0.0] * 3, deadline=due, deadline_options=options)
    settings = preset("default").replace(deadline_measure=measure)
    return simulate(trace, "a100:4", get_policy("fifo"), TABLE, preset=settings)


def test_a_run_with_soft_deadlines(tmp_path):
    result = run("value")
    jobs = result.jobs
    assert jobs["completion_time"].tolist() == [720.0, 1440.0, 2160.0]
    assert jobs["met"].tolist() == [True, False, None]
    assert np.array_equal(jobs["last_deadline"], [720.0, 1500.0, NAN], equal_nan=True)
    assert np.array_equal(jobs["value_kept"], [1.0, 0.4, NAN], equal_nan=True)
    summary = save_result(result, tmp_path)
    assert (summary["deadline_ratio"], summary["met"], summary["late"]) == (pytest.approx(0.7), 2, 0)
    assert (summary["deadline_jobs"], summary["best_effort_average_jct"]) == (2, 2160.0)
    assert sorted(path.name for path in tmp_path.glob("*.csv")) == ["efficiency.csv", "jobs.csv"]
    assert run().summary()["deadline_ratio"] == 0.5
    assert result.efficiency.to_numpy().tolist() == [[0.0, 1.0], [720.0, 0.75], [1440.0, 0.5], [2160.0, 0.0]]
    assert summary["cluster_efficiency"] == pytest.approx((1.0 + 0.75 + 0.5) / 3)
    ways = Configurations.from_table(TABLE, ["a", "b"], ["a100"])
    assert single_gpu_rates(ways).tolist() == [[1.0], [1.5]]


def test_slos_are_drawn_as_often_as_published_or_asked():
    trace, drawn = make_trace([1] * 6000), {}
    for slos in (None, {2.0: 0.7, 5.0: 0.0, 3.0: 0.3}):
        drawn = assign_slos(trace, np.random.default_rng(0), *([] if slos is None else [slos])).slo
        expected = {slo: part for slo, part in (slos or PUBLISHED_SLOS).items() if part}
        values, counts = np.unique(drawn, return_counts=True)
        assert dict(zip(values, counts / 6000, strict=True)) == pytest.approx(expected, abs=0.02)
    assert sorted(PUBLISHED_SLOS) == [1.2, 2.0, 10.0]
    for slos in ({}, {1.0: 0.5}, {0.0: 1.0}, {1.0: 1.5, 2.0: -0.5}):
        with pytest.raises(InputError, match="slos"):
            assign_slos(trace, np.random.default_rng(0), slos)


def test_deadlines_follow_from_duration_or_from_the_reference_type():
    trace = Trace(
        ["a"] * 5, [1] * 5, [100.0] * 5, [0.0, 10.0, 20.0, 30.0, 40.0],
        slo=[2.0, 2.0, 2.0, NAN, 2.0], duration=[70.0, NAN, NAN, 9.0, NAN],
    )  # fmt: skip
    rates = [[1.0, 2.0], [5.0, 2.0], [1.0, 0.0], [1.0, 1.0], [0.0, 0.0]]
    for cluster, second in (("k80:1,v100:1", 50.0), ("k80:1,p100:1", 20.0)):
        found = simulate(trace, cluster, SharesPolicy(), rates).jobs["deadline"]
        assert np.array_equal(found, [140.0, 10.0 + 2 * second, 20.0 + 2 * 100.0, NAN, np.inf], equal_nan=True)


def test_the_policy_sees_the_time_left_and_the_result_who_kept_it():
    policy = SharesPolicy()
    trace = Trace(
        ["a"] * 4, [1] * 4, [720.0] * 4, [0.0, 0.0, 5000.0, 5000.0], slo=[2.0, 1.2, NAN, 9.0], duration=[720.0] * 4,
        priority_weight=[1.0, 5.0, 1.0, 1.0],
    )  # fmt: skip
    result = simulate(trace, "v100:1", policy, [[1.0], [1.0], [1.0], [0.0]])
    assert policy.states[0].slo_seconds.tolist() == [1440.0, 864.0]
    # the first is through at 1080 s; the other, due at 864 s, is asked about then
    assert policy.states[1].slo_seconds.tolist() == [864.0 - 1080.0]
    assert policy.states[-1].slo_seconds.tolist() == [np.inf]
    assert result.jobs["met"].tolist() == [True, False, None, False]
    summary = result.summary()
    assert (summary["deadline_jobs"], summary["deadline_ratio"]) == (3, pytest.approx(1 / 3))
    found = [(row["priority_weight"], row["deadline_ratio"]) for row in summary["by_priority"]]
    assert found == [(5.0, 0.0), (1.0, 0.5)]
