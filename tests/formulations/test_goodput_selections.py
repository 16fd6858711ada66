"""Programs over goodput on random instances, beside every choice there is."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from formulations.columns.engines import Engine
from formulations.core.solution import InfeasibleError
from formulations.goodput import (
    NodeProgram,
    PowerMean,
    SiaProgram,
    least_remaining_time,
    marginal_gains,
    relative_goodput,
    solve_on_nodes,
)
from throughputs import Configurations, InputError

SEEDS = st.integers(0, 2**32 - 1)


def draw(seed: int, n_jobs: int = 4) -> tuple[np.random.Generator, Configurations, NDArray[np.int64]]:
    """Jobs on two pools with 1, 2 and 4 GPUs, some columns left out."""
    rng = np.random.default_rng(seed)
    rows = [
        (i, pool, gpus, rng.uniform(0.5, 2.0) * gpus ** rng.uniform(0.2, 1.0))
        for i, pool, gpus in product(range(n_jobs), range(2), (1, 2, 4))
        if gpus == 1 or rng.random() < 0.7
    ]
    ways = Configurations(*map(np.array, zip(*rows, strict=True)), jobs=range(n_jobs), pools=["a", "b"])
    return rng, ways, rng.integers(0, 6, 2)


def ways_of(*jobs: str) -> Configurations:
    """Jobs as ``a1=2 b4=3``: 2 steps/s on one GPU of type a, 3 on four of type b."""
    found = [(i, *re.findall(r"(\w)(\d+)=(.*)", way)[0]) for i, job in enumerate(jobs) for way in job.split()]
    pools = sorted({pool for _, pool, _, _ in found})
    rows = [(i, pools.index(pool), int(gpus), float(rate)) for i, pool, gpus, rate in found]
    return Configurations(*map(np.array, zip(*rows, strict=True)), pools=pools)


def fractional(seed: int) -> SiaProgram:
    """A program whose relaxation is not whole: 30 jobs on 3, 5, 7 or 11 GPUs of two pools."""
    rng = np.random.default_rng(seed)
    job, pool, at = (axis.ravel() for axis in np.indices((30, 2, 4)))
    gpus = np.array([3, 5, 7, 11])[at]
    rate = gpus ** rng.uniform(0.2, 1.0, 30)[job] * rng.uniform(1.0, 2.0, (30, 2))[job, pool]
    ways = Configurations(job, pool, gpus, rate, pools=["a", "b"])
    return SiaProgram(ways, relative_goodput(ways), np.array([71, 53]))


@pytest.mark.exhaustive
@pytest.mark.parametrize("more", [1, 256])
def test_a_search_near_the_relaxation_ends_at_the_same_optimum(monkeypatch: pytest.MonkeyPatch, more: int) -> None:
    """However few variables are open at first, what is found is proven, or more of them are opened."""
    programs = [fractional(seed) for seed in range(3)]
    programs += [replace(program, decimals=2) for program in programs[:2]]
    monkeypatch.setattr("formulations.columns.near._MORE_THAN_ROWS", 10**6)
    usual = [program.solve("highs") for program in programs]
    searches = []
    monkeypatch.setattr("formulations.columns.near._MORE_THAN_ROWS", more)
    # with them the first variables would be enough more often
    monkeypatch.setattr("formulations.columns.engines.rounded_rows", lambda _: None)
    some = Engine._search_some

    def noted(*given: Any) -> Any:
        searches.append(int(given[4].sum()))
        return some(*given)

    monkeypatch.setattr(Engine, "_search_some", noted)
    for program, expected in zip(programs, usual, strict=True):
        found = program.solve("highs")
        assert (found.status, expected.status) == ("optimal", "optimal")
        assert found.objective == pytest.approx(expected.objective, rel=1e-9)
        assert found.bound <= expected.bound + 1e-6
    # with all 240 open the first search is the last; with as many as there are rows it is not
    assert len(searches) <= len(programs) if more == 256 else len(searches) > len(programs)


@settings(max_examples=25, deadline=None)
@given(SEEDS)
def test_tables_of_one_pool_have_the_optimum_of_branch_and_bound(seed: int) -> None:
    """With jobs that must keep what they hold, too many at times, and few variables open at first."""
    rng = np.random.default_rng(seed)
    job, at = (axis.ravel() for axis in np.indices((12, 5)))
    gpus = np.array([1, 2, 3, 5, 8])[at]
    ways = Configurations(job, np.zeros_like(job), gpus, gpus ** rng.uniform(0.2, 1.0, 12)[job], pools=["a"])
    held = np.where(rng.random(12) < 0.3, np.arange(12) * 5 + rng.integers(0, 5, 12), -1)
    values = {"held": held, "pinned": (held >= 0) & (rng.random(12) < 0.5), "weights": rng.uniform(0.5, 2.0, 12)}
    program = SiaProgram(ways, relative_goodput(ways), [int(rng.integers(8, 40))], restart=0.7, **values)
    found = []
    for tables in (False, True):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("formulations.columns.near._MORE_THAN_ROWS", 1 if tables else 10**6)
            if tables:
                patch.setattr(Engine, "_search_some", None)
            else:
                patch.setattr("formulations.columns.engines.search_one_pool", lambda *_: None)
            try:
                found.append(program.solve("highs"))
            except InfeasibleError:
                found.append(None)
    first, second = found
    assert (first is None) == (second is None)
    assert first is None or second.objective == pytest.approx(first.objective, rel=1e-12)
    assert first is None or (second.status, second.gap < 1e-12) == ("optimal", True)


@settings(max_examples=25, deadline=None)
@given(SEEDS)
def test_jobs_that_are_pinned_keep_their_columns(seed: int) -> None:
    rng, ways, _ = draw(seed)
    held = np.array([rng.integers(a, b) for a, b in zip(ways.offsets[:-1], ways.offsets[1:], strict=True)])
    pinned = np.array([True, False, True, False])
    needed = ways.usage[:, held[pinned]].sum(axis=1)
    program = SiaProgram(ways, relative_goodput(ways), needed + 1, held=held, pinned=pinned)
    assert program.solve().x[held[pinned]].all()
    with pytest.raises(InfeasibleError):
        SiaProgram(ways, relative_goodput(ways), needed - (needed > 0), held=held, pinned=pinned).solve()


def test_the_least_goodput_of_a_job_is_one() -> None:
    ways = ways_of("a1=3 a2=5 b1=1.5", "b1=7")
    assert relative_goodput(ways).tolist() == pytest.approx([2.0, 10 / 3, 1.0, 1.0])


def test_a_restart_that_does_not_pay_is_not_made() -> None:
    """Two GPUs are 1.2 times as fast; a job that loses half by a restart stays on one."""
    ways = ways_of("a1=1 a2=1.2")
    chosen = [SiaProgram(ways, ways.rate, np.array([2]), restart=r, held=0).solve().x.tolist() for r in (0.5, 0.9)]
    assert chosen == [[1.0, 0.0], [0.0, 1.0]]
    waits = SiaProgram(ways, ways.rate, np.array([2]), restart=0.5, held=-1)
    assert waits.solve().x.tolist() == [0.0, 1.0]
    nothing_left = SiaProgram(ways, ways.rate, np.array([2]), restart=0.0, held=1)
    assert nothing_left.solve().x.tolist() == [0.0, 1.0]
    assert nothing_left.costs.tolist() == pytest.approx([1e6, 1.2**-0.5])
    assert replace(nothing_left, most_cost=3000.0).costs[0] == 3000.0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"power": 0.0}, "power.*not 0"),
        ({"goodput": np.array([1.0])}, "goodput.*shape .2,"),
        ({"goodput": np.array([1.0, 0.0])}, "goodput.*above 0"),
        ({"held": 5}, "held.*of the job itself"),
        ({"held": -1, "pinned": True}, "pinned.*hold one"),
    ],
)
def test_what_does_not_fit_is_named(changes: dict[str, Any], message: str) -> None:
    ways = ways_of("a1=1 a2=1.2")
    with pytest.raises(InputError, match=message):
        SiaProgram(**({"ways": ways, "goodput": ways.rate, "capacity": np.array([2])} | changes))


def test_means_are_those_of_textbooks() -> None:
    values = np.array([0.5, 1.0, 4.0])
    assert PowerMean(-1.0, 1e-12).of(values) == pytest.approx(3 / (1 / values).sum())
    assert PowerMean(0.0, 1e-12).of(values) == pytest.approx(np.prod(values) ** (1 / 3))
    assert PowerMean(1.0, 1e-12).of(values) == pytest.approx(values.mean())
    assert PowerMean(-0.3, 1e-12).of(values) == pytest.approx(np.mean(values**-0.3) ** (1 / -0.3))
    assert PowerMean(-1.0).of([0.0, 1e9]) == pytest.approx(2e-3)


@settings(max_examples=25, deadline=None)
@given(SEEDS, st.integers(0, 14))
def test_marginal_gains_are_the_optimum_where_times_are_convex(seed: int, gpus: int) -> None:
    rng = np.random.default_rng(seed)
    N, R = 4, 5
    saved = -np.sort(-rng.uniform(0.0, 3.0, (N, R - 1)), axis=1)
    times = 20.0 - np.concatenate([np.zeros((N, 1)), np.cumsum(saved, axis=1)], axis=1) + rng.uniform(0, 5, (N, 1))
    given_gpus = marginal_gains(times, gpus)
    assert given_gpus.sum() <= gpus
    job, count = np.divmod(np.arange(N * R), R)
    ways = Configurations(job, np.zeros(N * R, int), count + 1, np.ones(N * R))
    found = least_remaining_time(ways, times.ravel(), [gpus])
    assert found.status == "optimal"
    assert (given_gpus > 0).sum() == found.x.sum()
    if gpus >= N:
        total = times[np.arange(N), given_gpus - 1].sum()
        assert total == pytest.approx(times.ravel() @ found.x, rel=1e-9)


def test_single_steps_see_one_gpu_ahead() -> None:
    # the first saves nothing by a second GPU, and much by a third; the second saves 4 s by each of two more
    times = [[30.0, 30.0, 3.0], [12.0, 8.0, 4.0]]
    assert marginal_gains(times, 4).tolist() == [3, 1]
    assert marginal_gains(times, 4, single_steps=True).tolist() == [1, 3]
    # nobody saves anything with the last GPUs
    assert marginal_gains(times, 5, single_steps=True).tolist() == [1, 3]
    assert marginal_gains([[9.0, 9.0, 9.0]], 3).tolist() == [1]


def test_marginal_gains_of_jobs_with_a_most() -> None:
    times = np.array([[10.0, 6.0, np.inf], [10.0, 9.0, 8.5], [10.0, 10.0, 10.0]])
    assert marginal_gains(times, 2).tolist() == [1, 1, 0]
    assert marginal_gains(times, 4).tolist() == [2, 1, 1]
    # the first has all that it can use, nobody gains from the last
    assert marginal_gains(times, 9).tolist() == [2, 3, 1]
    assert marginal_gains(np.ones((2, 1)), 5).tolist() == [1, 1]
    # numbers of GPUs that a job cannot use: on 1 or 4 it saves 3 a GPU, the other, on 2 or 3 alone, 2 by one more
    gaps = np.array([[10.0, np.nan, np.inf, 1.0], [np.inf, 10.0, 8.0, np.nan]])
    assert [marginal_gains(gaps, gpus).tolist() for gpus in (1, 3, 4, 6, 7)] == [[1, 0], [1, 2], [1, 3], [4, 2], [4, 3]]
    # a step that alone saves nothing is passed over, too
    assert marginal_gains([[9.0, 9.5, 3.0]], 3).tolist() == [3]
    with pytest.raises(InputError, match="remaining time"):
        marginal_gains([[-1.0]], 1)


def placements(n_jobs: int, nodes: int, gpus: int) -> Any:
    """Every (N, n) with no more GPUs on a node than there are, and one distributed job on each."""
    rows = list(product(range(gpus + 1), repeat=nodes))
    for picked in product(rows, repeat=n_jobs):
        y = np.array(picked)
        several = (y > 0) & ((y > 0).sum(axis=1) > 1)[:, None]
        if (y.sum(axis=0) <= gpus).all() and (several.sum(axis=0) <= 1).all():
            yield y


@settings(max_examples=10, deadline=None)
@given(SEEDS, st.sampled_from([-1.0, 0.0, 1.0]))
def test_no_placement_on_nodes_has_a_larger_mean(seed: int, exponent: float) -> None:
    rng = np.random.default_rng(seed)
    N, n, g = 3, 2, 2
    rows = [(i, r, spread) for i in range(N) for r, spread in ((1, 1), (2, 1), (2, 2), (3, 2), (4, 2))]
    job, gpus, nodes = map(np.array, zip(*rows, strict=True))
    ways = Configurations(job, np.zeros(len(job), int), gpus, np.ones(len(job)), batch_size=nodes, pools=["t4"])
    speedup = rng.uniform(0.1, 1.0, len(job)) * ways.gpus
    allowed = list(placements(N, n, g))
    held = allowed[rng.integers(len(allowed))]
    # who keeps its GPUs does not start anew
    kept = np.where(held.any(axis=1), 4.0 * rng.uniform(1.0, 2.0, N), 0.0)
    program = NodeProgram(ways, ways.batch_size, speedup, n, g, held, kept, PowerMean(exponent))
    found = solve_on_nodes(program)
    assert found.status == "optimal"
    assert found.fitness == pytest.approx(max(program.fitness(y) for y in allowed), rel=1e-6)
    assert any((found.gpus == y).all() for y in allowed)


def test_a_distributed_job_that_keeps_its_gpus_is_the_one_of_its_nodes() -> None:
    """Two jobs that gain most from both nodes; the first is there, so the second has a single GPU."""
    ways = ways_of("a2=1", "a1=1 a2=1")
    held = np.array([[1, 1], [0, 0]])
    program = NodeProgram(ways, np.array([1, 1, 2]), np.array([0.1, 1.0, 9.0]), 2, 4, held, np.array([9.0, 0.0]))
    found = solve_on_nodes(program)
    assert found.gpus[0].tolist() == [1, 1]
    assert found.gpus[1].sum() == 1
    assert found.fitness == pytest.approx(program.mean.of([9.0, 1.0]))
    # as many GPUs elsewhere are a start
    moved = NodeProgram(ways, np.array([1, 1, 2]), np.ones(3), 2, 4, np.array([[2, 0], [0, 0]]), np.array([5.0, 0.0]))
    fitness = [moved.fitness(np.array([row, [0, 0]])) for row in ([2, 0], [0, 2])]
    assert fitness == pytest.approx([moved.mean.of([5.0, 0.0]), moved.mean.of([1.0, 0.0])])


def test_a_program_on_nodes_names_what_does_not_fit() -> None:
    ways = ways_of("a4=1")
    held, nothing = np.zeros((1, 2), int), np.zeros(1)
    with pytest.raises(InputError, match="GPUs on 1 to 2 nodes of 2"):
        NodeProgram(ways, np.array([1]), np.ones(1), 2, 2, held, nothing)
    with pytest.raises(InputError, match="held_speedup"):
        NodeProgram(ways, np.array([2]), np.ones(1), 2, 2, held, np.zeros(3))
    program = NodeProgram(ways, np.array([2]), np.ones(1), 2, 2, held, nothing)
    with pytest.raises(InputError, match="a column of the job"):
        program.fitness(np.array([[1, 0]]))
