"""A program that is measured, and one start of it: how many steps it has made in what time."""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from allocator.lease.files import REPORT_FILE, Report, read_file
from allocator.runtime.adapters.node import LOG_FILES

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
        # Which file is read, by its inode, and how far.
        self._which, self._at = -1, 0
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
        text = self._rest + self._news()
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

    def _news(self) -> str:
        told = b""
        # A log that is full becomes the older one, perhaps between two looks.
        for name in reversed(LOG_FILES):
            with contextlib.suppress(FileNotFoundError), (self._folder / name).open("rb") as file:
                which = os.fstat(file.fileno()).st_ino
                if which != self._which:
                    if name != LOG_FILES[0]:
                        continue
                    self._which, self._at = which, 0
                file.seek(self._at)
                new = file.read()
                self._at += len(new)
                told += new
        return told.decode(errors="replace").replace("\r", "\n")

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
