"""The profiler of Lucid, run by itself, against the recorded run: every job, and every change of its size."""

from __future__ import annotations

import numpy as np
import pandas as pd

from allocator.policies.lucid.profiling import profile_apart
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
