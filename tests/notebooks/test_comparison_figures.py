"""Bars, trade-offs and differences say what the results say."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from matplotlib.colors import to_hex
from scipy.special import stdtrit

from allocator.studies import figures, tables
from benchmarks import published
from throughputs import InputError

pytestmark = pytest.mark.exhaustive

RUNS = pd.DataFrame(
    [
        ("first", "low", 0, "completed", 6.0),
        ("first", "low", 1, "completed", 10.0),
        ("second", "low", 0, "completed", 2.0),
        ("second", "low", 1, "completed", 4.0),
        ("third", "low", 0, "completed", 3.0),
        ("third", "low", 1, "failed", np.nan),
    ],
    columns=["policy", "load", "seed", "status", "rho"],
)


def texts(axes):
    return [text.get_text() for text in axes.texts]


def test_a_bar_is_the_mean_over_seeds(axes):
    figures.bars(axes, RUNS, value="rho", unit=2.0)
    assert [bar.get_width() for bar in axes.patches] == [4.0, 1.5]
    assert texts(axes) == ["4.00", "1.50", "not completed"]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["first", "second", "third"]
    low, high = axes.get_ylim()
    assert low > high  # the first one is on top
    colours = [to_hex(bar.get_facecolor()) for bar in axes.patches]
    assert colours == [style["color"] for style in figures.looks(["first", "second", "third"]).values()][:2]


def test_whiskers_are_confidence_intervals(axes):
    figures.bars(axes, RUNS, value="rho")
    spans = [list(line.get_xdata()) for line in axes.get_lines()]
    half_width = stdtrit(1, 0.975) * 2.0  # two figures that are 4 apart have a standard error of 2
    np.testing.assert_allclose(spans[0], [8.0 - half_width, 8.0 + half_width])
    assert len(spans) == 2
    axes.clear()
    figures.bars(axes, RUNS[RUNS["seed"] == 0], value="rho", digits=0, names=False)
    assert not axes.get_lines()
    assert texts(axes) == ["6", "2", "3"]
    assert not any(label.get_text() for label in axes.get_yticklabels())


def test_missing_columns_are_told(axes):
    for draw in (
        lambda: figures.bars(axes, RUNS, value="jct"),
        lambda: figures.trade_off(axes, RUNS, x="rho", y="jct", colour="policy", marker="seed"),
        lambda: tables.paired_differences(RUNS, value="rho", series="rule", baseline="first", by=["load"]),
        lambda: figures.differences(axes, RUNS, rows="load", series="policy"),
    ):
        with pytest.raises(InputError, match="results of a study"):
            draw()


@given(
    arrays.arrays(np.float64, st.tuples(st.integers(0, 12), st.integers(1, 3)), elements=st.integers(0, 4).map(float))
)
def test_the_front_is_what_nothing_beats(points):
    front = set(tables.pareto_front(points).tolist())
    for i, point in enumerate(points):
        beaten = any((other <= point).all() and (other < point).any() for other in points)
        assert (i in front) != beaten


def test_differences_are_between_runs_on_the_same_jobs():
    table = tables.paired_differences(RUNS, value="rho", series="policy", baseline="first", by=["load"])
    assert list(table["policy"]) == ["second", "third"]
    assert list(table["pairs"]) == [2, 1]
    assert list(table["mean"]) == [-5.0, -3.0]
    # 2 - 6 and 4 - 10: a standard error of 1
    assert table["half_width"][0] == pytest.approx(stdtrit(1, 0.975) * 1.0)
    assert np.isnan(table["half_width"][1])


def test_published_comparison_is_found_by_the_variable(monkeypatch, tmp_path, reference_data):
    monkeypatch.setenv("ALLOCATOR_REFERENCE", str(reference_data("shockwave").parent))
    recorded = published.published_comparison()
    assert sorted(recorded.index) == ["allox", "finish_time_fairness", "gandiva_fair", "max_min_fairness",
                                       "max_sum_throughput_perf", "min_total_duration", "shockwave"]  # fmt: skip
    assert recorded.loc["shockwave", "makespan"] == pytest.approx(24197.42, abs=0.01)
    assert recorded.loc["shockwave", "unfair_fraction_static"] == pytest.approx(0.05)
    monkeypatch.setenv("ALLOCATOR_REFERENCE", str(tmp_path))
    assert published.published_comparison() is None
