"""Packing two jobs on the same GPUs: limits, the published greedy, and the best pairs (proven in `test_statements`)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from formulations.packing import (
    PackingJobs,
    PackingLimits,
    admissible_pairs,
    best_pairs,
    first_hosts,
    pair_savings,
)
from throughputs import InputError

KINDS = 5


class Case:
    """Guests, hosts, and all that the program needs to know of them, drawn."""

    def __init__(self, seed: int, guests: int, hosts: int, budget: int) -> None:
        rng = np.random.default_rng(seed)

        def jobs(n: int) -> PackingJobs:
            kind = rng.integers(0, KINDS, n)
            return PackingJobs(rng.choice([1, 2, 8, 16], n), kind % 3, rng.uniform(100, 9000, n), kind)

        self.guests, self.hosts = jobs(guests), jobs(hosts)
        self.retained = np.where(rng.random((KINDS, KINDS)) < 0.2, 0.0, rng.uniform(0.4, 1.0, (KINDS, KINDS)))
        self.limits = PackingLimits(score_budget=budget)
        self.times = {
            "remaining": rng.uniform(10, 5000, guests),
            "host_remaining": rng.uniform(10, 5000, hosts),
            "wait": rng.uniform(0, 4000, guests),
        }

    def may_share(self, guest: int, host: int) -> bool:
        """The limits, said once more and one by one."""
        g, h, r = self.guests, self.hosts, self.retained
        return bool(
            g.gpus[guest] == h.gpus[host] <= 8
            and g.score[guest] + h.score[host] <= self.limits.score_budget
            and g.length[guest] <= 2 * h.length[host]
            and min(r[g.kind[guest], h.kind[host]], r[h.kind[host], g.kind[guest]]) > 0
        )


cases = st.builds(Case, st.integers(0, 10**6), st.integers(0, 12), st.integers(0, 12), st.sampled_from([0, 1, 2, 4]))


@settings(max_examples=40)
@given(cases)
def test_limits_are_what_they_say(case: Case) -> None:
    allowed = admissible_pairs(case.guests, case.hosts, case.retained, case.limits)
    expected = [[case.may_share(i, j) for j in range(len(case.hosts))] for i in range(len(case.guests))]
    assert allowed.tolist() == expected


@settings(max_examples=40)
@given(cases)
def test_the_best_pairs_keep_the_limits_and_save_something(case: Case) -> None:
    savings = pair_savings(case.guests, case.hosts, case.retained, case.limits, **case.times)
    pairs = [(i, j) for i, j in enumerate(best_pairs(savings).tolist()) if j >= 0]
    assert len({j for _, j in pairs}) == len(pairs)
    assert all(case.may_share(i, j) and savings[i, j] > 0 for i, j in pairs)


@settings(max_examples=40)
@given(cases, st.booleans(), st.integers(0, 3))
def test_the_greedy_keeps_the_limits_and_the_order(case: Case, place_first: bool, room: int) -> None:
    started: list[int] = []

    def start(job: int) -> bool:
        """The first few that ask find room, whatever their size."""
        if len(started) < room:
            started.append(job)
        return job in started

    R = len(case.hosts)
    found = first_hosts(case.guests, case.hosts, case.retained, case.limits, start=start, place_first=place_first)
    joined = [j for j in found.host.tolist() if j >= 0]
    assert len(set(joined)) == len(joined)
    assert np.flatnonzero(found.starts).tolist() == started
    for i, j in enumerate(found.host.tolist()):
        assert not (j >= 0 and found.starts[i])
        if 0 <= j < R:
            assert case.may_share(i, j)
        elif j >= R:
            assert j - R < i
            assert found.starts[j - R]


def test_the_first_host_and_the_fastest_one() -> None:
    guests = PackingJobs([2], [0], [100.0], [0])
    hosts = PackingJobs([2, 2, 2], [0, 0, 0], [100.0] * 3, [1, 2, 2])
    retained = np.array([[1.0, 0.6, 0.9], [0.7, 1.0, 1.0], [0.8, 1.0, 1.0]])
    limits = PackingLimits()
    assert first_hosts(guests, hosts, retained, limits).host.tolist() == [0]
    assert first_hosts(guests, hosts, retained, limits, choice="fastest").host.tolist() == [1]


def test_a_job_that_starts_is_a_host_for_the_next_one() -> None:
    guests = PackingJobs([1, 1, 1], [0, 0, 0], [100.0, 150.0, 150.0], [0, 0, 0])
    found = first_hosts(guests, PackingJobs([], [], [], []), np.ones((1, 1)), PackingLimits(), start=lambda i: i != 2)
    assert found.starts.tolist() == [True, False, False]
    assert found.host.tolist() == [-1, 0, -1]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: PackingJobs([0], [0], [1.0], [0]), r"'gpus\[0\]': found 0.0, expected finite numbers above 0"),
        (lambda: PackingJobs([1], [0, 1], [1.0], [0]), r"'score': found shape \(2,\)"),
        (lambda: PackingJobs([1], [0], [np.nan], [0]), r"'length\[0\]': found nan"),
        (lambda: PackingLimits(score_budget=-1), "'score_budget': found -1.0, expected finite numbers of at least 0"),
        (
            lambda: admissible_pairs(*[PackingJobs([1], [0], [1.0], [0])] * 2, [[-1.0]], PackingLimits()),
            r"'retained\[0, 0\]': found -1.0",
        ),
        (
            lambda: pair_savings(
                *[PackingJobs([1], [0], [1.0], [0])] * 2,
                [[1.0]],
                PackingLimits(),
                remaining=[1.0],
                host_remaining=[1.0],
                wait=[np.inf],
            ),
            r"'wait\[0\]': found inf",
        ),
    ],
)
def test_what_is_refused(make: Callable[[], object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        make()
