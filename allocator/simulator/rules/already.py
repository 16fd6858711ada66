"""A run that begins in the middle: some jobs run already, with GPUs and progress of their own."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from allocator.protocol.assignment import Assignment
from allocator.simulator.rules.base import Rule, Rules, RunningRule, rule_of
from allocator.simulator.rules.general import IdealShares
from throughputs import InputError
from throughputs.arrays import Floats, Ints, Texts
from throughputs.files import read_frame
from throughputs.frames import FrameReader, column, columns_of
from throughputs.limits import Range

if TYPE_CHECKING:
    from allocator.protocol.jobs import JobTable
    from allocator.simulator.world import World


@dataclass(frozen=True)
class _Start:
    """A table of the jobs that run already."""

    job_id: Ints = column("whole", within=Range(0), expected="the row of a job in the trace, from 0")
    gpus: Texts = column("name", expected="ids of GPUs, from 0, with blanks between them")
    steps_done: Floats = column("number", 0.0, Range(0), "steps, at least 0")


@dataclass(frozen=True)
class RunsAlready(Rule):
    """Jobs that run when the run begins, on GPUs that they keep until a decision takes them away.

    To go on costs them nothing, as with any gang that ran before. They have to arrive at time 0.

    Attributes
    ----------
    running : (id, ids of its GPUs in ascending order, steps done) of each of them. GPUs are counted from 0, type by
        type in the order of the cluster, server by server.
    """

    running: tuple[tuple[int, tuple[int, ...], float], ...] = ()

    @classmethod
    def read(cls, path: str | Path) -> RunsAlready:
        """Those in a table (CSV, Parquet) with the columns job_id, gpus (``0 1 4``) and, for 0 elsewhere, steps_done.

        Raises
        ------
        InputError
            Source, line, column, what was found and what was expected.
        """
        frame, first_line = read_frame(Path(path))
        reader = FrameReader(frame, str(path), first_line)
        columns = reader.read(columns_of(_Start))
        held = []
        for row, text in enumerate(columns["gpus"].tolist()):
            words = text.split()
            if not words or not all(word.isdecimal() for word in words) or len(set(words)) < len(words):
                expected = "ids of GPUs, from 0, with blanks between them, each once"
                raise InputError(str(path), line=row + first_line, field="gpus", found=text, expected=expected)
            held.append(tuple(sorted(map(int, words))))
        jobs, done = columns["job_id"].tolist(), columns["steps_done"].tolist()
        return cls(tuple(zip(jobs, held, done, strict=True)))

    def check(self, world: Rules) -> None:
        """Shares of all GPUs at a time are on no GPU."""
        if self.running and rule_of(world, IdealShares).ideal:
            raise InputError("start", found="jobs that run", expected="none in a run without rounds (ideal)")

    def start(self, world: World) -> Iterable[RunningRule]:
        """Nothing where nobody runs."""
        return (_Already(self.running, world),) if self.running else ()


class _Already(RunningRule):
    """Tells the core of them when they have arrived."""

    keeps = ("told",)
    says_ends = False

    def __init__(self, running: tuple[tuple[int, tuple[int, ...], float], ...], world: World) -> None:
        self.told, self._world = False, world
        cluster = world.core.cluster
        pool = np.repeat(np.arange(len(cluster.accelerators)), cluster.capacity)
        _check(running, world.jobs, pool)
        jobs, self._gpus, done = zip(*sorted(running), strict=True)
        self._rows = Assignment.of(jobs, pool[[gpus[0] for gpus in self._gpus]], [len(gpus) for gpus in self._gpus])
        world.jobs.steps_done[self._rows.jobs] = done

    def happen(self) -> None:
        """At once."""
        if not self.told:
            self.told = True
            self._world.adopt(self._rows, self._gpus)


def _check(running: tuple[tuple[int, tuple[int, ...], float], ...], table: JobTable, pool: Ints) -> None:
    """Raise InputError for the first that cannot run so; `pool` has the type of each GPU."""
    taken: set[int] = set()
    seen: set[int] = set()
    for job, gpus, steps in running:
        place = f"job {job}"
        if not 0 <= job < len(table) or job in seen:
            raise InputError("start", field=place, found=job, expected=f"each once, of {len(table)} jobs")
        if table.arrival_time[job] > 0:
            found, expected = f"arrives at {table.arrival_time[job]:g} s", "jobs that arrive at time 0"
            raise InputError("start", field=place, found=found, expected=expected)
        known = bool(gpus) and all(isinstance(gpu, int) and 0 <= gpu < len(pool) for gpu in gpus)
        if not known or [*gpus] != sorted({*gpus}) or len(set(pool[list(gpus)])) > 1 or taken & {*gpus}:
            expected = f"GPUs of one type, as ascending ids from 0 and below {len(pool)}, that no other job has"
            raise InputError("start", field=place, found=" ".join(map(str, gpus)) or "no GPUs", expected=expected)
        if table.configurations is None and len(gpus) != table.scale_factor[job]:
            expected = f"{table.scale_factor[job]}, as many as its gang has"
            raise InputError("start", field=place, found=f"{len(gpus)} GPUs", expected=expected)
        if steps >= table.total_steps[job]:
            expected = f"fewer steps than it has, {table.total_steps[job]:g}"
            raise InputError("start", field=place, found=steps, expected=expected)
        taken.update(gpus)
        seen.add(job)
