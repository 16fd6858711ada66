"""Names, dates and GPU types of a job log, from the log to results, explanations, reports and environments."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import allocator
from allocator.explanations.run import FinishedRun
from allocator.explanations.text import explanation_text
from allocator.results.output import save_result
from throughputs import InputError, Trace, import_log

LOG = """\
JobID|Submit|Start|End|Elapsed|State|Partition|AllocTRES
9001|2025-03-03T08:00:00|2025-03-03T08:00:00|2025-03-03T09:00:00|01:00:00|COMPLETED|gpu|gres/gpu:h100=1
9004|2025-03-03T08:10:00|2025-03-03T09:00:00|2025-03-03T10:00:00|01:00:00|COMPLETED|gpu|gres/gpu:h100=1
9007_1|2025-03-03T08:20:00|2025-03-03T08:20:00|2025-03-03T08:30:00|00:10:00|COMPLETED|gpu|gres/gpu:a100=1
1|2025-03-03T08:30:00|2025-03-03T08:30:00|2025-03-03T08:40:00|00:10:00|COMPLETED|debug|gres/gpu=1
"""
CLUSTER = "a100:2,h100:1"


@pytest.fixture(scope="module")
def trace(tmp_path_factory) -> Trace:
    path = tmp_path_factory.mktemp("log") / "log.txt"
    path.write_text(LOG)
    return import_log(path).trace


@pytest.fixture(scope="module")
def result(trace):
    return allocator.simulate(trace, CLUSTER, allocator.get_policy("fifo"))


def test_jobs_run_on_the_type_that_the_log_names(trace, result):
    where = result.rounds.groupby("job_id")["accelerator"].agg(lambda names: set(names.astype(str)))
    assert where.tolist()[:3] == [{"h100"}, {"h100"}, {"a100"}]
    recorded = allocator.recorded_schedule(trace, CLUSTER)
    assert recorded.jobs["queueing_time"].tolist()[:3] == [0.0, 3000.0, 0.0]
    assert "(debug 1)" in recorded.status_detail


def test_results_have_names_and_dates(trace, result):
    jobs = result.jobs
    assert jobs["trace_id"].tolist() == ["9001", "9004", "9007_1", "1"]
    assert jobs["gpu_type"].tolist() == ["h100", "h100", "a100", ""]
    assert jobs["arrival_date"].tolist()[1] == "2025-03-03T08:10:00+00:00"
    begin = np.datetime64("2025-03-03T08:00:00")
    for date, seconds in zip(jobs["completion_date"], jobs["completion_time"], strict=True):
        assert np.datetime64(date.removesuffix("+00:00")) - begin == np.timedelta64(round(seconds), "s")
    bare = allocator.simulate(trace.at_load(2.0), CLUSTER, allocator.get_policy("fifo")).jobs
    assert "trace_id" in bare
    assert "arrival_date" not in bare


def test_explanations_go_by_the_names_of_the_log(result, tmp_path):
    save_result(result, tmp_path / "run")
    for run in (result, tmp_path / "run"):
        finished = FinishedRun.of(run)
        assert (finished.job_number("9004"), finished.job_number("1"), finished.job_number(1)) == (1, 3, 1)
        told = allocator.explain(run, "9004")
        assert (told.job, told.trace_id, told.arrival_date) == (1, "9004", "2025-03-03T08:10:00+00:00")
        text = "\n".join(part for part in explanation_text(told) if isinstance(part, str))
        assert text.startswith("Job 9004 ")
        assert "2025-03-03 08:10:00 UTC" in text
        assert "9004" in str(allocator.explain(run))
        # 2 is the position of a job, and nobody's name
        with pytest.raises(InputError, match="field 'job': found '2', ") as error:
            allocator.explain(run, "2")
        assert "did you mean" not in str(error.value)
        assert "9007" not in str(error.value)


def test_lists_of_gpus_are_read_as_the_text_that_they_were_before(result, tmp_path):
    save_result(result, tmp_path)
    file = tmp_path / "rounds.parquet"
    lists = pd.read_parquet(file)
    lists.assign(gpus=[" ".join(map(str, ids)) for ids in lists["gpus"]]).to_parquet(file)
    known = [tuple(ids) for ids in lists["gpus"]]
    assert FinishedRun.of(tmp_path).rows.gpus.tolist() == FinishedRun.of(result).rows.gpus.tolist() == known
