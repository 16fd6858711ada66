"""The arrays that the properties of an allocation are computed from."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from formulations import PackedPolytope, Polytope
from throughputs import PackedColumns, PlainColumns
from throughputs.arrays import Flags, Floats, Ints
from throughputs.errors import expect

if TYPE_CHECKING:
    from allocator.protocol.allocation import Allocation
    from allocator.protocol.state import ClusterState
    from formulations import Pairs


@dataclass(frozen=True, eq=False)
class Case:
    """N jobs with what they have.

    Attributes
    ----------
    labels, accelerators : names of jobs and types.
    rates : (N, M) steps/s, 0 on types with fewer GPUs than the gang.
    sizes : (N,) GPUs per gang.
    weights : (N,) priority weights.
    capacity : (M,) GPUs.
    shares : (N, M) x of jobs alone; where the allocation has no pairs, scaled down where it exceeds the cluster.
    columns, pairs : what pairs of jobs do and their shares of time; None where the policy does not pack.
    time : (N, M) share of time of each job on each type, alone and in pairs.
    violation : by how much the allocation exceeds the cluster, as a fraction.
    u : (N,) throughput.
    entitled : (N,) q, throughput of a part of every type in proportion to the weights, see `entitled_shares`.
    able : (N,) whether the job runs on any type with GPUs.
    """

    labels: tuple[Hashable, ...]
    accelerators: tuple[str, ...]
    rates: Floats
    sizes: Ints
    weights: Floats
    capacity: Floats
    shares: Floats
    columns: PackedColumns | None
    pairs: Pairs | None
    time: Floats
    violation: float
    u: Floats
    entitled: Floats
    able: Flags


def entitled_shares(weights: Floats, sizes: Ints, capacity: Floats) -> Floats:
    """A part of every type that the gang fits on, in proportion to the weights, (N, M)::

        x_ij = w_i / sum_k w_k * c_j / s_i where s_i <= c_j, else 0;   each row scaled to sum to at most 1

    With equal weights the isolated shares.
    """
    part = weights / max(float(weights.sum()), 1e-300)
    shares = np.where(sizes[:, None] <= capacity, (part / sizes)[:, None] * capacity, 0.0)
    return np.asarray(shares / np.maximum(shares.sum(axis=1, keepdims=True), 1.0))


def case_of(allocation: Allocation, state: ClusterState) -> Case:
    """The arrays of an allocation for the jobs of a state.

    Raises
    ------
    InputError
        The allocation is of other jobs or types.
    """
    expect(
        allocation.shares.shape == state.rates.shape,
        "audit",
        "shares",
        allocation.shares.shape,
        f"shares of the {state.n_jobs} jobs of the state on its {len(state.capacity)} types",
    )
    rates, capacity = state.runnable_rates, state.capacity.astype(float)
    rates = np.where(capacity > 0, rates, 0.0)
    shares, time, u, violation = _received(allocation, state, rates, capacity)
    packed = allocation.pairs is not None
    entitled = entitled_shares(state.priority_weights, state.scale_factors, capacity)
    return Case(
        labels=tuple(state.throughputs.jobs),
        accelerators=state.cluster.accelerators,
        rates=rates,
        sizes=state.scale_factors,
        weights=state.priority_weights,
        capacity=capacity,
        shares=shares,
        columns=state.packed if packed else None,
        pairs=allocation.pairs,
        time=time,
        violation=max(violation, 0.0) + 0.0,
        u=u,
        entitled=np.asarray((rates * entitled).sum(axis=1)),
        able=np.asarray((rates > 0).any(axis=1)),
    )


def _received(
    allocation: Allocation, state: ClusterState, rates: Floats, capacity: Floats
) -> tuple[Floats, Floats, Floats, float]:
    """Shares of jobs alone, their time on each type in all, their throughput, and the excess over the cluster."""
    pairs = allocation.pairs
    if pairs is None:
        polytope = Polytope(PlainColumns(state.throughputs.with_rates(rates)), capacity)
        shares = polytope.repaired(allocation.shares)
        return shares, shares, polytope.throughput(shares), polytope.violation(allocation.shares)
    time = allocation.shares.copy()
    for member in (pairs.first, pairs.second):
        np.add.at(time, (member, pairs.accelerator), pairs.share)
    violation = PackedPolytope(state.packed, capacity).violation(allocation.shares, pairs)
    return allocation.shares, time, allocation.effective_throughput, violation
