"""Nash welfare, its strategy-proof discounts, and OEF: against their definitions, and what they promise."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from allocator import Cluster, ClusterState, ThroughputMatrix, get_policy
from allocator.audit import audit
from allocator.policies.fair_sharing.oef import entitled_gpus
from formulations import NashWelfare, Polytope, solve
from formulations.statements.shares import envy_free
from tests.policies.worlds import TYPES
from throughputs import PlainColumns

AWARE, BLIND = "max_min_fairness_strategy_proof_perf", "max_min_fairness_strategy_proof"
FORMS = ("cooperative", "non_cooperative")


def state_with(rates: Any, gpus: Any, sizes: Any = None, weights: Any = None, types: Any = TYPES) -> ClusterState:
    matrix = ThroughputMatrix(rates, [f"job {i}" for i in range(len(rates))], types[: len(gpus)], sizes)
    return ClusterState(Cluster(dict(zip(types, gpus, strict=False))), matrix, priority_weights=weights)


def draw(
    seed: int, n: int = 9, gpus: Any = (2, 2, 2), *, gangs: bool = True, weights: bool = True, gaps: bool = True
) -> ClusterState:
    """Jobs with rates of their own, now and then alike; with `gaps` some cannot run on some type."""
    rng = np.random.default_rng(seed)
    rates = np.exp(rng.normal([2.0, 1.0, 0.0], 0.5, (n, 3))) * rng.uniform(0.5, 20, (n, 1))
    if gaps:
        rates *= (rng.random((n, 3)) < 0.8) | (np.arange(3) == rng.integers(3, size=(n, 1)))
    if seed % 3 == 0:
        rates[1::3] = rates[0]
    sizes = rng.choice([1, 1, 2, min(4, max(gpus))], n) if gangs else None
    return state_with(rates, gpus, sizes, rng.choice([1.0, 3.0], n) if weights else None)


@pytest.mark.parametrize(("budgets", "seed"), [("equal", 0), ("priority", 1)])
def test_discounts_are_those_of_the_definition(seed: int, budgets: str) -> None:
    """N + 1 programs through the general solver; at least one in e is left."""
    state = draw(seed)
    weights = np.ones(state.n_jobs) if budgets == "equal" else state.priority_weights
    polytope, everyone = Polytope(PlainColumns(state.throughputs), state.capacity), np.arange(state.n_jobs)
    u, factors = polytope.throughput(solve(polytope, NashWelfare(weights)).shares), np.ones(state.n_jobs)
    for i in everyone:
        others = np.delete(everyone, i)
        part = polytope.restricted(others, np.arange(3))
        without = part.throughput(solve(part, NashWelfare(weights[others])).shares)
        factors[i] = np.exp((weights[others] @ np.log(u[others] / without)) / weights[i])
    policy = get_policy(AWARE, budgets=budgets)
    found, allocation = policy.discounts(state), policy.allocate(state)
    np.testing.assert_allclose(found.factors, np.minimum(factors, 1.0), rtol=1e-6)
    np.testing.assert_allclose(allocation.effective_throughput, found.factors * u, rtol=1e-6)
    assert allocation.status == "optimal"
    assert found.gap <= allocation.gap <= 1e-7
    for name in (AWARE, BLIND):
        assert (get_policy(name).discounts(state).factors >= np.exp(-1.0) - 1e-6).all()


@pytest.mark.parametrize(("name", "gains"), [(AWARE, False), ("nash_welfare", True)])
def test_misreports_gain_nothing_but_without_discounts(name: str, gains: bool) -> None:
    best = -np.inf
    for seed in range(2):
        state, rng = draw(seed, 4, (1, 1, 1), gangs=False, weights=False), np.random.default_rng(seed)
        honest = get_policy(name).allocate(state).effective_throughput
        for _ in range(8):
            i, claimed = int(rng.integers(4)), state.rates.copy()
            claimed[i] *= 5.0 ** rng.uniform(-1, 1, 3)
            told = state.with_throughputs(state.throughputs.with_rates(claimed))
            best = max(best, state.rates[i] @ get_policy(name).allocate(told).shares[i] / honest[i] - 1)
    assert best > 1e-3 if gains else best <= 1e-6


def test_discounts_by_hand() -> None:
    """One job has the cluster; two with a GPU of their favourite type each keep all; alike jobs ask once for all."""
    for name in (AWARE, BLIND):
        assert get_policy(name).allocate(state_with([[3.0, 2.0, 1.0]], (1, 1, 1))).shares.sum() == pytest.approx(1.0)
    apart = get_policy(AWARE).discounts(state_with([[3.0, 1.0], [1.0, 3.0]], (1, 1)))
    np.testing.assert_allclose(apart.factors, 1.0, rtol=1e-6)
    found = get_policy(AWARE).discounts(state_with([[3.0, 2.0, 1.0]] * 5 + [[1.0, 1.0, 1.0]], (1, 1, 1)))
    assert (found.programs, len(set(found.factors[:5]))) == (3, 1)


def entitled(state: ClusterState) -> Any:
    return entitled_gpus(state.scale_factors, state.priority_weights, float(state.capacity.sum()))


def relative(state: ClusterState) -> Any:
    rates = np.where(state.scale_factors[:, None] <= state.capacity, state.rates, 0.0)
    return rates / np.where(rates > 0, rates, np.inf).min(axis=1, keepdims=True)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("seed", [2, 5])
def test_oef_is_the_program_with_every_row(seed: int, form: str) -> None:
    """As it is stated; contended, so that everybody is entitled to less than its gang."""
    state = draw(seed, 14, gangs=seed % 2 == 1, weights=seed % 4 > 1, gaps=seed > 4)
    np.testing.assert_allclose(entitled(state) / state.priority_weights, 6 / state.priority_weights.sum())
    a, s = relative(state), state.scale_factors
    polytope = Polytope(PlainColumns(state.throughputs.with_rates(a)), state.capacity)
    stated = envy_free(polytope, state.priority_weights, equal=form != "cooperative").solve(solver="HIGHS")
    allocation = get_policy("oef", form=form).allocate(state)
    assert allocation.status == "optimal"
    assert allocation.objective == pytest.approx(float(stated), rel=1e-7)
    assert allocation.bound >= allocation.objective
    assert allocation.objective == pytest.approx(float(s @ (a * allocation.shares).sum(axis=1)))
    assert (allocation.prices >= 0).all()
    if seed == 5:
        other = get_policy("oef", form=form, solver="cbc").allocate(state)
        assert other.solver == "cbc"
        assert other.objective == pytest.approx(allocation.objective, rel=1e-6)


FREE_OF_ENVY = {
    **{
        f"{n} GPUs {seed}": draw(seed, 10, [n] * 3, weights=seed == 1, gaps=seed == 2)
        for n in (2, 12)
        for seed in range(3)
    },
    "one type": state_with([[1.0], [2.0]] * 3, [2]),
    "large gangs run where there is room for all": state_with(
        [[3.0, 2.0, 1.0], [9.0, 5.0, 2.0], [4.0, 3.0, 2.0]], (16, 8, 8), [1, 8, 1]
    ),
    "many jobs": draw(0, 60, (12, 12, 12), weights=False),
}


@pytest.mark.parametrize("name", FREE_OF_ENVY)
def test_oef_is_audited_envy_free(name: str) -> None:
    """Whatever the gangs, weights, load and types; nobody loses by sharing, and no GPU is kept back."""
    state = FREE_OF_ENVY[name]
    allocation = get_policy("oef").allocate(state)
    found = audit(allocation, state)
    assert found["feasibility"].holds
    assert found["envy-freeness"].holds
    assert allocation.status == "optimal"
    if (state.priority_weights == 1).all():
        assert found["sharing incentive"].holds
        # equal parts are free of envy, too
        parts = get_policy("isolated").allocate(state)
        worth = float(state.scale_factors @ (relative(state) * parts.shares).sum(axis=1))
        assert allocation.objective >= worth * (1 - 1e-9)
    if "room" in name:
        np.testing.assert_allclose(allocation.shares.sum(axis=1), 1.0)
    for other in ({"name": "max_sum_throughput_perf"}, {"name": "oef", "form": FORMS[1]}) if name == "2 GPUs 0" else ():
        assert not audit(get_policy(**other).allocate(state), state)["envy-freeness"].holds


@pytest.mark.parametrize("form", FORMS)
def test_what_the_first_gpu_of_a_type_brings_is_not_known(form: str) -> None:
    """Unless nobody runs there: not even one GPU takes the gang."""
    for gpus, unknown in ((1, True), (2, False)):
        state = state_with([[4.0, 2.0], [2.0, 1.9]], (gpus, 0), [gpus, gpus])
        prices = get_policy("oef", form=form).allocate(state).prices
        assert prices is not None
        assert prices[0] > 0
        assert np.isnan(prices[1]) if unknown else prices[1] == 0


@pytest.mark.parametrize("seed", range(3))
def test_without_cooperation_all_have_the_same_and_overstated_speedups_gain_nothing(seed: int) -> None:
    policy, state = get_policy("oef", form="non_cooperative"), draw(seed, gaps=False)
    u = state.scale_factors / entitled(state) * (relative(state) * policy.allocate(state).shares).sum(axis=1)
    np.testing.assert_allclose(u, u[0], rtol=1e-9)
    assert u[0] > 0
    state, rng = draw(seed, 6, (1, 1, 1), gangs=False, weights=False, gaps=False), np.random.default_rng(seed)
    a = relative(state)
    honest = (a * policy.allocate(state).shares).sum(axis=1)
    for i in range(state.n_jobs):
        claimed = state.rates.copy()
        claimed[i] *= np.where(np.arange(3) == a[i].argmin(), 1.0, rng.uniform(1.0, 3.0, 3))
        misled = state.with_throughputs(state.throughputs.with_rates(claimed))
        assert (a[i] * policy.allocate(misled).shares[i]).sum() <= honest[i] * (1.0 + 1e-6)


@pytest.mark.parametrize(
    ("sizes", "weights", "expected"),
    [
        ([1, 1, 1, 1], [1, 1, 1, 1], [1, 1, 1, 1]),
        ([1, 2, 8, 8], [1, 1, 1, 1], [1, 2, 2, 2]),
        ([8, 8, 8, 8], [1, 1, 1, 4], [1, 1, 1, 4]),
        ([1, 1, 8, 8], [1, 1, 1, 4], [1, 1, 1, 4]),
        ([], [], []),
    ],
)
def test_entitlements_fill_up(sizes: list[int], weights: list[float], expected: list[float]) -> None:
    found = entitled_gpus(np.array(sizes, dtype=np.int64), np.array(weights, dtype=float), 7.0)
    np.testing.assert_allclose(found, expected)
