"""Forecasts of counts: from what has passed, and better than what stands recorded."""

from __future__ import annotations

import numpy as np
import pytest

from throughputs import InputError, Trace
from throughputs.predict import MODELS, arrivals_by_bin, forecast

EACH_MODEL = [MODELS[0], *(pytest.param(model, marks=pytest.mark.exhaustive) for model in MODELS[1:])]
"""The quicker one every day."""


def counts(days=8, seed=1):
    """More by day than by night, in bins of ten minutes."""
    rng = np.random.default_rng(seed)
    hour = np.arange(days * 144) // 6 % 24
    jobs = rng.poisson(np.where((hour >= 8) & (hour < 20), 9.0, 1.0)).astype(float)
    return {"jobs": jobs, "GPUs": jobs * rng.integers(1, 5, len(jobs))}


@pytest.mark.parametrize("model", EACH_MODEL)
@pytest.mark.parametrize("ahead", [1, 40])
def test_a_forecast_knows_no_bin_that_had_not_passed(model, ahead):
    series = counts(4)
    turn = 400
    changed = {name: np.where(np.arange(len(values)) >= turn, 77.0, values) for name, values in series.items()}
    before, after = (
        forecast(each, "GPUs", ahead=ahead, model=model, first=200, refit_bins=150) for each in (series, changed)
    )
    assert before[: turn + ahead].tobytes() == after[: turn + ahead].tobytes()
    assert (before[turn + ahead :] != after[turn + ahead :]).any()


def test_before_a_model_the_last_count_stands_in():
    series = {"jobs": np.arange(50.0)}
    made = forecast(series, "jobs", ahead=3)
    assert np.isnan(made[:3]).all()
    np.testing.assert_array_equal(made[3:], np.arange(47.0))


def test_bins_of_a_trace():
    trace = Trace(["a"] * 4, [1, 4, 2, 8], [9] * 4, [0, 599, 600, 1900])
    made = arrivals_by_bin(trace)
    assert made["jobs"].tolist() == [2, 1, 0, 1]
    assert made["GPUs"].tolist() == [5, 2, 0, 8]
    assert arrivals_by_bin(trace, 1000.0)["jobs"].tolist() == [3, 1]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"target": "nodes"}, "series: found 'nodes'"),
        ({"ahead": 0}, "ahead: found 0"),
        ({"bin_seconds": -1.0}, "bin_seconds: found -1.0"),
        ({"series": {"jobs": np.array([1.0, -2.0])}}, "series:2: field 'jobs': found -2.0"),
        ({"series": {"jobs": np.ones(2), "b": np.ones(3)}}, "series: field 'b': found 3"),
    ],
)
def test_bad_series(settings, message):
    with pytest.raises(InputError, match=message):
        forecast(**{"series": counts(1), "target": "jobs"} | settings)
