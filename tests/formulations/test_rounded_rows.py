"""Capacity in units of several GPUs, rounded down: nothing whole is lost, and the relaxation is close to it."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from formulations.columns import ColumnProgram, Total
from formulations.columns.engines import Highs
from formulations.columns.rounding import rounded_rows
from formulations.columns.written import Written, write_out
from formulations.goodput import SiaProgram, relative_goodput
from throughputs import Configurations

NODES = (1, 2, 4, 8, 12)


def program(seed: int, jobs: int, capacity: tuple[int, ...], gpus: tuple[int, ...] = NODES) -> SiaProgram:
    """Jobs on powers of two within nodes of four GPUs, or on whole nodes."""
    rng = np.random.default_rng(seed)
    job, pool, at = (axis.ravel() for axis in np.indices((jobs, len(capacity), len(gpus))))
    count = np.array(gpus)[at]
    rate = count ** rng.uniform(0.6, 1.0, jobs)[job] * rng.uniform(1.0, 2.0, (jobs, len(capacity)))[job, pool]
    ways = Configurations(job, pool, count, rate, pools=[f"pool {m}" for m in range(len(capacity))])
    return SiaProgram(ways, relative_goodput(ways), np.array(capacity))


def written(one: SiaProgram) -> Written:
    return write_out(ColumnProgram(one.ways, one.capacity, whole=True), [Total(one.values)])


@pytest.mark.parametrize(("seed", "capacity"), [(0, 7), (1, 11), (2, 13)])
def test_every_whole_choice_keeps_them(seed: int, capacity: int) -> None:
    stated = written(program(seed, 3, (capacity,)))
    found = rounded_rows(stated)
    assert found is not None
    rows, upper = found
    fitting = 0
    for choice in product(range(-1, len(NODES)), repeat=3):
        z = np.zeros(3 * len(NODES))
        z[[job * len(NODES) + at for job, at in enumerate(choice) if at >= 0]] = 1.0
        if stated.violation(z) <= 0:
            fitting += 1
            assert (rows @ z <= upper).all()
    assert fitting > 10


def test_they_are_there_where_units_leave_something_over() -> None:
    """Of 7 GPUs in nodes of four: 3 pairs, 1 node; of 8 in such nodes nothing is left over."""
    found = rounded_rows(written(program(0, 2, (7,), (1, 2, 4, 8))))
    assert found is not None
    rows, upper = found
    assert upper.tolist() == [3.0, 1.0]
    assert rows.toarray().tolist() == [[0.0, 1.0, 2.0, 4.0] * 2, [0.0, 0.0, 1.0, 2.0] * 2]
    assert rounded_rows(written(program(0, 2, (8,), (1, 2, 4, 8)))) is None
    shared = ColumnProgram(program(0, 2, (7,)).ways, [7], whole=False)
    assert rounded_rows(write_out(shared, [Total(np.ones(10))])) is None


def test_there_are_none_of_units_that_few_numbers_have_nor_of_columns_below_0() -> None:
    """Of 2, 3, 5 and 7 GPUs none but 2 itself is even."""
    assert rounded_rows(written(program(0, 2, (9,), (2, 3, 5, 7)))) is None
    stated = written(program(0, 2, (7,), (1, 2, 4, 8)))
    assert rounded_rows(replace(stated, least=np.full_like(stated.least, -1.0))) is None


@pytest.mark.parametrize("capacity", [(47, 31), (46, 29, 23), (95,)])
@pytest.mark.parametrize("decimals", [None, 2])
def test_a_search_with_them_ends_at_the_same_optimum(
    monkeypatch: pytest.MonkeyPatch, capacity: tuple[int, ...], decimals: int | None
) -> None:
    for seed in range(4):
        one = replace(program(seed, 40, capacity), decimals=decimals)
        every = one.solve("highs")
        with monkeypatch.context() as patch:
            patch.setattr("formulations.columns.engines._FEW_COLUMNS", 0)
            near = one.solve("highs")
        assert (near.status, every.status) == ("optimal", "optimal")
        assert near.objective == pytest.approx(every.objective, rel=1e-9)


def test_an_engine_goes_on_with_the_program_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    """Multipliers are those of its own rows, and another objective is solved as by a fresh one."""
    monkeypatch.setattr("formulations.columns.engines._FEW_COLUMNS", 0)
    one = program(3, 40, (47, 31))
    stated = written(one)
    engine, second = Highs(stated, 60.0), one.values**2
    first = engine.optimise(one.values)
    again, fresh = engine.optimise(second), Highs(stated, 60.0).optimise(second)
    for found in (first, again):
        assert found.multipliers.shape == stated.lower.shape
    assert second @ again.z == pytest.approx(second @ fresh.z, rel=1e-9)
    assert stated.dual_bound(second, again.multipliers) == pytest.approx(
        stated.dual_bound(second, fresh.multipliers), rel=1e-7
    )
