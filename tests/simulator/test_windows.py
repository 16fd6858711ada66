"""Windows of measured jobs, traces that grow, clusters that are full from the start."""

from __future__ import annotations

import pytest

from allocator.cluster import Cluster
from allocator.registry import get_policy
from allocator.simulator import preset, simulate
from allocator.simulator.arrivals import preload
from tests.simulator.worlds import make_trace
from throughputs import InputError, Trace, default_table, gavel_trace

SMALL = Cluster({"v100": 4, "p100": 4, "k80": 4})


@pytest.mark.parametrize("ideal", [False, True])
def test_a_growing_trace_gives_the_run_of_a_long_one(ideal):
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
    due = Trace(["a"] * 3, [8, 1, 1], [1.0] * 3, [3.0, 5.0, 9.0], deadline_options=[(), ((25.0, 2.0),), ()])
    moved = preload(due, Cluster({"a": 8}))
    assert moved.arrival_time.tolist() == [0.0, 0.0, 4.0]
    assert (moved.deadline[1], moved.deadline_options[1]) == (20.0, ((20.0, 2.0),))
    with pytest.raises(InputError, match="enough to fill"):
        preload(trace, Cluster({"a": 10}))
