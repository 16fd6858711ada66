"""Jobs that choose their batch size, alone on a cluster: when they are through, reckoned by hand."""

from __future__ import annotations

import pytest

import allocator
from allocator.presets import preset
from tests.simulator.cases import cluster_of, rows, world_of
from tests.simulator.goodput_worlds import jobs, profile, trainings
from tests.simulator.test_goodput_world import OnGpus

# A sample takes a hundredth of a second. Columns: noise by epoch, synchronisation (s on a node; twice as much on
# several), steps of the initial batch of 16, GPUs and batch size asked for, policy (empty: as many GPUs as asked for),
# cluster, settings; seconds.
TABLE = """
no noise: a larger batch is worth the initial one | 1e-9 1e-9 | 0 | 1000 | 1 16 | | | | 160
endless noise: a sample is a sample | 1e9 1e9 | 0 | 1000 | 1 16 | | | | 160
on four GPUs a quarter | 1e9 1e9 | 0 | 1000 | 4 16 | | | | 40
# larger batches from the second epoch on, when the cost of synchronisation is known
synchronisation pays off in larger batches | 1e9 1e9 1e9 1e9 | .1 | 1000 | 4 16 | | | | 250*.14+750*16/256*.74
a batch may be kept | 1e9 1e9 | .1 | 1000 | 4 16 | | | goodput_batch_size=submitted | 140
slower on several nodes | 1e-9 | .5 | 1000 | 4 16 | | gpu:4/1 | | 1040
not on one | 1e-9 | .5 | 1000 | 4 16 | | | | 540
twice as slow as measured | 1e-9 | 0 | 1000 | 1 16 | | | goodput_slowdown=net:2 | 320
in rounds too | 1e-9 | 0 | 1000 | 1 16 | fair | | goodput_slowdown=net:2 | 320
# noise as large as the initial batch: one of s times the size is worth 2 / (1 / s + 1) steps
steps of the batch asked for | 16 16 | .1 | 1000 | 1 64 | fair | | | 1000/1.6*.64
two micro-batches of 64 on each of two GPUs | 16 16 | .1 | 1000 | 2 256 | fair | | | 1000*(1/16+1)/2*1.38
in rounds as asked for | 1e-9 1e-9 | 0 | 1000 | 2 16 | fair | | | 80
trained in rounds | 1e-9 1e-9 | 0 | 1000 | 2 16 | fair | | goodput_in_rounds=trained | 80
without rounds none to train in | 1e9 | 0 | 1000 | 1 16 | fair | | goodput_in_rounds=trained ideal=true | 160
# 250 steps take 40 s each, or 40.4 s, which count as 40; a start takes 30 s
epochs of whole seconds | 1e-9 1e-9 1e-9 1e-9 | 0 | 1000 | 1 16 | | | preset=sia | 190
and not of parts of one | 1e-9 1e-9 1e-9 1e-9 | 0 | 1010 | 1 16 | | | preset=sia | 190
# 6,400 samples of the trace of 400 steps, in batches of any size
samples count whatever they are worth | 16 16 | 0 | 1000 400 | 1 16 | | | goodput_work=samples | 64
in steps of the batch asked for | 1e9 1e9 | 0 | 1000 100 | 1 64 | | | goodput_work=samples | 64
in rounds | 1e9 1e9 | 0 | 1000 100 | 1 64 | fair | | goodput_work=samples | 64
in rounds, trained | 50 200 | 0 | 1000 100 | 2 64 | fair | | goodput_work=samples goodput_in_rounds=trained | 32
a training that is over first | 1e-9 | 0 | 100 1e6 | 1 16 | | | goodput_work=samples | 16
# 30 s to start, then 187 and a half of 400 steps up to the next decision; the half is lost
published steps are whole | 1e-9 | 0 | 1000 399.4 | 1 16 | | | preset=pollux goodput_work=samples | 60+213*.16
"""


@pytest.mark.parametrize(("noise", "sync", "steps", "asked", "policy", "cluster", "settings", "end"), rows(TABLE))
def test_a_job_is_through_when_it_was_reckoned(noise, sync, steps, asked, policy, cluster, settings, end):
    gpus, batch = map(int, asked.split())
    training, *of_trace = map(float, steps.split())
    models = trainings(net=profile(tuple(map(float, noise.split())), training, float(sync)))
    trace = jobs(0.0, model=f"net (batch size {batch})", gpus=gpus)
    trace.total_steps[:] = of_trace or 1.0
    chosen = allocator.get_policy("max_min_fairness_perf") if policy else OnGpus(gpus)
    run = allocator.simulate(trace, cluster_of(cluster or "gpu:8/4"), chosen, models, preset=world_of(settings)[0])
    assert run.jobs["jct"][0] == pytest.approx(eval(end), rel=1e-4)


@pytest.mark.parametrize(
    ("name", "model", "delay", "slowdown"),
    [
        *(("pollux", model, 30.0, 1.0) for model in ("bert", "ncf", "net")),
        ("sia", "bert", 120.0, 1.2), ("sia", "cifar10", 50.0, 1.8), ("sia", "deepspeech2", 25.0, 1.2),
        ("sia", "imagenet", 250.0, 1.2), ("sia", "ncf", 15.0, 1.5), ("sia", "yolov3", 80.0, 1.2),
        ("sia", "net", 30.0, 1.0),
    ],
)  # fmt: skip
def test_the_published_simulators_delay_starts_and_slow_steps_by_model(name, model, delay, slowdown):
    models = trainings(**{model: profile((1e-9,), t4=1.0)})
    trace = jobs(0.0, model=f"{model} (batch size 16)")
    run = allocator.simulate(trace, cluster_of("t4:64/4"), OnGpus(1), models, preset=preset(name))
    assert run.jobs["jct"].tolist() == [delay + 160.0 * slowdown]
