"""The cluster as a policy sees it: columns over the active jobs, and views that only some policies need."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from allocator.cluster import Cluster
from allocator.fractions import WHOLE, Held, RoomForFractions, SummedFractions, taken_of
from allocator.protocol.assignment import Assignment
from allocator.protocol.colocated import take, without_sharing
from allocator.protocol.policy import Need
from allocator.room import CountedGpus, Room
from throughputs import InputError, PackedColumns, ThroughputMatrix
from throughputs.numerics import quotient

if TYPE_CHECKING:
    import pandas as pd

    from allocator.protocol.entities import Membership
    from allocator.protocol.plan import UpcomingRounds
    from allocator.protocol.training import TrainingView
    from throughputs.configurations import Configurations
    from throughputs.deadlines import DeadlineOptions


@dataclass(frozen=True)
class _Column:
    """One number for each job (or pool): its default and what it may be."""

    default: float
    least: float = 0.0
    above: bool = False
    finite: bool = True
    whole: bool = False
    per_pool: bool = False

    def checked(self, name: str, values: Any, n: int, labels: Callable[[int], object]) -> NDArray[Any]:
        """The column as an array; InputError where it is none of `n` permitted numbers."""
        array: NDArray[Any] = np.asarray(values, dtype=np.int64 if self.whole else np.float64)
        if array.shape != (n,):
            raise InputError("cluster state", field=name, found=array.shape, expected=f"shape ({n},)")
        good = (array > self.least) if self.above else (array >= self.least)
        if self.finite:
            good &= np.isfinite(array)
        if not good.all():
            worst = int(np.argmin(good))
            bound = "positive" if self.above else f"at least {self.least:g}"
            where = f"{name} of {labels(worst)}"
            found = array[worst].item()
            raise InputError("cluster state", field=where, found=found, expected=bound)
        return array


_COLUMNS = {
    "priority_weights": _Column(1.0, above=True),
    "steps_remaining": _Column(1.0),
    "elapsed_seconds": _Column(0.0),
    "isolated_seconds": _Column(0.0),
    "current_accelerator": _Column(-1, least=-1, whole=True),
    "slo_seconds": _Column(np.inf, least=-np.inf, finite=False),
    "deadlines": _Column(np.inf, least=-np.inf, finite=False),
    "current_partner": _Column(-1, least=-1, whole=True),
    "gpu_prices": _Column(1.0, per_pool=True),
    "run_seconds": _Column(0.0),
    "gpu_seconds": _Column(0.0),
    "lost_seconds": _Column(0.0),
    "starting_seconds": _Column(0.0),
    "predicted_seconds": _Column(0.0),
}

_NEEDED = {
    "colocation": Need.COLOCATION,
    "packed": Need.COLOCATION,
    "training": Need.TRAINING,
    "configurations": Need.CONFIGURATIONS,
    "deadline_options": Need.DEADLINE_OPTIONS,
    "run_seconds": Need.SERVICE,
    "gpu_seconds": Need.SERVICE,
    "predicted_seconds": Need.PREDICTIONS,
    "isolated_seconds": Need.ISOLATED_TIME,
}
"""What a policy must declare to read it."""


class ClusterState:
    """Everything a policy may know at one instant about the N active jobs, ids ascending.

    Parameters
    ----------
    cluster : the cluster, in any form that `Cluster.of` takes; its types are the columns of `throughputs`.
    throughputs : (N, M) steps/s of each job's own gang, with scale factors; its labels are the job ids. In any form
        that `ThroughputMatrix.of` takes.
    clock : seconds since the start.
    columns : any of the columns and views below; what is missing takes its default.

    Attributes
    ----------
    n_jobs, rates, scale_factors : N, (N, M) steps/s and (N,) GPUs per gang, as in `throughputs`.
    priority_weights : (N,) weight of each job, 1 for an ordinary one.
    steps_remaining : (N,) training steps left.
    elapsed_seconds : (N,) seconds since the job arrived.
    isolated_seconds : (N,) seconds that the steps already done would have taken on an isolated share of the
        cluster, as it was when they were done (finish-time fairness; `Need.ISOLATED_TIME`).
    current_accelerator : (N,) type the job was last given by a policy that does not preempt, -1 for none.
    slo_seconds : (N,) seconds left to the job's deadline, below 0 when it is past; inf for a job without one.
    deadlines : (N,) the same on the clock, seconds, exactly as the trace has it; of the two, one is enough to build a
        state. With several deadlines it is the first.
    deadline_options : all deadlines of the jobs with their values (`Need.DEADLINE_OPTIONS`); None where they are not
        known.
    current_partner : (N,) position of the job that shared GPUs with this one by the last decision, -1 for none.
    run_seconds, gpu_seconds : (N,) seconds that the job has trained, and these times its GPUs (attained service;
        `Need.SERVICE`).
    lost_seconds : (N,) seconds that the last decision cost the job before it trained, where a simulator charges
        decisions (`overhead` in its settings); zeros otherwise. Who expects a job to end at an instant is that late.
    starting_seconds : (N,) seconds until a job that runs begins to train, where starts take time.
    gpu_thousandths : (N,) what each job asks for of each of its GPUs; None where all jobs have their GPUs whole, as
        they do under policies that are not `Policy.gpu_fractions`.
    gpu_prices : (M,) dollars per GPU hour of each type now; ones where prices are not known.
    running : who runs as what at this moment, jobs as positions; nobody where nothing has been decided yet.
    colocation : what the jobs do when two of them share GPUs (`Need.COLOCATION`); None where it is not known. The
        same jobs and types as `throughputs`.
    job_types : (N,) names of the job types; None where they are not known.
    membership : the entities, and which of them each job belongs to; None: no entities.
    configurations : throughput of the jobs by number of GPUs (`Need.CONFIGURATIONS`); None where it is not known.
    training : how the jobs train, epoch by epoch (`Need.TRAINING`); None where it is not known.
    more_arrivals : whether jobs are still expected to arrive.
    rates_version : another number whenever rates of jobs have changed since the last decision.
    restart_seconds : what it takes a gang to start at most, as far as the world tells; 0: nothing, or it does not.
    slot_seconds : decisions are at least so many seconds apart; 0: the world looks at everything at once.
    upcoming : the rounds that a planner is about to fill; None outside a run in rounds.
    predicted_seconds : (N,) how long each job was predicted to run on its GPUs when it was submitted; its true length
        on its fastest type where nothing was predicted (`Need.PREDICTIONS`).
    ids : (N,) numbers of the jobs, ascending and never used again; positions where a state stands for itself.
    needs : what the policy declares that the state is for: to read a view that needs more is an AttributeError that
        names what is missing. None, as in a state made by hand: everything may be read.
    room_source : gives the room that `room` answers with; None: by the number of GPUs that nobody of `running` has.

    Raises
    ------
    InputError
        The accelerator types of cluster and matrix differ, or a column has the wrong shape or an impossible value.

    >>> from throughputs import ThroughputMatrix
    >>> matrix = ThroughputMatrix([[4.0, 1.0], [2.0, 1.0]], jobs=["resnet", "lstm"], accelerators=["v100", "k80"])
    >>> state = ClusterState(Cluster({"v100": 1, "k80": 1}), matrix, steps_remaining=[100.0, 50.0])
    >>> state.n_jobs, state.steps_remaining.tolist(), state.deadlines.tolist()
    (2, [100.0, 50.0], [inf, inf])
    """

    cluster: Cluster
    clock: float
    throughputs: ThroughputMatrix
    n_jobs: int
    rates: NDArray[np.float64]
    scale_factors: NDArray[np.int64]
    priority_weights: NDArray[np.float64]
    steps_remaining: NDArray[np.float64]
    elapsed_seconds: NDArray[np.float64]
    isolated_seconds: NDArray[np.float64]
    current_accelerator: NDArray[np.int64]
    slo_seconds: NDArray[np.float64]
    deadlines: NDArray[np.float64]
    current_partner: NDArray[np.int64]
    gpu_thousandths: NDArray[np.int64] | None
    gpu_prices: NDArray[np.float64]
    run_seconds: NDArray[np.float64]
    gpu_seconds: NDArray[np.float64]
    lost_seconds: NDArray[np.float64]
    starting_seconds: NDArray[np.float64]
    predicted_seconds: NDArray[np.float64]
    ids: NDArray[np.int64]
    running: Assignment
    colocation: PackedColumns | None
    job_types: NDArray[np.object_] | None
    membership: Membership | None
    configurations: Configurations | None
    deadline_options: DeadlineOptions | None
    training: TrainingView | None
    more_arrivals: bool
    rates_version: int
    restart_seconds: float
    slot_seconds: float
    upcoming: UpcomingRounds | None
    room_source: Callable[[], Room] | None
    needs: Need | None = None

    def __init__(
        self,
        cluster: Cluster | str | Mapping[str, int],
        throughputs: ThroughputMatrix | pd.DataFrame | Mapping[str, Any],
        *,
        clock: float = 0.0,
        gpu_thousandths: NDArray[np.int64] | None = None,
        colocation: PackedColumns | None = None,
        job_types: NDArray[np.object_] | None = None,
        membership: Membership | None = None,
        configurations: Configurations | None = None,
        deadline_options: DeadlineOptions | None = None,
        training: TrainingView | None = None,
        running: Assignment | None = None,
        more_arrivals: bool = True,
        rates_version: int = 0,
        slot_seconds: float = 0.0,
        restart_seconds: float = 0.0,
        upcoming: UpcomingRounds | None = None,
        **columns: Any,
    ) -> None:
        cluster, throughputs = Cluster.of(cluster), ThroughputMatrix.of(throughputs)
        if throughputs.accelerators != cluster.accelerators:
            expected = f"the types of the cluster, {cluster.accelerators}"
            raise InputError("cluster state", field="accelerators", found=throughputs.accelerators, expected=expected)
        self.cluster, self.throughputs, self.clock = cluster, throughputs, clock
        self.n_jobs, self.rates, self.scale_factors = throughputs.n_jobs, throughputs.rates, throughputs.scale_factors
        self.gpu_thousandths = gpu_thousandths
        self.colocation, self.membership, self.training = colocation, membership, training
        self.configurations, self.deadline_options = configurations, deadline_options
        self.job_types = job_types
        self.running = Assignment.none() if running is None else running
        self.more_arrivals, self.slot_seconds = more_arrivals, slot_seconds
        self.restart_seconds = restart_seconds
        self.rates_version = rates_version
        self.upcoming, self.room_source = upcoming, None
        self.ids = np.arange(self.n_jobs)
        self._set_columns(_with_both_deadlines(columns, clock))
        self._check_views()

    def _set_columns(self, given: dict[str, Any]) -> None:
        unknown = next((name for name in given if name not in _COLUMNS), None)
        if unknown is not None:
            raise InputError("cluster state", field=unknown, found="an unknown column", expected=", ".join(_COLUMNS))
        n, jobs, pools = self.n_jobs, self.throughputs.jobs, self.cluster.accelerators
        for name, column in _COLUMNS.items():
            count = len(pools) if column.per_pool else n
            values = given.get(name)
            if values is None:
                values = np.full(count, column.default)
            labels = pools.__getitem__ if column.per_pool else (lambda i: f"job {jobs[i]!r}")
            setattr(self, name, column.checked(name, values, count, labels))
        if given.get("predicted_seconds") is None:
            self.predicted_seconds = quotient(self.steps_remaining, self.rates.max(axis=1, initial=0.0), 0.0)
        if (self.current_partner >= n).any():
            raise InputError(
                "cluster state", field="current_partner", found=self.current_partner, expected=f"below {n}"
            )

    def _check_views(self) -> None:
        """Raise InputError where a view is of other jobs than the throughputs."""
        n, matrix = self.n_jobs, self.throughputs
        columns, training = self.known("colocation"), self.known("training")
        if columns is not None and (columns.jobs, columns.accelerators) != (matrix.jobs, matrix.accelerators):
            found = f"{columns.n_jobs} jobs on {columns.accelerators}"
            expected = f"the {n} jobs and the types of the throughputs, in the same order"
            raise InputError("cluster state", field="colocation", found=found, expected=expected)
        for name, of_jobs in (
            ("gpu_thousandths", self.gpu_thousandths),
            ("job_types", self.job_types),
            ("membership", None if self.membership is None else self.membership.of_job),
            ("training", None if training is None else training.rows),
            ("configurations", getattr(self.known("configurations"), "jobs", None)),
            ("deadline_options", self.known("deadline_options")),
        ):
            if of_jobs is not None and len(of_jobs) != n:
                raise InputError("cluster state", field=name, found=f"{len(of_jobs)} jobs", expected=f"{n} jobs")

    @classmethod
    def on_demand(
        cls,
        cluster: Cluster,
        clock: float,
        ids: NDArray[np.int64],
        sources: Mapping[str, Callable[[Any, ClusterState], Any]],
        behind: Any,
        gpu_thousandths: NDArray[np.int64] | None = None,
    ) -> ClusterState:
        """A state of the jobs `ids` whose columns and views are read when a policy first asks for them.

        Each of the `sources` is called with what is `behind` the state, and the state.
        """
        state = cls.__new__(cls)
        state.__dict__.update(
            cluster=cluster,
            clock=clock,
            ids=ids,
            n_jobs=len(ids),
            upcoming=None,
            more_arrivals=True,
            rates_version=0,
            slot_seconds=0.0,
            restart_seconds=0.0,
            room_source=None,
            gpu_thousandths=gpu_thousandths,
            needs=behind.needs,
            _sources=sources,
            _behind=behind,
        )
        return state

    def __getattr__(self, name: str) -> Any:
        # Only called for what is not there yet: a column that is read on demand, or what may not be read.
        if not self._may_read(name):
            need = f"needs = Need.{_NEEDED[name].name}"
            raise AttributeError(f"state.{name} is known to policies only that declare it: {need} in the class")
        source = self.__dict__.get("_sources", {}).get(name)
        if source is None:
            raise AttributeError(f"this ClusterState has no {name!r}")
        value = self.__dict__[name] = source(self.__dict__["_behind"], self)
        return value

    def _may_read(self, name: str) -> bool:
        return self.needs is None or _NEEDED.get(name, Need.NOTHING) in self.needs

    def known(self, name: str) -> Any:
        """The column or view of this name; None where it may not be read."""
        return getattr(self, name) if self._may_read(name) else None

    def declared(self, needs: Need | None) -> ClusterState:
        """The same state for a policy that declares these `needs`."""
        state = copy(self)
        state.needs = needs
        for name in _NEEDED:
            if not state._may_read(name):
                state.__dict__.pop(name, None)
        return state

    def settle(self) -> None:
        """Read now whatever was to be read on demand: what is behind it is about to change."""
        sources = self.__dict__.get("_sources", {})
        for name in sources:
            self.known(name)
        self.close()

    def close(self) -> None:
        """Nothing more can be read on demand."""
        self.__dict__.update(_sources={}, _behind=None)

    def room(self) -> Room:
        """The GPUs that are free now, to try gangs on: what the placement in force has room for."""
        if self.room_source is not None:
            return self.room_source()
        rows = self.running
        free = (self.capacity - rows.gpus_used(len(self.capacity))).tolist()
        if rows.thousandths is not None or self.gpu_thousandths is not None:
            return self._room_in_sum(free)
        held = {
            job: (pool, tuple(range(gpus)))
            for job, pool, gpus in zip(rows.jobs.tolist(), rows.pool.tolist(), rows.gpus.tolist(), strict=True)
        }
        return Room(lambda pool: CountedGpus(free[pool]), held.__getitem__)

    def _room_in_sum(self, free: list[float]) -> RoomForFractions:
        """The room where jobs share GPUs in fractions, and it is not known which of them are on which GPU."""
        rows = self.running
        parts = np.full(len(rows), WHOLE) if rows.thousandths is None else rows.thousandths
        columns = (rows.jobs, rows.pool, rows.gpus, parts)
        held = {
            job: Held(pool, tuple(range(gpus)), thousandths=part)
            for job, pool, gpus, part in zip(*(column.tolist() for column in columns), strict=True)
        }
        return RoomForFractions(lambda pool: SummedFractions(free[pool]), held.__getitem__)

    def columns_of(self, jobs: NDArray[np.int64]) -> ClusterState:
        """The state of some jobs (positions, ascending), for their columns alone: nobody runs or shares in it.

        Of a state that is read on demand, nothing is read of other jobs.
        """
        behind = self.__dict__.get("_behind")
        if behind is None:
            part = self.subset(jobs)
            part.ids = self.ids[jobs]
            return part
        ids, parts = self.ids.take(jobs), None if self.gpu_thousandths is None else self.gpu_thousandths.take(jobs)
        part = self.on_demand(self.cluster, self.clock, ids, self.__dict__["_sources"], behind.of(jobs), parts)
        part.rates_version = self.rates_version
        return part

    def subset(self, jobs: NDArray[np.intp]) -> ClusterState:
        """The same state with some of its jobs only (positions)."""
        matrix = self.throughputs
        part = ThroughputMatrix(
            matrix.rates[jobs],
            [matrix.jobs[i] for i in jobs],
            matrix.accelerators,
            matrix.scale_factors[jobs],
            matrix.unit,
        )
        columns = {
            name: getattr(self, name) if column.per_pool else getattr(self, name)[jobs]
            for name, column in _COLUMNS.items()
            if self._may_read(name)
        }
        colocation, configurations, options, training = map(
            self.known, ("colocation", "configurations", "deadline_options", "training")
        )
        position = np.full(self.n_jobs + 1, -1, dtype=np.int64)
        position[jobs] = np.arange(len(jobs))
        columns["current_partner"] = position[self.current_partner[jobs]]
        running = self.running.take(position[self.running.jobs] >= 0)
        running = replace(running, jobs=position[running.jobs], partner=position[running.partner])
        return ClusterState(
            self.cluster,
            part,
            clock=self.clock,
            gpu_thousandths=None if self.gpu_thousandths is None else self.gpu_thousandths[jobs],
            colocation=None if colocation is None else take(colocation, jobs),
            job_types=None if self.job_types is None else self.job_types[jobs],
            membership=None if self.membership is None else self.membership.take(jobs),
            configurations=None if configurations is None else configurations.of(jobs),
            deadline_options=None if options is None else options.take(jobs),
            training=None if training is None else training.take(jobs),
            running=running,
            more_arrivals=self.more_arrivals,
            rates_version=self.rates_version,
            slot_seconds=self.slot_seconds,
            restart_seconds=self.restart_seconds,
            upcoming=self.upcoming,
            **columns,
        ).declared(self.needs)

    def with_throughputs(self, throughputs: ThroughputMatrix, colocation: PackedColumns | None = None) -> ClusterState:
        """The same state with other throughputs of the same jobs, alone and in pairs (None: those are not known).

        Raises
        ------
        InputError
            `colocation` is of other jobs or types than `throughputs`.
        """
        self.settle()
        state = copy(self)
        state.__dict__.pop("packed", None)
        state.throughputs, state.rates, state.scale_factors = throughputs, throughputs.rates, throughputs.scale_factors
        state.colocation = colocation
        if colocation is None and not state._may_read("colocation"):
            del state.colocation
        state._check_views()
        return state

    @cached_property
    def packed(self) -> PackedColumns:
        """What the jobs do alone and in pairs; where `colocation` is not known no two of them share."""
        matrix = self.throughputs
        if self.colocation is not None:
            return self.colocation
        return without_sharing(matrix.rates, matrix.scale_factors, matrix.jobs, matrix.accelerators)

    def rates_by_gpus(self, jobs: NDArray[np.int64], pool: int) -> list[dict[int, float]] | None:
        """(K,) throughput of jobs (positions) alone in a pool by number of GPUs, steps/s; None where not known.

        Of a state that is read on demand, nothing is read of other jobs.
        """
        known, rows = self._known_configurations(jobs)
        return None if known is None else [known.rates_by_gpus(row, pool) for row in rows.tolist()]

    def rates_at(
        self, jobs: NDArray[np.int64], pool: NDArray[np.int64], gpus: NDArray[np.int64]
    ) -> NDArray[np.float64] | None:
        """(K,) throughput of jobs (positions) alone on so many GPUs, steps/s; None where that is not known."""
        known, rows = self._known_configurations(jobs)
        return None if known is None else known.rates_at(rows, pool, gpus)

    def _known_configurations(self, jobs: NDArray[np.int64]) -> tuple[Configurations | None, NDArray[np.int64]]:
        """Configurations, and where the jobs (K positions) are in them."""
        behind = self.__dict__.get("_behind")
        read = "configurations" in self.__dict__ or not self._may_read("configurations")
        if behind is None or read or behind.table.goodput is not None:
            return self.configurations, jobs
        return behind.table.configurations, behind.at.take(jobs)

    @property
    def runnable_rates(self) -> NDArray[np.float64]:
        """(N, M) throughput, 0 on types that have fewer GPUs than the job's gang needs."""
        fits = self.scale_factors[:, None] <= self.capacity[None, :]
        return np.where(fits, self.rates, 0.0)

    @property
    def gpus_taken(self) -> NDArray[Any]:
        """(N,) GPUs that each job takes when it runs: its scale factor, or the fraction of one that it asks for."""
        return taken_of(self.scale_factors, self.gpu_thousandths)

    @property
    def capacity(self) -> NDArray[np.int64]:
        """(M,) GPUs of each type."""
        return self.cluster.capacity


def _with_both_deadlines(columns: dict[str, Any], clock: float) -> dict[str, Any]:
    """The columns with the time left to deadlines and the deadlines on the clock, where one of the two is given."""
    left, deadlines = columns.get("slo_seconds"), columns.get("deadlines")
    if left is None and deadlines is not None:
        return columns | {"slo_seconds": np.asarray(deadlines, dtype=np.float64) - clock}
    if deadlines is None and left is not None:
        return columns | {"deadlines": np.asarray(left, dtype=np.float64) + clock}
    return columns
