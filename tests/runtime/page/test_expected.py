"""When jobs that wait are likely to start."""

from __future__ import annotations

import pytest

from allocator.runtime.door.views import seconds_left
from allocator.runtime.page.expected import expected_starts
from allocator.runtime.records.journal import Event
from allocator.runtime.watching import Told
from tests.runtime.model_cluster import settle
from tests.runtime.page.clusters import make_service, settled, stop_clock, submission


def test_who_waits_starts_when_who_runs_is_done(tmp_path):
    service = make_service(tmp_path)
    kind = {"job_type": "any"}
    jobs = settled(service, *(submission(gpus=2, steps=steps, **kind) for steps in (100, 1000, 300, 50)))
    stop_clock(service)
    assert expected_starts(service, 10) == {}, "nobody knows how fast they are"
    assert seconds_left(service, jobs[0]) is None
    measured = [(job, job.pool if job.pool else "v100") for job in jobs]
    service.record(Event("measured", job.uuid, data={"pool": pool, "gpus": 2, "rate": 1.0}) for job, pool in measured)
    starts = expected_starts(service, 10)
    for job in jobs[:2]:
        service.watching.tell(job, Told(0.0, service.clock()))
    starts = expected_starts(service, 10)
    assert starts[jobs[2].uuid] == pytest.approx(100), "after the shorter one"
    assert starts[jobs[3].uuid] == pytest.approx(400), "after that one"
    assert seconds_left(service, jobs[1]) == pytest.approx(1000)
    service.watching.tell(jobs[0], Told(10.0, service.clock(), seconds_left=7.0))
    assert expected_starts(service, 10)[jobs[2].uuid] == pytest.approx(7), "as it says itself"
    assert len(expected_starts(service, 1)) == 1
    service.journal.close()


def test_who_takes_turns_starts_with_a_round(tmp_path):
    service = make_service(tmp_path, "max_min_fairness_perf")
    jobs = settled(service, *(submission(gpus=2, steps=1e6) for _ in range(6)))
    assert expected_starts(service, 10) == {}, "nobody has made room for another yet"
    first = next(iter(service.book.holding.values()))
    service.record([Event("ended", first.uuid, data={"outcome": "yielded", "reason": "its lease ended"})])
    outlook = service.deciding.outlook()
    to_end = outlook.ends - stop_clock(service)
    starts = expected_starts(service, 10)
    waiting = [job for job in jobs if job.state == "queued"]
    assert len(waiting) == 5
    guesses = sorted(starts[job.uuid] for job in waiting)
    assert guesses[0] == 0, "GPUs are free"
    assert guesses[1:3] == pytest.approx([to_end] * 2)
    assert guesses[3:] == pytest.approx([to_end + outlook.seconds] * 2)
    service.journal.close()


async def test_jobs_that_fit_nowhere_have_no_guess_and_hold_nobody_up(tmp_path):
    service = make_service(tmp_path)
    jobs = settled(service, submission(gpus=9), submission(gpus=1))

    await settle(service)
    assert jobs[1].state == "running"
    assert expected_starts(service, 10) == {}
    service.journal.close()
