"""Jobs that ask for fractions of a GPU, simulated between events."""

from __future__ import annotations

import numpy as np
import pytest

from allocator import Cluster, Trace, get_policy, simulate
from allocator.presets import Preset
from throughputs import InputError

FREE = Preset().replace(restart_penalty_seconds=0.0)


def jobs(rows):
    """Arrival, seconds, and GPUs: below 1 a fraction of one."""
    arrival, seconds, gpus = (list(column) for column in zip(*rows, strict=True))
    fraction = [size if size < 1 else 1.0 for size in gpus]
    sizes = [max(int(size), 1) for size in gpus]
    return Trace(["a"] * len(rows), sizes, seconds, arrival, duration=seconds, gpu_fraction=fraction)


def random_jobs(seed, n=30):
    rng = np.random.default_rng(seed)
    sizes = rng.choice([0.1, 0.25, 1 / 3, 0.5, 0.75, 1, 2, 4], n, p=[0.15, 0.2, 0.1, 0.2, 0.1, 0.15, 0.07, 0.03])
    arrival, seconds = np.sort(np.round(rng.uniform(0, 1000, n))), np.round(rng.uniform(50, 900, n))
    return jobs(list(zip(arrival.tolist(), seconds.tolist(), sizes.tolist(), strict=True)))


# arrival:seconds*GPUs of each job | GPUs | line | when they start
STARTS = """
# 0.5 + 0.3 + 0.2 fill a GPU; 0.6 takes the other, on which 0.4 is left; the gang of two waits for both
0:100*.5 0:200*.3 0:300*.2 0:100*.6 0:50*2 0:10*.4 | 2 | off | 0 0 0 0 300 350
0:100*.5 0:200*.3 0:300*.2 0:100*.6 0:50*2 0:10*.4 | 2 | skip | 0 0 0 0 300 0
0:100*.5 0:200*.3 0:300*.2 0:100*.6 0:50*2 0:10*.4 | 2 | easy | 0 0 0 0 300 0
# 0.4 is free on each of two GPUs: neither 0.5 nor a whole GPU fits, though 0.8 is free
0:100*.6 0:200*.6 0:10*.5 0:10*.4 | 2 | off | 0 0 100 100
0:100*.6 0:200*.6 0:10*.5 0:10*.4 | 2 | skip | 0 0 100 0
0:9*.2 0:9*.1 0:9*.1 0:9*.1 0:9*.1 0:9*.1 0:9*.1 0:9*.1 0:9*.1 0:9*.1 | 1 | off | 0 0 0 0 0 0 0 0 0 9
0:10*.3333333333333333 0:10*.3333333333333333 0:10*.3333333333333333 0:10*.3333333333333333 | 1 | off | 0 0 0 10
0:10*.7 0:10*.3 | 1 | easy | 0 0
# a whole GPU is promised for t = 100: 0.5 for 90 s may start before it, 0.5 for 200 s may not
0:100*.5 0:50*1 0:200*.5 0:90*.5 | 1 | easy | 0 100 150 0
0:100*.5 0:50*1 0:200*.5 0:90*.5 | 1 | skip | 0 200 0 100
# 0.25 x 300 s is less GPU time than 1 x 100 s
0:10*1 1:100*1 1:300*.25 | 1 | qssf | 0 310 10
"""


@pytest.mark.parametrize("row", [row for row in STARTS.strip().splitlines() if row[0] != "#"])
def test_starts_by_hand(row):
    listed, gpus, line, expected = row.split(" | ")
    trace = jobs([tuple(map(float, job.replace("*", ":").split(":"))) for job in listed.split()])
    policy = get_policy("qssf") if line == "qssf" else get_policy("fcfs", backfill=line)
    found = simulate(trace, f"gpu:{gpus}", policy, preset=FREE).jobs["start_time"]
    assert found.tolist() == list(map(float, expected.split()))


def test_a_fraction_counts_as_one_in_every_figure():
    trace, run = jobs([(0, 100, 0.5), (0, 100, 0.25), (0, 100, 2)]), {"cluster": "gpu:3", "policy": get_policy("fcfs")}
    result = simulate(trace, **run, preset=FREE)
    assert result.jobs["gpu_seconds"].tolist() == [50.0, 25.0, 200.0]
    assert result.jobs["gpu_fraction"].tolist() == [0.5, 0.25, 1.0]
    assert result.timeline["busy_gpus"].tolist() == [2.75]
    assert result.utilization == pytest.approx(2.75 / 3)
    assert result.rounds["gpus"].tolist() == [(2,), (2,), (0, 1)]
    # with a GPU each, half a GPU would have been no hindrance, and two GPUs for the gang would have been one
    assert result.jobs["rho"].tolist()[:2] == pytest.approx([1.0, 1.0])
    assert result.jobs["rho"][2] < 0.7
    costs = simulate(trace, **run, preset=FREE.replace(restart_penalty_seconds=30.0))
    assert costs.jobs["restart_gpu_seconds"].tolist() == [15.0, 7.5, 60.0]
    assert simulate(trace, **run, preset=FREE, prices={"gpu": 3600.0}).jobs["cost"].tolist() == [50.0, 25.0, 200.0]


def test_preemption_and_attained_service_count_the_fraction():
    """0.5 for 10 s needs the GPU of the longer of two with 0.6; and half a GPU for 100 s is 50 GPU seconds."""
    result = simulate(jobs([(0, 100, 0.6), (0, 200, 0.6), (20, 10, 0.5)]), "gpu:2", get_policy("srtf"), preset=FREE)
    assert result.jobs["completion_time"].tolist() == [100.0, 210.0, 30.0]
    assert result.jobs["preemptions"].tolist() == [0, 1, 0]
    policy = get_policy("tiresias", queue_limits=(50.0,), promote_after=None)
    result = simulate(jobs([(0, 200, 0.5), (0, 10, 0.6), (60, 10, 0.6)]), "gpu:1", policy, preset=FREE)
    assert result.jobs["completion_time"].tolist() == [220.0, 110.0, 120.0]


@pytest.mark.parametrize("placement", ["consolidated", "best_fit"])
@pytest.mark.parametrize("line", ["off", "skip", "easy", "srtf", "tiresias", "qssf"])
def test_gpus_are_never_overfull_and_nobody_who_fits_waits(line, placement):
    trace = random_jobs(len(line))
    policy = get_policy("fcfs", backfill=line) if line in ("off", "skip", "easy") else get_policy(line)
    result = simulate(trace, Cluster({"gpu": 4}, {"gpu": 2}), policy, preset=FREE.replace(placement=placement))
    assert (result.jobs["status"] == "completed").all()
    parts = np.floor(trace.gpu_fraction * 1000 + 1e-6).astype(int)
    asked = trace.duration * trace.scale_factor * parts / 1000
    np.testing.assert_allclose(result.jobs["gpu_seconds"], asked, rtol=1e-9)
    begin, rows = result.jobs["start_time"].to_numpy(), result.rounds
    for time in sorted({0.0, *rows["start_time"], *rows["end_time"]}):
        left = np.full(4, 1000)
        for row in rows[(rows["start_time"] <= time) & (time < rows["end_time"])].itertuples():
            gpus = list(row.gpus)
            left[gpus] -= parts[row.job_id]
            assert len(gpus) == trace.scale_factor[row.job_id]
        assert left.min() >= 0
        waits = np.flatnonzero((trace.arrival_time <= time) & (begin > time))
        fits = [
            (left >= parts[job]).any() if parts[job] < 1000 else (left == 1000).sum() >= trace.scale_factor[job]
            for job in waits.tolist()
        ]
        if placement == "consolidated" and line in ("off", "skip", "easy"):
            assert not (any(fits) if line == "skip" else fits[:1] == [True])


@pytest.mark.parametrize(
    ("columns", "settings", "policy", "told"),
    [
        ({}, {}, "max_min_fairness", r"gpu_fraction of job 1'.*0\.5.*max_min_fairness.*--whole-gpus"),
        ({}, {}, "elasticflow", "elasticflow"),
        ({}, {"placement": "off"}, "fcfs", "placement off"),
        ({}, {"placement": "anew"}, "fcfs", "placement anew"),
        ({"scale_factor": [1, 2]}, {}, "fcfs", "2 GPUs"),
        ({"gpu_fraction": [1.0, 0.0004]}, {}, "fcfs", "0.0004"),
    ],
)
def test_what_cannot_have_fractions_says_so(columns, settings, policy, told):
    given = {"scale_factor": [1, 1], "gpu_fraction": [1.0, 0.5]} | columns
    trace = Trace(["a", "a"], total_steps=[9, 9], arrival_time=[0, 0], duration=[9, 9], **given)
    with pytest.raises(InputError, match=told):
        simulate(trace, "gpu:2", get_policy(policy), preset=FREE.replace(**settings))
    if "gpu_fraction" not in columns:
        simulate(trace.with_whole_gpus(), "gpu:2", get_policy(policy), preset=FREE.replace(**settings))
