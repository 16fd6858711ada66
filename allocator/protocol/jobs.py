"""The job table: one array per attribute for all jobs that a world knows of.

A job's id is its position. The world (simulator, runtime) writes the progress, the decision core keeps the ledgers
that policies read; a policy sees neither, only the `ClusterState` snapshot of the active rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from allocator.cluster import Cluster
from allocator.protocol.colocated import appended, of_trace, take
from allocator.protocol.entities import Entities, Membership
from allocator.protocol import ClusterState
from throughputs import InputError, PackedColumns, ThroughputMatrix, ThroughputTable, Trace

if TYPE_CHECKING:
    from allocator.protocol.estimated import BelievedColocation
    from allocator.protocol.training import TrainingLedger
    from throughputs.training import Course

__all__ = ["JobTable"]

# The published deadlines are multiples of a job's duration on this type (Gavel, OSDI'20, public artifact).
REFERENCE_ACCELERATOR = "v100"

_COLUMNS = (
    "job_type",
    "scale_factor",
    "priority_weight",
    "total_steps",
    "arrival_time",
    "deadline",
    "entity",
    "rates",
    "steps_done",
    "completion_time",
    "isolated_seconds",
    "current_accelerator",
    "current_partner",
)


class JobTable:
    """N jobs on the M accelerator types of a cluster, as a struct of arrays.

    Parameters
    ----------
    trace : the jobs as they were submitted.
    rates : (N, M) steps/s of each job's own gang on each type of `cluster`; 0 where it cannot run.
    cluster : the cluster. A gang larger than all GPUs of a type can never run there: its rate is set to 0.
    unconsolidated_rates : (N, M) steps/s when the GPUs of the gang are spread over servers; None: not told apart.
    entities : the entities that the jobs may name; None: what they name is ignored.
    colocation : what the jobs do in pairs, for policies that pack; None: not known.

    Attributes
    ----------
    job_type, scale_factor, priority_weight, total_steps, arrival_time, entity : (N,) as in the trace; times in seconds.
    deadline : (N,) seconds on the clock, arrival_time + slo * duration; nan for a job without. A duration that the
        trace does not tell is that of its steps on v100 if the cluster has it and the job runs there, else on its
        fastest type.
    rates : (N, M) steps/s.
    unconsolidated_rates : (N, M) steps/s, or None.
    membership : entities and whose each job is, or None; jobs in entities rank by their position.
    steps_done : (N,) steps trained so far; written by the world.
    completion_time : (N,) seconds, nan until the job completes; written by the world.
    isolated_seconds : (N,) seconds the steps done so far would have taken on isolated shares of the cluster, as they
        were when the policy was asked (Gavel, OSDI'20, sec. 4.2); written by the decision core.
    current_accelerator : (N,) type given by a policy that does not preempt, -1 for none; written by the decision core.
    believed : what is believed of pairs of jobs instead of `colocation`, until they have run; None: it is known.
    current_partner : (N,) job with which the last decision made it share GPUs, -1 for none; written by the decision
        core.
    least_steps_remaining : what policies are told that an active job has left at least; above 0 in a world that does
        not notice at once when a job is through.
    training : how the jobs train, epoch by epoch, as far as a policy may know; None: not known.
    course : how their batch sizes really change, for the world alone; None: they do not.

    Raises
    ------
    InputError
        `rates` has the wrong shape, or an entry is negative or not finite; or a job names an unknown entity.
    """

    def __init__(
        self,
        trace: Trace,
        rates: ArrayLike,
        cluster: Cluster,
        unconsolidated_rates: ArrayLike | None = None,
        entities: Entities | None = None,
        colocation: PackedColumns | None = None,
    ) -> None:
        n = len(trace)
        self.job_type = trace.job_type
        self.scale_factor = trace.scale_factor
        self.priority_weight = trace.priority_weight
        self.total_steps = trace.total_steps
        self.arrival_time = trace.arrival_time
        self.entity = trace.entity
        self.membership = (
            None if entities is None else Membership(entities, entities.positions(self.entity, trace.source))
        )
        self.rates = _checked_rates(rates, trace, cluster, "rates")
        self.unconsolidated_rates = (
            None
            if unconsolidated_rates is None
            else _checked_rates(unconsolidated_rates, trace, cluster, "unconsolidated_rates")
        )
        self.deadline = _deadlines(trace, self.rates, cluster)
        self.steps_done = np.zeros(n)
        self.completion_time = np.full(n, np.nan)
        self.isolated_seconds = np.zeros(n)
        self.current_accelerator = np.full(n, -1, dtype=np.int64)
        self.current_partner = np.full(n, -1, dtype=np.int64)
        self.colocation = colocation
        self.believed: BelievedColocation | None = None
        self.least_steps_remaining = 0.0
        self.training: TrainingLedger | None = None
        self.course: Course | None = None

    @classmethod
    def from_trace(
        cls,
        trace: Trace,
        throughputs: ThroughputTable | PackedColumns | ArrayLike,
        cluster: Cluster,
        *,
        unconsolidated: bool = False,
        entities: Entities | None = None,
        colocated: bool = False,
        training: bool = False,
        adaptation: str = "off",
        past_the_end: bool = False,
    ) -> JobTable:
        """Table of the jobs of `trace`, with rates looked up in a throughput table or given as an (N, M) array.

        With `unconsolidated` a throughput table with figures for gangs spread over servers is needed, with `colocated`
        one with figures for jobs that share GPUs, or `PackedColumns` of these jobs. With `training` it is kept how the
        jobs train; `adaptation` says how batch sizes change (`SimulatorSettings`), for which a table is needed, and
        `past_the_end` whether progress may be rounded so far (`throughputs.training.Course`).
        """
        pairs = of_trace(trace, throughputs, cluster) if colocated else None
        if isinstance(throughputs, PackedColumns):
            throughputs = throughputs.rates
        keys = trace.job_type, trace.scale_factor, cluster.accelerators
        if not isinstance(throughputs, ThroughputTable):
            if unconsolidated:
                raise InputError(
                    "throughputs", found="an array", expected="a table with figures for gangs spread over servers"
                )
            if adaptation != "off":
                expected = "a table with figures for all batch sizes, or adaptation off"
                raise InputError("throughputs", found="an array", expected=expected)
            table = cls(trace, throughputs, cluster, entities=entities, colocation=pairs)
        else:
            spread = throughputs.unconsolidated_rates(*keys) if unconsolidated else None
            table = cls(trace, throughputs.rates(*keys), cluster, spread, entities, pairs)
        published = adaptation == "published"
        if training or adaptation != "off":
            from allocator.protocol.training import TrainingLedger

            table.training = TrainingLedger.of_trace(trace, throughputs, cluster, table.rates, published=published)
        if adaptation != "off" and isinstance(throughputs, ThroughputTable):
            from throughputs.training import Course

            # Steps change with the batch size.
            table.total_steps = trace.total_steps.copy()
            table.course = Course(
                trace.job_type,
                trace.scale_factor,
                trace.mode,
                trace.total_steps,
                throughputs,
                cluster.accelerators,
                published=published,
                past_the_end=past_the_end,
            )
        return table

    def append(self, later: JobTable) -> None:
        """Add the jobs of another table of the same cluster, which arrive after all of this one.

        The arrays are replaced by longer ones: whoever keeps one keeps the old. The cost grows with the jobs of both.

        Raises
        ------
        InputError
            A job of `later` arrives before the last one of this table, or only one of them has unconsolidated rates.
        """
        if (self.unconsolidated_rates is None) != (later.unconsolidated_rates is None):
            raise InputError(
                "jobs to append", field="unconsolidated_rates", found="in one table", expected="both or neither"
            )
        if len(self) and len(later) and later.arrival_time[0] < self.arrival_time[-1]:
            raise InputError(
                "jobs to append",
                field="arrival_time",
                found=float(later.arrival_time[0]),
                expected=f"at least the last arrival so far, {self.arrival_time[-1]} s",
            )
        for name in _COLUMNS:
            setattr(self, name, np.concatenate([getattr(self, name), getattr(later, name)]))
        if self.unconsolidated_rates is not None and later.unconsolidated_rates is not None:
            self.unconsolidated_rates = np.concatenate([self.unconsolidated_rates, later.unconsolidated_rates])
        if self.colocation is not None and later.colocation is not None:
            self.colocation = appended(self.colocation, later.colocation)
        if self.training is not None and later.training is not None:
            self.training.append(later.training)
        if self.course is not None and later.course is not None:
            self.course.append(later.course)
        if self.membership is not None:
            entities = self.membership.entities
            self.membership = Membership(entities, entities.positions(self.entity))

    @property
    def believed_together(self) -> NDArray[np.float64]:
        """(G, G, M) steps/s of groups of jobs in pairs, as far as it is known; only with `colocation`."""
        assert self.colocation is not None
        return self.colocation.together if self.believed is None else self.believed.together

    def _known_pairs(self, active: NDArray[np.int64]) -> PackedColumns | None:
        """What is known of the `active` jobs in pairs."""
        if self.colocation is None:
            return None
        return take(self.colocation, active, active.tolist(), self.believed_together)

    def __len__(self) -> int:
        return len(self.total_steps)

    def _partner_positions(self, active: NDArray[np.int64]) -> NDArray[np.int64] | None:
        """(n,) where in `active` the partner of each is, -1 where it has none or the partner is gone."""
        if self.colocation is None or not len(active):
            return None
        partner = self.current_partner[active]
        position = active.searchsorted(partner)
        there = active.take(position, mode="clip") == partner
        return np.where(there, position, -1)

    @property
    def runnable(self) -> NDArray[np.bool_]:
        """(N,) whether any type of the cluster can run the job at all."""
        runnable: NDArray[np.bool_] = np.any(self.rates > 0, axis=1)
        return runnable

    @property
    def steps_remaining(self) -> NDArray[np.float64]:
        """(N,) steps left, at least 0."""
        return np.maximum(self.total_steps - self.steps_done, 0.0)

    def snapshot(
        self,
        active: NDArray[np.int64],
        clock: float,
        cluster: Cluster,
        gpu_prices: NDArray[np.float64] | None = None,
        training: bool = False,
    ) -> ClusterState:
        """What a policy may know at `clock` about the `active` jobs (ascending ids, which become the labels).

        With `training` also how they train, which takes time where jobs have many epochs.
        """
        deadline = self.deadline[active]
        matrix = ThroughputMatrix(
            self.rates[active],
            active.tolist(),
            cluster.accelerators,
            self.scale_factor[active],
            unit="steps/s",
        )
        return ClusterState(
            cluster,
            matrix,
            priority_weights=self.priority_weight[active],
            steps_remaining=np.maximum(self.total_steps[active] - self.steps_done[active], self.least_steps_remaining),
            elapsed_seconds=np.maximum(clock - self.arrival_time[active], 0.0),
            # Steps that are counted in larger batches from one decision to the next can take it below zero.
            isolated_seconds=np.maximum(self.isolated_seconds[active], 0.0),
            current_accelerator=self.current_accelerator[active],
            slo_seconds=np.where(np.isnan(deadline), np.inf, deadline - clock),
            gpu_prices=gpu_prices,
            clock=clock,
            colocation=self._known_pairs(active),
            current_partner=self._partner_positions(active),
            membership=None if self.membership is None else self.membership.take(active),
            training=self.training.view(active) if training and self.training is not None else None,
        )


def _checked_rates(rates: ArrayLike, trace: Trace, cluster: Cluster, name: str) -> NDArray[np.float64]:
    """(N, M) copy with 0 where the gang is larger than the type."""
    n, m = len(trace), len(cluster.accelerators)
    given = np.array(rates, dtype=np.float64)
    if given.size == 0:
        given = given.reshape(n, m) if n * m == 0 else given
    if given.shape != (n, m):
        raise InputError(
            "throughputs",
            field=name,
            found=given.shape,
            expected=f"shape ({n}, {m}) (jobs, accelerators)",
        )
    bad = ~(np.isfinite(given) & (given >= 0))
    if bad.any():
        row, column = np.argwhere(bad)[0]
        raise InputError(
            "throughputs",
            field=f"{name.removesuffix('s')} of job {row} on {cluster.accelerators[column]!r}",
            found=float(given[row, column]),
            expected="a finite rate of at least 0 steps/s",
        )
    return np.where(trace.scale_factor[:, None] <= cluster.capacity[None, :], given, 0.0)


def _deadlines(trace: Trace, rates: NDArray[np.float64], cluster: Cluster) -> NDArray[np.float64]:
    """(N,) seconds on the clock, nan for a job without a deadline."""
    duration = trace.duration
    if np.isnan(duration[~np.isnan(trace.slo)]).any():
        speed = rates.max(axis=1, initial=0.0)
        if REFERENCE_ACCELERATOR in cluster.accelerators:
            reference = rates[:, cluster.accelerators.index(REFERENCE_ACCELERATOR)]
            speed = np.where(reference > 0, reference, speed)
        with np.errstate(divide="ignore"):
            duration = np.where(np.isnan(duration), trace.total_steps / speed, duration)
    return trace.arrival_time + trace.slo * duration
