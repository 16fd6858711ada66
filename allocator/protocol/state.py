"""The decision protocol: what a policy sees, and what comes back.

    state -> policy.allocate(state) -> Allocation -> round mechanism -> RoundDecision -> a world applies it

The simulator and the runtimes are worlds around the same decision core; none of these types knows which.
"""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from allocator.cluster import Cluster
from allocator.protocol.colocated import take, without_sharing
from throughputs import InputError, PackedColumns, ThroughputMatrix

if TYPE_CHECKING:
    from allocator.protocol.allocation import Allocation
    from allocator.protocol.entities import Membership
    from allocator.protocol.plan import TrainingView
    from formulations import WarmStart

__all__ = ["ClusterState", "Policy", "RoundDecision"]


@dataclass(frozen=True, eq=False)
class ClusterState:
    """Everything a policy may know at one instant about the N active jobs, ids ascending.

    Attributes
    ----------
    cluster : the cluster; its types are the columns of `throughputs`.
    throughputs : (N, M) steps/s of each job's own gang, with scale factors; its labels are the job ids.
    priority_weights : (N,) weight of each job, 1 for an ordinary one.
    steps_remaining : (N,) training steps left.
    elapsed_seconds : (N,) seconds since the job arrived.
    isolated_seconds : (N,) seconds that the steps already done would have taken on an isolated share of the
        cluster, as it was when they were done (finish-time fairness).
    current_accelerator : (N,) type the job was last given by a policy that does not preempt, -1 for none.
    slo_seconds : (N,) seconds left to the job's deadline, below 0 when it is past; inf for a job without one.
    gpu_prices : (M,) dollars per GPU hour of each type now; ones where prices are not known.
    clock : seconds since the start.
    colocation : what the jobs do when two of them share GPUs, for policies that pack; None where it is not known. The
        same jobs and types as `throughputs`.
    current_partner : (N,) position of the job that shared GPUs with this one by the last decision, -1 for none.
    membership : the entities, and which of them each job belongs to; None: no entities.
    training : how the jobs train, epoch by epoch, for policies that plan; None where it is not known.
    warm_start : what the last decision left for this one; None where there was none. Saves time, changes nothing else.

    Raises
    ------
    InputError
        The accelerator types of cluster and matrix differ, or an array has the wrong shape.
    """

    cluster: Cluster
    throughputs: ThroughputMatrix
    priority_weights: NDArray[np.float64]
    steps_remaining: NDArray[np.float64]
    elapsed_seconds: NDArray[np.float64]
    isolated_seconds: NDArray[np.float64]
    current_accelerator: NDArray[np.int64]
    slo_seconds: NDArray[np.float64]
    gpu_prices: NDArray[np.float64]
    current_partner: NDArray[np.int64]
    clock: float = 0.0
    colocation: PackedColumns | None = None
    membership: Membership | None = None
    training: TrainingView | None = None
    warm_start: WarmStart | None = None

    def __init__(
        self,
        cluster: Cluster,
        throughputs: ThroughputMatrix,
        *,
        priority_weights: NDArray[np.float64] | None = None,
        steps_remaining: NDArray[np.float64] | None = None,
        elapsed_seconds: NDArray[np.float64] | None = None,
        isolated_seconds: NDArray[np.float64] | None = None,
        current_accelerator: NDArray[np.int64] | None = None,
        slo_seconds: NDArray[np.float64] | None = None,
        gpu_prices: NDArray[np.float64] | None = None,
        clock: float = 0.0,
        colocation: PackedColumns | None = None,
        current_partner: NDArray[np.int64] | None = None,
        membership: Membership | None = None,
        training: TrainingView | None = None,
        warm_start: WarmStart | None = None,
    ) -> None:
        n = throughputs.n_jobs
        object.__setattr__(self, "cluster", cluster)
        object.__setattr__(self, "throughputs", throughputs)
        object.__setattr__(self, "clock", clock)
        object.__setattr__(self, "membership", membership)
        if throughputs.accelerators != cluster.accelerators:
            raise InputError(
                "cluster state",
                field="accelerators",
                found=throughputs.accelerators,
                expected=f"the types of the cluster, {cluster.accelerators}",
            )
        columns: tuple[tuple[str, Any, float], ...] = (
            ("priority_weights", priority_weights, 1.0),
            ("steps_remaining", steps_remaining, 1.0),
            ("elapsed_seconds", elapsed_seconds, 0.0),
            ("isolated_seconds", isolated_seconds, 0.0),
        )
        for name, values, default in columns:
            array = np.full(n, default) if values is None else np.asarray(values, dtype=np.float64)
            if array.shape != (n,):
                raise InputError("cluster state", field=name, found=array.shape, expected=f"shape ({n},)")
            if not np.isfinite(array).all() or (array < 0).any() or (name == "priority_weights" and (array <= 0).any()):
                worst = int(
                    np.argmax(~np.isfinite(array) | (array < 0) | ((name == "priority_weights") & (array <= 0)))
                )
                what = "positive" if name == "priority_weights" else "at least 0"
                raise InputError(
                    "cluster state",
                    field=f"{name} of job {throughputs.jobs[worst]!r}",
                    found=float(array[worst]),
                    expected=what,
                )
            object.__setattr__(self, name, array)
        current = (
            np.full(n, -1, dtype=np.int64) if current_accelerator is None else np.asarray(current_accelerator, np.int64)
        )
        object.__setattr__(self, "current_accelerator", current)
        due = np.full(n, np.inf) if slo_seconds is None else np.asarray(slo_seconds, dtype=np.float64)
        if due.shape != (n,) or np.isnan(due).any():
            raise InputError(
                "cluster state", field="slo_seconds", found=due, expected=f"{n} numbers, inf for no deadline"
            )
        object.__setattr__(self, "slo_seconds", due)
        m = len(cluster.accelerators)
        prices = np.ones(m) if gpu_prices is None else np.asarray(gpu_prices, dtype=np.float64)
        if prices.shape != (m,) or not (np.isfinite(prices) & (prices >= 0)).all():
            raise InputError(
                "cluster state", field="gpu_prices", found=prices, expected=f"{m} finite prices, at least 0"
            )
        object.__setattr__(self, "gpu_prices", prices)
        partner = np.full(n, -1, dtype=np.int64) if current_partner is None else np.asarray(current_partner, np.int64)
        if partner.shape != (n,) or ((partner < -1) | (partner >= n)).any():
            raise InputError("cluster state", field="current_partner", found=partner, expected=f"{n} positions or -1")
        object.__setattr__(self, "current_partner", partner)
        if colocation is not None and (colocation.jobs, colocation.accelerators) != (
            throughputs.jobs,
            throughputs.accelerators,
        ):
            raise InputError(
                "cluster state",
                field="colocation",
                found=f"{colocation.n_jobs} jobs on {colocation.accelerators}",
                expected=f"the {n} jobs and the types of the throughputs, in the same order",
            )
        object.__setattr__(self, "colocation", colocation)
        if membership is not None and len(membership.of_job) != n:
            raise InputError(
                "cluster state", field="membership", found=f"{len(membership.of_job)} jobs", expected=f"{n} jobs"
            )
        if training is not None and len(training.rows) != n:
            found = f"profiles of {len(training.rows)} jobs"
            raise InputError("cluster state", field="training", found=found, expected=f"{n} jobs")
        object.__setattr__(self, "training", training)
        object.__setattr__(self, "warm_start", warm_start)

    def subset(self, jobs: NDArray[np.intp]) -> ClusterState:
        """The same state with some of its jobs only (positions)."""
        matrix = self.throughputs
        return ClusterState(
            self.cluster,
            ThroughputMatrix(
                matrix.rates[jobs],
                [matrix.jobs[i] for i in jobs],
                matrix.accelerators,
                matrix.scale_factors[jobs],
                matrix.unit,
            ),
            priority_weights=self.priority_weights[jobs],
            steps_remaining=self.steps_remaining[jobs],
            elapsed_seconds=self.elapsed_seconds[jobs],
            isolated_seconds=self.isolated_seconds[jobs],
            current_accelerator=self.current_accelerator[jobs],
            slo_seconds=self.slo_seconds[jobs],
            gpu_prices=self.gpu_prices,
            clock=self.clock,
            colocation=None if self.colocation is None else take(self.colocation, jobs),
            current_partner=self._partners_among(jobs),
            membership=None if self.membership is None else self.membership.take(jobs),
            training=None if self.training is None else self.training.take(jobs),
            warm_start=self.warm_start,
        )

    def after(self, last: Allocation | None) -> ClusterState:
        """The same state, with what the `last` decision left for this one."""
        if last is None or last.warm_start is None:
            return self
        state = copy(self)
        object.__setattr__(state, "warm_start", last.warm_start)
        return state

    def _partners_among(self, jobs: NDArray[np.intp]) -> NDArray[np.int64]:
        """(K,) positions among `jobs` of their partners, -1 where the partner is none of them."""
        position = np.full(self.n_jobs + 1, -1, dtype=np.int64)
        position[jobs] = np.arange(len(jobs))
        return np.asarray(position[self.current_partner[jobs]])

    @cached_property
    def packed(self) -> PackedColumns:
        """What the jobs do alone and in pairs; where `colocation` is not known no two of them share."""
        matrix = self.throughputs
        if self.colocation is not None:
            return self.colocation
        return without_sharing(matrix.rates, matrix.scale_factors, matrix.jobs, matrix.accelerators)

    @property
    def n_jobs(self) -> int:
        """N, the number of active jobs."""
        return self.throughputs.n_jobs

    @property
    def rates(self) -> NDArray[np.float64]:
        """(N, M) steps/s."""
        return self.throughputs.rates

    @property
    def scale_factors(self) -> NDArray[np.int64]:
        """(N,) GPUs per gang."""
        return self.throughputs.scale_factors

    @property
    def capacity(self) -> NDArray[np.int64]:
        """(M,) GPUs of each type."""
        return self.cluster.capacity


@runtime_checkable
class Policy(Protocol):
    """Decides on shares. Settings live in the object, data comes with the state; no state is kept between calls.

    Attributes
    ----------
    name : the registered name.
    heterogeneity_aware : whether the policy distinguishes accelerator types. One that does not leaves the
        choice of type to the mechanism (which may draw it at random, as Gavel does for its baselines).
    fills_idle_gpus : whether jobs without a share may run on GPUs that would otherwise idle.
    preemptive : whether a job may be moved once it has been given an accelerator type.

    A policy may have a method ``prepare()``, called once before a run: what the first decision would otherwise load.
    One with an attribute ``reads_prices`` that is true is also asked when the price of a GPU changes. One with an
    attribute ``packs`` that is true reads `ClusterState.packed` and may return `Allocation.pairs`. With an attribute
    ``strict_queue`` that is true, a gang that does not fit lets nobody behind it pass. A policy that gives the rounds
    itself is a `allocator.protocol.plan.Planner`.
    """

    name: str
    heterogeneity_aware: bool
    fills_idle_gpus: bool
    preemptive: bool

    def allocate(self, state: ClusterState) -> Allocation:
        """Shares of time for every job of `state` on every accelerator type."""
        ...


@dataclass(frozen=True, eq=False)
class RoundDecision:
    """Who runs in the coming round, in the order in which the mechanism chose them.

    Attributes
    ----------
    jobs : (K,) positions of the chosen jobs in the world's job table.
    accelerator : (K,) position of the type each runs on.
    gpus : for each chosen job the ids of its GPUs; empty when placement is off.
    recomputed : whether the policy was asked for new shares at this round.
    partner : (K,) the job that shares the GPUs of each chosen job, -1 for none; the two follow each other, the lower
        position first. None under policies that do not pack.
    """

    jobs: NDArray[np.int64]
    accelerator: NDArray[np.int64]
    gpus: tuple[tuple[int, ...], ...] = field(default=())
    recomputed: bool = False
    partner: NDArray[np.int64] | None = None
