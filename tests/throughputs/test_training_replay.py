"""The published course under the recorded rounds of the public simulator: every completion time to the last bit."""

from __future__ import annotations

import gzip
import json

import numpy as np
import pytest

from throughputs import read_table, read_trace
from throughputs.training import Course

TRACE = "shockwave/traces/120_0.2_5_100_40_25_0,0.5,0.5_0.6,0.3,0.09,0.01_multigpu_dynamic.trace"
RUNS = (
    "allox",
    "finish_time_fairness",
    "gandiva_fair",
    "max_min_fairness",
    "max_sum_throughput_perf",
    "min_total_duration",
    "new_orig_hyperparam_shockwave",
    "old_shockwave",
    "shockwave",
)
ROUND_SECONDS, PENALTY_SECONDS, LATEST_SECONDS = 120.0, 20.0, 115.0
FAILURES = 5


@pytest.mark.parametrize("run", RUNS)
def test_recorded_rounds(run, public_data, reference_data):
    trace = read_trace(public_data(TRACE))
    table = read_table(public_data("shockwave/tacc_throughputs.json.gz"))
    path = reference_data(f"shockwave/published/tacc_32gpus/{run}_simulation_full.json.gz")
    recorded = json.loads(gzip.decompress(path.read_bytes()))
    end, makespan, failures = replayed(trace, table, recorded["per_round_schedule"])
    np.testing.assert_array_equal(end - trace.arrival_time, recorded["jct_list"])
    assert makespan == recorded["makespan"]
    assert np.flatnonzero(failures).tolist() == [35]


def replayed(trace, table, rounds):
    """(N,) end of each job, end of the last round (seconds), (N,) rounds in which a job had nothing left to do."""
    n = len(trace)
    columns = trace.job_type, trace.scale_factor, trace.mode, trace.total_steps
    course = Course(*columns, table, ["v100"], published=True, past_the_end=True)
    rate = table.rates(trace.job_type, trace.scale_factor, ["v100"])[:, 0]
    total, done, end = trace.total_steps.copy(), np.zeros(n), np.full(n, np.nan)
    failures, before = np.zeros(n, dtype=int), np.zeros(n, dtype=bool)
    clock = 0.0
    for number, scheduled in enumerate(rounds):
        jobs = np.array(sorted(map(int, scheduled)))
        assert (trace.arrival_time[jobs] <= clock).all()
        steps = np.minimum(np.floor(rate[jobs] * ROUND_SECONDS), np.maximum(total[jobs] - done[jobs], 0))
        seconds = steps / rate[jobs]
        restarted = (number > 0) & ~before[jobs] & (seconds > LATEST_SECONDS)
        kept = np.floor(steps * (seconds - PENALTY_SECONDS) / np.maximum(seconds, 1.0))
        ran, failed = jobs[steps > 0], jobs[steps <= 0]
        done[jobs] += np.where(restarted, kept, steps)
        finished = (done[jobs] >= total[jobs]) & (steps > 0)
        end[jobs[finished]] = clock + seconds[finished]
        failures[failed] += 1
        end[failed[failures[failed] == FAILURES]] = clock

        change = course.book(ran, done)
        total[change.jobs], done[change.jobs] = change.total_steps, change.steps_done
        rate[change.jobs] = change.rates[:, 0]
        course.observe(np.flatnonzero((trace.arrival_time <= clock) & np.isnan(end)), done)
        before[:] = False
        before[jobs] = True
        clock += seconds.max()
    return end, clock, failures
