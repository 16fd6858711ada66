"""Throughput per dollar, with and without deadlines."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from time import perf_counter
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from allocator.allocation import Allocation
from allocator.policies.base import Array, ProgramPolicy, runnable_rates
from allocator.policies.labels import label_order
from allocator.protocol import ClusterState
from allocator.registry import register
from throughputs import InputError, PlainColumns, PriceTable

if TYPE_CHECKING:
    from formulations import MaxSum, Solution
    from formulations.attainable_floors import KeptFloors

_PAPER = "Narayanan et al., OSDI 2020, sec. 4.2"
_COSTS = ("by_type", "total")
_INFEASIBLE = ("drop_fewest", "drop_all")
_EVENNESS = 1e-7
_SECONDS_PER_HOUR = 3600.0


@dataclass(frozen=True)
class _ThroughputPerCost(ProgramPolicy):
    """The two statements of throughput per dollar, and the rows for deadlines.

    Parameters
    ----------
    prices : dollars per GPU hour by accelerator type, or a `PriceTable`, read at the time of the decision; None: the
        prices that come with the state, which are 1 for every type where nobody told any.
    cost : "by_type" or "total", see `MaxSumThroughputPerCost`.
    """

    prices: PriceTable | Mapping[str, float] | None = None
    cost: str = "by_type"

    reads_prices: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.cost not in _COSTS:
            raise InputError("policy", field="cost", found=self.cost, expected=f"one of {', '.join(_COSTS)}")
        # a GPU that is left unused to save its price is not there to be filled
        object.__setattr__(self, "fills_idle_gpus", self.cost == "by_type")

    def believed_rates(self, state: ClusterState) -> Array:
        """Steps/s per dollar and hour on each type."""
        return state.rates / self.dollars_per_hour(state)

    def objective(self, state: ClusterState, rates: Array) -> MaxSum:  # noqa: ARG002
        """Every step counts 1."""
        from formulations import MaxSum

        return MaxSum(np.ones(state.n_jobs))

    def allocate(self, state: ClusterState) -> Allocation:
        """Solve the program for `state`."""
        if self.cost == "by_type":
            return replace(super().allocate(state), objective_unit="steps/s per $/h")
        return self._allocate_with_floors(state, None)

    def dollars_per_hour(self, state: ClusterState) -> Array:
        """(M,) price of a GPU of each type at the time of `state`, dollars per hour.

        Raises
        ------
        InputError
            A type has no price, or one of 0: throughput per dollar has no limit there.
        """
        if self.prices is None:
            prices = state.gpu_prices
        else:
            table = self.prices if isinstance(self.prices, PriceTable) else PriceTable.constant(self.prices)
            prices = table.price_at(state.clock, state.cluster.accelerators)
        if not (prices > 0).all():
            name = state.cluster.accelerators[int(np.argmin(prices))]
            expected = "more than 0 dollars per GPU hour"
            raise InputError(
                f"policy {self.name}", field=f"price of {name}", found=float(prices.min()), expected=expected
            )
        return prices

    def _allocate_with_floors(self, state: ClusterState, needed: Array | None) -> Allocation:
        """Solve with the throughputs (N,) that jobs need for their deadlines; 0 for none, inf if already missed."""
        started = perf_counter()
        matrix = state.throughputs
        usable = runnable_rates(state) if self.choice == "balanced" else state.rates
        can_gain = (usable[:, state.capacity > 0] > 0).any(axis=1) & (state.steps_remaining > 0)
        usable = np.where(can_gain[:, None], usable, 0.0)
        solution, kept = self._solve(state, usable, needed)
        return Allocation(
            policy=self.name,
            throughputs=matrix,
            shares=np.clip(solution.shares, 0.0, 1.0),
            status=solution.status,
            objective=solution.objective,
            objective_unit=solution.unit,
            bound=solution.bound,
            gap=solution.gap,
            prices=solution.prices,
            unserved=tuple(matrix.jobs[i] for i in np.flatnonzero(~can_gain)),
            solver=solution.solver,
            seconds=perf_counter() - started,
            fallbacks=tuple(dict.fromkeys(t.solver for t in solution.attempts if t.solver != solution.solver)),
            dropped_slos=() if kept is None else tuple(matrix.jobs[i] for i in np.flatnonzero(kept.dropped)),
            state=state,
            decided_by=self,
        )

    def _solve(self, state: ClusterState, usable: Array, needed: Array | None) -> tuple[Solution, KeptFloors | None]:
        from formulations import Polytope
        from formulations.attainable_floors import keep_most_floors
        from formulations.floors import maximise_worth
        from formulations.linear_fractional import maximise_ratio

        matrix, prices = state.throughputs, self.dollars_per_hour(state)
        polytope = Polytope(PlainColumns(matrix.with_rates(usable)), state.capacity)
        kept = None
        if needed is not None:
            kept = keep_most_floors(polytope, needed, label_order(matrix.jobs))
            if kept.dropped.any() and getattr(self, "infeasible", "") == "drop_all":
                nobody = np.zeros(state.n_jobs, dtype=bool)
                kept = replace(kept, kept=nobody, dropped=np.asarray(needed > 0), floors=np.zeros(state.n_jobs))
        floors = None if kept is None else kept.floors
        if self.cost == "total":
            steps = np.full(state.n_jobs, _SECONDS_PER_HOUR)
            cost = matrix.scale_factors[:, None] * prices
            return maximise_ratio(polytope, steps, cost, floors, unit="steps/$", solver=self.solver), kept
        evenness = _EVENNESS if self.choice == "balanced" else 0.0
        worth, unit = usable / prices, "steps/s per $/h"
        return maximise_worth(polytope, worth, floors, evenness=evenness, unit=unit, solver=self.solver), kept


@register(
    "max_sum_throughput_normalized_by_cost_perf",
    paper=_PAPER,
    program="max_x sum_ij T_ij x_ij / c_j, or sum_ij T_ij x_ij / sum_ij s_i c_j x_ij with cost=total",
)
@dataclass(frozen=True)
class MaxSumThroughputPerCost(_ThroughputPerCost):
    """Raise the throughput per dollar of all jobs together.

        cost="by_type"   max_x  sum_ij T_ij / c_j x_ij                        x in the allocation polytope
        cost="total"     max_x  sum_ij T_ij x_ij / sum_ij s_i c_j x_ij        the same, x not 0

    c_j: dollars per hour of a GPU of type j. The paper's text has the ratio of total throughput to total cost; the
    published system, and every figure of it, has the sum of throughputs each divided by the price of its type, which
    keeps all GPUs busy. "by_type" is that sum. "total" is the ratio, linear-fractional and solved exactly with its
    bound; it buys steps where a dollar buys most of them and leaves other GPUs unused. Without deadlines that is the
    best column alone, so it is meant for the policy with deadlines. GPUs it leaves unused are not filled with waiting
    jobs. Without prices every GPU costs the same.
    """


@register(
    "max_sum_throughput_normalized_by_cost_perf_SLOs",
    paper=_PAPER,
    program="max_sum_throughput_normalized_by_cost_perf with T_i.x_i >= n_i / S_i for jobs with a deadline",
)
@dataclass(frozen=True)
class MaxSumThroughputPerCostSlos(_ThroughputPerCost):
    """Raise the throughput per dollar while jobs meet their deadlines.

        max_x  sum_ij T_ij / c_j x_ij    (cost="total": the ratio of `max_sum_throughput_normalized_by_cost_perf`)
        with   sum_j T_ij x_ij >= n_i / S_i       for every job with a deadline, S_i seconds from now

    Deadlines that cannot all be met are given up: as few as possible (an integer program, exact), and
    `Allocation.dropped_slos` says which. A deadline in the past counts among them. A job without a deadline has no
    row; without any the policy is the one without deadlines. ``cost="total"`` is the cheapest way to meet deadlines.

    Parameters
    ----------
    infeasible : "drop_fewest", or "drop_all" as in the published system, which then drops every deadline.
    """

    infeasible: str = "drop_fewest"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.infeasible not in _INFEASIBLE:
            expected = f"one of {', '.join(_INFEASIBLE)}"
            raise InputError("policy", field="infeasible", found=self.infeasible, expected=expected)

    def allocate(self, state: ClusterState) -> Allocation:
        """Solve the program for `state`."""
        left, time = state.steps_remaining, state.slo_seconds
        if not np.isfinite(time[left > 0]).any():
            return super().allocate(state)
        with np.errstate(divide="ignore", invalid="ignore"):
            needed = np.where(time > 0, left / time, np.inf)
        return self._allocate_with_floors(state, np.where(left > 0, needed, 0.0))
