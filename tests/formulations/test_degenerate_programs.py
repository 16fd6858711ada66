"""Programs at the edge: no jobs, no GPUs, one job, nothing that runs."""

from __future__ import annotations

import numpy as np
import pytest

from formulations import (
    MaxMin,
    MaxSum,
    isolated_shares,
    isolated_throughput,
    proportional_shares,
    proportional_throughput,
    solve,
)


def test_no_jobs(polytope_of):
    solution = solve(polytope_of(np.zeros((0, 2)), np.zeros(0, dtype=np.int64), np.array([3, 4])), MaxSum(np.zeros(0)))
    assert solution.status == "empty"
    assert solution.shares.shape == (0, 2)
    assert np.isnan(solution.objective)


def test_no_gpus(polytope_of):
    solution = solve(polytope_of(np.ones((2, 2)), np.array([1, 1]), np.array([0, 0])), MaxMin(np.ones(2)))
    assert solution.status == "empty"
    assert not solution.served.any()


def test_one_job_takes_its_fastest_type(polytope_of):
    solution = solve(polytope_of(np.array([[1.0, 4.0]]), np.array([2]), np.array([8, 2])), MaxMin(np.ones(1)))
    np.testing.assert_allclose(solution.shares, [[0.0, 1.0]], atol=1e-6)
    assert solution.objective == pytest.approx(4.0)


def test_a_job_that_runs_nowhere_does_not_hold_the_others(polytope_of):
    rates = np.array([[2.0, 1.0], [0.0, 0.0]])
    solution = solve(polytope_of(rates, np.array([1, 1]), np.array([1, 1])), MaxMin(np.ones(2)))
    assert solution.objective == pytest.approx(2.0)
    assert solution.served.tolist() == [True, False]
    assert not solution.shares[1].any()


def test_no_share_where_nothing_is_gained(polytope_of):
    rates = np.array([[2.0, 0.0], [1.0, 0.0]])
    solution = solve(polytope_of(rates, np.array([1, 1]), np.array([1, 5])), MaxMin(np.ones(2)))
    assert not solution.shares[:, 1].any()
    assert solution.objective == pytest.approx(2 / 3)


def test_a_gang_above_capacity_gets_a_fraction(polytope_of):
    """The bare program allows a fraction of a gang; policies close such types to the job."""
    solution = solve(polytope_of(np.array([[3.0]]), np.array([4]), np.array([1])), MaxMin(np.ones(1)))
    assert solution.objective == pytest.approx(0.75)


def test_worked_example():
    """Two jobs, one fast and one slow GPU."""
    from formulations import Polytope
    from throughputs import PlainColumns, ThroughputMatrix

    matrix = ThroughputMatrix([[4.0, 1.0], [2.0, 1.0]], ["a", "b"], ["v100", "k80"])
    solution = solve(Polytope(PlainColumns(matrix), np.array([1, 1])), MaxMin(np.array([4.0, 2.0])))
    # a has v100 for x of the time and k80 for the rest, b the reverse: x + (1 - x)/4 = (1 - x) + x/2
    assert solution.objective == pytest.approx(0.7, rel=1e-8)
    np.testing.assert_allclose(solution.shares, [[0.6, 0.4], [0.4, 0.6]], atol=1e-6)


def test_isolated_shares_by_hand():
    np.testing.assert_allclose(isolated_shares(np.array([1, 4]), np.array([4, 4])), [[0.5, 0.5], [0.5, 0.5]])
    np.testing.assert_allclose(isolated_shares(np.array([1, 4]), np.array([1, 1])), [[0.5, 0.5], [0.125, 0.125]])
    # GPUs that each of two jobs may use
    np.testing.assert_allclose(isolated_shares(np.array([1, 4]), np.array([[1, 4], [0, 4]])), [[0.2, 0.8], [0, 0.5]])
    rates = np.array([[2.0, 1.0], [8.0, 8.0]])
    np.testing.assert_allclose(isolated_throughput(rates, np.array([1, 4]), np.array([1, 1])), [1.5, 2.0])


def test_proportional_shares_by_hand():
    np.testing.assert_allclose(proportional_shares(2, np.array([1, 3])), [[0.25, 0.75]] * 2)
    np.testing.assert_allclose(proportional_throughput(np.array([[4.0, 8.0]]), np.array([1, 3])), [7.0])
    assert not proportional_shares(1, np.array([0, 0])).any()
    assert isolated_shares(np.zeros(0, dtype=np.int64), np.array([1])).shape == (0, 1)
