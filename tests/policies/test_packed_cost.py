"""Throughput per dollar with deadlines and space sharing."""

from __future__ import annotations

import numpy as np
import pytest

from allocator import Cluster, ClusterState, ThroughputMatrix, default_table, get_policy, load_throughputs, simulate
from allocator.results.deadlines import assign_slos
from throughputs import InputError, PackedColumns, PriceTable, TraceGenerator, default_colocation

PACKED = "max_sum_throughput_normalized_by_cost_packed_SLOs"
PLAIN = "max_sum_throughput_normalized_by_cost_perf_SLOs"
PRICES = {"v100": 0.74, "p100": 0.43, "k80": 0.135}
TABLE = default_table().with_colocation(default_colocation(), (1, 2, 4))


def state_of(seed, *, slo_hours=(1.0, 20.0), with_slos=True, sharing=True, n=14, cluster="v100:3,p100:3,k80:3"):
    rng = np.random.default_rng(seed)
    gpus = Cluster.parse(cluster)
    sizes = rng.choice([1, 1, 1, 2], n)
    candidates = {s: [t for t in TABLE.job_types if s in TABLE.scale_factors_of(t)] for s in (1, 2)}
    types = [candidates[int(s)][rng.integers(len(candidates[int(s)]))] for s in sizes]
    slos = np.where(rng.random(n) < 0.6, rng.uniform(*slo_hours, n) * 3600, np.inf)
    return ClusterState(
        gpus,
        TABLE.matrix(range(n), types, sizes, gpus.accelerators),
        steps_remaining=rng.uniform(1e4, 3e5, n),
        slo_seconds=slos if with_slos else None,
        gpu_prices=np.array([PRICES[name] for name in gpus.accelerators]),
        colocation=PackedColumns.from_table(TABLE, types, sizes, gpus.accelerators) if sharing else None,
    )


def dollars_per_hour(allocation, state):
    """What the GPUs in use cost, those of a pair once."""
    sizes, pairs = state.scale_factors, allocation.pairs
    used = sizes @ allocation.shares
    used = used + np.bincount(pairs.accelerator, sizes[pairs.first] * pairs.share, minlength=len(used))
    assert (used <= state.capacity * (1 + 1e-9)).all()
    return float(used @ state.gpu_prices)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("cost", ["by_type", "total"])
def test_deadlines_are_met_and_dropped_ones_are_named(seed, cost):
    state = state_of(seed)
    allocation = get_policy(PACKED, cost=cost).allocate(state)
    due = np.isfinite(state.slo_seconds)
    dropped = np.isin(np.arange(state.n_jobs), allocation.dropped_slos)
    assert not (dropped & ~due).any()
    needed = state.steps_remaining / state.slo_seconds
    kept = due & ~dropped
    assert (allocation.effective_throughput[kept] >= needed[kept] * (1 - 1e-5)).all()
    assert allocation.status == "optimal"
    assert allocation.gap <= 1e-7
    attained = allocation.effective_throughput.sum() * 3600 / dollars_per_hour(allocation, state)
    if cost == "total":
        assert allocation.objective == pytest.approx(attained, rel=1e-9)
        assert allocation.objective_unit == "steps/$"
    else:
        assert allocation.objective_unit == "steps/s per $/h"


def test_sharing_meets_no_fewer_deadlines_and_is_worth_no_less():
    more = 0
    for seed in range(10):
        state = state_of(seed, slo_hours=(3.0, 30.0), n=24)
        plain, packed = get_policy(PLAIN).allocate(state), get_policy(PACKED).allocate(state)
        assert len(packed.dropped_slos) <= len(plain.dropped_slos)
        easy = state_of(seed, with_slos=False)
        for cost in ("by_type", "total"):
            least = get_policy(PLAIN, cost=cost).allocate(easy).objective
            shared = get_policy(PACKED, cost=cost).allocate(easy).objective
            assert shared >= least * (1 - 1e-7)
            more += shared > least * 1.05
    assert more > 3


@pytest.mark.parametrize("cost", ["by_type", "total"])
@pytest.mark.parametrize("with_slos", [True, False])
def test_without_sharing_it_is_the_plain_policy(cost, with_slos):
    for seed in range(4):
        state = state_of(seed, sharing=False, with_slos=with_slos)
        plain, packed = get_policy(PLAIN, cost=cost).allocate(state), get_policy(PACKED, cost=cost).allocate(state)
        assert len(packed.dropped_slos) == len(plain.dropped_slos)
        assert len(packed.pairs) == 0
        if set(packed.dropped_slos) == set(plain.dropped_slos):
            assert packed.objective == pytest.approx(plain.objective, rel=1e-6)


def test_published_way_drops_every_deadline_when_one_cannot_be_met():
    state = state_of(0, slo_hours=(0.05, 2.0))
    fewest = get_policy(PACKED).allocate(state)
    everything = get_policy(PACKED, infeasible="drop_all").allocate(state)
    assert 0 < len(fewest.dropped_slos) < np.isfinite(state.slo_seconds).sum() == len(everything.dropped_slos)
    assert fewest.objective <= everything.objective * (1 + 1e-9)


def test_deadlines_of_jobs_that_run_nowhere_or_are_through():
    state = ClusterState(
        Cluster({"v100": 1}),
        ThroughputMatrix([[2.0], [0.0], [2.0], [2.0]], ["due", "nowhere", "through", "late"], ["v100"]),
        steps_remaining=np.array([1e3, 1e3, 0.0, 1e3]),
        slo_seconds=np.array([1e3, 1e3, 1e3, -1.0]),
    )
    allocation = get_policy(PACKED).allocate(state)
    assert allocation.dropped_slos == ("nowhere", "late")
    assert allocation.unserved == ("nowhere", "through")
    assert allocation.effective_throughput[0] >= 1.0 - 1e-9
    assert allocation.effective_throughput.sum() == pytest.approx(2.0)


def test_prices_come_from_a_table_at_the_time_of_the_decision():
    state = state_of(1)
    doubled = PriceTable({name: ([0.0, 100.0], [price, 2 * price]) for name, price in PRICES.items()})
    now = get_policy(PACKED, prices=doubled).allocate(state)
    assert now.objective == pytest.approx(get_policy(PACKED).allocate(state).objective)
    later = ClusterState(
        state.cluster,
        state.throughputs,
        steps_remaining=state.steps_remaining,
        slo_seconds=state.slo_seconds,
        colocation=state.colocation,
        clock=150.0,
    )
    assert get_policy(PACKED, prices=doubled).allocate(later).objective == pytest.approx(now.objective / 2)


@pytest.mark.parametrize("cost", ["by_type", "total"])
def test_order_of_jobs_does_not_matter(cost):
    state = state_of(5, slo_hours=(0.5, 10.0))
    order = np.random.default_rng(1).permutation(state.n_jobs)
    policy = get_policy(PACKED, cost=cost)
    first, second = policy.allocate(state), policy.allocate(state.subset(order))
    np.testing.assert_array_equal(first.shares[order], second.shares)
    np.testing.assert_allclose(first.effective_throughput[order], second.effective_throughput, rtol=1e-9)
    assert set(first.dropped_slos) == set(second.dropped_slos)


@pytest.mark.parametrize("name", [PLAIN, PACKED])
def test_prepares_with_prices_of_other_types(name):
    get_policy(name, prices={"a100": 3.0}).prepare()
    get_policy(name, prices=PriceTable.constant({"a100": 3.0})).prepare()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"cost": "free"}, "one of by_type, total"),
        ({"infeasible": "give_up"}, "drop_fewest, drop_all"),
        ({"prices": {"v100": 1.0}}, "accelerator"),
        ({"prices": PRICES | {"k80": 0.0}}, "price of k80"),
    ],
)
def test_bad_settings_say_so(settings, message):
    with pytest.raises(InputError, match=message):
        get_policy(PACKED, **settings).allocate(state_of(0))


def test_simulates_with_deadlines_and_prices():
    """Both complete every job and count the dollars; the one that shares GPUs needs fewer of them."""
    table = load_throughputs(colocated=True)
    trace = TraceGenerator(n_jobs=16, mean_interarrival=200, seed=2, table=table).generate()
    trace = assign_slos(trace, np.random.default_rng(2))
    cluster, prices = Cluster.parse("v100:4,p100:4,k80:4"), PriceTable.constant(PRICES)
    plain, packed = (
        simulate(trace, cluster, get_policy(name), table, prices=prices).summary() for name in (PLAIN, PACKED)
    )
    assert packed["completed_jobs"] == plain["completed_jobs"] == 16
    assert 0 < packed["cost"] < plain["cost"]
    assert packed["deadline_jobs"] == 16
