"""Programs with rows of one's own: against the same stated in cvxpy, prices by differences, files read back."""

from __future__ import annotations

import re
from pathlib import Path

import cvxpy as cp
import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from formulations import (
    FinishTimeFairness,
    Makespan,
    MaxMin,
    MaxSum,
    NashWelfare,
    Polytope,
    Program,
    WaterFilling,
    solve,
)
from formulations.columns import InfeasibleError, Ratio, Total
from formulations.composed import Linear, ProgramSolution
from formulations.statements.shares import Times, goal
from throughputs import InputError, PlainColumns, ThroughputMatrix

ROOT = Path(__file__).resolve().parents[2]
POWER = np.array([300.0, 250.0, 150.0])
GOALS = {
    "sum": lambda n, rng: MaxSum(rng.uniform(0.5, 2.0, n)),
    "max_min": lambda n, rng: MaxMin(rng.uniform(0.5, 2.0, n)),
    "makespan": lambda n, rng: Makespan(rng.uniform(10.0, 90.0, n)),
    "finish_time": lambda n, rng: FinishTimeFairness(
        rng.uniform(0.0, 5.0, n), rng.uniform(10.0, 90.0, n), rng.uniform(20.0, 40.0, n)
    ),
    "nash": lambda n, rng: NashWelfare(rng.uniform(0.5, 2.0, n)),
}


def polytope_of(seed: int, n: int = 5) -> tuple[Polytope, np.random.Generator]:
    rng = np.random.default_rng(seed)
    rates = rng.uniform(0.5, 4.0, (n, 3)) * (rng.random((n, 3)) < 0.9)
    rates[:, 0] = np.maximum(rates[:, 0], 0.5)
    labels = [f"job {i}" for i in range(n)]
    matrix = ThroughputMatrix(rates, labels, ("v100", "p100", "k80"), rng.choice([1, 1, 2], n))
    return Polytope(PlainColumns(matrix), np.array([2.3, 1.6, 1.4])), rng


def stated(program: Program, limits: dict[str, float]) -> float:
    """The optimum of the same program in cvxpy."""
    p = program.polytope
    times = Times(p)
    rows = [*times.rows(p.capacity), cp.multiply(p.rates == 0, times.x) == 0, POWER @ times.used <= limits["watts"]]
    rows += [times.u >= limits["floor"], times.x[0, 0] - times.x[1, 0] == limits["apart"]]
    value = float(cp.Problem(goal(program.objective, times.u), rows).solve(solver=cp.CLARABEL))
    return 1 / value if isinstance(program.objective, Makespan) else value


def rows_of(program: Program, limits: dict[str, float]) -> Program:
    x = program.shares
    return program.where(
        watts=POWER @ program.gpus_used <= limits["watts"],
        floor=program.throughput >= limits["floor"],
        apart=x[0, 0] - x[1, 0] == limits["apart"],
    )


LIMITS = {"watts": 800.0, "floor": 0.11, "apart": 0.07}


@pytest.mark.parametrize("name", GOALS)
@pytest.mark.parametrize("seed", range(3))
def test_optimum_and_prices_are_those_of_the_statement(name: str, seed: int) -> None:
    polytope, rng = polytope_of(seed)
    bare = Program(polytope, GOALS[name](polytope.n_jobs, rng))
    found = rows_of(bare, LIMITS).solve()
    assert found.status == "optimal"
    assert found.objective == pytest.approx(stated(bare, LIMITS), rel=1e-6)
    assert found.throughput.min() >= 0.11 - 1e-6
    assert polytope.used(found.shares) @ POWER <= 800.0 * (1 + 1e-7)
    assert found.shares[0, 0] - found.shares[1, 0] == pytest.approx(0.07, abs=1e-7)
    sense = 1.0 if bare.objective.maximise else -1.0
    for limit, step in (("watts", 0.5), ("apart", 2e-4)):
        low, high = ({**LIMITS, limit: LIMITS[limit] + way * step} for way in (-1, 1))
        rise = sense * (rows_of(bare, high).solve().objective - rows_of(bare, low).solve().objective) / (2 * step)
        scale = abs(found.objective) / LIMITS[limit]
        assert found.prices[limit] == pytest.approx(rise, abs=2e-2 * abs(rise) + 1e-4 * scale)
    # a lower floor is looser
    low, high = ({**LIMITS, "floor": LIMITS["floor"] + way * 1e-4} for way in (-1, 1))
    gain = sense * (rows_of(bare, low).solve().objective - rows_of(bare, high).solve().objective) / 2e-4
    assert found.prices["floor"].sum() == pytest.approx(gain, abs=2e-2 * abs(gain) + 1e-4 * abs(found.objective) / 0.11)


@pytest.mark.parametrize("name", GOALS)
def test_without_rows_it_is_the_program(name: str) -> None:
    polytope, rng = polytope_of(7)
    goal = GOALS[name](polytope.n_jobs, rng)
    one, other = Program(polytope, goal).solve(), solve(polytope, goal)
    np.testing.assert_array_equal(one.shares, other.shares)
    np.testing.assert_array_equal(one.prices["capacity"], other.prices)


@pytest.mark.parametrize("name", GOALS)
def test_rows_that_do_not_bind_leave_value_and_prices_of_capacity(name: str) -> None:
    polytope, rng = polytope_of(11)
    goal = GOALS[name](polytope.n_jobs, rng)
    free = Program(polytope, goal)
    loose = free.where(watts=POWER @ free.gpus_used <= 1e5).solve()
    assert loose.objective == pytest.approx(solve(polytope, goal).objective, rel=1e-6)
    assert loose.prices["watts"] == pytest.approx(0.0, abs=1e-9)
    step = 1e-4
    for j in range(3):
        more = polytope.capacity + step * (np.arange(3) == j)
        rise = abs(solve(Polytope(polytope.columns, more), goal).objective - loose.objective) / step
        assert loose.prices["capacity"][j] == pytest.approx(rise, rel=2e-2, abs=1e-4 * abs(loose.objective))


def test_ratios_and_totals_of_shares() -> None:
    polytope, _ = polytope_of(3)
    prices = np.array([3.0, 2.0, 0.5])
    cost = polytope.loads[:, None] * prices
    free = Program(polytope, Ratio(polytope.rates, cost))
    found = free.where(floor=free.throughput >= 0.2).solve()
    assert found.status == "optimal"
    value = (polytope.rates * found.shares).sum() / (cost * found.shares).sum()
    assert found.objective == pytest.approx(value, rel=1e-6)
    total = Program(polytope, Total(polytope.rates)).solve()
    assert "sum_c v_c x_c / sum_c d_c x_c" in str(free)
    assert total.objective == pytest.approx(solve(polytope, MaxSum(np.ones(5))).objective, rel=1e-7)


@pytest.mark.parametrize("gpus", [0.5, 0.6])
def test_prices_of_rows_of_a_ratio_are_its_differences(gpus: float) -> None:
    """One job earns more at a type that costs more; the other is held to its floor, and GPUs are all worth nothing."""
    matrix = ThroughputMatrix([[8.0, 3.0], [1.0, 1.0]], ["a", "b"], ["h100", "v100"])
    free = Program(Polytope(PlainColumns(matrix), [1, 1]), Ratio(matrix.rates, np.array([[7.0, 3.0], [7.0, 3.0]])))

    def ratio(floor: float = 0.25, used: float = gpus) -> ProgramSolution:
        return free.where(floor=free.throughput[1] >= floor, used=free.gpus_used.sum() <= used).solve()

    found, step = ratio(), 1e-4
    assert found.prices["floor"] == pytest.approx(
        (ratio(0.25 - step).objective - ratio(0.25 + step).objective) / (2 * step), rel=1e-4
    )
    rise = (ratio(used=gpus + step).objective - ratio(used=gpus - step).objective) / (2 * step)
    assert found.prices["used"] == pytest.approx(rise, rel=1e-3)
    assert found.prices["capacity"].tolist() == [0.0, 0.0]


def test_jobs_and_types_that_bring_nothing_take_no_part() -> None:
    matrix = ThroughputMatrix([[0.0, 3.0], [2.0, 1.0]], ["a", "b"], ["v100", "k80"])
    polytope = Polytope(PlainColumns(matrix), [1, 0])
    free = Program(polytope, MaxMin(np.ones(2)))
    found = free.where(half=free.gpus_used.sum() <= 0.5).solve()
    assert found.objective == pytest.approx(1.0, rel=1e-6)
    assert np.isnan(found.prices["capacity"]).tolist() == [False, True]
    empty = Program(Polytope(PlainColumns(matrix), [0, 0]), MaxMin(np.ones(2)))
    nothing = empty.where(half=empty.gpus_used.sum() <= 0.5).solve()
    assert nothing.status == "empty"
    assert np.isnan(nothing.prices["half"])


def test_rows_that_exclude_each_other_are_infeasible() -> None:
    polytope, rng = polytope_of(5)
    for name in ("max_min", "nash"):
        free = Program(polytope, GOALS[name](5, rng))
        with pytest.raises(InfeasibleError, match="the rows row 1, few"):
            free.where(free.throughput >= 3.0, few=free.gpus_used.sum() <= 0.5).solve()


@pytest.mark.parametrize("suffix", ["mps", "lp"])
@pytest.mark.parametrize("name", ["sum", "max_min", "makespan"])
def test_a_file_is_the_program(name: str, suffix: str, tmp_path: Path) -> None:
    from formulations.reference.mixed_integer import new_solver

    polytope, rng = polytope_of(2)
    program = rows_of(Program(polytope, GOALS[name](5, rng)), LIMITS)
    path = tmp_path / f"program.{suffix}"
    program.to_mps(path)
    names = set(re.split(r"[\s:]+", path.read_text().replace("(", "[").replace(")", "]")))
    assert {"x[job_0,v100]", "capacity[k80]", "watts", "floor[4]", "apart"} <= names
    solver = new_solver({})
    solver.readModel(str(path))
    solver.run()
    value = solver.getInfo().objective_function_value
    found = program.solve().objective
    assert value == pytest.approx(1 / found if name == "makespan" else found, rel=1e-6)


def test_it_is_printed_in_symbols_with_sizes() -> None:
    polytope, rng = polytope_of(2)
    lines = str(rows_of(Program(polytope, GOALS["finish_time"](5, rng)), LIMITS)).splitlines()
    assert re.split(r"  +", lines[0]) == ["min_x", "max_i", "rho_i", "FinishTimeFairness, in rho"]
    assert lines[2].split() == ["time", "sum_j", "x_ij", "<=", "1", "5", "rows"]
    assert "v100 2.3, p100 1.6, k80 1.4" in lines[3]
    assert lines[4].startswith("watts ")
    assert lines[4].endswith("... <= 800")
    assert lines[5].endswith(">= 0.11  and 4 more")
    assert lines[6] == "apart       x[job 0,v100] - x[job 1,v100] == 0.07"


def test_the_page_shows_what_is_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    page = (ROOT / "docs" / "policies.md").read_text()
    shown = re.search(r"<!-- composed -->\n```python\n(.*?)```\n```text\n(.*?)```", page, re.DOTALL)
    assert shown is not None
    monkeypatch.chdir(tmp_path)
    exec(shown.group(1), {})
    assert capsys.readouterr().out == shown.group(2)
    assert (tmp_path / "capped.mps").exists()


@given(st.data())
def test_expressions_are_arrays_of_their_values(data: st.DataObject) -> None:
    """Whatever is done to the expressions: at any shares they have the values of the same done to numbers."""
    n, m = data.draw(st.integers(1, 3)), data.draw(st.integers(1, 3))
    point = np.arange(1.0, 1 + n * m).reshape(n, m)
    numbers = np.random.default_rng(n * 7 + m)
    made, value = Linear.variables((n, m)), point
    for step in data.draw(st.lists(st.integers(0, 8), max_size=5)):
        shape = value.shape
        if step == 0:
            other = numbers.normal(size=shape)
            made, value = made + other, value + other
        elif step == 1:
            other = numbers.normal(size=shape[-1:])
            made, value = (pd.Series(other) if shape else other) * made, other * value
        elif step == 2:
            made, value = -made / 3.0, -value / 3.0
        elif step == 3 and len(shape) > 1:
            made, value = made.sum(axis=0), value.sum(axis=0)
        elif step == 4 and shape:
            made, value = made[-1], value[-1]
        elif step == 5 and shape:
            other = numbers.normal(size=(shape[-1], 2))
            made, value = made @ other, value @ other
        elif step == 6 and shape:
            other = numbers.normal(size=(2, shape[0]))
            made, value = other @ made, other @ value
        elif step == 7:
            made, value = made.T, value.T
        else:
            made, value = 1.0 - made + made.sum(), 1.0 - value + value.sum()
    assert made.shape == np.shape(value)
    np.testing.assert_allclose(made.matrix @ point.ravel() + made.constant, np.ravel(value), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(
    ("wrong", "names"),
    [
        (lambda p: p.shares * p.shares, "factor"),
        (lambda p: p.shares @ np.ones(7), "shapes"),
        (lambda p: p.shares + np.ones(4), "shapes"),
        (lambda p: p.shares * np.nan, "operand"),
        (lambda p: p.shares <= "all", "operand"),
        (lambda p: 0 <= p.shares <= 1, "truth value"),
        (lambda p: p.shares > 0.5, ">="),
        (lambda p: np.dot(POWER, p.gpus_used), "operators"),
        (lambda p: pd.Series(POWER) @ p.gpus_used, "operators"),
        (lambda p: p.where(p.shares.sum()), "row 1"),
        (lambda p: p.where(other=Linear.variables((2, 2)) <= 1), "other"),
        (lambda p: p.where(capacity=p.shares <= 1), "capacity"),
        (lambda p: p.where(a=p.shares <= 1).where(a=p.shares <= 1), "a"),
        (lambda p: p.where(p.shares <= 1).solve(solver="gurobi"), "solver"),
        (lambda p: p.to_mps("program.txt"), "file"),
        (lambda p: p.to_mps("nowhere/program.mps"), "file"),
        (lambda p: Program(p.polytope, NashWelfare(np.ones(5))).to_mps("p.mps"), "objective"),
        (lambda p: Program(p.polytope, Ratio(np.ones((5, 3)), np.ones((5, 3)))).to_mps("p.mps"), "objective"),
        (lambda p: Program(p.polytope, Total(np.ones(15))).solve(), "values"),
        (lambda p: Program(p.polytope, WaterFilling(np.ones(5), np.ones(5))).where(p.shares <= 1).solve(), "objective"),
        (lambda p: Program(p.polytope, MaxMin(np.ones(4))), "objective"),
    ],
)
def test_what_cannot_be_used_is_named(wrong, names: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    polytope, _ = polytope_of(1)
    with pytest.raises(InputError) as error:
        wrong(Program(polytope, MaxMin(np.ones(5))))
    assert names in str(error.value)
    assert not list(tmp_path.iterdir())
