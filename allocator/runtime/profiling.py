"""Measures programs on every accelerator type and number of GPUs, and makes a throughput table of it.

A program is started through an adapter; its steps are counted for a while, and it is ended.
"""

from __future__ import annotations

import asyncio
import re
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from allocator.lease.files import LEASE_FILE, REPORT_FILE, Grant, Report, read_file, write_file
from allocator.runtime.adapters.base import (
    Adapter,
    AdapterError,
    LogReader,
    Node,
    Placed,
    ProfilingError,
    Seen,
    StartOrder,
)
from throughputs import InputError, ThroughputTable
from throughputs.tables.figures import TableBuilder

if TYPE_CHECKING:
    import pandas as pd


_SHOWN_LINES = 5


@dataclass(frozen=True)
class Program:
    """What is measured.

    Attributes
    ----------
    job_type : its name in the throughput table.
    command : the program and its arguments; never given to a shell.
    pattern : finds steps in the output of a program that does not report them. Its first group, if it has one, is the
        number of steps so far; without a group each match is a step. None: only reports count.
    working_directory, environment : how it is started.
    one_process_per_gpu : whether each GPU has a process, with the variables of torchrun.
    """

    job_type: str
    command: tuple[str, ...]
    pattern: re.Pattern[str] | None = None
    working_directory: Path = Path(".")
    environment: Mapping[str, str] = field(default_factory=dict)
    one_process_per_gpu: bool = False


@dataclass(frozen=True)
class Reading:
    """Steps so far, and the seconds that they took, both from the first step on."""

    steps: float
    seconds: float


class StepCount:
    """The steps of one start: those that its trainer reports, otherwise those that its output tells of.

    Parameters
    ----------
    folder : of the job. job : its UUID. pattern : of `Program`.

    Attributes
    ----------
    reports : whether the trainer has reported anything.
    """

    def __init__(self, folder: Path, job: str, pattern: re.Pattern[str] | None) -> None:
        self._folder, self._job, self._pattern = folder, job, pattern
        self.reports = False
        self._log = LogReader(folder)
        self._rest = ""
        self._printed: Reading | None = None
        self._counted, self._began = 0.0, 0.0

    def look(self) -> Reading | None:
        """What is known now; None before the first step is through."""
        report = read_file(self._folder / REPORT_FILE, Report)
        if report is not None and report.job == self._job:
            self.reports = True
            started = report.trained_steps > 0
            return Reading(report.trained_steps, report.trained_seconds) if started else None
        return None if self._pattern is None else self._of_output(self._pattern)

    def _of_output(self, pattern: re.Pattern[str]) -> Reading | None:
        """By the clock at which a line is seen: lines that come at once are one reading."""
        new = b"".join(self._log.news()).decode(errors="replace")
        text = self._rest + new.replace("\r", "\n")
        *lines, self._rest = text.split("\n")
        found = [match for line in lines if (match := pattern.search(line))]
        if not found:
            return self._printed
        now = time.monotonic()
        before = self._counted
        number = _number(found[-1])
        self._counted = number if number is not None else before + len(found)
        if self._printed is None:
            # the first steps were made in a time that nobody knows
            self._began, self._first = now, self._counted
        self._printed = Reading(self._counted - self._first, now - self._began)
        return self._printed

    def last_lines(self) -> str:
        """The end of the output, for people."""
        try:
            lines = (self._folder / "log").read_text(errors="replace").splitlines()
        except FileNotFoundError:
            lines = []
        return "\n".join(lines[-_SHOWN_LINES:])


def _number(match: re.Match[str]) -> float | None:
    """The number in the first group; None without a group or a number in it."""
    if not match.re.groups:
        return None
    try:
        return float(match[1].replace(",", ""))
    except (TypeError, AttributeError, ValueError):
        return None


_LOOK_SECONDS = 0.02
_LEAST_STEPS = 2.0
_GRACE_SECONDS = 10.0
"""What a program has that was told to end before it is killed."""


@dataclass(frozen=True)
class Window:
    """For how long steps are counted.

    Attributes
    ----------
    seconds : of training at least; and two steps.
    warm_up : seconds after the first step that do not count.
    patience : seconds without a step after which a program is given up.
    """

    seconds: float
    warm_up: float = 0.0
    patience: float = 300.0


@dataclass
class _Run:
    """One start."""

    program: Program
    order: StartOrder
    count: StepCount
    last: Reading | None = None


async def steps_per_second(
    adapter: Adapter, state: Path, node: Node, gpus: int, programs: Sequence[Program], window: Window
) -> list[float]:
    """Steps/s of each of `programs` while they share the first `gpus` GPUs of a node; usually it is one.

    Raises
    ------
    ProfilingError
        A program failed, ended too early, made no steps or does not tell of them.
    """
    runs = [_run(state, node, gpus, program) for program in programs]
    try:
        for run in runs:
            await adapter.start(run.order)
        return await _rates(adapter, runs, window)
    except AdapterError as error:
        raise ProfilingError(str(error)) from None
    finally:
        await asyncio.gather(*(_end(adapter, run) for run in runs))


def _run(state: Path, node: Node, gpus: int, program: Program) -> _Run:
    job = uuid.uuid4().hex
    folder = state / "jobs" / job
    (folder / "checkpoint").mkdir(mode=0o700, parents=True)
    write_file(folder / LEASE_FILE, Grant(job, 1, gpus=gpus, accelerator=node.accelerator))
    order = StartOrder(
        job,
        1,
        program.command,
        Placed(node.accelerator, {node.name: tuple(range(gpus))}),
        folder,
        program.working_directory,
        program.environment,
        program.one_process_per_gpu,
    )
    return _Run(program, order, StepCount(folder, job, program.pattern))


async def _rates(adapter: Adapter, runs: Sequence[_Run], window: Window) -> list[float]:
    """Steps/s of all programs from the moment on when each has warmed up, counted together for as long as is wanted."""
    changed, known = time.monotonic(), [run.last for run in runs]
    first: list[Reading] = []
    while True:
        ended = {one.job: one for one in await adapter.observe() if one.phase == "ended"}
        for run in runs:
            # after the look at the process: what it said last is not missed
            run.last = run.count.look() or run.last
        last = [run.last for run in runs if run.last is not None and (first or run.last.seconds >= window.warm_up)]
        first = first or (last if len(last) == len(runs) else [])
        passed = [
            Reading(one.steps - then.steps, one.seconds - then.seconds)
            for one, then in zip(last[: len(first)], first, strict=True)
        ]
        enough = [one.steps >= _LEAST_STEPS and one.seconds > 0 for one in passed]
        over = any(run.order.job in ended for run in runs)
        if first and all(enough) and (over or all(one.seconds >= window.seconds for one in passed)):
            return [one.steps / one.seconds for one in passed]
        for run in runs:
            if run.order.job in ended:
                when = f"after less than {_LEAST_STEPS:g} counted steps" if first else "before a second step"
                raise _failure(run, ended[run.order.job], when)
        now = [run.last for run in runs]
        if now != known:
            changed, known = time.monotonic(), now
        elif time.monotonic() - changed > window.patience:
            moves = enough if first else [reading is not None for reading in now]
            late = runs[moves.index(False) if False in moves else 0]
            raise ProfilingError(_told(late, "stands still" if first else f"made no step in {window.patience:g} s"))
        await asyncio.sleep(_LOOK_SECONDS)


def _failure(run: _Run, seen: Seen, when: str) -> ProfilingError:
    return ProfilingError(_told(run, f"ended {when}, {seen.reason}"))


def _told(run: _Run, what: str) -> str:
    """What went wrong, and what to do where a program does not tell of its steps."""
    program = " ".join(run.program.command)
    place = f"{len(run.order.placed.gpus)} x {run.order.placed.pool}"
    text = f"{run.program.job_type} on {place}: {program!r} {what}"
    if run.last is None and not run.count.reports:
        text += "; it has not reported any steps"
        if run.program.pattern is None:
            text += ": use allocator.lease in it, or say with --steps-pattern how its output tells of them"
        else:
            text += ", and its output matches no pattern"
    last = run.count.last_lines()
    return f"{text}; it printed last:\n{last}" if last else text


async def _end(adapter: Adapter, run: _Run) -> None:
    """End a program by SIGTERM, which ends a lease as well, and kill it where that takes too long."""
    job, epoch = run.order.job, run.order.epoch
    until = time.monotonic() + _GRACE_SECONDS
    try:
        await adapter.stop(job, epoch)
        while any(one.job == job and one.phase != "ended" for one in await adapter.observe()):
            if time.monotonic() >= until:
                await adapter.kill(job, epoch)
            await asyncio.sleep(_LOOK_SECONDS)
        await adapter.forget(job)
    except AdapterError as error:
        raise ProfilingError(f"{run.program.job_type} could not be ended: {error}") from None


@dataclass(frozen=True)
class Figure:
    """What was measured in one place, once or more often.

    Attributes
    ----------
    accelerator : type of the GPUs. gpus : how many.
    job_types : of the program, and of the one beside it, if there was one.
    rates : steps/s, for each measurement those of the programs.
    """

    accelerator: str
    gpus: int
    job_types: tuple[str, ...]
    rates: list[tuple[float, ...]] = field(default_factory=list)

    def quartiles(self, program: int) -> tuple[float, float, float]:
        """Lower quartile, median and upper quartile of one of the programs, steps/s."""
        low, median, high = np.percentile([rates[program] for rates in self.rates], [25.0, 50.0, 75.0]).tolist()
        return low, median, high


async def measure(
    adapter: Adapter,
    state: Path,
    programs: Sequence[Program],
    gpus: Sequence[int],
    window: Window,
    repeats: int,
    told: Callable[[Figure], None],
) -> list[Figure]:
    """Measure each program alone, and two of them together, everywhere where they have room.

    Repetitions follow each other only when everything was measured once, so that what changes with time shows in the
    spread. `told` hears of each measurement.

    Raises
    ------
    InputError
        No accelerator type has as many GPUs.
    ProfilingError
        A program could not be measured.
    """
    await adapter.open()
    try:
        nodes = _largest(await adapter.nodes())
        places = [(node, count) for node, count in product(nodes, gpus) if count <= node.gpus]
        if not places:
            there = ", ".join(f"{node.accelerator}:{node.gpus}" for node in nodes)
            raise InputError("--gpus", found=",".join(map(str, gpus)), expected=f"GPUs that there are: {there}")
        alone = list({program.job_type: (program,) for program in programs}.values())
        together = [tuple(programs)] if len(programs) > 1 else []
        chosen = [
            (node, Figure(node.accelerator, count, tuple(p.job_type for p in some)), some)
            for node, count in places
            for some in [*alone, *together]
        ]
        for _ in range(repeats):
            for node, figure, some in chosen:
                rates = await steps_per_second(adapter, state, node, figure.gpus, some, window)
                figure.rates.append(tuple(rates))
                told(figure)
        return [figure for _, figure, _ in chosen]
    finally:
        await adapter.close()


def _largest(nodes: Sequence[Node]) -> list[Node]:
    """The largest node of each type."""
    found: dict[str, Node] = {}
    for node in nodes:
        if node.up and (node.accelerator not in found or node.gpus > found[node.accelerator].gpus):
            found[node.accelerator] = node
    return list(found.values())


def table_of(figures: Sequence[Figure], source: str) -> ThroughputTable:
    """The medians as a throughput table."""
    builder = TableBuilder()
    for figure in figures:
        medians = [figure.quartiles(program)[1] for program in range(len(figure.job_types))]
        keys = [(name, figure.gpus) for name in figure.job_types]
        if len(keys) == 1:
            builder.add_isolated(figure.accelerator, keys[0], medians[0])
        else:
            builder.add_pair(figure.accelerator, keys[0], keys[1], (medians[0], medians[1]))
    return ThroughputTable(*builder.figures(), source)


def spread_frame(figures: Sequence[Figure]) -> pd.DataFrame:
    """One row per figure: median, quartiles and number of the measurements, steps/s."""
    import pandas as pd

    rows: list[dict[str, Any]] = []
    for figure in figures:
        for program, name in enumerate(figure.job_types):
            low, median, high = figure.quartiles(program)
            rows.append(
                {
                    "job_type": name,
                    "scale_factor": figure.gpus,
                    "accelerator": figure.accelerator,
                    "other_job_type": figure.job_types[1 - program] if len(figure.job_types) > 1 else "",
                    "median": median,
                    "lower_quartile": low,
                    "upper_quartile": high,
                    "measurements": len(figure.rates),
                }
            )
    return pd.DataFrame(rows)
