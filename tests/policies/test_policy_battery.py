"""What every registered policy must do, whoever wrote it."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from allocator import Cluster, ClusterState, ThroughputMatrix, default_table, get_policy, list_policies
from allocator.protocol import Policy, SharePolicy
from throughputs import InputError

NAMES = [entry.name for entry in list_policies()]
PROGRAMS = [
    "max_min_fairness",
    "max_min_fairness_perf",
    "finish_time_fairness",
    "finish_time_fairness_perf",
    "min_total_duration",
    "min_total_duration_perf",
    "max_sum_throughput_perf",
]
TYPES = ["v100", "p100", "k80"]


def cluster_for(name: str, cluster: str = "v100:4,p100:4,k80:4") -> str:
    """The cluster; of a policy for one type of accelerator, only the last type keeps its GPUs."""
    if not get_policy(name).one_type:
        return cluster
    *others, last = cluster.split(",")
    return ",".join([f"{part.split(':')[0]}:0" for part in others] + [last])


def state_of(n_jobs: int, cluster: str = "v100:4,p100:4,k80:4", seed: int = 0) -> ClusterState:
    """Jobs of published types with mixed gangs, weights and progress."""
    rng = np.random.default_rng(seed)
    table = default_table()
    sizes = rng.choice([1, 1, 1, 2, 4], n_jobs)
    candidates = {s: [t for t in table.job_types if s in table.scale_factors_of(t)] for s in (1, 2, 4)}
    types = [candidates[int(s)][rng.integers(len(candidates[int(s)]))] for s in sizes]
    gpus = Cluster.parse(cluster)
    return ClusterState(
        gpus,
        table.matrix(range(n_jobs), types, sizes, gpus.accelerators),
        priority_weights=rng.choice([1.0, 5.0], n_jobs),
        steps_remaining=rng.uniform(1e3, 1e6, n_jobs),
        elapsed_seconds=rng.uniform(0, 1e5, n_jobs),
        isolated_seconds=rng.uniform(0, 1e4, n_jobs),
    )


def test_names_are_those_of_the_paper():
    assert set(PROGRAMS) | {"isolated", "proportional", "fifo", "fifo_perf"} <= set(NAMES)


@pytest.mark.parametrize("entry", list_policies(), ids=NAMES)
def test_says_what_it_is(entry):
    policy = get_policy(entry.name)
    assert isinstance(policy, Policy)
    assert policy.name == entry.name
    assert entry.paper
    assert entry.program
    assert entry.meaning.endswith(".")
    for field in dataclasses.fields(policy):
        assert f"{field.name}=" in repr(policy)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("choice", ["balanced", "published"])
def test_shares_are_feasible(name, choice):
    for seed in range(6):
        state = state_of(18, cluster_for(name), seed=seed)
        settings = {"choice": choice} if name in PROGRAMS else {}
        allocation = get_policy(name, **settings).allocate(state)
        assert allocation.shares.shape == (18, 3)
        assert allocation.shares.min() >= 0
        assert allocation.shares.sum(axis=1).max() <= 1 + 1e-9
        if not getattr(get_policy(name), "relative_shares", False):
            assert (state.scale_factors @ allocation.shares <= state.capacity + 1e-9).all()
        np.testing.assert_allclose(allocation.effective_throughput, (state.rates * allocation.shares).sum(1))


@pytest.mark.parametrize("name", NAMES)
def test_is_a_function_of_the_state(name):
    """The same state gives the same shares, from the same object or another."""
    state = state_of(12, cluster_for(name))
    policy = get_policy(name)
    first = policy.allocate(state).shares
    np.testing.assert_array_equal(first, policy.allocate(state).shares)
    np.testing.assert_array_equal(first, get_policy(name).allocate(state).shares)


@pytest.mark.parametrize("name", [n for n in NAMES if not get_policy(n).in_order_of_rows])
def test_order_of_jobs_does_not_matter(name):
    state = state_of(15, cluster_for(name), seed=3)
    order = np.random.default_rng(0).permutation(15)
    np.testing.assert_array_equal(
        get_policy(name).allocate(state).shares[order], get_policy(name).allocate(state.subset(order)).shares
    )


@pytest.mark.parametrize("name", NAMES)
def test_no_jobs(name):
    allocation = get_policy(name).allocate(state_of(0, cluster_for(name)))
    assert allocation.shares.shape == (0, 3)


@pytest.mark.parametrize("name", NAMES)
def test_no_gpus(name):
    allocation = get_policy(name).allocate(state_of(3, cluster="v100:0,p100:0,k80:0"))
    assert not allocation.shares.any()


@pytest.mark.parametrize("name", NAMES)
def test_one_type_without_gpus(name):
    allocation = get_policy(name).allocate(state_of(5, cluster_for(name, "v100:0,p100:2,k80:2")))
    assert not allocation.shares[:, 0].any()


@pytest.mark.parametrize("name", NAMES)
def test_a_job_that_runs_nowhere_takes_nothing_from_others(name):
    """A job with no throughput at all, and one whose gang is larger than every type."""
    rates = [[3.0, 2.0, 1.0], [0.0, 0.0, 0.0], [30.0, 20.0, 10.0]]
    matrix = ThroughputMatrix(rates, ["fine", "nowhere", "too large"], TYPES, [1, 1, 16])
    cluster = Cluster.parse(cluster_for(name, "v100:2,p100:2,k80:2"))
    allocation = get_policy(name).allocate(ClusterState(cluster, matrix))
    if name in PROGRAMS:
        assert set(allocation.unserved) == {"nowhere", "too large"}
    if name in PROGRAMS or name.startswith("fifo"):
        assert allocation.shares[0].sum() == pytest.approx(1.0)
        assert not allocation.shares[1:].any()


@pytest.mark.parametrize("name", PROGRAMS)
def test_published_programs_survive_jobs_that_run_nowhere(name):
    rates = [[3.0, 2.0, 1.0], [0.0, 0.0, 0.0], [5.0, 0.0, 0.0]]
    matrix = ThroughputMatrix(rates, ["fine", "nowhere", "fast only"], TYPES, [1, 1, 2])
    state = ClusterState(Cluster.parse("v100:1,p100:1,k80:1"), matrix)
    allocation = get_policy(name, choice="published").allocate(state)
    assert np.isfinite(allocation.shares).all()
    assert allocation.effective_throughput[0] > 0


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_are_proven_and_priced(name):
    for seed in range(4):
        allocation = get_policy(name).allocate(state_of(24, seed=seed))
        assert allocation.status == "optimal"
        assert allocation.gap <= 1e-7
        assert (allocation.prices >= 0).all()
        assert list(allocation.price_series().index) == TYPES
        assert allocation.objective_unit in allocation.price_series().name


@pytest.mark.parametrize("name", [n for n in PROGRAMS if n.endswith("_perf")])
def test_no_useful_gpu_idles(name):
    """Where a job has time to spare and gains on a type, that type has no GPU time to spare."""
    for seed in range(6):
        state = state_of(9, seed=seed)
        shares = get_policy(name).allocate(state).shares
        idle = state.capacity - state.scale_factors @ shares
        spare = 1 - shares.sum(axis=1)
        fits = state.scale_factors[:, None] <= state.capacity
        wasted = (spare[:, None] > 1e-4) & (idle > 1e-4) & (state.rates > 0) & fits
        assert not wasted.any()


def test_equal_jobs_get_equal_shares():
    matrix = ThroughputMatrix([[3.0, 1.0, 0.5]] * 7, range(7), TYPES)
    state = ClusterState(Cluster.parse("v100:2,p100:1,k80:1"), matrix, steps_remaining=np.full(7, 500.0))
    for name in PROGRAMS:
        shares = get_policy(name).allocate(state).shares
        np.testing.assert_array_equal(shares, np.repeat(shares[:1], 7, axis=0))


def test_heavier_jobs_get_more():
    matrix = ThroughputMatrix([[1.0, 1.0, 1.0]] * 4, range(4), TYPES)
    state = ClusterState(Cluster.parse("v100:1,p100:0,k80:0"), matrix, priority_weights=np.array([5.0, 1.0, 1.0, 1.0]))
    shares = get_policy("max_min_fairness_perf").allocate(state).shares.sum(axis=1)
    np.testing.assert_allclose(shares, [5 / 8, 1 / 8, 1 / 8, 1 / 8], rtol=1e-6)


@pytest.mark.parametrize("deadlines", [None, "one", "all"])
@pytest.mark.parametrize("gangs", [(), (1,), (8,), (8, 8, 1)], ids=str)
@pytest.mark.parametrize("gpus", [{"t0": 0}, {"t0": 0, "t1": 0}, {"t0": 2}, {"t0": 2, "t1": 0}], ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_edges_of_clusters_and_gangs(name, gpus, gangs, deadlines):
    """No GPUs, types without any, no gang that fits, one job or none, with deadlines and without: no share of what
    there is not."""
    N = len(gangs)
    rates = np.random.default_rng(0).uniform(1, 2, (N, len(gpus)))
    columns = {}
    if deadlines and N:
        due = np.where(np.arange(N) == 0, 5e3, np.inf) if deadlines == "one" else np.full(N, 100.0)
        columns = {"slo_seconds": due, "steps_remaining": np.full(N, 1e3)}
    state = ClusterState(Cluster(gpus), ThroughputMatrix(rates, range(N), tuple(gpus), np.array(gangs, int)), **columns)
    shares = get_policy(name).allocate(state).shares
    assert shares.shape == rates.shape
    fits = np.array(gangs)[:, None] <= state.capacity[None, :]
    assert (shares[fits] >= 0).all()
    assert not shares[~fits].any()


@pytest.mark.parametrize("name", [n for n in NAMES if hasattr(get_policy(n), "solver")])
def test_a_policy_that_asks_a_solver_for_whole_numbers_has_a_time_limit(name):
    """Shares of time are linear programs, and have the limit of the stop rule; all others state theirs."""
    policy = get_policy(name)
    limits = {field.name for field in dataclasses.fields(policy)} & {"time_limit_seconds", "search_seconds"}
    if not limits:
        assert isinstance(policy, SharePolicy) or hasattr(policy, "choice")
    for limit in limits:
        assert any(limit in (base.__doc__ or "") for base in type(policy).__mro__)
        with pytest.raises(InputError, match=limit):
            get_policy(name, **{limit: 0.0})


@pytest.mark.parametrize("name", ["max_min_fairness", "max_min_fairness_perf"])
@pytest.mark.parametrize("choice", ["balanced", "published"])
def test_gangs_get_the_same_gpu_time_and_not_the_same_time(name, choice):
    """Two GPUs for gangs of one, two and two: 2/3 of a GPU each."""
    matrix = ThroughputMatrix([[2.0, 2.0, 2.0]] * 3, range(3), TYPES, [1, 2, 2])
    state = ClusterState(Cluster.parse("v100:2,p100:0,k80:0"), matrix)
    shares = get_policy(name, choice=choice).allocate(state).shares.sum(axis=1)
    np.testing.assert_allclose(shares, [2 / 3, 1 / 3, 1 / 3], rtol=1e-5)
