"""Orders of jobs on virtual clusters, job by job against the simulator of Lucid (Hu et al., ASPLOS 2023)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from allocator import SimulationResult, get_policy, read_cluster, simulate
from allocator.presets import preset
from throughputs import Trace, read_trace

Data = Callable[[str], Path]

POLICIES = ("fifo", "sjf", "srtf", "qssf", "tiresias")


@pytest.fixture(scope="module")
def trace(public_data: Data) -> Trace:
    folder = public_data("lucid/venus_syn")
    return read_trace(folder / "cluster_full_log.csv.gz", predictions=folder / "Venus_Sept_lgb.csv.gz")


@pytest.fixture(scope="module")
def recorded(reference_data: Data) -> pd.DataFrame:
    return pd.read_csv(reference_data("lucid/venus_syn_per_job.csv.gz"))


def run(trace: Trace, published_name: str, public_data: Data) -> SimulationResult:
    cluster = read_cluster(public_data("lucid/vc_config.csv.gz"))
    lucid = preset("lucid")
    name = lucid.policy_names.get(published_name, published_name)
    policy = get_policy(name, **lucid.settings_of_policy(name, cluster))
    return simulate(trace, cluster, policy, preset=lucid)


@pytest.mark.parametrize("published_name", POLICIES)
def test_every_job_ends_at_its_second(
    published_name: str, trace: Trace, recorded: pd.DataFrame, public_data: Data
) -> None:
    log = pd.read_csv(public_data("lucid/venus_syn/cluster_full_log.csv.gz"))
    of_job = pd.Series(np.arange(len(log)), log["job_id"])
    of_policy = recorded[recorded["policy"] == published_name]
    assert len(of_policy) == len(trace) - 1  # the first line only says where the clock begins

    result = run(trace, published_name, public_data)

    jobs = result.jobs.iloc[of_job[of_policy["job_id"]]]
    np.testing.assert_array_equal(jobs["completion_time"], of_policy["submit_time"] + of_policy["jct"])
    np.testing.assert_array_equal(jobs["queueing_time"], of_policy["queue"])
    np.testing.assert_array_equal(jobs["preemptions"], of_policy["ckpt_times"])
