"""The compiled loops against those in NumPy, and the rule by which they are used."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from formulations import NashWelfare, Objective, Polytope, fast, solve
from formulations.backends.interior_point import InteriorPoint, StructuredProgram, solve_structured
from formulations.backends.responses import respond
from formulations.backends.structured import own_engine
from formulations.fast import cache
from throughputs import InputError

Draw = Callable[[int], tuple[Polytope, dict[str, Objective]]]

needs_numba = pytest.mark.skipif(find_spec("numba") is None, reason="numba is not installed (the extra [fast])")

KINDS = ("max_min", "sum", "sum_with_floors", "curved", "central", "drift", "log")


def draw_structured(kind: str, seed: int) -> StructuredProgram:
    """A program of 1 to 300 classes on 1 to 8 types: ties, columns of zeros, ample and scarce capacity."""
    rng = np.random.default_rng([seed, KINDS.index(kind)])
    M, K = int(rng.integers(1, 9)), int(rng.choice([1, 2, 7, 26, 127, 128, 129, 300]))
    rates = rng.uniform(0.01, 1, (M, K))
    if rng.random() < 0.3:
        rates = np.maximum(np.round(rates, 1), 0.1)
    if rng.random() < 0.3:
        rates[rng.integers(0, M)] = rates[rng.integers(0, M)]
    if rng.random() < 0.3:
        rates[rng.random((M, K)) < 0.3] = 0
        rates[0, rates.max(axis=0) == 0] = 1.0
    if rng.random() < 0.2:
        rates[:] = rates[:, :1]
    rates /= rates.max(axis=0)
    scale_factors, counts = rng.choice([1.0, 2, 4, 8], K), rng.integers(1, 6, K).astype(float)
    loads = scale_factors * counts
    capacity = loads.sum() / M * rng.uniform(0.05, 1, M) * rng.choice([0.1, 1, 10])
    shares = rng.dirichlet(np.ones(M), K).T
    shares *= 0.9 * min(1.0, (capacity / (shares @ loads)).min())
    floors, worth = 0.9 * (rates * shares).sum(axis=0), rates * rng.uniform(0.1, 1, K)
    slopes = 10.0 ** rng.uniform(-2, 0, K)
    parts: dict[str, dict[str, np.ndarray]] = {
        "max_min": {"slopes": slopes},
        "sum": {"gains": worth},
        "sum_with_floors": {"gains": worth, "floors": floors},
        "curved": {"gains": worth, "floors": floors, "curvature": 1e-2 * worth.max(axis=0), "start": shares},
        "central": {"floors": floors},
        "drift": {"slopes": 0.2 * slopes, "floors": 0.01 * floors, "drift": 0.2 * capacity},
        "log": {"budgets": 10.0 ** rng.uniform(-1, 1, K)},
    }
    return StructuredProgram(rates, scale_factors, counts, capacity, **parts[kind])


def value(program: StructuredProgram, point: InteriorPoint) -> float:
    """What the program maximises."""
    if program.slopes is not None:
        return point.level
    if program.budgets is not None:
        return float(program.counts @ (program.budgets * np.log((program.rates * point.shares).sum(axis=0))))
    if program.gains is None:
        return 0.0
    curvature = np.zeros(len(program.counts)) if program.curvature is None else program.curvature
    worth = (program.gains * point.shares).sum(axis=0) - 0.5 * curvature * (point.shares**2).sum(axis=0)
    return float(program.counts @ worth)


@needs_numba
@pytest.mark.parametrize("kind", KINDS)
def test_compiled_interior_point_reaches_the_same_optimum(kind: str) -> None:
    for seed in range(60):
        program = draw_structured(kind, seed)
        plain = own_engine(program, 1e-11, fast=False)
        compiled = own_engine(program, 1e-11, fast=True)
        scale = program.counts @ program.budgets if program.budgets is not None else abs(value(program, plain))
        assert value(program, compiled) == pytest.approx(value(program, plain), abs=1e-9 * float(scale)), seed
        assert compiled.shares.min() >= 0
        assert compiled.shares.sum(axis=0).max() <= 1 + 1e-9
        used = compiled.shares @ (program.counts * program.scale_factors)
        if program.drift is not None:
            used += program.drift * compiled.level
        assert (used <= program.capacity * (1 + 1e-8)).all(), seed
        # rounding decides when the last iterations make no more progress, not before
        assert abs(compiled.iterations - plain.iterations) <= 5, seed
        if kind in ("curved", "log"):
            np.testing.assert_allclose(compiled.demand_multipliers, plain.demand_multipliers, rtol=1e-5, atol=1e-7)
        if kind == "curved":
            np.testing.assert_allclose(compiled.shares, plain.shares, atol=1e-6)


@needs_numba
def test_compiled_interior_point_keeps_to_its_limits() -> None:
    from formulations.fast.interior_point import solve_structured as compiled

    program = draw_structured("max_min", 3)
    for limit in (0, 1, 4):
        few, same = compiled(program, max_iterations=limit), solve_structured(program, max_iterations=limit)
        assert few.iterations == same.iterations == limit
        np.testing.assert_allclose(few.shares, same.shares, rtol=1e-12)
        np.testing.assert_allclose(few.prices, same.prices, rtol=1e-12)
    rough, fine = compiled(program, tolerance=1e-2), compiled(program, tolerance=1e-10)
    assert rough.iterations < fine.iterations
    # what does not lie in memory as the compiled code wants it, or is no float, is converted
    turned = StructuredProgram(
        np.asfortranarray(program.rates),
        program.scale_factors.astype(int),
        program.counts.astype(int),
        program.capacity,
        slopes=program.slopes,
    )
    np.testing.assert_array_equal(compiled(turned, tolerance=1e-10).shares, fine.shares)


@needs_numba
def test_programs_that_cannot_be_solved_end_without_an_answer_in_both() -> None:
    rng = np.random.default_rng(5)
    rates, ones = rng.uniform(0.1, 1, (2, 6)), np.ones(6)
    for part in ({"floors": 5 * ones}, {"slopes": ones * np.nan}):
        program = StructuredProgram(rates, ones, ones, np.array([1.0, 1.0]), **part)
        for engine in (True, False):
            point = own_engine(program, 1e-10, fast=engine)
            assert point.shares.shape == (2, 6)
            assert point.iterations <= 80


@needs_numba
@pytest.mark.parametrize("name", ["max_min", "makespan", "finish_time", "max_sum", "nash"])
def test_degenerate_programs_are_proven_alike(name: str, draw: Draw, monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(40):
        polytope, objectives = draw(seed)
        objectives["nash"] = NashWelfare(np.linspace(1, 2, polytope.n_jobs))
        answers = []
        for compiled in (False, True):
            monkeypatch.setattr(fast, "_decided", lambda compiled=compiled: compiled)
            answers.append(solve(polytope, objectives[name], solver="structured"))
        plain, quick = answers
        assert quick.objective == pytest.approx(plain.objective, rel=1e-8, abs=1e-8), seed
        assert quick.gap <= max(1e-7, 2 * plain.gap), seed
        assert quick.status == plain.status, seed


@needs_numba
@pytest.mark.parametrize("paid", ["demand", "gain", "both"])
def test_compiled_responses_are_the_same_to_the_last_bit(paid: str) -> None:
    for seed in range(120):
        rng = np.random.default_rng(seed)
        M, K = int(rng.integers(1, 9)), int(rng.choice([1, 5, 255, 256, 257, 1000]))
        rates = rng.uniform(0, 1, (M, K))
        if seed % 3 == 0:
            rates = np.round(rates, 1)
            rates[rng.random((M, K)) < 0.2] = 0
        rates[0, rates.max(axis=0) == 0] = 1.0
        rates /= rates.max(axis=0)
        prices = rng.uniform(0, 1, M)
        if seed % 4 == 0:
            prices[rng.random(M) < 0.4] = 0
        demand = None if paid == "gain" else np.round(rng.uniform(0.01, 1.1, K), int(rng.choice([1, 9])) + 1)
        gain = None if paid == "demand" else rng.uniform(0, 2, K)
        plain = respond(rates, prices, demand, gain, fast=False)
        quick = respond(rates, prices, demand, gain, fast=True)
        met = np.isfinite(plain.cost)
        np.testing.assert_array_equal(quick.cost, plain.cost)
        np.testing.assert_array_equal(quick.decided, plain.decided)
        np.testing.assert_array_equal(quick.mix[met], plain.mix[met])
        np.testing.assert_array_equal(quick.theta[met], plain.theta[met])
        assert ((quick.theta >= 0) & (quick.theta <= 1)).all()


@needs_numba
def test_two_threads_share_many_jobs() -> None:
    rng = np.random.default_rng(1)
    rates, demand, prices = rng.uniform(0.1, 1, (3, 100_003)), rng.uniform(0, 0.1, 100_003), rng.uniform(0, 1, 3)
    plain, quick = respond(rates, prices, demand, fast=False), respond(rates, prices, demand, fast=True)
    np.testing.assert_array_equal(quick.cost, plain.cost)
    np.testing.assert_array_equal(quick.mix, plain.mix)


@pytest.fixture
def decide(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., bool]:
    """What a fresh process would decide, with its caches in an empty folder."""
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    monkeypatch.delenv("NUMBA_DISABLE_JIT", raising=False)
    monkeypatch.delenv("ALLOCATOR_FAST", raising=False)

    def decision(**variables: str) -> bool:
        with monkeypatch.context() as context:
            for name, setting in variables.items():
                context.setenv(name, setting)
            return fast._decided.__wrapped__()

    return decision


def pretend(monkeypatch: pytest.MonkeyPatch, *, installed: bool) -> None:
    """Let numba be found, or not."""
    spec = find_spec("numpy") if installed else None
    for module in (fast, cache):
        monkeypatch.setattr(module, "find_spec", lambda _: spec)


def test_nothing_is_compiled_unasked(decide: Callable[..., bool], monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch, installed=True)
    assert not decide()
    assert decide(ALLOCATOR_FAST="1")
    cache.note()
    assert decide()
    assert not decide(ALLOCATOR_FAST="0")
    assert not decide(NUMBA_DISABLE_JIT="1")
    # other settings of the compiler ask for other code
    assert not decide(NUMBA_OPT="1")
    monkeypatch.setattr(cache, "_processor", lambda: "another")
    assert not decide()


def test_a_change_of_the_code_asks_for_another_folder(
    decide: Callable[..., bool], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pretend(monkeypatch, installed=True)
    for name in cache._SOURCES:
        shutil.copy(cache._HERE / f"{name}.py", tmp_path)
    monkeypatch.setattr(cache, "_HERE", tmp_path)
    cache.note()
    assert decide()
    with (tmp_path / "blocks.py").open("a") as source:
        source.write("# one more line\n")
    assert not decide()


def test_without_numba(decide: Callable[..., bool], monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch, installed=False)
    assert not fast.available()
    assert not decide()
    with pytest.raises(InputError, match=r"cluster-allocator\[fast\]"):
        fast.prepare()
    with pytest.raises(InputError, match=r"ALLOCATOR_FAST.*numba"):
        decide(ALLOCATOR_FAST="1")


def test_a_switch_that_is_neither_on_nor_off(decide: Callable[..., bool]) -> None:
    with pytest.raises(InputError, match=r"ALLOCATOR_FAST: found 'yes', expected 0 or 1"):
        decide(ALLOCATOR_FAST="yes")


def test_a_wish_is_followed_without_asking() -> None:
    assert fast.in_use(True)
    assert not fast.in_use(False)


def test_the_package_does_not_import_the_compiler() -> None:
    code = "import sys, allocator, formulations, formulations.fast; print('numba' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
