"""What policies may know of the active jobs: where each column of a `ClusterState` is read from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from allocator.cluster import Cluster
from allocator.protocol.assignment import Assignment
from allocator.protocol.entities import Membership
from allocator.protocol.policy import Need
from allocator.protocol.state import ClusterState
from allocator.protocol.training import TrainingView
from throughputs import ThroughputMatrix
from throughputs.configurations import Configurations

if TYPE_CHECKING:
    from allocator.protocol.jobs.table import JobTable

_Ids = NDArray[np.int64]
_Floats = NDArray[np.float64]


@dataclass(slots=True, eq=False)
class Behind:
    """What a state of the `active` jobs, which are `at` these rows of the table, is read from."""

    table: JobTable
    active: _Ids
    at: _Ids
    clock: float
    cluster: Cluster
    gpu_prices: _Floats | None
    needs: Need
    running: Assignment | None

    def of(self, jobs: _Ids) -> Behind:
        """The same of some of the jobs (positions)."""
        part = self.active.take(jobs), self.at.take(jobs)
        return Behind(self.table, *part, self.clock, self.cluster, self.gpu_prices, self.needs, None)

    def column(self, name: str) -> NDArray[Any]:
        """(n, ...) of the active jobs; much faster than an index for a matrix."""
        values: NDArray[Any] = getattr(self.table, name)
        return values.take(self.at, axis=0)

    def steps_remaining(self) -> _Floats:
        """(n,) steps left, as far as it is noticed."""
        steps: _Floats = self.column("total_steps") - self.column("steps_done")
        np.maximum(steps, self.table.least_steps_remaining, out=steps)
        goodput = self.table.goodput
        return steps if goodput is None else goodput.steps_remaining(self.at, steps)

    def registered(self, name: str) -> _Floats:
        """(n,) a column that is kept for some runs only; zeros where it is not."""
        kept = self.table.columns.get(name)
        return np.zeros(len(self.at)) if kept is None else kept.take(self.at)

    def prices(self) -> _Floats:
        """(M,) dollars per GPU hour."""
        return np.ones(len(self.cluster.accelerators)) if self.gpu_prices is None else self.gpu_prices

    def membership(self) -> Membership | None:
        """Whose each job is."""
        membership = self.table.membership
        return None if membership is None else membership.take(self.at)

    def training(self) -> TrainingView | None:
        """How the jobs train."""
        training = self.table.training
        return None if training is None else training.view(self.at)

    def configurations(self) -> Configurations | None:
        """What the jobs can run as."""
        if self.table.goodput is not None:
            return self.table.goodput.configurations(self.at, self.active.tolist())
        known = self.table.configurations
        return None if known is None else known.of(self.at).relabelled(self.active.tolist())


# Steps that are counted in larger batches from one decision to the next can take isolated time below zero.
SOURCES: dict[str, Callable[[Behind, ClusterState], Any]] = {
    "predicted_seconds": lambda behind, _: behind.column("predicted_seconds"),
    "rates": lambda behind, _: behind.column("rates"),
    "scale_factors": lambda behind, _: behind.column("scale_factor"),
    "throughputs": lambda behind, state: ThroughputMatrix.trusted(
        state.rates,
        jobs=behind.active.tolist(),
        accelerators=behind.cluster.accelerators,
        scale_factors=state.scale_factors,
    ),
    "priority_weights": lambda behind, _: behind.column("priority_weight"),
    "steps_remaining": lambda behind, _: behind.steps_remaining(),
    "elapsed_seconds": lambda behind, _: np.maximum(behind.clock - behind.column("arrival_time"), 0.0),
    "isolated_seconds": lambda behind, _: np.maximum(behind.column("isolated_seconds"), 0.0),
    "run_seconds": lambda behind, _: behind.registered("service_seconds"),
    "gpu_seconds": lambda behind, _: behind.registered("service_gpu_seconds"),
    "lost_seconds": lambda behind, _: behind.registered("lost_seconds"),
    "starting_seconds": lambda behind, _: np.maximum(behind.registered("ready_time") - behind.clock, 0.0),
    "current_accelerator": lambda behind, _: behind.column("current_accelerator"),
    "slo_seconds": lambda behind, _: _until(behind.column("deadline"), behind.clock),
    "job_types": lambda behind, _: behind.column("job_type"),
    "deadlines": lambda behind, _: _until(behind.column("deadline"), 0.0),
    "deadline_options": lambda behind, _: behind.table.deadline_options.take(behind.at),
    "gpu_prices": lambda behind, _: behind.prices(),
    "colocation": lambda behind, _: behind.table.known_pairs(behind.active),
    "current_partner": lambda behind, _: _positions(behind.column("current_partner"), behind.active),
    "membership": lambda behind, _: behind.membership(),
    "training": lambda behind, _: behind.training(),
    "configurations": lambda behind, _: behind.configurations(),
    "running": lambda behind, _: _among_active(behind.running, behind.active),
}


def _until(deadline: _Floats, clock: float) -> _Floats:
    return np.where(np.isnan(deadline), np.inf, deadline - clock)


def _positions(ids: _Ids, active: _Ids) -> _Ids:
    """Where in the ascending `active` the `ids` are, -1 for those that are not among them."""
    if not len(active):
        return np.full(len(ids), -1, dtype=np.int64)
    position = active.searchsorted(ids)
    return np.where(active.take(position, mode="clip") == ids, position, -1)


def _among_active(running: Assignment | None, active: _Ids) -> Assignment:
    """Who of the active jobs runs as what, by position."""
    if running is None or not len(active):
        return Assignment.none()
    if running.shares_gpus or running.thousandths is not None:
        still = running.among(active)
        jobs, partner = _positions(still.jobs, active), _positions(still.partner, active)
        return Assignment(jobs, still.pool, still.gpus, partner, still.thousandths)
    position = active.searchsorted(running.jobs)
    there = active.take(position, mode="clip") == running.jobs
    if np.count_nonzero(there) < len(there):
        running, position = running.take(there), position[there]
    return running.numbered(position, active)
