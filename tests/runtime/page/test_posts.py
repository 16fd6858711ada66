"""The status protocol of Kubeflow Trainer, as its clients speak it."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allocator.runtime.door.requests import Requests
from allocator.runtime.page.access import Access
from allocator.runtime.page.app import Desk, make_app
from allocator.runtime.records.journal import Event
from tests.runtime.model_cluster import settle
from tests.runtime.page.asking import Asker
from tests.runtime.page.clusters import make_service, settled, submission
from tests.runtime.page.test_app import json_values

ACCESS = Access("a-token-of-some-length")


@pytest.fixture
def service(tmp_path):
    made = make_service(tmp_path)
    settled(made, submission(steps=1000), submission(steps=0))
    yield made
    made.journal.close()


@pytest.fixture
def asker(service):
    return Asker(make_app(Desk(service, Requests(service), ACCESS)))


def post(asker, job, status, epoch=None, token=None):
    number = job.epoch if epoch is None else epoch
    shown = ACCESS.of_job(job.uuid, number) if token is None else token
    headers = {"authorization": f"Bearer {shown}"}
    return asker.post(f"/jobs/{job.uuid}/{number}/status", headers, data={"trainerStatus": status})


def test_percentages_are_steps(service, asker):
    job = service.book.by_id[0]
    answer = post(asker, job, {"progressPercentage": 45, "lastUpdatedTime": "2026-01-01T00:00:00+00:00"})
    assert (answer.status, answer.json()) == (200, {})
    assert service.steps_of(job) == 450
    post(asker, job, {"progressPercentage": 0, "metrics": [{"name": "total_steps", "value": "1000"}]})
    assert service.steps_of(job) == 450, "a trainer that begins may go on from the middle"


def test_metrics_with_steps_are_finer(service, asker):
    known, unknown = service.book.by_id
    metrics = [{"name": "current_step", "value": "123"}, {"name": "total_steps", "value": "500"}]
    for job in (known, unknown):
        assert post(asker, job, {"progressPercentage": 24, "metrics": metrics}).status == 200
    assert service.steps_of(known) == pytest.approx(246), "it counts otherwise: its share of the way counts"
    assert service.steps_of(unknown) == 123
    told = service.watching.told(known)
    assert told is not None
    assert told.metrics["current_step"] == "123"


def test_totals_that_are_none_do_not_count(service, asker):
    known = service.book.by_id[0]
    for total in ("0", "1e-320", "1e-5", "-3", "nan", "inf", "1e400"):
        for current, steps in (("0", 0.0), ("5", 5.0)):
            metrics = [{"name": "current_step", "value": current}, {"name": "total_steps", "value": total}]
            assert post(asker, known, {"metrics": metrics}).status == 200
            assert service.steps_of(known) == steps


def test_speed_is_measured_from_posts(service, asker):
    job = service.book.by_id[0]
    service.clock = lambda: 5.0
    post(asker, job, {"progressPercentage": 0, "metrics": [{"name": "total_steps", "value": 1000}]})
    for step, clock in ((100, 10.0), (200, 20.0), (150, 21.0), (350, 41.0)):
        service.clock = lambda clock=clock: clock
        post(asker, job, {"metrics": [{"name": "current_step", "value": step}]})
    (measured,) = service.watching.measure()
    assert (measured.kind, measured["rate"]) == ("measured", 10.0)
    assert service.watching.measure() == []


async def test_what_was_posted_is_kept_when_a_start_ends(service, asker):
    job = service.book.by_id[0]
    post(asker, job, {"progressPercentage": 70})

    service.stop([job], "its lease ended")
    await service.adapter.kill(job.uuid, job.epoch)
    await settle(service)
    assert job.epoch >= 2
    assert job.steps == 700


@pytest.mark.parametrize("token", ["", "wrong", "a-token-of-some-length", ACCESS.of_job("another", 1)])
def test_only_the_start_itself_may_post(service, asker, token):
    job = service.book.by_id[0]
    assert post(asker, job, {"progressPercentage": 99}, token=token).status == 401
    assert service.watching.told(job) is None


def test_a_start_that_is_over_may_not_post(service, asker):
    job = service.book.by_id[0]
    assert post(asker, job, {"progressPercentage": 99}, epoch=job.epoch + 1).status == 409
    service.record([Event("cancelled", job.uuid, data={"reason": "x"})])
    assert post(asker, job, {"progressPercentage": 99}).status == 409


@pytest.mark.parametrize(
    "status",
    [
        None,
        [],
        "x",
        {"progressPercentage": -1},
        {"progressPercentage": 101},
        {"progressPercentage": "45"},
        {"progressPercentage": True},
        {"progressPercentage": float("nan")},
        {"estimatedRemainingSeconds": -5},
        {"metrics": "x"},
        {"metrics": [1]},
        {"metrics": [{"value": "1"}]},
    ],
)
def test_what_makes_no_sense_is_refused(service, asker, status):
    answer = post(asker, service.book.by_id[0], status)
    assert answer.status == 422
    assert answer.json()["message"]
    assert service.watching.told(service.book.by_id[0]) is None


def test_large_and_odd_posts(service, asker):
    job = service.book.by_id[0]
    many = [{"name": f"m{k}" * 50, "value": "9" * 1000} for k in range(40)]
    assert post(asker, job, {"progressPercentage": 1, "metrics": many}).status == 200
    told = service.watching.told(job)
    assert told is not None
    assert len(told.metrics) <= 32
    assert all(len(name) + len(value) <= 128 for name, value in told.metrics.items())
    assert post(asker, job, {"metrics": [{"name": "x", "value": "y" * 100_000}]}).status == 413
    headers = {"authorization": f"Bearer {ACCESS.of_job(job.uuid, job.epoch)}"}
    for body in (b"", b"{", b"\xff", b"[" * 50_000, b"9" * 5000):
        assert asker.post(f"/jobs/{job.uuid}/{job.epoch}/status", headers, content=body).status in (400, 422)


@settings(max_examples=200, deadline=None)
@given(
    status=st.dictionaries(
        st.sampled_from(["progressPercentage", "estimatedRemainingSeconds", "metrics", "lastUpdatedTime"]),
        json_values
        | st.lists(
            st.fixed_dictionaries(
                {"name": st.sampled_from(["current_step", "total_steps", "loss"]), "value": json_values}
            ),
            max_size=3,
        ),
    )
)
def test_no_post_breaks_it(fuzzed, status):
    service, asker = fuzzed
    job = service.book.by_id[0]
    assert post(asker, job, status).status in (200, 422)
    assert 0 <= service.steps_of(job) <= 1000
    json.dumps(service.steps_of(job), allow_nan=False)


@pytest.fixture(scope="module")
def fuzzed(tmp_path_factory):
    made = make_service(tmp_path_factory.mktemp("state"))
    settled(made, submission(steps=1000))
    yield made, Asker(make_app(Desk(made, Requests(made), ACCESS)))
    made.journal.close()
