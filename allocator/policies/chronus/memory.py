"""What the policy remembers of its jobs: their class, their leases, and how long they have run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from allocator.protocol import ClusterState
from allocator.protocol.plan import JobMemory, of_each_job
from throughputs.arrays import Flags, Floats, Ints

LOWEST: Final = -1
"""Class of a job whose deadline can no longer be met."""

ACCEPTED: Final = 0
"""Class of a job that is promised its deadline."""

UNACCEPTED: Final = 1
"""Class of a job with a deadline that it was not promised."""

BEST_EFFORT: Final = 2
"""Class of a job without a deadline."""

UNSEEN: Final = 3
"""Class of a job that has not been looked at."""


@dataclass(eq=False)
class ChronusMemory(JobMemory):
    """A table of the jobs, and two lists of its rows. All times are in units.

    Attributes
    ----------
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
    options : for each job its deadlines (on the clock) and their values.
    leases : for each job the numbers of the leases it is to run in, ascending; None: it has no plan.
    waiting, running : rows, in the order that decides ties.
    capacity : GPUs of the cluster.
    lease_begun : number of the lease that was last given out; -1 before the first.
    unaccepted : jobs without a promise at the last lease, and those that came since.
    looked_at : the last tick at which there was something to do; -1 before the first.
    filled : whether GPUs that were left over have been offered since anything changed.
    noise : state of the generator of the noise.
    """

    gpus: Ints = of_each_job(1)
    submitted: Floats = of_each_job(0.0)
    duration: Floats = of_each_job(0.0)
    known_duration: Floats = of_each_job(0.0)
    estimate: Ints = of_each_job(0)
    due: Floats = of_each_job(np.inf)
    kind: Ints = of_each_job(UNSEEN)
    forced: Flags = of_each_job(False)
    overrun: Flags = of_each_job(False)
    planned: Flags = of_each_job(False)
    needed: Ints = of_each_job(0)
    granted: Ints = of_each_job(-1)
    ran: Floats = of_each_job(0.0)
    seen: Floats = of_each_job(0.0)
    leased: Flags = of_each_job(False)
    urgency: Floats = of_each_job(0.0)
    options: list[tuple[Floats, Floats]] = field(default_factory=list)
    leases: list[Ints | None] = field(default_factory=list)
    waiting: list[int] = field(default_factory=list)
    running: list[int] = field(default_factory=list)
    capacity: int = 0
    lease_begun: int = -1
    unaccepted: int = 0
    looked_at: int = -1
    filled: bool = False
    noise: Any = None

    def recall(self, state: ClusterState) -> None:
        """Make it the memory of the jobs of `state`."""
        now, before = np.full(len(self.jobs), -1), self.align(state.throughputs.jobs)
        now[before[before >= 0]] = np.flatnonzero(before >= 0)
        self.gpus = state.scale_factors
        none = np.empty(0), np.empty(0)
        self.options = [self.options[row] if row >= 0 else none for row in before.tolist()]
        self.leases = [self.leases[row] if row >= 0 else None for row in before.tolist()]
        known = len(self.waiting) + len(self.running)
        self.waiting, self.running = (
            [int(now[row]) for row in rows if now[row] >= 0] for rows in (self.waiting, self.running)
        )
        self.filled &= len(self.waiting) + len(self.running) == known

    def normal(self) -> float:
        """A draw from the standard normal distribution."""
        source = np.random.PCG64()
        state: Any = self.noise
        source.state = state
        drawn = float(np.random.Generator(source).standard_normal())
        self.noise = source.state
        return drawn

    @property
    def free(self) -> int:
        """GPUs that nobody has."""
        return self.capacity - int(self.gpus[self.running].sum())

    @property
    def promised(self) -> list[int]:
        """Jobs that were promised a deadline and still need leases, in the order of both lists."""
        rows = self.waiting + self.running
        wanted = (self.kind == ACCEPTED) & self.planned & (self.needed > 0)
        return [row for row in rows if wanted[row]]

    def extend(self, row: int, due: float) -> None:
        """Put the last deadline of a job off."""
        dates, values = self.options[row]
        self.options[row] = np.append(dates[:-1], due), values

    def start(self, rows: Sequence[int], now: int) -> None:
        """Waiting jobs run from `now` (units) on."""
        chosen = set(rows)
        self.waiting = [row for row in self.waiting if row not in chosen]
        self.running += rows
        self.seen[rows] = now

    def stop(self, rows: Sequence[int], now: float) -> None:
        """Running jobs wait from `now` (units) on."""
        chosen = set(rows)
        self.running = [row for row in self.running if row not in chosen]
        self.waiting += rows
        self.leased[rows] = False
        self.seen[rows] = now
