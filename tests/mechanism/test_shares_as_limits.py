"""Where idle GPUs are meant: nobody has more GPU time than his shares promise, but for a round."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import allocator
from allocator import ConvexPolicy, SharePolicy
from allocator.cluster import Cluster
from allocator.mechanism.pair_ledger import PairLedger
from allocator.mechanism.settings import MechanismSettings
from allocator.presets import preset
from allocator.protocol.assignment import Assignment
from allocator.protocol.jobs import JobTable
from allocator.testing.worlds import cluster_for, table_for, trace_of
from tests.simulator.packed_worlds import PairPolicy, make_pairs, packed_worlds, random_shares
from tests.simulator.worlds import SharesPolicy, make_trace, worlds
from throughputs import PackedColumns

ROUND = 360.0
FREE_STARTS = {"restart_penalty_seconds": 0.0, "restart_penalty_by_gpus": ()}
"""A round of a job that pays for its start is shorter."""


def endless(**changes):
    return preset("default").replace(max_clock_seconds=40 * ROUND, **FREE_STARTS, **changes)


def run(sizes, shares, gpus, **changes):
    """Jobs of each of 12 rounds, under constant shares of one type."""
    policy = SharesPolicy(lambda _: np.array(shares)[:, None], fills_idle_gpus=False)
    table = allocator.simulate(
        make_trace([1e6] * len(sizes), sizes),
        {"v100": gpus},
        policy,
        np.ones((len(sizes), 1)),
        preset=endless(**changes),
    ).rounds
    at = (table["start_time"] / ROUND).round().astype(int)
    return [sorted(table["job_id"][at == k].tolist()) for k in range(12)]


def test_the_type_as_a_whole_keeps_to_what_was_promised_in_every_round():
    """Ten jobs of 0.6 on ten GPUs could all start at once; together they are promised six."""
    had = np.cumsum([len(jobs) for jobs in run([1] * 10, [0.6] * 10, 10)])
    promised = 6 * np.arange(1, 13)
    assert (had <= promised).all()
    assert (had >= promised - 10 * 0.6).all()


def test_a_run_may_say_so_of_any_policy_and_a_policy_may_be_overruled():
    always = [[0]] * 12
    assert run([1], [0.5], 1, idle_fill="best_type") == always
    policy = SharesPolicy(lambda _: np.array([[0.5]]))
    seen = {
        fill: allocator.simulate(
            make_trace([1e6]),
            {"v100": 1},
            policy,
            [[1.0]],
            preset=endless(**({} if fill is None else {"idle_fill": fill})),
        ).jobs
        for fill in (None, "off")
    }
    assert seen[None]["running_time"].item() == pytest.approx(40 * ROUND, rel=0.05)
    assert seen["off"]["running_time"].item() == pytest.approx(20 * ROUND, abs=ROUND)


def within_a_round(result):
    """Nobody has more than a round beyond its shares on any type, and no type more than a gang for a round."""
    types = len(result.cluster.accelerators)
    jobs = result.jobs
    beyond = (jobs["running_time"] - jobs["promised_time"]).to_numpy()
    assert (beyond <= types * ROUND * (1 + 1e-6)).all(), beyond / ROUND
    gpus = jobs["scale_factor"].to_numpy()
    assert (gpus * beyond).sum() <= types * ROUND * gpus.max(initial=1) * (1 + 1e-6)
    assert not result.summary().exceeded_jobs


@settings(max_examples=30)
@given(worlds(), st.integers(0, 2**32 - 1))
def test_time_received_is_bounded_by_shares_that_change_with_every_job(world, seed):
    trace, cluster, rates = world
    rng = np.random.default_rng(seed)

    def drawn(state):
        shares = rng.uniform(0.0, 1.0, state.rates.shape) * (state.rates > 0)
        used = (state.scale_factors[:, None] * shares).sum(axis=0)
        shares *= np.minimum(1.0, state.capacity / np.maximum(used, 1e-9))
        return shares / np.maximum(shares.sum(axis=1, keepdims=True), 1.0)

    policy = SharesPolicy(drawn, fills_idle_gpus=False)
    result = allocator.simulate(trace, cluster, policy, rates, preset=endless())
    if result.decisions:
        within_a_round(result)


@settings(max_examples=30)
@given(packed_worlds(), st.integers(0, 2**32 - 1))
def test_a_debt_that_several_rows_of_a_job_repeat_is_paid_once(world, seed):
    trace, cluster, columns = world
    policy = PairPolicy(random_shares(seed), fills_idle_gpus=False)
    result = allocator.simulate(trace, cluster, policy, columns, preset=endless())
    if result.decisions:
        beyond = (result.jobs["running_time"] - result.jobs["promised_time"]).to_numpy()
        assert (beyond <= len(cluster.accelerators) * ROUND * (1 + 1e-6)).all(), beyond / ROUND


def test_a_pair_is_not_due_for_what_its_job_has_had_with_another():
    """Job 0 was owed three rounds, which both of its pairs carry over; four with one leave none for the other."""
    columns = PackedColumns([0, 1, 2], [[1.0]] * 3, np.full((3, 3, 1), 0.8))
    jobs = JobTable.from_trace(make_trace([1e6] * 3), columns, Cluster({"type0": 1}), needs=allocator.Need.COLOCATION)
    ledger = PairLedger(jobs, 1, MechanismSettings())
    ledger.add(np.arange(3), np.ones((1, 3), dtype=bool))
    ledger.start_count(0.0)
    ledger.set_shares(np.array([[1.0], [0.0], [0.0]]), make_pairs({}))
    ledger.start_count(3 * ROUND)
    ledger.set_shares(np.zeros((3, 1)), make_pairs({(0, 1, 0): 0.01, (0, 2, 0): 0.01}))
    pair = Assignment(np.array([0, 1]), np.array([0, 0]), np.array([1, 1]), np.array([1, 0]))
    ledger.note_incumbents(pair)
    assert ledger.due(3 * ROUND)[0, [2, 4]].all()  # each on its own
    ledger.record(pair, np.array([4 * ROUND, 4 * ROUND]))
    assert not ledger.due(7 * ROUND).any()


SHARES = [
    name
    for name in [entry.name for entry in allocator.list_policies()]
    if isinstance(allocator.get_policy(name), SharePolicy)
]
EVERYDAY = ("max_min_fairness_perf", "isolated", "max_min_fairness_packed")
PROMISING = [name for name in SHARES if not allocator.get_policy(name).relative_shares]


@cache
def crowded(name, seed):
    """Twelve jobs on eight GPUs, with nobody beyond its shares."""
    policy = allocator.get_policy(name)
    chosen = preset("default").replace(idle_fill="off", **FREE_STARTS)
    return allocator.simulate(
        trace_of(12, seed, hours=2.0), cluster_for(policy, (4, 2, 2)), policy, table_for(policy), preset=chosen
    )


@pytest.mark.parametrize(
    "name",
    [name if name in EVERYDAY else pytest.param(name, marks=pytest.mark.exhaustive) for name in PROMISING],
)
def test_under_every_policy_nobody_has_more_than_it_was_promised(name):
    result = crowded(name, 0)
    if "promised_time" in result.jobs:  # an order promises nothing in shares
        within_a_round(result)


@dataclass(frozen=True)
class RandomRows(ConvexPolicy):
    """Proportional fairness under drawn rows, a weight for each job."""

    seed: int = 0

    def weights(self, jobs):
        drawn = np.random.default_rng(self.seed).uniform(0.0, 1.0, (2, 20))
        return np.where(drawn > 0.5, drawn, 0.0)[:, [job if isinstance(job, int) else 0 for job in jobs]]

    def statement(self, cp, shares, state):
        throughput = cp.sum(cp.multiply(state.rates / state.rates.max(), shares), axis=1)
        gpu_time = cp.multiply(state.scale_factors[:, None], shares)
        rows = self.weights(state.throughputs.jobs) @ gpu_time
        return cp.Maximize(cp.sum(cp.log(throughput))), [rows <= 0.3 * state.capacity]


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.exhaustive)])
def test_rows_of_a_program_hold_for_the_time_received(seed):
    policy, sizes = RandomRows(seed=seed), [1, 1, 2, 1, 4, 1, 1, 2, 1, 1]
    cluster = Cluster({"v100": 8})
    result = allocator.simulate(make_trace([1e6] * 10, sizes), cluster, policy, np.ones((10, 1)), preset=endless())
    jobs = result.jobs
    gpu_time = (jobs["scale_factor"] * jobs["running_time"]).to_numpy()
    assert (jobs["running_time"] > 0).all()
    used = policy.weights(range(10)) @ gpu_time / (40 * ROUND)
    assert (used <= 0.3 * 8 * (1 + 2 / 40) + 0.1).all(), used
    within_a_round(result)


def test_a_result_tells_when_jobs_had_more_than_their_rows_allow():
    policy, n = RandomRows(), 10
    filled = allocator.simulate(
        make_trace([1e6] * n), {"v100": 8}, policy, np.ones((n, 1)), preset=endless(idle_fill="best_type")
    ).summary()
    assert filled.exceeded_jobs > 0
    assert filled.beyond_shares_fraction > 0.1
    plain = allocator.simulate(
        make_trace([1e4] * n), {"v100": 8}, allocator.get_policy("fifo"), np.ones((n, 1))
    ).summary()
    assert plain.exceeded_jobs is None
    assert plain.beyond_shares_fraction is None
