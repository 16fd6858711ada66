"""The rho and the names that a preset shows."""

import io
import re
from typing import Any

import pytest
from rich.console import Console

from allocator.report import render_report
from allocator.report.presentation import Presentation
from allocator.report.terminal import comparison_table
from tests.report.synthetic import changed, make_result

POLICIES = ("shockwave", "finish_time_fairness", "fifo")


pytestmark = pytest.mark.published


def summary(policy: str, **figures: Any) -> dict[str, Any]:
    usual = {
        "average_jct": 7200.0,
        "makespan": 36000.0,
        "worst_rho": 9.0,
        "unfair_fraction": 0.9,
        "worst_rho_static": 2.0,
        "unfair_fraction_static": 0.25,
        "completed_jobs": 10,
        "jobs": 10,
    }
    settings = {"preset": "shockwave", "fairness": "static"}
    return {"policy": policy, "settings": settings} | usual | figures


def text_of(table: Any) -> str:
    console = Console(file=io.StringIO(), width=120, color_system=None)
    with console.capture() as capture:
        console.print(table)
    return capture.get()


def test_the_preset_says_which_rho_is_shown() -> None:
    rows = [summary(policy) for policy in POLICIES]
    text = text_of(comparison_table(rows))
    assert "2.00" in text
    assert "9.00" not in text
    assert "finish_time_fairness (Themis)" in text
    assert "jobs of the trace per GPU" in text
    # one run without profiles of its jobs: all are compared by the rho that each has
    del rows[1]["worst_rho_static"]
    text = text_of(comparison_table(rows))
    assert "9.00" in text
    assert "per GPU" not in text


@pytest.mark.parametrize("preset", ["elasticflow", "chronus", "chronus_elasticflow"])
def test_runs_with_deadlines_have_the_names_of_their_papers(preset: str) -> None:
    settings = {"preset": preset, "fairness": "isolated"}
    rows = [
        summary(policy) | {"settings": settings, "deadline_ratio": ratio}
        for policy, ratio in (("elasticflow", 0.9), ("edf_admission", 0.5), ("fifo", 0.1))
    ]
    shown = Presentation.of(rows)
    assert shown.labels == ("ElasticFlow", "EDF + Admission Control", "fifo")
    assert "deadline_ratio" in {figure.key for figure in shown.figures}


def test_the_page_has_the_names_and_the_rho_of_the_preset() -> None:
    """Under the preset shockwave, where rho_static is half of the usual rho."""
    results = []
    for policy in POLICIES:
        result = make_result(policy, n_jobs=4, hours=1)
        settings = result.settings | {"preset": "shockwave", "fairness": "static"}
        results.append(changed(result, jobs=result.jobs.assign(rho_static=result.jobs["rho"] / 2), settings=settings))
    page = render_report(results)
    assert "finish_time_fairness (Themis)" in page
    assert "jobs of the trace per GPU" in page
    embedded = re.search(r'"rhoValues":\{"count":\d+,"values":\[([^\]]*)\]', page)
    assert embedded is not None
    worst = results[0].jobs["rho_static"].max()
    assert float(embedded[1].split(",")[-1]) == pytest.approx(worst, abs=1e-4)
