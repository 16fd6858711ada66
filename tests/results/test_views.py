"""What people see of a run, an allocation, a trace and an audit: typed figures, pictures, tables in notebooks."""

from __future__ import annotations

import dataclasses
import json
import re
import sys

import numpy as np
import pandas as pd
import pytest

import allocator
from allocator.results.output import save_result
from allocator.results.views.plots import PLOTS
from tests.simulator.worlds import make_trace
from throughputs import TraceGenerator


@pytest.fixture(scope="module")
def result() -> allocator.SimulationResult:
    trace = TraceGenerator(n_jobs=12, mean_interarrival=900, seed=1).generate()
    return allocator.simulate(trace, "v100:2,k80:2", allocator.get_policy("max_min_fairness_perf"), label="<mine>")


def test_a_summary_has_figures_as_attributes_and_by_name(result, tmp_path):
    summary = result.summary()
    assert isinstance(summary, allocator.Summary)
    assert summary.average_jct == pytest.approx(result.jobs["jct"].mean())
    assert dict(summary) == summary.to_dict() == {name: getattr(summary, name) for name in summary}
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
    assert {name: saved[name] for name in summary} == summary.to_dict()
    assert pd.DataFrame([summary, summary])["makespan"].tolist() == [result.makespan] * 2


def test_a_summary_prints_in_ten_lines_and_shows_units(result):
    summary = result.summary()
    assert str(summary) == str(result)
    assert len(str(summary).splitlines()) <= 10
    assert repr(summary).startswith("Summary(policy='max_min_fairness_perf', label='<mine>'")
    page = summary._repr_html_()
    assert "<caption>&lt;mine&gt; on v100:2,k80:2" in page
    assert re.search(r"<td>makespan</td><td>[\d,]+</td><td>s</td>", page)


def test_every_figure_is_described():
    described = set(re.findall(r"\w+", allocator.Summary.__doc__ or ""))
    names = {each.name for each in dataclasses.fields(allocator.Summary)} - {"_names"}
    assert names <= described


def test_pictures(result):
    axes = result.plot()
    assert len(axes) == len(PLOTS) == 3
    steps = axes[0].lines[0]
    assert steps.get_xdata()[-1] == pytest.approx(result.jobs["jct"].max() / 3600)
    # jobs that cannot run on so few GPUs are among all
    assert steps.get_ydata()[-1] == result.summary().completed_jobs / len(result.jobs)
    # the timeline has all running time, however many rounds are drawn as one line
    drawn = sum(
        float(segment[1, 0] - segment[0, 0]) for lines in axes[1].collections for segment in lines.get_segments()
    )
    assert drawn == pytest.approx((result.rounds["end_time"] - result.rounds["start_time"]).sum() / 3600)
    assert sum(len(lines.get_segments()) for lines in axes[1].collections) < len(result.rounds)
    assert max(axes[2].lines[0].get_ydata()) == result.timeline["queued_jobs"].max()


def test_runs_share_axes_and_all_of_both_is_seen(result):
    short = allocator.simulate(make_trace([3600.0]), "v100:1", allocator.get_policy("fifo"), np.ones((1, 1)))
    axes = short.plot("completion_times")
    assert result.plot("completion_times", axes=axes[0]) == axes
    assert len(axes[0].lines) == 2
    assert axes[0].get_xlim()[1] >= result.jobs["jct"].max() / 3600


def test_allocations_in_notebooks():
    speeds = {"v100": {"<a>": 4.0, "b": 2.0}, "k80": {"<a>": 1.0, "b": 1.0}}
    answer = allocator.solve("max_min_fairness_perf", speeds, {"v100": 1, "k80": 1})
    page = answer._repr_html_()
    assert "<caption>max_min_fairness_perf: optimal, objective" in page
    assert "<td>&lt;a&gt;</td><td>1</td>" in page
    assert "<td>price of a GPU</td><td>-</td>" in page
    verdicts = answer.audit()._repr_html_()
    assert "<td>envy-freeness</td><td>yes</td>" in verdicts
    many = allocator.solve("isolated", pd.DataFrame({"v100": np.ones(30)}), "v100:4")
    assert "; 10 more jobs</caption>" in many._repr_html_()
    assert many._repr_html_().count("<tr>") == 1 + 20


def test_traces_in_notebooks():
    page = TraceGenerator(n_jobs=12, seed=1).generate()._repr_html_()
    assert "12 jobs, 2 of them not shown</caption>" in page
    assert "<th>arrival_time</th>" in page
    # columns without a difference say nothing
    assert not any(f"<th>{name}</th>" in page for name in ("slo", "deadline", "user", "command"))
    assert "0 jobs" in allocator.Trace([], [], [], [])._repr_html_()


def test_pictures_of_other_runs_and_such_as_there_are_not(result, monkeypatch):
    nobody = allocator.simulate(make_trace([10.0]), "v100:1", allocator.get_policy("fifo"), np.zeros((1, 1)))
    assert len(nobody.plot()) == 3
    with pytest.raises(allocator.InputError, match="did you mean 'queue'"):
        result.plot("queues")
    with pytest.raises(allocator.InputError, match="found 1, expected 3"):
        result.plot(axes=result.plot("queue"))
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(allocator.InputError, match=r"cluster-allocator\[plot\]"):
        result.plot()
