"""Hysteresis of the round mechanism: longer leases, and time received that stays near the shares."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from numpy.typing import NDArray

from allocator.cluster import Cluster
from allocator.mechanism.core import DecisionCore
from allocator.mechanism.ledger import TimeLedger
from allocator.mechanism.queues import Queues
from allocator.mechanism.settings import MechanismSettings
from allocator.presets import preset
from allocator.protocol.assignment import Assignment
from allocator.protocol.jobs import JobTable
from allocator.registry import get_policy
from tests.simulator.worlds import make_trace
from throughputs import InputError

ROUND = 360.0


def who_runs(jobs: int, gpus: int, rounds: int, **settings: float) -> list[list[int]]:
    """Who runs in each round under max-min fairness: equal shares, gangs of one GPU."""
    cluster = Cluster({"v100": gpus})
    table = JobTable(make_trace([1.0] * jobs), np.ones((jobs, 1)), cluster)
    core = DecisionCore(get_policy("max_min_fairness"), cluster, table, MechanismSettings(**settings))  # type: ignore[arg-type]
    core.arrive(np.arange(jobs))
    ran = []
    for number in range(rounds):
        decision = core.next(number * ROUND)
        core.record(decision, np.full(len(decision.jobs), ROUND))
        table.steps_done[table.rows(decision.jobs)] += ROUND
        ran.append(sorted(decision.jobs.tolist()))
    return ran


def test_two_jobs_on_one_gpu_by_hand() -> None:
    """Shares of 1/2 and h = 2.5 rounds: the one that waits must be owed 1.25 rounds more than the other."""
    assert who_runs(2, 1, 4) == [[0], [1], [0], [1]]
    # Job 1 has not trained and goes at once. Then it is owed 0, as is the other; after another round of it -1/2 and 1/2
    # of a round, which is not enough; after a third -1 and 1, which is.
    assert who_runs(2, 1, 9, hysteresis_rounds=2.5) == [[0], [1], [1], [1], [0], [0], [0], [0], [1]]


def test_restarts_fall_and_time_follows_the_shares() -> None:
    rounds, received, starts = 600, {}, {}
    for hysteresis in (0.0, 4.0, 16.0):
        ran = who_runs(7, 3, rounds, hysteresis_rounds=hysteresis)
        starts[hysteresis] = sum(len(set(now) - set(last)) for last, now in pairwise(ran))
        received[hysteresis] = np.bincount(np.concatenate(ran), minlength=7)
    assert starts[16.0] < starts[4.0] / 3 < starts[0.0] / 6
    for hysteresis, rounds_run in received.items():
        assert np.abs(rounds_run - rounds * 3 / 7).max() <= 1 + hysteresis


def test_newcomers_do_not_wait_for_the_hysteresis_of_others() -> None:
    ran = who_runs(6, 2, 3, hysteresis_rounds=50.0)
    assert sorted(job for jobs in ran for job in jobs) == [0, 1, 2, 3, 4, 5]


def random_shares(rng: np.random.Generator, jobs: int, gpus: int) -> NDArray[np.float64]:
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


@pytest.mark.parametrize("seed", range(12))
def test_time_owed_is_bounded_however_shares_change(seed: int) -> None:
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


def test_it_goes_with_deficits_only() -> None:
    with pytest.raises(InputError, match=r'hysteresis_rounds.*priority "deficit"'):
        MechanismSettings(priority="time_fraction", hysteresis_rounds=4.0)
    with pytest.raises(InputError, match="hysteresis_rounds"):
        MechanismSettings(hysteresis_rounds=-1.0)


def test_published_presets_do_without() -> None:
    assert preset("default").mechanism.hysteresis_rounds > 0
    for name in ("gavel", "shockwave", "shockwave_published", "elasticflow", "chronus", "chronus_elasticflow"):
        assert preset(name).mechanism.hysteresis_rounds == 0
