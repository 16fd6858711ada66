"""Placement of jobs that share GPUs in fractions: sums of at most one on each GPU, best fit, and room."""

from __future__ import annotations

import numpy as np
import pytest

from allocator.cluster import Cluster
from allocator.mechanism.placement.fractions import FractionPlacement
from allocator.protocol.assignment import Assignment
from allocator.protocol.state import ClusterState
from throughputs import InputError

RULES = ("consolidated", "in_order", "buddy", "local_search", "most_free", "best_fit", "first_fit")


def rows(*jobs):
    """Jobs with thousandths of a GPU below 1000, or so many thousands for a gang; all on the first pool."""
    sizes = np.array([size for _, size in jobs], dtype=np.int64)
    ids, gpus = [job for job, _ in jobs], np.maximum(sizes // 1000, 1)
    return Assignment.of(ids, np.zeros(len(jobs)), gpus).with_fractions(np.minimum(sizes, 1000))


def placement(gpus=4, servers=2, rule="consolidated"):
    return FractionPlacement(Cluster({"gpu": gpus}, {"gpu": servers}), rule)


def loads(placed, assignment):
    """Thousandths in use of each GPU; an error where a gang's GPU has anybody else."""
    found = {}
    for job, part, gpus in zip(
        assignment.jobs.tolist(), assignment.thousandths.tolist(), assignment.gpus.tolist(), strict=True
    ):
        ids = placed.gpus_of(job)
        assert len(set(ids)) == gpus
        for gpu in ids:
            found[gpu] = found.get(gpu, 0) + part
    assert max(found.values(), default=0) <= 1000
    return found


def test_fractions_go_where_least_is_left():
    placed = placement()
    placed.place_changes(rows((0, 600), (1, 700), (2, 300), (3, 400), (4, 100)))
    where = [placed.gpus_of(job) for job in range(5)]
    assert where[0] == where[3] != where[1] == where[2]
    assert where[4] not in (where[0], where[1])
    with pytest.raises(InputError, match="no room for jobs"):
        placement(1, 1).place(rows((0, 600), (1, 600)))


def test_who_finds_no_room_is_left_out_though_as_much_is_free_in_sum():
    placed = placement(2, 2)
    placed.place(rows((0, 600), (1, 600)))
    change = placed.place_changes(rows((0, 600), (1, 600), (2, 500), (3, 400), (4, 1000)))
    assert change.next.jobs.tolist() == [0, 1, 3]
    assert change.start.tolist() == [3]
    room = placed.room(np.array([0, 1, 3]), [])
    assert room.free(0) == pytest.approx(0.4)
    assert [room.take(0, 0.5), room.take(0, 1), room.take(0, 0.4), room.take(0, 0.001)] == [False, False, True, False]
    room.give_back(1)
    assert [room.take(0, 0.7), room.take(0, 0.6)] == [False, True]


def test_who_shares_moves_where_others_find_room_by_that_alone():
    placed = placement(2, 2)
    placed.place(rows((0, 600), (1, 300), (2, 600)))
    assert placed.gpus_of(0) == placed.gpus_of(1) != placed.gpus_of(2)
    after = rows((1, 300), (2, 600), (3, 1000))
    change = placed.place_changes(after)
    assert change.next.jobs.tolist() == [1, 2, 3]
    assert change.start.tolist() == [3]
    assert change.move.tolist() == [2]
    assert placed.gpus_of(1) == placed.gpus_of(2) != placed.gpus_of(3)
    assert loads(placed, change.next) == {placed.gpus_of(1)[0]: 900, placed.gpus_of(3)[0]: 1000}


@pytest.mark.parametrize("rule", RULES)
def test_a_long_run_of_decisions(rule):
    """Nobody who goes on is moved but by rules that move; never more than one in sum; room says who is placed."""
    rng = np.random.default_rng(RULES.index(rule))
    placed, running = placement(8, 4, rule), rows()
    sizes = {}
    where = {}
    for step in range(60):
        stay = [job for job in running.jobs.tolist() if rng.random() < 0.8]
        new = range(4 * step, 4 * step + 4)
        waits = [job for job in sizes if job not in running.jobs and rng.random() < 0.2]
        sizes |= {job: int(rng.choice([100, 250, 333, 500, 810, 1000, 2000, 4000])) for job in new}
        gone = [job for job in running.jobs.tolist() if job not in stay]
        room = placed.room(np.array(sorted(stay), dtype=np.int64), gone)
        fits = [job for job in [*waits, *new] if room.take(0, sizes[job] / 1000)]
        change = placed.place_changes(rows(*((job, sizes[job]) for job in [*stay, *fits])))
        running = change.next
        assert running.jobs.tolist() == [*stay, *fits]
        assert change.start.tolist() == sorted(fits)
        loads(placed, running)
        if rule not in ("in_order", "buddy"):
            assert not len(change.move)
        now = {job: placed.gpus_of(job) for job in running.jobs.tolist()}
        moved = {job for job in now.keys() & where.keys() if now[job] != where[job] and job in stay}
        assert moved <= set(change.move.tolist())
        where = now
        if step % 20 == 10:
            other = placement(8, 4, rule)
            other.restore(running, [now[job] for job in running.jobs.tolist()], placed.state())
            assert {job: other.gpus_of(job) for job in now} == now
            placed = other
        if step % 20 == 15:
            other = placement(8, 4, rule)
            other.adopt(running, [now[job] for job in running.jobs.tolist()])
            assert {job: other.gpus_of(job) for job in now} == now
            placed = other


def test_a_state_without_placement_has_room_in_sum():
    running = Assignment.of([0, 1], [0, 0], [1, 1]).with_fractions(np.array([700, 1000]))
    state = ClusterState("gpu:2", {"gpu": [1.0, 1.0, 1.0]}, running=running, gpu_thousandths=np.array([700, 1000, 300]))
    assert state.gpus_taken.tolist() == [0.7, 1.0, 0.3]
    assert state.take(np.array([0, 2])).running.thousandths.tolist() == [700]
    room = state.room()
    assert [room.free(0), room.take(0, 0.3), room.take(0, 0.1)] == [0.3, True, False]
    room.give_back(0)
    assert [room.take(0, 0.7), room.take(0, 0.001)] == [True, False]
    room.give_back(1)
    assert room.take(0, 1)
