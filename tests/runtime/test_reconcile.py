"""Orders, hardware and knowledge: small functions that the service stands on."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocator.runtime.adapters.base import Node
from allocator.runtime.decisions.hardware import Hardware
from allocator.runtime.decisions.knowledge import Knowledge, moving_average
from allocator.runtime.decisions.reconcile import Target, gpus_of, held, orders
from allocator.runtime.records.book import Job
from throughputs import default_table


def places(gpus: list[int]) -> dict[str, tuple[int, ...]]:
    return {"n": tuple(gpus)} if gpus else {}


@st.composite
def situations(draw: st.DrawFn) -> tuple[dict[str, Target], dict[str, Job]]:
    """Jobs that hold disjoint GPUs of one node, and targets that are disjoint, too."""
    n = draw(st.integers(1, 6))
    jobs: dict[str, Job] = {}
    for side in ("held", "wanted"):
        order = draw(st.permutations(range(8)))
        cuts = [0, *sorted(draw(st.lists(st.integers(0, 8), min_size=n, max_size=n)))]
        parts = [sorted(order[a:b]) for a, b in itertools.pairwise(cuts)]
        if side == "held":
            for k, part in enumerate(parts):
                state = draw(st.sampled_from(["starting", "running", "stopping"])) if part else "queued"
                jobs[str(k)] = Job(k, str(k), ("x",), state=state, places=places(part), pool="a" if part else "")
        else:
            targets = {str(k): Target("a", places(part)) for k, part in enumerate(parts) if part}
    return targets, jobs


@given(situations())
def test_orders_reach_what_is_wanted_and_never_double_a_gpu(
    situation: tuple[dict[str, Target], dict[str, Job]],
) -> None:
    targets, jobs = situation
    for _ in range(3):
        holding = [job for job in jobs.values() if job.places]
        stops, starts = orders(targets, holding, jobs)
        assert all(job.state != "stopping" for job in stops)
        for job in stops:
            job.state = "stopping"
        for job in starts:
            assert job.state == "queued"
            job.state, job.places = "running", targets[job.uuid].places
        assert all(len(owners) == 1 for owners in held(jobs.values()).values())
        for job in jobs.values():
            if job.state == "stopping":
                job.state, job.places = "queued", {}
    there = {uuid: set(gpus_of(job.places)) for uuid, job in jobs.items() if job.places}
    assert there == {uuid: set(gpus_of(target.places)) for uuid, target in targets.items()}


def test_partners_share_and_strangers_do_not() -> None:
    jobs = {name: Job(k, name, ("x",)) for k, name in enumerate("abc")}
    shared = {"a": Target("t", places([0]), "b"), "b": Target("t", places([0]), "a"), "c": Target("t", places([0]))}
    # even where a plan gives a GPU to two of them
    stops, starts = orders(shared, [], jobs)
    assert [job.uuid for job in starts] == ["a", "b"]
    jobs["a"].state, jobs["a"].places = "running", places([0])
    stops, starts = orders(shared, [jobs["a"]], jobs)
    assert not stops
    assert [job.uuid for job in starts] == ["b"]


def test_gpus_are_numbered_type_by_type_and_nodes_come_and_go() -> None:
    nodes = [Node("x", "v100", 2), Node("y", "k80", 4), Node("z", "v100", 4), Node("down", "k80", 4, up=False)]
    hardware = Hardware(nodes)
    assert hardware.cluster.gpus == {"v100": 6, "k80": 4}
    assert hardware.cluster.gpus_per_server == {"v100": 4, "k80": 4}
    assert hardware.places((3, 4)) == {"z": (3,), "x": (0,)}
    assert hardware.numbers({"x": (0,), "z": (3,)}) == (3, 4)
    assert hardware.numbers({"down": (0,)}) is None
    less = Hardware(nodes, hardware.cluster.accelerators, {"z", "y"})
    assert less.cluster.gpus == {"v100": 2, "k80": 0}
    assert less.numbers({"z": (0,)}) is None


@pytest.mark.parametrize(("sizes", "server"), [([4, 4, 2], 4), ([4, 3, 2], 1), ([8, 4, 4], 4), ([], 1)])
def test_servers_of_unequal_size_are_cut_into_equal_ones(sizes: list[int], server: int) -> None:
    nodes = [Node(f"n{k}", "a", size) for k, size in enumerate(sizes)]
    assert Hardware(nodes, ["a"]).cluster.gpus_per_server["a"] == server


def test_what_was_measured_takes_the_place_of_the_table() -> None:
    table = default_table()
    name = "ResNet-18 (batch size 32)"
    knowledge = Knowledge(("v100", "k80"), table)
    usual = knowledge.believed(name, 1, {})
    assert usual["v100", 1] == pytest.approx(table.rates([name], [1], ["v100"])[0, 0])
    slow = knowledge.believed(name, 1, {("k80", 1): usual["k80", 1] / 2})
    # as slow everywhere, as far as anybody knows
    assert slow["v100", 1] == pytest.approx(usual["v100", 1] / 2)
    knowledge.learn(name, 1, {("k80", 1): usual["k80", 1] / 2})
    assert knowledge.believed(name, 1, {}) == slow
    assert knowledge.believed("nobody knows", 3, {}) == {("v100", 3): 1.0, ("k80", 3): 1.0}
    # one that names no type says nothing of others
    knowledge.learn("", 1, {("k80", 1): 7.0})
    assert knowledge.believed("", 1, {}) == {("v100", 1): 1.0, ("k80", 1): 1.0}
    rates = knowledge.rates([slow, knowledge.believed("nobody knows", 3, {})], [1, 3])
    assert rates.shape == (2, 2)
    assert np.all(rates > 0)


def test_moving_average_begins_with_the_first() -> None:
    assert moving_average(None, 4.0) == 4.0
    assert moving_average(4.0, 2.0) == 3.0


@pytest.mark.parametrize(("steps", "duration", "expected"), [(10.0, 5.0, 10.0), (0.0, 5.0, 20.0), (0.0, 0.0, 14400.0)])
def test_steps_that_nobody_told_follow_from_the_duration(steps: float, duration: float, expected: float) -> None:
    ways = {("v100", 2): 4.0, ("k80", 2): 1.0, ("v100", 4): 9.0}
    assert Knowledge(("v100", "k80"), None).expected_steps(steps, duration, ways, 2) == expected
