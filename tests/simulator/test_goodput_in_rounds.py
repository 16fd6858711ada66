"""Jobs with goodput under policies in rounds: at their mean throughput, or epoch by epoch where their GPUs are."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import allocator
from allocator import InputError
from allocator.presets import preset
from tests.simulator.goodput_worlds import StopAt, jobs, profile, trainings, with_fewer_samples_on_two_nodes
from tests.simulator.test_goodput_world import FREE, OnGpus, run
from throughputs.goodput.trainings.submitted import SubmittedTraining

TRAINED = FREE.replace(goodput_in_rounds="trained")
NOISY = (50.0, 200.0, 800.0, 3000.0)


def fair() -> allocator.Policy:
    return allocator.get_policy("max_min_fairness_perf")


def test_in_rounds_jobs_run_as_they_asked_to() -> None:
    models = trainings(net=profile(noise=(1e-9,) * 2))
    policy = allocator.get_policy("max_min_fairness_perf")
    result = run(policy, jobs(0.0, gpus=2), models)
    assert result.jobs["jct"][0] == pytest.approx(1000 * 0.08, rel=1e-6)


@pytest.mark.parametrize("batch", [16, 64, 256])
def test_in_rounds_the_steps_of_a_training_are_those_of_its_epochs(batch: int) -> None:
    """A batch is worth less in the first of four epochs than in the last: alone a job takes as long as at events."""
    models = trainings(net=profile(noise=(50.0, 200.0, 800.0, 3000.0), sync=0.05))
    trace = jobs(0.0, model=f"net (batch size {batch})", gpus=2, category="rigid")
    at_events = run(OnGpus(2), trace, models)
    in_rounds = run(allocator.get_policy("max_min_fairness_perf"), trace, models)
    assert in_rounds.jobs["jct"][0] == pytest.approx(at_events.jobs["jct"][0], rel=1e-9)


@pytest.mark.parametrize(("batch", "gpus"), [(16, 1), (64, 1), (64, 2), (256, 4), (100, 3)])
def test_epoch_by_epoch_a_job_on_packed_nodes_takes_as_long_as_at_its_mean_throughput(batch: int, gpus: int) -> None:
    models = trainings(net=profile(noise=NOISY, sync=0.05))
    trace = jobs(0.0, model=f"net (batch size {batch})", gpus=gpus)
    at_mean, trained = run(fair(), trace, models), run(fair(), trace, models, settings=TRAINED)
    # whole samples on each GPU make the batch of three GPUs 102
    assert trained.jobs["jct"][0] == pytest.approx(at_mean.jobs["jct"][0], rel=1e-9 if gpus != 3 else 0.02)


def test_a_gang_on_more_nodes_than_it_needs_is_slower_where_it_is_trained() -> None:
    """Three gangs of four on three nodes with six GPUs: in the order of the GPUs the second is on two of them."""
    models = trainings(net=profile(sync=0.05))
    cluster = allocator.Cluster({"gpu": 12}, gpus_per_server={"gpu": 6})
    settings = TRAINED.replace(placement="in_order")
    trace = jobs(0.0, 0.0, 0.0, gpus=4)
    result = run(fair(), trace, models, cluster, settings)
    alone, spread = 1000 * (0.04 + 0.05), 1000 * (0.04 + 0.1)
    assert result.jobs["jct"].tolist() == pytest.approx([alone, spread, alone])
    assert run(fair(), trace, models, cluster).jobs["jct"].tolist() == pytest.approx([alone] * 3)


def test_gpus_are_free_at_the_end_of_the_round_and_nobody_comes_in_between() -> None:
    models = trainings(net=profile())
    cluster = allocator.Cluster({"gpu": 1}, gpus_per_server={"gpu": 1})
    result = run(fair(), jobs(0.0, 10.0), models, cluster, TRAINED.replace(round_seconds=100.0))
    # each needs 160 s; the second comes in the first round, and both are owed half of the time
    assert result.jobs["start_time"].tolist() == [0.0, 100.0]
    assert sorted(result.jobs["completion_time"]) == pytest.approx([260.0, 360.0])
    assert result.jobs["gpu_seconds"].tolist() == [200.0, 200.0]


def test_rounds_of_the_simulator_of_sia_begin_at_multiples_of_six_minutes_and_epochs_end_in_whole_seconds() -> None:
    models = trainings(net=profile(noise=(1e-9,) * 3, steps=310.0))
    policy = allocator.get_policy("max_sum_throughput_perf")
    result = run(policy, jobs(401.0, 500.0), models, settings=preset("sia"))
    assert result.jobs["start_time"].tolist() == [720.0, 720.0]
    # 30 s to start, and three epochs of 16.53 s
    assert result.jobs["completion_time"].tolist() == [720.0 + 30 + 3 * 17] * 2
    assert result.jobs["gpu_seconds"].tolist() == [360.0, 360.0]


def test_time_received_is_counted_so_that_everybody_has_a_turn() -> None:
    models = trainings(net=profile(steps=8000.0))
    cluster = allocator.Cluster({"gpu": 2}, gpus_per_server={"gpu": 2})
    result = run(fair(), jobs(*(0.0,) * 4), models, cluster, TRAINED)
    # 1,280 s of each of four jobs on two GPUs in rounds of 360 s
    assert result.jobs["completion_time"].max() - result.jobs["completion_time"].min() <= 2 * 360.0
    assert result.makespan == pytest.approx(2 * 4 * 360 - 160, abs=360)


def test_policies_reckon_with_steps_as_they_were_measured() -> None:
    """A model that is slower than it was measured: the policy sees the measured throughput, the job feels the other."""
    seen = []

    class Watching(type(fair())):  # type: ignore[misc]
        def allocate(self, state, *given):
            seen.append((state.rates.tolist(), state.steps_remaining.tolist()))
            return super().allocate(state, *given)

    slower = TRAINED.replace(goodput_slowdown=(("net", 2.0),))
    result = run(Watching(), jobs(0.0, gpus=2), settings=slower)
    # the first is asked for nothing, to have the solver ready
    assert seen[-1] == ([[pytest.approx(1 / 0.08)]], [pytest.approx(1000.0)])
    assert result.jobs["jct"][0] == pytest.approx(1000 * 0.16)


def test_jobs_are_through_after_their_samples_where_the_world_says_so() -> None:
    models = trainings(net=profile(noise=NOISY))
    trace = allocator.Trace(["net (batch size 64)"], [2], [100.0], [0.0])
    settings = TRAINED.replace(goodput_work="samples")
    assert run(fair(), trace, models, settings=settings).jobs["jct"][0] == pytest.approx(100 * 0.32)


@pytest.mark.parametrize("world", [TRAINED, preset("sia")])
def test_a_checkpoint_changes_nothing_in_rounds(world, tmp_path) -> None:
    models = trainings(net=profile(noise=NOISY, sync=0.05, steps=9000.0))
    trace, cluster = jobs(*np.arange(8) * 20.0, gpus=2), allocator.Cluster({"gpu": 8}, gpus_per_server={"gpu": 4})
    name, path = "max_sum_throughput_perf", tmp_path / "state"

    def again(**given):
        return allocator.simulate(trace, cluster, allocator.get_policy(name), models, preset=world, **given)

    whole = again()
    with pytest.raises(StopAt.StopError):
        again(checkpoint=path, checkpoint_every=2, observers=(StopAt(5),))
    assert again(checkpoint=path, resume=True).jobs.equals(whole.jobs)


def test_more_jobs_may_come_while_the_others_train() -> None:
    models = trainings(net=profile(noise=NOISY, sync=0.05, steps=4000.0))

    def first(count: int) -> allocator.Trace:
        return jobs(*np.arange(count) * 300.0, gpus=2)

    cluster = allocator.Cluster({"gpu": 8}, gpus_per_server={"gpu": 4})

    def windowed(known: int, **given):
        return allocator.simulate(first(known), cluster, fair(), models, preset=TRAINED, window=(2, 12), **given)

    longer = windowed(12, extend=first)
    assert longer.jobs["jct"][:12].tolist() == windowed(96).jobs["jct"][:12].tolist()


def test_gangs_without_a_sample_for_each_gpu_are_named_and_settings_checked() -> None:
    with pytest.raises(InputError, match=r"scale_factor of job 0.*found 8, expected at most 4, with 4 samples on each"):
        run(fair(), jobs(0.0, gpus=8), settings=TRAINED)
    with pytest.raises(InputError, match="placement"):
        run(fair(), jobs(0.0), settings=TRAINED.replace(placement="off"))
    with pytest.raises(InputError, match=r"goodput_in_rounds.*mean or trained"):
        FREE.replace(goodput_in_rounds="some")
    # without rounds there is nothing to train in them
    assert run(fair(), jobs(0.0), settings=TRAINED.replace(ideal=True)).jobs["jct"][0] == pytest.approx(160.0)


def test_on_one_gpu_policies_reckon_with_two_micro_batches_and_jobs_take_one_of_the_initial_size() -> None:
    """Each micro-batch takes a tenth of a second, and its 16 or 64 samples a hundredth each."""
    slow = dataclasses.replace(profile(noise=(1e9,)), parameters={"gpu": (0.1, 0.01, 0.0, 0.0, 0.0, 0.0, 1.0)})
    models, seen = trainings(net=slow), []

    class Watching(type(fair())):  # type: ignore[misc]
        def allocate(self, state, *given):
            seen.append(state.rates.tolist())
            return super().allocate(state, *given)

    for batch, steps, really in ((16, 1000.0, 0.26), (64, 250.0, 0.84)):
        for world in (TRAINED, FREE):
            policy = Watching()
            jct = run(policy, jobs(0.0, model=f"net (batch size {batch})"), models, settings=world).jobs["jct"][0]
            assert jct == pytest.approx(steps * really, rel=1e-4)
        reckoned = {16: 0.36, 64: 0.84}[batch]
        assert seen[1] == [[pytest.approx(1 / reckoned)]]
        seen.clear()


def test_micro_batches_have_the_limits_of_the_placement_in_rounds_too(tmp_path) -> None:
    cluster = allocator.Cluster({"gpu": 2}, gpus_per_server={"gpu": 1})
    models = with_fewer_samples_on_two_nodes(tmp_path)
    result = run(fair(), jobs(0.0, gpus=2, model="net (batch size 64)"), models, cluster, TRAINED)
    # 1,000 steps of 16 samples, 32 at a time
    assert result.jobs["jct"][0] == pytest.approx(500 * (0.16 + 0.1), rel=1e-6)
    training = models.find("net")
    submitted = SubmittedTraining(training, 64)
    assert submitted.steps(64, 2) == training.steps(64, 2) > 0
