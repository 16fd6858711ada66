"""A service that has run: its journal as results of a simulation, beside a simulation; and admission on a live one."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from allocator.cli.app import app
from allocator.cli.service.admission import present_jobs
from allocator.presets import preset, preset_names
from allocator.runtime.door.client import Client
from allocator.runtime.recorded import RecordedRun, caveats, compared, preset_of
from allocator.runtime.records.journal import Event
from tests.runtime.test_requests import Serving
from throughputs import InputError, ThroughputTable


def allocator(*arguments):
    ran = CliRunner().invoke(app, list(map(str, arguments)))
    assert ran.exit_code == 0, f"{ran.output}{ran.exception!r}"
    return json.loads(ran.output) if "--json" in arguments else ran.output


def test_admission_beside_jobs_of_unknown_length_and_on_several_types(tmp_path):
    table = tmp_path / "table.csv"
    table.write_text("job_type,scale_factor,accelerator,throughput\nmine,1,v100,10\nmine,2,v100,20\n")
    ask = ["admit", "--state", tmp_path, "--job-type", "mine", "--throughputs", table, "--steps", "1000", "--json"]
    with Serving(tmp_path):
        client = Client(tmp_path)
        with pytest.raises(InputError, match=r"across types: drain .* k for an answer on v100.*--cluster v100:2"):
            present_jobs(tmp_path, table)
        client.ask("drain", node="k")
        assert allocator(*ask, "--within", "60")["admitted"]
        asked = {"command": ["train", "5"], "working_directory": "/", "deadline": 9000.0}
        client.ask("submit", jobs=[asked, asked | {"duration": 50.0}, asked | {"deadline": None}])
        there, policy = present_jobs(tmp_path, table)
        # an hour, as under the policy; without a deadline it makes room
        assert list(there["jobs"].job_type) == ["job 0", "job 1"]
        assert there["jobs"].total_steps.tolist() == pytest.approx([3600.0, 50.0])
        assert (policy, there["cluster"].gpus) == ("fifo_perf", {"v100": 2})
        client.ask("submit", jobs=[asked | {"job_type": "mine", "gpus": 2, "total_steps": 1e5, "deadline": 5005.0}])
        assert not allocator(*ask, "--within", "60")["admitted"]
        wrong = CliRunner().invoke(app, [*map(str, ask), "--within", "9", "--cluster", "v100:2"])
        assert "the service knows" in str(wrong.exception)
        client.ask("drain", node="v")
        with pytest.raises(InputError, match=r"no GPUs in use.*resume nodes \(v k\)"):
            present_jobs(tmp_path, table)


def events():
    """Two jobs on one GPU; the second starts when the first has made room and finds it 0.5 s late."""
    starts = {"pool": "v100", "places": {"n": [0]}}

    def end(outcome, steps, trained, seconds):
        saved = {"steps": steps, "saved_steps": steps, "trained_steps": trained, "trained_seconds": seconds}
        return saved | {"outcome": outcome, "reason": "", "code": 0, "signal": 0}

    told = [
        (0.0, "service", "", {"nodes": [{"name": "n", "accelerator": "v100", "gpus": 1}]}),
        (10.0, "submitted", "a", {"command": ["x"], "total_steps": 100.0}),
        (10.0, "submitted", "b", {"command": ["y"], "job_type": "t", "total_steps": 50.0, "gpus": 1}),
        (10.0, "decision", "", {"asked": True, "seconds": 0.1}),
        (10.0, "starting", "a", {"epoch": 1} | starts),
        (10.0, "running", "a", {}),
        (20.0, "decision", "", {"asked": False, "seconds": 0.0}),
        (20.0, "stopping", "a", {"reason": "its lease ended"}),
        (20.3, "ended", "a", end("yielded", 90.0, 90.0, 9.0)),
        (20.5, "starting", "b", {"epoch": 1} | starts),
        (26.0, "ended", "b", end("completed", 50.0, 50.0, 5.0)),
        (26.0, "starting", "a", {"epoch": 2} | starts),
        (28.0, "ended", "a", end("completed", 100.0, 10.0, 1.0)),
    ]
    return [Event(kind, uuid, at, data, at, number) for number, (at, kind, uuid, data) in enumerate(told, 1)]


def test_leases_by_hand():
    run = RecordedRun(events(), ThroughputTable([("t", 1)], ["v100"], [[99.0]]))
    assert run.trace.arrival_time.tolist() == [0.0, 0.0]
    assert run.trace.total_steps.tolist() == [100.0, 50.0]
    assert run.table.rates(["job 0", "t"], [1, 1], ["v100"])[:, 0].tolist() == [10.0, 10.0]
    # 10 s for 90 steps, 6 s for 50, 2 s for 10, at 10 steps/s
    assert run.restart_seconds == pytest.approx(1.0)
    result = run.result({})
    assert (result.makespan, result.policy_calls) == (18.0, 1)
    assert result.utilization == pytest.approx((10.3 + 5.5 + 2.0) / 18.0)
    assert result.jobs["jct"].tolist() == [18.0, 16.0]
    assert result.jobs["preemptions"].tolist() == [1, 0]
    assert result.rounds["steps"].tolist() == [90.0, 50.0, 10.0]
    assert result.timeline["active_jobs"].tolist()[-1] == 1


@pytest.mark.parametrize("name", preset_names())
def test_a_journal_tells_the_settings_of_a_service(name):
    """But for what starts cost, which it saw."""
    run = RecordedRun(events(), ThroughputTable([("t", 1)], ["v100"], [[99.0]]))
    run.run = {"settings": json.loads(json.dumps(preset(name).as_dict()))}
    starts = {"restart_penalty_seconds": run.restart_seconds, "restart_when_moved": True, "restart_delays": True}
    assert preset_of(run).as_dict() == preset(name).replace(**starts).as_dict()


RUN = {"policy": "fifo_perf", "policy_settings": {}, "settings": {"round_seconds": 5.0}, "seed": 0}
OTHER = RUN | {"settings": {"round_seconds": 7.0}}
GONE = {"nodes": [{"name": "n", "accelerator": "v100", "gpus": 1, "up": False}]}


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ((), []),
        # before there were jobs, and the same once more
        (((1, "run", OTHER),), []),
        (((8, "run", RUN),), []),
        (((8, "run", OTHER),), ["after 10 s round_seconds 5.0 -> 7.0"]),
        (((8, "run", OTHER | {"policy": "srtf"}),), ["after 10 s fifo_perf -> srtf, round_seconds 5.0 -> 7.0"]),
        (((8, "cluster", GONE),), ["GPUs came"]),
        (((8, "node", {"name": "n", "drained": True}),), ["GPUs came or went"]),
    ],
)
def test_what_changed_on_the_way_is_told_and_not_compared(more, words):
    told = events()
    for after, kind, data in sorted([*more, (1, "run", RUN)], key=lambda one: -one[0]):
        told.insert(after, Event(kind, "", told[after].clock, data))
    run = RecordedRun(told)
    found = caveats(run)
    assert len(found) == len(words)
    assert all(expected in caveat.words for expected, caveat in zip(words, found, strict=True))
    result = run.result({})
    comparison = compared(result, result, found)
    errors = [row["error"] for row in comparison["figures"] + comparison["jobs"]]
    assert errors == ([None] * 7 if words else [0.0] * 7)
    assert (comparison["largest_absolute_error_of_jct"] is None) == bool(words)


def test_jobs_that_are_not_through_are_told_of_and_left_out():
    # of two jobs the second is through, the first runs again
    run = RecordedRun(events()[:-1])
    (caveat,) = caveats(run)
    assert "1 of 2 jobs are not through" in caveat.words
    whole = RecordedRun(events()).result({})
    comparison = compared(run.result({}), whole, [caveat])
    figures = {row["figure"]: row for row in comparison["figures"]}
    assert comparison["jobs_that_complete_in_both"] == 1
    assert (figures["average_jct"]["simulated"], figures["average_jct"]["error"]) == (16.0, 0.0)
    assert figures["median_jct"]["error"] == 0.0
    assert [figures[name]["error"] for name in ("makespan", "utilization", "preemptions")] == [None] * 3


def recorded(told):
    return RecordedRun(told)


def test_gpus_are_meant_for_a_job_once_whoever_held_them_was_told_to_end():
    # the decision long before, and nothing decided since: as late as in `test_leases_by_hand`
    run = recorded([event for event in events() if (event.kind, event.clock) != ("decision", 20.0)])
    assert run.restart_seconds == pytest.approx(1.0)


def test_an_error_is_a_part_of_what_was_real():
    later = [replace(event, clock=10.0 + 2.0 * (event.clock - 10.0)) if event.job else event for event in events()]
    comparison = compared(recorded(events()).result({}), recorded(later).result({}))
    # 18 and 16 s, and twice as long
    assert [job["error"] for job in comparison["jobs"]] == [1.0, 1.0]
    assert comparison["figures"][0] == {"figure": "average_jct", "real": 17.0, "simulated": 34.0, "error": 1.0}
