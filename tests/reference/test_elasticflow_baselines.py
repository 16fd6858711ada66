"""Tiresias, Gandiva and Themis as ElasticFlow was compared with them, against runs of its published simulator."""

from __future__ import annotations

import tarfile

import numpy as np
import pytest

from tests.reference.elasticflow_records import RESULTS, recorded, replay
from throughputs import ThroughputTable, read_table, read_trace

NAMES = {"dlas-gpu": "tiresias", "gandiva": "gandiva_time_slicing", "themis": "themis"}

FIVE_JOBS = """job_id,submit_time,iteration,model_name,ddl,batch_size,num_gpu,duration
0,0,77215,resnet50_cifar10,4426,256,1,3930
1,2811,94898,resnet50_cifar10,9179,256,1,4830
2,5469,19852,resnet50_cifar10,6228,128,1,752
3,309537,17316,resnet50_cifar10,409537,64,1,10823
4,5602,38524,resnet50_cifar10,6988,64,1,1347"""

FIVE_ENDS = {
    "tiresias": [3934, 7645, 6225, 7060, 320364],
    "gandiva_time_slicing": [3938, 7653, 6229, 7060, 320360],
    "themis": [4080, 7920, 6480, 7200, 310320],
}
"""In order of submission."""

# Trace, servers, GPUs of each, slot in seconds, type of the GPUs.
ONE_HUNDRED = ("100jobs_1500lam.csv", 16, 8, 240, "A100")
TWO_HUNDRED = ("200jobs_900lam_{}.csv", 8, 8, 240, "A100")
POLLUX = ("elasticVpollux_e.csv", 16, 4, 60, "T4")
PHILLY = ("philly_103959.csv", 32, 8, 60, "A100")
FIRST, TENTH = ("cluster01.csv", 64, 8, 60, "A100"), ("cluster10.csv", 32, 8, 60, "A100")

SHORT = {
    **{f"fig10_{name}": ONE_HUNDRED for name in NAMES},
    "fig11_dlas-gpu_0.4": TWO_HUNDRED,
    "fig11_gandiva_0.4": TWO_HUNDRED,
    "fig11_themis_0.1": TWO_HUNDRED,
    "fig8a_dlas-gpu": POLLUX,
    "fig8b_gandiva_philly_103959": PHILLY,
}
LONG = {
    **{f"fig11_{name}_{part}": TWO_HUNDRED for name in ("dlas-gpu", "gandiva") for part in (0.1, 0.2, 0.5, 0.7, 0.8)},
    "fig8a_gandiva": POLLUX,
    "fig8b_dlas-gpu_philly_103959": PHILLY,
    "fig8b_dlas-gpu_cluster10": TENTH,
    "fig8b_gandiva_cluster10": TENTH,
    "fig8b_gandiva_cluster01": FIRST,
}
RUNS = SHORT | LONG


def ends_of(result):
    return result.jobs["completion_time"].to_numpy()


@pytest.mark.parametrize("policy", FIVE_ENDS)
def test_five_jobs_on_one_server_end_at_the_recorded_second(policy, tmp_path):
    path = tmp_path / "five.csv"
    path.write_text(FIVE_JOBS)
    speeds = {64: 28.60476646243157, 128: 26.39903482326002, 256: 19.647666084668582}
    types = [(f"resnet50_cifar10 (batch size {size})", 1) for size in speeds]
    table = ThroughputTable(types, ["a100"], [[speed] for speed in speeds.values()])
    ours = ends_of(replay(policy, read_trace(path), table, 1, 8, 240.0))
    assert ours == pytest.approx(FIVE_ENDS[policy], abs=1e-6)


@pytest.fixture
def run(public_data, tmp_path):
    """Repeats a recorded run."""

    def repeat(tag, **settings):
        name, servers, per_server, slot, gpu = RUNS[tag]
        name = name.format(tag.rpartition("_")[2])
        if name.startswith("cluster"):
            with tarfile.open(public_data("elasticflow/traces/elasticflow-traces.tar.gz")) as archive:
                archive.extract(name, tmp_path, filter="data")
            trace = read_trace(tmp_path / name)
        else:
            trace = read_trace(public_data(f"elasticflow/traces/{name}"))
        table = read_table(public_data(f"elasticflow/throughputs_{gpu}"))
        policy = NAMES[next(known for known in NAMES if known in tag)]
        return replay(policy, trace, table, servers, per_server, float(slot), **settings)

    return repeat


@pytest.mark.parametrize("tag", [*SHORT, *(pytest.param(tag, marks=pytest.mark.exhaustive) for tag in LONG)])
def test_every_job_of_a_recorded_run_ends_at_its_second(tag, run, reference_data):
    if "themis" in tag:
        pytest.importorskip("ecos", reason="the solver of the recorded runs (GPL) is not installed")
    theirs = recorded(reference_data(RESULTS), tag)
    ours = run(tag)
    np.testing.assert_allclose(ends_of(ours), theirs["end"].to_numpy(), rtol=0, atol=1e-6)
    judged = theirs["best_effort"].to_numpy() == 0
    assert ours.jobs["met"][judged].tolist() == (theirs["outcome"] == "met")[judged].tolist()


def test_another_solver_of_themis_orders_few_jobs_otherwise(run, reference_data):
    theirs = recorded(reference_data(RESULTS), "fig11_themis_0.1")
    ours = run("fig11_themis_0.1", solver="compiled")
    assert (np.abs(ends_of(ours) - theirs["end"].to_numpy()) > 1e-6).mean() < 0.15
    judged = theirs["best_effort"].to_numpy() == 0
    assert abs(ours.jobs["met"][judged].sum() - (theirs["outcome"] == "met")[judged].sum()) <= 1
