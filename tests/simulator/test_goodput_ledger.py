"""What is known of the goodput of jobs, and what follows for their columns and batch sizes, reckoned by hand."""

from __future__ import annotations

import copy
import dataclasses

import numpy as np
import pytest

import allocator
from allocator.simulator.goodput.ledger import GoodputLedger, numbers_of_gpus
from allocator.simulator.goodput.rule import Goodput
from tests.simulator.goodput_worlds import profile, trainings


def ledger_of(training, cluster=None, *, batch=16, gpus=1, category="adaptive", **rules):
    """Of one job."""
    cluster = allocator.Cluster({"gpu": 32}, gpus_per_server={"gpu": 4}) if cluster is None else cluster
    categories = np.array([category], dtype=object)
    rule = Goodput(**{f"goodput_{name}": value for name, value in rules.items()})
    return GoodputLedger([training], np.array([float(batch)]), np.array([gpus]), categories, cluster, rule)


def tell(ledger, pool, shape, size):
    """The job has run so in its first epoch."""
    training = ledger.trainings[0]
    step, sync = training.step_time(ledger.pools[pool], shape, size)
    ledger.observe(0, pool, len(shape), sum(shape), size, step, sync)
    ledger.observe_gradients(0, *training.statistics(16, 0))


def columns(ledger):
    ways = ledger.configurations(np.array([0]), ["job"])
    return {(p, g): r for p, g, r in zip(ways.pool.tolist(), ways.gpus.tolist(), ways.rate.tolist(), strict=True)}


def test_numbers_of_gpus_are_powers_within_a_node_and_whole_nodes_or_all():
    for capacity, per_node, gpus, nodes in (
        (16, 4, [1, 2, 4, 8, 12, 16], [1, 1, 1, 2, 3, 4]),
        (7, 8, [1, 2, 4], [1, 1, 1]),
        (4, 8, [1, 2, 4], [1, 1, 1]),
        (12, 6, [1, 2, 4, 6, 12], [1, 1, 1, 1, 2]),
    ):
        found = numbers_of_gpus(capacity, per_node, "powers")
        assert (found.gpus.tolist(), found.nodes.tolist()) == (gpus, nodes)
    found = numbers_of_gpus(6, 4, "all")
    assert (found.gpus.tolist(), found.nodes.tolist()) == ([1, 2, 3, 4, 5, 6], [1, 1, 1, 1, 2, 2])


@pytest.mark.parametrize(
    ("rules", "most"),
    [
        ({}, 16),
        ({"most_gpus": 4}, 4),
        ({"most_gpus": 4, "most_gpus_of_model": (("net", 2),)}, 2),
        ({"most_gpus": 4, "most_gpus_of_model": (("net", 8), ("other", 1))}, 4),
        ({"most_gpus_of_model": (("net", 1),)}, 1),
    ],
)
def test_a_job_may_double_the_most_it_has_run_on_up_to_the_limits(rules, most):
    ledger = ledger_of(trainings(net=profile(sync=0.1)).find("net"), **rules)
    tell(ledger, 0, (4, 4), 4)
    tell(ledger, 0, (1,), 16)
    assert max(gpus for _, gpus in columns(ledger)) == most


def test_true_rates_are_those_of_packed_gpus_with_the_batch_asked_for():
    """A micro-batch takes 0.1 s, its samples 0.01 s each, synchronising 0.05 s on one node and 0.1 s on more."""
    one = dataclasses.replace(profile(), parameters={"gpu": (0.1, 0.01, 0.1, 0.0, 0.05, 0.0, 1.0)})
    training = trainings(net=one).find("net")
    rules = {"knowledge": "true", "batch_size": "submitted", "columns": "all"}
    known = columns(ledger_of(training, batch=60, **rules))
    # at least 4 samples on each GPU, and on a single one two micro-batches at least
    assert sorted(gpus for _, gpus in known) == list(range(1, 16))
    seconds = {1: 2 * (0.1 + 0.3), 2: 0.1 + 0.3 + 0.05, 4: 0.1 + 0.15 + 0.05, 7: 0.1 + 0.09 + 0.1, 15: 0.1 + 0.04 + 0.1}
    assert {gpus: 1 / known[0, gpus] for gpus in seconds} == pytest.approx(seconds)
    # 255 samples on 12 GPUs are 22 on each, 264, if that were not more than a batch may have; on 2 in two micro-batches
    known = columns(ledger_of(training, batch=255, most_gpus=12, **rules))
    assert max(gpus for _, gpus in known) == 12
    assert 1 / known[0, 12] == pytest.approx(0.1 + 0.21 + 0.1)
    assert 1 / known[0, 2] == pytest.approx(2 * (0.1 + 0.64) + 0.05)


def test_jobs_without_a_model_take_the_batch_asked_for_or_the_smallest():
    training = trainings().find("net")
    gpus, nodes = np.array([1, 4, 8, 12]), np.array([1, 1, 2, 3])

    def taken(**given):
        ledger = ledger_of(training, **given)
        return np.stack(ledger.batch_sizes(np.zeros(4, dtype=int), np.zeros(4, dtype=int), nodes, gpus)).T.tolist()

    # on 12 GPUs 4 samples on each, which is as few as a micro-batch may have
    assert taken(batch=64) == [[16, 0], [4, 0], [4, 0], [4, 0]]
    # what is asked for is rounded up, though not beyond the largest batch; one GPU takes two micro-batches at least
    assert taken(batch=50, batch_size="submitted") == [[25, 1], [13, 0], [7, 0], [5, 0]]
    assert taken(batch=255, batch_size="submitted") == [[64, 3], [64, 0], [32, 0], [21, 0]]


def test_iterations_that_are_left_are_those_of_the_epochs_to_come():
    training = trainings(net=profile(noise=(16.0, 1e-9, 16.0), steps=900.0)).find("net")
    ledger = ledger_of(training, batch=64, batch_size="submitted", counts="iterations")
    left = []
    for epoch in range(3):
        ledger.epoch[0] = epoch
        left.append(float(ledger.steps_remaining(np.array([0]), np.array([123.0]))[0]))
    assert left == pytest.approx([300 + 300 / 1.6, 300 / 1.6, 1.0])
    assert ledger_of(training).steps_remaining(np.array([0]), np.array([123.0])).tolist() == [123.0]


def test_a_profile_tells_the_speeds_of_all_types_before_the_first_run_and_their_models_after_it():
    """Three types, of which the job runs on one; two on which it has not are known by their own step times."""
    one = profile(noise=(1e9,), sync=0.1, gpu=1.0, slow=1.0, fast=2.0)
    # on the slow type a step takes a second, and its samples next to nothing
    steps = one.parameters | {"slow": (1.0, 1e-4, 0.2, 0.0, 0.1, 0.0, 1.0)}
    training = trainings(net=dataclasses.replace(one, parameters=steps)).find("net")
    cluster = allocator.Cluster({"gpu": 4, "slow": 4, "fast": 4}, gpus_per_server={"gpu": 4, "slow": 4, "fast": 4})
    ledger = ledger_of(training, cluster, knowledge="profiled")
    # samples/s of the largest micro-batch, 64, in initial batches of 16
    first = {(0, 1): 100 / 16, (1, 1): 64 / 1.0064 / 16, (2, 1): 200 / 16}
    assert columns(ledger) == pytest.approx(first)
    assert {gpus for _, gpus in columns(ledger_of(training, cluster))} == {1}
    tell(ledger, 0, (1,), 16)
    known = columns(ledger)
    # each type by its own model, up to two GPUs: batches of 256 samples, of which the slow type takes 64 at a time
    assert set(known) == {(pool, gpus) for pool in range(3) for gpus in (1, 2)}
    assert [known[pool, 1] for pool in range(3)] == pytest.approx([6.25, 256 / 4.0256 / 16, 12.5], rel=0.02)
    # without a profile they are projected from the first type by the speed of one GPU
    grown = ledger_of(training, cluster)
    tell(grown, 0, (1,), 16)
    other = columns(grown)
    assert other[1, 2] / other[0, 2] == pytest.approx(64 / 1.0064 / 100)


def test_a_ledger_goes_on_from_its_state():
    """With what it has seen and not made models of yet."""
    training = trainings(net=profile(sync=0.1)).find("net")
    one, other = ledger_of(training), ledger_of(training)
    tell(one, 0, (4, 4), 4)
    other.restore(copy.deepcopy(one.state()))
    assert columns(other) == columns(one)
    tell(one, 0, (1,), 64)
    other.restore(copy.deepcopy(one.state()))
    assert columns(other) == columns(one)
