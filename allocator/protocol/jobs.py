"""The job table: one struct of arrays behind decision core and worlds, with what may be known of the jobs.

Rows are jobs in the order in which they were submitted; a job's id is its number in that order and is never used again.
The world (simulator, runtime) writes the progress, the decision core keeps the ledgers that policies read; a policy
sees neither, only the `ClusterState` of the active jobs. Whoever else keeps something for each job registers a column,
which then grows and shrinks with the table.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from allocator.cluster import Cluster
from allocator.fractions import GpuFractions, taken_of
from allocator.protocol.assignment import Assignment
from allocator.protocol.colocated import appended, of_trace, take, where_allowed
from allocator.protocol.elastic import Throughputs, checked_rates, gang_rates, of_table, rates_by_duration
from allocator.protocol.entities import Entities, Membership
from allocator.protocol.state import ClusterState
from allocator.protocol.training import TrainingLedger
from allocator.protocol.views import Need, Needs, Source
from throughputs import InputError, PackedColumns, ThroughputTable, Trace
from throughputs.arrays import Dates, Flags, Floats, Ints, Texts, Values
from throughputs.configurations import Configurations
from throughputs.deadlines import DeadlineOptions
from throughputs.frames import columns_of
from throughputs.limits import LATEST_TIME, require_all
from throughputs.numerics import quotient

if TYPE_CHECKING:
    from allocator.simulator.goodput.ledger import GoodputLedger
    from throughputs.estimator.believed import BelievedColocation

# The published deadlines are multiples of a job's duration on this type (Gavel, OSDI'20, public artifact).
REFERENCE_ACCELERATOR = "v100"


def deadlines_of(trace: Trace, rates: Floats, cluster: Cluster) -> Floats:
    """(N,) seconds on the clock, nan for a job without a deadline."""
    duration = trace.duration
    if np.isnan(duration[~np.isnan(trace.slo)]).any():
        speed = rates.max(axis=1, initial=0.0)
        if REFERENCE_ACCELERATOR in cluster.accelerators:
            reference = rates[:, cluster.accelerators.index(REFERENCE_ACCELERATOR)]
            speed = np.where(reference > 0, reference, speed)
        with np.errstate(divide="ignore"):
            duration = np.where(np.isnan(duration), trace.total_steps / speed, duration)
    due = trace.arrival_time + trace.slo * duration
    expected = f"a multiple by which the job is due by {LATEST_TIME:g} s"
    good = ~(np.isfinite(duration) & (due > LATEST_TIME))
    require_all(good, trace.slo, trace.source, lambda job: f"slo of job {job}", expected)
    return np.where(np.isnan(trace.deadline), due, trace.deadline)


def options_of(trace: Trace, deadline: Floats) -> DeadlineOptions:
    """Those of the trace; of the `deadline` (N,) alone for a job without."""
    if not trace.deadline_options.astype(bool).any():
        return DeadlineOptions.of_deadlines(deadline)
    rows = zip(trace.deadline_options, deadline.tolist(), strict=True)
    return DeadlineOptions.of_rows([row or (((at, 1.0),) if np.isfinite(at) else ()) for row, at in rows])


# What the world and the decision core write, as it is for a new job. The other columns are as in a trace.
_WRITTEN = {
    "steps_done": 0.0,
    "completion_time": np.nan,
    "isolated_seconds": 0.0,
    "current_accelerator": -1,
    "current_partner": -1,
}


class Speeds(NamedTuple):
    """What follows from the `rates` (N, M) of jobs.

    Attributes
    ----------
    fastest : (N,) steps/s on the type on which the job is fastest.
    own : (N,) position of the only type that can run it, -1 where none can; None where some jobs can choose.
    """

    rates: Floats
    fastest: Floats
    own: Ints | None

    @classmethod
    def of(cls, rates: Floats) -> Speeds:
        """Of such rates."""
        able = rates > 0
        count = np.count_nonzero(able, axis=1)
        own = np.where(count > 0, able.argmax(axis=1), -1) if count.max(initial=0) < 2 and rates.shape[1] > 1 else None
        return cls(rates, rates.max(axis=1, initial=0.0), own)


class JobTable:
    """N jobs on the M accelerator types of a cluster, as a struct of arrays.

    Parameters
    ----------
    submitted : columns of the jobs as they were submitted, in the order of their arrival, each as in a `Trace`:
        job_type, scale_factor, total_steps and arrival_time; the others may be left out.
    rates : (N, M) steps/s of each job's own gang on each type of `cluster`; 0 where it cannot run.
    cluster : the cluster. A gang larger than all GPUs of a type can never run there: its rate is set to 0.
    entities : the entities that the jobs may name; None: what they name is ignored.
    deadline_options : the deadlines of each job with their values; None: `deadline` alone, worth 1.
    fractions : what the jobs ask for of each of their GPUs; None: all of them have their GPUs whole.
    colocation : what the jobs do in pairs, for policies that pack; None: not known.
    training : how the jobs train, epoch by epoch; None: not known.
    configurations : throughput by number of GPUs; None: not known.
    source : where the jobs came from, for messages.

    Attributes
    ----------
    ids : (N,) ids of the rows, ascending.
    job_type, scale_factor, priority_weight, total_steps, arrival_time, entity, user, partition, gpu_type,
    gpu_utilization, recorded_status, trace_id, arrival_date : (N,) as in the trace; times in seconds. Steps change with
        the batch size.
    deadline : (N,) seconds on the clock; nan for a job without.
    predicted_seconds : (N,) the prediction; where there is none the length of the job on its fastest type, 0 where none
        can run it.
    rates : (N, M) steps/s, as measured or profiled.
    membership : entities and whose each job is, or None; jobs in entities rank by their position.
    steps_done : (N,) steps trained so far; written by the world.
    completion_time : (N,) seconds, nan until the job completes; written by the world.
    isolated_seconds : (N,) seconds the steps done so far would have taken on isolated shares of the cluster, as they
        were when the policy was asked (Gavel, OSDI'20, sec. 4.2); written by the decision core.
    current_accelerator : (N,) type given by a policy that does not preempt, -1 for none; written by the decision core.
    current_partner : (N,) job with which the last decision made it share GPUs, -1 for none; written by the decision
        core.
    believed : what is believed of pairs of jobs instead of `colocation`, until they have run; None: it is known.
    least_steps_remaining : what policies are told that an active job has left at least; above 0 in a world that does
        not notice at once when a job is through.
    goodput : what is known of jobs whose goodput changes as they train; None: no jobs of this kind. Steps are then
        progress, and `configurations` follow from it.
    columns : further arrays, one row per job, by name (`register`).

    Raises
    ------
    InputError
        `rates` has the wrong shape, or an entry is negative or not finite; or a job names an unknown entity.
    """

    job_type: Texts
    scale_factor: Ints
    priority_weight: Floats
    total_steps: Floats
    arrival_time: Floats
    deadline: Floats
    predicted_seconds: Floats
    entity: Texts
    user: Texts
    partition: Texts
    gpu_type: Texts
    gpu_utilization: Floats
    recorded_status: Texts
    trace_id: Texts
    arrival_date: Dates
    rates: Floats
    steps_done: Floats
    completion_time: Floats
    isolated_seconds: Floats
    current_accelerator: Ints
    current_partner: Ints

    def __init__(
        self,
        submitted: Mapping[str, Any],
        rates: ArrayLike,
        cluster: Cluster,
        *,
        entities: Entities | None = None,
        deadline_options: DeadlineOptions | None = None,
        fractions: GpuFractions | None = None,
        colocation: PackedColumns | None = None,
        training: TrainingLedger | None = None,
        configurations: Configurations | None = None,
        source: str = "jobs",
    ) -> None:
        n = len(submitted["job_type"])
        self.ids = np.arange(n)
        for name in _SUBMITTED:
            setattr(self, name, columns_of(Trace)[name].array(submitted.get(name), n))
        for name, fill in _WRITTEN.items():
            setattr(self, name, np.full(n, fill))
        self.rates = checked_rates(rates, self, cluster, "rates")
        length = quotient(self.total_steps, self.rates.max(axis=1, initial=0.0), 0.0)
        self.predicted_seconds = np.where(np.isnan(self.predicted_seconds), length, self.predicted_seconds)
        self.membership = None if entities is None else Membership(entities, entities.positions(self.entity, source))
        if deadline_options is None:
            deadline_options = DeadlineOptions.of_deadlines(self.deadline)
        self.deadline_options = deadline_options
        self.fractions = fractions
        self.colocation = colocation
        self.believed: BelievedColocation | None = None
        self.training = training
        self.configurations = configurations
        self.goodput: GoodputLedger | None = None
        self.least_steps_remaining = 0.0
        self._speeds: Speeds | None = None
        self.columns: dict[str, Values] = {}
        self._fill: dict[str, Any] = {}
        self.told: list[str] = []
        self._submitted = n
        self._whole = True

    @classmethod
    def from_trace(
        cls,
        trace: Trace,
        throughputs: Throughputs,
        cluster: Cluster,
        *,
        needs: Needs = Need.NOTHING,
        entities: Entities | None = None,
        published_profiles: bool = False,
        by_duration: bool = False,
    ) -> JobTable:
        """Table of the jobs of `trace`, with rates looked up in a throughput table or given as an (N, M) array.

        Pairs of jobs, rates by number of GPUs and how jobs train are looked up only where `needs` says so. Figures for
        pairs are in a table with co-location, or in `PackedColumns` of these jobs; those by number of GPUs in a table,
        or in `Configurations` of these jobs; `published_profiles` as in `throughputs.training.profile_trace`. With
        `by_duration` the gangs go at the speed that the durations of the trace say.

        A deadline is that of the trace, or arrival_time + slo * duration. A duration that the trace does not tell is
        that of the steps of the job on v100 if the cluster has it and the job runs there, else on its fastest type.
        """
        gangs = rates_by_duration(trace, cluster) if by_duration else gang_rates(trace, throughputs, cluster)
        pairs = of_trace(trace, throughputs, cluster, gangs) if Need.COLOCATION in needs else None
        if isinstance(throughputs, PackedColumns):
            throughputs = throughputs.rates
        rates = checked_rates(gangs, trace, cluster, "rates")
        training = None
        if Need.TRAINING in needs:
            source = throughputs if isinstance(throughputs, ThroughputTable) else None
            training = TrainingLedger.of_trace(trace, source, cluster, rates, published=published_profiles)
        deadline = deadlines_of(trace, rates, cluster)
        return cls(
            {name: getattr(trace, name) for name in _SUBMITTED} | {"deadline": deadline},
            rates,
            cluster,
            entities=entities,
            deadline_options=options_of(trace, deadline),
            fractions=GpuFractions.of_trace(trace),
            colocation=pairs,
            training=training,
            configurations=of_table(trace, throughputs, cluster) if Need.CONFIGURATIONS in needs else None,
            source=trace.source,
        )

    def __len__(self) -> int:
        return len(self.ids)

    def register(self, name: str, fill: float | int | bool, *, told: bool = False) -> None:
        """Keep a column for somebody, ``columns[name]``; new jobs begin with `fill`, which also says its type.

        `told` : whether the table of jobs of the results has it.
        """
        if told and name not in self.told:
            self.told.append(name)
        self._fill[name] = fill
        self.columns[name] = np.full(len(self), fill)

    def rows(self, ids: Ints) -> Ints:
        """Where the jobs with these ids are in the arrays."""
        return ids if self._whole else np.asarray(self.ids.searchsorted(ids))

    def has(self, ids: Ints) -> Flags:
        """(K,) which of the jobs that were ever submitted are still in the table."""
        return np.ones(len(ids), dtype=np.bool_) if self._whole else np.isin(ids, self.ids)

    def submit(self, later: JobTable) -> Ints:
        """Add the jobs of another table of the same cluster, which arrive after all of this one; returns their ids.

        The arrays are replaced by longer ones: whoever keeps one keeps the old. The cost grows with the jobs of both.

        Raises
        ------
        InputError
            A job of `later` arrives before the last one of this table, or is the first to ask for a fraction of a GPU.
        """
        if later.fractions is not None and self.fractions is None:
            later.fractions.check(later.scale_factor, "no job before it shares its GPU")
        if len(self) and len(later) and later.arrival_time[0] < self.arrival_time[-1]:
            raise InputError(
                "jobs to submit",
                field="arrival_time",
                found=float(later.arrival_time[0]),
                expected=f"at least the last arrival so far, {self.arrival_time[-1]} s",
            )
        new = self._submitted + np.arange(len(later))
        self._submitted += len(later)
        self._set_ids(np.concatenate([self.ids, new]))
        for name in _COLUMNS:
            setattr(self, name, np.concatenate([getattr(self, name), getattr(later, name)]))
        for name, column in self.columns.items():
            self.columns[name] = np.concatenate([column, np.full(len(later), self._fill[name])])
        if self.fractions is not None:
            self.fractions = self.fractions.joined(later.fractions, len(later))
        if self.colocation is not None and later.colocation is not None:
            self.colocation = appended(self.colocation, later.colocation)
        if self.configurations is not None and later.configurations is not None:
            self.configurations = self.configurations.joined(later.configurations)
        self.deadline_options = self.deadline_options.joined(later.deadline_options)
        if self.training is not None and later.training is not None:
            self.training.append(later.training)
        if self.goodput is not None and later.goodput is not None:
            self.goodput.append(later.goodput)
        self._rank_members()
        return new

    def retire(self, ids: ArrayLike) -> None:
        """Forget jobs that are gone for good; the ids of the others stay what they are.

        Raises
        ------
        InputError
            An id that the table does not have.
        """
        gone = np.asarray(ids, dtype=np.int64)
        known = np.isin(gone, self.ids)
        if not known.all():
            raise InputError("jobs to retire", found=gone[~known].tolist(), expected="ids of jobs in the table")
        kept = np.flatnonzero(~np.isin(self.ids, gone))
        self._set_ids(self.ids[kept])
        for name in _COLUMNS:
            setattr(self, name, getattr(self, name)[kept])
        for name, column in self.columns.items():
            self.columns[name] = column[kept]
        if self.fractions is not None:
            self.fractions = self.fractions.take(kept)
        if self.colocation is not None:
            self.colocation = take(self.colocation, kept, range(len(kept)), all_groups=True)
        if self.configurations is not None:
            self.configurations = self.configurations.of(kept)
        self.deadline_options = self.deadline_options.take(kept)
        if self.training is not None:
            self.training.keep(kept)
        self._rank_members()

    @property
    def next_id(self) -> int:
        """The id of the next job that is submitted."""
        return self._submitted

    def renumber(self, ids: ArrayLike, next_id: int) -> Ints:
        """Give the jobs the `ids`, ascending, that they had in a table from which this one goes on; returns them.

        The next job that is submitted gets `next_id`, which is above all of them.
        """
        given = np.asarray(ids, dtype=np.int64)
        self._set_ids(given)
        self._whole, self._submitted = bool((given == np.arange(len(given))).all()), int(next_id)
        return given

    def _set_ids(self, ids: Ints) -> None:
        # As long as nobody was retired, an id is the position of its row.
        self.ids, self._whole = ids, len(ids) == 0 or int(ids[-1]) == len(ids) - 1

    def _rank_members(self) -> None:
        if self.membership is not None:
            entities = self.membership.entities
            self.membership = Membership(entities, entities.positions(self.entity))

    @property
    def colocation_group(self) -> Ints | None:
        """(N,) which jobs behave alike in pairs, by number of their group; None: nothing is known of pairs."""
        return None if self.colocation is None else self.colocation.group

    @property
    def believed_together(self) -> Floats:
        """(G, G, M) steps/s of groups of jobs in pairs, as far as it is known; only with `colocation`."""
        assert self.colocation is not None
        return self.colocation.together if self.believed is None else self.believed.together

    def measure_together(self, one: Ints, other: Ints, accelerator: Ints) -> bool:
        """Jobs `one` and `other` (K,) shared GPUs of `accelerator` (K,): what they do is known from now on.

        Answers whether that changes what was believed.
        """
        if self.believed is None or self.colocation is None:
            return False
        group = self.colocation.group
        return self.believed.measure(group[self.rows(one)], group[self.rows(other)], accelerator)

    def note_partners(self, active: Ints, first: Ints, second: Ints) -> None:
        """Keep which of the `active` jobs share, by pairs of positions; with several partners, whichever comes last."""
        at, partner = self.rows(active), self.current_partner
        partner[at] = -1
        partner[at[first]] = active[second]
        partner[at[second]] = active[first]

    def known_pairs(self, active: Ints) -> PackedColumns | None:
        """What is known of the `active` jobs in pairs."""
        if self.colocation is None:
            return None
        rows = self.rows(active)
        columns = take(self.colocation, rows, active.tolist(), self.believed_together)
        return where_allowed(columns, self.rates[rows] > 0)

    @property
    def speeds(self) -> Speeds:
        """What follows from the rates."""
        if self._speeds is None or self._speeds.rates is not self.rates:
            self._speeds = Speeds.of(self.rates)
        return self._speeds

    def rates_changed(self) -> None:
        """Some of the `rates` have been written anew."""
        self._speeds = None

    @property
    def runnable(self) -> Flags:
        """(N,) whether any type of the cluster can run the job at all."""
        runnable: Flags = np.any(self.rates > 0, axis=1)
        return runnable

    @property
    def gpus_taken(self) -> Values:
        """(N,) GPUs that each job takes when it runs: its scale factor, less where it asks for a fraction."""
        return taken_of(self.scale_factor, None if self.fractions is None else self.fractions.thousandths)

    def with_fractions(self, rows: Assignment) -> Assignment:
        """The `rows`, whose jobs are ids, with the fractions that they ask for."""
        if self.fractions is None:
            return rows
        return rows.with_fractions(self.fractions.thousandths.take(self.rows(rows.jobs)))

    @property
    def steps_remaining(self) -> Floats:
        """(N,) steps left, at least 0."""
        return np.maximum(self.total_steps - self.steps_done, 0.0)

    def state(self) -> dict[str, Any]:
        """What a checkpoint keeps: all that changes after a job was submitted."""
        return {
            "progress": {name: getattr(self, name) for name in ("rates", "total_steps", *_WRITTEN)},
            "columns": self.columns,
            "training": None if self.training is None else self.training.state(),
            "believed": None if self.believed is None else self.believed.state(),
            "goodput": None if self.goodput is None else self.goodput.state(),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from `state`, with a table of the same jobs."""
        for name, values in state["progress"].items():
            setattr(self, name, values)
        self.columns.update(state["columns"])
        if self.training is not None:
            self.training.restore(state["training"])
        if self.believed is not None:
            self.believed.restore(state["believed"])
        if self.goodput is not None:
            self.goodput.restore(state["goodput"])

    def snapshot(
        self,
        active: Ints,
        clock: float,
        cluster: Cluster,
        needs: Needs = Need.ISOLATED_TIME,
        running: Assignment | None = None,
        **given: Any,
    ) -> ClusterState:
        """What a policy may know at `clock` about the `active` jobs (ascending ids, which become the labels).

        Those who are `running` are among them.
        Views are read when the policy asks for them, and must be read before the table changes; those that the table
        does not have are `given`.
        """
        source = Source(self, active, self.rows(active), running)
        return ClusterState.made_of(cluster, clock, active, needs, source, given)


_COLUMNS = tuple(JobTable.__annotations__)
"""Arrays with a row for each job that every table has."""

_SUBMITTED = tuple(name for name in _COLUMNS if name != "rates" and name not in _WRITTEN)
