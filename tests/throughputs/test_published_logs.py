"""Job logs of published clusters: told by what they hold, and read as their publishers describe them.

Where the real files are too large to keep, small ones stand here, made to the published schema.
"""

from __future__ import annotations

import gzip
import json

import numpy as np
import pytest

from throughputs import InputError, import_log, read_trace
from throughputs.traces.formats import read_job_log
from throughputs.traces.logs.read import log_kind

PHILLY = """\
[
{"status": "Pass", "vc": "vc_one", "jobid": "application_1", "attempts": [{"start_time": "2017-10-14 01:12:09",
"end_time": "2017-10-14 01:13:23", "detail": [{"ip": "m47", "gpus": ["gpu0", "gpu1", "gpu2", "gpu3", "gpu4", "gpu5",
"gpu6", "gpu7"]}]}, {"start_time": "2017-10-14 01:13:30", "end_time": "2017-10-16 06:53:12", "detail": [{"ip": "m412",
"gpus": ["gpu0", "gpu1", "gpu2", "gpu3", "gpu4", "gpu5", "gpu6", "gpu7"]}]}], "submitted_time": "2017-10-14 01:11:39",
"user": "ann"},
{"status": "Killed", "vc": "vc_two", "jobid": "2", "attempts": [{"start_time": null, "end_time":
"2017-10-14 02:00:00", "detail": []}, {"start_time": "2017-10-14 02:00:00", "end_time": "2017-10-14 02:10:00",
"detail": [{"ip": "m1", "gpus": ["gpu0", "gpu1"]}, {"ip": "m2", "gpus": ["gpu0"]}]}], "submitted_time":
"2017-10-14 01:30:00", "user": "a"},
{"status": "Killed", "vc": "vc_two", "jobid": "3", "attempts": [], "submitted_time": "2017-10-14 01:31:00"},
{"status": "Failed", "vc": "vc_two", "jobid": "4", "attempts": [{"start_time": "2017-12-22 01:32:00", "end_time":
"2017-12-22 01:33:00", "detail": [{"ip": "m1", "gpus": ["gpu0"]}]}, {"start_time": "2017-12-22 01:34:00", "end_time":
"None", "detail": [{"ip": "m1", "gpus": ["gpu0"]}]}], "submitted_time": "2017-12-22 01:32:00", "user": "a"},
{"status": "Pass", "vc": "vc_two", "jobid": "5", "attempts": [{"start_time": "2017-11-05 00:00:00", "end_time":
"2017-11-05 03:00:00", "detail": [{"ip": "m1", "gpus": ["gpu0"]}]}], "submitted_time": "2017-11-05 00:00:00", "user":
"b"}
]
"""
HELIOS = """\
job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue
1,uann,vcone,1,1,1,COMPLETED,2020-05-11 18:41:01,2020-05-11 18:41:01,2020-05-12 04:55:09,36848,0
2,ubob,vctwo,4,16,1,FAILED,2020-05-11 18:41:27,2020-05-11 18:41:37,2020-05-11 18:45:46,249,10
3,ueve,vctri,0,1,1,CANCELLED,2020-05-11 18:41:28,2020-05-11 18:41:28,2020-05-19 14:15:21,675000,0
"""
SEREN = """\
job_id,user,node_num,gpu_num,cpu_num,type,state,submit_time,start_time,end_time,duration,queue,gpu_time
11,u1,1,8,128,Other,FAILED,2023-03-09 00:18:22+08:00,2023-03-09 00:18:54+08:00,2023-03-09 00:20:51+08:00,117,32,936.0
12,u1,1,8,128,Pretrain,COMPLETED,2023-03-09 00:23:58+08:00,2023-03-09 00:24:11+08:00,2023-03-09 01:09:04+08:00,2693,13,21544.0
"""  # noqa: E501
KALOS = """\
job_id,user,node_num,gpu_num,cpu_num,mem_per_pod_GB,shared_mem_per_pod,type,state,submit_time,start_time,end_time,fail_time,stop_time,duration,queue,gpu_time
dlc1,u2,8,64,960,1000,100.0,Other,FAILED,2023-05-25 11:00:58+00:00,2023-05-25 11:01:08+00:00,2023-05-25 11:01:16+00:00,2023-05-25 11:01:16+00:00,,18,10.0,1152.0
"""  # noqa: E501
OPENB = """\
name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time
pod-1,64000,200000,8,1000,,Burstable,Succeeded,9000000,10332357,9000000
pod-2,4000,16000,1,220,,BE,Running,9600000,9894651,9600001
pod-3,16000,32768,1,1000,V100M16|V100M32,LS,Running,9900000,9901517,9900005
pod-4,16000,32768,0,0,,LS,Running,9900001,9901517,9900005
pod-5,16000,32768,1,500,,LS,Pending,9900002,9901517,
"""
SPOT = """\
job_name,organization,gpu_model,cpu_request,gpu_request,worker_num,submit_time,duration,job_type
1,7,A10,16,1,1,0,2700000,HP
2,8,A100-SXM4-80GB,15,1,16,9500000,41000,Spot
3,8,A100-SXM4-80GB,15,0.5,4,9500001,100,Spot
"""
PAI_TASKS = """\
one,ps,2.0,Terminated,110.0,190.0,600.0,29.3,,
one,worker,3.0,Terminated,120.0,200.0,600.0,29.3,50.0,T4
two,tensorflow,2.0,Failed,80.0,95.0,600.0,29.3,200.0,V100
cpu,tensorflow,1.0,Terminated,50.0,95.0,600.0,29.3,0.0,
new,tensorflow,1.0,Waiting,,,600.0,29.3,100.0,MISC
"""
PAI_JOBS = """\
one,i1,alice,Terminated,100.0,205.0
two,i2,bob,Failed,70.0,95.0
cpu,i3,bob,Terminated,40.0,95.0
"""
SWF = """\
; Version: 2.2
; Computer: IBM SP2
; UnixStartTime: 844142400
; MaxProcs: 128
; Partition: 2 gpu
;
1 0 30 100 4 -1 -1 8 200 -1 1 3 1 7 1 2 -1 -1
2 50 -1 60 -1 -1 -1 8 200 -1 0 3 1 7 1 1 -1 -1
3 60 10 -1 -1 -1 -1 2 200 -1 5 4 1 7 1 2 -1 -1

4 70 10 20 2 -1 -1 2 200 -1 3 4 1 7 1 2 -1 -1
"""
LOGS = {
    "philly": PHILLY,
    "philly-cut": "timestamp,duration,num_gpus,gpu_time,cluster\n2017-10-16 07:01:55,66.0,2,132.0,vc_one\n",
    "helios": HELIOS,
    "acme": SEREN,
    "openb-2023": OPENB,
    "spot-2026": SPOT,
    "pai-2020": PAI_TASKS,
    "itp": "job_id,submission_time,duration,num_gpu\na,3793,1183,1\nb,3794,1215,2\n",
    "swf": SWF,
}


OF_SYSTEMS = {"philly": pytest.mark.published, "pai-2020": pytest.mark.published}
"""Logs whose layouts are entry points of the published systems."""


@pytest.fixture
def written(tmp_path):
    """Writes text into a file."""

    def write(text, name="log.csv"):
        path = tmp_path / name
        path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
        return path

    return write


def figures(trace, *names):
    return [getattr(trace, name).tolist() for name in names]


@pytest.mark.parametrize("kind", [pytest.param(k, marks=OF_SYSTEMS.get(k, ())) for k in LOGS])
@pytest.mark.parametrize("name", ["of_any_name.txt", "log.csv.gz"])
def test_a_log_is_told_by_what_it_holds(written, kind, name):
    path = written(LOGS[kind], name)
    assert log_kind(path) == kind
    imported = read_job_log(path)
    trace = read_trace(path)
    assert imported.kind == kind
    assert len(trace) == len(imported.trace) > 0
    assert len(read_trace(path, format=kind)) == len(trace)
    other = next(name for name in LOGS if name != kind)
    with pytest.raises(InputError, match=f"found '{kind}', expected a job log in the format {other}"):
        read_trace(path, format=other)


@pytest.mark.published
def test_philly_sums_attempts_on_the_clock_of_the_pacific_coast(written):
    imported = import_log(written(LOGS["philly"]))
    trace = imported.trace
    attempts = 74.0 + 193182.0
    assert figures(trace, "scale_factor", "duration", "partition", "user") == [
        [8, 3, 1],
        [attempts, 600.0, 4 * 3600.0],
        ["vc_one", "vc_two", "vc_two"],
        ["ann", "a", "b"],
    ]
    assert figures(trace, "recorded_start_seconds", "recorded_end_seconds")[0][:2] == [30.0, 2901.0]
    assert trace.recorded_end_seconds[0] == 193293.0  # with the time between two attempts
    assert imported.origin == "2017-10-14T08:11:39+00:00"
    assert imported.dropped == {"never started": 1, "no duration": 1}
    assert imported.rows == 5
    told = ("several attempts: 3", "without a start or an end: 2", "America/Los_Angeles")
    assert all(part in note for part, note in zip(told, imported.notes, strict=True))
    assert import_log(written(LOGS["philly"]), zone="UTC").origin == "2017-10-14T01:11:39+00:00"


@pytest.mark.published
def test_philly_names_the_entry_that_is_no_job(written):
    path = written(json.dumps([json.loads(PHILLY)[0], {"vc": "x"}]))
    with pytest.raises(InputError, match=r"field 'jobs\[1\]': found .*expected an object with a list of attempts"):
        read_trace(path)
    path = written(PHILLY)
    with pytest.raises(InputError, match=r"field 'jobs\[2\].first start': found nothing"):
        import_log(path, strict=True)


def test_helios(written):
    imported = import_log(written(HELIOS))
    assert figures(imported.trace, "arrival_time", "duration", "scale_factor", "partition") == [
        [0.0, 26.0],
        [36848.0, 249.0],
        [1, 4],
        ["vcone", "vctwo"],
    ]
    assert figures(imported.trace, "recorded_start_seconds", "recorded_end_seconds") == [[0.0, 36.0], [36848.0, 285.0]]
    assert imported.dropped == {"no GPUs": 1}
    assert imported.origin == "2020-05-11T10:41:01+00:00"


def test_acme_durations_are_end_less_start(written):
    seren, kalos = import_log(written(SEREN)), import_log(written(KALOS, "kalos.csv"))
    assert figures(seren.trace, "duration", "job_type", "scale_factor") == [
        [117.0, 2693.0],
        ["Other", "Pretrain"],
        [8, 8],
    ]
    assert seren.origin == "2023-03-08T16:18:22+00:00"
    # the column says 18, which has the 10 seconds in the queue in it
    assert figures(kalos.trace, "duration", "scale_factor", "recorded_start_seconds") == [[8.0], [64], [10.0]]
    assert kalos.trace.partition.tolist() == [""]  # the column queue is a time


def test_openb_keeps_fractions_and_types(written):
    imported = import_log(written(OPENB))
    assert figures(imported.trace, "scale_factor", "gpu_fraction", "partition", "job_type") == [
        [8, 1, 1],
        [1.0, 0.22, 1.0],
        ["", "", "V100M16|V100M32"],
        ["Burstable", "BE", "LS"],
    ]
    assert imported.trace.duration.tolist() == [1332357.0, 294650.0, 1512.0]
    assert imported.dropped == {"no GPUs": 1, "never started": 1}


def test_spot_multiplies_workers(written):
    imported = import_log(written(SPOT))
    assert figures(imported.trace, "scale_factor", "gpu_fraction", "partition", "user", "job_type") == [
        [1, 16, 4],
        [1.0, 1.0, 0.5],
        ["A10", "A100-SXM4-80GB", "A100-SXM4-80GB"],
        ["7", "8", "8"],
        ["HP", "Spot", "Spot"],
    ]
    assert np.isnan(imported.trace.recorded_start_seconds).all()


@pytest.mark.published
def test_pai_joins_tasks_and_jobs(written):
    path = written(PAI_TASKS, "pai_task_table.csv")
    written(PAI_JOBS, "pai_job_table.csv")
    imported = import_log(path)
    assert imported.origin == "70"
    assert figures(imported.trace, "arrival_time", "scale_factor", "gpu_fraction", "duration", "partition") == [
        [0.0, 30.0],
        [4, 3],
        [1.0, 0.5],
        [15.0, 80.0],
        ["V100", "T4"],
    ]
    assert figures(imported.trace, "user", "job_type", "recorded_start_seconds") == [
        ["bob", "alice"],
        ["tensorflow", "worker"],
        [10.0, 50.0],
    ]
    assert imported.dropped == {"no submission": 1, "no GPUs": 1}
    assert imported.notes == ("jobs that the table of jobs lacks: 1",)


@pytest.mark.published
def test_pai_has_what_workers_used_of_their_gpus(written):
    """Three workers with half a GPU each, which take it whole: of one nothing is known, one used more than a GPU."""
    path = written(PAI_TASKS, "pai_task_table.csv")
    assert np.isnan(read_trace(path).gpu_utilization).all()
    rest = "," * 7
    rows = [f"{job},{task},w{k},i,m,/dev/nvidia0,140.5,{used},{rest}" for k, (job, task, used) in enumerate(
        [("one", "worker", "40"), ("one", "worker", "260"), ("one", "worker", ""), ("other", "ps", "7")])]  # fmt: skip
    written("\n".join(rows) + "\n", "pai_sensor_table.csv")
    used = read_trace(path).gpu_utilization
    assert np.isnan(used[0])
    assert used[1] == pytest.approx((0.4 + 1.0) / 2)
    written("a,b\n", "pai_sensor_table.csv")
    with pytest.raises(InputError, match=r"pai_sensor_table\.csv: .*16 columns: job_name"):
        read_trace(path)


@pytest.mark.published
def test_pai_without_the_table_of_jobs(written):
    imported = import_log(written(PAI_TASKS, "pai_task_table.csv"))
    assert imported.trace.arrival_time.tolist() == [0.0, 40.0]
    assert imported.notes[0].startswith("no table of jobs beside it (pai_job_table.csv)")
    with pytest.raises(InputError, match=r"the table of jobs', expected pai_task_table\.csv"):
        read_trace(written(PAI_JOBS, "pai_job_table.csv"))


def test_swf(written):
    imported = import_log(written(SWF, "sp2.swf"))
    assert figures(imported.trace, "arrival_time", "scale_factor", "duration", "user", "partition", "job_type") == [
        [0.0, 50.0],
        [4, 8],
        [100.0, 60.0],
        ["3", "3"],
        ["gpu", "1"],
        ["7", "7"],
    ]
    starts = imported.trace.recorded_start_seconds
    assert starts[0] == 30.0
    assert np.isnan(starts[1])  # it ran, and the log does not say since when
    assert imported.dropped == {"no duration": 1, "part of a job": 1}
    with pytest.raises(InputError, match=r"sp2.swf:9: field 'run time': found nothing, expected a number.*no duration"):
        import_log(written(SWF, "sp2.swf"), strict=True)
    with pytest.raises(InputError, match=r"sp2.swf:8: found '17 fields', expected 18 numbers"):
        read_trace(written(SWF.replace("200 -1 0 3", "200 0 3"), "sp2.swf"))


@pytest.mark.parametrize(
    ("name", "kind", "rows", "jobs"),
    [
        pytest.param("philly_82k.csv.gz", "philly-cut", 82247, 82247, marks=pytest.mark.exhaustive),
        ("openb_pod_list_default.csv.gz", "openb-2023", 8152, 6203),
        ("sample.swf", "swf", 25, 25),
    ],
)
def test_real_logs(public_data, name, kind, rows, jobs):
    path = public_data(f"field/{name}")
    imported = read_job_log(path)
    assert (imported.kind, imported.rows, len(imported.trace)) == (kind, rows, jobs)
    assert rows - jobs == sum(imported.dropped.values())
