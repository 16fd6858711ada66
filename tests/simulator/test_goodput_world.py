"""Jobs whose goodput changes as they train, in worlds that can be reckoned by hand."""

from __future__ import annotations

import numpy as np
import pytest

import allocator
from allocator import InputError
from allocator.presets import preset
from allocator.protocol import Assignment, Plan, PlanPolicy
from allocator.protocol.policy import Need
from tests.simulator.cases import with_settings
from tests.simulator.goodput_worlds import jobs, profile, trainings
from throughputs.goodput.trainings.jobs import training_jobs

FREE = preset("default").replace(restart_penalty_seconds=0.0)


class OnGpus(PlanPolicy):
    """Each job on so many GPUs of the first type, in order, as far as there are any; keeps what it was told."""

    name = "on_gpus"
    needs = Need.CONFIGURATIONS

    def __init__(self, gpus):
        self.gpus = gpus
        self.seen = []

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


def test_rigid_jobs_and_those_with_a_fixed_batch_size_have_only_their_columns():
    for category, expected in (("rigid", {2}), ("scale-gpus", {1, 2})):
        policy = OnGpus(2)
        run(policy, jobs(0.0, gpus=2, category=category), settings=FREE.replace(goodput_knowledge="true"))
        assert set(policy.seen[0][1][0]) == expected
    policy = OnGpus(1)
    run(policy, jobs(0.0, gpus=2, category="scale-gpus"))
    assert max(max(known[0]) for _, known in policy.seen) <= 2


def test_a_job_may_double_what_it_has_run_on_and_knows_nothing_at_first():
    policy = OnGpus(1)
    run(policy, jobs(0.0))
    assert policy.seen[0][1][0] == {1: 1.0}
    assert set(policy.seen[1][1][0]) == {1, 2}
    policy = OnGpus(4)
    run(policy, jobs(0.0, gpus=4))
    assert set(policy.seen[1][1][0]) == {1, 2, 4, 8}


def test_another_type_is_projected_by_its_speed_on_one_gpu_or_tried_on_one():
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


def test_bad_input_is_named():
    eight = {"gpus": 8, "category": "rigid"}
    for asked, settings, told in (
        ({"model": "cat"}, {}, "job_type of job 0"),
        ({"model": "net (batch size 8)"}, {}, "a batch size from 16 to 256"),
        ({}, {"placement": "off"}, "placement"),
        ({}, {"ideal": True}, r"field 'ideal'.*false under policy on_gpus"),
        ({}, {"goodput_batch_size_of_model": (("net", 8),)}, "goodput_batch_size_of_model of net.*found 8.*16 to 256"),
        ({}, {"goodput_batch_size_of_model": (("net", 512),)}, "goodput_batch_size_of_model of net.*found 512"),
        ({}, {"goodput_slowdown": (("nett", 2.0),)}, r"'goodput_slowdown': found 'nett', expected .*: one of net$"),
        (eight, {}, r"scale_factor of job 0.*found 8, expected at most 4, with 4 samples on each"),
        ({"gpus": 8}, {"goodput_in_rounds": "trained"}, r"scale_factor of job 0.*found 8, expected at most 4"),
    ):
        of_gangs = "gpus" in asked
        policy = allocator.get_policy("max_min_fairness_perf" if settings and of_gangs else "sia")
        with pytest.raises(InputError, match=told):
            run(policy if of_gangs else OnGpus(1), jobs(0.0, **asked), settings=FREE.replace(**settings))
    with pytest.raises(InputError, match="accelerator type"):
        run(OnGpus(1), jobs(0.0), cluster="v100:4")


def test_an_epoch_is_known_and_met_as_it_begins():
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


def test_an_epoch_that_ends_with_the_slot_is_over():
    seconds, _ = trainings().find("net").step_time("gpu", (1,), 16.0)
    # as many steps as fit between the start, of 30 s, and the end of the first slot
    models = trainings(net=profile(noise=(1e-9,), steps=1.0 / seconds * 30.0))
    policy = OnGpus(1)
    result = run(policy, jobs(0.0, 70.0), models, settings=preset("sia"))
    assert result.jobs["jct"].tolist() == [60.0, 110.0]
    assert [len(known) for _, known in policy.seen] == [1, 1]


def test_epochs_that_end_within_a_slot_are_met_by_jobs_and_wait_for_policies():
    models = trainings(net=profile(noise=(1e-9, 1e9) * 4, steps=1000.0))
    at_once, policy = OnGpus(1), OnGpus(1)
    exact, slots = (
        run(one, jobs(0.0), models, settings=FREE.replace(slot_seconds=seconds)).jobs["jct"][0]
        for one, seconds in ((at_once, 0.0), (policy, 60.0))
    )
    assert len(at_once.seen) == 8
    assert [clock for clock, _ in policy.seen] == [0.0, 60.0, 120.0]
    assert slots == pytest.approx(exact, rel=1e-9)


def test_rates_of_gangs_are_those_of_the_first_epoch_and_of_whole_samples():
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

    def __init__(self, gpus):
        super().__init__(gpus)
        self.watched = []

    def plan(self, state, memory):
        rows = super().plan(state, memory).steps[0].assignment
        self.watched.append((state.clock, state.run_seconds.tolist(), state.throughputs.rates[:, 0].tolist()))
        return Plan.until_next_event(rows.take(np.arange(len(rows))[:: 1 if len(self.watched) % 2 else -1]))


@pytest.mark.parametrize(("counts", "expected"), [(False, 70.0), (True, 100.0)])
def test_a_start_counts_as_service_where_the_world_says_so(counts, expected):
    policy = Watching(1)
    settings = with_settings(FREE, restart_penalty_seconds=30.0, starts_count_as_service=counts)
    run(policy, jobs(0.0, 100.0), settings=settings)
    (watched,) = ((clock, ran) for clock, ran, _ in policy.watched if clock == 100.0)
    assert watched[1] == pytest.approx([expected, 0.0])
