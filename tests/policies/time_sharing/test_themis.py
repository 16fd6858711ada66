"""Themis: leases in the order of finish-time fairness."""

from __future__ import annotations

import numpy as np
import pytest

from allocator.policies.time_sharing.themis import Themis
from tests.policies.time_sharing.runs import Asked

TWO = ("themis", 2, 2)


def test_where_there_is_room_all_run_until_something_happens() -> None:
    assert Asked(*TWO)([1, 2], [1, 1]) == ([1, 2], np.inf)


def test_who_has_waited_longest_for_its_length_is_first() -> None:
    columns = {"steps_remaining": [1000.0] * 3, "elapsed_seconds": [50.0, 900.0, 10.0]}
    plan = Asked(*TWO, lease_seconds=100.0).plan([1, 2, 3], [1, 1, 1], **columns)
    assert plan.steps[0].assignment.jobs.tolist() == [1, 0]
    assert plan.steps[0].seconds == 100.0


def test_a_gang_that_does_not_fit_lets_smaller_ones_pass() -> None:
    columns = {"steps_remaining": [1000.0] * 4, "elapsed_seconds": [20000.0, 300.0, 200.0, 100.0]}
    assert Asked("themis", 8)([1, 2, 3, 4], [6, 4, 1, 1], **columns)[0] == [1, 3, 4]


@pytest.mark.parametrize("seed", range(5))
def test_shares_lower_the_worst_rho_as_far_as_it_goes(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n = 9
    gpus, left, elapsed = rng.choice([1, 2, 4], n), rng.uniform(100, 9000, n), rng.uniform(0, 5000, n)
    rates = rng.uniform(0.5, 3.0, n)
    asked, found = Asked("themis", 8), []
    honest = Themis._shares

    class Told(Themis):
        def _shares(self, *given):
            found.append(honest(self, *given))
            return found[0]

    asked.policy = Told()
    plan = asked.plan(range(n), gpus.tolist(), rates=rates, steps_remaining=left, elapsed_seconds=elapsed)
    (shares,) = found
    assert (np.diff(shares[plan.steps[0].assignment.jobs]) <= 0).all()
    isolated = left / (rates * np.minimum(1.0, np.ceil(8 / n) / gpus))
    assert asked.memory.isolated_rate == pytest.approx(left / isolated)
    assert gpus @ shares <= 8 * (1 + 1e-9)
    worst = ((elapsed + left / rates / shares) / isolated).max()
    # nobody can have less than any lower level asks for
    wanted = left / rates / np.maximum(worst * (1 - 1e-6) * isolated - elapsed, 1e-12)
    assert (wanted > 1.0).any() or gpus @ wanted > 8


def test_work_done_counts_by_the_isolated_share_of_its_time() -> None:
    """Alone it has both GPUs; among three one GPU, which is half of its gang."""
    asked = Asked(*TWO)
    asked([1], [2], steps_remaining=[1000.0])
    for clock, left, isolated in ((100.0, 900.0, 100.0), (200.0, 800.0, 300.0)):
        asked([1, 2, 3], [2, 1, 1], clock, steps_remaining=[left, 500.0, 500.0])
        assert asked.memory.isolated_seconds.tolist() == [isolated, 0.0, 0.0]


def test_published_fairness_takes_shares_for_rates_and_stops_the_clock_between_changes() -> None:
    asked = Asked(*TWO, system="elasticflow")
    for labels, clock, changed in (([1], 30.0, 30.0), ([1], 90.0, 30.0), ([1, 2], 120.0, 120.0), ([2], 150.0, 150.0)):
        asked(labels, [2, 1][-len(labels) :], clock, rates=[5.0] * len(labels))
        assert asked.memory.changed == changed
    assert asked.memory.isolated_rate.tolist() == [1.0]
    # since the second came they wait: 0.9 and 1.6 of their lengths, as published 0.1 and none
    for system, first in (("elasticflow", 1), ("default", 2)):
        asked = Asked("themis", 1, 1, system=system)
        for clock in (100.0, 900.0):
            elapsed = {"elapsed_seconds": [clock, clock - 100.0]}
            found = asked([1, 2], [1, 1], clock, steps_remaining=[1000.0, 500.0], **elapsed)
        assert found[0] == [first], system


def test_who_was_ahead_stays_ahead_of_its_equals() -> None:
    """Of three jobs on two GPUs the last two are worse off; when all are alike these still are ahead."""
    asked = Asked(*TWO)
    for elapsed in ([10.0, 400.0, 500.0], [500.0] * 3):
        found = asked([1, 2, 3], [1, 1, 1], 500.0, steps_remaining=[500.0] * 3, elapsed_seconds=elapsed)
        assert found[0] == [2, 3]
    assert asked.places == [3, 2, 1]
