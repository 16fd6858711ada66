"""Orders of jobs on virtual clusters, job by job against the simulator of Lucid (Hu et al., ASPLOS 2023)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from allocator import SimulationResult, read_cluster, simulate
from allocator.presets import preset
from tests.reference import helios_philly
from tests.reference.tiers import tiered
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


def run(trace: Trace, published_name: str, virtual_clusters: Path) -> SimulationResult:
    cluster = read_cluster(virtual_clusters)
    lucid = preset("lucid")
    name = lucid.policy_names.get(published_name, published_name)
    policy = lucid.make_policy(name, cluster)
    return simulate(trace, cluster, policy, preset=lucid)


@pytest.mark.parametrize("published_name", tiered(POLICIES, gate=POLICIES))
def test_every_job_ends_at_its_second(
    published_name: str, trace: Trace, recorded: pd.DataFrame, public_data: Data
) -> None:
    log = pd.read_csv(public_data("lucid/venus_syn/cluster_full_log.csv.gz"))
    of_job = pd.Series(np.arange(len(log)), log["job_id"])
    of_policy = recorded[recorded["policy"] == published_name]
    assert len(of_policy) == len(trace) - 1  # the first line only says where the clock begins

    result = run(trace, published_name, public_data("lucid/vc_config.csv.gz"))

    jobs = result.jobs.iloc[of_job[of_policy["job_id"]]]
    np.testing.assert_array_equal(jobs["completion_time"], of_policy["submit_time"] + of_policy["jct"])
    np.testing.assert_array_equal(jobs["queueing_time"], of_policy["queue"])
    np.testing.assert_array_equal(jobs["preemptions"], of_policy["ckpt_times"])


# Of the published simulator on the second trace: average JCT and wait, seconds, and preemptions.
PHILLY = {
    "fifo": (57_087, 40_811, 0),
    "sjf": (25_190, 8_914, 0),
    "srtf": (22_239, 5_940, 1162),
    "qssf": (21_783, 5_507, 0),
    "tiresias": (25_556, 9_236, 2242),
}


@pytest.mark.parametrize("published_name", tiered(PHILLY, gate=["qssf"]))
def test_averages_on_philly(published_name: str, public_data: Data) -> None:
    folder = public_data("lucid/philly_real")
    trace = read_trace(folder / "cluster_full_log.csv.gz", predictions=folder / "Philly_lgb.csv.gz")
    jobs = run(trace, published_name, folder / "vc_config.csv.gz").jobs
    jct, wait, preemptions = PHILLY[published_name]
    assert jobs["jct"].mean() == pytest.approx(jct, abs=1)
    assert jobs["queueing_time"].mean() == pytest.approx(wait, abs=1)
    assert jobs["preemptions"].sum() == preemptions


@pytest.mark.parametrize("name", tiered(["e13805", "2869ce"], gate=["2869ce"]))
def test_orders_on_virtual_clusters_of_philly(name: str, public_data: Data, reference_data: Data) -> None:
    """The stored rows beside the printed figures of Helios are those of the log, and say why the two differ."""
    public_data("field/philly_82k.csv.gz")
    reference_data("lucid/published_helios_philly.csv")
    stored = helios_philly.stored()
    for row in helios_philly.rows_of(name):
        (kept,) = stored[(stored["vc"] == name) & (stored["policy"] == row["policy"])].to_dict("records")
        assert kept == pytest.approx({key: row[key] for key in kept}, abs=1e-3)
