"""Forecasts of the run time left, against a plain restatement and recorded figures of the published system."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest

from throughputs.training import Profiles, Regimes, forecast_jobs
from throughputs.training.forecast import (
    calibration_factor,
    dirichlet_remaining_seconds,
    mean_epoch_seconds,
)

RECORDED = Path(__file__).resolve().parent.parent / "reference" / "dirichlet_forecasts.csv"
FIGURES = ("remaining_seconds", "epoch_seconds", "finished_seconds", "factor")


def draw_jobs(seed, n_jobs=12, longest=60):
    """Batch sizes and durations of jobs that double, jump to and fro, or stay."""
    rng = np.random.default_rng(seed)
    sizes, seconds = [], []
    for _ in range(n_jobs):
        epochs = int(rng.integers(1, longest))
        ladder = 16 * 2 ** np.arange(rng.integers(1, 6))
        cuts = np.sort(rng.integers(0, epochs, rng.integers(0, 6)))
        rung = rng.integers(0, len(ladder), len(cuts) + 1)
        of_epoch = rung[np.searchsorted(cuts, np.arange(epochs), side="right")]
        sizes.append(ladder[of_epoch])
        seconds.append(rng.uniform(0.2, 90, len(ladder))[of_epoch])
    return sizes, seconds


def profiles_of(sizes, seconds, samples=50_000):
    return Profiles.of_jobs(sizes, seconds, np.full(len(sizes), samples))


def plain_dirichlet(sizes, seconds, done, unseen=False):
    """One job, step by step as the published system goes; `unseen` with the support of the causal forecast."""
    E = len(sizes)
    if E - done <= 0:
        return 1.0
    observed = list(sizes[: min(done + 1, E)])
    known = observed if unseen else list(sizes)
    regimes = list(dict.fromkeys(known))
    duration = {m: np.mean([s for b, s in zip(sizes[: len(known)], seconds, strict=False) if b == m]) for m in regimes}
    if unseen:
        regimes.append("unseen")
        duration["unseen"] = seconds[min(done, E - 1)]
    a = {m: E / len(regimes) + observed.count(m) for m in regimes}
    b = {m: E * a[m] / sum(a.values()) for m in regimes}
    for m in observed:
        if b[m] >= 1:
            b[m] -= 1
    inflated = max(int(sum(b.values()) + 1), E - done)
    return sum(b[m] * duration[m] for m in regimes) * (E - done) / inflated


def recorded_jobs():
    with RECORDED.open(newline="") as lines:
        for row in csv.DictReader(lines):
            runs = np.array([[int(part) for part in run.split(":")] for run in row["runs"].split()])
            figures = ([float(x) for x in row[name].split()] for name in ("remaining_seconds", "epoch_seconds"))
            done = [int(x) for x in row["epochs_done"].split()]
            yield np.repeat(runs[:, 0], runs[:, 2]), np.repeat(runs[:, 1], runs[:, 2]), done, *figures


def test_recorded_forecasts_exactly():
    """All 120 jobs of the published trace at five points each, to the last bit."""
    jobs = list(recorded_jobs())
    regimes = Regimes.of(profiles_of([job[0] for job in jobs], [job[1] for job in jobs]))
    assert len(jobs) == 120
    for point in range(5):
        done = np.array([job[2][point] for job in jobs])
        np.testing.assert_array_equal(dirichlet_remaining_seconds(regimes, done), [job[3][point] for job in jobs])
        np.testing.assert_array_equal(mean_epoch_seconds(regimes, done), [job[4][point] for job in jobs])


@pytest.mark.parametrize("unseen", [False, True])
def test_dirichlet_is_the_plain_one(unseen):
    sizes, seconds = draw_jobs(0, n_jobs=50)
    regimes = Regimes.of(profiles_of(sizes, seconds), whole_seconds=False)
    rng = np.random.default_rng(0)
    for _ in range(6):
        done = np.array([rng.integers(0, len(s) + 1) for s in sizes])
        known = regimes.seen(done) if unseen else regimes
        expected = [plain_dirichlet(*job, unseen) for job in zip(sizes, seconds, done, strict=True)]
        found = dirichlet_remaining_seconds(known, done, unseen=unseen)
        np.testing.assert_allclose(found, expected, rtol=1e-12)


@pytest.mark.parametrize("whole_seconds", [False, True])
def test_causal_forecast_does_not_see_the_future(whole_seconds):
    """Epochs to come are changed at random; nothing of the forecast moves by one bit."""
    sizes, seconds = draw_jobs(0, n_jobs=40)
    rng = np.random.default_rng(100)
    done = np.array([rng.integers(0, len(s)) for s in sizes])
    measured = rng.uniform(0, 3e6, len(sizes)), rng.uniform(0, 4000, len(sizes))

    def causal(sizes, seconds):
        return forecast_jobs(
            Regimes.of(profiles_of(sizes, seconds), whole_seconds=whole_seconds),
            done,
            mode="causal",
            measured_samples=measured[0],
            measured_seconds=measured[1],
            factor=np.linspace(0.5, 2, len(sizes)),
        )

    other_sizes, other_seconds = [s.copy() for s in sizes], [s.copy() for s in seconds]
    for e, batch, duration in zip(done, other_sizes, other_seconds, strict=True):
        future = len(batch) - e - 1
        batch[e + 1 :] = rng.choice(2 ** np.arange(14), future)
        duration[e + 1 :] = rng.uniform(0.5, 500, future)
    before, after = causal(sizes, seconds), causal(other_sizes, other_seconds)
    for name in FIGURES:
        np.testing.assert_array_equal(getattr(before, name), getattr(after, name))


def test_a_job_of_one_epoch():
    regimes = Regimes.of(profiles_of([[32], [32]], [[0.2], [7.5]]))  # half seconds go to the even second
    ahead = forecast_jobs(regimes, np.array([0, 1]))
    assert dirichlet_remaining_seconds(regimes, np.array([0, 1])).tolist() == [0.0, 1.0]
    assert [getattr(ahead, name).tolist() for name in FIGURES] == [[1, 1], [1, 8], [0, 8], [1, 1]]


def plain_calibration(durations, samples, measured, horizon, factor, band):
    """One job, epoch by epoch as the published system goes."""
    used, fitting = 0.0, 0
    for duration in durations:
        if used + duration > horizon:
            break
        used, fitting = used + duration, fitting + 1
    following = durations[min(fitting, len(durations) - 1)] * factor
    promised = samples * (fitting + (horizon - used) / following)
    return promised / measured if abs(measured - promised) / promised > band else factor


def test_calibration_is_the_plain_one():
    sizes, seconds = draw_jobs(0, n_jobs=100)
    rng = np.random.default_rng(0)
    regimes = Regimes.of(profiles_of(sizes, seconds, samples=1000))
    horizon = rng.uniform(1, 2000, 100)
    measured = horizon / 45 * 1000 * rng.uniform(0.3, 3, 100)
    factor = rng.choice([1.0, 0.7, 1.6], 100)
    found = calibration_factor(regimes, measured, horizon, factor)
    rounded = [np.maximum(1, np.rint(s)) for s in seconds]
    expected = [
        plain_calibration(d, 1000, *rest, 0.4) for d, *rest in zip(rounded, measured, horizon, factor, strict=True)
    ]
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    assert 0 < (found != factor).sum() < 100


def test_calibration_is_kept_until_measurements_leave_the_band_again():
    regimes = Regimes.of(profiles_of([[8] * 10], [[100.0] * 10], samples=1000))

    def factor(samples, seconds, before):
        return calibration_factor(regimes, *(np.array([x]) for x in (samples, seconds, before))).item()

    assert factor(2000.0, 500.0, 1.0) == 2.5
    assert [factor(*measured, 2.5) for measured in ((4500.0, 500.0), (0.0, 0.0))] == [2.5, 2.5]
    assert factor(16000.0, 500.0, 2.5) == 5000 / 16000


def test_calibration_stretches_everything_but_a_job_that_is_over():
    regimes = Regimes.of(profiles_of([[8] * 10, [8] * 10], [[100.0] * 10] * 2, samples=1000))
    done = np.array([4, 10])
    measured = {"measured_samples": np.full(2, 4000.0), "measured_seconds": np.full(2, 2000.0)}
    plain, slower = forecast_jobs(regimes, done), forecast_jobs(regimes, done, **measured)
    assert slower.factor.tolist() == [5.0, 5.0]
    assert slower.remaining_seconds.tolist() == [5 * plain.remaining_seconds[0], 1.0]
    assert slower.finished_seconds.tolist() == [2000.0, 5000.0]
    assert forecast_jobs(regimes, done, **measured, band=None).factor.tolist() == [1.0, 1.0]
    assert forecast_jobs(regimes, done, mode="true").remaining_seconds[0] == 600.0


@pytest.mark.parametrize("mode", ["oracle", "causal", "true"])
def test_jobs_do_not_matter_to_each_other(mode):
    """Some of the jobs, in another order, or joined: the same figures, to the last bit."""
    profiles = profiles_of(*draw_jobs(5))
    rng = np.random.default_rng(0)
    done, some = rng.integers(0, profiles.epochs + 1), rng.permutation(12)[:7]
    samples, seconds = rng.uniform(0, 1e6, 12), rng.uniform(0, 900, 12)

    def figures(part, rows):
        made = forecast_jobs(
            part, done[rows], mode=mode, measured_samples=samples[rows], measured_seconds=seconds[rows]
        )
        return np.array([getattr(made, name) for name in FIGURES])

    regimes = Regimes.of(profiles, whole_seconds=False)
    joined = regimes.take(some[:3]).joined(regimes.take(some[3:]))
    for part in (Regimes.of(profiles.take(some), whole_seconds=False), regimes.take(some), joined):
        np.testing.assert_array_equal(figures(part, some), figures(regimes, np.arange(12))[:, some])
