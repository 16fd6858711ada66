"""What tables, page and charts show of rows with known figures: values, ratios and changes with their signs."""

from __future__ import annotations

import html
import io
import re

import pytest
from rich.console import Console

from allocator import Cluster
from allocator.experiments.whatif.page import render_page
from allocator.experiments.whatif.rows import Row, WhatIf, format_change, next_gpus_table, rows_table
from allocator.report.figures import FIGURES

(JCT,) = (figure for figure in FIGURES if figure.key == "average_jct")


def figures(hours, completed=10):
    return {"jobs": 10, "completed_jobs": completed, "average_jct": 3600.0 * hours, "loaded_utilization": 0.5}


def row(gpus, hours, more=(), completed=10):
    """On so many GPUs of a100, and 2 of h100."""
    cluster, place = Cluster({"a100": gpus, "h100": 2}), {"load": 1.0, "policy": "fifo"}
    larger = {name: Row("", cluster, place, "completed", "", figures(h)) for name, h, _ in more}
    known = {"prices": {name: price for name, _, price in more}, "price_unit": "normalised throughput"}
    own = figures(hours, completed)
    return Row(f"a100:{gpus}", cluster, place, "completed", "", own, next_gpus=larger, **known)


@pytest.fixture
def halved():
    """16 GPUs take half as long as 8, and one h100 more does harm."""
    rows = (row(8, 2.0, [("a100", 1.5, 0.25), ("h100", 2.25, 1.75)]), row(16, 1.0), row(4, 5.0))
    return WhatIf(rows, "log", 10, 1)


def shown(table, width=200):
    console = Console(file=io.StringIO(), width=width)
    console.print(table)
    return console.file.getvalue().splitlines()


def line_with(lines, start):
    return next(line for line in lines if line.split()[:1] == [start])


def cells_of(page, section):
    """The text of each cell of each row of the table in a section of the page."""
    part = page.partition(f'id="{section}-heading"')[2].partition("</section>")[0]
    rows = re.findall(r"<tr>(.*?)</tr>", part)[1:]
    cells = [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row) for row in rows]
    return [[html.unescape(re.sub("<[^>]*>", " ", cell)).split() for cell in row] for row in cells]


def test_ratios_are_over_the_first_row(halved):
    in_words = str(halved).splitlines()
    assert "2.0" in line_with(in_words, "a100:8")
    assert "×0.50" in line_with(in_words, "a100:16")
    lines = shown(rows_table(halved))
    assert "×0.50" in line_with(lines, "a100:16")
    assert "×2.50" in line_with(lines, "a100:4")
    assert "×" not in line_with(lines, "a100:8")
    assert not any("10/10" in line for line in lines)
    first, second, third = cells_of(render_page(halved), "rows")
    assert [cells[1][1:] for cells in (first, second, third)] == [[], ["×0.50"], ["×2.50"]]
    assert [float(cells[1][0]) for cells in (first, second, third)] == [2.0, 1.0, 5.0]


@pytest.mark.parametrize("width", [60, 80, 100])
def test_columns_that_do_not_fit_are_named_and_the_others_whole(width):
    counts = {"jobs": 1000, "completed_jobs": 1000}
    figures = {figure.key: 1234.5 * figure.scale for figure in FIGURES} | counts
    place = {"load": 1.0, "policy": "slurm"}
    rows = (Row(f"a100:{n}, load 1", Cluster({"a100": n}), place, "completed", "", figures) for n in (8, 16))
    result = WhatIf(tuple(rows), "log", 1000, 1)
    lines = shown(rows_table(result, width=width), width)
    (left_out,) = re.findall(r"no room here for (.*): see whatif\.html", " ".join(" ".join(lines).split()))
    whole = re.findall(r"1,23[45][.\d]* ×1\.00", line_with(lines, "a100:16,"))
    plain = [column for column in result.columns() if not column.figure.detail]
    assert len(whole) == len(plain) - len(left_out.split(", ")) >= 2


def test_changes_are_later_minus_before(halved):
    lines = shown(next_gpus_table(halved))
    one, other = (next(line for line in lines if f" {name} " in line) for name in ("a100", "h100"))
    assert "−0.500" in one
    assert [format_change(change) for change in (-1e-5, 0.0, -0.002)] == ["0.000", "0", "−0.002"]
    assert one.split()[-1] == "0.25"
    assert "+0.250" in other
    assert other.split()[-1] == "1.75"
    one, other = cells_of(render_page(halved), "next")
    assert (one[1], one[2], one[-1]) == (["a100"], ["−0.500"], ["0.25"])
    assert "price per GPU (normalised throughput)" in render_page(halved)
    assert (other[1], other[2], other[-1][0]) == (["h100"], ["+0.250"], "1.75")
    changes = [more["changes"]["average_jct"] for more in halved.as_dict()["rows"][0]["next_gpus"]]
    assert changes == halved.next_gpus["average_jct_change"].tolist() == [-1800.0, 900.0]  # seconds
