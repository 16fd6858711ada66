"""What is known of how the jobs train, kept job by job as they run: the ledger behind `TrainingView`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from allocator.checkpoint.kept import Kept
from throughputs.arrays import Floats, Ints, Positions
from throughputs.numerics import quotient
from throughputs.training import Profiles, profile_trace

if TYPE_CHECKING:
    from allocator.cluster import Cluster
    from throughputs import ThroughputTable, Trace

_COLUMNS = ("epochs_done", "batch_size", "admitted_seconds", "measured_samples", "measured_seconds")


@dataclass(frozen=True, eq=False)
class TrainingView:
    """What is known of how the N active jobs train.

    Attributes
    ----------
    catalogue : the epochs of these jobs, and maybe of others, as they were profiled before they ran. Shared by all
        views of a run: epochs are many.
    rows : (N,) positions of the jobs in it.
    epochs_done : (N,) whole epochs that each has finished, as last reported.
    batch_size : (N,) batch size of now, samples.
    admitted_seconds : (N,) clock of the round at whose start each job was admitted.
    measured_samples, measured_seconds : (N,) samples gone through so far by the throughputs measured, and the time
        that this took by the clock of the measurements, seconds.
    """

    catalogue: Profiles
    rows: Ints
    epochs_done: Ints
    batch_size: Ints
    admitted_seconds: Floats
    measured_samples: Floats
    measured_seconds: Floats

    @property
    def profiles(self) -> Profiles:
        """The epochs of the N jobs."""
        return self.catalogue.take(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def take(self, jobs: Ints | Positions) -> TrainingView:
        """The same of some of the jobs (positions)."""
        return TrainingView(self.catalogue, self.rows[jobs], *(getattr(self, name)[jobs] for name in _COLUMNS))


class TrainingLedger(Kept):
    """Epochs, batch sizes and measured progress of N jobs; written by the world.

    Parameters
    ----------
    profiles : the epochs of the jobs as they were profiled.
    profiled_type : position of the accelerator type on which they were; None: for each job the fastest.

    Attributes
    ----------
    epochs_done, batch_size, admitted_seconds, measured_samples, measured_seconds : (N,) see `TrainingView`.
    """

    keeps = _COLUMNS  # profiles are made anew from trace and table

    def __init__(self, profiles: Profiles, profiled_type: int | None = None) -> None:
        n = len(profiles)
        self.profiles = profiles
        self._profiled_type = profiled_type
        self.epochs_done = np.zeros(n, dtype=np.int64)
        self.batch_size = profiles.batch_size[profiles.offsets[:-1]].copy()
        self.admitted_seconds = np.full(n, np.nan)
        self.measured_samples = np.zeros(n)
        self.measured_seconds = np.zeros(n)

    @classmethod
    def steady(cls, total_steps: Floats, rates: Floats) -> TrainingLedger:
        """Of N jobs of which the steps, and (N, M) steps/s, are known alone: nothing changes as they train."""
        return cls(Profiles.steady(total_steps, quotient(total_steps, rates.max(axis=1, initial=0.0), 1.0)))

    @classmethod
    def of_trace(
        cls,
        trace: Trace,
        throughputs: ThroughputTable | None,
        cluster: Cluster,
        rates: Floats,
        *,
        published: bool = False,
    ) -> TrainingLedger:
        """Profiles from a throughput table; without one the batch sizes of the jobs are not known.

        The profile is that of the type of the cluster on which most GPUs are, or of the fastest where there is no
        figure for it. `published` : as in `throughputs.training.profile_trace`.
        """
        if throughputs is None:
            return cls.steady(trace.total_steps, rates)
        # The type with most GPUs, the first of several.
        position = int(np.argmax(cluster.capacity))
        name: str | None = cluster.accelerators[position]
        if name not in throughputs.accelerators:
            name = None
        known = throughputs.has(trace.job_type, trace.scale_factor)
        if known.all() or np.isnan(trace.duration[~known]).any():
            profiles = profile_trace(trace, throughputs, accelerator=name, published=published)
        else:  # a job that the table does not have takes as long as the trace states
            told, others = np.flatnonzero(known), np.flatnonzero(~known)
            profiles = Profiles.steady(trace.total_steps[others], trace.duration[others])
            if len(told):
                mine = profile_trace(trace.take(told), throughputs, accelerator=name, published=published)
                profiles = mine.joined(profiles).take(np.argsort(np.concatenate([told, others]), kind="stable"))
        return cls(profiles, None if name is None else position)

    def profiled_rate(self, rates: Floats) -> Floats:
        """(N,) rate of each job on the type it was profiled on, of its (N, M) `rates`."""
        best: Floats = rates.max(axis=1, initial=0.0)
        if self._profiled_type is None:
            return best
        there = rates[:, self._profiled_type]
        return np.where(there > 0, there, best)

    def admit(self, jobs: Ints, clock: float | Floats) -> None:
        """Jobs (positions) were admitted at `clock`, seconds, all or each of them."""
        self.admitted_seconds[jobs] = clock

    def measure(self, jobs: Ints, steps_per_second: Floats, until: float) -> None:
        """Jobs were seen at this throughput, which is taken to hold since they were last seen, `until` seconds."""
        seconds = until - self.measured_seconds[jobs]
        self.measured_samples[jobs] += steps_per_second * self.batch_size[jobs] * seconds
        self.measured_seconds[jobs] = until

    def keep(self, rows: Ints) -> None:
        """Forget all but these rows."""
        self.profiles = self.profiles.take(rows)
        for name in _COLUMNS:
            setattr(self, name, getattr(self, name)[rows])

    def append(self, later: TrainingLedger) -> None:
        """Add the jobs of another ledger at the end."""
        self.profiles = self.profiles.joined(later.profiles)
        for name in _COLUMNS:
            setattr(self, name, np.concatenate([getattr(self, name), getattr(later, name)]))

    def view(self, active: Ints) -> TrainingView:
        """What is known of the `active` jobs (positions)."""
        return TrainingView(self.profiles, active, *(getattr(self, name)[active] for name in _COLUMNS))
