"""AlloX and the assignment behind it."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment, linprog
from scipy.sparse import csr_array

from allocator import Cluster, ClusterState, ThroughputMatrix, default_table, get_policy
from formulations.assignment import assign_to_lines
from throughputs import InputError

TYPES = ["v100", "p100", "k80"]


def draw_times(seed, n, closed=0.15):
    rng = np.random.default_rng(seed)
    times = 10.0 ** rng.uniform(1, 4, (n, 1)) * rng.uniform(1, 5, (n, 3))
    times[rng.random((n, 3)) < closed] = np.inf
    times[~np.isfinite(times).any(axis=1), 0] = 100.0
    return times


def state_of(n, cluster, *, sizes=None, current=None, elapsed=None, seed=0):
    rng = np.random.default_rng(seed)
    table, gpus = default_table(), Cluster.parse(cluster)
    sizes = np.ones(n, dtype=int) if sizes is None else np.asarray(sizes)
    able = {s: [t for t in table.job_types if s in table.scale_factors_of(t)] for s in set(sizes.tolist())}
    names = [able[int(s)][rng.integers(len(able[int(s)]))] for s in sizes]
    return ClusterState(
        gpus,
        table.matrix(range(n), names, sizes, gpus.accelerators),
        steps_remaining=rng.uniform(1e3, 1e6, n),
        elapsed_seconds=rng.uniform(0, 1e5, n) if elapsed is None else np.asarray(elapsed, dtype=float),
        current_accelerator=current,
    )


@pytest.mark.parametrize("seed", range(12))
def test_assignment_is_that_of_every_gpu_and_position(seed):
    """Against one column for each GPU and each of m positions, as the paper states it."""
    rng = np.random.default_rng(seed)
    m, gpus = int(rng.integers(1, 20)), rng.integers(0, 4, 3)
    gpus[0] = max(gpus[0], 1)
    times = draw_times(seed, m)
    times[~np.isfinite(times[:, gpus > 0]).any(axis=1), 0] = 50.0
    line = assign_to_lines(times, gpus)
    kinds = np.repeat(np.arange(3), gpus)
    every = np.concatenate([k * np.where(np.isfinite(times), times, 1e15)[:, kinds] for k in range(1, m + 1)], axis=1)
    rows, columns = linear_sum_assignment(every)
    assert line.seconds == pytest.approx(every[rows, columns].sum(), rel=1e-12)
    assert line.gap == 0.0
    for j, k in product(range(3), range(1, m + 1)):
        assert ((line.accelerator == j) & (line.position == k)).sum() <= gpus[j]


def test_a_single_line_is_shortest_first():
    times = np.array([[30.0], [10.0], [20.0]])
    line = assign_to_lines(times, [1])
    np.testing.assert_array_equal(line.position, [1, 3, 2])
    assert line.seconds == 3 * 10 + 2 * 20 + 30


def brute_force_gangs(times, gpus, sizes, deepest):
    """Least total over every choice of type and position."""
    m, M = times.shape
    best = np.inf
    slots = [(j, k) for j in range(M) for k in range(1, deepest + 1)]
    for chosen in product(slots, repeat=m):
        used: dict[tuple[int, int], int] = {}
        total = 0.0
        for i, (j, k) in enumerate(chosen):
            total += k * times[i, j]
            used[j, k] = used.get((j, k), 0) + int(sizes[i])
        if total < best and all(count <= gpus[j] for (j, _), count in used.items()):
            best = total
    return best


@pytest.mark.parametrize("seed", range(8))
def test_gangs_are_placed_exactly(seed):
    rng = np.random.default_rng(seed)
    times, sizes = draw_times(seed, 5, closed=0.0)[:, :2], rng.choice([1, 2, 3], 5)
    gpus = np.array([3, 2])
    sizes[0] = 2
    line = assign_to_lines(times, gpus, sizes)
    closed = np.where(sizes[:, None] <= gpus, times, np.inf)
    assert line.seconds == pytest.approx(brute_force_gangs(closed, gpus, sizes, 5), rel=1e-9)
    assert line.gap <= 1e-9


@pytest.mark.parametrize("seed", range(4))
def test_bound_of_an_inexact_placement_holds(seed):
    rng = np.random.default_rng(seed)
    times, sizes = draw_times(seed, 30), rng.choice([1, 2, 4], 30)
    exact = assign_to_lines(times, [4, 4, 4], sizes)
    rough = assign_to_lines(times, [4, 4, 4], sizes, precision=0.02)
    assert rough.bound <= exact.seconds * (1 + 1e-9)
    assert exact.seconds <= rough.seconds <= exact.seconds * 1.021
    assert exact.gap <= 1e-7


@pytest.mark.parametrize("seed", [0, 1, pytest.param(2, marks=pytest.mark.exhaustive)])
def test_long_queues_are_within_precision_of_the_whole_relaxation(seed):
    """Few GPUs and many gangs: most positions and columns are never looked at, and the bound is that of all of them."""
    rng = np.random.default_rng(seed)
    m, gpus = 110, np.array([4, 4, 2])
    times, sizes = draw_times(seed, m), rng.choice([1, 2, 4], m, p=[0.6, 0.2, 0.2])
    line = assign_to_lines(times, gpus, sizes, precision=1e-3)
    assert line.gap <= 1e-3
    for j, k in product(range(3), range(1, int(line.position.max()) + 1)):
        assert sizes[(line.accelerator == j) & (line.position == k)].sum() <= gpus[j]
    fits = np.isfinite(times) & (sizes[:, None] <= gpus)
    able = fits.any(axis=1)
    np.testing.assert_array_equal(line.position > 0, able)
    deepest = 2 * int(np.ceil(sizes[able].sum() / gpus.min()))
    job, kind = np.nonzero(fits)
    level = np.tile(np.arange(1, deepest + 1), len(job))
    job, kind = np.repeat(job, deepest), np.repeat(kind, deepest)
    columns = np.arange(len(job))
    each = csr_array((np.ones(len(job)), (job, columns)), shape=(m, len(job)))[np.flatnonzero(able)]
    rows = csr_array((sizes[job], (kind * deepest + level - 1, columns)), shape=(3 * deepest, len(job)))
    cost = level * times[job, kind]
    relaxed = linprog(cost, rows, np.repeat(gpus, deepest), each, np.ones(int(able.sum())))
    assert relaxed.fun * (1 - 1e-7) <= line.bound <= line.seconds


@pytest.mark.parametrize(
    ("times", "gpus", "sizes", "message"),
    [
        ([[1.0, 2.0]], [1], None, "shapes"),
        ([[0.0]], [1], None, "times above 0"),
        ([[np.nan]], [1], None, "times above 0"),
        ([[1.0]], [1], [0], "a size for each job"),
    ],
)
def test_bad_input_says_so(times, gpus, sizes, message):
    with pytest.raises(InputError, match=message):
        assign_to_lines(times, gpus, sizes)


def test_running_jobs_stay():
    current = np.array([0, 2, -1, -1, -1])
    allocation = get_policy("allox").allocate(state_of(5, "v100:1,p100:1,k80:1", current=current))
    assert allocation.shares[0, 0] == allocation.shares[1, 2] == 1.0
    assert allocation.shares[:, 1].sum() == 1.0


def test_as_many_start_as_there_are_gpus_with_work():
    for seed in range(5):
        state = state_of(30, "v100:3,p100:3,k80:3", seed=seed)
        allocation = get_policy("allox").allocate(state)
        assert allocation.status == "optimal"
        used = state.scale_factors @ allocation.shares
        assert (used <= state.capacity).all()
        assert used[:2].sum() == 6
        assert set(np.unique(allocation.shares)) == {0.0, 1.0}


def test_alpha_looks_at_those_that_wait_longest():
    elapsed = np.arange(10.0)
    state = state_of(10, "v100:1,p100:0,k80:0", elapsed=elapsed)
    oldest = get_policy("allox", alpha=0.0).allocate(state)
    assert oldest.shares[9, 0] == 1.0
    shortest = get_policy("allox", alpha=1.0).allocate(state)
    assert np.argmax(shortest.shares[:, 0]) == np.argmin(state.steps_remaining / state.rates[:, 0])


def test_the_longest_waiting_gang_is_not_passed_for_ever():
    """Three of four GPUs are free for a gang of four: none of them is given away, unless told not to reserve."""
    sizes, current = [1, 4, 1, 1, 1], np.array([0, -1, -1, -1, -1])
    state = state_of(5, "v100:4,p100:0,k80:0", sizes=sizes, current=current, elapsed=[9, 8, 7, 6, 5])
    assert get_policy("allox").allocate(state).shares[1:].sum() == 0
    assert get_policy("allox", reserve=False).allocate(state).shares[1:].sum() == 3
    free = state_of(5, "v100:4,p100:0,k80:0", sizes=sizes, elapsed=[1, 8, 7, 6, 5])
    assert get_policy("allox").allocate(free).shares.sum() >= 1


def test_gangs_as_one_gpu_get_one_gpus_time():
    sizes = [1, 2, 4, 8, 1, 2]
    state = state_of(6, "v100:2,p100:2,k80:8", sizes=sizes)
    allocation = get_policy("allox", gangs="one_gpu_share").allocate(state)
    used = state.scale_factors @ allocation.shares
    assert (used <= state.capacity + 1e-12).all()
    started = allocation.shares.sum(axis=1) > 0
    np.testing.assert_allclose(allocation.shares.sum(axis=1)[started] * state.scale_factors[started], 1.0)


def test_order_of_jobs_does_not_matter_with_gangs_and_ties():
    state = state_of(20, "v100:4,p100:4,k80:4", sizes=[1, 2, 4, 1] * 5, elapsed=np.zeros(20))
    order = np.random.default_rng(0).permutation(20)
    np.testing.assert_array_equal(
        get_policy("allox").allocate(state).shares[order], get_policy("allox").allocate(state.subset(order)).shares
    )


def test_a_job_waits_rather_than_run_where_it_cannot():
    matrix = ThroughputMatrix([[0.0, 1.0]], ["a"], ["v100", "k80"])
    state = ClusterState(Cluster.parse("v100:1,k80:1"), matrix, current_accelerator=np.array([-1]))
    assert get_policy("allox").allocate(state).shares.tolist() == [[0.0, 1.0]]


@pytest.mark.parametrize("settings", [{"alpha": 2.0}, {"gangs": "half"}, {"precision": -1.0}])
def test_bad_settings_say_so(settings):
    with pytest.raises(InputError, match=next(iter(settings))):
        get_policy("allox", **settings)
