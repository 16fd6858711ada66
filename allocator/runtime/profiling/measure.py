"""Starts programs through an adapter, watches their steps for a while, and ends them."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from allocator.lease.files import LEASE_FILE, Grant, write_file
from allocator.runtime.adapters.base import Adapter, AdapterError, Node, Seen, StartOrder
from allocator.runtime.profiling.program import Program, Reading, StepCount

_LOOK_SECONDS = 0.02
_LEAST_STEPS = 2.0
_NOTICE_SECONDS, _GRACE_SECONDS = 5.0, 10.0
"""What a program has that was told to end: after the first it is sent SIGTERM, after the second it is killed."""


class ProfilingError(RuntimeError):
    """A program could not be measured; says why, with what it printed last."""


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
        first = await _first_readings(adapter, runs, window)
        return await _rates(adapter, runs, first, window)
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
        {node.name: tuple(range(gpus))},
        node.accelerator,
        folder,
        program.working_directory,
        program.environment,
        program.one_process_per_gpu,
    )
    return _Run(program, order, StepCount(folder, job, program.pattern))


async def _first_readings(adapter: Adapter, runs: Sequence[_Run], window: Window) -> list[Reading]:
    """Readings of all programs from which steps are counted."""
    since = time.monotonic()
    while True:
        seen = await _look(adapter, runs)
        readings = [run.last for run in runs if run.last is not None]
        if len(readings) == len(runs) and all(one.seconds >= window.warm_up for one in readings):
            return readings
        for run in runs:
            if run.order.job in seen:
                raise _failure(run, seen[run.order.job], "before a second step")
        if time.monotonic() - since > window.patience + window.warm_up:
            late = next(run for run in runs if run.last is None or run.last.seconds < window.warm_up)
            raise ProfilingError(_told(late, f"made no step in {window.patience:g} s"))
        await asyncio.sleep(_LOOK_SECONDS)


async def _rates(adapter: Adapter, runs: Sequence[_Run], first: Sequence[Reading], window: Window) -> list[float]:
    changed, known = time.monotonic(), list(first)
    while True:
        ended = await _look(adapter, runs)
        last = [run.last or before for run, before in zip(runs, first, strict=True)]
        passed = [
            Reading(now.steps - then.steps, now.seconds - then.seconds) for now, then in zip(last, first, strict=True)
        ]
        enough = [one.steps >= _LEAST_STEPS and one.seconds > 0 for one in passed]
        if all(enough) and (ended or all(one.seconds >= window.seconds for one in passed)):
            return [one.steps / one.seconds for one in passed]
        for run in runs:
            if run.order.job in ended:
                raise _failure(run, ended[run.order.job], f"after less than {_LEAST_STEPS:g} counted steps")
        if last != known:
            changed, known = time.monotonic(), last
        elif time.monotonic() - changed > window.patience:
            raise ProfilingError(_told(runs[enough.index(False) if False in enough else 0], "stands still"))
        await asyncio.sleep(_LOOK_SECONDS)


async def _look(adapter: Adapter, runs: Sequence[_Run]) -> Mapping[str, Seen]:
    """Take the readings of all programs; returns those that have ended, by job."""
    seen = {one.job: one for one in await adapter.observe() if one.phase == "ended"}
    for run in runs:
        # after the look at the process: what it said last is not missed
        run.last = run.count.look() or run.last
    return {run.order.job: seen[run.order.job] for run in runs if run.order.job in seen}


def _failure(run: _Run, seen: Seen, when: str) -> ProfilingError:
    how = f"exit status {seen.code}" if not seen.signal else f"signal {seen.signal}"
    return ProfilingError(_told(run, f"ended {when}, {seen.reason or how}"))


def _told(run: _Run, what: str) -> str:
    """What went wrong, and what to do where a program does not tell of its steps."""
    program = " ".join(run.program.command)
    place = f"{run.order.gpu_count} x {run.order.accelerator}"
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
    """End a program: by its lease, if it knows of it, then by signals."""
    job, epoch = run.order.job, run.order.epoch
    began, termed, killed = time.monotonic(), False, False
    write_file(run.order.folder / LEASE_FILE, Grant(job, epoch, serial=1, ends=True, reason="it was measured"))
    try:
        while True:
            there = next((one for one in await adapter.observe() if one.job == job), None)
            if there is None or there.phase == "ended":
                break
            passed = time.monotonic() - began
            if not termed and (passed >= _NOTICE_SECONDS or not run.count.reports):
                termed = True
                await adapter.stop(job, epoch)
            if not killed and passed >= _GRACE_SECONDS:
                killed = True
                await adapter.kill(job, epoch)
            await asyncio.sleep(_LOOK_SECONDS)
        await adapter.forget(job)
    except AdapterError as error:
        raise ProfilingError(f"{run.program.job_type} could not be ended: {error}") from None
