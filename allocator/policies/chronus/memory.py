"""What the policy remembers of the jobs it has seen: their class, their leases, and how long they have run."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

LOWEST: Final = -1
"""Class of a job whose deadline can no longer be met."""

ACCEPTED: Final = 0
"""Class of a job that is promised its deadline."""

UNACCEPTED: Final = 1
"""Class of a job with a deadline that it was not promised."""

BEST_EFFORT: Final = 2
"""Class of a job without a deadline."""

Integers = NDArray[np.int64]
Array = NDArray[np.float64]

_COLUMNS: Final[dict[str, Any]] = {
    "gpus": 1,
    "submitted": 0.0,
    "duration": 0.0,
    "known_duration": 0.0,
    "estimate": 0,
    "due": np.inf,
    "kind": BEST_EFFORT,
    "forced": False,
    "overrun": False,
    "planned": False,
    "needed": 0,
    "granted": -1,
    "ran": 0.0,
    "seen": 0.0,
    "leased": False,
    "urgency": 0.0,
}


class ChronusMemory:
    """A table of the jobs that have been looked at, in the order in which they came, and two lists of its rows.

    Attributes
    ----------
    labels : (n,) of the jobs.
    options : for each job its deadlines (units on the clock) and their values.
    leases : for each job the numbers of the leases it is to run in, ascending; None: it has no plan.
    waiting, running : rows, in the order that decides ties.
    lease_begun : number of the lease that was last given out; -1 before the first.
    unaccepted : jobs without a promise at the last lease, and those that came since.
    looked_at : the last tick at which there was something to do; -1 before the first.
    filled : whether GPUs that were left over have been offered since anything changed.

    The columns, all (n,) and times in units:

    gpus, submitted : of each job.
    duration, known_duration : how long it is believed to run, with noise, and without.
    estimate : of its run time with the cost of starts and a margin.
    due : deadline, on the clock, by which it is judged.
    kind : its class.
    forced : whether it is guaranteed its GPUs to the end of the lease without a lease.
    overrun : whether it has run for its estimate.
    planned : whether it is to be given leases.
    needed : leases that it still needs.
    granted : the option that it was promised, -1 for none.
    ran, seen : time that it ran up to `seen`.
    leased : whether it runs on a lease.
    urgency : how soon it is served among waiting jobs of its class.
    """

    gpus: Integers
    submitted: Array
    duration: Array
    known_duration: Array
    estimate: Integers
    due: Array
    kind: Integers
    forced: NDArray[np.bool_]
    overrun: NDArray[np.bool_]
    planned: NDArray[np.bool_]
    needed: Integers
    granted: Integers
    ran: Array
    seen: Array
    leased: NDArray[np.bool_]
    urgency: Array

    def __init__(self, seed: int) -> None:
        self.labels: list[Hashable] = []
        self.options: list[tuple[Array, Array]] = []
        self.leases: list[Integers | None] = []
        self.waiting: list[int] = []
        self.running: list[int] = []
        self.lease_begun = -1
        self.unaccepted = 0
        self.looked_at = -1
        self.filled = False
        self._generator = np.random.Generator(np.random.PCG64(seed))
        for name, fill in _COLUMNS.items():
            setattr(self, name, np.full(0, fill))

    def __len__(self) -> int:
        return len(self.labels)

    def add(self, label: Hashable, options: tuple[Array, Array], **values: Any) -> int:
        """A new job, waiting; answers its row."""
        self.labels.append(label)
        self.options.append(options)
        self.leases.append(None)
        for name, fill in _COLUMNS.items():
            column = getattr(self, name)
            setattr(self, name, np.append(column, np.asarray(values.get(name, fill), dtype=column.dtype)))
        row = len(self.labels) - 1
        self.waiting.append(row)
        return row

    def keep(self, labels: Sequence[Hashable]) -> NDArray[np.int64]:
        """Forget the jobs that are not among `labels`; answers where in `labels` the others are."""
        place = {label: i for i, label in enumerate(labels)}
        at = np.array([place.get(label, -1) for label in self.labels], dtype=np.int64)
        kept = np.flatnonzero(at >= 0)
        if len(kept) == len(at):
            return at
        row = np.full(len(at), -1, dtype=np.int64)
        row[kept] = np.arange(len(kept))
        self.waiting = [int(row[k]) for k in self.waiting if row[k] >= 0]
        self.running = [int(row[k]) for k in self.running if row[k] >= 0]
        for name in _COLUMNS:
            setattr(self, name, getattr(self, name)[kept])
        for name in ("labels", "options", "leases"):
            column = getattr(self, name)
            setattr(self, name, [column[k] for k in kept.tolist()])
        self.filled = False
        return at[kept]

    def normal(self) -> float:
        """A draw from the standard normal distribution."""
        return float(self._generator.standard_normal())

    def free(self, capacity: int) -> int:
        """GPUs that nobody has."""
        return capacity - int(self.gpus[self.running].sum())

    def start(self, rows: Sequence[int], now: int, *, waited_counts: bool = False) -> None:
        """Waiting jobs run from `now` (units) on; with `waited_counts` the time since they were last seen counts."""
        if not len(rows):
            return
        chosen = set(rows)
        self.waiting = [row for row in self.waiting if row not in chosen]
        self.running += rows
        if not waited_counts:
            self.seen[np.asarray(rows)] = now

    def stop(self, rows: Sequence[int], now: int) -> None:
        """Running jobs wait from `now` (units) on."""
        chosen = set(rows)
        self.running = [row for row in self.running if row not in chosen]
        self.waiting += rows
        at = np.asarray(rows, dtype=np.int64)
        self.leased[at] = False
        self.seen[at] = now

    def state(self) -> dict[str, Any]:
        """What a checkpoint keeps; labels are ids of jobs."""
        return {
            "columns": {name: getattr(self, name) for name in _COLUMNS},
            "options": [list(pair) for pair in self.options],
            "generator": self._generator.bit_generator.state,
        } | {name: getattr(self, name) for name in _PLAIN}

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from `state`."""
        for name, column in state["columns"].items():
            setattr(self, name, column)
        self.options = [(due, value) for due, value in state["options"]]
        self._generator.bit_generator.state = state["generator"]
        for name in _PLAIN:
            setattr(self, name, state[name])


_PLAIN = ("labels", "leases", "waiting", "running", "lease_begun", "unaccepted", "looked_at", "filled")
