"""The cluster as a policy sees it: the core of every decision, and views that only some policies read."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from copy import copy
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from allocator.cluster import Cluster
from allocator.fractions import taken_of
from allocator.protocol.views import TAKEN, VIEWS, Needs, Source, View, Views, view_named
from allocator.room import CountedGpus, Held, Room
from throughputs import InputError, PackedColumns, ThroughputMatrix
from throughputs.arrays import Floats, Ints, Values
from throughputs.errors import did_you_mean

if TYPE_CHECKING:
    import pandas as pd

    from throughputs.configurations import Configurations

T = TypeVar("T")


class ClusterState(Views):
    """Everything a policy may know at one instant about the N active jobs, ids ascending.

    Parameters
    ----------
    cluster : the cluster, in any form that `Cluster.of` takes; its types are the columns of `throughputs`.
    throughputs : (N, M) steps/s of each job's own gang, with scale factors; its labels are the job ids. In any form
        that `ThroughputMatrix.of` takes.
    clock : seconds since the start.
    views : any views by name (`allocator.protocol.views`); what is missing takes its default.

    Attributes
    ----------
    n_jobs : N.
    ids : (N,) numbers of the jobs, ascending and never used again; positions where a state stands for itself.
    needs : what the policy declares that the state is for: to read a view that needs more is an AttributeError that
        names what is missing. None, as in a state made by hand: everything may be read.
    room_source : gives the room that `room` answers with; None: by the number of GPUs that nobody of `running` has.
    source : what views are read from; None in a state made by hand, False when the decision is over.
    given : the views that do not come from there.

    Views are attributes by their names. One that is declared elsewhere is ``state[view]``, or its name as well.

    Raises
    ------
    InputError
        The accelerator types of cluster and matrix differ, a view is unknown, or has the wrong shape or an impossible
        value.

    >>> from throughputs import ThroughputMatrix
    >>> matrix = ThroughputMatrix([[4.0, 1.0], [2.0, 1.0]], jobs=["resnet", "lstm"], accelerators=["v100", "k80"])
    >>> state = ClusterState(Cluster({"v100": 1, "k80": 1}), matrix, steps_remaining=[100.0, 50.0])
    >>> state.n_jobs, state.steps_remaining.tolist(), state.deadlines.tolist()
    (2, [100.0, 50.0], [inf, inf])
    """

    cluster: Cluster
    clock: float
    ids: Ints
    n_jobs: int
    given: dict[str, Any]
    source: Source | Literal[False] | None = None
    needs: Needs | None = None
    room_source: Callable[[], Room] | None = None

    def __init__(
        self,
        cluster: Cluster | str | Mapping[str, int],
        throughputs: ThroughputMatrix | pd.DataFrame | Mapping[str, Any],
        *,
        clock: float = 0.0,
        **views: Any,
    ) -> None:
        self.cluster, self.clock = Cluster.of(cluster), clock
        matrix = ThroughputMatrix.of(throughputs)
        self.n_jobs, self.ids, self.given = matrix.n_jobs, np.arange(matrix.n_jobs), {}
        self._give({"throughputs": matrix} | {name: value for name, value in views.items() if value is not None})

    def _give(self, views: dict[str, Any]) -> None:
        """Take over views, checked."""
        matrix = views.get("throughputs")
        if matrix is not None:
            if matrix.accelerators != self.cluster.accelerators:
                expected = f"the types of the cluster, {self.cluster.accelerators}"
                raise InputError("cluster state", field="accelerators", found=matrix.accelerators, expected=expected)
            views = {"rates": matrix.rates, "scale_factors": matrix.scale_factors} | views
        names, labels = self.cluster.accelerators, (matrix or self.throughputs).jobs
        checked = {}
        for name, value in views.items():
            view = view_named(name)
            count, of = (len(names), names) if view.per == "pool" else (self.n_jobs, labels)
            checked[name] = view.checked(value, count, partial(_entry, name, of), "cluster state")
        for one, other, sign in (("deadlines", "slo_seconds", -1), ("slo_seconds", "deadlines", 1)):
            # of the two, one is enough
            if one in checked:
                follows = checked[one] + sign * self.clock
                if not np.allclose(follows, checked.setdefault(other, follows), rtol=1e-9, atol=1e-6):
                    found, expected = checked[other].tolist(), f"{follows.tolist()}, as the {one} say"
                    raise InputError("cluster state", field=other, found=found, expected=expected)
        self.given |= checked
        self.__dict__.update(checked)
        columns = views.get("colocation")
        if columns is not None and (columns.jobs, columns.accelerators) != (labels, names):
            found = f"{columns.n_jobs} jobs on {columns.accelerators}"
            expected = f"the {self.n_jobs} jobs and the types of the throughputs, in the same order"
            raise InputError("cluster state", field="colocation", found=found, expected=expected)

    @classmethod
    def made_of(
        cls,
        cluster: Cluster,
        clock: float,
        ids: Ints,
        needs: Needs | None,
        source: Source | Literal[False] | None,
        given: dict[str, Any],
    ) -> ClusterState:
        """A state of the jobs `ids` whose views are read from its `source` when a policy first asks for them.

        `given` : views that do not come from there, by name; they are not checked.
        """
        state = cls.__new__(cls)
        state.__dict__.update(
            given, cluster=cluster, clock=clock, ids=ids, n_jobs=len(ids), needs=needs, source=source, given=given
        )
        return state

    def __getitem__(self, view: View[T]) -> T:
        found: T = getattr(self, view.name)
        return found

    def __getattr__(self, name: str) -> Any:
        # Only called for what is not there: a view that is declared elsewhere, or what may not be read.
        if name not in VIEWS:
            raise AttributeError(f"this ClusterState has no {name!r}{did_you_mean(name, VIEWS)}")
        return VIEWS[name].read(self)

    def known(self, name: str) -> Any:
        """The view of this name; None where it may not be read."""
        return getattr(self, name) if VIEWS[name].known_to(self.needs) else None

    def for_needs(self, needs: Needs | None) -> ClusterState:
        """The same state for a policy that declares these `needs`."""
        state = copy(self)
        state.needs = needs
        for name in [*state.__dict__]:
            if name in VIEWS and not VIEWS[name].known_to(needs):
                del state.__dict__[name]
        state.given = {name: value for name, value in self.given.items() if name in state.__dict__}
        return state

    def read_all(self) -> None:
        """Read now whatever was to be read on demand, so that the state stands for itself."""
        for name in VIEWS:
            self.known(name)
        self.source = None

    def close(self) -> None:
        """The decision is over: nothing more can be read."""
        self.source = False

    def room(self) -> Room:
        """The GPUs that are free now, to try gangs on: what the placement in force has room for."""
        if self.room_source is not None:
            return self.room_source()
        rows = self.running
        free = (self.capacity - rows.gpus_used(len(self.capacity))).tolist()
        columns = (rows.jobs, rows.pool, rows.gpus, rows.parts)
        held = {
            job: Held(pool, tuple(range(gpus)), thousandths=part)
            for job, pool, gpus, part in zip(*(column.tolist() for column in columns), strict=True)
        }
        return Room(lambda pool: CountedGpus(free[pool]), held.__getitem__)

    def take(self, jobs: ArrayLike) -> ClusterState:
        """The state of some of its jobs (positions); where they do not ascend, ids are numbered anew.

        Of a state that is read on demand, nothing is read of other jobs; there they must ascend.
        """
        at = np.asarray(jobs, dtype=np.int64)
        ids, source, values = self.ids.take(at), self.source, self.given
        if source:
            source = source.of(at)
        else:
            values = {name: self.__dict__[name] for name in VIEWS if name in self.__dict__ and name != "packed"}
            if len(at) > 1 and (at[1:] < at[:-1]).any():
                ids = np.arange(len(at))
        given = {name: VIEWS[name].of_jobs(value, at) for name, value in values.items()}
        return self.made_of(self.cluster, self.clock, ids, self.needs, source, given)

    def replace(self, *, cluster: Cluster | None = None, **views: Any) -> ClusterState:
        """The same state with other values of some views, and maybe its accelerator types in another order.

        Raises
        ------
        InputError
            They are of other jobs or types.
        """
        if "throughputs" in views:
            # what follows from the throughputs of a state made by hand stays what it was
            self.known("predicted_seconds")
        state = copy(self)
        state.cluster, state.given = cluster or self.cluster, dict(self.given)
        state.__dict__.pop("packed", None)
        state._give(views)
        return state

    def with_throughputs(self, throughputs: ThroughputMatrix, colocation: PackedColumns | None = None) -> ClusterState:
        """The same state with other throughputs of the same jobs, alone and in pairs (None: those are not known).

        Raises
        ------
        InputError
            `colocation` is of other jobs or types than `throughputs`.
        """
        if not Views.colocation.known_to(self.needs):
            return self.replace(throughputs=throughputs)
        return self.replace(throughputs=throughputs, colocation=colocation)

    def rates_by_gpus(self, jobs: Ints, pool: int) -> list[dict[int, float]] | None:
        """(K,) throughput of jobs (positions) alone in a pool by number of GPUs, steps/s; None where not known.

        Of a state that is read on demand, nothing is read of other jobs.
        """
        known, rows = self._known_configurations(jobs)
        return None if known is None else [known.rates_by_gpus(row, pool) for row in rows.tolist()]

    def rates_at(self, jobs: Ints, pool: Ints, gpus: Ints) -> Floats | None:
        """(K,) throughput of jobs (positions) alone on so many GPUs, steps/s; None where that is not known."""
        known, rows = self._known_configurations(jobs)
        return None if known is None else known.rates_at(rows, pool, gpus)

    def _known_configurations(self, jobs: Ints) -> tuple[Configurations | None, Ints]:
        """Configurations, and where the jobs (K positions) are in them."""
        source, read = self.source, "configurations" in self.__dict__
        if not source or read or not Views.configurations.known_to(self.needs) or source.table.goodput is not None:
            return self.configurations, jobs
        return source.table.configurations, source.at.take(jobs)

    @property
    def labels(self) -> tuple[Hashable, ...] | Ints:
        """What tells the jobs apart from one decision to the next: their ids in a run, else their labels."""
        return self.ids if self.source else self.throughputs.jobs

    @property
    def fastest_rates(self) -> Floats:
        """(N,) throughput on the type on which the job is fastest, steps/s; 0 where none can run it."""
        fastest: Floats | None = self._known_speeds("fastest")
        return self.rates.max(axis=1, initial=0.0) if fastest is None else fastest

    @property
    def own_pools(self) -> Ints | None:
        """(N,) position of the only type that can run the job, -1 where none can; None where that is not known, or jobs
        can choose."""
        own: Ints | None = self._known_speeds("own")
        return own

    def _known_speeds(self, name: str) -> Any:
        """(N,) what the job table knows of the rates; None where these are others, or it does not know."""
        source = self.source
        known = getattr(source.table.speeds, name) if source and "rates" not in self.given else None
        return None if known is None or not source else known.take(source.at)

    @property
    def runnable_rates(self) -> Floats:
        """(N, M) throughput, 0 on types that have fewer GPUs than the job's gang needs."""
        fits = self.scale_factors[:, None] <= self.capacity[None, :]
        return np.where(fits, self.rates, 0.0)

    @property
    def gpus_taken(self) -> Values:
        """(N,) GPUs that each job takes when it runs: its scale factor, or the fraction of one that it asks for."""
        return taken_of(self.scale_factors, self.known("gpu_thousandths"))

    @property
    def capacity(self) -> Ints:
        """(M,) GPUs of each type."""
        return self.cluster.capacity


def _entry(name: str, labels: Sequence[object], i: int) -> str:
    return f"{name} of {labels[i]!r}"


TAKEN.update(dir(ClusterState), ClusterState.__annotations__)


def the_one_type(state: ClusterState, policy: str, why: str = "the plan does not tell types apart") -> int:
    """Position of the one type that has GPUs; 0 where none has.

    Raises
    ------
    InputError
        Several have: names the `policy` and the cluster, and says `why` one is expected.
    """
    if len(state.capacity) == 1:
        return 0
    there = np.flatnonzero(state.capacity > 0)
    if len(there) > 1:
        found, expected = str(state.cluster), f"GPUs of one type: {why}"
        raise InputError(f"policy {policy}", field="cluster", found=found, expected=expected)
    return int(there[0]) if len(there) else 0
