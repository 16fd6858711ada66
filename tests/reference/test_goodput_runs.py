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
from tests.reference import sia_headline, sia_loads
from tests.reference.sia_loads import HETEROGENEOUS, Load
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
    policy = allocator.get_policy(name, **dict(chosen.settings_of_policy(name, cluster)) | own)
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


@pytest.mark.deep
def test_jobs_that_have_one_gpu_and_one_batch_size_end_as_recorded(
    of_pollux: Trainings, public_data: Any, recorded: Any
) -> None:
    """Those of ncf, among 40 jobs with deadlines, of which the record has the first hour; all of them are late."""
    path = public_data("pollux_sia/elasticVpollux_p_first40.csv")
    result = run("pollux", path, T4, of_pollux, SAMPLES)
    for at, (job, figures) in enumerate(recorded("ef_pollux_40")["jobs"].items()):
        if job.startswith("ncf") and figures["jct"] is not None:
            assert result.jobs["jct"][at] == pytest.approx(figures["jct"], abs=1e-6)
            assert bool(result.jobs["met"][at]) == bool(figures["met_ddl"])


SUM, FTF = "max_sum_throughput_perf", "finish_time_fairness_perf"
# Policy, record, cluster, settings of the policy or of the world; then how far the average JCT, the 99th percentile
# and the GPU time of 80 jobs are apart at most, and how many jobs at least end in their second.
OF_80_JOBS: dict[str, tuple[Any, ...]] = {
    # rounds of six minutes, placement, starts, epochs and accounting are those of the public code
    "sum of throughputs": (SUM, "gavel_mst_r10w1", THREE_TYPES, {}, (0.004, 0.004, 0.004), 73),
    "finish-time fairness": (FTF, "gavel_ftf_r10w1", THREE_TYPES, {}, (0.03, 0.10, np.inf), 0),
    "one type": ("sia", "sia_homog_r10w1", T4, {}, (0.03, 0.10, np.inf), 0),
    "values of Sia": ("sia", "sia_homog_r10w1", T4, {"goodput_values": "sia"}, (0.02, 0.05, 0.01), 10),
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


@pytest.mark.parametrize(
    "case", tiered(OF_80_JOBS, gate=["sum of throughputs", "finish-time fairness", "values of Sia", "ties"])
)
def test_80_jobs_end_near_those_of_the_record(case: str, beside_record: Any) -> None:
    name, record, cluster, settings, margins, least_equal = OF_80_JOBS[case]
    ratios, equal = beside_record(name, record, cluster, **settings)
    assert (np.abs(ratios - 1.0) < margins).all()
    assert equal >= least_equal


@pytest.mark.deep
def test_on_three_types_the_mean_over_choices_of_equal_cost_is_that_of_the_record(beside_record: Any) -> None:
    """On which type a job begins is such a choice, which each solver makes its own way."""
    found = [beside_record("sia", "sia_r10w1", THREE_TYPES, tie_seed=seed)[0] for seed in range(6)]
    assert (np.abs(np.mean(found, axis=0) - 1.0) < (0.03, 0.10, np.inf)).all()


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


@pytest.mark.deep
@pytest.mark.parametrize(("policy", "said"), [(SUM, (7.4, 39, 46, 14.5)), (FTF, (12.5, 46, 51, 17.2))])
def test_rounds_of_a_minute_on_t4_give_the_figures_that_the_text_says(
    policy: str, said: tuple[float, ...], goodput_folder: Any, trainings: Trainings
) -> None:
    minute = dict.fromkeys(("round_seconds", "decide_every_seconds", "slot_seconds"), 60.0)
    inputs = (trainings, sia_headline.workloads_in(goodput_folder))
    runs = pd.DataFrame([sia_headline.run("T4", "philly", policy, number, *inputs, **minute) for number in (1, 2)])
    found = runs[["average", "makespan", "gpu_hours"]].mean()
    figures = (found["average"], sia_headline.p99_of_all(runs), found["makespan"], found["gpu_hours"])
    assert tuple(round(figure, 1 if i in (0, 3) else None) for i, figure in enumerate(figures)) == said


@pytest.mark.parametrize(
    "load",
    tiered(
        loads := [
            Load("rate", 10, HETEROGENEOUS, SUM, 1),
            Load("rate", 10, HETEROGENEOUS, "sia", 1),
            Load("size", 2, HETEROGENEOUS, "sia", 1),
        ],
        gate=loads[:1],
    ),
)
def test_stored_runs_of_more_jobs(load: Load, goodput_folder: Any, trainings: Trainings) -> None:
    again = load.run(trainings, sia_headline.workloads_in(goodput_folder))
    kept = sia_loads.recorded().set_index(list(sia_loads.KEY)).loc[tuple(vars(load).values())]
    for name in ("jobs", "gpus", "average", "p99", "contention", "restarts"):
        assert again[name] == pytest.approx(kept[name]), name


def test_a_cluster_of_twice_the_size_has_every_job_of_the_first_workload_twice(goodput_folder: Any) -> None:
    """Which is what the workload of that size in the artifact has."""
    workloads = sia_headline.workloads_in(goodput_folder)
    ours = Load("size", 2, HETEROGENEOUS, "sia", 1).trace(workloads)
    theirs = read_trace(workloads / "scale/scale_2x/workload-1.csv")
    for name in ("job_type", "scale_factor", "arrival_time"):
        assert sorted(getattr(ours, name)) == sorted(getattr(theirs, name)), name
