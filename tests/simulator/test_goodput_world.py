"""Jobs whose goodput changes as they train, in worlds that can be reckoned by hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import allocator
from allocator import InputError
from allocator.presets import preset
from allocator.protocol import Assignment, Plan, PlanPolicy
from allocator.protocol.policy import Need
from tests.simulator.goodput_worlds import StopAt, jobs, profile, trainings, with_fewer_samples_on_two_nodes
from throughputs.goodput.trainings.jobs import training_jobs

FREE = preset("default").replace(restart_penalty_seconds=0.0)


class OnGpus(PlanPolicy):
    """Each job on so many GPUs of the first type, in order, as far as there are any; keeps what it was told."""

    name = "on_gpus"
    needs = Need.CONFIGURATIONS

    def __init__(self, gpus: int) -> None:
        self.gpus = gpus
        self.seen: list[tuple[float, dict[int, dict[int, float]]]] = []

    def plan(self, state, memory):  # noqa: ARG002
        ways = state.configurations
        known = [
            dict(zip(ways.gpus[ways.job == i].tolist(), ways.rate[ways.job == i].tolist(), strict=True))
            for i in range(state.n_jobs)
        ]
        self.seen.append((state.clock, dict(enumerate(known))))
        n = min(state.n_jobs, int(state.capacity[0]) // self.gpus)
        return Plan.until_next_event(Assignment.of(range(n), pool=[0] * n, gpus=[self.gpus] * n))


def run(policy, trace, models=None, cluster=None, settings=FREE):
    cluster = allocator.Cluster({"gpu": 8}, gpus_per_server={"gpu": 4}) if cluster is None else cluster
    return allocator.simulate(trace, cluster, policy, trainings() if models is None else models, preset=settings)


def test_a_job_on_one_gpu_takes_its_steps_at_its_initial_batch_size_when_larger_ones_are_worth_nothing() -> None:
    # without noise a larger batch is worth no more than the initial one
    models = trainings(net=profile(noise=(1e-9, 1e-9)))
    result = run(OnGpus(1), jobs(0.0), models)
    assert result.jobs["jct"][0] == pytest.approx(1000 * 0.16, rel=1e-6)


def test_with_endless_noise_a_sample_is_worth_a_sample_whatever_the_batch() -> None:
    assert run(OnGpus(1), jobs(0.0)).jobs["jct"][0] == pytest.approx(1000 * 0.16, rel=1e-4)
    assert run(OnGpus(4), jobs(0.0, gpus=4)).jobs["jct"][0] == pytest.approx(1000 * 0.16 / 4, rel=1e-4)


def test_synchronisation_pays_off_in_larger_batches() -> None:
    """The job learns what synchronisation costs in its first epoch, and chooses larger batches from then on."""
    models = trainings(net=profile(noise=(1e9,) * 10, sync=0.1))
    result = run(OnGpus(4), jobs(0.0, gpus=4), models)
    first = 100 * (0.04 + 0.1)
    rest = 900 * 16 / 256 * (0.64 + 0.1)
    assert result.jobs["jct"][0] == pytest.approx(first + rest, rel=0.02)


def test_what_a_job_submitted_is_kept_where_the_world_says_so() -> None:
    models = trainings(net=profile(noise=(1e9,) * 10, sync=0.1))
    result = run(OnGpus(4), jobs(0.0, gpus=4), models, settings=FREE.replace(goodput_batch_size="submitted"))
    assert result.jobs["jct"][0] == pytest.approx(1000 * (0.04 + 0.1), rel=1e-6)


def test_rigid_jobs_and_those_with_a_fixed_batch_size_have_only_their_columns() -> None:
    for category, expected in (("rigid", {2}), ("scale-gpus", {1, 2})):
        policy = OnGpus(2)
        run(policy, jobs(0.0, gpus=2, category=category), settings=FREE.replace(goodput_knowledge="true"))
        assert set(policy.seen[0][1][0]) == expected
    policy = OnGpus(1)
    run(policy, jobs(0.0, gpus=2, category="scale-gpus"))
    assert max(max(known[0]) for _, known in policy.seen) <= 2


def test_a_job_may_double_what_it_has_run_on_and_knows_nothing_at_first() -> None:
    policy = OnGpus(1)
    run(policy, jobs(0.0))
    assert policy.seen[0][1][0] == {1: 1.0}
    assert set(policy.seen[1][1][0]) == {1, 2}
    policy = OnGpus(4)
    run(policy, jobs(0.0, gpus=4))
    assert set(policy.seen[1][1][0]) == {1, 2, 4, 8}


def test_rates_that_policies_see_after_a_run_are_those_that_jobs_have() -> None:
    policy = OnGpus(4)
    result = run(policy, jobs(0.0, gpus=4), trainings(net=profile(noise=(100.0,) * 10, sync=0.05)))
    clock, known = policy.seen[-1]
    assert 100 / known[0][4] == pytest.approx(result.makespan - clock, rel=0.02)


def test_another_type_is_projected_by_its_speed_on_one_gpu_or_tried_on_one() -> None:
    models = trainings(net=profile(gpu=1.0, fast=3.0))
    cluster = allocator.Cluster({"gpu": 4, "fast": 4}, gpus_per_server={"gpu": 4, "fast": 4})

    class Looking(OnGpus):
        def plan(self, state, memory):
            ways = state.configurations
            self.columns = {
                (p, g): r for p, g, r in zip(ways.pool.tolist(), ways.gpus.tolist(), ways.rate.tolist(), strict=True)
            }
            return super().plan(state, memory)

    policy = Looking(2)
    run(policy, jobs(0.0, gpus=2), models, cluster)
    assert policy.columns[1, 2] == pytest.approx(3 * policy.columns[0, 2], rel=1e-6)
    policy = Looking(2)
    run(policy, jobs(0.0, gpus=2), models, cluster, FREE.replace(goodput_projection=False))
    assert {key for key in policy.columns if key[0] == 1} == {(1, 1)}
    assert policy.columns[1, 1] == min(rate for (pool, _), rate in policy.columns.items() if pool == 0)


def test_a_job_is_slower_where_its_gpus_are_on_several_nodes() -> None:
    models = trainings(net=profile(noise=(1e-9,), sync=0.5))
    together = run(OnGpus(4), jobs(0.0, gpus=4), models).jobs["jct"][0]
    apart = run(OnGpus(4), jobs(0.0, gpus=4), models, allocator.Cluster({"gpu": 4}, gpus_per_server={"gpu": 1})).jobs[
        "jct"
    ][0]
    assert together == pytest.approx(1000 * 0.54)
    assert apart == pytest.approx(1000 * 1.04)


def test_epochs_end_in_whole_seconds_where_the_published_worlds_have_that() -> None:
    models = trainings(net=profile(noise=(1e-9,) * 4, steps=1000.0))
    result = run(OnGpus(1), jobs(0.0), models, settings=preset("sia").replace(restart_penalty_by_job_type=()))
    # 250 steps take 40 s each; the start takes 30 s
    assert result.jobs["jct"][0] == 190.0
    slow = trainings(net=profile(noise=(1e-9,) * 4, steps=1010.0))
    result = run(OnGpus(1), jobs(0.0), slow, settings=preset("sia").replace(restart_penalty_by_job_type=()))
    assert result.jobs["jct"][0] == 30.0 + 4 * 40.0  # 40.4 s count as 40


def test_slots_begin_at_the_origin() -> None:
    result = run(OnGpus(1), jobs(10.0), settings=preset("sia"))
    assert result.jobs["start_time"][0] == 60.0


@pytest.mark.parametrize("name", ["sia", "optimus", "pollux"])
def test_a_checkpoint_changes_nothing(name, tmp_path) -> None:
    models = trainings(net=profile(noise=(50.0, 200.0, 800.0, 3000.0), sync=0.05))
    trace = jobs(*np.arange(8) * 20.0)
    cluster = allocator.Cluster({"gpu": 8}, gpus_per_server={"gpu": 4})
    whole = allocator.simulate(trace, cluster, allocator.get_policy(name), models)

    path = tmp_path / "state"
    with pytest.raises(StopAt.StopError):
        allocator.simulate(
            trace,
            cluster,
            allocator.get_policy(name),
            models,
            checkpoint=path,
            checkpoint_every=7,
            observers=(StopAt(25),),
        )
    resumed = allocator.simulate(trace, cluster, allocator.get_policy(name), models, checkpoint=path, resume=True)
    assert resumed.jobs.equals(whole.jobs)


def test_bad_input_is_named() -> None:
    with pytest.raises(InputError, match="job_type of job 0"):
        run(OnGpus(1), jobs(0.0, model="cat"))
    with pytest.raises(InputError, match="a batch size from 16 to 256"):
        run(OnGpus(1), jobs(0.0, model="net (batch size 8)"))
    with pytest.raises(InputError, match="accelerator type"):
        run(OnGpus(1), jobs(0.0), cluster="v100:4")
    with pytest.raises(InputError, match="placement"):
        run(OnGpus(1), jobs(0.0), settings=FREE.replace(placement="off"))
    with pytest.raises(InputError, match=r"field 'ideal'.*false under policy on_gpus"):
        run(OnGpus(1), jobs(0.0), settings=FREE.replace(ideal=True))
    for size in (8, 512):
        with pytest.raises(InputError, match=f"goodput_batch_size_of_model of net.*found {size}.*16 to 256"):
            run(OnGpus(1), jobs(0.0), settings=FREE.replace(goodput_batch_size_of_model=(("net", size),)))
    with pytest.raises(InputError, match="goodput_columns"):
        FREE.replace(goodput_columns="some")


def test_an_epoch_is_known_and_met_as_it_begins() -> None:
    """From the second epoch on larger batches are worth something; each is met when it begins, starts included."""
    models = trainings(net=profile(noise=(1e-9, 1e9, 1e9), steps=300.0, sync=0.1))
    for start in (0.0, 30.0):
        policy = OnGpus(4)
        result = run(policy, jobs(0.0, gpus=4), models, settings=FREE.replace(restart_penalty_seconds=start))
        first, other = 100 * 0.14, 100 * 16 / 256 * 0.74
        clocks = [clock for clock, _ in policy.seen]
        assert clocks == pytest.approx([0.0, start + first, start + first + other], rel=1e-6)
        # not what batches were worth before
        assert policy.seen[1][1][0][4] > 2 / 0.14
        assert result.jobs["jct"][0] == pytest.approx(start + first + 2 * other, rel=1e-6)


def test_what_a_job_does_is_known_before_its_epoch_is_over() -> None:
    policy = OnGpus(1)
    run(policy, jobs(0.0, 10.0))
    (known,) = (known for clock, known in policy.seen if clock == 10.0)
    assert set(known[0]) == {1, 2}
    assert known[0][1] >= 6.25 * (1 - 1e-6)
    assert known[1] == {1: 1.0}


def test_an_epoch_that_ends_with_the_slot_is_over() -> None:
    seconds, _ = trainings().find("net").step_time("gpu", (1,), 16.0)
    # as many steps as fit between the start, of 30 s, and the end of the first slot
    models = trainings(net=profile(noise=(1e-9,), steps=1.0 / seconds * 30.0))
    policy = OnGpus(1)
    result = run(policy, jobs(0.0, 70.0), models, settings=preset("sia"))
    assert result.jobs["jct"].tolist() == [60.0, 110.0]
    assert [len(known) for _, known in policy.seen] == [1, 1]


def test_micro_batches_are_no_larger_than_was_measured_where_the_gpus_are(tmp_path: Path) -> None:
    cluster = allocator.Cluster({"gpu": 2}, gpus_per_server={"gpu": 1})
    result = run(OnGpus(2), jobs(0.0, gpus=2), with_fewer_samples_on_two_nodes(tmp_path), cluster)
    assert result.jobs["jct"][0] == pytest.approx(500 * (0.08 + 0.1) + 250 * (0.16 + 0.1), rel=1e-6)


def test_steps_of_the_batch_size_asked_for_are_worth_what_the_noise_says() -> None:
    """Noise as large as the initial batch: one of s times the size is worth 2 / (1 / s + 1) steps."""
    models = trainings(net=profile(noise=(16.0, 16.0), sync=0.1))
    policy = allocator.get_policy("max_min_fairness_perf")
    # four times the initial batch, on one GPU; and 16 times, of which a GPU takes two micro-batches of 64
    result = run(policy, jobs(0.0, model="net (batch size 64)"), models)
    assert result.jobs["jct"][0] == pytest.approx(1000 / 1.6 * 0.64, rel=1e-6)
    result = run(policy, jobs(0.0, gpus=2, model="net (batch size 256)"), models)
    assert result.jobs["jct"][0] == pytest.approx(1000 * (1 / 16 + 1) / 2 * (0.64 + 0.64 + 0.1), rel=1e-6)


def test_rates_of_gangs_are_those_of_the_first_epoch_and_of_whole_samples() -> None:
    models = trainings(net=profile(noise=(16.0, 1e9), gpu=1.0, fast=4.0), other=profile(gpu=1.0))
    found = training_jobs(jobs(0.0, gpus=3, model="net (batch size 64)"), models)
    # three GPUs take 22 samples each, 66 together
    worth = 2 / (16 / 66 + 1)
    nodes = {"gpu": 4, "fast": 4}
    assert found.gang_rates(("gpu", "fast"), nodes)[0] == pytest.approx([worth / 0.22, worth / 0.055])
    assert found.gang_rates(("gpu", "fast"), nodes, asked_for=True)[0] == pytest.approx([1 / 0.22, 1 / 0.055])
    other = training_jobs(jobs(0.0, model="other"), models)
    assert other.gang_rates(("gpu", "fast"), nodes)[0] == pytest.approx([6.25, 0.0])


class Watching(OnGpus):
    """Also keeps how long jobs have run, and the rates of their gangs; at each event the jobs in the other order."""

    needs = Need.CONFIGURATIONS | Need.SERVICE

    def __init__(self, gpus: int) -> None:
        super().__init__(gpus)
        self.watched: list[tuple[float, list[float], list[float]]] = []

    def plan(self, state, memory):
        rows = super().plan(state, memory).steps[0].assignment
        self.watched.append((state.clock, state.run_seconds.tolist(), state.throughputs.rates[:, 0].tolist()))
        return Plan.until_next_event(rows.take(np.arange(len(rows))[:: 1 if len(self.watched) % 2 else -1]))


def test_a_model_may_be_slower_than_it_was_measured() -> None:
    slower = FREE.replace(goodput_slowdown=(("net", 2.0), ("bert", 3.0)))
    policy = Watching(1)
    result = run(policy, jobs(0.0), trainings(net=profile(noise=(1e-9,))), settings=slower)
    assert result.jobs["jct"][0] == pytest.approx(2 * 160, rel=1e-6)
    assert policy.watched[0][2] == pytest.approx([3.125])
    rounds = allocator.get_policy("max_min_fairness_perf")
    assert run(rounds, jobs(0.0), settings=slower).jobs["jct"][0] == pytest.approx(2 * 160, rel=1e-6)


def test_a_misspelt_model_is_told_those_of_the_run() -> None:
    """The embedded profiles, of which presets may name some, are not in it."""
    with pytest.raises(InputError, match=r"'goodput_slowdown': found 'nett', expected .*: one of net$"):
        run(Watching(1), jobs(0.0), settings=FREE.replace(goodput_slowdown=(("nett", 2.0),)))


def test_jobs_are_known_by_the_nodes_that_they_run_on() -> None:
    models = trainings(net=profile(noise=(1e9, 1e9), sync=0.5))
    cluster = allocator.Cluster({"gpu": 4}, gpus_per_server={"gpu": 1})
    policy = OnGpus(4)
    run(policy, jobs(0.0, gpus=4), models, cluster, FREE.replace(goodput_batch_size="submitted"))
    assert policy.seen[-1][1][0][4] == pytest.approx(1 / 1.04, rel=1e-3)


@pytest.mark.parametrize(("counts", "expected"), [(False, 70.0), (True, 100.0)])
def test_a_start_counts_as_service_where_the_world_says_so(counts, expected) -> None:
    policy = Watching(1)
    settings = FREE.replace(restart_penalty_seconds=30.0, starts_count_as_service=counts)
    run(policy, jobs(0.0, 100.0), settings=settings)
    (watched,) = ((clock, ran) for clock, ran, _ in policy.watched if clock == 100.0)
    assert watched[1] == pytest.approx([expected, 0.0])


@pytest.mark.parametrize(("keeps", "expected"), [(True, 30.0 + 40.0), (False, 30.0 + 40.0 + 30.0)])
def test_who_moves_to_as_many_gpus_on_each_node_starts_anew_or_not(keeps, expected) -> None:
    """Two jobs on a node each, that change places after the first of two epochs of 20 s."""
    settings = FREE.replace(placement="anew", restart_penalty_seconds=30.0, restart_keeps_shape=keeps)
    result = run(Watching(4), jobs(0.0, 0.0, gpus=4), settings=settings)
    assert result.jobs["jct"].tolist() == pytest.approx([expected, expected], rel=1e-3)


def test_the_world_of_pollux() -> None:
    """Starts are service, any number of GPUs may be chosen, and jobs of one model have one GPU at most."""
    for model, expected in (("ncf", {1}), ("net", {1, 2, 3, 4})):
        policy = Watching(2)
        trace = jobs(0.0, gpus=2, model=f"{model} (batch size 16)")
        run(policy, trace, trainings(**{model: profile()}), settings=preset("pollux"))
        assert [(clock, ran) for clock, ran, _ in policy.watched] == [(0.0, [0.0]), (60.0, [60.0])]
        assert set(policy.seen[1][1][0]) == expected


@pytest.mark.parametrize("name", ["sia", "pollux", "optimus", "sia_fixed", "pollux_fixed"])
def test_jobs_that_run_with_what_they_asked_for_start_with_it(name: str) -> None:
    trace = jobs(0.0, 0.0, gpus=3, category="rigid", model="net (batch size 32)")
    result = run(allocator.get_policy(name), trace)
    assert (result.jobs["status"] == "completed").all()
    np.testing.assert_allclose(result.jobs["gpu_seconds"], 3 * result.jobs["running_time"])
    policy = allocator.get_policy(name)
    if policy.own_gangs:
        other = run(policy, jobs(0.0, gpus=3))
        np.testing.assert_allclose(other.jobs["gpu_seconds"], 3 * other.jobs["running_time"])


def test_who_asks_for_more_than_there_is_runs_on_what_there_is() -> None:
    result = run(allocator.get_policy("sia"), jobs(0.0, gpus=64))
    assert result.jobs["status"].tolist() == ["completed"]
    rigid = jobs(0.0, gpus=64, category="rigid", model="net (batch size 256)")
    assert run(allocator.get_policy("sia"), rigid).jobs["status"].tolist() == ["unserved"]


def test_a_gang_has_samples_for_each_of_its_gpus() -> None:
    with pytest.raises(InputError, match=r"scale_factor of job 0.*found 8, expected at most 4, with 4 samples on each"):
        run(allocator.get_policy("sia"), jobs(0.0, gpus=8, category="rigid"))


@pytest.mark.parametrize("name", ["sia", "optimus", "pollux"])
def test_ends_are_never_later_than_the_stretch_that_they_end(name: str) -> None:
    """The sum of a start and a time may be an ulp beyond the end that the time was taken to."""
    one = allocator.Cluster({"gpu": 1}, gpus_per_server={"gpu": 1})
    models = trainings(net=profile(noise=(1e-9,)))
    result = run(allocator.get_policy(name), jobs(84.24, 244.24001), models, cluster=one)
    assert (result.jobs["status"] == "completed").all()
    whole = preset("sia").replace(restart_penalty_by_job_type=(), restart_penalty_seconds=30.3)
    result = run(allocator.get_policy(name), jobs(0.0), trainings(net=profile(noise=(1e-9,), steps=185.0)),
                 cluster=one, settings=whole)  # fmt: skip
    assert (result.jobs["status"] == "completed").all()
