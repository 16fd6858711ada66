"""Bars, trade-offs and differences say what the results say."""

from __future__ import annotations

import matplotlib
import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from matplotlib.colors import to_hex
from scipy.stats import t

from benchmarks import figures
from throughputs import InputError


@pytest.fixture
def axes():
    import matplotlib.pyplot as plt

    matplotlib.use("Agg")
    with matplotlib.rc_context():
        figures.use_style()
        figure, (panel,) = figures.panels(1)
        yield panel
        plt.close(figure)


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


# Bars


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
    half_width = t.ppf(0.975, 1) * 2.0  # two figures that are 4 apart have a standard error of 2
    np.testing.assert_allclose(spans[0], [8.0 - half_width, 8.0 + half_width])
    assert len(spans) == 2
    axes.clear()
    figures.bars(axes, RUNS[RUNS["seed"] == 0], value="rho", digits=0, names=False)
    assert not axes.get_lines()
    assert texts(axes) == ["6", "2", "3"]
    assert not any(label.get_text() for label in axes.get_yticklabels())


def test_published_figures_are_hollow_and_in_view(axes):
    figures.bars(axes, RUNS[RUNS["seed"] == 0], value="rho", published={"second": 40.0, "other": 99.0})
    (hollow,) = [line for line in axes.get_lines() if line.get_markerfacecolor() == "none"]
    assert (list(hollow.get_xdata()), list(hollow.get_ydata())) == ([40.0], [1])
    assert axes.get_xlim()[1] > 40.0


def test_missing_columns_are_told(axes):
    for draw in (
        lambda: figures.bars(axes, RUNS, value="jct"),
        lambda: figures.trade_off(axes, RUNS, x="rho", y="jct", colour="policy", marker="seed"),
        lambda: figures.paired_differences(RUNS, value="rho", series="rule", baseline="first", by=["load"]),
        lambda: figures.differences(axes, RUNS, rows="load", series="policy"),
    ):
        with pytest.raises(InputError, match="results of a sweep"):
            draw()


# Pareto fronts


@given(
    arrays.arrays(np.float64, st.tuples(st.integers(0, 12), st.integers(1, 3)), elements=st.integers(0, 4).map(float))
)
def test_the_front_is_what_nothing_beats(points):
    front = set(figures.pareto_front(points).tolist())
    for i, point in enumerate(points):
        beaten = any((other <= point).all() and (other < point).any() for other in points)
        assert (i in front) != beaten


def test_the_front_ascends_and_leaves_out_what_is_not_known():
    points = [[3.0, 1.0], [1.0, 3.0], [2.0, 2.0], [2.5, 2.5], [np.nan, 0.0], [1.0, 3.0]]
    assert figures.pareto_front(points).tolist() == [1, 5, 2, 0]
    assert len(figures.pareto_front(np.empty((0, 2)))) == 0


# Trade-offs


CHOICES = pd.DataFrame(
    {"k": ["0", "0", "1"], "power": ["2", "3", "2"], "hours": [3.0, 1.0, 2.0], "rho": [1.0, 3.0, 3.5]}
)


def test_colours_and_markers_say_what_was_chosen(axes):
    figures.trade_off(axes, CHOICES, x="hours", y="rho", colour="k", marker="power")
    front, *points = axes.get_lines()
    assert (list(front.get_xdata()), list(front.get_ydata())) == ([1.0, 3.0], [3.0, 1.0])
    assert [(line.get_xdata()[0], line.get_ydata()[0]) for line in points] == [(3.0, 1.0), (1.0, 3.0), (2.0, 3.5)]
    assert points[0].get_color() == points[1].get_color() != points[2].get_color()
    assert points[0].get_marker() == points[2].get_marker() != points[1].get_marker()


def test_the_front_may_be_of_some_points_only(axes):
    figures.trade_off(axes, CHOICES, x="hours", y="rho", colour="k", marker="k", front=[True, False, True])
    front, *points = axes.get_lines()
    assert list(front.get_xdata()) == [2.0, 3.0]
    assert len(points) == 3


def test_intervals_of_a_trade_off_are_crosses_that_do_not_widen_it(axes):
    wide = CHOICES.assign(hours_width=[0.5, 100.0, np.nan])
    figures.trade_off(axes, wide, x="hours", y="rho", colour="k", marker="k", widths={"hours": "hours_width"})
    _front, *rest = axes.get_lines()
    points, crosses = rest[:3], rest[3:]
    assert [list(line.get_xdata()) for line in crosses[:2]] == [[2.5, 3.5], [-99.0, 101.0]]
    assert [set(line.get_ydata()) for line in crosses[:2]] == [{1.0}, {3.0}]
    assert crosses[0].get_color() == points[0].get_color()
    assert axes.get_xlim()[0] > 0
    assert axes.get_xlim()[1] < 4


def test_keys_name_every_colour_and_marker(axes):
    figures.trade_off(axes, CHOICES, x="hours", y="rho", colour="k", marker="power")
    figures.key_beside(axes, CHOICES, colour="k", marker="power", titles=("k of it", "power"))
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["k of it", "0", "1", "power", "2", "3"]
    figures.key_beside(axes, CHOICES, colour="k", marker="k")
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["0", "1"]


# Differences


def test_differences_are_between_runs_on_the_same_jobs():
    table = figures.paired_differences(RUNS, value="rho", series="policy", baseline="first", by=["load"])
    assert list(table["policy"]) == ["second", "third"]
    assert list(table["pairs"]) == [2, 1]
    assert list(table["mean"]) == [-5.0, -3.0]
    # 2 - 6 and 4 - 10: a standard error of 1
    assert table["half_width"][0] == pytest.approx(t.ppf(0.975, 1) * 1.0)
    assert np.isnan(table["half_width"][1])


def test_pairing_takes_away_what_jobs_have_in_common():
    rng = np.random.default_rng(3)
    hard = rng.normal(100, 30, 20)
    rows = [("a", "x", seed, "completed", value) for seed, value in enumerate(hard)]
    rows += [("b", "x", seed, "completed", value + 1) for seed, value in enumerate(hard)]
    table = figures.paired_differences(
        pd.DataFrame(rows, columns=RUNS.columns), value="rho", series="policy", baseline="a", by=["load"]
    )
    assert table["mean"][0] == pytest.approx(1.0)
    assert table["half_width"][0] == pytest.approx(0.0, abs=1e-9)


def test_a_baseline_without_runs_is_told():
    with pytest.raises(InputError, match="fourth"):
        figures.paired_differences(RUNS, value="rho", series="policy", baseline="fourth", by=["load"])


def test_differences_are_drawn_row_by_row(axes):
    table = figures.paired_differences(RUNS, value="rho", series="policy", baseline="first", by=["load"])
    figures.differences(axes, table, rows="load", series="policy", unit=2.0)
    line, interval, second, third = axes.get_lines()
    assert set(line.get_xdata()) == {0.0}
    assert second.get_xdata()[0] == -2.5
    assert np.mean(interval.get_xdata()) == pytest.approx(-2.5)
    assert third.get_xdata()[0] == -1.5
    assert second.get_ydata()[0] < third.get_ydata()[0]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["low"]
    assert axes.get_xlim()[0] < -2.5
    assert axes.get_xlim()[0] > min(interval.get_xdata())  # two seeds: far wider than the difference


def test_no_difference_at_all_can_be_drawn(axes):
    same = pd.DataFrame({"load": ["low"], "policy": ["a"], "mean": [0.0], "half_width": [0.0]})
    figures.differences(axes, same, rows="load", series="policy")
    assert axes.get_xlim() == (-1.0, 1.0)
    figures.differences(axes, same.assign(half_width=np.nan, mean=-3.0), rows="load", series="policy")
    assert axes.get_xlim()[0] < -3.0


# Published figures


def test_published_comparison_is_found_by_the_variable(monkeypatch, tmp_path, reference_data):
    monkeypatch.setenv("ALLOCATOR_REFERENCE", str(reference_data("shockwave").parent))
    published = figures.published_comparison()
    assert sorted(published.index) == ["allox", "finish_time_fairness", "gandiva_fair", "max_min_fairness",
                                       "max_sum_throughput_perf", "min_total_duration", "shockwave"]  # fmt: skip
    assert published.loc["shockwave", "makespan"] == pytest.approx(24197.42, abs=0.01)
    assert published.loc["shockwave", "unfair_fraction_static"] == pytest.approx(0.05)
    monkeypatch.setenv("ALLOCATOR_REFERENCE", str(tmp_path))
    assert figures.published_comparison() is None
