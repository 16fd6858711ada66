"""The profiler of Lucid, run by itself, against the recorded run: every job, and every change of its size."""

from __future__ import annotations

import numpy as np
import pandas as pd

from allocator.policies.lucid.profiling import ProfilerSettings, profile_apart
from tests.conftest import Data
from tests.reference.lucid_records import venus


def test_every_job_and_every_change_of_size_as_recorded(public_data: Data, reference_data: Data) -> None:
    record = venus(public_data, reference_data, "lucid")
    log, recorded = record.log, record.run
    run = profile_apart(log["arrival"], log["gpu_num"], log["duration"], forecast=record.forecast)
    assert np.array_equal(run.profiled, recorded["profiled"] == 1)
    assert np.array_equal(run.queue_seconds, recorded["profqueue"])
    assert np.array_equal(run.ended, recorded["toskip"] == 1)
    assert np.array_equal(run.end[run.ended], recorded["end_time"][run.ended])
    scaling = pd.read_csv(reference_data("lucid/venus_syn_profiler_scaling.csv"))
    assert run.scaling == tuple(scaling.itertuples(index=False, name=None))
    assert (run.profiled.sum(), run.ended.sum()) == (3319, 1248)


def test_the_fewest_gpus_go_first_and_long_jobs_leave_at_the_limit() -> None:
    settings = ProfilerSettings(servers=1, limit_seconds=100.0, elastic=False)
    run = profile_apart([0, 0, 0, 1], [8, 4, 1, 16], [50, 500, 100, 30], settings)
    assert run.profiled.tolist() == [True, True, True, False]
    assert run.start[:3].tolist() == [100.0, 0.0, 0.0]
    assert run.end[:3].tolist() == [150.0, 100.0, 100.0]
    assert run.ended.tolist() == [True, False, True, False]
    assert run.queue_seconds.tolist() == [100.0, 0.0, 0.0, 0.0]
