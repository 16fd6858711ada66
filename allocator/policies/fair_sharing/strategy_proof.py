"""Strategy-proof sharing: Nash welfare with discounts (the partial allocation mechanism)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from time import perf_counter
from typing import ClassVar, Literal

import numpy as np

from allocator.policies.base.programs import ProgramPolicy, TimePolicy
from allocator.protocol import ClusterState
from allocator.protocol.allocation import Allocation
from allocator.registry import register
from formulations import TOLERANCE, NashWelfare, Polytope
from formulations.core.reductions import classes_of, types_in_order
from formulations.interior_point import structured
from throughputs import PlainColumns, ThroughputMatrix
from throughputs.arrays import Floats, Ints, Positions
from throughputs.numerics import exp, log

_PAPER = "Cole, Gkatzelis, Goel, EC 2013 (partial allocation); Narayanan et al., OSDI 2020, public artifact"


@dataclass(frozen=True, eq=False)
class Discounts:
    """What each job keeps of its share under Nash welfare.

    Attributes
    ----------
    factors : (N,) in (0, 1]; 1 for a job that nobody suffers from, and for one that cannot be served.
    gap : largest proven gap of the N + 1 programs, per budget: no factor is off by more than exp(2 N gap).
    programs : programs solved; identical jobs share theirs.
    """

    factors: Floats
    gap: float
    programs: int


@dataclass(frozen=True)
class _DiscountedNash(ProgramPolicy):
    """Nash welfare, and the discounts that make it strategy-proof.

    Parameters
    ----------
    budgets : "equal", as published, or "priority": jobs count by their priority weight.
    """

    budgets: Literal["equal", "priority"] = "equal"

    # the time that a discount takes away is what a misreport would cost
    fills_idle_gpus: ClassVar[bool] = False

    def objective(self, state: ClusterState, rates: Floats) -> NashWelfare:  # noqa: ARG002
        """Equal budgets, or the priority weights."""
        return NashWelfare(np.ones(state.n_jobs) if self.budgets == "equal" else state.priority_weights)

    def allocate(self, state: ClusterState) -> Allocation:
        """Shares under Nash welfare, each job's times its discount; objective, bound and gap are those of the welfare
        before discounts, the gap the largest of all programs."""
        started = perf_counter()
        whole = super().allocate(state)
        discounts = self.discounts(state)
        gap = max(whole.gap, discounts.gap)
        return replace(
            whole,
            shares=whole.shares * discounts.factors[:, None],
            status="feasible" if whole.status == "optimal" and gap > TOLERANCE else whole.status,
            gap=gap,
            seconds=perf_counter() - started,
        )

    def discounts(self, state: ClusterState) -> Discounts:
        """The discount of each job."""
        believed = self.believed_rates(state)
        usable = np.where(state.runnable_rates > 0, believed, 0.0) if self.choice == "balanced" else believed
        able = np.flatnonzero((usable[:, state.capacity > 0] > 0).any(axis=1) & (state.steps_remaining > 0))
        factors = np.ones(state.n_jobs)
        if not len(able):
            return Discounts(factors, 0.0, 0)
        part = state.take(able)
        polytope = Polytope(PlainColumns(part.throughputs.with_rates(usable[able])), state.capacity)
        # in the order of the program whose shares are discounted: rounding is then the same
        types = types_in_order(polytope.rates, polytope.fastest, polytope.capacity)
        polytope = polytope.restricted(np.arange(len(able)), types)
        factors[able], gap, programs = _discounts(polytope, self.objective(part, believed[able]).budgets)
        return Discounts(factors, gap, programs)


@register(
    "max_min_fairness_strategy_proof_perf",
    paper=_PAPER,
    program="x = argmax sum_i log(T_i.x_i), x_i times d_i = prod_(k not i) u_k(x) / u_k(x without i)",
)
@dataclass(frozen=True)
class StrategyProofPerf(_DiscountedNash):
    """Nash welfare with discounts: no job gains by misstating its throughputs.

        x* = argmax_x  sum_i B_i log u_i(x),    u_i = sum_j T_ij x_ij         x in the allocation polytope
        d_i = prod_(k != i) ( u_k(x*) / u_k(x*_-i) )^(B_k / B_i),    x*_-i: the same without job i
        job i is given  d_i x*_i

    A job pays, in its own time, for what its presence costs the others; d_i is at least 1/e. Weights inside the
    published geometric mean, s_i / (w_i p_i), multiply every product alike and are left out. N + 1 programs; each job
    keeps at least 1/e of its proportionally fair throughput, and the rest of the GPUs is deliberately not given.
    """


@register(
    "max_min_fairness_strategy_proof",
    paper=_PAPER + " (baseline)",
    program="max_min_fairness_strategy_proof_perf with every throughput 1",
)
@dataclass(frozen=True)
class StrategyProof(TimePolicy, _DiscountedNash):
    """Nash welfare with discounts, blind to accelerator types: every throughput is taken for 1.

    x* = argmax_x  sum_i B_i log(sum_j x_ij),    job i is given d_i x*_i as in max_min_fairness_strategy_proof_perf
    """


def _discounts(polytope: Polytope, budgets: Floats) -> tuple[Floats, float, int]:
    """(N,) discounts, the largest gap, and the number of programs.

    ``B_i log d_i = sum_(k != i) B_k (log u_k(x*) - log u_k(x*_-i))``: values of certified programs and one throughput.
    """
    # the unit of a job's throughput does not matter, and rates near 1 lose no digits
    fastest = polytope.rates.max(axis=1)
    relative = polytope.rates / fastest[:, None]
    classes = classes_of([*relative.T, polytope.scale_factors, budgets])
    first, counts = classes.first, classes.counts
    K = len(first)
    rates, sizes, weights = relative[first], polytope.scale_factors[first], budgets[first]
    whole = _Welfare(rates, sizes, weights, polytope.capacity)
    value, u, gap = whole.solve(np.arange(K), counts)
    logs = np.zeros(K)
    for k in range(K):
        others = counts.copy()
        others[k] -= 1.0
        present = np.flatnonzero(others > 0)
        if len(present):
            without, _, own_gap = whole.solve(present, others[present])
            gap = max(gap, own_gap)
            logs[k] = (value - weights[k] * log(u[k]) - without) / weights[k]
    # a job's presence helps nobody: above 0 is rounding
    return exp(np.minimum(logs, 0.0))[classes.of], gap, K + 1


@dataclass(frozen=True, eq=False)
class _Welfare:
    """Nash welfare over some of K classes of jobs, one program after the other."""

    rates: Floats
    scale_factors: Ints
    budgets: Floats
    capacity: Floats

    def solve(self, classes: Positions, counts: Floats) -> tuple[float, Floats, float]:
        """Value, throughputs of the classes, and proven gap per budget."""
        rates, sizes, budgets = self.rates[classes], self.scale_factors[classes], self.budgets[classes]
        names = [str(j) for j in range(rates.shape[1])]
        matrix = ThroughputMatrix.trusted(rates, jobs=range(len(classes)), accelerators=names, scale_factors=sizes)
        polytope = Polytope(PlainColumns(matrix), self.capacity, counts)
        objective = NashWelfare(budgets, counts)
        proof = objective.certify(polytope, structured.solve(polytope, objective))
        return proof.objective, polytope.throughput(proof.shares), proof.gap
