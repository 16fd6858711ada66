"""Throughput per dollar with deadlines, alone and with space sharing, and the programs behind it."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import pytest

from allocator import Allocation, Cluster, ClusterState, ThroughputMatrix, get_policy
from formulations import MaxMin, Polytope, keep_most_floors, maximise_ratio, maximise_worth, solve
from formulations.statements import shares
from tests.policies.worlds import PRICES, TYPES, state_of
from throughputs import InputError, PlainColumns, PriceTable

BASIC = "max_sum_throughput_normalized_by_cost_perf"
PLAIN, PACKED = f"{BASIC}_SLOs", "max_sum_throughput_normalized_by_cost_packed_SLOs"
COSTS = ("by_type", "total")


def draw(seed: int, n: int = 12, gpus: int = 3) -> tuple[Any, Any, Any, Polytope]:
    """Rates with ties and zeros, gangs, floors of some jobs, and their polytope."""
    rng = np.random.default_rng(seed)
    rates = rng.uniform(0.05, 1.0, (n, 3)) * 10.0 ** rng.uniform(-1, 2, (n, 1))
    rates[rng.random((n, 3)) < 0.15] = 0.0
    rates[~(rates > 0).any(axis=1), 0] = 1.0
    if seed % 3 == 0:
        rates[1::4] = rates[0]
    sizes = rng.choice([1, 1, 2], n)
    floors = rates.max(axis=1) * np.where(rng.random(n) < 0.7, rng.uniform(0.1, 0.9, n), 0.0)
    return (
        rates,
        sizes,
        floors,
        Polytope(PlainColumns(ThroughputMatrix(rates, range(n), TYPES, sizes)), np.full(3, gpus)),
    )


@pytest.mark.parametrize("seed", range(4))
def test_largest_worth_and_ratio_are_those_stated(seed: int) -> None:
    rates, sizes, floors, polytope = draw(seed)
    kept = keep_most_floors(polytope, floors).floors
    rng = np.random.default_rng(seed)
    by_step = rng.uniform(-0.2, 1.0, rates.shape)
    worth = rates * by_step
    exact = shares.most_worth(polytope, by_step, kept).solve(solver="HIGHS")
    slack = 1e-7 * np.abs(worth).max()
    found = maximise_worth(polytope, by_step, kept)
    assert found.status == "optimal"
    assert found.objective == pytest.approx(exact, rel=1e-7, abs=slack)
    assert found.bound >= exact - slack
    assert (polytope.throughput(found.shares) >= kept * (1 - 1e-7)).all()
    assert polytope.violation(found.shares) <= 1e-12

    prices = np.array(list(PRICES.values()))
    cost = sizes[:, None] * prices
    found = maximise_ratio(polytope, prices, kept)
    exact = shares.most_per_cost(polytope, np.ones(len(rates)), prices, kept).solve(solver="HIGHS")
    assert found.objective == pytest.approx(exact, rel=1e-8)
    assert found.objective == pytest.approx((rates * found.shares).sum() / (cost * found.shares).sum(), rel=1e-12)
    assert found.bound >= exact * (1 - 1e-9)
    assert found.status == "optimal"


@pytest.mark.parametrize("seed", range(3))
def test_fewest_floors_are_given_up(seed: int) -> None:
    """Against every subset."""
    rates, _, _, polytope = draw(seed, n=6, gpus=2)
    floors = rates.max(axis=1) * np.random.default_rng(seed).uniform(0.4, 1.1, 6)
    kept = keep_most_floors(polytope, floors)

    def attainable(jobs: Any) -> bool:
        part = polytope.restricted(np.array(jobs), np.arange(3))
        return solve(part, MaxMin(floors[list(jobs)])).objective >= 1 - 1e-6

    largest = next(k for k in range(6, -1, -1) if k == 0 or any(map(attainable, combinations(range(6), k))))
    assert kept.kept.sum() == largest
    assert (kept.kept ^ kept.dropped).all()
    assert not largest or attainable(np.flatnonzero(kept.kept))
    np.testing.assert_allclose(kept.floors, np.where(kept.kept, floors, 0.0), rtol=2e-6)


def small(name: str, seed: int, **columns: Any) -> ClusterState:
    given = {"sizes": (1, 1, 1, 2), "sharing": name == PACKED, "slo_hours": (1.0, 20.0)}
    return state_of(14, "v100:3,p100:3,k80:3", seed, **given | columns)


def per_dollar(allocation: Allocation, state: ClusterState) -> float:
    """Steps for a dollar; the GPUs of a pair cost once."""
    used, pairs = state.scale_factors @ allocation.shares, allocation.pairs
    if pairs is not None:
        used = used + np.bincount(pairs.accelerator, state.scale_factors[pairs.first] * pairs.share, minlength=3)
    assert (used <= state.capacity * (1 + 1e-9)).all()
    return float(allocation.effective_throughput.sum() * 3600 / (used @ state.gpu_prices))


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("name", [PLAIN, PACKED])
def test_deadlines_are_met_and_dropped_ones_are_named(name: str, seed: int) -> None:
    """Total cost is the cheaper way to meet them."""
    state, found = small(name, seed), {}
    for cost in COSTS:
        allocation = get_policy(name, cost=cost).allocate(state)
        due = np.isfinite(state.slo_seconds)
        dropped = np.isin(np.arange(state.n_jobs), allocation.dropped_slos)
        assert not (dropped & ~due).any()
        needed, kept = state.steps_remaining / state.slo_seconds, due & ~dropped
        assert (allocation.effective_throughput[kept] >= needed[kept] * (1 - 1e-5)).all()
        assert allocation.status == "optimal"
        found[cost] = per_dollar(allocation, state)
    assert allocation.objective == pytest.approx(found["total"], rel=1e-9)
    assert found["total"] >= found["by_type"] * (1 - 1e-9)


def test_prices_come_with_the_state_or_from_a_table_at_the_time_of_the_decision() -> None:
    table = PriceTable({name: ([0.0, 100.0], [price, 2 * price]) for name, price in PRICES.items()})
    for name in (BASIC, PACKED):
        now, later = (get_policy(name, prices=table).allocate(small(name, 1, clock=clock)) for clock in (0.0, 150.0))
        assert now.objective == pytest.approx(get_policy(name).allocate(small(name, 1)).objective)
        assert later.objective == pytest.approx(now.objective / 2)
        get_policy(name, prices={"a100": 3.0}).prepare()
    # without any every GPU costs the same
    free = small(BASIC, 3, gpu_prices=None)
    plain = get_policy("max_sum_throughput_perf").allocate(free)
    assert get_policy(BASIC).allocate(free).objective == pytest.approx(plain.objective, rel=1e-8)


@pytest.mark.parametrize("name", [PLAIN, PACKED])
def test_deadlines_of_jobs_that_are_late_run_nowhere_or_are_through(name: str) -> None:
    state = ClusterState(
        Cluster({"v100": 1}),
        ThroughputMatrix([[2.0], [0.0], [2.0], [2.0]], ["due", "nowhere", "through", "late"], ["v100"]),
        steps_remaining=np.array([1e3, 1e3, 0.0, 1e3]),
        slo_seconds=np.array([1e3, 1e3, 1e3, -1.0]),
    )
    allocation = get_policy(name).allocate(state)
    assert (allocation.dropped_slos, allocation.unserved) == (("nowhere", "late"), ("nowhere", "through"))
    assert allocation.effective_throughput[0] >= 1.0 - 1e-9
    assert allocation.effective_throughput.sum() == pytest.approx(2.0)


@pytest.mark.parametrize("name", [PLAIN, PACKED])
def test_published_way_drops_every_deadline_when_one_cannot_be_met(name: str) -> None:
    state = small(name, 0, slo_hours=(0.05, 2.0))
    fewest, everything = (get_policy(name, infeasible=way).allocate(state) for way in ("drop_fewest", "drop_all"))
    assert 0 < len(fewest.dropped_slos) < np.isfinite(state.slo_seconds).sum() == len(everything.dropped_slos)
    assert fewest.objective <= everything.objective * (1 + 1e-9)
    if name == PLAIN:
        assert everything.objective == pytest.approx(get_policy(BASIC).allocate(state).objective, rel=1e-7)


@pytest.mark.parametrize("name", [PLAIN, PACKED])
@pytest.mark.parametrize(
    ("settings", "field"),
    [({"prices": {"v100": 1.0}}, "no price of"), ({"prices": PRICES | {"k80": 0.0}}, "price of k80")],
)
def test_bad_settings_say_so(name: str, settings: dict[str, Any], field: str) -> None:
    with pytest.raises(InputError, match=field):
        get_policy(name, **settings).allocate(small(name, 0))
