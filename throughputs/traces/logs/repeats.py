"""Rows of a job log that are of one job: copies, as of logs that overlap, and several runs under one id."""

from __future__ import annotations

import numpy as np

from throughputs.arrays import Flags, Floats, Positions, Texts
from throughputs.traces.logs.cells import is_blank
from throughputs.traces.logs.read import Log


class Repeats:
    """Which rows of a log have the id of another one.

    Attributes
    ----------
    notes : what was found, in sentences, with an example.
    """

    def __init__(self, log: Log, ids: Texts) -> None:
        self._log, self._ids = log, ids
        self.notes: list[str] = []

    def copies(self, is_job: Flags) -> Flags:
        """(N,) whether a row is in all cells the same as an earlier one with its id."""
        import pandas as pd

        found = np.zeros(len(is_job), dtype=bool)
        rows = self._of_several(is_job)
        cells = pd.DataFrame({i: cells[rows] for i, cells in enumerate(self._log.cells.values())})
        again = cells.duplicated().to_numpy(dtype=bool)
        found[rows[again]] = True
        if again.any():
            self._note(
                f"the same row again: {again.sum():,}, taken once",
                rows[(cells == cells[again].iloc[0]).all(axis=1).to_numpy()],
            )
        return found

    def outdated(self, usable: Flags, submitted: Floats, running: Flags) -> Flags:
        """(N,) whether a row says that a job still ran of which another one, with the same id and submission, says
        more: that it ended, or in a later line that it still ran. All other rows with one id stay, each a job.
        """
        import pandas as pd

        found = np.zeros(len(usable), dtype=bool)
        rows = self._of_several(usable)
        order = rows[np.lexsort((rows, ~running[rows]))]  # those that still ran come first
        table = pd.DataFrame({"id": self._ids[order], "submitted": submitted[order]})
        old = running[order] & table.duplicated(keep="last").to_numpy(dtype=bool)
        found[order[old]] = True
        if old.any():
            first = table[old].iloc[0]
            self._note(
                f"still running, and told of again by another row with the id and submission: {old.sum():,}, left out",
                np.sort(order[(table == first).all(axis=1).to_numpy()]),
            )
        rows = self._of_several(usable & ~found)
        if len(rows):
            ids = self._ids[rows]
            self._note(
                f"ids on several rows that differ: {len(set(ids.tolist())):,}; each row is a job, as Slurm writes one "
                "for each time that a job was queued again",
                rows[ids == ids[0]],
            )
        return found

    def _of_several(self, among: Flags) -> Positions:
        """(R,) rows, of those `among`, whose id is on another one of them, too."""
        import pandas as pd

        rows = np.flatnonzero(among & ~is_blank(self._ids))
        return rows[pd.Series(self._ids[rows]).duplicated(keep=False).to_numpy(dtype=bool)]

    def _note(self, told: str, rows: Positions) -> None:
        places = " and ".join(self._log.place(int(row)) for row in rows[:2])
        self.notes.append(f"{told} (id {self._ids[rows[0]]!r}: {places} of {self._log.source})")
