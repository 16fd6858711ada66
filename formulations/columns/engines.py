"""Solvers of programs that are written out: HiGHS, and CBC through PuLP as the second opinion."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from time import perf_counter
from typing import Any

import numpy as np

from formulations.columns.near import search_near
from formulations.columns.one_pool import search_one_pool
from formulations.columns.written import Written, rounded_rows
from formulations.core.solution import InfeasibleError
from formulations.reference.mixed_integer import MODELS, TIGHT, LinearAnswer
from formulations.reference.stopping import StopRule
from throughputs.arrays import Flags, Floats

_EXACT: dict[str, dict[str, Any]] = {
    "highs": {**TIGHT, "small_matrix_value": 1e-12, "mip_feasibility_tolerance": 1e-9, "random_seed": 0},
    "cbc": {"primalT": "1e-9", "dualT": "1e-9", "integerT": "1e-9", "randomCbcSeed": "1"},
}
"""Options by solver, in the order in which they are tried."""

_EXACT_GAP = 1e-9
"""Absolute gap of a search, where the largest cost is 1."""

_WHOLE = 1e-10
"""Distance from a whole number up to which a vertex of the relaxation counts as whole."""

_BELOW_ONE = 0.99
"""Absolute gap below which a whole objective is the largest."""


@dataclass(frozen=True, eq=False)
class Found:
    """What an engine returns, unproven.

    Attributes
    ----------
    z : (V,) the point; whole variables exactly so.
    multipliers : (rows,) of the rows, those of the relaxation where variables are whole; a positive one belongs to
        an upper limit. Empty where the engine has none.
    bound : what the engine says that no point exceeds; inf where it says nothing beyond its multipliers.
    """

    z: Floats
    multipliers: Floats
    bound: float


class Engine:
    """A solver that keeps one program: the relaxation first, and a search near it where its vertex is not whole.

    Parameters
    ----------
    name : of the solver. seconds : that all searches together may take.
    """

    def __init__(self, name: str, written: Written, seconds: float) -> None:
        self.name, self.written, self._until = name, written, perf_counter() + seconds
        self._model: Any = MODELS[name](written, _EXACT[name])
        self.rounding: float = self._model.rounding

    def optimise(self, cost: Floats) -> Found:
        """The point of the most `cost` z.

        Raises
        ------
        InfeasibleError
            There is none.
        RuntimeError
            The solver stopped without one.
        """
        written, scale = self.written, _scale(cost)
        # solvers minimise
        self._model.set_cost(-cost / scale)
        z, multipliers = self._relaxed(self._model, scale)
        bound, fraction = np.inf, np.abs(z - np.rint(z))[written.whole]
        if fraction.max(initial=0.0) > _WHOLE:
            # a whole number within less than 1 of its bound is the largest
            aim = _BELOW_ONE if written.counts(cost) else _EXACT_GAP * scale
            tight, prices, rounded = written, multipliers, rounded_rows(written)
            if rounded:
                tight = replace(written.with_rows(*rounded), cost=-cost / scale)
                _, prices = self._relaxed(MODELS[self.name](tight, _EXACT[self.name]), scale)
            search = search_one_pool(written, cost) or partial(self._search_some, tight, cost, aim)
            z, bound = search_near(tight, cost, prices, aim, search)
        return Found(np.where(written.whole, np.rint(z), z), multipliers, bound)

    def add(self, matrix: Any, lower: Floats, upper: Floats) -> None:
        """Rows that hold from now on."""
        self.written = self.written.with_rows(matrix, lower, upper)
        self._model.add_rows(matrix, lower, upper)

    def _relaxed(self, model: Any, scale: float) -> tuple[Floats, Floats]:
        """The optimum without whole variables, and the multipliers of its rows."""
        # rows are few: what presolve saves of them costs more than it saves
        z, found = self._run(model, StopRule(absolute_gap=_EXACT_GAP), relaxed=True, presolve="off")
        return z, -scale * np.asarray(found.row_duals)

    def _search_some(
        self, written: Written, cost: Floats, aim: float, opened: Flags, point: Floats, start: Floats | None
    ) -> tuple[Floats, float, bool]:
        """The best point with variables that are not `opened` as in `point`; see `near.Search`."""
        scale = _scale(cost)
        # the relaxation of a program with rounded rows is nearly whole: presolve takes longer than what it saves
        presolve = "choose" if written is self.written else "off"
        z = np.where(opened, 0.0, point)
        held = written.matrix @ z
        limits = {"row_lower": written.row_lower - held, "row_upper": written.row_upper - held}
        rest = replace(written, cost=-cost / scale, **limits).of_columns(np.flatnonzero(opened))
        model = MODELS[self.name](rest, _EXACT[self.name])
        before = float(np.add.reduce(cost * z))
        known = None if start is None else start[opened]
        z[opened], found = self._run(model, StopRule(absolute_gap=aim / scale), start=known, presolve=presolve)
        return z, before - scale * found.bound, found.proven

    def _run(self, model: Any, stop: StopRule, **options: Any) -> tuple[Floats, LinearAnswer]:
        """The point that the solver finds, and all that it says.

        Raises
        ------
        InfeasibleError
            There is none.
        RuntimeError
            It stopped without one.
        """
        answer: LinearAnswer = model.solve(replace(stop, seconds=self._until - perf_counter()), **options)
        if answer.infeasible:
            # every variable is bounded
            raise InfeasibleError(f"{self.name}: infeasible")
        if answer.columns is None:
            raise RuntimeError(f"{self.name} stopped with status {answer.note}")
        return answer.columns, answer


ENGINES: dict[str, Callable[[Written, float], Engine]] = {name: partial(Engine, name) for name in _EXACT}
"""Engines by name, in the order in which they are tried."""


def _scale(cost: Floats) -> float:
    return float(np.abs(cost).max(initial=0.0)) or 1.0
