"""The rows of a job log, judged one by one: what a trace needs of each, or why it cannot be used."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np

from throughputs.arrays import Flags, Floats, Positions, Texts
from throughputs.errors import InputError, did_you_mean
from throughputs.frames import SHARE
from throughputs.limits import AMOUNT, LARGEST_WHOLE_NUMBER, LATEST_TIME, LEAST_STEPS, Range, check_number_of_jobs
from throughputs.shown import counted
from throughputs.tables.files import default_table
from throughputs.trace import partition_names
from throughputs.traces.logs.cells import (
    Clock,
    durations,
    gpu_counts,
    gpu_types,
    is_blank,
    numbers,
    of_distinct,
    says_nothing,
)
from throughputs.traces.logs.columns import Column, unit_of
from throughputs.traces.logs.layouts import layout_of
from throughputs.traces.logs.read import Log
from throughputs.traces.logs.repeats import Repeats

UNNAMED = "job"
"""Job type of a job of which the log does not say the model."""


_WAITING = ("PENDING", "REQUEUED", "QUEUED", "WAITING", "HELD")
_PARTIAL = "PARTIAL"
_RUNNING = ("RUNNING", "SUSPENDED", "COMPLETING")

_ENDINGS = {
    "completed": ("COMPLETED", "COMPLETE", "SUCCEEDED", "SUCCESS", "PASS", "FINISHED", "DONE"),
    "failed": ("FAILED", "FAIL", "ERROR", "OUT_OF_MEMORY", "NODE_FAIL", "BOOT_FAIL"),
    "cancelled": ("CANCELLED", "CANCELED", "KILLED", "PREEMPTED", "REQUEUED", "REVOKED"),
    "timed_out": ("TIMEOUT", "TIMED_OUT", "DEADLINE"),
}
"""The first words of states of jobs that are over, by how those ended."""

_HOUR = 3600.0
_YEAR = 365.25 * 24 * _HOUR

_LONG = 10
"""Years that no job takes."""

_NO_LIMIT = ("UNLIMITED", "PARTITION_LIMIT", "NOT_SET", "INVALID")
"""How Slurm writes that a job has no time limit of its own."""

QOS = "qos"
"""Column of sacct, in small letters: what weights of jobs are usually called by."""

SLURM_PRIORITY = "Priority"
"""Column of sacct: the place of a job in the queue, which is no weight."""

_PERCENT = 100.0

_SAMPLE = 1000
"""By so many cells it is told whether durations are numbers."""

_MOST_NAMED = 10
"""Names of a log that an error lists."""

_SAME_SECONDS = 300.0
"""A duration may be rounded by so much: zones differ by more than that."""

_ASKED = "ReqTRES"
"""Column of sacct: what a job asked for, where it says nothing of what it was given."""


class Rows:
    """Reads the fields of all rows and keeps for each row the first reason why it cannot be used.

    Attributes
    ----------
    is_job : (N,) whether a row is a job.
    ending : (N,) how it ended, one of `ENDINGS` of traces; empty where the log does not say.
    origin : the first submission of a job that can be used, seconds on the clock.
    notes : what a user should know of the jobs, in sentences.
    """

    def __init__(
        self,
        log: Log,
        columns: dict[str, Column],
        told: dict[str, str | None],
        clock: Clock,
        renamed: Mapping[str, str] | None = None,
        weights: Mapping[str, float] | None = None,
    ) -> None:
        self.log, self.columns, self.told, self.clock = log, columns, told, clock
        self.renamed = dict(renamed or {})
        """Types, by the names of partitions, types and models in the log."""
        self.weights = dict(weights or {})
        """Of jobs, by the names in the column of priorities."""
        self.layout = layout_of(log.kind)
        self._absent = np.full(len(log.too_long), "", dtype=object)
        self.decimal_comma = log.separator == ";"
        self.repeats = Repeats(log, self._cells("id"))
        self.is_job = self._jobs()
        self.is_job &= ~self.repeats.copies(self.is_job)
        self.reasons: list[tuple[str, str, str]] = []
        """Reason, column and what was expected there."""
        self.reason = np.full(len(self.is_job), -1)
        self.ending = np.full(len(self.is_job), "", dtype=object)
        self.notes: list[str] = list(log.notes)
        self.origin = 0.0

    def usable(self, strict: bool) -> dict[str, Any]:
        """Columns of a trace of the jobs that can be used, by submission.

        Raises
        ------
        InputError
            No job can be used, or with `strict` one cannot.
        """
        expected = f"{len(self.log.cells)} cells, as in the header"
        self._drop(self.log.too_long, "more cells than the header", "submit", expected)
        submitted = self._time("submit", "no submission")
        running = self._states()
        gpus, utilization = self._gpus(), self._utilization()
        fraction = self._figure("fraction", SHARE, "unreadable share of a GPU", "a share above 0, at most 1")
        seconds = self._seconds(running)
        steps = self._steps(seconds)
        priority = self._figure("priority", AMOUNT, "unreadable priority", f"a weight, {AMOUNT}")
        deadline, limit = self._deadline(submitted), self._limits()
        self.is_job &= ~self.repeats.outdated(self.is_job & (self.reason < 0), submitted, running)
        self.notes += self.repeats.notes
        if strict and (self.reason >= 0).any():
            raise self._error(self.reason >= 0, "")
        kept = np.flatnonzero(self.is_job & (self.reason < 0))
        if not len(kept):
            raise self._none_usable()
        check_number_of_jobs(len(kept), self.log.source, "jobs")
        kept = kept[np.argsort(submitted[kept], kind="stable")]
        self.origin = float(submitted[kept[0]])
        started, ended = self._recorded(kept, submitted, seconds)
        self._note(kept, running[kept], seconds[kept] / _YEAR)
        partition, gpu_type, model = self._text("partition")[kept], self._gpu_types(kept), self._text("model")[kept]
        self._check_renamed(partition, gpu_type, model)
        return {
            "job_type": self._job_types(model, timed="steps" not in self.columns),
            "scale_factor": gpus[kept].astype(np.int64),
            "total_steps": steps[kept],
            "arrival_time": np.round(submitted[kept] - self.origin, 6),
            "priority_weight": priority[kept],
            "deadline": np.round(deadline[kept] - self.origin, 6),
            "duration": seconds[kept],
            "user": self._text("user")[kept],
            "entity": self._text("account")[kept],
            "predicted_seconds": limit[kept],
            "partition": partition,
            "gpu_type": self._types(gpu_type, partition),
            "gpu_fraction": fraction[kept],
            "gpu_utilization": utilization[kept],
            "recorded_start_seconds": np.round(started - self.origin, 6),
            "recorded_end_seconds": np.round(ended - self.origin, 6),
            "recorded_status": self.ending[kept],
            "trace_id": self._text("id")[kept],
            "arrival_date": self.clock.dates_of(submitted[kept]),
        }

    def unread(self) -> tuple[str, ...]:
        """Columns of the log that nothing was made of; none where a reader has made the columns."""
        if self.layout is not None and self.layout.cells is not None:
            return ()
        read = {_ASKED, *(column.name for column in self.columns.values()), *(self.layout.used if self.layout else ())}
        return tuple(name for name in self.log.cells if name not in read)

    def _jobs(self) -> Flags:
        """(N,) whether a row is a job: not an empty line, nor the header once more, as in files one behind the other,
        nor a step of a job of Slurm, as ``1234.batch``.
        """
        cells = self.log.cells
        empty: Flags = np.logical_and.reduce([np.asarray(column == "", bool) for column in cells.values()])
        empty |= np.logical_and.reduce([np.asarray(column == name, bool) for name, column in cells.items()])
        if self.log.kind == "sacct":
            ids = cells.get("JobID", cells.get("JobIDRaw", self._absent))
            empty |= np.array(["." in name for name in ids], bool)
        return np.asarray(~empty)

    def _drop(self, bad: Flags, reason: str, field: str, expected: str) -> None:
        """Rows that cannot be used for a reason; the first one counts."""
        new = bad & self.is_job & (self.reason < 0)
        if new.any():
            self.reason[new] = len(self.reasons)
            self.reasons.append((reason, self.columns[field].name, expected))

    def dropped(self) -> dict[str, int]:
        """Jobs that cannot be used, by reason, the most frequent first."""
        names = (self.reasons[k][0] for k in np.sort(self.reason[self.reason >= 0]).tolist())
        return dict(Counter(names).most_common())

    def _error(self, rows: Flags, told: str) -> InputError:
        """What is wrong with the first of some rows that cannot be used; `told` is said behind what was expected."""
        row = int(np.argmax(rows))
        reason, column, expected = self.reasons[self.reason[row]]
        found = self.log.cells[column][row] or None
        return self.log.error(row, column, found, f"{expected}{told or f' ({reason})'}")

    def _none_usable(self) -> InputError:
        """That no job can be used: how many for which reason, and a cell for which most cannot."""
        dropped = self.dropped()
        if not dropped:
            return InputError(self.log.source, found="no rows", expected="at least one job that can be used")
        counts = ", ".join(f"{reason}: {count:,}" for reason, count in dropped.items())
        most = [k for k, (reason, _, _) in enumerate(self.reasons) if reason == next(iter(dropped))]
        return self._error(np.isin(self.reason, most), f"; no job can be used ({counts})")

    def _name(self, field: str) -> str:
        return self.columns[field].name if field in self.columns else ""

    def _cells(self, field: str) -> Texts:
        """(N,) text of a field; all empty where no column has it."""
        return self.log.cells[self.columns[field].name] if field in self.columns else self._absent

    def _time(self, field: str, missing: str | None) -> Floats:
        """(N,) seconds on the clock; rows without are dropped where `missing` is a reason."""
        seconds, blank, kind = self._told(field), is_blank(self._cells(field)), self.clock.expected
        if missing is not None:
            self._drop(blank, missing, field, kind)
        told, bad = "submission" if field == "submit" else field, np.isnan(seconds) & ~blank & self.is_job
        self._drop(bad, f"unreadable {told}", field, kind)
        if self.clock.dates and bad.any():
            found = self._cells(field)[bad][0]
            self.notes.append(f"unreadable {told}, as {found!r}: does --date-format or --zone have to be another?")
        return seconds

    def _told(self, field: str) -> Floats:
        """(N,) seconds on the clock, nan where there are none; `InputError` where most are not of the form given."""
        cells = self._cells(field)
        seconds = self.clock.seconds(cells, self.decimal_comma)
        said = self.is_job & ~is_blank(cells)
        wrong = np.flatnonzero(said & np.isnan(seconds))
        if self.clock.date_format is not None and 2 * len(wrong) > said.sum():
            expected = f"{self.clock.expected}; {len(wrong):,} of {said.sum():,} rows have no such date there"
            raise self.log.error(int(wrong[0]), self.columns[field].name, cells[wrong[0]], expected)
        return seconds

    def _states(self) -> Flags:
        """(N,) whether a job still ran; those that never started are dropped."""
        words = of_distinct(self._cells("state"), lambda text: (text.upper().split() or [""])[0], object).astype(str)
        waits = np.isin(words, _WAITING)
        if "end" in self.columns:  # a run that has ended is one, whatever came of its job then
            waits &= is_blank(self._cells("end"))
        self._drop(waits, "never started", "state", "a job that has run")
        self._drop(words == _PARTIAL, "part of a job", "state", "the line of a whole job")
        for ending, those in _ENDINGS.items():
            self.ending[np.isin(words, those)] = ending
        if "start" in self.columns:
            self._drop(is_blank(self._cells("start")), "never started", "start", "a start")
        self._understood = np.isin(words, ("", *_WAITING, *_RUNNING)) | (self.ending != "")
        return np.isin(words, _RUNNING)

    def _gpus(self) -> Floats:
        gpus = gpu_counts(self._cells("gpus"))
        asked = self.log.cells.get(_ASKED)
        if self._name("gpus") == "AllocTRES" and asked is not None:
            gpus = np.where(is_blank(self._cells("gpus")), gpu_counts(asked), gpus)
        expected = "a whole number of GPUs, at least 1"
        self._drop(gpus == 0, "no GPUs", "gpus", expected)
        whole = (gpus == np.rint(gpus)) & (gpus >= 1) & (gpus <= LARGEST_WHOLE_NUMBER)
        self._drop(~whole, "unreadable GPUs", "gpus", expected)
        return gpus

    def _figure(self, field: str, within: Range, reason: str, expected: str) -> Floats:
        """(N,) numbers; 1 where the log does not say."""
        cells = self._weighed() if field == "priority" and self.weights else self._cells(field)
        values = np.where(is_blank(cells), 1.0, numbers(cells, self.decimal_comma))
        self._drop(~within.holds(values), reason, field, expected)
        return values

    def _weighed(self) -> Texts:
        """(N,) weights as text in the place of their names."""
        cells = self._text("priority")
        for row in np.flatnonzero(self.is_job & (cells != "")).tolist():
            if cells[row] not in self.weights:
                expected = f"a name of --weights{did_you_mean(cells[row], self.weights)}: {', '.join(self.weights)}"
                raise self.log.error(row, self._name("priority"), cells[row], expected)
            cells[row] = str(self.weights[cells[row]])
        return cells

    def _utilization(self) -> Floats:
        """(N,) how much of its GPUs a job used, as a share; nan where the log does not say.

        Figures are percent, or shares where none of the log is above 1.
        """
        cells = self._cells("utilization")
        used, blank = numbers(cells, self.decimal_comma), is_blank(cells)
        percent = bool((used[self.is_job] > 1).any())
        share = used / _PERCENT if percent else used
        self._drop(
            ~Range(0, 1).holds(share) & ~blank, "unreadable utilisation", "utilization", "0 to 100 %, or a share"
        )
        if self.log.kind == "table" and not blank.all():
            self.notes.append(
                f"utilisation of GPUs ({self._name('utilization')}) is {'in percent' if percent else 'a share'}"
            )
        return np.where(blank, np.nan, share)

    def _recorded(self, kept: Positions, submitted: Floats, seconds: Floats) -> tuple[Floats, Floats]:
        """(K,) start and end of the jobs that are kept, on the clock; nan where the log does not say.

        Where it does not say the end, or the job still ran, the job ends after its duration.
        """
        begin, lasting = submitted[kept], seconds[kept]
        if "start" not in self.columns or self.columns["start"] == self.columns["submit"]:
            return np.full(len(kept), np.nan), np.full(len(kept), np.nan)
        start = self._told("start")[kept]
        unread = int(np.isnan(start).sum())
        if unread and self.layout is None:
            self.notes.append(f"without a recorded schedule: {unread:,}, as their start cannot be read")
        early, recorded = start < begin, start
        start = np.where(early, begin, start)
        end = start + lasting
        if "end" in self.columns:
            told = self._told("end")[kept]
            self._compare(kept, told - recorded, lasting)
            # a time in the hour that comes twice may be that of the other hour; the duration knows
            other = self.clock.twice & (np.abs(np.abs(told - recorded - lasting) - _HOUR) < 1.0)
            told = np.where(other, end, told)
            end = np.where(told >= start, told, end)
            if ended := int((told < start).sum()):
                self.notes.append(f"ended before the start: {ended:,}; their duration says when they ended")
        if early.any():
            self.notes.append(f"started before the submission: {early.sum():,}; they count as started with it")
        return start, end

    def _compare(self, kept: Positions, between: Floats, lasting: Floats) -> None:
        """Tell where times from start to end (K,) are not the durations (K,) of a log whose layout is not known."""
        other = np.flatnonzero(np.abs(between - lasting) > _SAME_SECONDS)
        if not len(other) or "duration" not in self.columns or self.layout is not None:
            return
        start, end, duration = map(self._name, ("start", "end", "duration"))
        row, found = int(kept[other[0]]), round(float(between[other[0]]))
        job = f"id {self._cells('id')[row]!r} in " if "id" in self.columns else ""
        self.notes.append(
            f"{end} less {start} is not {duration}: {len(other):,} of {len(kept):,} jobs, as {job}"
            f"{self.log.place(row)}: {found:,} s, but {self._cells('duration')[row]!r}; were they suspended, or does "
            "--zone, --date-format or --duration-unit have to be another?"
        )

    def _seconds(self, running: Flags) -> Floats:
        """(N,) durations; nan where the log has steps and no durations."""
        if "duration" in self.columns:
            cells, timed_by = self._cells("duration"), "duration"
            seconds = durations(cells, self.told["duration"] or "s", self.log.kind == "sacct", self.decimal_comma)
            blank = is_blank(cells)
            expected = "a number, or [D-]HH:MM:SS"
            if "steps" not in self.columns:
                self._drop(blank, "no duration", "duration", expected)
            self._drop(np.isnan(seconds) & ~blank, "unreadable duration", "duration", expected)
        elif {"start", "end"} <= set(self.columns):
            started, ended, timed_by = self._time("start", None), self._time("end", None), "end"
            self._drop(running | is_blank(self._cells("end")), "no end", "end", "the end of the job")
            seconds = np.round(ended - started, 6)
        else:
            return np.full(len(self.is_job), np.nan)
        self._drop(seconds == 0, "zero duration", timed_by, "more than no time")
        self._drop(seconds < 0, "negative duration", timed_by, "more than no time")
        return seconds

    def _limits(self) -> Floats:
        """(N,) time limits, seconds; nan for none, as for ``UNLIMITED`` and ``Partition_Limit``."""
        cells, name = self._cells("limit"), self._name("limit")
        unit = "min" if name == "TimelimitRaw" else unit_of(name) or "s"
        seconds = durations(cells, unit, self.log.kind == "sacct", self.decimal_comma)
        none = of_distinct(cells, lambda text: text.strip().upper() in _NO_LIMIT, bool)
        unread = int((np.isnan(seconds) & ~none & ~is_blank(cells) & self.is_job).sum())
        if unread:
            self.notes.append(f"time limits that cannot be read: {unread:,}; these jobs have none")
        return np.where((seconds > 0) & (seconds <= LATEST_TIME), seconds, np.nan)

    def _steps(self, seconds: Floats) -> Floats:
        """(N,) steps of the log, else one for each second."""
        if "steps" not in self.columns:
            return seconds
        cells = self._cells("steps")
        steps = numbers(cells, self.decimal_comma)
        self._drop(is_blank(cells), "no steps", "steps", "a number above 0")
        self._drop(
            ~((steps >= LEAST_STEPS) & (steps <= LARGEST_WHOLE_NUMBER)), "unreadable steps", "steps", "a number above 0"
        )
        return steps

    def _deadline(self, submitted: Floats) -> Floats:
        deadline = self._time("deadline", None)
        expected = "a time that is not before the submission"
        self._drop(deadline < submitted, "deadline before submission", "deadline", expected)
        return deadline

    def _text(self, field: str) -> Texts:
        return of_distinct(self._cells(field), lambda text: "" if says_nothing(text) else text.strip(), object)

    def _gpu_types(self, kept: Positions) -> Texts:
        """(K,) the type of GPU that the log says of each job that is kept; of several the names with bars between."""
        named = self._text("gpu_type")[kept]
        asked = self.log.cells.get(_ASKED)
        for cells in (self._cells("gpus"), *([] if asked is None else [asked])):
            named = np.where(named == "", gpu_types(cells[kept]), named).astype(object)
        several = Counter(name for name in named.tolist() if "|" in name)
        if several:
            names = ", ".join(f"{name.replace('|', ' and ')}: {count:,}" for name, count in several.most_common())
            self.notes.append(
                f"GPUs of several types at once: {counted(several.total(), 'job')} ({names}); each is taken for a gang "
                "on any one of them"
            )
        return named

    def _types(self, named: Texts, partition: Texts) -> Texts:
        """(K,) the type of each job as a cluster names it: that of the log, else the one given for its partition."""

        def renamed(name: str) -> str:
            return "|".join(self.renamed[n] for n in partition_names(name) if n in self.renamed)

        def called(name: str) -> str:
            return "|".join(self.renamed.get(n, n) for n in partition_names(name))

        of_type = of_distinct(named, called, object)
        return np.where(of_type == "", of_distinct(partition, renamed, object), of_type).astype(object)

    def _check_renamed(self, *columns: Texts) -> None:
        """Raise `InputError` for a name that was given another and that no job of the log has."""
        if not self.renamed:
            return
        cells = dict.fromkeys(cell for column in columns for cell in column.tolist())
        names = dict.fromkeys(name for cell in cells for name in (cell, *partition_names(cell)) if name)
        for name in self.renamed:
            if name not in names:
                some = ", ".join(list(names)[:_MOST_NAMED]) + ", ..." * (len(names) > _MOST_NAMED)
                expected = f"a partition, GPU type or model of it{did_you_mean(name, names)}: {some or 'it names none'}"
                raise InputError(self.log.source, field="renamed", found=name, expected=expected)

    def _job_types(self, models: Texts, timed: bool) -> Texts:
        """(K,) models, where seconds are steps under names that the embedded table, whose steps are not, has not."""
        models = of_distinct(models, lambda name: self.renamed.get(name, name) or UNNAMED, object)
        if timed:
            for name in default_table().job_types:
                same = models == name
                if same.any():
                    models[same] = f"{name} (as logged)"
                    self.notes.append(
                        f"model {name!r} is in the embedded throughput table, whose steps are not seconds: "
                        f"the jobs are of the type '{name} (as logged)'"
                    )
        return models

    def _note(self, kept: Positions, running: Flags, years: Floats) -> None:
        zone, columns = self.clock.zone, self.columns
        other = Counter(self._cells("state")[kept[~self._understood[kept]]].tolist())
        states = ", ".join(f"{name} {count:,}" for name, count in other.most_common(_MOST_NAMED))
        no_zone = self.clock.without_zone and (zone is None or self.clock.zone_assumed)
        alone = "start" not in columns and self.layout is None
        for true, told in (
            (running.any(), f"still running: {running.sum()}; the time until then stands for their duration"),
            (
                states and self.layout is None,
                f"states that are not understood, of jobs that count as completed: {states}",
            ),
            (
                (long := int((years > _LONG).sum())),
                f"durations of more than {_LONG} years: {long:,}, up to {np.nanmax(years, initial=0.0):,.0f} years; "
                "does --duration-unit have to be another?",
            ),
            (no_zone, f"dates without a zone are taken for {zone or 'UTC'} (--zone says otherwise)"),
            (
                self.clock.twice,
                "dates in an hour that comes twice, as clocks are put back, are taken for the first of them",
            ),
            (
                columns["submit"] == columns.get("start"),
                "no column has the submission: the start stands in, as if no job had waited, and there is no recorded "
                "schedule",
            ),
            (
                "steps" in columns and not {"duration", "end"} & columns.keys(),
                "the log has steps and no durations: how fast they go is for a throughput table to say",
            ),
            (
                alone,
                f"no recorded schedule: {columns['submit'].name} is read as the submission, and no column says when "
                "jobs started (--start names one)",
            ),
        ):
            self.notes += [told] * bool(true)

    def units(self) -> tuple[dict[str, str], frozenset[str]]:
        """Units of the fields that are times in numbers, and for which of them nothing told it."""
        units = {}
        if np.isfinite(numbers(self._cells("duration")[:_SAMPLE], self.decimal_comma)).any():
            units["duration"] = self.told["duration"] or "s"
        if not self.clock.dates:
            units["submit"] = self.clock.unit or "s"
        return units, frozenset(field for field in units if self.told[field] is None)
