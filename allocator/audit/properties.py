"""Feasibility, sharing incentive, envy-freeness, Pareto efficiency and utilisation of an allocation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

import numpy as np

from allocator.audit.case import Case
from allocator.audit.record import Property
from formulations import (
    PackedPolytope,
    Polytope,
    SolverError,
    maximise_worth,
    proportional_throughput,
)
from throughputs import PlainColumns, ThroughputMatrix
from throughputs.arrays import Floats, Positions
from throughputs.numerics import dot, matmul

if TYPE_CHECKING:
    from allocator.protocol.state import ClusterState
    from formulations import Solution


ROUNDING = 1e-6
"""Relative shortfall up to which a property is said to hold."""

_CONIC = 1e-7
"""Part of its throughput that a job may lose where cones decide who could gain."""

_CHUNK = 2048
"""Jobs whose envy of all others is looked at at once."""

_NEGLIGIBLE = 1e-9
"""Part of a job's fastest throughput below which it has nothing."""


@runtime_checkable
class HasRows(Protocol):
    """A policy with rows of its own."""

    def best_without_loss(self, state: ClusterState, gains: Floats, floors: Floats) -> tuple[Floats, Solution]:
        """Shares (N, M) of the largest worth within its rows, nobody below its floor."""
        ...


def feasibility(case: Case) -> Property:
    """Whether rows and types are within their limits."""
    holds = case.violation <= ROUNDING
    detail = "within the cluster" if holds else f"exceeds it by {case.violation:.1%}; the audit is of its scaled shares"
    return Property(
        "feasibility",
        "largest excess of sum_j x_ij over 1 and of sum_i s_i x_ij over c_j, as a fraction",
        case.violation,
        holds,
        None,
        detail,
    )


def sharing_incentive(case: Case) -> Property:
    """Whether every job goes at least as fast as with a part of its own of every type."""
    definition = "min_i u_i / q_i; q_i: throughput of w_i / sum_k w_k of every type; holds from 1"
    jobs = np.flatnonzero(case.able)
    if not len(jobs):
        return Property("sharing incentive", definition, np.inf, True, None, "no job that can run")
    ratio = case.u[jobs] / case.entitled[jobs]
    worst = int(np.argmin(ratio))
    label = case.labels[jobs[worst]]
    detail = f"job {label} has {ratio[worst]:.3g} times the throughput of its own part of the cluster"
    value = float(ratio[worst])
    return Property("sharing incentive", definition, value, bool(value >= 1 - ROUNDING), label, detail)


def throughput_in_place_of(case: Case, jobs: Positions) -> Floats:
    """(n, N) throughput of each of `jobs` with the GPU time of every job k, in proportion to their weights.

    k has ``s_k x_kj`` GPUs of type j on average. A gang of s_i GPUs can have them for ``s_k x_kj / s_i`` of the time;
    where that sums to more than all of its time it is scaled down to it, the mix of types unchanged. Between jobs of
    unequal weight the time is scaled by w_i / w_k first. Time that k shares with a partner stays shared with it; a
    gang of another size cannot use it.
    """
    per_weight = case.sizes / case.weights
    mine = 1.0 / per_weight[jobs]
    of_time = mine[:, None] * (per_weight * case.time.sum(axis=1))
    moved = matmul(mine[:, None] * case.rates[jobs], (per_weight[:, None] * case.shares).T)
    if case.columns is not None and case.pairs is not None and len(case.pairs):
        moved = moved + mine[:, None] * _beside_partners(case, jobs, per_weight)
    return np.asarray(moved / np.maximum(of_time, 1.0))


def _beside_partners(case: Case, jobs: Positions, per_weight: Floats) -> Floats:
    """(n, N) throughput of each of `jobs` beside the partners of every job k, for k's GPU time per weight."""
    from scipy.sparse import csr_array

    assert case.columns is not None
    assert case.pairs is not None
    group, pairs = case.columns.group, case.pairs
    G, _, M = case.columns.together.shape
    k = np.concatenate([pairs.first, pairs.second])
    place = group[np.concatenate([pairs.second, pairs.first])] * M + np.tile(pairs.accelerator, 2)
    spent = per_weight[k] * np.tile(pairs.share, 2)
    beside = csr_array((spent, (k, place)), shape=(len(group), G * M))
    return np.asarray((beside @ case.columns.together[group[jobs]].reshape(len(jobs), G * M).T).T)


def envy(case: Case) -> Property:
    """Whether no job would rather have another's GPU time."""
    definition = "max_ik u_i(in place of k) / u_i, k's GPU time for a gang of s_i and weight w_i; holds up to 1"
    jobs = np.flatnonzero(case.able)
    value, pair = 0.0, (-1, -1)
    for at in range(0, len(jobs), _CHUNK):
        part = jobs[at : at + _CHUNK]
        other = throughput_in_place_of(case, part)
        least = _NEGLIGIBLE * case.rates[part].max(axis=1)
        own = np.maximum(case.u[part], least)[:, None]
        ratio = np.where(other <= least[:, None], 0.0, other / own)
        # a job with nothing envies whoever has something
        ratio = np.where((case.u[part] <= least)[:, None] & (other > least[:, None]), np.inf, ratio)
        ratio[np.arange(len(part)), part] = 0.0
        i, k = np.unravel_index(int(np.argmax(ratio)), ratio.shape)
        if ratio[i, k] > value:
            value, pair = float(ratio[i, k]), (int(part[i]), int(k))
    if pair[0] < 0:
        return Property("envy-freeness", definition, value, True, None, "nobody could use what another has")
    one, other_label = case.labels[pair[0]], case.labels[pair[1]]
    times = f"{value:.3g} times as fast" if np.isfinite(value) else "running instead of waiting"
    detail = f"job {one} would be {times} with the GPU time of job {other_label}"
    return Property("envy-freeness", definition, value, bool(value <= 1 + ROUNDING), one, detail)


def pareto_efficiency(case: Case, state: ClusterState | None = None, policy: object = None) -> tuple[Property, Floats]:
    """Whether nobody can gain without another losing; and the worth of a GPU of each type (M,) at that.

    The linear program ``max sum_i g_i u'_i`` over ``u' >= u``, g_i = s_i / p_i, has the optimum ``sum_i g_i u_i``
    exactly when the allocation is efficient; its bound proves it. x' shares GPUs where the policy could, and keeps the
    rows that a policy has of its own (`ConstrainedPolicy`, `ConvexPolicy`, in the `state` that it decided from).
    """
    rows = ", x' within the rows of the policy" if isinstance(policy, HasRows) else ""
    definition = f"max_x' sum_i g_i (u'_i - u_i) / sum_i g_i u_i with u' >= u{rows}, g_i = s_i / p_i; holds at 0"
    jobs = np.flatnonzero(case.able)
    prices = np.zeros(len(case.capacity))
    if not len(jobs):
        return Property("Pareto efficiency", definition, 0.0, True, None, "no job that can run"), prices
    u = case.u[jobs]
    floors = np.where(u > _NEGLIGIBLE * case.rates[jobs].max(axis=1), u, 0.0)
    gains = case.sizes[jobs] / proportional_throughput(case.rates[jobs], case.capacity)
    if isinstance(policy, HasRows) and state is not None:
        try:
            better, bound, prices = _best_within_rows(case, state, policy, jobs, gains, floors)
        except SolverError as error:
            return Property("Pareto efficiency", definition, np.nan, None, None, f"not known: {error}"), prices
    else:
        better, bound, prices = _best_without_loss(case, jobs, gains, floors)
    total = dot(gains, u)
    # the bound, not the point: nothing more is possible
    value = max(bound - total, 0.0) / total if total > 0 else np.inf
    holds = bool(value <= ROUNDING)
    winner = int(np.argmax(gains * (better - u)))
    label = case.labels[jobs[winner]]
    if holds:
        detail = f"nobody can gain unless another loses (proven to {value:.0e})"
        return Property("Pareto efficiency", definition, value, True, None, detail), prices
    more = f"{better[winner] / u[winner] - 1:.1%} more" if floors[winner] > 0 else "something instead of nothing"
    detail = f"{value:.1%} more in all is possible with nobody losing; job {label} could have {more}"
    return Property("Pareto efficiency", definition, value, False, label, detail), prices


def _best_without_loss(case: Case, jobs: Positions, gains: Floats, floors: Floats) -> tuple[Floats, float, Floats]:
    """Throughputs of `jobs` at the most total worth with nobody below its floor, the bound on it, and prices (M,)."""
    if case.columns is not None:
        worth, needed = np.zeros(len(case.labels)), np.zeros(len(case.labels))
        worth[jobs], needed[jobs] = gains, floors
        shared = PackedPolytope(case.columns, case.capacity)
        found = maximise_worth(shared, worth, needed)
        return shared.throughput(found.shares, found.pairs)[jobs], found.bound, found.prices
    matrix = ThroughputMatrix.trusted(
        case.rates[jobs], jobs=range(len(jobs)), accelerators=case.accelerators, scale_factors=case.sizes[jobs]
    )
    polytope = Polytope(PlainColumns(matrix), case.capacity)
    best = maximise_worth(polytope, gains, floors)
    return polytope.throughput(best.shares), best.bound, best.prices


def _best_within_rows(
    case: Case, state: ClusterState, policy: HasRows, jobs: Positions, gains: Floats, floors: Floats
) -> tuple[Floats, float, Floats]:
    """The same within the rows of a policy.

    Raises
    ------
    SolverError
        No solver found it, or none proved it.
    """
    worth, needed = np.zeros(len(case.labels)), np.zeros(len(case.labels))
    # the answer of a conic solver keeps the rows up to its own tolerance
    worth[jobs], needed[jobs] = gains, floors * (1.0 - _CONIC)
    shares, found = policy.best_without_loss(state, worth, needed)
    if not found.gap <= ROUNDING:
        raise SolverError(f"{found.solver} gave no proof")
    return (case.rates * shares).sum(axis=1)[jobs], found.bound, found.prices


def utilisation(case: Case) -> Property:
    """Part of the GPU time that is given to jobs that make progress with it; a pair takes its GPUs once."""
    useful = np.where(case.rates > 0, case.shares, 0.0)
    used, total = matmul(case.sizes, useful), float(case.capacity.sum())
    if case.pairs is not None:
        used = used + case.pairs.gpus(case.sizes, len(used))
    value = float(used.sum()) / total if total > 0 else 0.0
    parts = [
        f"{name} {part / gpus:.0%}"
        for name, part, gpus in zip(case.accelerators, used.tolist(), case.capacity.tolist(), strict=True)
        if gpus > 0
    ]
    definition = "sum_ij s_i x_ij / sum_j c_j over columns with a throughput, pairs counted once"
    return Property("utilisation", definition, value, None, None, ", ".join(parts))
