"""How long a job still runs: a forecast from its profile, from what it did so far, or from what was measured.

>>> import numpy as np
>>> from throughputs.training import Profiles, Regimes, forecast_jobs
>>> profiles = Profiles.of_jobs([[32] * 6 + [64] * 4], [[20.0] * 6 + [15.0] * 4], [50_000])
>>> ahead = forecast_jobs(Regimes.of(profiles), np.array([4]), mode="oracle")
>>> ahead.remaining_seconds.round(1), ahead.epoch_seconds
(array([83.3]), array([20.]))

Batch sizes change as a job trains. A *regime* is the epochs of one batch size. The forecast is the posterior mean of a
Dirichlet prior over regimes, after the regimes of the epochs gone through so far.

Source: Zheng et al., NSDI 2023 (Shockwave), sections 4.2 and 5, and the published code.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

import numpy as np

from throughputs.arrays import Floats, Ints, Ragged, offsets_of
from throughputs.errors import expect_one_of
from throughputs.training.profiles import Profiles

ForecastMode = Literal["oracle", "causal", "true"]
"""What a forecast may know of a profile.

oracle : all batch sizes that the job will ever have, and the mean duration of an epoch at each; not their order.
causal : the epochs up to the present one, and how many there are in all. What a real scheduler can know.
true : the whole profile. A yardstick for the other two.
"""

CALIBRATION_BAND = 0.4
"""Relative distance of measured from profiled progress up to which the profile is believed."""

OVER_SECONDS = 1.0
"""What a job without epochs left is said to need still, seconds; `forecast_jobs` says no less of any job."""


@dataclass(frozen=True, eq=False)
class Regimes(Ragged):
    """The epochs of N jobs as R runs of equal epochs, one job after the other.

    Attributes
    ----------
    offsets : (N + 1,) job i has the runs from offsets[i] up to offsets[i + 1].
    first, length : (R,) first epoch of each run within its job, and how many epochs it has.
    batch_size : (R,) samples.
    seconds : (R,) duration of one epoch.
    regime : (R,) number of the batch size among those of the job, in the order in which they first appear.
    epochs : (N,) epochs of each job.
    samples_per_epoch : (N,) samples that one epoch goes through.
    """

    per_job: ClassVar[tuple[str, ...]] = ("epochs", "samples_per_epoch")

    offsets: Ints
    first: Ints
    length: Ints
    batch_size: Ints
    seconds: Floats
    regime: Ints
    epochs: Ints
    samples_per_epoch: Ints

    @classmethod
    def of(cls, profiles: Profiles, *, whole_seconds: bool = True) -> Regimes:
        """The runs of the profiles.

        With `whole_seconds` an epoch lasts a whole number of seconds, halves rounded to even, and at least one, as in
        the published system.
        """
        seconds = profiles.epoch_seconds
        if whole_seconds:
            seconds = np.maximum(np.rint(seconds), 1.0)
        batch_size, total = profiles.batch_size, len(profiles.batch_size)
        starts = np.zeros(total, dtype=bool)
        starts[profiles.offsets[:-1]] = True
        starts[1:] |= (batch_size[1:] != batch_size[:-1]) | (seconds[1:] != seconds[:-1])
        row = np.flatnonzero(starts)
        job = np.searchsorted(profiles.offsets, row, side="right") - 1
        return cls(
            np.searchsorted(row, profiles.offsets),
            row - profiles.offsets[job],
            np.diff(np.append(row, total)),
            batch_size[row],
            seconds[row],
            _by_appearance(job, batch_size[row]),
            profiles.epochs,
            profiles.samples_per_epoch,
        )

    def seen(self, epochs_done: Ints) -> Regimes:
        """What is known while epoch `epochs_done` (N,) runs: the runs so far; the present one goes on to the end."""
        rows = np.flatnonzero(self.first < self._observed(epochs_done)[self.job])
        offsets = offsets_of(np.bincount(self.job[rows], minlength=len(self)))
        seen = self._with(offsets, lambda name: getattr(self, name)[slice(None) if name in self.per_job else rows])
        present = offsets[1:] - 1
        seen.length[present] = seen.epochs - seen.first[present]
        return seen

    def finished_seconds(self, epochs: Ints) -> Floats:
        """(N,) duration of the first `epochs` (N,) epochs of each job."""
        return self._per_job(self._within(epochs) * self.seconds)

    def seconds_at(self, epoch: Ints) -> Floats:
        """(N,) duration of one epoch of each job; of the last one, where `epoch` (N,) is past the end."""
        last = np.clip(epoch, 0, self.epochs - 1)[self.job]
        there = (self.first <= last) & (last < self.first + self.length)
        return self.seconds[there]

    def _observed(self, epochs_done: Ints) -> Ints:
        """(N,) epochs that were seen, the present one included."""
        observed: Ints = np.minimum(epochs_done + 1, self.epochs)
        return observed

    def _within(self, epochs: Ints) -> Ints:
        """(R,) how many of the first `epochs` (N,) epochs of its job each run holds."""
        within: Ints = np.clip(epochs[self.job] - self.first, 0, self.length)
        return within

    def _per_job(self, values: Floats) -> Floats:
        return np.bincount(self.job, values, minlength=len(self)).astype(float)

    def _per_regime(self, values: Floats | Ints, regimes: int) -> Floats:
        """(N, regimes) sums of the (R,) `values`."""
        cell = self.job * regimes + self.regime
        sums: Floats = np.bincount(cell, values, minlength=len(self) * regimes).astype(float)
        return sums.reshape(len(self), regimes)


def _by_appearance(job: Ints, batch_size: Ints) -> Ints:
    """(R,) number of each run's batch size among those of its job, by first appearance."""
    if not len(job):
        return np.empty(0, dtype=np.int64)
    key = job * (int(batch_size.max()) + 1) + batch_size
    _, appears, number = np.unique(key, return_index=True, return_inverse=True)
    place = np.empty(len(appears), dtype=np.int64)
    place[np.argsort(appears)] = np.arange(len(appears))
    of_job = np.bincount(job[appears], minlength=int(job[-1]) + 1)
    return np.asarray(place[number] - (np.cumsum(of_job) - of_job)[job])


@dataclass(frozen=True, eq=False)
class Forecast:
    """What is left of N jobs.

    Attributes
    ----------
    remaining_seconds : (N,) run time left.
    epoch_seconds : (N,) duration of an epoch, the mean over those so far, the present one included.
    finished_seconds : (N,) duration of the epochs that are over.
    factor : (N,) by which measured epochs last longer than profiled ones; in all three above.
    """

    remaining_seconds: Floats
    epoch_seconds: Floats
    finished_seconds: Floats
    factor: Floats


def forecast_jobs(
    regimes: Regimes,
    epochs_done: Ints,
    *,
    mode: ForecastMode = "oracle",
    measured_samples: Floats | None = None,
    measured_seconds: Floats | None = None,
    factor: Floats | None = None,
    band: float | None = CALIBRATION_BAND,
) -> Forecast:
    """What is left of N jobs.

    Parameters
    ----------
    regimes : the epochs of the jobs.
    epochs_done : (N,) whole epochs that are over.
    mode : what may be known of the profiles (`ForecastMode`).
    measured_samples, measured_seconds : (N,) samples gone through so far, and the time that took; None: not measured.
    factor : (N,) of the forecast before this one, 1 where there was none.
    band : relative distance of measured from profiled progress up to which the profile is believed; None: always.

    Raises
    ------
    InputError
        An unknown mode.
    """
    expect_one_of(mode, get_args(ForecastMode), "forecast", "mode")
    known = regimes.seen(epochs_done) if mode == "causal" else regimes
    factor = np.ones(len(regimes)) if factor is None else factor
    if band is not None and measured_samples is not None and measured_seconds is not None:
        factor = calibration_factor(known, measured_samples, measured_seconds, factor, band)
    if mode == "true":
        remaining = true_remaining_seconds(known, epochs_done)
    else:
        remaining = dirichlet_remaining_seconds(known, epochs_done, unseen=mode == "causal")
    over = epochs_done >= regimes.epochs
    return Forecast(
        np.where(over, OVER_SECONDS, np.maximum(remaining * factor, OVER_SECONDS)),
        mean_epoch_seconds(known, epochs_done) * factor,
        known.finished_seconds(epochs_done) * factor,
        factor,
    )


def dirichlet_remaining_seconds(regimes: Regimes, epochs_done: Ints, *, unseen: bool = False) -> Floats:
    """(N,) run time left, from the posterior of a Dirichlet prior over regimes.

        a_m = E / |M| + c_m                      prior, and the c_m epochs of regime m seen, the present one included
        b_m = E a_m / sum a                      epochs of each regime expected over the whole job
        b_m = b_m - min(c_m, floor(b_m))         those seen are taken off, as long as there is one to take
        (sum_m b_m d_m) (E - e) / max(floor(sum b + 1), E - e)

    M: the regimes of the job; d_m: mean duration of an epoch of regime m; E epochs, e of them over. A job without
    epochs left is said to need 1 s.

    Parameters
    ----------
    regimes : the epochs of the jobs; all of them count for M and d.
    epochs_done : (N,) e.
    unseen : count only what was seen, the present epoch included, for M and d, and add to M a regime that was not seen
        yet, whose epochs last as long as the present one. It has the same prior as any other, E / |M| epochs.

    Source: Zheng et al., NSDI 2023, section 4.2; with `unseen`, ours.
    """
    E = regimes.epochs
    observed, left = regimes._observed(epochs_done), E - epochs_done
    within = regimes._within(observed)
    known = within if unseen else regimes.length
    columns = int(regimes.regime.max(initial=0)) + 1 + unseen
    seen, count = regimes._per_regime(within, columns), regimes._per_regime(known, columns)
    seconds = regimes._per_regime(known * regimes.seconds, columns)
    mean = seconds / np.maximum(count, 1)
    support = count > 0
    if unseen:
        support[:, -1] = True
        mean[:, -1] = regimes.seconds_at(epochs_done)
    total = E.astype(float)[:, None]
    a = np.where(support, total / support.sum(axis=1, keepdims=True), 0.0) + seen
    b = total * a / _row_sums(a)[:, None]
    b = b - np.minimum(seen, np.floor(b))
    inflated = np.maximum(np.floor(_row_sums(b) + 1.0), left)
    remaining = _row_sums(b * mean) * (left / np.maximum(inflated, 1.0))
    return np.where(left > 0, remaining, OVER_SECONDS)


def true_remaining_seconds(regimes: Regimes, epochs_done: Ints) -> Floats:
    """(N,) duration of all epochs that are not over; 1 s where none is left."""
    left = regimes._per_job((regimes.length - regimes._within(epochs_done)) * regimes.seconds)
    return np.where(epochs_done < regimes.epochs, left, OVER_SECONDS)


def mean_epoch_seconds(regimes: Regimes, epochs_done: Ints) -> Floats:
    """(N,) mean duration of the epochs so far, the present one included."""
    observed = regimes._observed(epochs_done)
    return regimes.finished_seconds(observed) / observed


def calibration_factor(
    regimes: Regimes,
    measured_samples: Floats,
    measured_seconds: Floats,
    factor: Floats | None = None,
    band: float = CALIBRATION_BAND,
) -> Floats:
    """(N,) by which epochs last longer than profiled, from the progress measured.

    Measured progress is held against what the profile promises for the same time: whole epochs, and of the next one
    the part that its duration gives. Where they differ by more than `band`, relative to what was promised, the factor
    becomes promised over measured; everywhere else it stays as it was. It is therefore not undone when measurements
    come back into the band, as in the published system.

    Parameters
    ----------
    regimes : the epochs of the jobs.
    measured_samples, measured_seconds : (N,) samples gone through so far, and the time that took.
    factor : (N,) of the calibration before, which also stretches the epoch of which a part is counted; None: ones.
    band : see above.
    """
    factor = np.ones(len(regimes)) if factor is None else factor
    room = measured_seconds[regimes.job] - _starts(regimes)
    whole = np.clip(np.floor(room / regimes.seconds), 0, regimes.length)
    fitting = regimes._per_job(whole)
    rest = measured_seconds - regimes._per_job(whole * regimes.seconds)
    part = rest / (regimes.seconds_at(fitting.astype(np.int64)) * factor)
    promised = regimes.samples_per_epoch * (fitting + part)
    off = (np.abs(measured_samples - promised) > band * promised) & (measured_samples > 0) & (promised > 0)
    return np.where(off, np.divide(promised, measured_samples, out=factor.copy(), where=off), factor)


def _starts(regimes: Regimes) -> Floats:
    """(R,) seconds from the start of its job at which each run starts; sums do not depend on other jobs."""
    if not len(regimes.job):
        return np.empty(0)
    place = np.arange(len(regimes.job)) - regimes.offsets[regimes.job]
    spans = np.zeros((len(regimes), int(place.max()) + 1))
    spans[regimes.job, place] = regimes.length * regimes.seconds
    ends: Floats = np.cumsum(spans, axis=1)[regimes.job, place]
    return np.where(place > 0, np.roll(ends, 1), 0.0)


def _row_sums(values: Floats) -> Floats:
    """(N,) sums of the rows from left to right, so that columns of zeros at the end change nothing."""
    return np.asarray(np.cumsum(values, axis=1)[:, -1])
