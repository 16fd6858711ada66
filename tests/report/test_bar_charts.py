"""Figures as bars, and the rho and the names that a preset shows."""

import io
import math
import re
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from allocator.report import render_report
from allocator.report.bar_charts import bar_panels
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


def test_bars_have_the_lengths_of_their_values() -> None:
    rows = [summary("shockwave"), summary("fifo", makespan=72000.0), summary("finish_time_fairness", makespan=18000.0)]
    panels = bar_panels(rows)
    assert len(panels) == 4
    assert [re.findall(r"<figcaption>(.*?)<", panel) for panel in panels] == [
        ["makespan (h)"],
        ["average JCT (h)"],
        ["worst rho"],
        ["unfair jobs (%)"],
    ]
    widths = [float(width) for width in re.findall(r'<rect[^>]*width="([\d.]+)"', panels[0])]
    np.testing.assert_allclose(np.array(widths) / widths[1], [0.5, 1.0, 0.25], atol=1e-3)
    assert re.findall(r"×([\d.]+)", panels[0]) == ["2.00", "0.50"]
    assert re.findall(r'data-policy="(\d)"', panels[0]) == ["0", "1", "2"]
    for label in ("Shockwave", "fifo", "Themis"):
        assert f">{label}</text>" in panels[0]


@pytest.mark.parametrize("value", [None, math.nan])
def test_what_is_missing_has_no_bar(value: float | None) -> None:
    rows = [summary("shockwave", makespan=value), summary("fifo"), summary("isolated", unfair_fraction_static=0.0)]
    panels = bar_panels(rows)
    assert not any("nan" in panel for panel in panels)
    assert "<b>" not in "".join(bar_panels([summary("<b>&"), summary("shockwave")]))
    assert 'width="0.0"' in panels[0] or 'width="0"' in panels[0]
    assert "×" not in panels[0]


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
    assert [figure.key for figure in shown.bars] == ["deadline_ratio", "average_jct"]
    assert "deadline_ratio" in {figure.key for figure in shown.figures}
    without = Presentation.of([summary("elasticflow") | {"settings": settings}])
    assert [figure.key for figure in without.bars] == ["average_jct"]


def test_the_page_has_panels_names_and_the_rho_of_the_preset() -> None:
    """Under the preset shockwave, where rho_static is half of the usual rho."""
    results = []
    for policy in POLICIES:
        result = make_result(policy, n_jobs=4, hours=1)
        settings = result.settings | {"preset": "shockwave", "fairness": "static"}
        results.append(changed(result, jobs=result.jobs.assign(rho_static=result.jobs["rho"] / 2), settings=settings))
    page = render_report(results)
    assert page.count('class="chart panel"') == 4
    assert "finish_time_fairness (Themis)" in page
    assert "jobs of the trace per GPU" in page
    embedded = re.search(r'"rhoValues":\{"count":\d+,"values":\[([^\]]*)\]', page)
    assert embedded is not None
    worst = results[0].jobs["rho_static"].max()
    assert float(embedded[1].split(",")[-1]) == pytest.approx(worst, abs=1e-4)
