"""Runs of the simulators of Pollux and Sia on their own workloads, job by job where the originals are deterministic."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest

import allocator
from allocator.presets import preset
from tests.reference import sia_headline
from tests.reference.sia_loads import HETEROGENEOUS
from tests.reference.tiers import tiered
from throughputs import read_trace
from throughputs.goodput.trainings import Trainings

THREE_TYPES, T4 = (sia_headline.CLUSTERS[name] for name in ("three types", "T4"))
OPTIMUS, TIRESIAS = "optimus", "tiresias"


@pytest.fixture(scope="module")
def trainings(goodput_folder: Any) -> Trainings:
    return sia_headline.trainings_in(goodput_folder)


@pytest.fixture(scope="module")
def of_pollux(trainings: Trainings) -> Trainings:
    """With the smaller limit of the batch size of one model that the simulator of Pollux has."""
    yolov3 = trainings.models["yolov3"].with_largest_local("aws", 8)
    return replace(trainings, models=dict(trainings.models) | {"yolov3": yolov3})


def run(name: str, path: Any, cluster: Any, trainings: Trainings, chosen: Any, **own: Any) -> Any:
    policy = chosen.make_policy(name, cluster, **own)
    return allocator.simulate(read_trace(path), cluster, policy, trainings, preset=chosen)


@pytest.fixture(scope="module")
def recorded(reference_data: Any) -> Any:
    """A recorded run by its name."""
    return lambda name: json.loads(reference_data(f"pollux_sia/runs/{name}.json").read_text())


def assert_as_recorded(result: Any, record: dict[str, Any]) -> None:
    jobs = list(record["jobs"].values())
    np.testing.assert_array_equal(result.jobs["jct"], [job["jct"] for job in jobs])
    np.testing.assert_array_equal(result.jobs["preemptions"], [job["restarts"] for job in jobs])
    np.testing.assert_allclose(result.jobs["gpu_seconds"], [3600.0 * job["gpu_hours"] for job in jobs], rtol=1e-9)


@pytest.mark.parametrize("name", tiered([OPTIMUS, TIRESIAS], daily=[TIRESIAS], gate=[OPTIMUS]))
def test_every_job_of_a_small_run_ends_in_the_second_of_the_record(
    name: str, of_pollux: Trainings, public_data: Any, recorded: Any
) -> None:
    cluster = allocator.Cluster({"aws": 16}, gpus_per_server={"aws": 4})
    result = run(name, public_data("pollux_sia/tiny_notarget.csv"), cluster, of_pollux, preset("pollux"))
    assert_as_recorded(result, recorded(f"osdi_{name}_tiny"))


@pytest.mark.parametrize(
    ("name", "number"),
    tiered(
        [(name, number) for name in (OPTIMUS, TIRESIAS) for number in range(1, 9)],
        gate=[(TIRESIAS, 6)],
    ),
)
def test_every_job_of_a_workload_ends_as_published(
    name: str, number: int, goodput_folder: Any, of_pollux: Trainings, reference_data: Any, recorded: Any
) -> None:
    """The JCTs that came with the artifact of Pollux, 160 jobs of each workload; one was recorded in full as well."""
    published = pd.read_csv(reference_data("pollux_sia/osdi21_published_jcts.csv.gz"))
    published = published[published["experiment"] == f"results-jobload/{name}-1.0"]
    path = next(goodput_folder.glob(f"osdi21_workloads/**/workloads/workload-{number}.csv"))
    times = published[published["workload"] == f"workload-{number}"].set_index("job")["jct_s"]
    result = run(name, path, T4, of_pollux, preset("pollux"))
    assert len(times) == len(result.jobs) == 160
    np.testing.assert_array_equal(result.jobs["jct"], times.loc[pd.read_csv(path)["name"]])
    if number == 6:
        assert_as_recorded(result, recorded(f"osdi_{name}_w6"))


SAMPLES = preset("pollux").replace(goodput_work="samples")
"""ElasticFlow's form of Pollux: jobs are through after so many samples."""


@pytest.mark.exhaustive
def test_jobs_with_deadlines_take_the_samples_of_the_record(
    of_pollux: Trainings, public_data: Any, recorded: Any
) -> None:
    """The record is one run of a genetic search; what it does not move is the same to a hundredth of a second."""
    cluster = allocator.Cluster({"aws": 16}, gpus_per_server={"aws": 4})
    result = run("pollux", public_data("pollux_sia/tiny2.csv"), cluster, of_pollux, SAMPLES)
    record = recorded("ef_pollux_tiny2_s0")
    apart = np.abs(result.jobs["jct"].to_numpy() - [job["jct"] for job in record["jobs"].values()])
    assert apart.min() < 0.01
    assert (apart < 0.6).sum() >= 5
    assert apart.max() < 20.0
    assert result.jobs["jct"].mean() == pytest.approx(record["summary"]["avg_jct"], rel=0.01)
    assert result.summary()["deadline_ratio"] == record["summary"]["ddl_ratio"] == 1.0


SUM, FTF = "max_sum_throughput_perf", "finish_time_fairness_perf"
# Policy, record, cluster, settings of the policy or of the world; then how far the average JCT, the 99th percentile
# and the GPU time of 80 jobs are apart at most, and how many jobs at least end in their second.
OF_80_JOBS: dict[str, tuple[Any, ...]] = {
    # rounds of six minutes, placement, starts, epochs and accounting are those of the public code
    "sum of throughputs": (SUM, "gavel_mst_r10w1", THREE_TYPES, {}, (0.004, 0.004, 0.004), 73),
    "finish-time fairness": (FTF, "gavel_ftf_r10w1", THREE_TYPES, {}, (0.03, 0.10, np.inf), 0),
    "values of Sia": ("sia", "sia_homog_r10w1", T4, {"goodput_values": "submitted"}, (0.02, 0.05, 0.01), 10),
    # of types with the same cost the public code's solver takes them in this order as long as the cluster is empty
    "ties": ("sia", "sia_r10w1", THREE_TYPES, {"tie_types": ("rtx", "aws", "dgx-ext")}, (0.01, 0.07, 0.06), 20),
}


@pytest.fixture(scope="module")
def beside_record(goodput_folder: Any, trainings: Trainings, recorded: Any) -> Any:
    """Average, 99th percentile and GPU time of 80 jobs over those of a record, and how many end in its second."""

    def figures(name: str, record: str, cluster: Any, **settings: Any) -> tuple[Any, ...]:
        worlds = {key: value for key, value in settings.items() if key.startswith("goodput")}
        own = {key: value for key, value in settings.items() if key not in worlds}
        path = next(goodput_folder.glob("sia_workloads/**/rate_10/workload-1.csv"))
        jobs = run(name, path, cluster, trainings, preset("sia").replace(**worlds), **own).jobs
        summary, theirs = recorded(record)["summary"], [job["jct"] for job in recorded(record)["jobs"].values()]
        times = np.sort(jobs["jct"].to_numpy())
        gpu_hours = jobs["gpu_seconds"].sum() / 3600.0 / summary["gpu_hours"]
        last = times[int(0.99 * len(times))] / summary["p99_jct"]
        return np.array([times.mean() / summary["avg_jct"], last, gpu_hours]), np.count_nonzero(jobs["jct"] == theirs)

    return figures


@pytest.mark.parametrize("case", tiered(OF_80_JOBS, gate=["sum of throughputs", "finish-time fairness"]))
def test_80_jobs_end_near_those_of_the_record(case: str, beside_record: Any) -> None:
    name, record, cluster, settings, margins, least_equal = OF_80_JOBS[case]
    ratios, equal = beside_record(name, record, cluster, **settings)
    assert (np.abs(ratios - 1.0) < margins).all()
    assert equal >= least_equal


# What is stored of runs of ours, of which the tables of docs/fidelity.md are made, comes out again.


@pytest.mark.parametrize(
    ("cluster", "workload", "policy"),
    tiered(
        [
            (HETEROGENEOUS, "saturn", SUM),
            ("T4", "philly", FTF),
            (HETEROGENEOUS, "philly", "sia"),
            ("T4", "philly", "sia"),
            ("T4", "philly", "pollux"),
        ],
        gate=[(HETEROGENEOUS, "saturn", SUM)],
    ),
)
def test_stored_runs_of_the_main_comparison(
    cluster: str, workload: str, policy: str, goodput_folder: Any, trainings: Trainings
) -> None:
    first = sia_headline.runs_of(sia_headline.recorded(), cluster, workload, policy).iloc[0]
    workloads = sia_headline.workloads_in(goodput_folder)
    again = sia_headline.run(cluster, workload, policy, int(first["number"]), trainings, workloads)
    for name, figure in again.items():
        assert first[name] == (figure if isinstance(figure, str) else pytest.approx(figure)), name
