"""Policies that are an objective over the polytope with rows of their own."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from allocator.policies.base.programs import ProgramPolicy
from allocator.protocol import ClusterState
from formulations import MaxSum, Polytope, Program
from throughputs import InputError, PlainColumns
from throughputs.arrays import Floats

if TYPE_CHECKING:
    from formulations import Objective, Solution
    from formulations.composed import Row


@dataclass(frozen=True)
class ConstrainedPolicy(ProgramPolicy):
    """A policy that is an objective over the polytope with rows of its own.

    Rows hold for the time that jobs get, averaged over some rounds: `fills_idle_gpus` is False. A policy whose rows are
    least shares only says True.

    >>> from formulations import MaxSum
    >>> class PowerCap(ConstrainedPolicy):
    ...     name = "power_cap"
    ...     def objective(self, state, rates):
    ...         return MaxSum(1 / rates.max(axis=1))
    ...     def rows(self, state, program):
    ...         return {"watts": 300.0 * program.gpus_used.sum() <= 450.0}
    >>> import allocator
    >>> float(allocator.solve(PowerCap(), {"v100": [3.0, 1.0]}, "v100:2").shares.sum().round(6))
    1.5
    """

    fills_idle_gpus: ClassVar[bool] = False

    @abstractmethod
    def rows(self, state: ClusterState, program: Program) -> Mapping[str, Row]:
        """Rows by name: comparisons of `program.shares`, `program.throughput` and `program.gpus_used`.

        Parameters
        ----------
        state : the n jobs that can run somewhere.
        program : of these jobs, in the same order.
        """

    def solved(self, state: ClusterState, polytope: Polytope, objective: Objective) -> Solution:
        """With the rows."""
        return self._within_rows(state, Program(polytope, objective)).solve(solver=self.solver).whole

    def _within_rows(self, state: ClusterState, program: Program) -> Program:
        rows: Any = self.rows(state, program)
        if not isinstance(rows, Mapping):
            expected = "a dict of rows by name, as in {'cap': program.gpus_used.sum() <= 8}"
            raise InputError(f"policy {self.name}", field="rows", found=type(rows).__name__, expected=expected)
        return program.where(**rows)

    def best_without_loss(self, state: ClusterState, gains: Floats, floors: Floats) -> tuple[Floats, Solution]:
        """Shares (N, M) of the largest worth that the rows allow, nobody's throughput below its floor.

        Parameters
        ----------
        gains, floors : (N,) what a step/s of each job is worth, and its floor in steps/s.

        Raises
        ------
        SolverError
            No solver returned an answer.
        """
        able = np.flatnonzero((state.runnable_rates > 0).any(axis=1) & (state.steps_remaining > 0))
        part = state.take(able)
        polytope = Polytope(PlainColumns(part.throughputs.with_rates(part.runnable_rates)), part.capacity)
        program = Program(polytope, MaxSum(gains[able]))
        kept = self._within_rows(part, program).where(program.throughput >= floors[able])
        solution, shares = kept.solve().whole, np.zeros(state.rates.shape)
        shares[able] = solution.shares
        return shares, solution
