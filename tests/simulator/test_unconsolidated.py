"""Gangs that are spread over servers."""

from __future__ import annotations

import numpy as np

from allocator.cluster import Cluster
from allocator.presets import Preset
from allocator.simulator import preset, simulate
from tests.simulator.cases import with_settings
from tests.simulator.worlds import SharesPolicy
from throughputs import ThroughputTable, Trace

TABLE = ThroughputTable(
    [("a", 1), ("a", 2), ("b", 2), ("c", 2)],
    ["v100", "v100_unconsolidated"],
    [[1.0, 1.0], [4.0, 2.0], [4.0, np.nan], [4.0, 0.0]],
)
SLOWER = Preset().replace(unconsolidated_throughputs=True)


def completion(names, sizes, cluster, chosen=SLOWER):
    trace = Trace(names, sizes, [1440.0] * len(names), [0.0] * len(names))
    return simulate(trace, cluster, SharesPolicy(), TABLE, preset=chosen).jobs["completion_time"].tolist()


def test_a_spread_gang_goes_at_its_own_speed():
    one_server, two_servers = Cluster({"v100": 2}, {"v100": 2}), Cluster({"v100": 2}, {"v100": 1})
    assert completion(["a"], [2], one_server) == [360.0]
    assert completion(["a"], [2], two_servers) == [720.0]
    assert completion(["a"], [2], two_servers, preset("default")) == [360.0]
    # Not profiled: as if consolidated. A job of one GPU is never spread.
    assert completion(["b"], [2], two_servers) == [360.0]
    assert completion(["a"], [1], two_servers) == [1440.0]


def test_a_gang_that_cannot_run_spread_does_no_step_and_is_given_up():
    chosen = with_settings(SLOWER, max_zero_step_rounds=3)
    trace = Trace(["c", "a"], [2, 1], [1440.0] * 2, [0.0] * 2)
    result = simulate(trace, Cluster({"v100": 3}), SharesPolicy(), TABLE, preset=chosen)
    assert result.jobs["status"].tolist() == ["dropped", "completed"]
    assert result.rounds["steps"][result.rounds["job_id"] == 0].tolist() == [0.0, 0.0, 0.0]
