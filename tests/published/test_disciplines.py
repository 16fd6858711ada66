"""Disciplines of published schedulers, on examples worked by hand."""

from __future__ import annotations

import numpy as np
import pytest

from allocator.cluster import Cluster
from allocator.mechanism.core import DecisionCore
from allocator.mechanism.deficit import DeficitQueue
from allocator.mechanism.gang_packing import Vacancies, pack
from allocator.mechanism.settings import MechanismSettings
from allocator.presets import preset
from allocator.protocol.assignment import Assignment
from allocator.protocol.jobs import JobTable
from allocator.published.gavel.rounds import TimeFractions, in_turn
from allocator.published.sia import FractionsSinceArrival
from tests.mechanism.test_round_mechanism import alone, order, start
from tests.simulator.cases import check, rows, run
from tests.simulator.worlds import SharesPolicy, make_trace
from throughputs import InputError

SHARES = [[0.5], [0.3], [0.2]]


def test_a_fraction_of_time_begins_anew_with_a_decision():
    mechanism = start(TimeFractions(), SHARES)
    mechanism.record(Assignment.of([0], [0], [1]), np.array([360.0]))
    # 0.5 / 540, 0.3 / 180, 0.2 / 180
    assert order(mechanism, 360.0) == [1, 2, 0]
    mechanism.decided(360.0, np.array(SHARES))
    assert order(mechanism, 360.0) == [0, 1, 2]


def test_time_that_counts_since_arrival_outlives_decisions_and_jobs():
    """As in Sia's simulator: a decision forgets nothing, and the time of who has left stays with the type."""
    mechanism = start(FractionsSinceArrival(), SHARES)
    ledger = mechanism.ledger
    assert ledger.type_time.tolist() == [720.0]
    mechanism.record(Assignment.of([0], [0], [1]), np.array([360.0]))
    mechanism.decided(360.0, np.array(SHARES))
    assert (ledger.received.tolist(), ledger.type_time.tolist()) == ([[540.0, 180.0, 180.0]], [1080.0])
    assert order(mechanism, 360.0) == [1, 2, 0]
    assert ledger.deficits.tolist() == [[0.0, 0.0, 0.0]]
    mechanism.left(np.array([0]))
    mechanism.nobody(720.0)
    assert ledger.type_time.tolist() == [1080.0]


@pytest.mark.parametrize(
    ("discipline", "expected"), [(TimeFractions(), 360.0), (FractionsSinceArrival(), 180.0 + 540.0)]
)
def test_the_time_of_a_type_counts_the_credit_of_who_was_there(discipline, expected):
    """Gavel's of those at the last decision, Sia's of all who came, and half a round of its own."""
    mechanism = start(discipline, [[0.5], [0.5]])
    mechanism.arrived(np.array([7]))
    assert mechanism.ledger.type_time.tolist() == [expected]


def test_rows_without_share_come_last():
    mechanism = start(TimeFractions(), [[0.0], [0.5]])
    mechanism.ledger.deficits[:] = [[0.0, -1e6]]
    assert order(mechanism, 0.0) == [1, 0]


def test_ties_are_broken_by_the_debt_then_by_the_share():
    """Shares of 0.4 and 0.8 after 180 and 360 s of as much time of a type; Sia looks at the share alone."""
    for discipline, expected in (
        (TimeFractions(), {0.0: [1, 0], 100.0: [0, 1]}),
        (FractionsSinceArrival(), {100.0: [1, 0]}),
    ):
        for debt, ranked in expected.items():
            mechanism = start(discipline, [[0.4], [0.8]])
            mechanism.ledger.received[:] = [[180.0, 360.0]]
            mechanism.ledger.deficits[:] = [[debt, 0.0]]
            chosen = mechanism.next(0.0, Assignment.none()).assignment.jobs.tolist()
            assert chosen == ranked


def test_types_that_are_named_choose_first_each_from_its_own_queue():
    """Both jobs have the larger share of the second type; whoever chooses first takes them both."""
    for names, expected in (((), [0, 0]), (("type1",), [1, 1])):
        mechanism = start(TimeFractions(accelerator_order=names), [[0.4, 0.6], [0.1, 0.3]])
        assert mechanism.next(0.0, Assignment.none()).assignment.pool.tolist() == expected


def test_a_strict_queue_lets_nobody_pass():
    left = Vacancies([4, 2], 5)
    assert pack(in_turn([[0, 1, 2, 3], [3, 2]], [0, 1], left.free), alone([3, 4, 1, 2, 8]), left, strict=True) == [
        [0],
        [3],
    ]


def test_undecided_jobs_take_gpus_and_do_not_run():
    """Nor is the policy asked before its interval is over, although nobody runs."""
    cluster = Cluster({"a": 1})
    jobs = JobTable.from_trace(make_trace([1e6] * 2), np.ones((2, 1)), cluster)
    settings = MechanismSettings(recompute_interval_seconds=1920.0, discipline=TimeFractions())
    core = DecisionCore(SharesPolicy(), cluster, jobs, settings)
    core.arrive([0])
    assert core.next(10.0).jobs.tolist() == [0]
    core.complete([0])
    core.arrive([1])
    assert core.next(370.0).jobs.tolist() == []
    assert core.next(1930.0).jobs.tolist() == [1]


def test_a_decision_at_clock_0_does_not_start_the_interval():
    cluster = Cluster({"a": 2})
    for discipline, asked in ((TimeFractions(), 2), (FractionsSinceArrival(), 1)):
        jobs = JobTable.from_trace(make_trace([1e6] * 2), np.ones((2, 1)), cluster)
        settings = MechanismSettings(recompute_interval_seconds=1920.0, discipline=discipline)
        core = DecisionCore(SharesPolicy(), cluster, jobs, settings)
        core.arrive([0])
        core.next(0.0)
        core.arrive([1])
        core.next(360.0)
        assert core.policy_calls == asked


FRACTIONS = """
# share / (credit of half a round and time received, in rounds): .6/.5, .4/.5; .6/1.5, .4/.5; .6/1.5, .4/1.5
by fraction of time | 1e6 1e6 | | shares .6/.4 | gavel | 0 1 0 1 0
# a decision when the third comes, after one round: 1.1, .9 and then anew
a fraction of time forgets | 1e6 1e6 1:1e6 | | shares .55/.45/0 | gavel recompute_interval_seconds=0 | 0 0 1
equal ones by share | 1e6 1e6 | | shares .3/.30001 | gavel | 1
rounded shares | 1e6 1e6 | | shares .3/.30001 | sia share_decimals=4 | 0
not rounded | 1e6 1e6 | | shares .3/.30001 | sia share_decimals=none | 1
"""


@pytest.mark.parametrize(("jobs", "cluster", "policy", "settings", "order"), rows(FRACTIONS))
def test_who_runs_in_the_order_of_rounds(jobs, cluster, policy, settings, order):
    system, _, own = settings.partition(" ")
    settings = f"discipline={system} {own} max_clock_seconds=7200"
    check(*run(jobs, cluster, policy, settings), f"rounds.job_id {order} ...")


def test_settings_are_those_of_the_discipline():
    chosen, cluster = preset("sia").replace(share_decimals=4, max_overdraft_rounds=None), Cluster({"a": 1})
    for policy, discipline in (
        ("shockwave", FractionsSinceArrival(share_decimals=4)),
        ("max_min_fairness", DeficitQueue(max_overdraft_rounds=None)),
    ):
        assert chosen.in_run(policy, cluster).mechanism.discipline == discipline
    assert chosen.in_run("shockwave", cluster).as_dict()["share_decimals"] == 4
    assert (
        chosen.replace(discipline=TimeFractions()).in_run("shockwave", cluster).mechanism.discipline == TimeFractions()
    )
    assert (
        preset("default").replace(discipline=TimeFractions(), accelerator_order=["k80"]).as_dict()
        | {
            "discipline": "time_fraction",
            "accelerator_order": ["k80"],
        }
        == preset("default").replace(discipline=TimeFractions(accelerator_order=("k80",))).as_dict()
    )
    for name, system, near in (
        ("hysteresis_round", "default", "hysteresis_rounds"),
        ("idle_fill", "gavel", "settings"),
    ):
        with pytest.raises(InputError, match=near):
            preset(system).replace(**{name: 1.0})
    with pytest.raises(InputError, match="discipline"):
        preset("default").replace(discipline="gavel")
