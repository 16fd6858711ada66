"""Views: what a policy may read of the jobs beyond the core of `ClusterState`, each declared once.

A declaration says what a view means, its default, how it is made from the job table, and whether a policy must
name it among its `needs`. Its cut to some jobs, the check of values in a state made by hand, its keyword there, its
columns in instance files and in ``solve(jobs=...)`` and its line in docs/policies.md follow from that.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence, Set
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeAlias, TypeVar, overload

import numpy as np

from allocator.cluster import Cluster
from allocator.protocol.assignment import Assignment
from allocator.protocol.colocated import take, without_sharing
from throughputs import InputError, PackedColumns, ThroughputMatrix
from throughputs.arrays import Floats, Ints, Texts, Values
from throughputs.errors import one_of
from throughputs.frames import NOT_NEGATIVE
from throughputs.limits import AMOUNT, LATEST_TIME, Range
from throughputs.numerics import quotient

if TYPE_CHECKING:
    from allocator.protocol.entities import Membership
    from allocator.protocol.jobs import JobTable
    from allocator.protocol.plan import UpcomingRounds
    from allocator.protocol.state import ClusterState
    from allocator.protocol.training import TrainingView
    from throughputs.configurations import Configurations
    from throughputs.deadlines import DeadlineOptions

T = TypeVar("T")

_TIMES = Range(-LATEST_TIME, LATEST_TIME)


@dataclass(slots=True, eq=False)
class Source:
    """What a state of the `active` jobs, which are `at` these rows of the table, is read from.

    `others_run`: jobs that are not active may be among those who run.
    """

    table: JobTable
    active: Ints
    at: Ints
    running: Assignment | None
    others_run: bool = False

    def of(self, jobs: Ints) -> Source:
        """The same of some of the jobs (positions)."""
        return Source(self.table, self.active.take(jobs), self.at.take(jobs), self.running, others_run=True)

    def column(self, name: str) -> Values:
        """(n, ...) of the active jobs; much faster than an index for a matrix."""
        values: Values = getattr(self.table, name)
        return values.take(self.at, axis=0)

    def kept(self, name: str, default: float) -> Values:
        """(n,) a column that is kept in some runs only; the default where it is not."""
        values = self.table.columns.get(name)
        return np.full(len(self.at), default) if values is None else values.take(self.at)

    def part(self, name: str) -> Any:
        """What the table has of the jobs as an object with a `take`; None where it has none."""
        known = getattr(self.table, name)
        return None if known is None else known.take(self.at)


Adds = Callable[[Cluster, Assignment, Any], Values]
"""What (K,) rows that trained for so many seconds add: a function of cluster, rows and seconds, (K,) or one number."""


@dataclass(frozen=True, eq=False)
class View(Set["View[Any]"], Generic[T]):
    """Something that only some policies read. As a set it holds itself: views are joined by ``|`` to `needs`.

    Parameters
    ----------
    meaning : for people, with its unit.
    name : keyword and attribute of `ClusterState`; a view that is declared in the class `Views` has that of its place.
    per : a value for each "job", for each accelerator type ("pool"), or one for the whole "state".
    kind : "number", "whole" number, position of another "job" (-1: none), "text", or any other "object"; a view of
        one of the first four is an array.
    default : of each job or type, or of the state; a function of the state makes the whole of it, unless it is kept.
    within : what numbers may be, finite ones, or the default.
    source : the column of the job table that it is, or a function that makes it; None: it is given, or kept.
    adds : the decision core keeps a column of the view that begins at the default, and adds this for whatever trained.
    needed : whether a policy must name it among its `needs`; another view: whether it must name that one.
    cut, length : the value for some of the jobs (positions), and of how many it is, of an object that has neither a
        method `take` nor a length that say so.
    files : other names of its column in instance files and in ``solve(jobs=...)``.

    >>> gpu_hours = View("GPU hours that the job has had", name="doc_gpu_hours", needed=True,
    ...                  adds=lambda cluster, rows, seconds: seconds / 3600 * rows.gpus)
    >>> from allocator import ClusterState
    >>> ClusterState("v100:1", {"v100": [1.0, 2.0]}, doc_gpu_hours=[3.0, 4.0]).take([1])[gpu_hours].tolist()
    [4.0]
    """

    meaning: str
    name: str = ""
    per: Literal["job", "pool", "state"] = "job"
    kind: Literal["number", "whole", "job", "text", "object"] = "number"
    default: Any = 0.0
    within: Range = NOT_NEGATIVE
    source: str | Callable[[Source, ClusterState], T] | None = None
    adds: Adds | None = None
    needed: bool | View[Any] = False
    cut: Callable[[Any, Ints], Any] | None = None
    length: Callable[[Any], int] = len
    files: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.name:
            self._register()

    def __set_name__(self, owner: type, name: str) -> None:
        if not self.name:
            object.__setattr__(self, "name", name)
            self._register()

    def _register(self) -> None:
        if not self.name.isidentifier() or self.name in TAKEN:
            expected = "a word that a state has nothing else by"
            raise InputError("view", field="name", found=self.name, expected=expected)
        known = VIEWS.get(self.name)
        # a module that is loaded again declares its views again
        if known is not None and known.meaning != self.meaning:
            expected = f"another name: by this one there is a view of {known.meaning!r}"
            raise InputError("view", field="name", found=self.name, expected=expected)
        if self.adds is not None and callable(self.default):
            expected = "a number, as the view is kept (`adds`): a column begins at it for every job"
            raise InputError(f"view {self.name}", field="default", found="a function", expected=expected)
        VIEWS[self.name] = self

    # A view is a set of itself alone.

    def __contains__(self, other: object) -> bool:
        return other is self

    def __iter__(self) -> Iterator[View[Any]]:
        return iter((self,))

    def __len__(self) -> int:
        return 1

    @classmethod
    def _from_iterable(cls, views: Iterable[Any]) -> frozenset[Any]:
        return frozenset(views)

    __eq__ = object.__eq__
    __hash__ = object.__hash__

    def __reduce__(self) -> tuple[Any, ...]:
        return view_named, (self.name,)

    # A view in `Views` is read as an attribute of the state; the value found stays there. Elsewhere, as in the class of
    # a policy that needs it, it is what it is.

    @overload
    def __get__(self, state: ClusterState, owner: Any = None) -> T: ...
    @overload
    def __get__(self, state: object, owner: Any = None) -> View[T]: ...
    def __get__(self, state: Any, owner: Any = None) -> View[T] | T:
        return self.read(state) if isinstance(state, Views) else self  # type: ignore[arg-type]

    def read(self, state: ClusterState) -> T:
        """The value in this state, which keeps it; AttributeError where its policy does not say that it needs it."""
        if self.needed is not False and not self.known_to(state.needs):
            said = need_of(self.needed if isinstance(self.needed, View) else self)
            raise AttributeError(f"state.{self.name} is known to policies only that declare it: {said} in the class")
        source = state.source
        value: Any
        if source is None or (self.source is None and self.adds is None):
            value = self.default_in(state)
        elif source is False:
            raise AttributeError(f"state.{self.name} was not read before its decision was over")
        elif isinstance(self.source, str):
            value = source.column(self.source)
        else:
            value = source.kept(self.column, self.default) if self.source is None else self.source(source, state)
        state.__dict__[self.name] = value
        return value  # type: ignore[no-any-return]

    def known_to(self, needs: Needs | None) -> bool:
        """Whether a policy with these `needs` may read it."""
        # A view has a length, so that `not` would call it.
        if self.needed is False or needs is None:
            return True
        wanted = self if self.needed is True else self.needed
        # a policy whose module was loaded before another load of it needs the view of then
        return wanted in needs or any(one.name == wanted.name for one in needs)

    def default_in(self, state: ClusterState) -> Any:
        """What it is in a state that does not say."""
        if callable(self.default):
            return self.default(state)
        if self.per == "state" or self.default is None:
            return self.default
        count = state.n_jobs if self.per == "job" else len(state.capacity)
        return np.full(count, self.default, self.dtype)

    @property
    def dtype(self) -> type[Any]:
        """Of its array."""
        return {"whole": np.int64, "job": np.int64, "text": np.object_}.get(self.kind, np.float64)

    def checked(self, values: Any, count: int, where: Callable[[int], str], source: str) -> Any:
        """`values` of `count` jobs or types as the view has them.

        Raises
        ------
        InputError
            Names the `source`, and by `where` the entry that the view cannot have.
        """
        if values is None or self.kind == "object" or self.per == "state":
            if values is not None and self.per == "job" and self.length(values) != count:
                raise InputError(source, field=self.name, found=f"{self.length(values)} jobs", expected=f"{count} jobs")
            return values
        # nothing is said of a job, or of a type
        none = self.default if isinstance(self.default, int | float) else None
        told = values if isinstance(values, np.ndarray) else [none if value is None else value for value in values]
        given = told if isinstance(told, np.ndarray) else np.array(told, dtype=np.object_)
        if given.shape != (count,):
            raise InputError(source, field=self.name, found=given.shape, expected=f"shape ({count},)")
        if self.kind == "text":
            good = np.array([isinstance(value, str) for value in given], np.bool_)
        elif given.dtype == np.object_ and not all(map(_is_number, given)):
            good = np.array([*map(_is_number, given)], np.bool_)
        else:
            numbers = given.astype(np.float64, copy=False)
            good = self.within.holds(numbers) & np.isfinite(numbers)
            good &= (numbers == np.rint(numbers)) | (self.dtype is np.float64)
            good &= (numbers < count) | (self.kind != "job")
            if isinstance(self.default, int | float):
                good |= numbers == self.default
        if not good.all():
            worst = int(np.argmin(good))
            found = given[worst].item() if isinstance(given[worst], np.generic) else given[worst]
            number = f"a finite number, {self.within}" + ", or null for none" * (self.within is _TIMES)
            expected = "text" if self.kind == "text" else number
            raise InputError(source, field=where(worst), found=found, expected=expected)
        return given.astype(self.dtype, copy=False)

    def of_jobs(self, value: Any, jobs: Ints) -> Any:
        """The value for some of the jobs (positions)."""
        if value is None:
            return value
        if self.cut is not None or self.per != "job":
            return value if self.cut is None else self.cut(value, jobs)
        if self.kind != "job":
            return value[jobs] if isinstance(value, np.ndarray) else value.take(jobs)
        position = np.full(len(value) + 1, -1, dtype=np.int64)
        position[jobs] = np.arange(len(jobs))
        return position[value[jobs]]

    @property
    def column(self) -> str:
        """Name of the column of the job table in which it is kept."""
        return f"view {self.name}"

    @property
    def in_files(self) -> bool:
        """Whether it is a column of instance files."""
        return self.per == "job" and self.kind != "object"


Needs: TypeAlias = Set[View[Any]]
"""Views that a policy needs."""

VIEWS: dict[str, View[Any]] = {}
"""All views by name: those of `Views`, and those that systems and people declare."""

TAKEN: set[str] = set()
"""What else a state has by name, and the views of `Views`."""


def view_named(name: str) -> View[Any]:
    """The view of that name; InputError with the nearest where there is none."""
    if name not in VIEWS:
        raise InputError("cluster state", field=name, found="an unknown view", expected=one_of(name, VIEWS))
    return VIEWS[name]


def file_columns() -> dict[str, View[Any]]:
    """The views of jobs that are columns of files and tables, by all their names there."""
    return {name: view for view in VIEWS.values() if view.in_files for name in (*view.files, view.name)}


def columns_of_jobs(
    names: Collection[str], column: Callable[[str], Sequence[Any]], where: Callable[[str, int], str], source: str
) -> dict[str, Any]:
    """Views by name from columns of a file or a table of jobs.

    Parameters
    ----------
    names : of the columns, all of which are views; of several for one view the first that the view has counts.
    column : its values by job, None and nan where there is none and the view has a default for one job.
    where : how the value of a column for a job is called.
    """
    known, found = file_columns(), {}
    for view in dict.fromkeys(known[name] for name in names):
        name = next(name for name in (*view.files, view.name) if name in names)
        default = "" if view.kind == "text" else None if callable(view.default) else view.default
        values = [default if value is None or value != value else value for value in column(name)]
        found[view.name] = view.checked(values, len(values), partial(where, name), source)
    return found


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | np.number) and not isinstance(value, bool)


# How views are made from the job table.


def _until(deadline: Floats, clock: float) -> Floats:
    return np.where(np.isnan(deadline), np.inf, deadline - clock)


def _positions(ids: Ints, active: Ints) -> Ints:
    """Where in the ascending `active` the `ids` are, -1 for those that are not among them."""
    if not len(active):
        return np.full(len(ids), -1, dtype=np.int64)
    position = active.searchsorted(ids)
    return np.where(active.take(position, mode="clip") == ids, position, -1)


def _running(source: Source, _: ClusterState) -> Assignment:
    """Who of the active jobs runs as what, by position."""
    rows, active = source.running, source.active
    if rows is None or not len(active):
        return Assignment.none()
    rows = rows.among(active) if source.others_run else rows
    if not rows.shares_gpus:
        return rows.numbered(active)
    jobs, partner = _positions(rows.jobs, active), _positions(rows.partner, active)
    return Assignment(jobs, rows.pool, rows.gpus, partner, rows.thousandths)


def _steps_remaining(source: Source, _: ClusterState) -> Floats:
    """(n,) steps left, as far as it is noticed."""
    table = source.table
    steps: Floats = source.column("total_steps") - source.column("steps_done")
    np.maximum(steps, table.least_steps_remaining, out=steps)
    return steps if table.goodput is None else table.goodput.steps_remaining(source.at, steps)


def _configurations(source: Source, _: ClusterState) -> Configurations | None:
    if source.table.goodput is not None:
        return source.table.goodput.configurations(source.at, source.active.tolist())
    known = source.table.configurations
    return None if known is None else known.of(source.at).relabelled(source.active.tolist())


def _throughputs(source: Source, state: ClusterState) -> ThroughputMatrix:
    names, sizes = state.cluster.accelerators, state.scale_factors
    return ThroughputMatrix.trusted(state.rates, jobs=source.active.tolist(), accelerators=names, scale_factors=sizes)


def _training(source: Source, _: ClusterState) -> TrainingView | None:
    return None if source.table.training is None else source.table.training.view(source.at)


def _packed(state: ClusterState) -> PackedColumns:
    matrix = state.throughputs
    if state.colocation is not None:
        return state.colocation
    return without_sharing(matrix.rates, matrix.scale_factors, matrix.jobs, matrix.accelerators)


def _matrix_of(matrix: ThroughputMatrix, jobs: Ints) -> ThroughputMatrix:
    return ThroughputMatrix.trusted(
        matrix.rates[jobs],
        jobs=[matrix.jobs[i] for i in jobs],
        accelerators=matrix.accelerators,
        scale_factors=matrix.scale_factors[jobs],
        unit=matrix.unit,
    )


def _rows_of(rows: Assignment, jobs: Ints) -> Assignment:
    position = np.full(max(int(of.max(initial=-1)) for of in (jobs, rows.jobs, rows.partner)) + 2, -1, dtype=np.int64)
    position[jobs] = np.arange(len(jobs))
    rows = rows.take(position[rows.jobs] >= 0)
    return replace(rows, jobs=position[rows.jobs], partner=position[rows.partner])


class Views:
    """The views that every state has."""

    # The core: of each job its speed, gang, work, weight and age, and who runs.
    throughputs = View[ThroughputMatrix](
        "(N, M) steps/s of each job's own gang, with labels and scale factors",
        per="state",
        default=None,
        source=_throughputs,
        cut=_matrix_of,
    )
    rates = View[Floats](
        "steps/s, the figures of `throughputs`",
        kind="object",
        source="rates",
        default=lambda state: state.throughputs.rates,
    )
    scale_factors = View[Ints](
        "GPUs of its gang",
        kind="object",
        source="scale_factor",
        default=lambda state: state.throughputs.scale_factors,
    )
    running = View[Assignment](
        "who runs as what at this moment, jobs as positions; nobody where nothing has been decided yet",
        per="state",
        source=_running,
        default=lambda _: Assignment.none(),
        cut=_rows_of,
    )
    steps_remaining = View[Floats](
        "training steps left",
        default=1.0,
        source=_steps_remaining,
        files=("num_steps_remaining", "total_steps"),
    )
    priority_weights = View[Floats](
        "weight, 1 for an ordinary job",
        default=1.0,
        within=AMOUNT,
        source="priority_weight",
        files=("priority_weight",),
    )
    elapsed_seconds = View[Floats](
        "seconds since the job arrived",
        source=lambda source, state: np.maximum(state.clock - source.column("arrival_time"), 0.0),
        files=("time_since_start",),
    )
    # As submitted.
    slo_seconds = View[Floats](
        "seconds left to the deadline, below 0 when it is past; inf without one",
        within=_TIMES,
        source=lambda source, state: _until(source.column("deadline"), state.clock),
        default=np.inf,
    )
    deadlines = View[Floats](
        "the same on the clock, exactly as the trace has it; with several deadlines the first",
        within=_TIMES,
        source=lambda source, _: _until(source.column("deadline"), 0.0),
        default=np.inf,
    )
    job_types = View[Texts | None](
        "job type; None where it is not known", kind="text", default=None, source="job_type", files=("job_type",)
    )
    submitter = View[Texts]("who submitted the job; empty: not known", kind="text", default="", source="user")
    account = View[Texts](
        "entity (team, project) that the trace names for the job; empty: none", kind="text", default="", source="entity"
    )
    queue = View[Texts](
        "partition that the job was submitted to; empty: none", kind="text", default="", source="partition"
    )
    membership: View[Membership | None] = View(
        "the entities, and which of them each job belongs to; None: no entities",
        kind="object",
        default=None,
        source=lambda source, _: source.part("membership"),
    )
    gpu_thousandths = View[Ints | None](
        "what the job asks for of each of its GPUs; None where all jobs have their GPUs whole; for policies that go by "
        "`state.gpus_taken` and `state.room()`, and plan a fraction as 1 GPU: under others such jobs are refused",
        kind="whole",
        default=None,
        needed=True,
        source=lambda source, _: getattr(source.part("fractions"), "thousandths", None),
    )
    # What decisions and worlds write.
    current_accelerator = View[Ints](
        "position of the type the job was last given by a policy that does not preempt, -1 for none",
        kind="whole",
        default=-1,
        source="current_accelerator",
    )
    current_partner = View[Ints](
        "position of the job that shared GPUs with this one by the last decision, -1 for none",
        kind="job",
        default=-1,
        source=lambda source, _: _positions(source.column("current_partner"), source.active),
    )
    lost_seconds = View[Floats](
        "seconds that the last decision cost the job before it trained, where decisions are charged (`overhead`); "
        "who expects a job to end at an instant is that late",
        source=lambda source, _: source.kept("lost_seconds", 0.0),
    )
    # What the world tells of itself.
    gpu_prices = View[Floats]("dollars for a GPU hour now; 1 where prices are not known", per="pool", default=1.0)
    more_arrivals = View[bool]("whether jobs are still expected to arrive", per="state", default=True)
    rates_version = View[int](
        "another number whenever rates of jobs have changed since the last decision", per="state", default=0
    )
    restart_seconds = View[float](
        "seconds that it takes a gang to start at most; 0: nothing, or the world does not tell", per="state"
    )
    slot_seconds = View[float](
        "seconds that decisions are apart at least; 0: the world looks at everything at once", per="state"
    )
    upcoming: View[UpcomingRounds | None] = View(
        "the rounds that a planner is about to fill; None outside a run in rounds", per="state", default=None
    )
    # What costs time to make ready, or to keep: for those alone who need it.
    colocation = View[PackedColumns | None](
        "what jobs do when two of them share GPUs; shares of pairs may be answered; None where it is not known",
        kind="object",
        default=None,
        needed=True,
        source=lambda source, _: source.table.known_pairs(source.active),
        length=lambda columns: columns.n_jobs,
        cut=take,
    )
    packed = View[PackedColumns](
        "the same; where it is not known no two jobs share",
        per="state",
        default=_packed,
        needed=colocation,
    )
    configurations: View[Configurations | None] = View(
        "throughput of the jobs by number of GPUs; None where it is not known",
        kind="object",
        default=None,
        needed=True,
        source=_configurations,
        length=lambda ways: ways.n_jobs,
        cut=lambda ways, jobs: ways.of(jobs),
    )
    training: View[TrainingView | None] = View(
        "how the jobs train, epoch by epoch; None where it is not known",
        kind="object",
        default=None,
        needed=True,
        source=_training,
    )
    deadline_options: View[DeadlineOptions | None] = View(
        "all deadlines of jobs that have several, with their values; None where they are not known",
        kind="object",
        default=None,
        needed=True,
        source=lambda source, _: source.part("deadline_options"),
    )
    predicted_seconds = View[Floats](
        "seconds that the job was predicted to run on its GPUs when it was submitted; its length on its fastest type "
        "where nothing was predicted",
        needed=True,
        source="predicted_seconds",
        default=lambda state: quotient(state.steps_remaining, state.rates.max(axis=1, initial=0.0), 0.0),
    )
    isolated_seconds = View[Floats](
        "seconds that the steps already done would have taken on an isolated share of the cluster of then",
        needed=True,
        # Steps that are counted in larger batches from one decision to the next can take it below zero.
        source=lambda source, _: np.maximum(source.column("isolated_seconds"), 0.0),
    )
    run_seconds = View[Floats]("seconds that the job has trained", needed=True, adds=lambda *ran: ran[-1])
    gpu_seconds = View[Floats](
        "the same, times its GPUs (attained service)",
        needed=True,
        adds=lambda _, rows, seconds: seconds * rows.gpus_taken,
    )


TAKEN.update(VIEWS)


class Need:
    """Views that are made ready only for policies that name them, joined by ``|``.

    For others it is an error to read them. Every other view may stand among them, one of your own too.

    >>> Need.TRAINING in (Need.SERVICE | Need.TRAINING), Need.COLOCATION in Need.TRAINING
    (True, False)
    """

    NOTHING: Needs = frozenset()
    COLOCATION = Views.colocation
    CONFIGURATIONS = Views.configurations
    FRACTIONS = Views.gpu_thousandths
    TRAINING = Views.training
    DEADLINE_OPTIONS = Views.deadline_options
    SERVICE = Views.run_seconds | Views.gpu_seconds
    PREDICTIONS = Views.predicted_seconds
    ISOLATED_TIME = Views.isolated_seconds
    LENGTHS = Views.steps_remaining
    """Every policy may read what is left of a job; one whose decisions depend on it says so."""


def need_of(view: View[Any]) -> str:
    """What a policy says that needs the view."""
    short = next((name for name, views in vars(Need).items() if isinstance(views, Set) and view in views), None)
    return f"needs = {'the view ' + view.name if short is None else 'Need.' + short}"
