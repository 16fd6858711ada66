"""Forecasts of the run time left, against a plain restatement and recorded figures of the published system."""

from __future__ import annotations

import csv
import gzip
import json
from pathlib import Path

import numpy as np
import pytest

from throughputs import InputError
from throughputs.training import Profiles, Regimes, forecast_jobs
from throughputs.training.forecast import (
    calibration_factor,
    dirichlet_remaining_seconds,
    mean_epoch_seconds,
    true_remaining_seconds,
)

RECORDED = Path(__file__).resolve().parent.parent / "reference" / "dirichlet_forecasts.csv"


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


def test_forecasts_of_the_public_profile(public_data, reference_data):
    """The same from the profile as published, with its fractions of seconds."""
    with gzip.open(public_data("shockwave/profile_120_0.2_5_100_40_25_tacc.json.gz"), "rt") as text:
        jobs = json.load(text)
    expanded = [[np.repeat(*zip(*job[name], strict=True)) for job in jobs] for name in ("bs_rle", "epoch_duration_rle")]
    profiles = Profiles.of_jobs(*expanded, [job["samples_per_epoch"] for job in jobs])
    rows = np.genfromtxt(reference_data("shockwave/dirichlet_fixtures.csv"), delimiter=",", names=True)
    regimes = Regimes.of(profiles).take(rows["job"].astype(int))
    done = rows["epoch_progress"].astype(int)
    np.testing.assert_array_equal(dirichlet_remaining_seconds(regimes, done), rows["dirichlet_remaining_s"])
    left = rows["oracle_remaining_s"]
    np.testing.assert_array_equal(true_remaining_seconds(regimes, done), np.where(left > 0, left, 1.0))


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("unseen", [False, True])
def test_dirichlet_is_the_plain_one(seed, unseen):
    sizes, seconds = draw_jobs(seed)
    regimes = Regimes.of(profiles_of(sizes, seconds), whole_seconds=False)
    rng = np.random.default_rng(seed)
    for _ in range(6):
        done = np.array([rng.integers(0, len(s) + 1) for s in sizes])
        known = regimes.seen(done) if unseen else regimes
        expected = [plain_dirichlet(*job, unseen) for job in zip(sizes, seconds, done, strict=True)]
        found = dirichlet_remaining_seconds(known, done, unseen=unseen)
        np.testing.assert_allclose(found, expected, rtol=1e-12)


@pytest.mark.parametrize("seed", range(6))
def test_causal_forecast_does_not_see_the_future(seed):
    """Epochs to come are changed at random; nothing of the forecast moves by one bit."""
    sizes, seconds = draw_jobs(seed)
    rng = np.random.default_rng(seed + 100)
    done = np.array([rng.integers(0, len(s)) for s in sizes])
    measured = rng.uniform(0, 3e6, len(sizes)), rng.uniform(0, 4000, len(sizes))

    def causal(sizes, seconds):
        return forecast_jobs(
            Regimes.of(profiles_of(sizes, seconds), whole_seconds=seed % 2 == 0),
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
    for name in ("remaining_seconds", "epoch_seconds", "finished_seconds", "factor"):
        np.testing.assert_array_equal(getattr(before, name), getattr(after, name))
    # the oracle does see it
    plans = [Regimes.of(profiles_of(*job)) for job in ((sizes, seconds), (other_sizes, other_seconds))]
    assert not np.array_equal(*(dirichlet_remaining_seconds(regimes, done) for regimes in plans))


def test_a_job_of_one_epoch():
    regimes = Regimes.of(profiles_of([[32], [32]], [[0.2], [7.5]]))
    ahead = forecast_jobs(regimes, np.array([0, 1]))
    assert regimes.seconds.tolist() == [1.0, 8.0]
    assert ahead.remaining_seconds.tolist() == [1.0, 1.0]
    assert dirichlet_remaining_seconds(regimes, np.array([0, 1])).tolist() == [0.0, 1.0]
    assert ahead.epoch_seconds.tolist() == [1.0, 8.0]
    assert ahead.finished_seconds.tolist() == [0.0, 8.0]


def test_half_seconds_go_to_the_even_second():
    regimes = Regimes.of(profiles_of([[1, 1, 1, 1]], [[0.5, 1.5, 2.5, 3.5]]))
    assert regimes.finished_seconds(np.array([4])).tolist() == [1.0 + 2.0 + 2.0 + 4.0]


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


@pytest.mark.parametrize("seed", range(6))
def test_calibration_is_the_plain_one(seed):
    sizes, seconds = draw_jobs(seed, n_jobs=30)
    rng = np.random.default_rng(seed)
    regimes = Regimes.of(profiles_of(sizes, seconds, samples=1000))
    horizon = rng.uniform(1, 2000, 30)
    measured = horizon / 45 * 1000 * rng.uniform(0.3, 3, 30)
    factor = rng.choice([1.0, 0.7, 1.6], 30)
    found = calibration_factor(regimes, measured, horizon, factor)
    rounded = [np.maximum(1, np.rint(s)) for s in seconds]
    expected = [
        plain_calibration(d, 1000, *rest, 0.4) for d, *rest in zip(rounded, measured, horizon, factor, strict=True)
    ]
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    assert 0 < (found != factor).sum() < 30


def test_calibration_is_kept_until_measurements_leave_the_band_again():
    regimes = Regimes.of(profiles_of([[8] * 10], [[100.0] * 10], samples=1000))
    slow, fair, fast = ([np.array([x])] for x in (2000.0, 4500.0, 16000.0))
    horizon, start = np.array([500.0]), np.array([1.0])
    first = calibration_factor(regimes, *slow, horizon, start)
    assert first.tolist() == [2.5]
    assert calibration_factor(regimes, *fair, horizon, first).tolist() == [2.5]
    assert calibration_factor(regimes, *fast, horizon, first).tolist() == [5000 / 16000]
    assert calibration_factor(regimes, np.array([0.0]), np.array([0.0]), first).tolist() == [2.5]


def test_calibration_stretches_everything_but_a_job_that_is_over():
    regimes = Regimes.of(profiles_of([[8] * 10, [8] * 10], [[100.0] * 10] * 2, samples=1000))
    done, horizon = np.array([4, 10]), np.array([2000.0, 2000.0])
    plain = forecast_jobs(regimes, done)
    slower = forecast_jobs(regimes, done, measured_samples=np.full(2, 4000.0), measured_seconds=horizon)
    assert slower.factor.tolist() == [5.0, 5.0]
    assert slower.remaining_seconds.tolist() == [5 * plain.remaining_seconds[0], 1.0]
    assert slower.finished_seconds.tolist() == [2000.0, 5000.0]
    believed = forecast_jobs(regimes, done, measured_samples=np.full(2, 4000.0), measured_seconds=horizon, band=None)
    assert believed.factor.tolist() == [1.0, 1.0]


def test_true_forecast_is_what_is_left():
    sizes, seconds = draw_jobs(3)
    regimes = Regimes.of(profiles_of(sizes, seconds), whole_seconds=False)
    done = np.array([len(s) // 2 for s in sizes])
    expected = [s[e:].sum() for s, e in zip(seconds, done, strict=True)]
    np.testing.assert_allclose(forecast_jobs(regimes, done, mode="true").remaining_seconds, expected, rtol=1e-12)


@pytest.mark.parametrize("mode", ["oracle", "causal", "true"])
def test_jobs_do_not_matter_to_each_other(mode):
    """Some of the jobs, in another order: the same figures, to the last bit."""
    profiles = profiles_of(*draw_jobs(5))
    rng = np.random.default_rng(0)
    done, some = rng.integers(0, profiles.epochs + 1), rng.permutation(12)[:7]
    samples, seconds = rng.uniform(0, 1e6, 12), rng.uniform(0, 900, 12)
    regimes = Regimes.of(profiles, whole_seconds=False)
    whole = forecast_jobs(regimes, done, mode=mode, measured_samples=samples, measured_seconds=seconds)
    for part in (Regimes.of(profiles.take(some), whole_seconds=False), regimes.take(some)):
        found = forecast_jobs(
            part, done[some], mode=mode, measured_samples=samples[some], measured_seconds=seconds[some]
        )
        for name in ("remaining_seconds", "epoch_seconds", "finished_seconds", "factor"):
            np.testing.assert_array_equal(getattr(found, name), getattr(whole, name)[some])


def test_runs_cover_the_epochs_and_join():
    sizes, seconds = draw_jobs(7)
    whole = Regimes.of(profiles_of(sizes, seconds))
    joined = Regimes.of(profiles_of(sizes[:5], seconds[:5])).joined(Regimes.of(profiles_of(sizes[5:], seconds[5:])))
    for name in ("job", "first", "length", "batch_size", "seconds", "regime", "epochs", "samples_per_epoch"):
        np.testing.assert_array_equal(getattr(joined, name), getattr(whole, name))
    np.testing.assert_array_equal(np.repeat(whole.batch_size, whole.length), np.concatenate(sizes))
    np.testing.assert_array_equal(np.bincount(whole.job, whole.length), [len(s) for s in sizes])


def test_bad_input_says_so():
    regimes = Regimes.of(profiles_of([[1]], [[1.0]]))
    with pytest.raises(InputError, match="oracle, causal, true"):
        forecast_jobs(regimes, np.array([0]), mode="prophet")
    with pytest.raises(InputError, match=r"measured_samples.*shape \(1,\)"):
        forecast_jobs(regimes, np.array([0]), measured_samples=np.zeros(2), measured_seconds=np.zeros(1))
