"""The page of scenarios, as text and in a browser."""

from __future__ import annotations

import re

import pytest

from allocator import whatif
from allocator.experiments.whatif.page import lines_along, render_page
from tests.report.test_page import Page
from tests.scenarios.test_scenarios import log


@pytest.fixture(scope="module")
def grown():
    policies = ["fifo", "max_min_fairness_perf"]
    return whatif(log(8), ["a100:4", "a100:5", "a100:6"], policies, loads=[1, 2], prices={"a100": 2.0}, next_gpus=1)


@pytest.mark.exhaustive
def test_figures_stand_against_each_number_that_varies(grown):
    ((name, lines),) = lines_along(grown.rows).items()
    assert name == "GPUs"  # of a load there are two points
    assert list(lines) == [
        "load 1, fifo", "load 1, max_min_fairness_perf", "load 2, fifo", "load 2, max_min_fairness_perf",
    ]  # fmt: skip
    assert [[at for at, _ in line] for line in lines.values()] == [[4, 5, 6]] * 4
    page = render_page(grown)
    assert page.count("<circle") == 12 * 5  # twelve rows, five figures
    assert "What one more GPU would change" in page
    assert "normalised throughput" in page


def test_pages_are_whole_and_ask_for_nothing(grown):
    policies = whatif(log(8), "a100:4", ["fifo", "srtf", "max_min_fairness"], next_gpus=0)
    for answer in (grown, policies, whatif(log(6), "a100:8", next_gpus=0)):
        page = render_page(answer)
        Page(page)
        assert "<script" not in page
        assert not re.findall(r"(?:src|href)=", page)
        assert "prefers-color-scheme: dark" in page
        # every curve has a colour of its own
        drawn = set(re.findall(r'class="(c\d+)"', page))
        assert bool(drawn) == (answer is grown)
        assert all(f".{name} {{ --own:" in page for name in drawn)
    page = render_page(policies)
    assert (lines_along(policies.rows), page.count("<figure")) == ({}, 0)
    assert "would change" not in page


def test_text_from_outside_is_escaped():
    trace = log(6)
    object.__setattr__(trace, "source", "<script>alert(1)</script>")
    page = render_page(whatif(trace, "a100:8", next_gpus=0))
    assert "<script" not in page
    assert "&lt;script&gt;" in page
