"""Throughput per dollar, with and without deadlines, with and without space sharing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from time import perf_counter
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from allocator.policies.base.packed import PairingPolicy, served_part
from allocator.policies.base.programs import ProgramPolicy, certified, priced_rates
from allocator.protocol import ClusterState, Need, SharePolicy, Trigger
from allocator.protocol.allocation import Allocation
from allocator.registry import register
from formulations import (
    MaxSum,
    Polytope,
    keep_most_floors,
    maximise_ratio,
    maximise_worth,
)
from throughputs import InputError, PlainColumns, PriceTable
from throughputs.arrays import Flags, Floats
from throughputs.numerics import tie_order

if TYPE_CHECKING:
    from formulations import PackedPolytope, Solution

_PAPER = "Narayanan et al., OSDI 2020, sec. 4.2"
_Infeasible = Literal["drop_fewest", "drop_all"]
_EVENNESS = 1e-7
_SECONDS_PER_HOUR = 3600.0
_UNITS = {"by_type": "steps/s per $/h", "total": "steps/$"}


@dataclass(frozen=True)
class _Priced(SharePolicy):
    """What policies that count dollars have in common.

    Parameters
    ----------
    prices : dollars per GPU hour by accelerator type, or a `PriceTable`, read at the time of the decision; None: the
        prices that come with the state, which are 1 for every type where nobody told any.
    cost : "by_type" or "total", see `MaxSumThroughputPerCost`.
    solver : of the program.
    """

    prices: PriceTable | Mapping[str, float] | None = None
    cost: Literal["by_type", "total"] = "by_type"
    solver: str = "auto"

    triggers: ClassVar[Trigger] = Trigger.USUAL | Trigger.PRICES

    def __post_init__(self) -> None:
        super().__post_init__()
        # A GPU that is left unused to save its price is not there to be filled. By type idle GPUs save nothing, and
        # deadlines are least shares, which nobody loses by what others have beyond theirs.
        object.__setattr__(self, "fills_idle_gpus", self.cost == "by_type")

    def dollars_per_hour(self, state: ClusterState) -> Floats:
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

    def _solved(
        self,
        state: ClusterState,
        polytope: Polytope | PackedPolytope,
        able: Flags,
        needed: Floats | None,
        *,
        infeasible: _Infeasible = "drop_fewest",
        evenness: float = 0.0,
    ) -> tuple[Solution, tuple[Any, ...]]:
        """The best shares of jobs that have what can be kept of the throughput they need, and whose cannot be kept.

        Parameters
        ----------
        polytope : over the jobs that are `able` (N,) to run.
        needed : (N,) steps/s; None for none.
        """
        prices, jobs, floors = self.dollars_per_hour(state), state.throughputs.jobs, None
        dropped = np.zeros(state.n_jobs, dtype=bool)
        if needed is not None:
            kept = keep_most_floors(polytope, needed[able], tie_order([jobs[i] for i in np.flatnonzero(able)]))
            floors, dropped = kept.floors, np.asarray(needed > 0)
            if infeasible == "drop_fewest" or not (kept.dropped.any() or dropped[~able].any()):
                dropped[able] = kept.dropped
            else:
                floors = np.zeros_like(floors)
        how: dict[str, Any] = {"unit": _UNITS[self.cost], "solver": self.solver}
        if self.cost == "total":
            solution = maximise_ratio(polytope, prices / _SECONDS_PER_HOUR, floors, **how)
        else:
            gains = np.repeat(1.0 / prices[None], polytope.n_jobs, axis=0)
            solution = maximise_worth(polytope, gains, floors, evenness=evenness, **how)
        return solution, tuple(jobs[i] for i in np.flatnonzero(dropped))


def _needed(state: ClusterState) -> Floats | None:
    """(N,) steps/s that jobs need for their deadlines, 0 for none, inf if already missed; None without deadlines."""
    left, time = state.steps_remaining, state.slo_seconds
    if not np.isfinite(time[left > 0]).any():
        return None
    with np.errstate(divide="ignore", invalid="ignore"):
        needed = np.where(time > 0, left / time, np.inf)
    return np.where(left > 0, needed, 0.0)


@dataclass(frozen=True)
class _ThroughputPerCost(_Priced, ProgramPolicy):
    """The two statements of throughput per dollar, and the rows for deadlines."""

    def believed_rates(self, state: ClusterState) -> Floats:
        """Steps/s per dollar and hour on each type."""
        return state.rates / self.dollars_per_hour(state)

    def objective(self, state: ClusterState, rates: Floats) -> MaxSum:  # noqa: ARG002
        """Every step counts 1."""
        return MaxSum(np.ones(state.n_jobs))

    def allocate(self, state: ClusterState) -> Allocation:
        """Solve the program for `state`."""
        if self.cost == "by_type":
            return replace(super().allocate(state), objective_unit=_UNITS["by_type"])
        return self._allocate_with_floors(state, None)

    def _allocate_with_floors(
        self, state: ClusterState, needed: Floats | None, infeasible: _Infeasible = "drop_fewest"
    ) -> Allocation:
        """Solve with the throughputs (N,) that jobs need for their deadlines."""
        started = perf_counter()
        usable = priced_rates(state) if self.choice == "balanced" else state.rates
        can_gain = (usable[:, state.capacity > 0] > 0).any(axis=1) & (state.steps_remaining > 0)
        usable = np.where(can_gain[:, None], usable, 0.0)
        polytope = Polytope(PlainColumns(state.throughputs.with_rates(usable)), state.capacity)
        evenness = _EVENNESS if self.choice == "balanced" else 0.0
        everyone = np.ones(state.n_jobs, dtype=bool)
        solution, dropped = self._solved(state, polytope, everyone, needed, infeasible=infeasible, evenness=evenness)
        seconds = perf_counter() - started
        return certified(self, state, solution, solution.shares, ~can_gain, seconds, dropped_slos=dropped)


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

    needs = Need.LENGTHS | Need.ISOLATED_TIME

    infeasible: _Infeasible = "drop_fewest"

    def allocate(self, state: ClusterState) -> Allocation:
        """Solve the program for `state`."""
        needed = _needed(state)
        if needed is None:
            return super().allocate(state)
        return self._allocate_with_floors(state, needed, self.infeasible)


@register(
    "max_sum_throughput_normalized_by_cost_packed_SLOs",
    paper=_PAPER + " and 3.1",
    program="max_(x,z) sum_ij u_ij / c_j with u_i >= n_i / S_i for jobs with a deadline, u_ij with pairs",
)
@dataclass(frozen=True)
class MaxSumThroughputPerCostPackedSlos(_Priced, PairingPolicy):
    """Raise the throughput per dollar while jobs meet their deadlines, with space sharing.

        cost="by_type"   max_(x,z)  sum_ij u_ij / c_j               (x, z) in the polytope with pairs
        cost="total"     max_(x,z)  sum_ij u_ij / sum_j c_j v_j     the same, (x, z) not 0
        with             sum_j u_ij >= n_i / S_i                    for every job with a deadline, S_i seconds from now

    u_ij: throughput of job i on type j, alone and in pairs; v_j: GPUs of type j in use, those of a pair counted once;
    c_j: dollars per hour of a GPU of type j. Deadlines that cannot all be met are given up as in
    `max_sum_throughput_normalized_by_cost_perf_SLOs`: as few as possible, and `Allocation.dropped_slos` says which.

    Parameters
    ----------
    infeasible : "drop_fewest", or "drop_all" as in the published system, which then drops every deadline.
    """

    needs = PairingPolicy.needs | Need.LENGTHS

    infeasible: _Infeasible = "drop_fewest"

    def allocate(self, state: ClusterState) -> Allocation:
        """Solve the program for `state`."""
        started = perf_counter()
        part, needed = served_part(state), _needed(state)
        solution, dropped = self._solved(state, part.polytope, part.able, needed, infeasible=self.infeasible)
        return part.allocation(self, solution, started, dropped_slos=dropped)
