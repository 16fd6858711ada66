"""Jobs whose goodput changes as they train, in worlds that can be reckoned by hand."""

from __future__ import annotations

import numpy as np
import pytest

import allocator
from allocator import InputError
from allocator.presets import preset
from allocator.protocol import Assignment, Plan, PlanPolicy
from allocator.protocol.policy import Need
from tests.simulator.goodput_worlds import jobs, profile, trainings

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


def test_in_rounds_jobs_run_as_they_asked_to() -> None:
    models = trainings(net=profile(noise=(1e-9,) * 2))
    policy = allocator.get_policy("max_min_fairness_perf")
    result = run(policy, jobs(0.0, gpus=2), models)
    assert result.jobs["jct"][0] == pytest.approx(1000 * 0.08, rel=1e-6)


@pytest.mark.parametrize("name", ["sia", "optimus", "pollux"])
def test_a_checkpoint_changes_nothing(name, tmp_path) -> None:
    models = trainings(net=profile(noise=(50.0, 200.0, 800.0, 3000.0), sync=0.05))
    trace = jobs(*np.arange(8) * 20.0)
    cluster = allocator.Cluster({"gpu": 8}, gpus_per_server={"gpu": 4})
    whole = allocator.simulate(trace, cluster, allocator.get_policy(name), models)

    class StopError(Exception):
        pass

    class Stop:
        def decided(self, *given) -> None:
            pass

        def round_ended(self, outcome) -> None:
            if outcome.index == 25:
                raise StopError

    path = tmp_path / "state"
    with pytest.raises(StopError):
        allocator.simulate(
            trace, cluster, allocator.get_policy(name), models, checkpoint=path, checkpoint_every=7, observers=(Stop(),)
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
    with pytest.raises(InputError, match="goodput_columns"):
        FREE.replace(goodput_columns="some")
