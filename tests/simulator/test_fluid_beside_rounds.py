"""Shares carried out exactly and in rounds: what rounds cost, and what Gavel's order of types costs on top."""

from __future__ import annotations

import pytest

from allocator import Cluster, default_table, get_policy, simulate
from allocator.presets import preset
from throughputs import Trace, gavel_trace

ON_P100 = "Recommendation (batch size 8192)"
"""Twice as fast on p100 as on v100."""


def average_jct(trace, cluster, name="default", **settings):
    policy = get_policy("max_min_fairness_perf", choice=preset(name).choice)
    result = simulate(trace, cluster, policy, default_table(), preset=preset(name).replace(**settings))
    return result.summary()["average_jct"]


@pytest.mark.parametrize("seed", range(3))
def test_with_little_load_short_rounds_are_close_to_the_ideal(seed):
    trace, cluster = gavel_trace(40, 18000.0, seed=seed), Cluster({"v100": 6, "p100": 6, "k80": 6})
    ideal = average_jct(trace, cluster, ideal=True)
    assert average_jct(trace, cluster) == pytest.approx(ideal, rel=0.015)
    # A job that is alone waits for nobody: what is left is the rest of a round here and there.
    assert average_jct(trace, cluster, round_seconds=36.0) == pytest.approx(ideal, rel=0.005)


def test_a_single_job_of_whole_rounds_takes_as_long_as_without_rounds():
    cluster = Cluster({"v100": 1, "p100": 1})
    rate = float(default_table().rates([ON_P100], [1], ["p100"])[0, 0])
    trace = Trace([ON_P100], [1], [20 * 360 * rate], [0.0])
    assert average_jct(trace, cluster, ideal=True) == pytest.approx(20 * 360)
    assert average_jct(trace, cluster) == pytest.approx(20 * 360)


def test_gavel_runs_a_lonely_job_on_v100_although_its_time_is_on_p100():
    cluster = Cluster({"v100": 1, "p100": 1})
    slow, fast = default_table().rates([ON_P100], [1], ["v100", "p100"])[0]
    trace = Trace([ON_P100], [1], [1e5], [0.0])
    ideal = average_jct(trace, cluster, "gavel", ideal=True)
    assert ideal == pytest.approx(1e5 / fast)
    # The whole distance is that of the two types, and one queue of all rows closes it.
    assert average_jct(trace, cluster, "gavel") == pytest.approx(1e5 / slow, rel=0.01)
    assert average_jct(trace, cluster, "gavel", queue="global") == pytest.approx(ideal, rel=0.01)
    assert average_jct(trace, cluster) == pytest.approx(ideal, rel=0.01)
