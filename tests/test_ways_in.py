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


def test_states_and_admission_take_them_too():
    state = allocator.ClusterState(GPUS, SPEEDS)
    assert (state.n_jobs, state.cluster) == (2, allocator.Cluster(GPUS))
    for cluster in ("v100:8", {"v100": 8}):
        test = allocator.AdmissionTest(allocator.Trace([], [], [], []), cluster, allocator.default_table())
        assert test.cluster.total_gpus == 8


def test_a_run_in_a_few_lines():
    trace = make_trace([3600.0, 3600.0], arrivals=[0.0, 7200.0])
    run = {"cluster": {"v100": 1}, "policy": allocator.get_policy("fifo"), "throughputs": np.ones((2, 1))}
    result = allocator.simulate(trace, **run, label="<mine>", prices={"v100": 2.0})
    lines = str(result).splitlines()
    assert lines[0] == "<mine> on v100:1: completed, 2 of 2 jobs completed"
    assert lines[1].startswith("average JCT 1.01 h, median 1.01 h")
    assert lines[2] == "on average 0.00 h without GPUs, 1.01 h on them"
    assert any("0.0 GPU hours for starts" in line for line in lines)
    assert any(line.startswith("$4.03 for busy GPUs") for line in lines)
    assert len(lines) <= 10
    assert result._repr_html_().startswith("<b>&lt;mine&gt; on v100:1")


def test_what_is_no_table_is_refused():
    for table in (np.ones((2, 2)), make_trace([1.0]), "v100"):
        with pytest.raises(allocator.InputError, match="a DataFrame or a mapping"):
            allocator.solve("max_min_fairness_perf", table, GPUS)
    with pytest.raises(allocator.InputError, match="one length"):
        allocator.solve("max_min_fairness_perf", {"v100": [1.0], "k80": [1.0, 2.0]}, GPUS)


def test_the_version_and_the_example_of_the_first_page(capsys):
    assert ran("--version").out.strip() == allocator.__version__ == metadata.version("cluster-allocator")
    page = Path(__file__).parents[1] / "README.md"
    exec(re.search(r"```python\n(.*?)```", page.read_text(), re.DOTALL)[1], {})
    printed = capsys.readouterr().out
    assert all(word in printed for word in ("resnet", "lstm", "bert", "v100", "k80", "optimal", "per GPU"))
