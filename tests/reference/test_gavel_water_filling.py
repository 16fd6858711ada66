"""Hierarchical water filling against the original system's recorded vectors (Narayanan et al., OSDI 2020, figure 11).

Three entities of weights 1, 2 and 3 share 3 GPUs of each of three types among 1 to 18 jobs. The original searches the
jobs that can rise no further by an integer program with a slack of 1e-4, and at times takes none for held: it then
stops with time left over. Where it went through, the vectors are equal; where it stopped, ours must be the better one.
"""

from __future__ import annotations

import gzip
import json

import numpy as np
import pytest

from formulations import Hierarchy, Polytope, WaterFilling, proportional_throughput, solve
from tests.reference.tiers import tiered
from throughputs import PlainColumns, ThroughputMatrix

SLACK = 2e-4
"""Twice the slack with which the original finds who is held."""

STOPPED_EARLY = {
    ("fairness", True): {7, 8, 9, 13},
    ("fairness", False): {5, 6, 7, 8, 9, 13},
    ("fifo", True): {12},
    ("fifo", False): set(),
}
"""Numbers of jobs with which the original takes a job that can rise for held."""

AGNOSTIC_STOPPED_EARLY = {5, 6, 7, 8, 9, 10, 11, 13, 14}
"""The same where types are taken as equal, with jobs in proportion."""


@pytest.fixture(scope="module")
def records(reference_data):
    with gzip.open(reference_data("gavel/fig11_hierarchical.json.gz")) as file:
        return {(r["entity_policy"], r["random_throughputs"], r["num_jobs"]): r for r in json.load(file)}


def program(record: dict, *, agnostic: bool) -> tuple[Polytope, WaterFilling]:
    N, E = record["num_jobs"], len(record["entity_weights"])
    types = list(record["cluster"])
    rates = np.array([[record["throughputs"][str(job)][type_] for type_ in types] for job in range(N)])
    rates = np.ones_like(rates) if agnostic else rates
    capacity = np.array(list(record["cluster"].values()), dtype=np.float64)
    of_job = np.zeros(N, dtype=np.intp)
    for entity, name in enumerate(record["entity_weights"]):
        of_job[record["entity_to_jobs"][name]] = entity
    hierarchy = Hierarchy(
        np.full(E, -1),
        np.array(list(record["entity_weights"].values()), dtype=np.float64),
        np.full(E, record["entity_policy"] == "fifo"),
        of_job,
        np.arange(N, dtype=np.float64),
    )
    weights = np.array([record["priority_weights"][str(job)] for job in range(N)], dtype=np.float64)
    polytope = Polytope(PlainColumns(ThroughputMatrix(rates, range(N), types)), capacity)
    return polytope, WaterFilling(proportional_throughput(rates, capacity), weights, hierarchy)


@pytest.mark.parametrize("agnostic", [False, True])
@pytest.mark.parametrize("rule", ["fairness", "fifo"])
@pytest.mark.parametrize("n_jobs", tiered(range(1, 19), daily=(3, 5, 8), gate=range(1, 19)))
def test_recorded_vectors(records, rule, n_jobs, agnostic):
    for drawn in (True, False):
        record = records[rule, drawn, n_jobs]
        polytope, objective = program(record, agnostic=agnostic)
        solution = solve(polytope, objective)
        assert solution.status == "optimal"
        assert polytope.violation(solution.shares) <= 1e-12
        ours = polytope.throughput(solution.shares) / objective.units
        theirs = np.array(record["agnostic_now" if agnostic else "perf_now"])
        stopped = STOPPED_EARLY[rule, drawn]
        if agnostic:
            stopped = AGNOSTIC_STOPPED_EARLY if rule == "fairness" else set()
        if n_jobs not in stopped:
            np.testing.assert_allclose(ours, theirs, rtol=SLACK, atol=1e-5)
