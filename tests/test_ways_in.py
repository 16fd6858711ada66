"""The short ways in and out: clusters and tables as mappings, a run in a few lines, the version."""

from __future__ import annotations

import re
from importlib import metadata
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import allocator
from tests.cli.command import ran
from tests.simulator.worlds import make_trace

SPEEDS = {"v100": {"resnet": 4.0, "lstm": 2.0}, "k80": {"resnet": 1.0, "lstm": 1.0}}
GPUS = {"v100": 1, "k80": 1}


def test_clusters_and_tables_in_any_form():
    whole = allocator.solve("max_min_fairness_perf", pd.DataFrame(SPEEDS), allocator.Cluster(GPUS))
    for table in (SPEEDS, pd.DataFrame(SPEEDS)):
        for cluster in (GPUS, "v100:1,k80:1", allocator.Cluster(GPUS)):
            answer = allocator.solve("max_min_fairness_perf", table, cluster)
            np.testing.assert_array_equal(answer.shares, whole.shares)
            assert answer.throughputs.jobs == ("resnet", "lstm")


@pytest.mark.parametrize(("cluster", "told"), [(4, "found 'int'"), (["v100"], "found 'list'"), ({}, "no accelerator")])
def test_what_is_no_cluster_is_refused(cluster, told):
    with pytest.raises(allocator.InputError, match=told):
        allocator.solve("max_min_fairness_perf", SPEEDS, cluster)
    with pytest.raises(allocator.InputError, match=told):
        allocator.simulate(make_trace([10.0]), cluster, allocator.get_policy("fifo"), np.ones((1, 1)))


def test_rates_with_names_are_taken_by_name():
    """Whatever the order of their columns."""
    trace = make_trace([3600.0, 3600.0])
    policy = allocator.get_policy("max_sum_throughput_perf")
    array = allocator.simulate(trace, "v100:1,k80:2", policy, [[4.0, 1.0], [3.0, 1.0]]).jobs["jct"].tolist()
    columns = {"k80": [1.0, 1.0], "v100": [4.0, 3.0]}
    for table in (columns, pd.DataFrame(columns), allocator.ThroughputMatrix.of(columns)):
        assert allocator.simulate(trace, "v100:1,k80:2", policy, table).jobs["jct"].tolist() == array
    assert allocator.simulate(trace, "k80:2,v100:1", policy, [[4.0, 1.0], [3.0, 1.0]]).jobs["jct"].tolist() != array
    with pytest.raises(allocator.InputError, match="also a column 'a100'"):
        allocator.simulate(trace, "v100:1,a100:1", policy, columns)


def test_the_version_and_the_example_of_the_first_page(capsys):
    assert ran("--version").out.strip() == allocator.__version__ == metadata.version("cluster-allocator")
    page = Path(__file__).parents[1] / "README.md"
    exec(re.search(r"```python\n(import pandas.*?)```", page.read_text(), re.DOTALL)[1], {})
    printed = capsys.readouterr().out
    assert all(word in printed for word in ("resnet", "lstm", "bert", "v100", "k80", "optimal", "per GPU"))
