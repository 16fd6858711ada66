"""Placement anew beside a plain loop over servers, and what it says changes."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from allocator.cluster import Cluster
from allocator.protocol import Assignment
from allocator.protocol.decision import transition
from allocator.published.elasticflow.placement import PlacementAnew

PER_SERVER = 4
CLUSTER = Cluster({"a100": 18, "t4": 8}, {"a100": PER_SERVER, "t4": 2})


def power_in(number):
    """The largest power of two that divides a number, 0 for 0."""
    return number & -number


def one_by_one(sizes, first, capacity, width):
    """GPUs of gangs in line on one pool, by lists of the free GPUs of each server."""
    whole = [list(range(at, min(at + width, first + capacity))) for at in range(first, first + capacity, width)]
    partly = []
    placed = []

    def take(free, count):
        partly[:] = [other for other in partly if other is not free] + [free]
        taken, free[:count] = free[:count], []
        return taken

    for size in sizes:
        taken = []
        while whole and size - len(taken) >= len(whole[0]):
            taken += whole.pop(0)
        left = size - len(taken)
        exact = [free for free in partly if power_in(len(free)) == left]
        above = [free for free in partly if power_in(len(free)) > left]
        if left and exact:
            taken += take(max(exact, key=len), left)
        elif left and above:
            taken += take(max(above, key=lambda free: (power_in(len(free)), len(free))), left)
        elif left and whole:
            taken += take(whole.pop(0), left)
        elif left:
            for free in partly.copy():
                taken += take(free, min(len(free), size - len(taken)))
        placed.append(tuple(sorted(taken)))
    return placed


@st.composite
def assignments(draw):
    jobs, pools, gpus = [], [], []
    left = CLUSTER.capacity.tolist()
    for job in draw(st.permutations(range(8))):
        pool, size = draw(st.integers(0, 1)), draw(st.sampled_from([1, 1, 2, 3, 4, 8]))
        if size <= left[pool]:
            left[pool] -= size
            jobs.append(job)
            pools.append(pool)
            gpus.append(size)
    return Assignment.of(jobs, pools, gpus)


@settings(max_examples=30)
@given(rows=st.lists(assignments(), min_size=1, max_size=5))
def test_gangs_get_what_a_plain_loop_gives_them(rows):
    placement = PlacementAnew(CLUSTER)
    last, held = Assignment.none(), {}
    for assignment in rows:
        change = placement.place_changes(assignment)
        expected = {}
        for pool, width in enumerate((PER_SERVER, 2)):
            here = assignment.pool == pool
            first, capacity = int(CLUSTER.first_gpu[pool]), int(CLUSTER.capacity[pool])
            gpus = one_by_one(assignment.gpus[here].tolist(), first, capacity, width)
            expected |= dict(zip(assignment.jobs[here].tolist(), gpus, strict=True))
        assert {job: placement.gpus_of(job) for job in assignment.jobs.tolist()} == expected
        moved = [job for job, gpus in expected.items() if held.get(job, gpus) != gpus]
        found = transition(last, assignment, np.array(sorted(moved), dtype=np.int64))
        for name in ("start", "stop", "move", "resize", "rows"):
            assert getattr(change, name).tolist() == getattr(found, name).tolist(), name
        last, held = assignment, expected
