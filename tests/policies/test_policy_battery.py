"""What every registered policy must do, whoever wrote it; what it lacks by intent its class says."""

from __future__ import annotations

import json
import warnings
from typing import Any

import numpy as np
import pytest

from allocator import Cluster, ClusterState, ThroughputMatrix, get_policy, list_policies
from allocator.audit import audit
from allocator.instance import allocation_to_json
from allocator.protocol import Policy, SharePolicy
from allocator.testing import check_policy
from allocator.testing.worlds import for_one_type
from formulations import choices
from tests.policies.worlds import TYPES, state_of
from throughputs import InputError

NAMES = [entry.name for entry in list_policies()]
POLICIES = {name: get_policy(name) for name in NAMES}
SHARES = [name for name in NAMES if isinstance(POLICIES[name], SharePolicy)]
PROGRAMS = [name for name in SHARES if hasattr(POLICIES[name], "choice") and not name.endswith("_packed")]
CHOICES = choices()
FOR_ONE_TYPE = [name for name in NAMES if for_one_type(POLICIES[name])]


def every_day(depth: int) -> list[Any]:
    """All names; every day has the last of each room (depth 3) or module (4)."""
    rooms = [tuple(type(policy).__module__.split(".")[:depth]) for policy in POLICIES.values()]
    marks = pytest.mark.exhaustive
    return [pytest.param(name, marks=[marks] * (rooms[i] in rooms[i + 1 :])) for i, name in enumerate(NAMES)]


EQUAL_GPU_TIME = ("max_min_fairness", "finish_time_fairness", "nash_welfare", "oef", "gandiva")


def cluster_for(name: str, cluster: str = "v100:4,p100:4,k80:4") -> str:
    """The cluster; of a policy for one type of accelerator, only the last type keeps its GPUs."""
    if name not in FOR_ONE_TYPE:
        return cluster
    *others, last = cluster.split(",")
    return ",".join([f"{part.split(':')[0]}:0" for part in others] + [last])


def like(state: ClusterState, **changes: Any) -> ClusterState:
    """The same state but for some columns."""
    names = ("priority_weights", "steps_remaining", "elapsed_seconds", "isolated_seconds", "gpu_prices")
    columns = {name: getattr(state, name) for name in names} | changes
    return ClusterState(columns.pop("cluster", state.cluster), columns.pop("throughputs", state.throughputs), **columns)


def alike(sizes: list[int], cluster: str = "v100:2,p100:0,k80:0", **columns: Any) -> ClusterState:
    """Jobs that differ in their gangs alone."""
    matrix = ThroughputMatrix([[2.0, 2.0, 2.0]] * len(sizes), range(len(sizes)), TYPES, sizes)
    return ClusterState(Cluster.parse(cluster), matrix, **columns)


@pytest.mark.parametrize("name", every_day(3))
def test_conforms_and_says_what_it_is(name: str) -> None:
    entry = next(entry for entry in list_policies() if entry.name == name)
    assert isinstance(POLICIES[name], Policy)
    assert POLICIES[name].name == name
    assert entry.paper
    assert entry.program
    assert entry.meaning.endswith(".")
    check_policy(name, ["minds no unit of one job's throughput"] if "sum_throughput" in name else [])


@pytest.mark.parametrize("name", every_day(4))
def test_answers_are_feasible_and_proven(name: str) -> None:
    settings: list[dict[str, str]] = [{"choice": choice} for choice in CHOICES] if name in PROGRAMS else [{}]
    state = state_of(16, cluster_for(name))
    for each in settings:
        allocation = get_policy(name, **each).allocate(state)
        shares, used = allocation.shares, state.scale_factors @ allocation.shares
        assert shares.min() >= 0
        assert shares.sum(axis=1).max() <= 1 + 1e-9
        assert getattr(POLICIES[name], "relative_shares", False) or (used <= state.capacity + 1e-9).all()
        np.testing.assert_allclose(allocation.effective_throughput, (state.rates * shares).sum(1))
        assert allocation.status != "optimal" or 0 <= allocation.gap <= 1e-7
        if allocation.prices is not None and allocation.status == "optimal":
            assert (allocation.prices >= 0).all()
            assert allocation.objective_unit in allocation.price_series().name
        assert name not in PROGRAMS or each["choice"] != "balanced" or allocation.status == "optimal"


@pytest.mark.parametrize("name", every_day(3))
def test_the_order_of_jobs_and_types_and_the_unit_of_time_do_not_matter(name: str) -> None:
    """The same shares to the last digit for jobs in another order; shares of time for hours instead of minutes."""
    state, policy = state_of(12, cluster_for(name), 3), POLICIES[name]
    shares = policy.allocate(state).shares
    order = np.random.default_rng(0).permutation(12)
    if not policy.in_order_of_rows:
        np.testing.assert_array_equal(shares[order], policy.allocate(state.take(order)).shares)
    types = [2, 0, 1]
    names, matrix = [TYPES[j] for j in types], state.throughputs
    listed = like(
        state,
        cluster=Cluster({each: state.cluster.gpus[each] for each in names}),
        throughputs=ThroughputMatrix(matrix.rates[:, types], matrix.jobs, names, matrix.scale_factors),
        gpu_prices=state.gpu_prices[types],
    )
    if not hasattr(policy, "seed"):
        np.testing.assert_allclose(policy.allocate(listed).shares, shares[:, types], atol=1e-6)
    if name in SHARES:
        seconds = {each: getattr(state, each) * 64.0 for each in ("elapsed_seconds", "isolated_seconds")}
        slow = like(state, throughputs=matrix.with_rates(matrix.rates / 64.0), **seconds)
        np.testing.assert_allclose(policy.allocate(slow).shares, shares, atol=1e-5)


@pytest.mark.parametrize("name", SHARES)
def test_identical_jobs_get_the_same_and_equal_gangs_the_same_gpu_time(name: str) -> None:
    """Unless a policy gives whole types away; two GPUs for gangs of one, two and two: 2/3 of a GPU each."""
    state = state_of(9, seed=1)
    first = np.where(np.arange(9) < 3, 0, np.arange(9))
    matrix = ThroughputMatrix(state.rates[first], range(9), TYPES, np.ones(9, int))
    columns = {each: getattr(state, each)[first] for each in ("priority_weights", "steps_remaining", "elapsed_seconds")}
    shares = POLICIES[name].allocate(like(state, throughputs=matrix, isolated_seconds=None, **columns)).shares
    whole = bool(np.isin(shares, (0.0, 1.0)).all())
    assert whole or (shares[:3] == shares[0]).all()
    if (not name.startswith(EQUAL_GPU_TIME) and name != "isolated") or name == "gandiva_fair":
        return
    for choice in CHOICES if name in PROGRAMS else [None]:
        policy = get_policy(name, **({"choice": choice} if choice else {}))
        shares = policy.allocate(alike([1, 2, 2])).shares.sum(axis=1)
        np.testing.assert_allclose(shares / shares[0], [1, 1 / 2, 1 / 2], rtol=1e-5)
        assert "strategy_proof" in name or shares[0] == pytest.approx(2 / 3, rel=1e-5)


@pytest.mark.parametrize("name", [name for name in SHARES if name.startswith("max_min_fairness")])
def test_heavier_jobs_get_more(name: str) -> None:
    """In proportion; the discounts of strategy-proof fairness are for budgets that are equal unless asked for."""
    policy = get_policy(name, **({"budgets": "priority"} if "strategy_proof" in name else {}))
    weights = np.array([5.0, 1.0, 1.0, 1.0])
    shares = policy.allocate(alike([1] * 4, "v100:1,p100:0,k80:0", priority_weights=weights)).shares.sum(axis=1)
    if "strategy_proof" in name:
        assert shares[0] > 2 * shares[1]
    else:
        np.testing.assert_allclose(shares, [5 / 8, 1 / 8, 1 / 8, 1 / 8], rtol=1e-6)


@pytest.mark.parametrize("name", every_day(3))
def test_edges_of_clusters_and_gangs(name: str) -> None:
    """No GPUs, types without any, no gang that fits, one job or none, with deadlines and without."""
    for gpus in ({"t0": 0, "t1": 0}, {"t0": 2, "t1": 0}, {"t0": 2}):
        for gangs in ((), (1,), (8, 8, 1)):
            N = len(gangs)
            rates = np.random.default_rng(0).uniform(1, 2, (N, len(gpus)))
            matrix = ThroughputMatrix(rates, range(N), tuple(gpus), np.array(gangs, int))
            due = np.where(np.arange(N) == 0, 5e3, np.inf), np.full(N, 100.0)
            for slos in (None, *due[: 2 * (N > 1)]):
                known = {} if slos is None else {"slo_seconds": slos, "steps_remaining": np.full(N, 1e3)}
                state = ClusterState(Cluster(gpus), matrix, **known)
                shares = POLICIES[name].allocate(state).shares
                assert shares.shape == rates.shape
                fits = np.array(gangs)[:, None] <= state.capacity[None, :]
                assert (shares[fits] >= 0).all()
                assert not shares[~fits].any()


@pytest.mark.parametrize("name", every_day(3))
def test_a_job_that_runs_nowhere_takes_nothing_from_others(name: str) -> None:
    """A job with no throughput at all, and one whose gang is larger than every type."""
    rates = [[3.0, 2.0, 1.0], [0.0, 0.0, 0.0], [30.0, 20.0, 10.0]]
    matrix = ThroughputMatrix(rates, ["fine", "nowhere", "too large"], TYPES, [1, 1, 16])
    for cluster in ("v100:2,p100:2,k80:2", "v100:0,p100:2,k80:2"):
        cluster = Cluster.parse(cluster_for(name, cluster))
        allocation = POLICIES[name].allocate(ClusterState(cluster, matrix))
        assert not allocation.shares[:, cluster.capacity == 0].any()
        if name in PROGRAMS or name.startswith("fifo"):
            assert set(allocation.unserved) == ({"nowhere", "too large"} if name in PROGRAMS else set())
            assert allocation.shares[0].sum() == pytest.approx(1.0)
            assert not allocation.shares[1:].any()
    if name in PROGRAMS:
        matrix = ThroughputMatrix([*rates[:2], [5.0, 0.0, 0.0]], ["fine", "nowhere", "fast only"], TYPES, [1, 1, 2])
        state = ClusterState(Cluster.parse("v100:1,p100:1,k80:1"), matrix)
        allocation = get_policy(name, choice=CHOICES[-1]).allocate(state)
        assert np.isfinite(allocation.shares).all()
        assert allocation.effective_throughput[0] > 0


@pytest.mark.parametrize("name", FOR_ONE_TYPE)
def test_one_type_of_accelerator_is_asked_for(name: str) -> None:
    state = ClusterState(Cluster({"a100": 1, "t4": 1}), ThroughputMatrix([[1.0, 1.0]], [0], ["a100", "t4"]))
    with pytest.raises(InputError, match=r"GPUs of one type"):
        POLICIES[name].allocate(state)


@pytest.mark.parametrize("name", [name for name in PROGRAMS if name.endswith("_perf") and "proof" not in name])
def test_no_useful_gpu_idles(name: str) -> None:
    """Where a job has time to spare and gains on a type, that type has no GPU time to spare."""
    for seed in range(3):
        state = state_of(9, seed=seed)
        shares = POLICIES[name].allocate(state).shares
        idle = state.capacity - state.scale_factors @ shares
        fits = state.scale_factors[:, None] <= state.capacity
        assert not (((1 - shares.sum(axis=1))[:, None] > 1e-4) & (idle > 1e-4) & (state.rates > 0) & fits).any()


@pytest.mark.parametrize("name", every_day(3))
def test_prices_of_types_without_gpus_are_known_or_said_not_to_be(name: str) -> None:
    """A gang of two has no use for the first GPU; a job that runs on nothing else would join the others."""
    rates = np.array([[1.0, 10.0], [1.0, 40.0]])
    known = ClusterState(Cluster({"a": 2, "b": 0}), ThroughputMatrix(rates, "xy", "ab", [1, 2]))
    rates[1, 0] = 0.0
    unknown = ClusterState(Cluster({"a": 1, "b": 0}), ThroughputMatrix(rates, "xy", "ab"))
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        answers = [POLICIES[name].allocate(state) for state in (known, unknown)]
    said = [allocation_to_json(answer)["prices"]["b"] for answer in answers]
    assert said[1] is None
    # under oef a type more changes what everybody is entitled to
    if answers[0].prices is not None and "strategy_proof" not in name and name != "oef":
        assert np.isfinite(answers[0].prices).all()
        assert (answers[0].prices >= 0).all()
    json.dumps(allocation_to_json(answers[1]), allow_nan=False)
    json.dumps(audit(answers[1], unknown, POLICIES[name], probed_jobs=0).to_json(), allow_nan=False)
