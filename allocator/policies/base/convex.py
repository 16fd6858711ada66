"""Policies that are stated in cvxpy: rows between jobs, and any convex objective."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Any, ClassVar, Literal

import numpy as np

from allocator.policies.base.programs import Prepared, certified
from allocator.protocol import ClusterState, SharePolicy
from allocator.protocol.allocation import Allocation
from formulations import Polytope, Solution
from formulations.stated import solve_stated
from throughputs import PlainColumns
from throughputs.arrays import Flags, Floats, Positions
from throughputs.numerics import tie_order

_Statement = Callable[[Any, Any, ClusterState, Positions], tuple[Any, Sequence[Any]]]
"""Objective and constraints from cvxpy, the shares, the state of the jobs that can run, and their positions."""


@dataclass(frozen=True)
class ConvexPolicy(Prepared, SharePolicy):
    """A policy that is a convex program over shares of time, as its author states it in cvxpy.

    Time and capacity rows are added; the answer is proven from the solver's multipliers where it can be
    (`formulations.stated`). Which of several optima is taken is the solver's choice, not the policy's: an objective
    that is strictly concave in the throughputs settles it.

    Parameters
    ----------
    solver : "auto", Clarabel and, where that leaves no proof, SCS and ECOS; or one of the three.

    Attributes
    ----------
    unit : unit of the objective.
    fills_idle_gpus : False, so that the rows hold for the time that jobs get, averaged over some rounds. A program
        whose rows are none, or least shares only, says True.

    >>> import allocator
    >>> class MostSteps(ConvexPolicy):
    ...     name = "most_steps"
    ...     def statement(self, cp, shares, state):
    ...         return cp.Maximize(cp.sum(cp.multiply(state.rates, shares))), []
    >>> allocator.solve(MostSteps(), {"v100": [3.0, 1.0]}, "v100:1").shares.round(6).tolist()
    [[1.0], [0.0]]
    """

    solver: Literal["auto", "clarabel", "scs", "ecos"] = "auto"

    unit: ClassVar[str] = ""
    fills_idle_gpus: ClassVar[bool] = False

    @abstractmethod
    def statement(self, cp: Any, shares: Any, state: ClusterState) -> tuple[Any, Sequence[Any]]:
        """Objective and constraints of one decision.

        Parameters
        ----------
        cp : cvxpy.
        shares : (n, M) expression: the share of time of each job on each type. It is 0 where the job cannot run.
        state : the n jobs that can run somewhere, in the order of their labels; `rates` (n, M) are 0 where a gang does
            not fit.
        """

    def allocate(self, state: ClusterState) -> Allocation:
        """Solve the program for `state`."""
        started = perf_counter()
        solution, shares, able = self._solved(state, lambda cp, shares, part, _: self.statement(cp, shares, part))
        # rows of a statement have no names
        solution = replace(solution, unit=self.unit, row_prices={})
        return certified(self, state, solution, shares, ~able, perf_counter() - started)

    def best_without_loss(self, state: ClusterState, gains: Floats, floors: Floats) -> tuple[Floats, Solution]:
        """Shares (N, M) of the largest worth that the rows of the policy allow, nobody's throughput below its floor.

        Parameters
        ----------
        gains, floors : (N,) what a step/s of each job is worth, and its floor in steps/s.

        Raises
        ------
        SolverError
            No solver returned an answer.
        """

        def statement(cp: Any, shares: Any, part: ClusterState, jobs: Positions) -> tuple[Any, Sequence[Any]]:
            _, rows = self.statement(cp, shares, part)
            fastest = part.rates.max(axis=1)
            speed = cp.sum(cp.multiply(part.rates / fastest[:, None], shares), axis=1)
            return cp.Maximize(cp.sum(cp.multiply(gains[jobs] * fastest, speed))), [
                *rows,
                speed >= floors[jobs] / fastest,
            ]

        solution, shares, _ = self._solved(state, statement)
        return shares, solution

    def _solved(self, state: ClusterState, statement: _Statement) -> tuple[Solution, Floats, Flags]:
        """The solution over the jobs that can run, shares of all (N, M), and who can (N,)."""
        usable = state.runnable_rates
        able = (usable > 0).any(axis=1) & (state.steps_remaining > 0)
        # the solver's point, where optima are many, must not depend on the order of jobs
        order = tie_order(state.throughputs.jobs)
        jobs = order[able[order]]
        part = state.take(jobs)
        part = part.with_throughputs(part.throughputs.with_rates(usable[jobs]), part.known("colocation"))
        solution = solve_stated(
            Polytope(PlainColumns(part.throughputs), part.capacity),
            lambda cp, shares: statement(cp, shares, part, jobs),
            solver=self.solver,
            source=f"policy {self.name}",
        )
        shares = np.zeros(state.rates.shape)
        shares[jobs] = solution.shares
        return solution, shares, able
