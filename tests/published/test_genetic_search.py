"""The genetic search on random programs: what it finds is allowed, and never beyond a proven optimum."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allocator.published.pollux.genetic import search_on_nodes
from formulations.goodput import NodeProgram, PowerMean, solve_on_nodes
from throughputs import Configurations, InputError

SEEDS = st.integers(0, 2**32 - 1)


def draw(seed: int, jobs: int = 5, nodes: int = 3, gpus: int = 2, *, some: float = 1.0) -> NodeProgram:
    """Jobs on up to all GPUs of a small cluster, some of their columns left out, some of them running."""
    rng = np.random.default_rng(seed)
    rows = [
        (i, r, spread)
        for i in range(jobs)
        for r in range(1, nodes * gpus + 1)
        for spread in range(-(-r // gpus), min(r, nodes) + 1)
        if rng.random() < some
    ]
    job, count, spread = np.array(rows or [(0, 1, 1)]).T
    ways = Configurations(job, 0 * job, count, np.ones(len(job)), batch_size=spread, jobs=range(jobs), pools=["t4"])
    held = np.zeros((jobs, nodes), dtype=np.int64)
    for node in range(nodes):
        held[rng.integers(jobs), node] = gpus
    several = (held > 0).sum(axis=1) > 1
    held[several] = 0
    speedup = rng.uniform(0.2, 0.9, len(job)) * ways.gpus ** rng.uniform(0.3, 1.0, jobs)[job]
    held_speedup = np.where(held.any(axis=1), held.sum(axis=1) * 1.0, 0.0)
    return NodeProgram(ways, ways.batch_size, speedup, nodes, gpus, held, held_speedup)


def allowed(program: NodeProgram, gpus: Any) -> bool:
    several = (gpus > 0) & ((gpus > 0).sum(axis=1) > 1)[:, None]
    return bool((gpus.sum(axis=0) <= program.gpus_per_node).all() and (several.sum(axis=0) <= 1).all())


@settings(max_examples=25, deadline=None)
@given(SEEDS, st.sampled_from([-1.0, 0.0, 1.0]), st.sampled_from([0.4, 1.0]))
def test_what_is_found_is_allowed_and_not_beyond_the_optimum(seed: int, exponent: float, some: float) -> None:
    program = replace(draw(seed, 3, 2, 2, some=some), mean=PowerMean(exponent))
    exact = solve_on_nodes(program)
    found = search_on_nodes(program, np.random.default_rng(seed), 20)
    assert allowed(program, found.gpus)
    assert found.fitness == program.fitness(found.gpus)
    assert found.fitness <= exact.fitness * (1 + 1e-9)
    assert found.fitness >= program.fitness(program.held)


def test_small_programs_are_solved() -> None:
    """On a dozen small programs, to the optimum that branch and bound proves."""
    for seed in range(6):
        program = draw(seed, 4, 2, 2)
        found = search_on_nodes(program, np.random.default_rng(0), 100)
        assert found.fitness == pytest.approx(solve_on_nodes(program).fitness, rel=1e-9)


def test_the_same_generator_gives_the_same_answer_and_populations_go_on() -> None:
    program = draw(7, 6, 3, 2)
    first, again = (search_on_nodes(program, np.random.default_rng(3), 5) for _ in range(2))
    assert (first.gpus == again.gpus).all()
    assert (first.population == again.population).all()
    on = search_on_nodes(program, np.random.default_rng(4), 0, population=first.population)
    assert on.fitness == first.fitness
    with pytest.raises(InputError, match=r"population.*shape \(members, 3, 2\)"):
        search_on_nodes(program, np.random.default_rng(4), 5, population=first.population[:, :2])


def test_few_nodes_as_the_second_objective(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three GPUs are worth little more than one: how much utility there must be decides."""
    ways = Configurations([0, 0, 0], [0, 0, 0], [1, 2, 3], np.ones(3), batch_size=[1, 2, 3], pools=["t4"])
    program = NodeProgram(
        ways, np.array([1, 2, 3]), np.array([1.0, 1.2, 1.3]), 3, 1, np.zeros((1, 3), int), np.zeros(1), PowerMean(1.0)
    )
    for utility, expected in ((0.35, 3), (0.5, 2), (0.7, 1), (2.0, 1)):
        monkeypatch.setattr("allocator.published.pollux.genetic._LEAST_UTILITY", utility)
        assert search_on_nodes(program, np.random.default_rng(0), 30, "nodes").gpus.sum() == expected


def test_branch_and_bound_is_never_worse() -> None:
    program = draw(11, 6, 3, 2)
    found = search_on_nodes(program, np.random.default_rng(0), 50)
    stopped, whole = solve_on_nodes(program, seconds=0.0), solve_on_nodes(program)
    assert stopped.fitness <= whole.fitness * (1 + 1e-9)
    assert whole.fitness <= stopped.bound * (1 + 1e-9)
    assert whole.status == "optimal"
    assert whole.fitness >= found.fitness * (1 - 1e-9)
    assert 0 <= whole.gap < 1e-6
