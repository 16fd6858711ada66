"""OEF: against the full program in cvxpy, what it promises, and in the simulator."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from contextlib import suppress

import cvxpy as cp
import numpy as np
import pytest

from allocator import get_policy, simulate
from allocator.cluster import Cluster
from allocator.policies.fair_sharing.oef import entitled_gpus
from allocator.protocol import ClusterState
from formulations import SolverError
from throughputs import InputError, ThroughputMatrix, TraceGenerator, default_table

TYPES = ["v100", "p100", "k80"]


def draw(
    seed: int, n: int = 10, *, gangs: bool = False, weights: bool = False, gaps: bool = False, cluster=(2, 2, 2)
) -> ClusterState:
    """Jobs with rates of their own; with `gaps` some cannot run on some type."""
    rng = np.random.default_rng(seed)
    rates = np.exp(rng.normal([2.0, 1.0, 0.0], 0.5, (n, 3))) * rng.uniform(0.5, 20, (n, 1))
    if gaps:
        rates *= (rng.random((n, 3)) < 0.7) | (np.arange(3) == rng.integers(3, size=(n, 1)))
    sizes = rng.choice([1, 1, 2, min(4, max(cluster))], n) if gangs else np.ones(n, int)
    matrix = ThroughputMatrix(rates, [f"job {i}" for i in range(n)], TYPES, sizes)
    return ClusterState(
        Cluster(dict(zip(TYPES, cluster, strict=True))),
        matrix,
        priority_weights=rng.choice([1.0, 2.0], n) if weights else None,
    )


def entitled(state: ClusterState) -> np.ndarray:
    return entitled_gpus(state.scale_factors, state.priority_weights, float(state.capacity.sum()))


def relative(state: ClusterState) -> np.ndarray:
    rates = np.where(state.scale_factors[:, None] <= state.capacity, state.rates, 0.0)
    return rates / np.where(rates > 0, rates, np.inf).min(axis=1, keepdims=True)


def stated(state: ClusterState, form: str) -> float:
    """The program with every row, in cvxpy; for jobs that are all entitled to equal GPUs per weight."""
    a, s, w, n = relative(state), state.scale_factors, state.priority_weights, state.n_jobs
    x = cp.Variable((n, 3), nonneg=True)
    constraints = [cp.sum(x, axis=1) <= 1, s @ x <= state.capacity, x[a == 0] == 0]
    if form == "cooperative":
        constraints += [s[i] / w[i] * a[i] @ x[i] >= s[k] / w[k] * a[i] @ x[k] for i in range(n) for k in range(n)]
    else:
        constraints += [s[i] / w[i] * a[i] @ x[i] == s[0] / w[0] * a[0] @ x[0] for i in range(n)]
    problem = cp.Problem(cp.Maximize(sum(s[i] * a[i] @ x[i] for i in range(n))), constraints)
    return float(problem.solve(solver=cp.HIGHS))


@pytest.mark.parametrize("form", ["cooperative", "non_cooperative"])
@pytest.mark.parametrize("seed", range(8))
def test_is_the_program_with_every_row(seed, form):
    """Contended, with gangs and weights: everybody is entitled to less than its gang."""
    state = draw(seed, n=14, gangs=seed % 2 == 1, weights=seed % 4 > 1, gaps=seed > 5)
    np.testing.assert_allclose(entitled(state) / state.priority_weights, 6 / state.priority_weights.sum())
    allocation = get_policy("oef", form=form).allocate(state)
    assert allocation.status == "optimal"
    assert allocation.gap <= 1e-7
    assert allocation.objective == pytest.approx(stated(state, form), rel=1e-7)
    assert allocation.bound >= allocation.objective
    a = relative(state)
    assert allocation.objective == pytest.approx(float(state.scale_factors @ (a * allocation.shares).sum(axis=1)))
    assert (allocation.prices >= 0).all()


def test_two_kinds_of_tenants():
    """Two kinds with speedups 2 and 5: the slower kind is content with half of what both could do at its rates."""
    matrix = ThroughputMatrix([[2.0, 1.0], [2.0, 1.0], [5.0, 1.0], [5.0, 1.0]], "abcd", ["fast", "slow"])
    allocation = get_policy("oef").allocate(ClusterState(Cluster({"fast": 1, "slow": 1}), matrix))
    np.testing.assert_allclose(allocation.shares, [[0.125, 0.5]] * 2 + [[0.375, 0.0]] * 2, atol=1e-8)
    assert allocation.objective == pytest.approx(5.25)


@pytest.mark.parametrize("cluster", [(2, 2, 2), (8, 4, 2), (12, 12, 12)], ids=["contended", "between", "slack"])
@pytest.mark.parametrize("seed", range(6))
def test_is_audited_envy_free(seed, cluster):
    """Whatever the gangs, weights, load, and types that jobs cannot use."""
    state = draw(seed, gangs=True, weights=seed % 2 == 1, gaps=seed % 3 == 2, cluster=cluster)
    allocation = get_policy("oef").allocate(state)
    found = allocation.audit(probed_jobs=0)
    assert found["feasibility"].holds
    assert found["envy-freeness"].holds
    assert allocation.status == "optimal"


def test_the_sum_of_throughputs_is_not_envy_free():
    state = draw(0)
    found = get_policy("max_sum_throughput_perf").allocate(state).audit(probed_jobs=0)
    assert not found["envy-freeness"].holds
    assert not get_policy("oef", form="non_cooperative").allocate(state).audit(probed_jobs=0)["envy-freeness"].holds


@pytest.mark.parametrize("seed", range(8))
def test_nobody_loses_by_sharing_and_no_gpu_is_kept_back(seed):
    state = draw(seed, gangs=seed % 2 == 1, cluster=(2, 2, 1))
    allocation = get_policy("oef").allocate(state)
    found = allocation.audit(probed_jobs=0)
    assert found["sharing incentive"].holds
    assert found["utilisation"].value == pytest.approx(1.0)
    # equal parts are free of envy, too
    parts = get_policy("isolated").allocate(state)
    assert allocation.objective >= float(state.scale_factors @ (relative(state) * parts.shares).sum(axis=1))


def test_large_gangs_run_where_there_is_room_for_all():
    """A gang of eight beside single jobs on an almost idle cluster has all of its time, and nobody envies it."""
    matrix = ThroughputMatrix([[3.0, 2.0, 1.0], [9.0, 5.0, 2.0], [4.0, 3.0, 2.0]], "abc", TYPES, [1, 8, 1])
    state = ClusterState(Cluster.parse("v100:16,p100:8,k80:8"), matrix)
    allocation = get_policy("oef").allocate(state)
    np.testing.assert_allclose(allocation.shares.sum(axis=1), 1.0)
    assert allocation.audit(probed_jobs=0)["envy-freeness"].holds


@pytest.mark.parametrize("seed", range(4))
def test_without_cooperation_all_have_the_same(seed):
    state = draw(seed, gangs=True, weights=True)
    allocation = get_policy("oef", form="non_cooperative").allocate(state)
    u = state.scale_factors / entitled(state) * (relative(state) * allocation.shares).sum(axis=1)
    np.testing.assert_allclose(u, u[0], rtol=1e-9)
    assert u[0] > 0


@pytest.mark.parametrize("seed", range(4))
def test_without_cooperation_overstated_speedups_gain_nothing(seed):
    state, policy = draw(seed, 8, cluster=(1, 1, 1)), get_policy("oef", form="non_cooperative")
    a, rng = relative(state), np.random.default_rng(seed)
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
        ([1, 8, 8, 8], [1, 1, 1, 1], [1, 2, 2, 2]),
        ([1, 1, 8, 8], [1, 1, 1, 4], [1, 1, 1, 4]),
        ([], [], []),
    ],
)
def test_entitlements_fill_up(sizes, weights, expected):
    found = entitled_gpus(np.array(sizes, dtype=np.int64), np.array(weights, dtype=float), 7.0)
    np.testing.assert_allclose(found, expected)


def test_many_distinct_jobs_take_less_than_a_second():
    state = draw(0, 512, gangs=True, cluster=(64, 64, 64))
    policy, seconds = get_policy("oef"), []
    policy.prepare()
    for _ in range(3):
        began = time.process_time()
        allocation = policy.allocate(state)
        seconds.append(time.process_time() - began)
    assert min(seconds) < 1.0
    assert allocation.status == "optimal"
    assert allocation.audit(probed_jobs=0)["envy-freeness"].holds


def test_the_second_solver_agrees():
    state = draw(3, 8)
    one, other = (get_policy("oef", solver=solver).allocate(state) for solver in ("highs", "cbc"))
    assert other.objective == pytest.approx(one.objective, rel=1e-6)
    assert other.solver == "cbc"


def test_types_are_few_or_many():
    """One type, and more than a triangulation is made for."""
    for M in (1, 2, 6):
        rates = np.random.default_rng(M).uniform(1, 9, (9, M))
        names = [f"type{j}" for j in range(M)]
        state = ClusterState(Cluster(dict.fromkeys(names, 1)), ThroughputMatrix(rates, range(9), names))
        found = get_policy("oef").allocate(state).audit(probed_jobs=0)
        assert found["envy-freeness"].holds
        assert found["sharing incentive"].holds


def test_rates_on_a_line_have_no_triangulation():
    rates = np.array([[3.0, 2.0, 1.0]]) * np.linspace(1, 2, 7)[:, None]
    rates[:, 0] += np.arange(7)
    state = ClusterState(Cluster.parse("v100:1,p100:1,k80:1"), ThroughputMatrix(rates, range(7), TYPES))
    assert get_policy("oef").allocate(state).audit(probed_jobs=0)["envy-freeness"].holds


def test_an_unknown_form_is_named():
    with pytest.raises(InputError, match=r"form.*'selfish'.*cooperative, non_cooperative"):
        get_policy("oef", form="selfish")


@pytest.mark.parametrize("form", ["cooperative", "non_cooperative"])
def test_runs_in_the_simulator(form):
    trace = TraceGenerator(n_jobs=12, seed=2).generate()
    result = simulate(trace, Cluster.parse("v100:8,p100:8,k80:8"), get_policy("oef", form=form), default_table())
    assert len(result.jobs) == 12
    assert (result.jobs["status"] == "completed").all()


def test_is_audited_from_the_command_line(tmp_path):
    speeds = [[8.6, 5.1, 1.8], [7.2, 4.9, 2.6], [20.0, 2.0, 1.0], [2.0, 1.9, 1.8]]
    jobs = [{"throughputs": dict(zip(TYPES, rates, strict=True))} for rates in speeds]
    path = tmp_path / "instance.json"
    path.write_text(json.dumps({"cluster": dict.fromkeys(TYPES, 1), "jobs": jobs}))
    lines = {}
    for policy in ("oef", "max_sum_throughput_perf"):
        command = [sys.executable, "-m", "allocator", "audit", path, "--policy", policy, "--probed-jobs", "0"]
        printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        lines[policy] = next(line for line in printed.splitlines() if "envy-freeness" in line)
    assert lines["oef"].split()[1] == "yes"
    assert lines["max_sum_throughput_perf"].split()[1] == "no"


@pytest.mark.parametrize("n", [8, 64])
@pytest.mark.parametrize("seed", range(2))
def test_weights_of_eighteen_orders_of_magnitude(seed, n):
    """An answer with a proof, in which the heaviest jobs do not wait for the lightest."""
    rng = np.random.default_rng(seed)
    weights = 10 ** rng.uniform(-9, 9, n)
    rates = rng.uniform(0.5, 1, (n, 3)) * [1, 2, 4]
    matrix = ThroughputMatrix(rates, range(n), tuple(TYPES), rng.choice([1, 1, 2, 4], n))
    gpus = max(n // 4, 4)
    state = ClusterState(Cluster(dict.fromkeys(TYPES, gpus)), matrix, priority_weights=weights)
    allocation = get_policy("oef").allocate(state)
    assert allocation.gap <= 1e-5
    assert (state.scale_factors @ allocation.shares <= state.capacity + 1e-6).all()
    heaviest = int(np.argmax(weights / state.scale_factors))
    assert allocation.shares[heaviest].sum() == pytest.approx(1.0, abs=1e-4)


def test_what_is_found_in_no_time_is_told_with_its_gap():
    """An answer within the time limit, or an error of the solver."""
    state = draw(0, 60, gangs=True, weights=True)
    with suppress(SolverError):
        allocation = get_policy("oef", time_limit_seconds=1e-3).allocate(state)
        assert allocation.status == ("optimal" if allocation.gap <= 1e-7 else "feasible")
