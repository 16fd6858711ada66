"""Tables of parts of a run, on the terminal and on the page."""

import re
from itertools import pairwise

import numpy as np
import pytest
from rich.console import Console

from allocator import Cluster
from allocator.report import render_report
from allocator.report.breakdowns import BREAKDOWNS, parts_table
from tests.report.synthetic import payload_of
from tests.results.test_measures import run


def printed(summaries: list[dict[str, object]], rows: str) -> str:
    console = Console(width=140)
    with console.capture() as capture:
        console.print(parts_table(summaries, BREAKDOWNS[rows]))
    return capture.get()


def test_partitions_on_the_terminal() -> None:
    summary = dict(run().summary())
    text = printed([summary], "by_partition")
    for row in summary["by_partition"]:
        (line,) = [line for line in text.splitlines() if line.startswith(f" {row['partition']} ")]
        assert f"{row['jobs']}/{row['jobs']}" in line
        assert f"{row['p99_queueing_time'] / 3600:.2f} " in line
        assert f"{100 * row['gpu_share']:.1f}" in line


def test_entities_stand_below_those_they_are_inside_of() -> None:
    rows = [("lab", ""), ("shop", ""), ("vision", "lab"), ("till", "shop"), ("cats", "vision"), ("", "")]
    done = {"jobs": 1, "completed_jobs": 1}
    text = printed([{"by_entity": [{"entity": name, "parent": parent, **done} for name, parent in rows]}], "by_entity")
    lines = [line.removeprefix(" ").partition("1/1")[0].rstrip() for line in text.splitlines() if "1/1" in line]
    assert lines == ["lab", "  vision", "    cats", "shop", "  till", "(outside)"]


def test_partitions_and_types_are_on_the_page() -> None:
    result = run()
    page = render_report([result])
    rows = result.summary()["by_accelerator"]
    for name in ("by-partition", "by-accelerator"):
        (part,) = re.findall(rf'<section id="{name}".*?</section>', page, re.DOTALL)
        assert len(re.findall(r'<tr><th scope="row"', part)) == 2
    assert f'data-value="{100 * rows[0]["fragmentation"]:.9g}"' in part
    assert ">jobs<" not in part


def test_fragmentation_over_time_is_a_chart_where_it_is_known() -> None:
    result = run()
    page = render_report([result])
    assert '<section id="fragmentation"' in page
    assert '<section id="fragmentation"' not in render_report([run(Cluster({"red": 20, "blue": 8}))])
    series = payload_of([result])["runs"][0]["fragmentation"]
    edges, table = np.array(series["time"]), result.fragmentation
    exact = np.zeros(len(edges) - 1)
    for _, own in table.groupby("accelerator", observed=True):
        for bin, (since, until) in enumerate(pairwise(edges.tolist())):
            at = np.searchsorted(own["time"], np.arange(since, until), side="right") - 1
            exact[bin] += own["fragmented_gpus"].to_numpy()[at].mean() / 28
    assert np.abs(exact - series["value"]).max() < 0.03
    weights = np.diff(edges)
    assert np.average(series["value"], weights=weights) == pytest.approx(np.average(exact, weights=weights), rel=0.01)
