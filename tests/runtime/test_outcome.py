"""How starts came out, by what was seen, what the trainer said and what it had been told."""

from __future__ import annotations

from typing import Any

import pytest

from allocator.lease.files import Report
from allocator.runtime.adapters.base import Seen
from allocator.runtime.outcome import events_of_end
from allocator.runtime.records.book import Job
from allocator.runtime.settings import ServiceSettings

SETTINGS = ServiceSettings(retries=2, max_fruitless=3)


def end(
    state: str = "running",
    told: str | None = None,
    code: int | None = 0,
    signal: int = 0,
    settings: ServiceSettings = SETTINGS,
    saved: float = 0.0,
    wishes: dict[str, Any] | None = None,
    **job: Any,
) -> list[tuple[str, Any]]:
    """Kinds of the events of an end, each with its outcome or reason."""
    one = Job(0, "a", ("x",), state=state, epoch=1, **({"reason": "its lease ended"} | job))
    report = None if told is None else Report("a", 1, told, 9.0, saved_steps=saved, **(wishes or {}))
    events = events_of_end(one, Seen("a", 1, "ended", code, signal), report, 5.0, settings, 4.0)
    return [(event.kind, event.get("outcome") or event.get("reason") or event.data) for event in events]


@pytest.mark.parametrize(
    ("state", "told", "code", "outcome"),
    [
        # a program that knows nothing of leases: status 0 is the end of it, unless it was told to end
        ("running", None, 0, "completed"),
        ("stopping", None, 0, "yielded"),
        ("running", None, 1, "failed"),
        ("stopping", None, 1, "yielded"),
        ("running", None, 137, "failed"),
        # without an exit status it was not the job that ended it
        ("running", None, None, "lost"),
        ("running", "training", None, "lost"),
        ("stopping", None, None, "yielded"),
        # one that reports says which it is
        ("running", "training", 0, "completed"),
        ("stopping", "training", 0, "yielded"),
        ("running", "ending", 0, "yielded"),
        ("stopping", "ending", 0, "yielded"),
        ("running", "done", 0, "completed"),
        ("stopping", "done", 0, "completed"),
        ("running", "ending", 1, "failed"),
        ("stopping", "done", 1, "yielded"),
        ("running", "done", 1, "failed"),
    ],
)
def test_the_outcome(state: str, told: str | None, code: int | None, outcome: str) -> None:
    assert end(state, told, code) == [("ended", outcome)]


def test_what_a_job_that_was_told_to_end_becomes() -> None:
    for then in ("cancelled", "rejected"):
        assert end("stopping", "ending", then=then, reason="why") == [("ended", "yielded"), (then, "why")]
        # it was through before it heard of it
        assert end("stopping", "done", then=then, reason="why") == [("ended", "completed")]
    assert end("stopping", "training", then="failed", code=None, signal=9) == [("ended", "failed")]


def test_who_fails_is_tried_again_as_often_as_it_says_or_else_the_service() -> None:
    assert end(code=1, failures=1) == [("ended", "failed")]
    ((_, outcome), (kind, reason)) = end(code=1, failures=2)
    assert (outcome, kind) == ("failed", "gave_up")
    assert reason == "failed 3 times, the last time: exit status 1"
    assert end(code=1, retries=0)[1:] == [("gave_up", "exit status 1")]
    assert end(code=1, settings=ServiceSettings())[1:] == [("gave_up", "exit status 1")]
    assert end(code=1, settings=ServiceSettings(), retries=1) == [("ended", "failed")]
    assert end(code=1, failures=2, retries=3) == [("ended", "failed")]
    # a trainer that hangs has failed, too
    hung = end("stopping", "training", then="failed", code=137, signal=9, retries=0)
    assert [kind for kind, _ in hung] == ["ended", "gave_up"]


def test_a_job_is_given_up_after_so_many_fruitless_leases_or_starts() -> None:
    # who was lost while it ran is started again, whatever it takes
    assert end(code=None, failures=9, lost=99) == [("ended", "lost")]
    assert end("starting", code=None, lost=3) == [("ended", "lost")]
    ((_, outcome), (kind, reason)) = end("starting", code=None, lost=4)
    assert (outcome, kind) == ("lost", "gave_up")
    assert "could not be started 5 times" in reason
    assert end("stopping", "ending", fruitless=1) == [("ended", "yielded")]
    assert [kind for kind, _ in end("stopping", "ending", fruitless=2)] == ["ended", "gave_up"]
    assert end("stopping", "ending", fruitless=2, saved=1.0) == [("ended", "yielded")]
    assert end("stopping", None, fruitless=2) == [("ended", "yielded")]


def test_wishes_are_heard_of_jobs_that_go_on() -> None:
    wishes = {"gpus": 4, "batch_size": 64}
    assert end("stopping", "ending", wishes=wishes)[1:] == [("resized", wishes)]
    assert end("stopping", "ending", wishes={"gpus": 2}, gpus=2) == [("ended", "yielded")]
    assert end("running", "done", wishes=wishes) == [("ended", "completed")]
    assert [kind for kind, _ in end("stopping", "ending", wishes=wishes, then="cancelled")] == ["ended", "cancelled"]
