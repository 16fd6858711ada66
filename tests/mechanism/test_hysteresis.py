"""Hysteresis of the round mechanism: longer leases, and time received that stays near the shares."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from allocator.cluster import Cluster
from allocator.mechanism.core import DecisionCore
from allocator.mechanism.ledger import TimeLedger
from allocator.mechanism.queues import Queues
from allocator.mechanism.settings import MechanismSettings
from allocator.protocol.assignment import Assignment
from allocator.protocol.jobs import JobTable
from allocator.registry import get_policy
from tests.simulator.worlds import make_trace

ROUND = 360.0


def who_runs(jobs, gpus, rounds, **settings):
    """Who runs in each round under max-min fairness: equal shares, gangs of one GPU."""
    cluster = Cluster({"v100": gpus})
    table = JobTable(make_trace([1.0] * jobs), np.ones((jobs, 1)), cluster)
    core = DecisionCore(get_policy("max_min_fairness"), cluster, table, MechanismSettings(**settings))
    core.arrive(np.arange(jobs))
    ran = []
    for number in range(rounds):
        decision = core.next(number * ROUND)
        core.record(decision, np.full(len(decision.jobs), ROUND))
        table.steps_done[table.rows(decision.jobs)] += ROUND
        ran.append(sorted(decision.jobs.tolist()))
    return ran


def test_restarts_fall_and_time_follows_the_shares():
    rounds, received, starts = 600, {}, {}
    for hysteresis in (0.0, 4.0, 16.0):
        ran = who_runs(7, 3, rounds, hysteresis_rounds=hysteresis)
        starts[hysteresis] = sum(len(set(now) - set(last)) for last, now in pairwise(ran))
        received[hysteresis] = np.bincount(np.concatenate(ran), minlength=7)
    assert starts[16.0] < starts[4.0] / 3 < starts[0.0] / 6
    for hysteresis, rounds_run in received.items():
        assert np.abs(rounds_run - rounds * 3 / 7).max() <= 1 + hysteresis


def random_shares(rng, jobs, gpus):
    """Shares up to 1 that sum to the number of GPUs, some of them 1 and 0."""
    shares = np.zeros(jobs)
    left = float(gpus)
    for job in rng.permutation(jobs)[::-1]:
        later = np.count_nonzero(shares == 0) - 1
        shares[job] = np.clip(rng.random() * 1.3, max(0.0, left - later), min(1.0, left))
        left -= shares[job]
        if left <= 0:
            break
    return shares


@pytest.mark.parametrize("seed", range(4))
def test_time_owed_is_bounded_however_shares_change(seed):
    """Within (n - 1) (round + h) / 2; no run comes near that, so a tighter one is looked at too."""
    rng = np.random.default_rng(seed)
    jobs, gpus, hysteresis = int(rng.integers(3, 14)), int(rng.integers(1, 3)), float(rng.choice([0.0, 2.0, 8.0]))
    settings = MechanismSettings(hysteresis_rounds=hysteresis, max_overdraft_rounds=None)
    table = JobTable(make_trace([1.0] * jobs), np.ones((jobs, 1)), Cluster({"v100": gpus}))
    ledger, running, clock, most = TimeLedger(table, 1, settings), Assignment.none(), 0.0, 0.0
    ledger.add(np.arange(jobs), np.ones((1, jobs), dtype=bool))
    for number in range(400):
        if number % int(rng.integers(1, 20)) == 0:
            ledger.start_count(clock)
            ledger.set_shares(random_shares(rng, jobs, gpus)[:, None])
        ledger.note_incumbents(running)
        (queue,) = Queues(ledger, ledger.can_run, settings).per_type(clock)
        chosen = sorted(queue[:gpus])
        running = Assignment.of(chosen, [0] * gpus, [1] * gpus)
        ledger.record(running, np.full(gpus, ROUND))
        table.steps_done[chosen] += 1.0
        clock += ROUND
        owed = ledger.owed(clock)
        assert owed.sum() == pytest.approx(0.0, abs=1e-6)
        most = max(most, float(np.abs(owed).max()))
    quantum = (1 + hysteresis) * ROUND
    assert most <= (jobs - 1) * quantum / 2 + 1e-6
    assert most <= 2 * quantum
