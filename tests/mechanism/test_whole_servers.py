"""Placement that waits for servers: who finds room, and where."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allocator import Cluster
from allocator.mechanism.placement.placement import Placement
from allocator.protocol import Assignment

RULES = ("best_fit", "first_fit")


def rows(jobs):
    """Jobs and their GPUs, on the first pool."""
    return Assignment.of(list(jobs), [0] * len(jobs), list(jobs.values()))


def place(placement, jobs):
    """GPUs of those who are placed."""
    placed = placement.place_changes(rows(jobs)).next.jobs.tolist()
    return {job: placement.gpus_of(job) for job in placed}


def servers(gpus):
    return sorted({gpu // 8 for gpu in gpus})


@pytest.mark.parametrize("rule", RULES)
def test_a_gang_waits_though_gpus_are_free(rule):
    placement = Placement(Cluster({"v": 16}, {"v": 8}), rule)
    assert place(placement, {0: 5, 1: 5, 2: 4}).keys() == {0, 1}
    # One that is smaller does not wait, wherever it stands in the order.
    assert place(placement, {0: 5, 1: 5, 2: 4, 3: 3}).keys() == {0, 1, 3}
    assert servers(place(placement, {1: 5, 2: 4})[2]) == [0]


def test_a_large_gang_takes_idle_servers_and_then_the_one_with_most_free_gpus():
    cluster = Cluster({"v": 32}, {"v": 8})
    placement = Placement(cluster, "best_fit")
    placed = place(placement, {0: 2, 1: 12})
    assert placed[1] == (*range(8, 16), *range(16, 20))  # an idle one before the first, on which six are free
    assert place(placement, {0: 2, 1: 12, 2: 15}).keys() == {0, 1}  # six and four and eight are free
    assert servers(place(placement, {0: 2, 1: 12, 3: 14})[3]) == [0, 3]


def test_gpus_that_two_jobs_share_are_free_when_both_are_gone():
    placement = Placement(Cluster({"v": 8}, {"v": 8}), "best_fit")
    placement.place_changes(Assignment.of([0, 1], [0, 0], [6, 6], [1, 0]))
    assert placement.free_gpus(0, [0]).count == 2
    assert placement.free_gpus(0, [0, 1]).count == 8


@settings(max_examples=40)
@given(st.lists(st.tuples(st.integers(1, 20), st.integers(0, 3)), max_size=25), st.sampled_from(RULES))
def test_gangs_stand_on_as_few_servers_as_they_can(steps, rule):
    """Gangs come, and some go before the next one; whoever room says fits is placed, and nobody else."""
    placement = Placement(Cluster({"v": 36}, {"v": 8}), rule)
    held = {}
    for job, (size, leave) in enumerate(steps):
        gone = list(held)[:leave]
        fits = placement.free_gpus(0, gone).take(size)
        held = {other: gpus for other, gpus in held.items() if other not in gone}
        placed = place(placement, held | {job: size})
        assert (job in placed) == fits
        assert placed.keys() - {job} == held.keys()
        held = {other: len(gpus) for other, gpus in placed.items()}
        used = [gpu for gpus in placed.values() for gpu in gpus]
        assert len(set(used)) == len(used)
        assert all(len(servers(gpus)) == -(-len(gpus) // 8) for gpus in placed.values())
        assert placement.free_gpus(0).count == 36 - len(used)
