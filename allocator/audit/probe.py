"""Does a job gain by misstating its throughputs? A seeded search for cases."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from allocator.audit.case import Case
from allocator.audit.record import Property
from formulations import PackedPolytope, Polytope, SolverError
from throughputs import InputError, PlainColumns
from throughputs.arrays import Floats
from throughputs.numerics import dot, tie_order

if TYPE_CHECKING:
    from allocator.protocol.allocation import Allocation
    from allocator.protocol.policy import Policy
    from allocator.protocol.state import ClusterState


ROUNDING = 1e-5
"""Gain that is taken for none: the precision of the shares of two solves."""

_RANGE = 4.0
"""Largest factor by which a throughput is misstated."""


def probe_strategy(
    case: Case, state: ClusterState, policy: Policy, rng: np.random.Generator, *, jobs: int, misreports: int
) -> Property:
    """The largest gain of `jobs` jobs, drawn at random, from `misreports` misreports each.

    The policy decides anew with one job's throughputs misstated and everything else as it was; the job's gain is its
    true throughput then, less what it has now, in units of what it is entitled to. Finding no gain proves nothing.
    """
    definition = "max over misreports T'_i of (u_i(x') - u_i(x)) / q_i, x' decided on T'_i; holds at 0 as far as probed"
    order = tie_order(case.labels)
    able = order[case.able[order]]
    probed = np.sort(rng.choice(len(able), min(jobs, len(able)), replace=False)) if len(able) else able
    value, worst, told, tries = 0.0, -1, "", 0
    for i in able[probed]:
        for kind in range(misreports):
            rates, how = misreport(case.rates[i], kind, case.accelerators, rng)
            try:
                allocation = policy.allocate(_misreported(state, int(i), rates))
            except (InputError, SolverError):
                continue
            tries += 1
            now = _true_throughput(case, state, allocation, int(i))
            gain = (now - case.u[i]) / case.entitled[i]
            if gain > value:
                value, worst, told = float(gain), int(i), how
    holds = bool(value <= ROUNDING)
    if holds or worst < 0:
        detail = f"no gain in {tries} misreports of {len(probed)} jobs"
        return Property("strategy-proofness (probe)", definition, value, holds, None, detail)
    label = case.labels[worst]
    detail = f"job {label} gains {value:.3g} times the throughput of its own part when it {told} ({tries} misreports)"
    return Property("strategy-proofness (probe)", definition, value, False, label, detail)


def misreport(rates: Floats, kind: int, accelerators: tuple[str, ...], rng: np.random.Generator) -> tuple[Floats, str]:
    """One of three kinds of misreport of a job's rates (M,), and what the job says in words.

    Every rate times a factor between 1/4 and 4; no throughput at all on one type; the fastest rate on every type.
    """
    runs = np.flatnonzero(rates > 0)
    factors = _RANGE ** rng.uniform(-1.0, 1.0, len(rates))
    hidden = int(runs[rng.integers(len(runs))])
    if kind % 3 == 1 and len(runs) > 1:
        return np.where(np.arange(len(rates)) == hidden, 0.0, rates), f"claims not to run on {accelerators[hidden]}"
    if kind % 3 == 2 and len(runs) > 1:
        return np.where(rates > 0, rates.max(), 0.0), "claims to be as fast on every type as on its fastest"
    told = ", ".join(f"{accelerators[j]} x {factors[j]:.2f}" for j in runs)
    return rates * factors, f"misstates its throughputs ({told})"


def _misreported(state: ClusterState, i: int, rates: Floats) -> ClusterState:
    """The state in which job `i` says its rates are `rates` (M,), beside others in the same proportion."""
    claimed = state.rates.copy()
    claimed[i] = rates
    throughputs = state.throughputs.with_rates(claimed)
    columns = state.known("colocation")
    if columns is None:
        return state.with_throughputs(throughputs)
    g = int(columns.group[i])
    with np.errstate(divide="ignore", invalid="ignore"):
        factor = np.where(state.rates[i] > 0, rates / state.rates[i], 0.0)
    # a group of its own, which others meet as they meet its old one
    G, _, M = columns.together.shape
    together = np.zeros((G + 1, G + 1, M))
    together[:G, :G] = columns.together
    together[:G, G] = columns.together[:, g]
    together[G, :G] = columns.together[g] * factor
    group = columns.group.copy()
    group[i] = G
    alone, sizes = np.vstack([columns.alone, rates]), columns.group_scale_factors
    own = replace(columns, group=group, alone=alone, together=together, group_scale_factors=np.append(sizes, sizes[g]))
    return state.with_throughputs(throughputs, own)


def _true_throughput(case: Case, state: ClusterState, allocation: Allocation, i: int) -> float:
    """What job `i` really does under an allocation, steps/s."""
    if allocation.pairs is None:
        polytope = Polytope(PlainColumns(state.throughputs.with_rates(case.rates)), case.capacity)
        return dot(case.rates[i], polytope.repaired(allocation.shares)[i])
    return float(PackedPolytope(state.packed, case.capacity).throughput(allocation.shares, allocation.pairs)[i])
