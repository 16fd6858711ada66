"""Durations predicted forward in time: from the past alone, in proportion, by what is told."""

from __future__ import annotations

import sys
from functools import cache

import numpy as np
import pandas as pd
import pytest

from throughputs import InputError, Trace
from throughputs.predict import (
    MODELS,
    Submissions,
    given_durations,
    noisy,
    predict_durations,
    rank_correlation,
    read_predictions,
    shape_functions,
)

EACH_MODEL = [MODELS[0], *(pytest.param(model, marks=pytest.mark.exhaustive) for model in MODELS[1:])]
"""The quicker one every day."""

DAY = 86400.0


@cache
def workload(n=900, days=21.0, seed=3):
    """Users whose jobs take a minute, an hour or a day, each within a factor of about two."""
    rng = np.random.default_rng(seed)
    who = rng.integers(0, 3, n)
    arrival = np.sort(np.round(rng.random(n) * days * DAY))
    duration = np.round(np.array([60.0, 3600.0, 43200.0])[who] * np.exp(0.7 * rng.standard_normal(n)), 1)
    user = np.array(["ada", "ben", "cleo"], dtype=object)[who]
    return Trace(["job"] * n, rng.choice([1, 2, 4], n), duration, arrival, duration=duration, user=user)


def columns_of(trace):
    return {name: getattr(trace, name).copy() for name in trace.column_names()}


@cache
def predicted(model="fast"):
    return predict_durations(workload(), model)


@pytest.mark.exhaustive
@pytest.mark.parametrize("model", EACH_MODEL)
def test_users_are_told_apart(model):
    trace, made = workload(), predicted(model)
    figures = made.quality()
    assert figures["predicted"]["model"] > 600
    assert figures["rank_correlation"] > 0.78
    assert figures["error_s"] < 0.7 * figures["error_of_median_s"]
    assert (made.seconds[~np.isnan(made.seconds)] > 0).all()
    by_user = [
        np.median(made.seconds[(trace.user == name) & (made.source == "model")]) for name in ("ada", "ben", "cleo")
    ]
    np.testing.assert_allclose(by_user, [60.0, 3600.0, 43200.0], rtol=0.35)


@pytest.mark.parametrize("model", EACH_MODEL)
@pytest.mark.filterwarnings("error")
def test_the_future_changes_no_bit_of_the_past(model):
    """Whoever comes later, and whatever is found out later, was not known."""
    trace = workload(400)
    turn = 14 * DAY
    columns = columns_of(trace)
    later = trace.arrival_time >= turn
    ends_later = trace.arrival_time + trace.duration > turn
    assert (ends_later & ~later).any()
    columns["duration"][ends_later] = columns["duration"][ends_later] * 1.7 + 2 * DAY
    columns["user"][later] = "a newcomer"
    columns["partition"][later] = "new"
    columns["scale_factor"][later] = 64
    # a column in which only later jobs differ is no column of the past
    columns["partition"][~later] = np.where(np.arange((~later).sum()) % 2, "a", "b")
    reference = columns_of(trace) | {"partition": np.where(later, "a", columns["partition"]).astype(object)}
    after = predict_durations(Trace(**columns), model).seconds
    before = predict_durations(Trace(**reference), model).seconds
    assert before[~later].tobytes() == after[~later].tobytes()
    assert before[later].tobytes() != after[later].tobytes()


def test_few_jobs_are_predicted_by_their_median_and_the_first_by_nothing():
    trace = workload().head(40)
    made = predict_durations(trace, refit_seconds=DAY)
    assert set(made.source) == {"none", "median"}
    assert (made.source[0], np.isnan(made.seconds[0])) == ("none", True)
    here = (trace.arrival_time >= DAY) & (trace.arrival_time < 2 * DAY)
    known = trace.duration[trace.arrival_time + trace.duration <= DAY]
    assert (made.seconds[here] == np.median(known)).all()
    assert sum(period.jobs for period in made.periods) == 40


def test_unknown_durations_are_not_learned_from_and_rare_categories_taken_together():
    columns = columns_of(workload())
    columns["duration"][::5] = np.nan
    columns["user"][-2:] = ["yan", "zoe"]
    made = predict_durations(Submissions.of_trace(Trace(**columns)))
    assert not np.isnan(made.seconds[-1 - (len(made.seconds) - 1) % 5])
    assert made.quality()["compared"] < 0.85 * len(made.seconds)
    assert made.last is not None
    assert made.last.labels == (("others", "ada", "ben", "cleo"),)


def test_job_types_that_are_names_have_a_kind():
    """Runs that differ in numbers alone have taken alike."""
    trace = workload()
    names = [f"{user}/sweep-lr0.{number}" for number, user in enumerate(trace.user.tolist())]
    unknown = np.full(len(trace), "all", dtype=object)
    columns = columns_of(trace) | {"user": unknown, "job_type": np.array(names, dtype=object)}
    rows = Submissions.of_trace(Trace(**columns))
    assert set(rows.columns.categories["kind"]) == {"ada-sweep-lr", "ben-sweep-lr", "cleo-sweep-lr"}
    assert predict_durations(rows).quality()["rank_correlation"] > 0.7
    assert "kind" not in Submissions.of_trace(trace).columns.categories


@pytest.mark.parametrize("model", EACH_MODEL)
def test_shapes_say_what_was_learned(model):
    made = predicted(model)
    assert made.last is not None
    shapes = shape_functions(made.last)
    by_name = {shape.name: shape for shape in shapes}
    user = by_name["user"]
    assert user.labels == ("ada", "ben", "cleo")
    assert user.factors[0] < user.factors[1] < user.factors[2]
    assert np.prod(user.factors**user.weights) == pytest.approx(1.0)
    assert by_name["hour"].reach < 2 < user.reach * by_name["mean, same user"].reach


def test_shapes_of_the_interpretable_model_are_the_whole_model():
    """Predictions are products of factors: no column acts differently beside another."""
    made = predict_durations(workload(250), "interpretable", refit_seconds=15 * DAY)
    assert made.last is not None
    rows = made.last.rows[:20]
    model = made.last.model
    other = rows.copy()
    other[:, 0] = 1.0
    for place in range(1, rows.shape[1]):
        changed, both = rows.copy(), other.copy()
        changed[:, place] = both[:, place] = rows[0, place]
        alone = model.predict(changed) - model.predict(rows)
        beside = model.predict(both) - model.predict(other)
        np.testing.assert_allclose(alone, beside, atol=1e-9)


def test_noise_is_stated_and_seeded():
    duration = workload(4000).duration
    assert noisy(duration, 0.0).tobytes() == duration.tobytes()
    one, again, other = noisy(duration, 0.5, 1), noisy(duration, 0.5, 1), noisy(duration, 0.5, 2)
    assert one.tobytes() == again.tobytes() != other.tobytes()
    assert np.std(np.log(one / duration)) == pytest.approx(0.5, rel=0.05)
    with pytest.raises(InputError, match="noise: found -1"):
        noisy(duration, -1)


def test_files_are_read_by_id(tmp_path):
    path = tmp_path / "predicted.csv"
    path.write_text("job_id,seconds,who\n2,30.5,a\n0,4,b\n")
    np.testing.assert_array_equal(read_predictions(path, 4), [4.0, np.nan, 30.5, np.nan])
    made = given_durations(workload().head(4), read_predictions(path, 4), "file")
    assert made.source.tolist() == ["file", "none", "file", "none"]


def test_what_cannot_be_predicted_is_told():
    for call, told in (
        (lambda: predict_durations(Trace(["a"], [1], [60], [0])), "field 'duration': found nothing"),
        (lambda: predict_durations(workload(), "slow"), "model: found 'slow'"),
        (lambda: predict_durations(workload(), refit_seconds=0), "refit_seconds: found 0"),
    ):
        with pytest.raises(InputError, match=told):
            call()
    assert len(predict_durations(Trace([], [], [], [])).seconds) == 0


def test_an_absent_package_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "lightgbm", None)
    with pytest.raises(InputError, match=r"cluster-allocator\[predict\]"):
        predict_durations(workload())


def philly(path):
    """Two months of the jobs of Philly, from Sunday, 2017-10-01."""
    jobs = pd.read_csv(path)
    jobs["seconds"] = (pd.to_datetime(jobs.timestamp) - pd.Timestamp("2017-10-01")).dt.total_seconds()
    jobs = jobs[(jobs.seconds >= 0) & (jobs.seconds < 61 * DAY)].sort_values("seconds", kind="stable")
    gpus, took, seconds = (jobs[name].to_numpy() for name in ("num_gpus", "duration", "seconds"))
    partition = jobs.cluster.to_numpy(dtype=object)
    trace = Trace(["job"] * len(jobs), gpus, took, seconds, duration=took, partition=partition)
    return trace, trace.arrival_time >= 45 * DAY


@pytest.mark.exhaustive
@pytest.mark.parametrize("model", MODELS)
def test_jobs_of_philly(public_data, model):
    """Fitted once, to what had ended by November 15, for the rest of November: recorded were 0.65 and 10,775 s."""
    trace, asked = philly(public_data("field/philly_82k.csv.gz"))
    rows = Submissions.of_trace(trace, offset=6 * DAY)
    made = predict_durations(rows, model, refit_seconds=45 * DAY)
    assert asked.sum() == 9684
    assert rank_correlation(made.seconds[asked], trace.duration[asked]) > 0.74
    error = np.abs(made.seconds - trace.duration)[asked].mean()
    assert error < 10775 < np.abs(made.median - trace.duration)[asked].mean()
