"""Policies that are an order: gang fill, first in first out, and AlloX with the assignment behind it."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from allocator import Allocation, Cluster, ClusterState, ThroughputMatrix, get_policy
from allocator.policies.base.ordering import fill_in_order
from formulations.assignment import assign_to_lines
from tests.policies import worlds
from tests.policies.worlds import TYPES


def one_by_one(
    order: list[int], gpus: list[int], rates: NDArray[np.float64], capacity: list[int], strict: bool
) -> list[tuple[int, int]]:
    free, chosen = list(capacity), []
    for job in order:
        room = [j for j, count in enumerate(free) if rates[job, j] > 0 and gpus[job] <= count]
        if room:
            pool = max(room, key=lambda j: (rates[job, j], -j))
            free[pool] -= gpus[job]
            chosen.append((job, pool))
        elif strict and (rates[job] > 0).any():
            break
    return chosen


@settings(max_examples=50)
@given(data=st.data(), n=st.integers(0, 24), m=st.integers(1, 4), strict=st.booleans(), own=st.booleans())
def test_gang_fill_is_that_of_one_look_at_each_job(
    data: st.DataObject, n: int, m: int, strict: bool, own: bool
) -> None:
    """One job after the other, each on the fastest pool that has room; `own`: no job can choose between pools."""
    gpus = data.draw(st.lists(st.sampled_from([1, 1, 2, 4, 8]), min_size=n, max_size=n))
    capacity = data.draw(st.lists(st.integers(0, 12), min_size=m, max_size=m))
    rows = st.lists(st.sampled_from([0.0, 1.0, 1.0, 2.5, 3.0]), min_size=m, max_size=m)
    rates = np.array(data.draw(st.lists(rows, min_size=n, max_size=n))).reshape(n, m)
    if own and n:
        rates *= np.arange(m) == rates.argmax(axis=1)[:, None]
    order = data.draw(st.permutations(range(n)))
    columns = np.array(order, dtype=np.int64), np.array(gpus, dtype=np.int64), rates, np.array(capacity)
    jobs, pools = fill_in_order(*columns, strict)
    assert list(zip(jobs.tolist(), pools.tolist(), strict=True)) == one_by_one(order, gpus, rates, capacity, strict)


def line_of(rates: Any, sizes: list[int], gpus: tuple[int, int, int], current: Any = None) -> ClusterState:
    matrix = ThroughputMatrix(rates, range(len(rates)), TYPES, sizes)
    now = None if current is None else np.array(current)
    return ClusterState(Cluster(dict(zip(TYPES, gpus, strict=True))), matrix, current_accelerator=now)


def placed(allocation: Allocation) -> list[str | None]:
    return [TYPES[row.argmax()] if row.any() else None for row in allocation.shares]


USUAL = [3, 2, 1]


@pytest.mark.parametrize(
    ("rates", "sizes", "gpus", "expected"),
    [
        # the fastest type with room
        ([USUAL] * 4, [1] * 4, (2, 1, 5), ["v100", "v100", "p100", "k80"]),
        # a job that fits nowhere blocks those behind it
        ([USUAL] * 3, [1, 2, 1], (2, 1, 1), ["v100", None, None]),
        # one that can run nowhere blocks nobody
        ([USUAL, USUAL, [0, 0, 0], USUAL], [1, 9, 1, 1], (2, 1, 1), ["v100", None, None, "v100"]),
        # one that gains nothing from what is free is passed over
        ([USUAL, [3, 0, 0], USUAL], [1, 1, 1], (1, 1, 0), ["v100", None, "p100"]),
        # ties go by the name of the type
        ([[2, 2, 2]], [1], (1, 1, 1), ["k80"]),
    ],
)
def test_first_in_first_out(rates: Any, sizes: list[int], gpus: Any, expected: list[str | None]) -> None:
    assert placed(get_policy("fifo_perf").allocate(line_of(rates, sizes, gpus))) == expected


def test_blind_fifo_keeps_jobs_where_they_are_and_draws_for_each_its_own_type() -> None:
    assert placed(get_policy("fifo").allocate(line_of([USUAL] * 3, [1] * 3, (1, 1, 1), [2, -1, 0]))) == [
        "k80",
        "p100",
        "v100",
    ]
    # nobody passes the first that finds no room
    assert placed(get_policy("fifo").allocate(line_of([USUAL] * 3, [1, 2, 1], (2, 0, 0)))) == ["v100", None, None]
    both = line_of([USUAL] * 2, [1, 1], (9, 9, 9))
    drawn = [placed(get_policy("fifo", seed=seed).allocate(both)) for seed in range(40)]
    assert {first for first, _ in drawn} == set(TYPES)
    # whatever the others do
    alone = both.take(np.array([1]))
    assert [placed(get_policy("fifo", seed=seed).allocate(alone))[0] for seed in range(40)] == [b for _, b in drawn]


def test_shortest_remaining_time_is_that_on_the_fastest_type() -> None:
    """50 s and 80 s."""
    matrix = ThroughputMatrix([[2.0, 0.1], [1.0, 1.0]], "ab", ["v100", "k80"])
    state = ClusterState(Cluster.parse("v100:1,k80:0"), matrix, steps_remaining=np.array([100.0, 80.0]))
    assert get_policy("srtf").allocate(state).shares[:, 0].tolist() == [1.0, 0.0]


def draw_times(seed: int, n: int, closed: float = 0.15) -> NDArray[np.float64]:
    rng = np.random.default_rng(seed)
    times = 10.0 ** rng.uniform(1, 4, (n, 1)) * rng.uniform(1, 5, (n, 3))
    times[rng.random((n, 3)) < closed] = np.inf
    times[~np.isfinite(times).any(axis=1), 0] = 100.0
    return times


@pytest.mark.parametrize("seed", range(8))
def test_assignment_is_that_of_every_gpu_and_position(seed: int) -> None:
    """Against one column for each GPU and each of m positions, as the paper states it."""
    rng = np.random.default_rng(seed)
    m, gpus = int(rng.integers(1, 20)), rng.integers(0, 4, 3)
    gpus[0] = max(gpus[0], 1)
    times = draw_times(seed, m)
    times[~np.isfinite(times[:, gpus > 0]).any(axis=1), 0] = 50.0
    line = assign_to_lines(times, gpus)
    kinds = np.repeat(np.arange(3), gpus)
    every = np.concatenate([k * np.where(np.isfinite(times), times, 1e15)[:, kinds] for k in range(1, m + 1)], axis=1)
    assert line.seconds == pytest.approx(every[linear_sum_assignment(every)].sum(), rel=1e-12)
    assert line.gap == 0.0
    for j, k in product(range(3), range(1, m + 1)):
        assert ((line.accelerator == j) & (line.position == k)).sum() <= gpus[j]


@pytest.mark.parametrize("seed", range(5))
def test_gangs_are_placed_exactly(seed: int) -> None:
    """The least total over every choice of type and position."""
    rng = np.random.default_rng(seed)
    times, sizes, gpus = draw_times(seed, 4, closed=0.0)[:, :2], rng.choice([1, 2, 3], 4), np.array([3, 2])
    sizes[0] = 2
    best, slots = np.inf, list(product(range(2), range(1, 5)))
    for chosen in product(slots, repeat=4):
        used: dict[tuple[int, int], int] = {}
        for i, slot in enumerate(chosen):
            used[slot] = used.get(slot, 0) + int(sizes[i])
        if all(count <= gpus[j] for (j, _), count in used.items()):
            best = min(best, sum(k * times[i, j] for i, (j, k) in enumerate(chosen)))
    line = assign_to_lines(times, gpus, sizes)
    assert line.seconds == pytest.approx(best, rel=1e-9)
    assert line.gap <= 1e-9


def queue(sizes: list[int], cluster: str, **columns: Any) -> ClusterState:
    state = worlds.state_of(len(sizes), cluster, sizes=(1,))
    matrix = ThroughputMatrix(state.rates, range(len(sizes)), TYPES, sizes)
    known = {"steps_remaining": state.steps_remaining, "elapsed_seconds": state.elapsed_seconds} | columns
    return ClusterState(state.cluster, matrix, **{name: np.asarray(column) for name, column in known.items()})


def test_running_jobs_stay_and_as_many_start_as_there_are_gpus_with_work() -> None:
    state = queue([1] * 5, "v100:1,p100:1,k80:1", current_accelerator=[0, 2, -1, -1, -1])
    shares = get_policy("allox").allocate(state).shares
    assert shares[0, 0] == shares[1, 2] == shares[:, 1].sum() == 1.0
    allocation = get_policy("allox").allocate(queue([1] * 30, "v100:3,p100:3,k80:3"))
    assert allocation.status == "optimal"
    assert allocation.shares.sum(axis=0)[:2].tolist() == [3.0, 3.0]


def test_alpha_looks_at_those_that_wait_longest() -> None:
    state = queue([1] * 10, "v100:1,p100:0,k80:0", elapsed_seconds=np.arange(10.0))
    for alpha, first in ((0.0, 9), (1.0, np.argmin(state.steps_remaining / state.rates[:, 0]))):
        assert np.argmax(get_policy("allox", alpha=alpha).allocate(state).shares[:, 0]) == first


def test_the_longest_waiting_gang_is_not_passed_for_ever() -> None:
    """Three of four GPUs are free for a gang of four: none of them is given away, unless told not to reserve."""
    waits = {"elapsed_seconds": [9.0, 8.0, 7.0, 6.0, 5.0], "current_accelerator": [0, -1, -1, -1, -1]}
    state = queue([1, 4, 1, 1, 1], "v100:4,p100:0,k80:0", **waits)
    assert get_policy("allox").allocate(state).shares[1:].sum() == 0
    assert get_policy("allox", reserve=False).allocate(state).shares[1:].sum() == 3
    # of types that lack as much that on which the gang is fastest, the p100, is kept free
    held = {"elapsed_seconds": [9.0, 9.0, 8.0, 1.0], "current_accelerator": [0, 1, -1, -1]}
    shares = get_policy("allox").allocate(queue([1, 1, 4, 1], "v100:4,p100:4,k80:0", **held)).shares
    assert shares[3].tolist() == [1.0, 0.0, 0.0]
    free = queue([1, 4, 1, 1, 1], "v100:4,p100:0,k80:0", elapsed_seconds=[1.0, 8.0, 7.0, 6.0, 5.0])
    assert get_policy("allox").allocate(free).shares.sum() >= 1


def test_gangs_as_one_gpu_get_one_gpus_time() -> None:
    state = queue([1, 2, 4, 8, 1, 2], "v100:2,p100:2,k80:8")
    allocation = get_policy("allox", gangs="one_gpu_share").allocate(state)
    assert (state.scale_factors @ allocation.shares <= state.capacity + 1e-12).all()
    gpus = allocation.shares.sum(axis=1) * state.scale_factors
    np.testing.assert_allclose(gpus[gpus > 0], 1.0)


def test_a_job_waits_rather_than_run_where_it_cannot_and_ties_have_an_order_of_their_own() -> None:
    matrix = ThroughputMatrix([[0.0, 1.0]], ["a"], ["v100", "k80"])
    state = ClusterState(Cluster.parse("v100:1,k80:1"), matrix, current_accelerator=np.array([-1]))
    assert get_policy("allox").allocate(state).shares.tolist() == [[0.0, 1.0]]
    state = queue([1, 2, 4, 1] * 4, "v100:4,p100:4,k80:4", elapsed_seconds=np.zeros(16))
    order = np.random.default_rng(0).permutation(16)
    shares = get_policy("allox").allocate(state).shares
    np.testing.assert_array_equal(shares[order], get_policy("allox").allocate(state.take(order)).shares)
