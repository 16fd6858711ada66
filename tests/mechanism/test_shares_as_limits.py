"""Where idle GPUs are meant: nobody has more GPU time than his shares promise, but for a round."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import allocator
from allocator import ConvexPolicy
from allocator.cluster import Cluster
from allocator.mechanism.deficit import DeficitQueue
from allocator.mechanism.rounds import Rounds
from allocator.presets import preset
from allocator.protocol.assignment import Assignment
from allocator.protocol.jobs import JobTable
from tests.simulator.packed_worlds import PairPolicy, make_pairs, packed_worlds, random_shares
from tests.simulator.worlds import SharesPolicy, make_trace, worlds
from throughputs import PackedColumns

ROUND = 360.0
FREE_STARTS = {"restart_penalty_seconds": 0.0, "restart_penalty_by_gpus": ()}
"""A round of a job that pays for its start is shorter."""


def endless(**changes):
    return preset("default").replace(max_clock_seconds=40 * ROUND, **FREE_STARTS, **changes)


def within_a_round(result):
    """Nobody has more than a round beyond its shares on any type, and no type more than a gang for a round."""
    types = len(result.cluster.accelerators)
    jobs = result.jobs
    beyond = (jobs["running_time"] - jobs["promised_time"]).to_numpy()
    assert (beyond <= types * ROUND * (1 + 1e-6)).all(), beyond / ROUND
    gpus = jobs["scale_factor"].to_numpy()
    assert (gpus * beyond).sum() <= types * ROUND * gpus.max(initial=1) * (1 + 1e-6)
    assert not result.summary().exceeded_jobs


@settings(max_examples=12)
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


@settings(max_examples=12)
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
    mechanism = DeficitQueue().start(Rounds(PairPolicy(None, False), Cluster({"type0": 1}), jobs, ROUND))
    mechanism.arrived(np.arange(3))
    ledger = mechanism.ledger
    ledger.start_count(0.0)
    ledger.set_shares(np.array([[1.0], [0.0], [0.0]]), make_pairs({}))
    ledger.start_count(3 * ROUND)
    ledger.set_shares(np.zeros((3, 1)), make_pairs({(0, 1, 0): 0.01, (0, 2, 0): 0.01}))
    pair = Assignment(np.array([0, 1]), np.array([0, 0]), np.array([1, 1]), np.array([1, 0]))
    assert (mechanism.priorities(3 * ROUND, pair)[0, [2, 4]] > -np.inf).all()  # each on its own
    ledger.record(pair, np.array([4 * ROUND, 4 * ROUND]))
    assert (mechanism.priorities(7 * ROUND, pair) == -np.inf).all()


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


def test_jobs_have_no_more_than_their_rows_allow_and_a_result_tells_where_they_had():
    policy, sizes = RandomRows(), [1, 1, 2, 1, 4, 1, 1, 2, 1, 1]

    def run(policy, **changes):
        rates = np.ones((10, 1))
        return allocator.simulate(make_trace([1e6] * 10, sizes), {"v100": 8}, policy, rates, preset=endless(**changes))

    result = run(policy)
    jobs = result.jobs
    gpu_time = (jobs["scale_factor"] * jobs["running_time"]).to_numpy()
    assert (jobs["running_time"] > 0).all()
    used = policy.weights(range(10)) @ gpu_time / (40 * ROUND)
    assert (used <= 0.3 * 8 * (1 + 2 / 40) + 0.1).all(), used
    within_a_round(result)
    filled = run(policy, idle_fill="best_type").summary()
    assert filled.exceeded_jobs > 0
    assert filled.beyond_shares_fraction > 0.1
    assert run(allocator.get_policy("fifo")).summary().exceeded_jobs is None
