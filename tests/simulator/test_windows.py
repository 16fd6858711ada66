"""Windows of measured jobs, traces that grow, clusters that are full from the start."""

from __future__ import annotations

import pytest

from allocator.cluster import Cluster
from allocator.registry import get_policy
from allocator.simulator import preload, simulate
from tests.simulator.worlds import make_trace
from throughputs import InputError, default_table, gavel_trace

ONE_GPU = Cluster({"v100": 1})
SMALL = Cluster({"v100": 4, "p100": 4, "k80": 4})


@pytest.fixture(scope="module")
def public_data(gavel_inputs):
    """Inputs of Gavel, made anew where the public files are absent."""
    return gavel_inputs


@pytest.mark.parametrize("ideal", [False, True])
def test_a_growing_trace_gives_the_run_of_a_long_one(ideal):
    from allocator.simulator import preset

    def jobs(n):
        return gavel_trace(n, 9000.0, seed=2, multi_gpu=True)

    chosen = preset("default").replace(ideal=ideal)
    policy, table = get_policy("max_min_fairness_perf"), default_table()
    grown = simulate(jobs(3), SMALL, policy, table, preset=chosen, window=(6, 12), extend=jobs)
    long = simulate(jobs(64), SMALL, policy, table, preset=chosen, window=(6, 12))
    assert 12 < len(grown.jobs) < 64
    assert grown.rounds.equals(long.rounds)
    assert grown.jobs["jct"][6:12].equals(long.jobs["jct"][6:12])
    assert grown.jobs["isolated_jct"][6:12].equals(long.jobs["isolated_jct"][6:12])


def test_preloading_fills_every_type_once():
    trace = make_trace([1] * 7, sizes=[2, 1, 2, 1, 1, 1, 1], arrivals=[0.0, 5.0, 6.0, 8.0, 11.0, 12.0, 20.0])
    full = preload(trace, Cluster({"a": 2, "b": 3, "c": 1}))
    # 2 for a; 1 + 2 for b; 1 for c: four jobs. The rest keep their distances from the fifth, which comes at 0.
    assert full.arrival_time.tolist() == [0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 9.0]
    assert full.scale_factor.tolist() == trace.scale_factor.tolist()
    with pytest.raises(InputError, match="enough to fill"):
        preload(trace, Cluster({"a": 10}))


@pytest.mark.exhaustive
def test_a_recorded_window(public_data, reference_data):
    """Jobs 40-59 at one job per hour on 12 GPUs under max_min_fairness_perf, within a percent of the original's run."""
    from throughputs import read_table

    table = read_table(public_data("gavel/simulation_throughputs.json.gz"))
    import csv

    with open(reference_data("gavel/special_summary.csv")) as file:
        runs = [row for row in csv.DictReader(file) if row["window"] == "40,60" and row["ideal"] == "False"]
    run = next(row for row in runs if row["policy"] == "max_min_fairness_perf")

    def jobs(n):
        return gavel_trace(n, 3600.0, seed=0, whole_steps=False, table=table)

    policy = get_policy("max_min_fairness_perf", choice="published")
    result = simulate(jobs(60), SMALL, policy, table, preset="gavel", window=(40, 60), extend=jobs)
    summary = result.summary()
    assert summary["average_jct"] == pytest.approx(float(run["avg_jct_s"]), rel=0.01)
    assert result.timeline["end_time"].iloc[-1] == pytest.approx(float(run["makespan_s"]), rel=0.001)
    rate = int(run["lease_ext"]) / int(run["lease_opp"])
    assert summary["lease_extension_rate"] == pytest.approx(rate, abs=0.01)
