"""The profiler of Lucid, run by itself, against the recorded run: every job, and every change of its size."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from allocator.policies.lucid.forecast import ArrivalForecast
from allocator.policies.lucid.profiling import ProfilerSettings, ProfilingRun, profile_apart
from tests.conftest import Data
from tests.reference.lucid_records import venus
from throughputs import InputError


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


def test_the_profiler_grows_while_many_wait_and_shrinks_when_few_are_to_come() -> None:
    settings = ProfilerSettings(servers=1, limit_seconds=100.0)
    jobs = ([3] * 13 + [5000], [8] * 13 + [1], [100] * 14)

    def run_with(gpus_ahead: float) -> ProfilingRun:
        begins = tuple(range(600, 6000, 600))
        forecast = ArrivalForecast(begins, (0.0,) * len(begins), (gpus_ahead,) * len(begins))
        return profile_apart(*jobs, settings, forecast)

    # Twelve wait at 10 s; from then on two run at a time, on the borrowed server up to 611 s.
    few = run_with(40.0)
    assert few.scaling == ((10.0, 1), (700.0, -1))
    assert few.start[:3].tolist() == [3.0, 11.0, 103.0]
    assert run_with(41.0).scaling == ((10.0, 1),)
    assert profile_apart(*jobs, settings).scaling == ((10.0, 1),)


def test_times_are_whole_seconds_in_order() -> None:
    with pytest.raises(InputError, match="duration"):
        profile_apart([0], [1], [0.5])
    with pytest.raises(InputError, match="arrival"):
        profile_apart([2, 1], [1, 1], [5, 5])
