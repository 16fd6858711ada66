"""Where the GPU time of a log went, and who waited for what, by hand."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest

from allocator import InputError, Trace
from allocator.audit.log import audit_log

HOUR = 3600.0

#        job, account, GPUs, came, began, ended (h), status
JOBS = [("wide", "a", 4, 0.0, 0.0, 2.0, "completed"),
        ("half", "a", 2, 0.0, 2.0, 4.0, "failed"),
        ("late", "b", 4, 1.0, 5.0, 6.0, "completed"),
        ("more", "b", 4, 3.0, 4.0, 5.0, "timed_out"),
        ("last", "b", 1, 6.0, 6.0, 6.5, "cancelled")]  # fmt: skip


def trace() -> Trace:
    name, account, gpus, came, began, ended, status = map(list, zip(*JOBS, strict=True))
    times = [np.array(each) * HOUR for each in (came, began, ended)]
    seconds = times[2] - times[1]
    order = np.argsort(times[0], kind="stable")
    columns = {"entity": account, "trace_id": name, "recorded_status": status, "duration": seconds,
               "recorded_start_seconds": times[1], "recorded_end_seconds": times[2]}  # fmt: skip
    made = Trace(["job"] * 5, gpus, seconds, np.sort(times[0]), **{k: np.array(v)[order] for k, v in columns.items()})
    assert made.scale_factor.tolist() == gpus
    return made


def test_gpu_time_and_waiting_by_hand() -> None:
    found = audit_log(trace(), "gpu:4")
    hours = found.gpu_time.set_index("use")["gpu_hours"]
    # of 24 GPU hours up to the last submission; from 2 to 4 h two GPUs are free, which nobody who waits makes do with
    assert hours.to_dict() == pytest.approx({
        "jobs that completed, or still ran": 8.0 + 4.0, "jobs that failed": 4.0, "jobs that ran into their limits": 4.0,
        "idle, too few for any that waited": 4.0,
    })  # fmt: skip
    by = found.parts["account"].set_index("account")
    assert by.loc["a", ["jobs", "gpu_hours", "waited_hours", "could_start", "wasted_gpu_hours"]].tolist() == [
        2,
        12,
        1,
        0,
        4,
    ]
    # "more" came two hours after "late", as large, and began before it
    assert by.loc[["a", "b"], "overtaken"].tolist() == pytest.approx([0.0, 1 / 3])
    assert found.parts["gpus"].set_index("gpus").loc["2-4", "slowdown"] == pytest.approx((1 + 2 + 5 + 2) / 4)
    json.dumps(found.as_dict(), allow_nan=False)


def test_who_fits_and_waits_is_told_apart() -> None:
    """On six GPUs "half" could have begun at once."""
    found = audit_log(trace(), "gpu:6")
    hours = found.gpu_time.set_index("use")["gpu_hours"]
    # 2 free for 2 h while "half" waits, of 2 to 4 h 4 free while "late" does, of 4 to 6 h 2 free: for 1 h too few
    assert hours["idle though a job that waited fitted"] == 2 * 2 + 4 * 2
    assert hours["idle, too few for any that waited"] == 2
    assert hours["idle, and nobody waited"] == 2
    assert found.parts["account"].set_index("account")["could_start"].to_dict() == pytest.approx({"a": 1.0, "b": 3 / 5})
    with pytest.raises(InputError, match="no recorded schedule"):
        audit_log(trace().at_load(2.0), "gpu:4")


def test_more_gpus_than_the_cluster_has_are_told() -> None:
    starts = {"recorded_start_seconds": [0.0, 0.0, HOUR], "recorded_end_seconds": [2 * HOUR] * 3}
    told = Trace(["job"] * 3, [1, 1, 1], [HOUR] * 3, [0.0, 0.0, HOUR], duration=[HOUR] * 3, **starts)
    found = audit_log(told, "gpu:1")
    assert "up to 3 GPUs in use, gpu:1 has 1" in found.beyond
    assert found.gpu_time[["gpu_hours", "part"]].values.tolist() == [[2.0, 1.0]]
    assert audit_log(told, "gpu:3").beyond == ""


def test_jobs_that_the_cluster_cannot_run_are_told() -> None:
    assert audit_log(trace(), "gpu:4").left_out == ""
    found = audit_log(trace(), "gpu:3")
    assert found.left_out == "3 jobs that the cluster cannot run"
    assert found.parts["account"]["jobs"].sum() == 2
    # a job of which it is not known where it ran is not one that cannot run
    kinds = np.array(["a", "a", "a", "a", ""], dtype=object)
    assert audit_log(dataclasses.replace(trace(), gpu_type=kinds), "a:4,b:4").left_out.count("job") == 1
