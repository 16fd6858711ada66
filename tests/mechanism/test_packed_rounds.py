"""The round mechanism with pairs of jobs on the same GPUs."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allocator.cluster import Cluster
from allocator.mechanism.core import DecisionCore
from allocator.mechanism.deficit import DeficitQueue
from allocator.mechanism.gang_packing import Rows, Vacancies, pack
from allocator.mechanism.ledger import Ledger
from allocator.mechanism.settings import MechanismSettings
from allocator.protocol import Assignment, Need, Trigger
from allocator.protocol.jobs import JobTable
from allocator.published.gavel.rounds import TimeFractions, in_turn
from allocator.published.sia import FractionsSinceArrival
from allocator.simulator import preset
from tests.simulator.cases import check, run
from tests.simulator.packed_worlds import PairPolicy, make_pairs, packed_worlds, random_shares
from tests.simulator.worlds import make_trace
from throughputs import InputError, PackedColumns

ROUND = 360.0
GAVEL = preset("gavel").mechanism


def core_of(
    n,
    gpus,
    shares,
    pairs,
    settings=None,
    fills=True,
):
    """N equal jobs of one GPU on one type, with shares that do not change."""
    columns = PackedColumns([0] * n, [[1.0]], [[[0.7]]], accelerators=["v100"])
    cluster = Cluster({"v100": gpus})
    jobs = JobTable.from_trace(make_trace([1e9] * n), columns, cluster, needs=Need.COLOCATION)
    policy = PairPolicy(lambda _: (np.reshape(shares, (n, 1)), pairs), fills)
    core = DecisionCore(policy, cluster, jobs, settings)
    core.arrive(np.arange(n))
    return core


def rows(decision):
    pairs = zip(decision.jobs.tolist(), decision.assignment.partner.tolist(), strict=True)
    return sorted({tuple(sorted({job, partner} - {-1})) for job, partner in pairs})


def play(core, rounds):
    """How often each row ran."""
    counted = Counter()
    for index in range(rounds):
        decision = core.next(index * ROUND)
        counted.update(rows(decision))
        core.record(decision, np.full(len(decision.jobs), ROUND))
    return counted


@pytest.mark.parametrize("discipline", [DeficitQueue(), TimeFractions(), FractionsSinceArrival(None)])
def test_rows_run_as_often_as_their_shares_say(discipline):
    chosen = MechanismSettings(discipline=discipline)
    shares = {(0, 1, 0): 0.4, (0, 2, 0): 0.2, (1, 2, 0): 0.1}
    core = core_of(3, 1, np.array([0.05, 0.2, 0.05]), shares, chosen)
    counted = play(core, 100)
    expected = {(0, 1): 40, (0, 2): 20, (1, 2): 10, (0,): 5, (1,): 20, (2,): 5}
    assert sum(counted.values()) == 100
    for row, times in expected.items():
        assert abs(counted[row] - times) <= 3, (row, counted)


def test_a_pair_is_owed_the_mean_and_has_had_the_longer_time():
    """Job 0 was owed a round and job 1 nothing; they run together, one for 100 s and the other for all of a round."""
    columns = PackedColumns([0] * 2, [[1.0]], [[[0.7]]], accelerators=["v100"])
    jobs = JobTable.from_trace(make_trace([1e9] * 2), columns, Cluster({"v100": 1}), needs=Need.COLOCATION)
    ledger = Ledger(jobs, 1, ROUND)
    ledger.add(np.arange(2))
    ledger.set_shares(np.array([[1.0], [0.0]]), make_pairs({}))
    ledger.start_count(ROUND)
    ledger.set_shares(np.zeros((2, 1)), make_pairs({(0, 1, 0): 0.5}))
    assert ledger.deficits.tolist() == [[ROUND, 0.0, ROUND / 2]]
    ledger.record(Assignment.of([0, 1], [0, 0], [1, 1], [1, 0]), np.array([100.0, ROUND]))
    assert (ledger.received - ledger.credit_seconds).tolist() == [[0.0, 0.0, ROUND]]


def test_all_pairs_fill_gpus_only_where_gavel_does():
    """Rows without a share: Gavel's preset runs pairs of them, the default only jobs alone."""
    assert rows(core_of(3, 1, np.array([1.0, 0, 0]), {}).next(0.0)) == [(0,)]
    assert rows(core_of(3, 4, np.array([1.0, 0, 0]), {}).next(0.0)) == [(0,), (1,), (2,)]
    # A pair that no decision has seen yet counts as owed half a round more than a job alone.
    assert rows(core_of(3, 1, np.zeros(3), {}, GAVEL).next(0.0)) == [(0, 1)]


def test_the_policy_is_told_who_shares_with_whom():
    core = core_of(3, 2, np.array([0, 1.0, 0]), {(0, 2, 0): 1.0})
    core.next(0.0)
    core.tell(Trigger.TROUBLE)
    core.next(ROUND)
    first, second = core.policy.states
    assert first.current_partner.tolist() == [-1, -1, -1]
    assert second.current_partner.tolist() == [2, -1, 0]
    core.policy.decide = lambda _: (np.full((3, 1), 2 / 3), {})
    for number in (2, 3):
        core.tell(Trigger.TROUBLE)
        core.next(number * ROUND)
    assert core.policy.states[3].current_partner.tolist() == [-1, -1, -1]


def test_shares_without_rounds_beyond_the_gpus_or_the_time_of_a_job_are_cut():
    """1 and 3 GPUs of three are a quarter too many; job 1 of two pairs has half of its time for each."""
    check(*run("100 100x3", "v100:3", "shares 1/1", "ideal=true"), "end 400/3 400/3; timeline.busy_gpus 3")
    columns = PackedColumns([0] * 3, [[1.0]], [[[0.5]]], accelerators=["v100"])
    policy = PairPolicy(lambda state: (np.zeros((3, 1)), {(0, 1, 0): 1.0, (1, 2, 0): 1.0} if state.n_jobs == 3 else {}))
    jobs = JobTable.from_trace(make_trace([100.0] * 3), columns, Cluster({"v100": 2}), needs=Need.COLOCATION)
    core = DecisionCore(policy, Cluster({"v100": 2}), jobs, ideal=True)
    core.arrive(np.arange(3))
    assert core.next(0.0).shares.tolist() == [0.5] * 4


@pytest.mark.parametrize(
    ("pairs", "message"),
    [
        ({(0, 0, 0): 1.0}, "two jobs with gangs of one size"),
        ({(0, 1, 0): -0.5}, "share of time of at least 0"),
        ({(0, 1, 0): np.nan}, "share of time of at least 0"),
        ({(0, 7, 0): 0.5}, "second of pairs"),
        ({(0, 1, 3): 0.5}, "type of pairs"),
    ],
)
def test_bad_pairs_are_refused(pairs, message):
    with pytest.raises(InputError, match=message):
        core_of(2, 1, np.zeros(2), pairs).next(0.0)


def members(row):
    """The jobs of a row, ascending."""
    low = (row & (1 << 32) - 1) - 1
    return (row >> 32,) if low < 0 else (low, row >> 32)


row_numbers = st.integers(0, 5).flatmap(
    lambda high: st.integers(-1, high - 1).map(lambda low: (high << 32) | (low + 1))
)


@settings(max_examples=40)
@given(
    queues=st.lists(st.lists(row_numbers, max_size=12, unique=True), min_size=1, max_size=3),
    sizes=st.lists(st.integers(1, 3), min_size=6, max_size=6),
    free=st.lists(st.integers(0, 6), min_size=3, max_size=3),
    merged=st.booleans(),
)
def test_filling_serves_rows_in_order_and_each_job_once(queues, sizes, free, merged):
    """Against a plain reading of the rule: row after row, take it if its jobs are free and its gang fits."""
    free = free[: len(queues)]
    order = [(row, j) for j in range(len(queues)) for row in queues[j]]
    if merged:
        order = [(row, j) for row, j in sorted(order, key=lambda entry: entry[0] % 7)]
    vacant, busy, expected = list(free), set[int](), [list[int]() for _ in queues]
    for row, j in order:
        who = members(row)
        if sizes[who[-1]] <= vacant[j] and busy.isdisjoint(who):
            expected[j].append(row)
            busy.update(who)
            vacant[j] -= sizes[who[-1]]
    known = sorted({row for queue in queues for row in queue})
    jobs = [members(row) for row in known]
    packing = Rows(
        [who[-1] for who in jobs],
        [who[0] if len(who) == 2 else -1 for who in jobs],
        [sizes[who[-1]] for who in jobs],
    )
    left = Vacancies(free, 6)
    if merged:
        chosen = pack([(known.index(row), j) for row, j in order], packing, left)
    else:
        by_type = [[known.index(row) for row in queue] for queue in queues]
        chosen = pack(in_turn(by_type, range(len(queues)), left.free), packing, left)
    assert [[known[row] for row in mine] for mine in chosen] == expected
    assert {job for job, there in enumerate(left.taken) if there} == busy
    assert left.waiting == 6 - len(busy)
    assert left.free == vacant


@settings(max_examples=20)
@given(world=packed_worlds(), seed=st.integers(0, 1000), gavel=st.booleans())
def test_every_round_is_feasible(world, seed, gavel):
    trace, cluster, columns = world
    jobs = JobTable.from_trace(trace, columns, cluster, needs=Need.COLOCATION)
    core = DecisionCore(PairPolicy(random_shares(seed)), cluster, jobs, GAVEL if gavel else None, seed)
    rng = np.random.default_rng(seed)
    ids = np.flatnonzero(jobs.runnable)
    core.arrive(ids[: len(ids) // 2])
    for index in range(8):
        if index == 3:
            core.arrive(ids[len(ids) // 2 :])
        decision = core.next(index * 700.0)
        who, partner, pool = decision.jobs, decision.assignment.partner, decision.assignment.pool
        assert len(set(who.tolist())) == len(who)
        assert set(who.tolist()) <= set(core.active.tolist())
        assert (jobs.rates[who, pool] > 0).all()
        shared = np.flatnonzero(partner >= 0)
        for at in shared[::2].tolist():
            one, other = who[at], who[at + 1]
            assert (partner[at], partner[at + 1]) == (other, one)
            assert one < other
            assert pool[at] == pool[at + 1]
            assert decision.gpus[at] == decision.gpus[at + 1]
            assert jobs.scale_factor[one] == jobs.scale_factor[other]
            a, b, j = jobs.colocation.group[one], jobs.colocation.group[other], pool[at]
            assert min(jobs.colocation.together[a, b, j], jobs.colocation.together[b, a, j]) > 0
        once = np.flatnonzero((partner < 0) | (who < partner))
        used = [gpu for at in once.tolist() for gpu in decision.gpus[at]]
        assert len(set(used)) == len(used)
        assert np.array_equal(decision.assignment.gpus, jobs.scale_factor[who])
        counts = np.bincount(pool[once], jobs.scale_factor[who[once]], len(cluster.capacity))
        assert (counts <= cluster.capacity).all()
        core.record(decision, rng.uniform(1, ROUND, len(who)))
        if len(who) and index % 2:
            core.complete(who[:1])
