"""The audit against definitions written out by hand, and the command."""

from __future__ import annotations

import dataclasses
import json
import pickle

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import linprog

import allocator
from allocator import Cluster, ClusterState, ConstrainedPolicy, ConvexPolicy, ThroughputMatrix, get_policy
from allocator.audit import audit
from allocator.audit.case import case_of
from allocator.audit.properties import throughput_in_place_of
from formulations import MaxSum
from tests.formulations.programs import written_out
from throughputs import InputError, PackedColumns

TYPES = ["v100", "p100", "k80"]
PROPERTIES = [
    "feasibility",
    "sharing incentive",
    "envy-freeness",
    "Pareto efficiency",
    "strategy-proofness (probe)",
    "utilisation",
]


def draw(seed, n=10, *, gangs=True, weights=True, cluster="v100:3,p100:2,k80:4"):
    rng = np.random.default_rng(seed)
    rates = rng.uniform(0.1, 1.0, (n, 3)) * 10.0 ** rng.uniform(-1, 1, (n, 1))
    rates[rng.random((n, 3)) < 0.1] = 0.0
    sizes = rng.choice([1, 1, 2, 4], n) if gangs else np.ones(n, dtype=int)
    matrix = ThroughputMatrix(rates, [f"job {i}" for i in range(n)], TYPES, sizes)
    return ClusterState(
        Cluster.parse(cluster),
        matrix,
        priority_weights=rng.choice([1.0, 2.0], n) if weights else None,
        steps_remaining=rng.uniform(10, 1000, n),
    )


def audit_of(policy, state, **settings):
    decides = get_policy(policy)
    return audit(decides.allocate(state), state, decides, **{"probed_jobs": 0} | settings)


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("policy", ["max_min_fairness_perf", "max_min_fairness", "isolated", "fifo_perf"])
def test_figures_are_those_of_the_definitions(seed, policy):
    """Loops over jobs and pairs of jobs, and a dense linear program."""
    state = draw(seed)
    allocation = get_policy(policy).allocate(state)
    found = audit(allocation, state)
    rates = np.where(state.scale_factors[:, None] <= state.capacity, state.rates, 0.0)
    x, s, w, c = allocation.shares, state.scale_factors, state.priority_weights, state.capacity
    n, u = state.n_jobs, (rates * x).sum(axis=1)
    able = np.flatnonzero(rates.max(axis=1) > 0)

    own = np.array([w[i] / w.sum() * c / s[i] for i in range(n)])
    own = np.array([row / max(row.sum(), 1.0) for row in own])
    ratios = {i: u[i] / (rates[i] @ own[i]) for i in able}
    assert found["sharing incentive"].value == pytest.approx(min(ratios.values()), rel=1e-9)
    assert ratios[int(str(found["sharing incentive"].worst_job).split()[1])] == pytest.approx(min(ratios.values()))

    envy = 0.0
    for i in able:
        for k in range(n):
            bundle = s[k] * x[k] / s[i] * w[i] / w[k]
            bundle = bundle / max(bundle.sum(), 1.0)
            there = rates[i] @ bundle
            if k != i and there > 1e-9 * rates[i].max():
                envy = max(envy, there / u[i] if u[i] > 1e-9 * rates[i].max() else np.inf)
    assert found["envy-freeness"].value == pytest.approx(envy, rel=1e-9)

    gains = s / np.where(rates.max(axis=1) > 0, rates @ c / c.sum(), 1.0)
    time = np.kron(np.eye(n), np.ones(3))
    use = np.kron(s, np.eye(3)).reshape(3, 3 * n)
    keep = -np.array([np.kron(np.eye(n)[i], rates[i]) for i in range(n)])
    worth = (gains[:, None] * rates).ravel()
    limits = np.concatenate([np.ones(n), c, -u * (1 - 1e-12)])
    best = -linprog(-worth, A_ub=np.vstack([time, use, keep]), b_ub=limits).fun
    assert found["Pareto efficiency"].value == pytest.approx(max(best / (gains @ u) - 1, 0.0), rel=1e-4, abs=1e-6)
    assert found["utilisation"].value == pytest.approx((s @ np.where(rates > 0, x, 0.0)).sum() / c.sum())


def test_envy_of_gangs_is_about_gpu_time():
    """A gang of two in place of a single job that has a GPU all the time could have it half of the time."""
    matrix = ThroughputMatrix([[1.0], [6.0]], ["one", "two"], ["v100"], [1, 2])
    state = ClusterState(Cluster.parse("v100:2"), matrix)
    allocation = dataclasses.replace(get_policy("isolated").allocate(state), shares=np.array([[1.0], [0.5]]))
    case = case_of(allocation, state)
    there = throughput_in_place_of(case, np.arange(2))
    np.testing.assert_allclose(there, [[1.0, 1.0], [3.0, 3.0]])
    assert audit(allocation, state)["envy-freeness"].value == pytest.approx(1.0)


def test_waste_is_found_and_told():
    matrix = ThroughputMatrix([[4.0, 1.0], [1.0, 4.0]], ["a", "b"], ["v100", "p100"])
    state = ClusterState(Cluster.parse("v100:1,p100:1"), matrix)
    swapped = dataclasses.replace(get_policy("isolated").allocate(state), shares=np.array([[0.0, 1.0], [1.0, 0.0]]))
    found = audit(swapped, state)["Pareto efficiency"]
    assert found.holds is False
    assert found.value == pytest.approx(3.0, rel=1e-6)
    assert found.worst_job in ("a", "b")
    assert "nobody losing" in found.detail


def test_a_job_that_waits_envies_without_limit():
    matrix = ThroughputMatrix([[1.0], [1.0]], ["first", "second"], ["v100"])
    found = audit_of("fifo_perf", ClusterState(Cluster.parse("v100:1"), matrix))
    assert found["envy-freeness"].value == np.inf
    assert found["envy-freeness"].worst_job == "second"
    assert found["sharing incentive"].value == 0.0
    assert json.loads(json.dumps(found.to_json(), allow_nan=False))["properties"][2]["value"] is None


def test_shares_above_the_cluster_are_told_and_scaled():
    found = audit_of("proportional", draw(3, n=20))
    assert found["feasibility"].holds is False
    assert found["utilisation"].value <= 1 + 1e-9


def test_no_gain_from_misreports_where_there_is_none():
    for seed in range(3):
        found = audit_of("isolated", draw(seed, weights=False), probed_jobs=4, misreports=6, seed=seed)
        assert found["strategy-proofness (probe)"].holds
        assert "24 misreports" in found["strategy-proofness (probe)"].detail


def test_gain_from_misreports_is_found_and_real():
    """A job that understates under max-min fairness gets more, and the figure is what the policy really gives."""
    state = draw(1, weights=False, gangs=False)
    found = audit_of("max_sum_throughput_perf", state, probed_jobs=6, misreports=6)["strategy-proofness (probe)"]
    assert found.holds is False
    assert found.value > 0.01
    assert found.worst_job in state.throughputs.jobs


def test_the_order_of_the_jobs_does_not_matter():
    state = draw(5)
    order = np.random.default_rng(0).permutation(state.n_jobs)
    one = audit_of("max_min_fairness_perf", state, probed_jobs=3, misreports=4)
    other = audit_of("max_min_fairness_perf", state.take(order), probed_jobs=3, misreports=4)
    for name in PROPERTIES:
        assert one[name].value == pytest.approx(other[name].value, rel=1e-6, abs=1e-9)
    assert one["sharing incentive"].worst_job == other["sharing incentive"].worst_job


@pytest.mark.parametrize("seed", range(2))
def test_explanations_agree_with_the_prices(seed):
    """In an efficient allocation a job is off its fastest type only where the exchange rate says so."""
    found = audit_of("max_min_fairness_perf", draw(seed, n=14))
    assert len(found.explanations) == 14
    for each in found.explanations:
        if "is slow" in each.text and np.isfinite(each.exchange):
            assert each.exchange >= each.speedup * (1 - 1e-3)
            assert each.exchange == pytest.approx(found.prices[each.fastest] / found.prices[each.mostly_on], rel=1e-9)
            assert "to the others" in each.text


def test_explanation_by_hand():
    """Jobs a, c are 4 times as fast on the v100, b and d twice: b is told what the v100 is worth to those who have it.

    Nobody has all of its time, so the exchange rate is between the two.
    """
    speeds = pd.DataFrame({"v100": [8.0, 2.0] * 2, "k80": [2.0, 1.0] * 2}, index=["a", "b", "c", "d"])
    found = allocator.solve("nash_welfare", speeds, "v100:1,k80:1").audit(probed_jobs=0)
    by_job = {each.job: each for each in found.explanations}
    assert by_job["a"].fastest == by_job["a"].mostly_on == "v100"
    assert by_job["b"].mostly_on == "k80"
    assert by_job["b"].speedup == pytest.approx(2.0)
    assert 2.0 <= by_job["b"].exchange <= 4.0 + 1e-6
    assert by_job["b"].text.startswith("job b is slow on k80: it gets v100, 2.0 times as fast")


def test_jobs_that_cannot_run_are_said_to():
    matrix = ThroughputMatrix([[1.0], [0.0], [1.0]], ["fine", "nowhere", "too large"], ["v100"], [1, 1, 4])
    found = audit_of("max_min_fairness_perf", ClusterState(Cluster.parse("v100:2"), matrix), probed_jobs=2)
    texts = [each.text for each in found.explanations]
    assert sum("cannot run" in text for text in texts) == 2
    assert found["sharing incentive"].worst_job == "fine"


def test_an_allocation_is_audited_beside_what_it_was_decided_from():
    state, policy = draw(0), get_policy("max_min_fairness_perf")
    solved = allocator.solve(policy, state.throughputs, state.cluster)
    known = audit(pickle.loads(pickle.dumps(solved)), solved.state, policy, seed=3)
    assert known.to_json() == solved.audit(seed=3).to_json()
    with pytest.raises(InputError, match="4 jobs"):
        audit(solved, draw(0, n=4))


def draw_packed(seed, n=8):
    """Single-GPU jobs and gangs of two with a table of their own of what pairs do."""
    rng = np.random.default_rng(seed)
    state = draw(seed, n, weights=seed % 2 == 0, cluster="v100:2,p100:2,k80:2")
    rates = np.maximum(state.rates, 0.05)
    sizes = rng.choice([1, 1, 2], n)
    together = rates[:, None, :] * rng.uniform(0.2, 1.0, (n, n, 3)) * (sizes[:, None] == sizes)[:, :, None]
    matrix = ThroughputMatrix(rates, state.throughputs.jobs, TYPES, sizes)
    return ClusterState(
        state.cluster,
        matrix,
        priority_weights=state.priority_weights,
        steps_remaining=state.steps_remaining,
        colocation=PackedColumns.from_jobs(matrix, together),
    )


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("policy", ["gandiva", "fifo_packed", "max_min_fairness_packed"])
def test_pairs_are_audited_by_the_same_definitions(seed, policy):
    state = draw_packed(seed)
    allocation = get_policy(policy).allocate(state)
    found = audit(allocation, state)
    columns, pairs, n = state.packed, allocation.pairs, state.n_jobs
    x, s, w, c = allocation.shares, state.scale_factors, state.priority_weights, state.capacity
    u = allocation.effective_throughput
    rows = list(zip(pairs.first, pairs.second, pairs.accelerator, pairs.share, strict=True))
    assert len(rows) or policy == "fifo_packed"

    envy = 0.0
    for i in range(n):
        for k in set(range(n)) - {i}:
            part = s[k] / s[i] * w[i] / w[k]
            there, time = part * (state.rates[i] @ x[k]), part * x[k].sum()
            for a, b, j, z in rows:
                if k in (a, b):
                    other = b if k == a else a
                    there += part * z * columns.together[columns.group[i], columns.group[other], j]
                    time += part * z
            there /= max(time, 1.0)
            if there > 1e-9 * state.rates[i].max():
                envy = max(envy, there / u[i] if u[i] > 1e-9 * state.rates[i].max() else np.inf)
    assert found["envy-freeness"].value == pytest.approx(envy, rel=1e-9)

    used = (s @ x).sum() + sum(s[a] * z for a, _, _, z in rows)
    assert found["utilisation"].value == pytest.approx(used / c.sum())

    every = written_out(columns)
    gains = s / (state.rates @ c / c.sum())
    worth = gains @ every.rate
    rate = every.rate.toarray()
    A = np.vstack([every.time.toarray(), every.usage.toarray(), -rate])
    best = -linprog(-worth, A_ub=A, b_ub=np.concatenate([np.ones(n), c, -u * (1 - 1e-12)])).fun
    assert found["Pareto efficiency"].value == pytest.approx(max(best / (gains @ u) - 1, 0.0), rel=1e-4, abs=2e-6)
    if policy == "max_min_fairness_packed":
        assert found["Pareto efficiency"].holds


@dataclasses.dataclass(frozen=True)
class Capped(ConvexPolicy):
    """The most normalised throughput within a quota: jobs have a fifth of each type."""

    name = "capped"

    def statement(self, cp, shares, state):
        """Rows of its own leave four fifths of the cluster idle."""
        speed = state.rates / state.rates.max(axis=1, keepdims=True)
        used = state.scale_factors @ shares
        return cp.Maximize(cp.sum(cp.multiply(speed, shares))), [used <= 0.2 * state.capacity]


@dataclasses.dataclass(frozen=True)
class Limited(ConstrainedPolicy):
    """The same as an objective with rows."""

    name = "limited"

    def objective(self, state, rates):  # noqa: ARG002
        """Normalised throughput."""
        return MaxSum(1.0 / rates.max(axis=1))

    def rows(self, state, program):
        """A fifth of each type."""
        return {"quota": program.gpus_used <= 0.2 * state.capacity}


@pytest.mark.parametrize("policy", [Capped(), Limited()])
def test_a_policy_with_rows_of_its_own_leaves_nothing_that_they_allow(policy):
    state = draw(0, gangs=False)
    allocation = policy.allocate(state)
    found = audit(allocation, state, policy, probed_jobs=0)["Pareto efficiency"]
    assert "rows" in found.definition
    wasted = dataclasses.replace(allocation, shares=allocation.shares / 2)
    worse = audit(wasted, state, policy, probed_jobs=0)
    assert found.holds
    assert found.value <= 1e-6
    # all that the rows allow is twice as much
    assert worse["Pareto efficiency"].value >= 1 - 1e-4
