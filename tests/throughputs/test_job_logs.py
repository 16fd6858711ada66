"""Job logs of one's own: dialects, units, sacct, and what is left out or refused."""

from __future__ import annotations

import gzip
import json
import re
from datetime import UTC, datetime, timedelta, timezone

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from throughputs import InputError, import_log, read_trace, trace_of

HEADER = "submit_time,duration_s,gpus"


@pytest.fixture
def imported(tmp_path):
    """Imports text as a log."""

    def read(text, columns=None, name="log.csv", **options):
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return import_log(path, columns, **options)

    return read


def columns(trace):
    """The columns of a trace as lists, nan as None."""
    return {
        name: [None if value != value else value for value in getattr(trace, name).tolist()]
        for name in trace.column_names()
    }


ORIGIN = datetime(2024, 3, 30, 23, 0, tzinfo=UTC)  # the night in which clocks change in Berlin
QUARTERS = st.integers(0, 4 * 86400 * 3).map(lambda quarters: quarters / 4)
NAMES = st.sampled_from(["", "ann", "bob", "a user; with, marks", 'says "hi"', "Zoë", "12"])
JOBS = st.lists(
    st.fixed_dictionaries(
        {
            "at": QUARTERS,
            "seconds": st.integers(1, 400_000),
            "gpus": st.integers(1, 64),
            "user": NAMES,
            "model": NAMES,
            "queue": st.sampled_from(["", "batch", "a100"]),
            "weight": st.sampled_from([0.5, 1.0, 4.0]),
        }
    ),
    min_size=1,
    max_size=12,
)


def clock(seconds):
    days, rest = divmod(seconds, 86400)
    text = f"{rest // 3600:02d}:{rest // 60 % 60:02d}:{rest % 60:02d}"
    return f"{days}-{text}" if days else text


def date(at, zone):
    moment = (ORIGIN + timedelta(seconds=at)).astimezone(zone)
    return moment.isoformat()


TIMES = {
    "seconds": lambda at: repr(at),
    "epoch": lambda at: repr(ORIGIN.timestamp() + at),
    "ms": lambda at: repr(int(at * 1000)),
    "utc": lambda at: date(at, UTC).replace("+00:00", "Z"),
    "offset": lambda at: date(at, timezone(timedelta(hours=-7))).replace("T", " "),
    "bare": lambda at: date(at, UTC).removesuffix("+00:00"),
}
DURATIONS = {
    "duration_s": repr,
    "Run Time (min)": lambda seconds: repr(seconds / 60),
    "hours": lambda seconds: repr(seconds / 3600),
    "elapsed": clock,
    "wallTimeDays": lambda seconds: repr(seconds / 86400),
}


@settings(max_examples=20)
@given(
    jobs=JOBS,
    times=st.sampled_from(list(TIMES)),
    lasting=st.sampled_from(list(DURATIONS)),
    mark=st.sampled_from([",", ";", "\t"]),
    seed=st.integers(0, 9),
)
def test_a_log_in_any_dialect_is_the_same_trace(tmp_path_factory, jobs, times, lasting, mark, seed):
    path = tmp_path_factory.mktemp("dialect") / "log.csv.gz"
    frame = pd.DataFrame(
        {
            "Submit_ms" if times == "ms" else "SubmitTime": [TIMES[times](job["at"]) for job in jobs],
            lasting: [DURATIONS[lasting](job["seconds"]) for job in jobs],
            "num_gpus": [job["gpus"] for job in jobs],
            "owner": [job["user"] for job in jobs],
            "model-name": [job["model"] for job in jobs],
            "queue": [job["queue"] for job in jobs],
            "Weight": [job["weight"] for job in jobs],
            "note": "",
        }
    )
    frame = frame[np.random.default_rng(seed).permutation(frame.columns)]
    text = frame.to_csv(sep=mark, index=False, lineterminator="\r\n" if seed % 2 else "\n")
    path.write_bytes(gzip.compress(text.encode()))
    found = import_log(path, strict=True)
    ordered = sorted(jobs, key=lambda job: job["at"])
    trace = found.trace
    assert trace.arrival_time.tolist() == [job["at"] - ordered[0]["at"] for job in ordered]
    assert trace.duration.tolist() == [float(job["seconds"]) for job in ordered]
    assert trace.total_steps.tolist() == trace.duration.tolist()
    assert trace.scale_factor.tolist() == [job["gpus"] for job in ordered]
    assert trace.user.tolist() == [job["user"] for job in ordered]
    assert trace.job_type.tolist() == [job["model"] or "job" for job in ordered]
    assert trace.partition.tolist() == [job["queue"] for job in ordered]
    assert trace.priority_weight.tolist() == [job["weight"] for job in ordered]
    assert found.unread == ("note",)
    assert found.dropped == {}
    found.write(path.with_name("jobs.csv"))
    assert columns(read_trace(path.with_name("jobs.csv"))) == columns(trace)


def test_the_origin_is_kept(imported, tmp_path):
    dates = imported(f"{HEADER}\n2024-05-01T10:00:01+02:00,9,1\n2024-05-01T10:00:00.5+02:00,9,1\n")
    assert dates.origin == "2024-05-01T08:00:00.500000+00:00"
    assert dates.trace.arrival_time.tolist() == [0.0, 0.5]
    dates.write(tmp_path / "jobs.csv")
    assert "2024-05-01T08:00:00.500000+00:00" in (tmp_path / "jobs.csv").read_text().splitlines()[0]
    assert imported(f"{HEADER}\n1714550400,9,1\n1714550401,9,1\n").origin == "1714550400"
    assert imported("submit_min;duration;gpus\n1,5;9;1\n").origin == "90"


def test_options_come_before_names(imported):
    text = "submit,start,hours,minutes,num_gpus,gpus,owner\n5,7,1,30,2,4,ann\n"
    found = imported(text, {"submit": "start", "duration": "minutes", "gpus": "num_gpus"}, clock_unit="h")
    assert (found.origin, found.units) == ("25200", {"duration": "min", "submit": "h"})
    assert (found.trace.duration.tolist(), found.trace.scale_factor.tolist()) == ([1800.0], [2])
    assert [name for name, column in found.columns.items() if column.guessed] == ["user"]
    assert found.unread == ("submit", "hours", "gpus")
    assert imported(text, duration_unit="days").trace.duration.tolist() == [86400.0]


def test_units_that_nothing_tells_are_assumed(imported):
    found = imported("created_at,runtime,gpus\n1714550400000,9,1\n1714550400250,9,1\n")
    assert (found.units, found.assumed) == ({"duration": "s", "submit": "ms"}, {"duration", "submit"})
    assert (found.origin, found.trace.arrival_time.tolist()) == ("1714550400", [0.0, 0.25])
    told = imported("created_at,run_time_h,gpus\n1714550400,9,1\n", clock_unit="s")
    assert (told.units, told.assumed) == ({"duration": "h", "submit": "s"}, frozenset())


def test_steps_and_types_of_a_log_are_kept(imported, tmp_path):
    frame = pd.DataFrame({"submit": [0, 1, 2], "steps": [500, 0, 9], "gpus": 1, "model": ["A3C", "x", "mine"]})
    frame.to_parquet(tmp_path / "log.parquet")
    found = import_log(tmp_path / "log.parquet")
    assert (found.trace.total_steps.tolist(), found.trace.job_type.tolist()) == ([500.0, 9.0], ["A3C", "mine"])
    assert np.isnan(found.trace.duration).all()
    assert found.dropped == {"unreadable steps": 1}
    both = imported("submit,steps,runtime,gpus\n0,500,250,1\n")
    assert (both.trace.total_steps.tolist(), both.trace.duration.tolist()) == ([500.0], [250.0])
    # seconds are no steps of the embedded table
    seconds = imported("submit,duration,gpus,model\n0,500,1,A3C\n1,500,1,mine\n")
    assert seconds.trace.job_type.tolist() == ["A3C (as logged)", "mine"]


@pytest.mark.parametrize("cell", ["2024", "20240501", "5", "01.05.2024", "2024-02-30"])
def test_among_dates_all_are_dates(imported, cell):
    assert imported(f"{HEADER}\n2024-05-01T00:00:00Z,9,1\n{cell},9,1\n").dropped == {"unreadable submission": 1}


def test_starts_and_ends_stand_in(imported):
    text = "start,end,gpus,state\n2024-01-01 00:00:00,2024-01-01 01:00:00,1,DONE\n,,1,DONE\n2024-01-01,,1,RUNNING\n"
    found = imported(text)
    assert found.trace.duration.tolist() == [3600.0]
    assert found.dropped == {"no submission": 1, "no end": 1}
    assert len(found.notes) == 2
    assert np.isnan(found.trace.recorded_start_seconds).all()


def test_dates_of_a_zone_survive_the_change_of_clocks(imported):
    text = f"{HEADER}\n2024-03-31 01:30:00,9,1\n2024-03-31 03:30:00,9,1\n2024-03-31 03:30:00+02:00,9,1\n"
    found = imported(text, zone="Europe/Berlin")
    assert found.trace.arrival_time.tolist() == [0.0, 3600.0, 3600.0]
    assert found.origin == "2024-03-31T00:30:00+00:00"
    assert np.isnan(found.trace.recorded_start_seconds).all()
    with pytest.raises(InputError, match=r"zone: found 'Mars'"):
        imported(f"{HEADER}\n0,9,1\n", zone="Mars")


def test_deadlines_are_on_the_clock_of_the_submission(imported):
    found = imported(f"{HEADER},deadline\n100,9,1,150\n50,9,1,\n120,9,1,110\n130,9,1,soon\n")
    assert columns(found.trace)["deadline"] == [None, 100.0]
    assert found.dropped == {"unreadable deadline": 1, "deadline before submission": 1}


SACCT = """\
JobID|User|Partition|State|Submit|Start|End|Elapsed|AllocTRES|ReqTRES|Priority|JobName|
100|ann|gpu|COMPLETED|2024-03-01T08:00:00|2024-03-01T08:10:00|2024-03-01T09:10:00|01:00:00|billing=8,cpu=8,gres/gpu:a100=2,gres/gpu=2,mem=64G,node=1|cpu=8,gres/gpu=2|4294|say "hi|
100.batch||||2024-03-01T08:10:00|2024-03-01T08:10:00|2024-03-01T09:10:00|01:00:00|cpu=8,gres/gpu=2,mem=64G,node=1|||batch|
101|bob|gpu|CANCELLED by 1001|2024-03-01T08:05:00|None|2024-03-01T08:06:00|00:00:00||cpu=8,gres/gpu=8|1|x|
102|bob|long|TIMEOUT|2024-03-01T08:06:00|2024-03-01T08:06:30|2024-03-03T09:06:31|2-01:00:01|cpu=4,gres/gpu:a100=3,gres/gpu:v100=1|cpu=8,gres/gpu=8|1|x|
103|eve|cpu|COMPLETED|2024-03-01T08:07:00|2024-03-01T08:07:00|2024-03-01T08:08:00|00:01:00|billing=1,cpu=1|cpu=1|1|x|
104_7|eve|gpu|RUNNING|2024-03-01T08:09:00|2024-03-01T09:09:00|Unknown|45:10|cpu=1,gres/gpu=1|cpu=1,gres/gpu=1|1|x|
105_[1-5]|eve|gpu|PENDING|2024-03-01T08:09:00|Unknown|Unknown|00:00:00||cpu=1,gres/gpu=1|1|x|
106|eve|gpu|FAILED|2024-03-01T08:09:30|2024-03-01T08:10:00|2024-03-01T08:10:00|00:00:00|gres/gpu=1|gres/gpu=1|1|x|
107|eve|gpu|FAILED|2024-03-01T08:09:40|2024-03-01T08:10:00|2024-03-01T08:10:07|00:00:07||cpu=1,gres/gpu=3|1|x|
"""  # noqa: E501
SACCT_TRACE = {
    "arrival_time": [0.0, 360.0, 540.0, 580.0],
    "duration": [3600.0, 176401.0, 2710.0, 7.0],
    "scale_factor": [2, 4, 1, 3],
    "user": ["ann", "bob", "eve", "eve"],
    "partition": ["gpu", "long", "gpu", "gpu"],
    "gpu_type": ["a100", "a100|v100", "", ""],
    "trace_id": ["100", "102", "104_7", "107"],
    "arrival_date": [datetime(2024, 3, 1, 7, minute, second) for minute, second in ((0, 0), (6, 0), (9, 0), (9, 40))],
    "recorded_start_seconds": [600.0, 390.0, 4140.0, 600.0],
    "recorded_end_seconds": [4200.0, 176791.0, 6850.0, 607.0],
}
SACCT_DROPPED = {"never started": 2, "no GPUs": 1, "zero duration": 1}


@pytest.mark.parametrize("parsable", ["-p", "-P"])
def test_sacct_text(imported, parsable):
    text = SACCT if parsable == "-p" else "".join(line[:-1] + "\n" for line in SACCT.splitlines())
    found = imported(text, zone="Europe/Berlin", name="sacct.txt")
    assert (found.kind, found.rows, found.origin) == ("sacct", 8, "2024-03-01T07:00:00+00:00")
    assert {name: columns(found.trace)[name] for name in SACCT_TRACE} == SACCT_TRACE
    assert found.dropped == SACCT_DROPPED
    assert found.unread == ("Priority", "JobName")
    assert "still running: 1" in found.notes[0]
    assert "a100 and v100: 1" in found.notes[1]
    assert imported(text, {"user": "JobName"}).trace.user.tolist()[0] == 'say "hi'


def test_a_run_after_which_a_job_was_queued_again_is_a_job(imported):
    log = (
        "JobID|State|Submit|Start|End|Elapsed|AllocTRES\n"
        "1|REQUEUED|2024-03-01T08:00:00|2024-03-01T08:10:00|2024-03-01T08:40:00|00:30:00|gres/gpu=2\n"
        "1|COMPLETED|2024-03-01T08:40:00|2024-03-01T09:10:00|2024-03-01T09:40:00|00:30:00|gres/gpu=2\n"
        "2|REQUEUED|2024-03-01T08:40:00|Unknown|Unknown|00:00:00|gres/gpu=2\n"
    )
    found = imported(log, name="sacct.txt")
    assert columns(found.trace)["recorded_status"] == ["cancelled", "completed"]
    assert columns(found.trace)["recorded_start_seconds"] == [600.0, 4200.0]
    assert found.dropped == {"never started": 1}
    early = imported(log.replace("T09:40:00", "T09:00:00"), name="sacct.txt")
    assert columns(early.trace) == columns(found.trace)
    assert any("ended before the start: 1" in note for note in early.notes)


SACCT_JSON = """\
{"jobs": [
{"job_id": 100, "array": {}, "association": {"user": "ann", "account": "x"}, "partition": "gpu", "state": {"current":
["COMPLETED"], "reason": "None"}, "time": {"submission": {"set": true, "infinite": false, "number": 1709276400},
"start": {"set": true, "infinite": false, "number": 1709277000}, "end": {"set": true, "infinite": false, "number":
1709280600}, "elapsed": 3600}, "tres": {"allocated": [{"type": "billing", "name": "", "count": 8}, {"type": "cpu",
"name": "", "count": 8}, {"type": "gres", "name": "gpu:a100", "count": 2}, {"type": "gres", "name": "gpu", "count":
2}, {"type": "mem", "name": "", "count": "64G"}, {"type": "node", "name": "", "count": 1}], "requested": [{"type":
"cpu", "name": "", "count": 8}, {"type": "gres", "name": "gpu", "count": 2}]}, "steps": [{"state": "COMPLETED"}]},
{"job_id": 101, "array": {}, "association": {"user": "bob", "account": "x"}, "partition": "gpu", "state": {"current":
["CANCELLED"], "reason": "None"}, "time": {"submission": {"set": true, "infinite": false, "number": 1709276700},
"start": {"set": true, "infinite": false, "number": 0}, "end": {"set": true, "infinite": false, "number": 1709276760},
"elapsed": 0}, "tres": {"allocated": [], "requested": [{"type": "cpu", "name": "", "count": 8}, {"type": "gres",
"name": "gpu", "count": 8}]}, "steps": [{"state": "COMPLETED"}]},
{"job_id": 102, "array": {}, "association": {"user": "bob", "account": "x"}, "partition": "long", "state": {"current":
["TIMEOUT"], "reason": "None"}, "time": {"submission": {"set": true, "infinite": false, "number": 1709276760},
"start": {"set": true, "infinite": false, "number": 1709276790}, "end": {"set": true, "infinite": false, "number":
1709453191}, "elapsed": 176401}, "tres": {"allocated": [{"type": "cpu", "name": "", "count": 4}, {"type": "gres",
"name": "gpu:a100", "count": 3}, {"type": "gres", "name": "gpu:v100", "count": 1}], "requested": [{"type": "cpu",
"name": "", "count": 8}, {"type": "gres", "name": "gpu", "count": 8}]}, "steps": [{"state": "COMPLETED"}]},
{"job_id": 103, "array": {}, "association": {"user": "eve", "account": "x"}, "partition": "cpu", "state": {"current":
["COMPLETED"], "reason": "None"}, "time": {"submission": {"set": true, "infinite": false, "number": 1709276820},
"start": {"set": true, "infinite": false, "number": 1709276820}, "end": {"set": true, "infinite": false, "number":
1709276880}, "elapsed": 60}, "tres": {"allocated": [{"type": "billing", "name": "", "count": 1}, {"type": "cpu",
"name": "", "count": 1}], "requested": [{"type": "cpu", "name": "", "count": 1}]}, "steps": [{"state": "COMPLETED"}]},
{"job_id": 104, "array": {"job_id": 104, "task_id": {"set": true, "number": 7}}, "association": {"user": "eve",
"account": "x"}, "partition": "gpu", "state": {"current": ["RUNNING"], "reason": "None"}, "time": {"submission":
{"set": true, "infinite": false, "number": 1709276940}, "start": {"set": true, "infinite": false, "number":
1709280540}, "end": {"set": true, "infinite": false, "number": 0}, "elapsed": 2710}, "tres": {"allocated": [{"type":
"cpu", "name": "", "count": 1}, {"type": "gres", "name": "gpu", "count": 1}], "requested": [{"type": "cpu", "name":
"", "count": 1}, {"type": "gres", "name": "gpu", "count": 1}]}, "steps": [{"state": "COMPLETED"}]},
{"job_id": 105, "array": {}, "association": {"user": "eve", "account": "x"}, "partition": "gpu", "state": {"current":
["PENDING"], "reason": "None"}, "time": {"submission": {"set": true, "infinite": false, "number": 1709276940},
"start": {"set": true, "infinite": false, "number": 0}, "end": {"set": true, "infinite": false, "number": 0},
"elapsed": 0}, "tres": {"allocated": [], "requested": [{"type": "cpu", "name": "", "count": 1}, {"type": "gres",
"name": "gpu", "count": 1}]}, "steps": [{"state": "COMPLETED"}]},
{"job_id": 106, "array": {}, "association": {"user": "eve", "account": "x"}, "partition": "gpu", "state": {"current":
["FAILED"], "reason": "None"}, "time": {"submission": {"set": true, "infinite": false, "number": 1709276970}, "start":
{"set": true, "infinite": false, "number": 1709277000}, "end": {"set": true, "infinite": false, "number": 1709277000},
"elapsed": 0}, "tres": {"allocated": [{"type": "gres", "name": "gpu", "count": 1}], "requested": [{"type": "gres",
"name": "gpu", "count": 1}]}, "steps": [{"state": "COMPLETED"}]},
{"job_id": 107, "array": {}, "association": {"user": "eve", "account": "x"}, "partition": "gpu", "state": {"current":
["FAILED"], "reason": "None"}, "time": {"submission": {"set": true, "infinite": false, "number": 1709276980}, "start":
{"set": true, "infinite": false, "number": 1709277000}, "end": {"set": true, "infinite": false, "number": 1709277007},
"elapsed": 7}, "tres": {"allocated": [], "requested": [{"type": "cpu", "name": "", "count": 1}, {"type": "gres",
"name": "gpu", "count": 3}]}, "steps": [{"state": "COMPLETED"}]}
]}
"""
"""The jobs of `SACCT` as sacct --json prints them."""


@pytest.mark.parametrize("older", [False, True])
def test_sacct_json(imported, older):
    text = re.sub(r'\{"set": true, "infinite": false,\s"number":\s(\d+)\}', r"\1", SACCT_JSON) if older else SACCT_JSON
    text = re.sub(r'"current":\s\["(\w+)"\]', r'"current": "\1"', text) if older else text
    found = imported(text, name="sacct.json")
    assert (found.kind, found.rows, found.origin) == ("sacct --json", 8, "2024-03-01T07:00:00+00:00")
    assert {name: columns(found.trace)[name] for name in SACCT_TRACE} == SACCT_TRACE
    assert found.dropped == SACCT_DROPPED


BAD_ROWS = {
    ("no submission", "submit_time"): [",10,1"],
    ("unreadable submission", "submit_time"): ["x,10,1", "1e300,10,1"],
    ("unreadable duration", "duration_s"): ["0,1e300,1", "0,1:99:00,1"],
    ("no duration", "duration_s"): ["0,,1"],
    ("zero duration", "duration_s"): ["0,0,1"],
    ("negative duration", "duration_s"): ["0,-5,1"],
    ("no GPUs", "gpus"): ["0,10,0", "0,10,", "0,10"],
    ("unreadable GPUs", "gpus"): ["0,10,1.5", "0,10,-1"],
    ("more cells than the header", "submit_time"): ["0,10,1,9"],
}


@pytest.mark.parametrize(("reason", "field", "row"), [(*told, row) for told, rows in BAD_ROWS.items() for row in rows])
def test_a_row_that_cannot_be_used_is_left_out_or_an_error(imported, reason, field, row):
    text = f"# a comment\n{HEADER}\n5,10,1\n\n{row}\n7,bad,1\n"
    found = imported(text)
    assert found.dropped == ({reason: 1} | {"unreadable duration": 1} if "unreadable d" not in reason else {reason: 2})
    assert (found.rows, len(found.trace)) == (3, 1)
    with pytest.raises(InputError) as error:
        imported(text, strict=True)
    cell = (row + ",").split(",")[HEADER.split(",").index(field)]
    assert (error.value.line, error.value.field, error.value.found) == (5, field, cell or None)
    assert f"({reason})" in str(error.value)


@pytest.mark.parametrize(
    ("text", "options", "told"),
    [
        ("", {}, "log.csv:1: found nothing"),
        ("alone\n1\n", {}, "log.csv:1: found 'alone'|separator"),
        (f"{HEADER},gpus\n", {}, "log.csv:1: field 'gpus': found '2 columns'"),
        (f"{HEADER}\n", {}, "log.csv: found 'no rows'"),
        (f"{HEADER}\n1,0,1\n1,2,0\n1,2,0\n", {}, "log.csv:3: field 'gpus': found '0'|no GPUs: 2, zero duration: 1"),
        ("when,long,g\n", {}, "log.csv: field 'submit, gpus, duration'|--submit NAME|--gpus NAME|when, long, g"),
        ("submit,gpu_hours,gpus\n", {}, "log.csv: field 'duration'|(--duration NAME)|submit, gpu_hours, gpus"),
        (f"{HEADER}\n", {"columns": {"gpus": "gpu"}}, "log.csv: field 'gpus': found 'gpu'|'gpus'|submit_time"),
        (f"{HEADER}\n", {"duration_unit": "weeks"}, "duration_unit: found 'weeks'|ms, s, min, h, d"),
        (f"{HEADER}\n", {"separator": "ab"}, "separator: found 'ab'|comma, semicolon, tab, bar"),
        ('{"jobs": 3}', {}, "log.csv: field 'jobs'"),
        ('{"jobs": [3]}', {}, "log.csv: field 'jobs[0]': found 3"),
        ('{"jobs": [{"time": {"submission": 5, "start": 5, "elapsed": 9}}]}', {"strict": True},
         "log.csv: field 'jobs[0].gpus': found nothing|no GPUs"),
        ('{"jobs": ', {}, "log.csv:1: found 'Expecting value'"),
    ],
)  # fmt: skip
def test_logs_that_cannot_be_read(imported, text, options, told):
    with pytest.raises(InputError) as error:
        imported(text, **options)
    assert [part for part in told.split("|") if part not in str(error.value)] == []


def test_start_end_and_share_of_a_gpu_are_kept(imported):
    log = (
        "submit,started,finished,gpus,gpu_fraction\n"
        "0,10,70,1,0.5\n"  # waits 10 s
        "20,5,65,1,\n"  # starts before it was submitted
        "30,40,90,2,1\n"
        "40,50,60,1,2\n"  # no share
    )
    found = imported(log)
    trace = found.trace
    assert found.dropped == {"unreadable share of a GPU": 1}
    assert trace.gpu_fraction.tolist() == [0.5, 1.0, 1.0]
    assert trace.recorded_start_seconds.tolist() == [10.0, 20.0, 40.0]
    assert trace.recorded_end_seconds.tolist() == [70.0, 65.0, 90.0]
    assert "before the submission: 1" in found.notes[0]


def test_states_that_are_not_understood_and_long_durations_are_told(imported):
    found = imported("submit,hours,gpus,state\n0,9999999,1,Evicted\n1,1,1,done\n2,1,1,\n3,1,0,Moved\n4,1,1,Evicted\n")
    told = [note for note in found.notes if "Evicted 2" in note or "1, up to 1,141 years" in note]
    assert len(told) == 2


def test_types_of_gpus_come_from_what_a_job_was_given_then_from_what_it_asked_for(imported):
    text = (
        "JobIDRaw|Submit|ElapsedRaw|Partition|AllocTRES|ReqTRES|State\n"
        "1|2024-03-01T08:00:00|90|gpu|gres/gpu:a100=4,gres/gpu=4|gres/gpu:h100=4|COMPLETED\n"
        "2|2024-03-01T08:00:00|90|gpu|gres/gpu=2|gres/gpu:h100=2|COMPLETED\n"
        "3|2024-03-01T08:00:00|90|gpu|gres/gpu=1,gres/gpu:v100=0|gres/gpu=1|COMPLETED\n"
    )
    trace = imported(text).trace
    assert (trace.gpu_type.tolist(), trace.duration.tolist()) == (["a100", "h100", ""], [90.0] * 3)
    assert trace.scale_factor.tolist() == [4, 2, 1]
    jobs = {
        "tres_alloc_str": "cpu=8,gres/gpu=4,gres/gpu:a100=4",
        "time": {"submission": 5, "start": 5, "elapsed": 9},
        "tres": {"allocated": [{"type": "gres", "name": "gpu", "count": 4}]},
    }
    found = imported(json.dumps({"jobs": [jobs, jobs | {"tres": {}}]})).trace
    assert (found.gpu_type.tolist(), found.scale_factor.tolist()) == (["a100", "a100"], [4, 4])


def test_names_of_a_log_are_mapped_to_types(imported):
    text = (
        "id,submit_time,duration_s,gpus,gpu_type,queue,model\n"
        "a,0,9,1,NVIDIA H100 80GB HBM3,big,bert\n"
        "b,1,9,1,,big,vit\n"
        "c,2,9,1,,small|big,vit\n"
        "d,3,9,1,,other,vit\n"
    )
    names = {"NVIDIA H100 80GB HBM3": "h100", "big": "a100", "vit": "ViT (batch size 8)"}
    trace = imported(text, renamed=names).trace
    assert trace.gpu_type.tolist() == ["h100", "a100", "a100", ""]
    assert trace.partition.tolist() == ["big", "big", "small|big", "other"]
    assert trace.job_type.tolist() == ["bert"] + ["ViT (batch size 8)"] * 3
    assert trace.trace_id.tolist() == list("abcd")
    with pytest.raises(InputError, match=r"field 'renamed': found 'bigg'"):
        imported(text, renamed={"bigg": "a100"})


def test_dates_of_another_form_are_told_and_read(imported):
    text = f"{HEADER}\n31/05/2024 08:15,9,1\n01/06/2024 08:15,9,1\n"
    with pytest.raises(InputError, match=r"log.csv:2: field 'submit_time': found '31/05/2024 08:15', .*date_format"):
        imported(text)
    found = imported(text, date_format="%d/%m/%Y %H:%M", zone="Europe/Berlin")
    assert found.origin == "2024-05-31T06:15:00+00:00"
    assert found.trace.arrival_time.tolist() == [0.0, 86400.0]
    some = imported(text + "2024-06-01,9,1\n")
    assert (len(some.trace), some.dropped) == (1, {"unreadable submission": 2})
    assert any("'31/05/2024 08:15'" in note and "--date-format" in note for note in some.notes)
    digits = f"{HEADER}\n20240531,9,1\n20240601,9,1\n"
    assert imported(digits, date_format="%Y%m%d").trace.arrival_time.tolist() == [0.0, 86400.0]


def test_times_that_a_zone_leaves_out_or_has_twice_are_told(imported):
    text = f"{HEADER}\n2024-03-31T02:30:00,9,1\n2024-03-31T04:00:00,9,1\n2024-10-27T02:30:00,9,1\n"
    found = imported(text, zone="Europe/Berlin")
    assert found.dropped == {"unreadable submission": 1}
    assert found.trace.arrival_time.tolist() == [0.0, 210 * 86400 - 90 * 60]  # summer time both
    assert any("twice" in note for note in found.notes)
    with pytest.raises(InputError, match=r"log.csv:2: field 'submit_time': found '2024-03-31T02:30:00'"):
        imported(text, zone="Europe/Berlin", strict=True)
    # without the zone, the one job that ran as clocks were put forward gives it away
    log = "submit,start,end,seconds,gpus\n" + "2024-03-30T20:00,2024-03-30T23:00,2024-03-31T08:00,28800,1\n"
    told = [
        any("end less start is not seconds: 1 of 1" in n for n in imported(log, zone=z).notes)
        for z in (None, "Europe/Berlin")
    ]
    assert told == [True, False]
    other = text.replace("10-27T02:30:00", "10-27T02:30:00Z")
    assert not any("twice" in note for note in imported(other, zone="Europe/Berlin").notes)


@pytest.mark.parametrize("zone", [None, "Pacific/Auckland", "America/Los_Angeles"])
@pytest.mark.parametrize("cell", ["9999-12-31T23:59:59", "9999-12-31", "0001-01-01T00:00:00", "٢٠٢٤-٠٥-٠١T٠٠:٠٠:٠٠"])
def test_dates_that_are_none_of_jobs_are_left_out(imported, zone, cell):
    found = imported(f"{HEADER}\n2024-05-01T00:00:00,9,1\n{cell},9,1\n", zone=zone)
    assert (len(found.trace), found.dropped) == (1, {"unreadable submission": 1})


RUN = "7|2024-03-01T08:00:00|2024-03-01T08:10:00|2024-03-01T09:10:00|01:00:00|gres/gpu=2|COMPLETED\n"
STILL = "8|2024-03-01T08:05:00|2024-03-01T08:10:00|Unknown|00:{}:00|gres/gpu=1|RUNNING\n"
SLURM = "JobID|Submit|Start|End|Elapsed|AllocTRES|State\n"


@pytest.mark.parametrize("strict", [False, True])
def test_jobs_of_logs_that_overlap_are_taken_once(imported, strict):
    ended = STILL.format(50).replace("Unknown", "2024-03-01T09:00:00").replace("RUNNING", "COMPLETED")
    first, second = SLURM + RUN + STILL.format(20), SLURM + RUN + STILL.format(40) + ended
    found = imported(first + second, strict=strict)
    assert columns(found.trace)["trace_id"] == ["7", "8"]
    assert columns(found.trace)["duration"] == [3600.0, 3000.0]
    assert (found.rows, found.dropped) == (2, {})
    for note, parts in zip(found.notes, (("'7'", "line 2 and line 5"), ("'8'", "line 3 and line 6")), strict=False):
        assert all(part in note for part in parts)
    # of one that never ended the last line counts
    assert columns(imported(SLURM + STILL.format(20) + STILL.format(40)).trace)["duration"] == [2400.0]


def test_runs_that_differ_under_one_id_are_told_and_stay(imported):
    again = RUN.replace("01T08:00", "01T10:00").replace("01T09:10", "01T11:15").replace("01T08:10", "01T10:15")
    found = imported(SLURM + RUN + RUN.replace("7|", "9|", 1) + again)
    assert columns(found.trace)["trace_id"] == ["7", "9", "7"]
    (note,) = (note for note in found.notes if "differ" in note)
    assert "'7'" in note
    assert "line 2 and line 4" in note
    assert len(imported(f"job,{HEADER}\n,1,9,1\n,1,9,1\n").trace) == 2  # jobs without ids may well be alike


def test_a_form_that_most_dates_do_not_have_is_refused(imported):
    text = HEADER + "".join(f"\n{day:02}/05/2024 08:15,9,1" for day in range(11, 31)) + "\n"
    with pytest.raises(InputError) as error:
        imported(text, date_format="%m/%d/%Y %H:%M")
    for part in ("log.csv:4:", "submit_time", "'13/05/2024 08:15'", "18 of 20"):
        assert part in str(error.value)
    assert len(imported(text, date_format="%d/%m/%Y %H:%M").trace) == 20


LIMITED = """JobID|User|Account|Partition|Submit|Start|Elapsed|{limit}|State|AllocTRES|
1|ann|nlp|gpu|2026-03-01T08:00:00|2026-03-01T08:00:10|02:00:00|{0}|COMPLETED|cpu=8,gres/gpu=4|
2|bob||gpu|2026-03-01T08:10:00|2026-03-01T10:00:10|01:00:00|{1}|COMPLETED|cpu=8,gres/gpu=8|
3|ann|nlp|gpu|2026-03-01T08:20:00|2026-03-01T08:20:10|00:30:00|{2}|TIMEOUT|cpu=8,gres/gpu=2|
4|cat|ai|gpu|2026-03-01T08:30:00|2026-03-01T11:00:10|02:00:00|{3}|COMPLETED|cpu=8,gres/gpu=4|
"""


@pytest.mark.parametrize(
    ("column", "cells", "expected", "unread"),
    [
        ("Timelimit", ["04:00:00", "1-00:00:00", "30:00", "UNLIMITED"], [14400.0, 86400.0, 1800.0, np.nan], 0),
        ("TimelimitRaw", ["240", "1440", "30", "Partition_Limit"], [14400.0, 86400.0, 1800.0, np.nan], 0),
        ("Timelimit", ["04:00:00", "soon", "", "0"], [14400.0, np.nan, np.nan, np.nan], 1),
        ("Timelimit", ["1-5", "2-06:30", "1-25", "0-0:60"], [104400.0, 196200.0, np.nan, np.nan], 1),
    ],
)
def test_time_limits_and_accounts_of_slurm(tmp_path, column, cells, expected, unread):
    path = tmp_path / "sacct.txt"
    path.write_text(LIMITED.format(*cells, limit=column))
    log = import_log(path)
    np.testing.assert_array_equal(log.trace.predicted_seconds, expected)
    assert log.trace.entity.tolist() == ["nlp", "", "nlp", "ai"]
    assert len([note for note in log.notes if "time limits" in note]) == unread
    assert log.columns["limit"].name == column


def test_weights_of_names_and_how_jobs_ended(tmp_path):
    path = tmp_path / "log.txt"
    rows = [
        ("high", "COMPLETED"),
        ("", "CANCELLED by 7"),
        ("low", "OUT_OF_MEMORY"),
        ("low", "TIMEOUT"),
        ("low", "RUNNING"),
    ]
    lines = [f"{i}|{qos}|2025-01-0{i + 1}T00:00:00|01:00:00|{state}|gres/gpu=1" for i, (qos, state) in enumerate(rows)]
    path.write_text("\n".join(["JobID|QOS|Submit|Elapsed|State|AllocTRES", *lines]))
    trace = import_log(path, weights={"high": 8.0, "low": 0.5}).trace
    assert trace.priority_weight.tolist() == [8.0, 1.0, 0.5, 0.5, 0.5]
    assert trace.recorded_status.tolist() == ["completed", "cancelled", "failed", "timed_out", ""]
    assert import_log(path).trace.priority_weight.tolist() == [1.0] * 5
    with pytest.raises(InputError, match=r"log.txt:2: field 'QOS': found 'high'.*low"):
        import_log(path, weights={"low": 0.5})


def test_time_limits_and_accounts_in_json(tmp_path):
    job = {"time": {"submission": 100, "start": 110, "end": 210, "elapsed": 100}, "state": {"current": ["COMPLETED"]}}
    job |= {"association": {"user": "ann", "account": "nlp"}, "partition": "gpu", "tres": {"allocated": GPU}}
    limits = [{"set": True, "infinite": False, "number": 30}, {"set": True, "infinite": True, "number": 0}, 90, None]
    jobs = [job | {"job_id": i, "time": job["time"] | {"limit": limit}} for i, limit in enumerate(limits)]
    path = tmp_path / "sacct.json"
    path.write_text(json.dumps({"jobs": jobs}))
    trace = import_log(path).trace
    np.testing.assert_array_equal(trace.predicted_seconds, [1800.0, np.nan, 5400.0, np.nan])
    assert set(trace.entity.tolist()) == {"nlp"}


GPU = [{"type": "gres", "name": "gpu", "id": 1001, "count": 2}]


def test_a_frame_is_read_as_the_file_of_it():
    submitted = pd.to_datetime(["2025-01-01 00:00", "2025-01-01 01:00", "2025-01-02 00:00"])
    lasting = pd.to_timedelta(["5h", "26h30min", "90s"])
    log = pd.DataFrame({"Submit": submitted, "Elapsed": lasting, "gpus": [4.0, 8, None], "user": ["a", None, "c"]})
    found = import_log(log.set_index("user"))
    assert found.trace.duration.tolist() == [5 * 3600, 26.5 * 3600]
    assert found.trace.scale_factor.tolist() == [4, 8]
    assert found.trace.user.tolist() == ["a", ""]
    assert found.dropped == {"no GPUs": 1}
    assert str(found).splitlines()[:3] == [
        "DataFrame: 3 jobs, 2 in the trace; second 0 is 2025-01-01T00:00:00+00:00",
        "columns: submit from Submit, duration from Elapsed, gpus from gpus, user from user",
        "left out: 1 job (no GPUs 1)",
    ]
    assert trace_of(found.trace.to_frame()).arrival_date.tolist() == found.trace.arrival_date.tolist()
    with pytest.raises(InputError, match=r"DataFrame: field 'jobs\[2\].gpus'"):
        import_log(log, strict=True)
