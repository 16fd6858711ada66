"""First in, first out."""

from __future__ import annotations

import numpy as np

from allocator import Cluster, ClusterState, ThroughputMatrix, get_policy

TYPES = ["v100", "p100", "k80"]


def state_of(rates, sizes, cluster, current=None):
    matrix = ThroughputMatrix(rates, range(len(rates)), TYPES, sizes)
    return ClusterState(Cluster.parse(cluster), matrix, current_accelerator=current)


def placed(allocation):
    return [TYPES[row.argmax()] if row.any() else None for row in allocation.shares]


def test_each_job_takes_the_fastest_type_with_room():
    state = state_of([[3, 2, 1]] * 4, [1, 1, 1, 1], "v100:2,p100:1,k80:5")
    assert placed(get_policy("fifo_perf").allocate(state)) == ["v100", "v100", "p100", "k80"]


def test_a_job_that_fits_nowhere_blocks_those_behind_it():
    state = state_of([[3, 2, 1]] * 3, [1, 2, 1], "v100:2,p100:1,k80:1")
    assert placed(get_policy("fifo_perf").allocate(state)) == ["v100", None, None]


def test_a_job_that_can_run_nowhere_blocks_nobody():
    state = state_of([[3, 2, 1], [3, 2, 1], [0, 0, 0], [3, 2, 1]], [1, 9, 1, 1], "v100:2,p100:1,k80:1")
    assert placed(get_policy("fifo_perf").allocate(state)) == ["v100", None, None, "v100"]


def test_a_job_that_gains_nothing_from_what_is_free_is_passed_over():
    state = state_of([[3, 2, 1], [3, 0, 0], [3, 2, 1]], [1, 1, 1], "v100:1,p100:1,k80:0")
    assert placed(get_policy("fifo_perf").allocate(state)) == ["v100", None, "p100"]


def test_ties_go_by_the_name_of_the_type():
    state = state_of([[2, 2, 2]], [1], "v100:1,p100:1,k80:1")
    assert placed(get_policy("fifo_perf").allocate(state)) == ["k80"]


def test_blind_fifo_keeps_jobs_where_they_are():
    current = np.array([2, -1, 0])
    state = state_of([[3, 2, 1]] * 3, [1, 1, 1], "v100:1,p100:1,k80:1", current)
    assert placed(get_policy("fifo").allocate(state)) == ["k80", "p100", "v100"]


def test_blind_fifo_draws_among_types_with_room():
    state = state_of([[3, 2, 1]] * 1, [1], "v100:9,p100:9,k80:9")
    drawn = {placed(get_policy("fifo", seed=seed).allocate(state))[0] for seed in range(40)}
    assert drawn == set(TYPES)


def test_blind_fifo_draw_is_the_jobs_own():
    """What a job draws does not depend on jobs that came and went."""
    both = state_of([[3, 2, 1]] * 2, [1, 1], "v100:9,p100:9,k80:9")
    alone = both.subset(np.array([1]))
    assert placed(get_policy("fifo").allocate(both))[1] == placed(get_policy("fifo").allocate(alone))[0]
