"""What people see of a run, an allocation, a trace and an audit: typed figures, pictures, tables in notebooks."""

from __future__ import annotations

import dataclasses
import json

import pandas as pd
import pytest

import allocator
from allocator.presets import preset
from allocator.results.output import save_result
from throughputs import TraceGenerator


@pytest.fixture(scope="module")
def result() -> allocator.SimulationResult:
    trace = TraceGenerator(n_jobs=12, mean_interarrival=900, seed=1).generate()
    return allocator.simulate(trace, "v100:2,k80:2", allocator.get_policy("max_min_fairness_perf"), label="<mine>")


def test_a_summary_has_figures_as_attributes_and_by_name(result, tmp_path):
    summary = result.summary()
    assert isinstance(summary, allocator.Summary)
    assert summary.average_jct == pytest.approx(result.jobs["jct"].mean())
    assert dict(summary) == {name: getattr(summary, name) for name in summary}
    assert summary.label == summary["label"] == "<mine>"
    # what a run does not have is no key, and None as an attribute; what is not there at all is neither
    assert summary.deadline_ratio is None
    assert "deadline_ratio" not in summary
    with pytest.raises(KeyError, match="_names"):
        summary["_names"]
    with pytest.raises(dataclasses.FrozenInstanceError):
        summary.makespan = 0.0  # type: ignore[misc]
    save_result(result, tmp_path)
    saved = json.loads((tmp_path / "summary.json").read_text())
    assert list(saved) == [*summary, "gpus_per_server", "settings"]
    assert {name: saved[name] for name in summary} == dict(summary)
    assert pd.DataFrame([summary, summary])["makespan"].tolist() == [result.makespan] * 2


def test_gpu_time_without_rounds_adds_up_where_a_policy_chooses_numbers_of_gpus():
    trace = allocator.Trace(["ResNet-18 (batch size 64)"] * 3, [1, 2, 4], [1e5, 2e5, 3e5], [0.0, 0.0, 500.0])
    ideal = preset("sia").replace(ideal=True)
    result = allocator.simulate(trace, "v100:8", allocator.get_policy("sia_unaware"), preset=ideal)
    rows = result.rounds
    seconds = (rows["end_time"] - rows["start_time"]) * rows["share"] * rows["gpu_count"]
    assert seconds.groupby(rows["job_id"]).sum().tolist() == pytest.approx(result.jobs["gpu_seconds"].tolist())
