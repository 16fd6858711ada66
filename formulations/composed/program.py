"""An objective over the polytope with rows of one's own: solved, printed, written to a file."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from formulations import columns
from formulations.arguments import Described, described, instance
from formulations.composed.expressions import Linear, Row
from formulations.composed.files import write_model
from formulations.core.objective import objective_over
from formulations.core.objectives import MaxSum, Objective, Threshold
from formulations.core.polytope import Polytope
from formulations.core.solution import InfeasibleError, Solution
from formulations.levels.water_filling import WaterFilling
from formulations.solving.solver import solve
from formulations.stated import solve_stated
from formulations.statements.shares import goal as in_cvxpy
from throughputs import Configurations, InputError
from throughputs.arrays import Flags, Floats

_SHOWN_TERMS, _SHOWN_NAMES = 4, 6
"""Terms of a row and names of types that are printed before the rest is left out."""


@dataclass(frozen=True, eq=False)
class ProgramSolution:
    """What `Program.solve` found, with its certificate.

    Attributes
    ----------
    whole : status, objective, bound, gap, solver, attempts and the rest (`formulations.Solution`).
    throughput : (N,) effective throughput u, steps/s.
    prices : improvement of the objective per unit by which a limit is loosened: `capacity` (M,) per GPU, nan for types
        without GPUs, and each row under its name, in the shape of its comparison. Of an equation: per unit by which
        its right side is raised, which may be negative.
    """

    whole: Solution
    throughput: Floats
    prices: Mapping[str, Floats]

    @property
    def shares(self) -> Floats:
        """(N, M) shares of time."""
        return self.whole.shares

    @property
    def status(self) -> str:
        """ "optimal" where proven."""
        return self.whole.status

    @property
    def objective(self) -> float:
        """Value of the objective."""
        return self.whole.objective

    @property
    def bound(self) -> float:
        """No shares are better than this."""
        return self.whole.bound

    @property
    def gap(self) -> float:
        """Relative distance of the two."""
        return self.whole.gap

    @property
    def solver(self) -> str:
        """What answered."""
        return self.whole.solver


@dataclass(frozen=True, eq=False)
class Program:
    """Shares x of time in the polytope that are best for an objective and keep rows of one's own.

    Without rows it is solved as `formulations.solve` does. With rows, linear objectives (`MaxSum`, `MaxMin`,
    `Makespan`, and `Total` and `Ratio` of `formulations.columns` with figures (N, M)) are a program over columns, in
    HiGHS, and among their optima the total normalised throughput is made large; others (`FinishTimeFairness`,
    `NashWelfare`) are a conic program in Clarabel, whose optimum in throughputs is what it is.

    Parameters
    ----------
    polytope : time and capacity rows, of N jobs on M types.
    objective : over the same jobs. Jobs that gain nothing from any type with GPUs take no part in it.
    rows : by name; `where` adds some.

    >>> from formulations import MaxSum
    >>> from throughputs import PlainColumns, ThroughputMatrix
    >>> matrix = ThroughputMatrix([[4.0, 1.0], [2.0, 1.0]], jobs=["a", "b"], accelerators=["v100", "k80"])
    >>> program = Program(Polytope(PlainColumns(matrix), [1, 1]), MaxSum(np.ones(2)))
    >>> print(program.where(floors=program.throughput >= np.array([0.0, 2.0])))
    max_x  sum_i g_i u_i               MaxSum, in steps/s
    u_i = sum_j T_ij x_ij              2 jobs x 2 types, 4 shares x_ij >= 0
    time        sum_j x_ij <= 1        2 rows
    capacity    sum_i s_i x_ij <= c_j  2 rows: v100 1, k80 1
    floors      4 x[a,v100] + x[a,k80] >= 0  and 1 more
    """

    polytope: Polytope
    objective: Objective | columns.Objective
    rows: Mapping[str, Row] = field(default_factory=dict)

    def __post_init__(self) -> None:
        polytope = self.polytope
        instance("program", "polytope", polytope, Polytope, "Polytope(PlainColumns(matrix), capacity)")
        if not isinstance(self.objective, columns.Objective):
            objective_over("program", self.objective, polytope.n_jobs)
        for name, row in self.rows.items():
            if not isinstance(row, Row) or row.matrix.shape[1] != polytope.rates.size:
                found = described(row) if not isinstance(row, Row) else Described(f"{row.matrix.shape[1]} shares")
                expected = f"a comparison of expressions of the {polytope.rates.size} shares, as in x.sum() <= 3"
                raise InputError("program", field=f"row {name}", found=found, expected=expected)

    @property
    def shares(self) -> Linear:
        """(N, M) x, the share of time of each job on each type."""
        return Linear.variables(self.polytope.rates.shape)

    @property
    def throughput(self) -> Linear:
        """(N,) ``u_i = sum_j T_ij x_ij``, steps/s."""
        return (self.shares * self.polytope.rates).sum(axis=1)

    @property
    def gpus_used(self) -> Linear:
        """(M,) ``sum_i s_i x_ij``, GPUs of each type in use, averaged over time."""
        return self.polytope.loads @ self.shares

    def where(self, *rows: Row, **named: Row) -> Program:
        """The same program with more rows; those without a name are `row 1`, `row 2` and so on.

        Raises
        ------
        InputError
            A row is not a comparison of expressions of this program's shares, or its name is taken.
        """
        first = len(self.rows) + 1
        more = {f"row {number}": row for number, row in enumerate(rows, first)} | named
        for name in more:
            if name in self.rows or name in ("capacity", "time"):
                raise InputError("program", field="row", found=name, expected="a name that no other row has")
        return replace(self, rows={**self.rows, **more})

    def solve(self, *, solver: str = "auto") -> ProgramSolution:
        """The best shares, with a certificate and prices.

        Parameters
        ----------
        solver : "auto", or a solver of the path that is taken: of `formulations.solve`, "highs" or "cbc" of a linear
            program with rows, "clarabel", "scs" or "ecos" of a conic one.

        Raises
        ------
        InfeasibleError
            No shares keep all rows.
        InputError
            The solver is not known, or rows are asked for together with water filling.
        SolverError
            No solver returned an answer.
        """
        if isinstance(self.objective, Objective) and not self.rows:
            whole, of_rows = solve(self.polytope, self.objective, solver=solver), list[Floats]()
        else:
            try:
                whole, of_rows = self._in_columns(solver) if self._linear else self._stated(solver)
            except InfeasibleError as error:
                raise InfeasibleError(f"no shares keep time, capacity and the rows {', '.join(self.rows)}") from error
        prices = {
            name: (-price if row.sign == ">=" else price).reshape(row.shape) + 0.0
            for (name, row), price in zip(self.rows.items(), of_rows, strict=True)
        }
        whole = replace(whole, row_prices=prices)
        return ProgramSolution(whole, self.polytope.throughput(whole.shares), {"capacity": whole.prices, **prices})

    def to_mps(self, path: Path | str) -> None:
        """Write a linear program as a file, in free MPS or, if the name ends in `.lp`, in LP format.

        Shares are called `x[job,type]`, rows `time[job]`, `capacity[type]` and by their names.

        Raises
        ------
        InputError
            The program is not linear, or the name ends in neither.
        """
        if not self._linear:
            expected = "a linear one: MaxSum, MaxMin, Makespan (as the largest 1/s) or Total"
            raise InputError("program", field="objective", found=type(self.objective).__name__, expected=expected)
        program, goals = self._over_columns()
        names = [f"{name}{_index(row, k)}" for name, row in self.rows.items() for k in range(row.matrix.shape[0])]
        write_model(program, goals[0], path, names)

    def __str__(self) -> str:
        N, M = self.polytope.rates.shape
        open_ = int(self._open.sum())
        unit = f", in {self.objective.unit}" if isinstance(self.objective, Objective) else ""
        names = self.polytope.columns.matrix.accelerators
        gpus = [f"{name} {count:g}" for name, count in zip(names, self.polytope.capacity.tolist(), strict=True)]
        more = [] if M <= _SHOWN_NAMES else ["..."]
        kind = type(self.objective)
        lines = [
            (_symbols(kind), f"{kind.__name__}{unit}"),
            ("u_i = sum_j T_ij x_ij", f"{N} jobs x {M} types, {open_} shares x_ij >= 0"),
            ("time        sum_j x_ij <= 1", f"{N} rows"),
            ("capacity    sum_i s_i x_ij <= c_j", f"{M} rows: {', '.join([*gpus[:_SHOWN_NAMES], *more])}"),
        ]
        for name, row in self.rows.items():
            others = row.matrix.shape[0] - 1
            lines.append((f"{name:<11} {self._first(row)}", f"and {others:,} more" if others > 0 else ""))
        width = max(len(left) for left, _ in lines[:4]) + 2
        return "\n".join(f"{left:<{width - 2}}  {right}".rstrip() for left, right in lines)

    @property
    def _linear(self) -> bool:
        goal = self.objective
        linear_level = isinstance(goal, Threshold) and goal.linear and not isinstance(goal, WaterFilling)
        return linear_level or isinstance(goal, MaxSum | columns.Objective)

    @property
    def _open(self) -> Flags:
        """(N, M) shares that bring something; all others are 0."""
        return np.asarray((self.polytope.rates > 0) & (self.polytope.capacity > 0))

    def _first(self, row: Row) -> str:
        """The first of some rows, with the first of its terms."""
        if not row.matrix.shape[0]:
            return "no rows"
        matrix = self.polytope.columns.matrix
        count, most = int(row.matrix.indptr[1]), _SHOWN_TERMS
        shown = []
        for k, a in zip(row.matrix.indices[:count][:most].tolist(), row.matrix.data[:most].tolist(), strict=False):
            job, pool = divmod(k, len(matrix.accelerators))
            factor = "" if abs(a) == 1 else f"{abs(a):g} "
            shown.append(f"{'-' * (a < 0)}{factor}x[{matrix.jobs[job]},{matrix.accelerators[pool]}]")
        shown += ["..."] * (count > most)
        return f"{' + '.join(shown).replace('+ -', '- ') or '0'} {row.sign} {row.limits[0]:g}"

    def _over_columns(self) -> tuple[columns.ColumnProgram, Sequence[columns.Objective]]:
        """The program over its open shares, and its objectives in order."""
        polytope, open_ = self.polytope, self._open
        ways = Configurations.from_matrix(polytope.columns.matrix).take(np.flatnonzero(open_))
        rows = None
        if self.rows:
            from scipy.sparse import vstack

            matrix = vstack([row.matrix for row in self.rows.values()], format="csr")[:, np.flatnonzero(open_)]
            limits = [np.concatenate([getattr(r, side) for r in self.rows.values()]) for side in ("lower", "upper")]
            rows = columns.Rows(matrix, *limits)
        program = columns.ColumnProgram(ways, polytope.capacity, rows=rows, counts=polytope.counts)
        worth = np.zeros(polytope.n_jobs)
        served = open_.any(axis=1)
        some = polytope.restricted(np.flatnonzero(served), np.flatnonzero(polytope.capacity > 0))
        worth[served] = some.normalised_worth * some.counts
        efficiency = columns.Total((worth[:, None] * polytope.rates)[open_])
        goal = self.objective
        if isinstance(goal, MaxSum):
            return program, [columns.Total((goal.totals[:, None] * polytope.rates)[open_]), efficiency]
        if isinstance(goal, Threshold):
            weights = np.where(served, 1.0 / goal.slope(1.0), 0.0)
            return program, [columns.Least.of_throughput(ways, weights), efficiency]
        if isinstance(goal, columns.Total | columns.Ratio):
            return program, [replace(goal, **self._open_figures(goal)), efficiency]
        raise InputError("program", field="objective", found=type(goal).__name__, expected="Total or Ratio of columns")

    def _open_figures(self, goal: columns.Total | columns.Ratio) -> dict[str, Any]:
        """Values, and costs of a ratio, of the open shares, from those of all (N, M)."""
        figures = {name: np.asarray(value) for name, value in vars(goal).items() if name in ("values", "costs")}
        for name, given in figures.items():
            if given.shape != self._open.shape:
                found, expected = Described(f"shape {given.shape}"), f"shape {self._open.shape}, jobs x types"
                raise InputError("program", field=name, found=found, expected=expected)
        return {name: given[self._open] for name, given in figures.items()}

    def _in_columns(self, solver: str) -> tuple[Solution, list[Floats]]:
        """The solution of a linear program, and the improvement per unit by which each row's limit is raised."""
        open_ = self._open
        if not open_.any():
            return self._nothing()
        program, goals = self._over_columns()
        found = columns.solve_columns(program, goals, solver=solver)
        first, goal = found.stages[0], self.objective
        prices = np.where(self.polytope.capacity > 0, first.prices, np.nan)
        value, bound, of_rows = first.objective, first.bound, first.row_prices
        if isinstance(goal, Threshold):
            prices, of_rows = goal.report_price(prices, bound), goal.report_price(of_rows, bound)
            value, bound = goal.report(value), goal.report(bound)
        shares = np.zeros(open_.shape)
        shares[open_] = found.x
        whole = Solution(
            shares=shares,
            status=found.status,
            objective=value,
            bound=bound,
            gap=first.gap,
            efficiency_gap=found.stages[-1].gap,
            prices=prices,
            multipliers=np.zeros(len(shares)),
            served=np.asarray(open_.any(axis=1)),
            unit=getattr(goal, "unit", ""),
            solver=found.solver,
            seconds=found.seconds,
            attempts=found.attempts,
        )
        return whole, self._by_row(of_rows)

    def _stated(self, solver: str) -> tuple[Solution, list[Floats]]:
        """The solution of a conic program, and the same of its rows."""
        goal, rows = self.objective, list(self.rows.values())
        if not isinstance(goal, Objective) or isinstance(goal, WaterFilling):
            expected = "one program: water filling is a sequence of them, and takes no rows"
            raise InputError("program", field="objective", found=type(goal).__name__, expected=expected)
        served = np.flatnonzero(self._open.any(axis=1))
        if not len(served):
            return self._nothing()

        def statement(cp: Any, shares: Any) -> tuple[Any, list[Any]]:
            flat = cp.reshape(shares, (shares.size,), order="C")
            u = cp.sum(cp.multiply(self.polytope.rates, shares), axis=1)[served]
            made = []
            for row in rows:
                left, right = row.matrix @ flat, row.limits
                made.append(left == right if row.sign == "==" else left <= right if row.sign == "<=" else left >= right)
            return in_cvxpy(goal.take(served), u), made

        whole = solve_stated(self.polytope, statement, solver=solver, source="program")
        of_rows = [
            np.abs(price) * (-1.0 if row.sign == ">=" else 1.0) if row.sign != "==" else price
            for row, price in zip(rows, whole.row_prices.values(), strict=True)
        ]
        return replace(whole, unit=goal.unit), of_rows

    def _nothing(self) -> tuple[Solution, list[Floats]]:
        nothing = np.full(len(self.polytope.capacity), np.nan)
        unit = getattr(self.objective, "unit", "")
        whole = Solution.empty(self.polytope.n_jobs, nothing, unit=unit, seconds=0.0)
        return whole, [np.full(row.matrix.shape[0], np.nan) for row in self.rows.values()]

    def _by_row(self, values: Floats) -> list[Floats]:
        ends = np.cumsum([row.matrix.shape[0] for row in self.rows.values()])
        return np.split(values, ends[:-1]) if self.rows else []


def _index(row: Row, k: int) -> str:
    """Where entry k stands in a row of several."""
    return f"[{','.join(str(at) for at in np.unravel_index(k, row.shape))}]" if row.shape else ""


def _symbols(kind: type) -> str:
    """The program as the class states it: the first line behind `::` in its description."""
    lines = (inspect.getdoc(kind) or "").splitlines()
    stated = [line.strip() for line in lines[lines.index("") + 1 :] if line.startswith("    ")] if "" in lines else []
    return re.split(r" {5}|,  ", stated[0])[0].rstrip(",") if stated else kind.__name__
