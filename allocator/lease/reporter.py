"""Who writes the report of a trainer: what matters at once, at once; progress beside the training, in a thread."""

from __future__ import annotations

import sys
import threading
from pathlib import Path

from allocator.lease.fence import locked_lease
from allocator.lease.files import LEASE_FILE, REPORT_FILE, Grant, Report, read_file, write_file


class Reporter:
    """Writes reports; the last one that was given is the one that stays.

    A file system may take milliseconds to rename a file, for which no step is to wait.

    Parameters
    ----------
    folder : of the job.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._given = threading.Event()
        self._later: Report | None = None
        self._thread: threading.Thread | None = None
        self._failed = False

    def write(self, report: Report) -> None:
        """Write a report now. That the disk is full, say, is told once and stops no training."""
        with self._lock:
            self._later = None
            self._write(report)

    def write_soon(self, report: Report) -> None:
        """Have a report written; takes some microseconds."""
        self._later = report
        if self._thread is None:
            self._thread = threading.Thread(target=self._write_given, name="reports of the lease", daemon=True)
            self._thread.start()
        self._given.set()

    def _write_given(self) -> None:
        while self._given.wait():
            self._given.clear()
            with self._lock:
                report, self._later = self._later, None
                if report is not None:
                    self._write(report)

    def _write(self, report: Report) -> None:
        """Behind the fence, as a checkpoint: the report of a later start is not overwritten."""
        try:
            with locked_lease(self._folder):
                grant = read_file(self._folder / LEASE_FILE, Grant)
                if grant is None or grant.epoch <= report.epoch:
                    write_file(self._folder / REPORT_FILE, report)
        except OSError as error:
            if not self._failed:
                print(f"lease: progress cannot be reported: {error}", file=sys.stderr)
            self._failed = True
