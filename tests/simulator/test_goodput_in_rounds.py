"""Jobs with goodput under policies in rounds: at their mean throughput, or epoch by epoch where their GPUs are."""

from __future__ import annotations

import pytest

import allocator
from tests.simulator.goodput_worlds import jobs, profile, trainings, with_fewer_samples_on_two_nodes
from tests.simulator.test_goodput_world import FREE, run
from throughputs.goodput.trainings.jobs import submitted_training

TRAINED = FREE.replace(goodput_in_rounds="trained")


def fair():
    return allocator.get_policy("max_min_fairness_perf")


def test_a_gang_on_more_nodes_than_it_needs_is_slower_where_it_is_trained():
    """Three gangs of four on three nodes with six GPUs: in the order of the GPUs the second is on two of them."""
    models = trainings(net=profile(sync=0.05))
    cluster = allocator.Cluster({"gpu": 12}, gpus_per_server={"gpu": 6})
    settings = TRAINED.replace(placement="in_order")
    trace = jobs(0.0, 0.0, 0.0, gpus=4)
    result = run(fair(), trace, models, cluster, settings)
    alone, spread = 1000 * (0.04 + 0.05), 1000 * (0.04 + 0.1)
    assert result.jobs["jct"].tolist() == pytest.approx([alone, spread, alone])
    assert run(fair(), trace, models, cluster).jobs["jct"].tolist() == pytest.approx([alone] * 3)


def test_gpus_are_free_at_the_end_of_the_round_and_nobody_comes_in_between():
    models = trainings(net=profile())
    cluster = allocator.Cluster({"gpu": 1}, gpus_per_server={"gpu": 1})
    result = run(fair(), jobs(0.0, 10.0), models, cluster, TRAINED.replace(round_seconds=100.0))
    # each needs 160 s; the second comes in the first round, of which the first was owed all: it stays for another
    assert result.jobs["start_time"].tolist() == [0.0, 200.0]
    assert result.jobs["completion_time"].tolist() == pytest.approx([160.0, 360.0])
    assert result.jobs["gpu_seconds"].tolist() == [200.0, 200.0]


def test_policies_reckon_with_steps_as_they_were_measured():
    """A model that is slower than it was measured: the policy sees the measured throughput, the job feels the other."""
    seen = []

    class Watching(type(fair())):
        def allocate(self, state, *given):
            seen.append((state.rates.tolist(), state.steps_remaining.tolist()))
            return super().allocate(state, *given)

    slower = TRAINED.replace(goodput_slowdown=(("net", 2.0),))
    result = run(Watching(), jobs(0.0, gpus=2), settings=slower)
    # the first is asked for nothing, to have the solver ready
    assert seen[-1] == ([[pytest.approx(1 / 0.08)]], [pytest.approx(1000.0)])
    assert result.jobs["jct"][0] == pytest.approx(1000 * 0.16)


def test_micro_batches_have_the_limits_of_the_placement_in_rounds_too(tmp_path):
    cluster = allocator.Cluster({"gpu": 2}, gpus_per_server={"gpu": 1})
    models = with_fewer_samples_on_two_nodes(tmp_path)
    result = run(fair(), jobs(0.0, gpus=2, model="net (batch size 64)"), models, cluster, TRAINED)
    # 1,000 steps of 16 samples, 32 at a time
    assert result.jobs["jct"][0] == pytest.approx(500 * (0.16 + 0.1), rel=1e-6)
    training = models.find("net")
    submitted = submitted_training(training, 64)
    assert submitted.steps(64, 2) == training.steps(64, 2) > 0
