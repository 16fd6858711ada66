"""What the page shows: jobs, speeds, when jobs that wait are likely to start, and metrics."""

from __future__ import annotations

import asyncio
import json
import re

import pytest

from allocator.runtime.adapters.base import Node
from allocator.runtime.door.views import seconds_left
from allocator.runtime.page.metrics import Metrics
from allocator.runtime.page.picture import History, expected_starts, picture
from allocator.runtime.records.journal import Event
from allocator.runtime.watching import Told
from tests.runtime.model_cluster import settle
from tests.runtime.page.clusters import Made, submission
from throughputs import default_table

HOSTILE = "<img src=x onerror=alert(1)></script><script>alert(2)</script>\ud800"


@pytest.fixture
def service(tmp_path):
    made = Made(tmp_path)
    yield made
    made.journal.close()


def test_the_picture_is_json_that_browsers_read(service):
    names = ["first", HOSTILE, "third", "fourth", "too large"]
    service.settled(*(submission(name, gpus=9 if name == "too large" else 2) for name in names))
    shown = json.loads(json.dumps(picture(service, History(service)), allow_nan=False))
    assert {job["name"] for job in shown["running"]} == {"first", HOSTILE}
    assert {job["name"] for job in shown["queue"]} == {"third", "fourth", "too large"}
    assert all(job["reason"] for job in shown["queue"])
    nodes = [(node["name"], node["state"], node["jobs"]) for node in shown["nodes"]]
    assert [one[:2] for one in nodes] == [("one", "up"), ("two", "up")]
    assert sorted(jobs for one in nodes for jobs in one[2]) == [[0], [0], [1], [1]]
    assert all(set(one) >= {"at", "seconds", "status", "jobs"} for one in shown["decisions"])


def test_measured_speeds_are_shown_beside_those_of_the_table(service):
    service.table = default_table()
    kind = service.table.job_types[0]
    service.stop_clock()
    known, unknown = service.settled(submission(job_type=kind), submission())
    history = History(service)

    def left():
        return [job["seconds_left"] for job in picture(service, history)["running"]]

    assert left()[0] > 0, "the table knows how fast it is"
    assert left()[1] is None
    service.record(
        Event("measured", job.uuid, data={"pool": job.placed.pool, "gpus": 1, "rate": 2.5}) for job in (known, unknown)
    )
    speeds = picture(service, history)["speeds"]
    expected = float(service.table.rates([kind], [1], [known.placed.pool])[0, 0])
    assert [(one["measured"], one["believed"]) for one in speeds] == [(2.5, pytest.approx(expected)), (2.5, None)]
    assert left()[1] == pytest.approx(40)


def test_who_waits_starts_when_who_runs_is_done(service):
    jobs = service.settled(*(submission(gpus=2, steps=steps, job_type="any") for steps in (100, 1000, 300, 50)))
    service.stop_clock()
    assert expected_starts(service, 10) == {}, "nobody knows how fast they are"
    assert seconds_left(service, jobs[0]) is None
    rates = [{"pool": job.placed.pool or "v100", "gpus": 2, "rate": 1.0} for job in jobs]
    service.record(Event("measured", job.uuid, data=rate) for job, rate in zip(jobs, rates, strict=True))
    for job in jobs[:2]:
        service.watching.tell(job, Told(0.0, service.clock()))
    # after the shorter one, and after that one
    assert expected_starts(service, 10) == pytest.approx({jobs[2].uuid: 100, jobs[3].uuid: 400})
    assert seconds_left(service, jobs[1]) == pytest.approx(1000)
    service.watching.tell(jobs[0], Told(10.0, service.clock(), seconds_left=7.0))
    assert expected_starts(service, 1) == pytest.approx({jobs[2].uuid: 7}), "as it says itself"


def test_who_takes_turns_starts_with_a_round(service):
    service.policy = "max_min_fairness_perf"
    jobs = service.settled(*(submission(gpus=2, steps=1e6) for _ in range(6)))
    assert expected_starts(service, 10) == {}, "nobody has made room for another yet"
    first = next(iter(service.book.holding.values()))
    service.record([Event("ended", first.uuid, data={"outcome": "yielded", "reason": "its lease ended"})])
    this = service.deciding.round
    to_end, starts = this.end - service.stop_clock(), expected_starts(service, 10)
    guesses = sorted(starts[job.uuid] for job in jobs if job.state == "queued")
    # the first at once, as GPUs are free
    assert guesses == pytest.approx([0, to_end, to_end, to_end + this.seconds, to_end + this.seconds])


SAMPLE = re.compile(r"allocator_([a-z_]+)(?:\{(.*)\})? (NaN|[+-]?[0-9.]+(?:e[+-]?[0-9]+)?)")


def parsed(told):
    """Values by name and labels."""
    text = told.text()
    assert text.endswith("\n")
    lines = [line for line in text[:-1].split("\n") if not line.startswith(("# HELP ", "# TYPE "))]
    samples = [SAMPLE.fullmatch(line).groups() for line in lines]
    values = {(name, labels or ""): float(number) for name, labels, number in samples}
    assert len(values) == len(samples)
    return values


def test_metrics_are_of_the_format_and_right(service):
    told = Metrics(service)
    jobs = service.settled(submission(gpus=2), submission(gpus=1), submission(gpus=2))
    values = parsed(told)
    assert values["jobs", 'state="running"'] == 2
    assert values["jobs", 'state="queued"'] == 1
    assert values["gpus", 'accelerator="v100"'] == 2
    assert values["gpus_busy", 'accelerator="v100"'] + values["gpus_busy", 'accelerator="k80"'] == 3
    assert values["nodes", 'state="up"'] == 2
    assert values["events_total", 'kind="submitted"'] == 3
    buckets = [value for (name, _), value in values.items() if name == "decision_seconds_bucket"]
    assert buckets == sorted(buckets)
    assert buckets[-1] == values["decision_seconds_count", ""] >= 1
    assert values["decision_seconds_sum", ""] > 0

    async def goes_wrong():
        service.record([Event("ended", jobs[0].uuid, data={"outcome": "failed", "reason": "x", "code": 1})])
        service.adapter.machines = [Node('a"b\\c\nd\ud800é', 'ty"pe\\ \n{}', 2), Node("down", "x", 1, up=False)]
        service.see_nodes(service.adapter.machines)
        await settle(service)

    asyncio.run(goes_wrong())
    values = parsed(told)
    assert values["job_failures_total", ""] == 1
    # names of any kind are labels
    assert values["nodes", 'state="down"'] == 1
    assert ("gpus", 'accelerator="ty\\"pe\\\\ \\n{}"') in values
