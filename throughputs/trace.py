"""A trace: the jobs of a workload as they were submitted, one array per attribute."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from throughputs.arrays import Dates, Flags, Floats, Ints, Names, Numbers, Rowed, Sizes, Texts, Values
from throughputs.deadlines import checked_options, option_row, option_text
from throughputs.errors import InputError, did_you_mean, expect, expect_one_of
from throughputs.frames import POSITIVE, SHARE, FrameReader, column, columns_of, keep_columns
from throughputs.limits import AMOUNT, LARGEST_WHOLE_NUMBER, LATEST_TIME, LEAST_STEPS, Range, require
from throughputs.shown import html_table

if TYPE_CHECKING:
    import pandas as pd

MODES = ("static", "accordion", "gns")
"""How the batch size of a job may change while it trains."""

CATEGORIES = ("adaptive", "scale-gpus", "rigid")
"""What a scheduler may choose of a job: batch size and GPUs, GPUs up to those it asks for, or neither (Sia)."""

OWNERS = {"user": "user", "partition": "partition", "account": "entity"}
"""Columns of which the names may become entities, by what they are called: the account of a log is kept as entity."""

ENDINGS = ("completed", "failed", "cancelled", "timed_out")
"""How a job may have ended where it was logged."""

# Rows of a trace that a notebook shows.
_SHOWN_JOBS = 10

_STARTING = ("command", "working_directory", "num_steps_arg", "needs_data_dir")

REQUIRED = ("job_type", "scale_factor", "total_steps", "arrival_time")


_SECONDS = Range(0, LATEST_TIME, above=True), f"positive seconds, at most {LATEST_TIME:g}, or nan"


@dataclass(frozen=True, eq=False)
class Trace(Rowed):
    """N jobs in the order of their arrival; a job's id is its position, counted from 0.

    Attributes
    ----------
    job_type : (N,) str, for example ``"ResNet-50 (batch size 64)"``; the key into a throughput table.
    scale_factor : (N,) GPUs in the job's gang.
    total_steps : (N,) training steps to run.
    arrival_time : (N,) seconds from the start of the trace.
    priority_weight : (N,) weight of the job, 1 for an ordinary one.
    slo : (N,) allowed completion time as a multiple of the job's duration; nan for none.
    deadline : (N,) seconds from the start of the trace by which the job should complete; nan for none. A job has an
        `slo` or a `deadline`, not both; one that has neither is served as well as may be (best effort).
    deadline_options : (N,) soft deadlines: for each job a tuple of (seconds from the start of the trace, value),
        ascending in time and not in value; empty for none. `deadline` is the first of them.
    predicted_seconds : (N,) how long the job was predicted to run when it was submitted, with its own number of GPUs;
        nan where there is no prediction.
    duration : (N,) seconds the job was said to run for, alone; nan where the trace does not say.
    mode : (N,) str, how the batch size changes while training: "static", "accordion" or "gns".
    command, working_directory, num_steps_arg : (N,) str, how to start the job on a real cluster; may be
        empty.
    needs_data_dir : (N,) bool, whether `command` takes a data directory.
    entity : (N,) str, name of the entity that the job belongs to; empty for none.
    user : (N,) str, who submitted the job; empty where the trace does not say.
    partition : (N,) str, the partition (queue) that the job was submitted to; empty for none. Where it is the name of a
        type of a cluster, the job runs there only. Of several that would do the names have bars between, as in
        ``V100M16|V100M32``.
    gpu_type : (N,) str, the type of GPU on which it ran or which it asked for where it was logged; empty where the
        trace does not say. Where it is a type of a cluster, the job runs there only, whatever its partition is; names
        of several that would do have bars between.
    category : (N,) str, what a scheduler may choose: "adaptive" (GPUs and batch size), "scale-gpus" (GPUs up to its
        scale factor, at its batch size) or "rigid" (neither); empty where the trace does not say.
    gpu_fraction : (N,) share of each of its GPUs that the job asked for, above 0 and at most 1; 1 where the trace does
        not say. Jobs with 1 GPU and fractions of at most one in sum share a GPU, under policies that carry that out.
    gpu_utilization : (N,) how much of its GPUs the job was measured to use while it ran, as a share, at least 0 and at
        most 1; nan where the trace does not say.
    recorded_start_seconds, recorded_end_seconds : (N,) when the job began and ended where it was logged, seconds from
        the start of the trace; nan where the trace does not say.
    recorded_status : (N,) str, how the job ended where it was logged, one of `ENDINGS`; empty where the trace does not
        say.
    trace_id : (N,) str, what the job is called where it was logged; empty where the trace does not say.
    arrival_date : (N,) datetime64[us] in UTC, when the job arrived where it was logged; NaT where the trace does not
        say. All other times follow: they stand as many seconds apart as on the clock of the trace.
    source : where the trace came from, for messages.

    Raises
    ------
    InputError
        Arrays of different length, an empty job type, an unknown mode or category, a scale factor below 1, non-positive
        steps, SLOs, durations or predictions, times that are negative or not finite, arrivals that are not in order, a
        job with two kinds of deadline, a deadline before its arrival, a recorded start before the arrival or a recorded
        end before the start, a fraction of a GPU or a utilisation that is none, or times and steps beyond
        `throughputs.limits`.

    >>> trace = Trace(["A3C", "LSTM"], scale_factor=[1, 4], total_steps=[1000, 2000], arrival_time=[0, 60])
    >>> len(trace), trace.head(1).scale_factor.tolist()
    (2, [1])
    """

    job_type: Texts = column("text", expected="a job type")
    scale_factor: Ints = column("whole", within=Range(1), expected="at least 1 GPU")
    total_steps: Floats = column(
        "number",
        within=Range(LEAST_STEPS, LARGEST_WHOLE_NUMBER),
        expected=f"a positive number of steps, at least {LEAST_STEPS:g} and at most {LARGEST_WHOLE_NUMBER:.2g}",
    )
    arrival_time: Floats = column(
        "number", within=Range(0, LATEST_TIME), expected=f"seconds, at least 0 and at most {LATEST_TIME:g}"
    )
    priority_weight: Floats = column("number", 1.0, AMOUNT, f"a positive weight, {AMOUNT}")
    slo: Floats = column("number", np.nan, POSITIVE, "a positive multiple, or nan for none")
    deadline: Floats = column("number", np.nan)
    deadline_options: Texts = column("text", "")
    duration: Floats = column("number", np.nan, *_SECONDS)
    mode: Texts = column("text", "static", MODES, f"one of {', '.join(MODES)}")
    command: Texts = column("text", "")
    working_directory: Texts = column("text", "")
    num_steps_arg: Texts = column("text", "")
    needs_data_dir: Flags = column("flag", False)
    entity: Texts = column("text", "")
    user: Texts = column("text", "")
    partition: Texts = column("text", "")
    gpu_type: Texts = column("text", "")
    category: Texts = column("text", "", ("", *CATEGORIES), f"one of {', '.join(CATEGORIES)}, or nothing")
    predicted_seconds: Floats = column("number", np.nan, *_SECONDS)
    gpu_fraction: Floats = column("number", 1.0, SHARE, "a share above 0, at most 1")
    gpu_utilization: Floats = column("number", np.nan, Range(0, 1), "a share, at least 0 and at most 1, or nan")
    recorded_start_seconds: Floats = column("number", np.nan)
    recorded_end_seconds: Floats = column("number", np.nan)
    recorded_status: Texts = column("text", "", ("", *ENDINGS), f"one of {', '.join(ENDINGS)}, or nothing")
    trace_id: Texts = column("name", "")
    arrival_date: Dates = column("date", np.datetime64("NaT"))
    source: str = "trace"

    def __init__(
        self,
        job_type: Names,
        scale_factor: Sizes,
        total_steps: Numbers,
        arrival_time: Numbers,
        *,
        source: str = "trace",
        **columns: Any,
    ) -> None:
        for name in columns:
            if name not in columns_of(Trace):
                raise TypeError(f"Trace has no column {name!r}{did_you_mean(name, columns_of(Trace))}")
        options = checked_options(columns.get("deadline_options"), len(job_type), source)
        needed = {
            "job_type": job_type,
            "scale_factor": scale_factor,
            "total_steps": total_steps,
            "arrival_time": arrival_time,
        }
        object.__setattr__(self, "source", source)
        keep_columns(self, needed | columns | {"deadline_options": options}, source)
        self._validate()

    def _validate(self) -> None:
        """Check times against each other."""
        start, end, arrival = self.recorded_start_seconds, self.recorded_end_seconds, self.arrival_time
        for name, times, least, what in (
            ("recorded_start_seconds", start, arrival, "the arrival"),
            ("recorded_end_seconds", end, start, "the recorded start"),
        ):
            good = np.isnan(times) | ((times >= least) & (times <= LATEST_TIME))
            require(good, times, self.source, name, f"seconds, not before {what} and at most {LATEST_TIME:g}, or nan")
        late = np.flatnonzero(np.diff(arrival) < 0)
        if len(late):
            before = late[0]
            found, expected = float(arrival[before + 1]), f"at least the arrival before it, {arrival[before]} s"
            line = int(before) + 2
            raise InputError(self.source, line=line, field="arrival_time", found=found, expected=expected)
        self._settle_deadlines()

    def _settle_deadlines(self) -> None:
        """Take deadlines from the first options where there are any, and check them."""
        first = np.array([row[0][0] if row else np.nan for row in self.deadline_options], dtype=float)
        deadline = np.where(np.isnan(self.deadline), first, self.deadline)
        object.__setattr__(self, "deadline", deadline)
        some = ~np.isnan(deadline)
        for good, expected in (
            (~some | np.isnan(self.slo), "nothing, as the job has an slo"),
            (
                ~some | ((deadline >= self.arrival_time) & (deadline <= LATEST_TIME)),
                f"seconds, not before the arrival and at most {LATEST_TIME:g}: a time on the clock",
            ),
            (np.isnan(first) | (first == deadline), "the first of its deadline_options, or nothing"),
        ):
            require(good, deadline, self.source, "deadline", expected)

    @staticmethod
    def column_names() -> tuple[str, ...]:
        """Names of the columns, in the order in which they are written."""
        return tuple(columns_of(Trace))

    @classmethod
    def from_frame(cls, frame: pd.DataFrame, source: str = "trace", first_line: int = 1) -> Trace:
        """Trace from a table with one row per job.

        Columns job_type, scale_factor, total_steps and arrival_time are required, the others of
        `column_names` may be absent or hold empty cells. A column ``job_id`` is accepted if it counts from 0.
        `first_line` is the line of `source` that holds the first row.

        Raises
        ------
        InputError
            A column is missing or unknown, or a cell is not what it should be.
        """
        reader = FrameReader(frame, source, first_line)
        columns: dict[str, Any] = reader.read(columns_of(cls), ignored=("job_id",))
        if reader.has("job_id"):
            ids = reader.whole_numbers("job_id")
            for row in np.flatnonzero(ids != np.arange(len(ids))).tolist():
                raise InputError(source, line=first_line + row, field="job_id", found=int(ids[row]), expected=f"{row}")
        texts = columns.pop("deadline_options").tolist()
        if reader.has("deadline_options"):
            columns["deadline_options"] = [
                option_row(text, source, line) for line, text in enumerate(texts, start=first_line)
            ]
        try:
            return cls(**columns, source=source)
        except InputError as error:
            raise error.moved(first_line - 1) from None

    def to_frame(self) -> pd.DataFrame:
        """Table with one row per job (index: job id) and the columns of `column_names`."""
        import pandas as pd

        frame = pd.DataFrame({name: getattr(self, name) for name in self.column_names()})
        frame["deadline_options"] = np.array([option_text(row) for row in self.deadline_options], dtype=object)
        frame["arrival_date"] = date_texts(self.arrival_date)
        frame.index.name = "job_id"
        return frame

    def __str__(self) -> str:
        return f"{self.source}: {len(self):,} jobs\n{self._shown().to_string(max_rows=_SHOWN_JOBS)}"

    def _shown(self) -> pd.DataFrame:
        """The columns that a job must have, and those in which jobs differ; without how they are started."""
        described = [name for name in self.column_names() if name not in _STARTING]
        columns = [name for name in described if name in REQUIRED or _differs(getattr(self, name))]
        return self.to_frame()[columns]

    def _repr_html_(self) -> str:
        shown = self._shown().head(_SHOWN_JOBS)
        hidden = len(self) - len(shown)
        caption = f"{self.source}: {len(self):,} jobs" + (f", {hidden:,} of them not shown" if hidden else "")
        return html_table(("job_id", *shown.columns), shown.itertuples(), caption=caption)

    def head(self, n: int) -> Trace:
        """The first `n` jobs."""
        return self.take(slice(n))

    def owned_by(self, column: str) -> Trace:
        """The same jobs, each of the entity that `column` names: "user", "partition" or "account".

        Raises
        ------
        InputError
            Another column, or one that says nothing of any job.
        """
        expect_one_of(column, OWNERS, self.source, "owner")
        names = getattr(self, OWNERS[column])
        if len(self) and not (names != "").any():
            raise InputError(self.source, field=column, expected=f"jobs with their {column}")
        return replace(self, entity=names)

    def with_whole_gpus(self) -> Trace:
        """The same jobs, all of which have their GPUs whole, whatever fraction they asked for."""
        return replace(self, gpu_fraction=np.ones(len(self)))

    def at_load(self, factor: float) -> Trace:
        """The same jobs, arriving `factor` times as often: arrival times are divided by it.

        A deadline on the clock moves with the arrival of its job, which so has as much time as before. Recorded times
        and dates are left out: they are of another load.

        Raises
        ------
        InputError
            A factor that is not above 0, or so small that the last job would arrive beyond any clock.
        """
        expect(np.isfinite(factor) and factor > 0, self.source, "load", factor, "a number above 0")
        expect(
            not (self.arrival_time > LATEST_TIME * factor).any(),
            self.source,
            "load",
            factor,
            f"a number with which the last job arrives within {LATEST_TIME:g} s",
        )
        arrival = self.arrival_time / factor
        earlier = self.arrival_time - arrival
        options = np.empty(len(self), dtype=object)
        # Rounding must not put a deadline before the arrival.
        options[:] = [
            tuple((max(seconds - shift, begin), value) for seconds, value in row)
            for row, shift, begin in zip(self.deadline_options, earlier.tolist(), arrival.tolist(), strict=True)
        ]
        deadline = np.maximum(self.deadline - earlier, arrival)
        moved: dict[str, Any] = {"arrival_time": arrival, "deadline": deadline, "deadline_options": options}
        if factor != 1:
            moved |= dict.fromkeys(("recorded_start_seconds", "recorded_end_seconds", "arrival_date"), None)
        return replace(self, **moved)


def partition_names(partition: str) -> tuple[str, ...]:
    """The partitions that a job names, any of which would do.

    >>> partition_names("V100M16|V100M32"), partition_names("batch"), partition_names("")
    (('V100M16', 'V100M32'), ('batch',), ())
    """
    return tuple(name for name in partition.split("|") if name)


def allowed_types(gpu_type: Texts, partition: Texts, accelerators: Sequence[str]) -> Flags | None:
    """(N, M) whether a job may use a type: those that its GPU type names, else its partition, if there are any of that
    name; None: all use all.
    """
    named = named_types(gpu_type, partition, accelerators)
    return named | ~named.any(axis=1, keepdims=True) if named.any() else None


def named_types(gpu_type: Texts, partition: Texts, accelerators: Sequence[str]) -> Flags:
    """(N, M) whether the GPU type of a job is, or names, an accelerator type; where it names none, its partition."""
    named = _named(gpu_type, accelerators)
    return named | (_named(partition, accelerators) & ~named.any(axis=1, keepdims=True))


def _named(column: Texts, accelerators: Sequence[str]) -> Flags:
    """(N, M) whether a cell names a type."""
    names, of = np.unique(column.astype(str), return_inverse=True)
    own = [partition_names(name) for name in names.tolist()]
    named = np.array([[name in some for name in accelerators] for some in own], dtype=bool)
    return named.reshape(len(own), len(accelerators))[of]


def date_texts(dates: Dates) -> Texts:
    """(N,) dates in UTC as text (ISO 8601); empty for none.

    >>> date_texts(np.array(["2025-03-03T08:00:00", "NaT"], dtype="datetime64[us]")).tolist()
    ['2025-03-03T08:00:00+00:00', '']
    """
    whole = dates.astype("datetime64[s]")
    texts = np.where(
        whole == dates, np.datetime_as_string(whole), np.datetime_as_string(dates.astype("datetime64[us]"))
    )
    return np.where(np.isnat(dates), "", np.char.add(texts, "+00:00")).astype(object)


def dates_after(dates: Dates, seconds: Floats) -> Dates:
    """(N,) datetime64[us] so many seconds later; NaT where the number of seconds is nan."""
    some = np.isfinite(seconds)
    later = np.rint(np.where(some, seconds, 0.0) * 1e6).astype("timedelta64[us]")
    return np.where(some, dates.astype("datetime64[us]") + later, np.datetime64("NaT"))


def _differs(column: Values) -> bool:
    return len(set(column) if column.dtype == object else np.unique(column)) > 1
