"""Pictures of studies: means, bands and marks say what the results say."""

from __future__ import annotations

import itertools

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.colors import to_hex, to_rgb
from scipy.special import stdtrit

from allocator.registry import list_policies
from allocator.studies import figures, tables
from benchmarks import published, studies
from benchmarks.deadlines import AS_PUBLISHED, BASELINES, OURS, REPAIR
from throughputs import InputError


def results(rows):
    return pd.DataFrame(rows, columns=["policy", "rate", "seed", "status", "jct"])


pytestmark = pytest.mark.exhaustive

RUNS = results(
    [
        ("blind", 2.0, 0, "completed", 30.0),
        ("blind", 2.0, 1, "completed", 50.0),
        ("blind", 1.0, 0, "completed", 10.0),
        ("blind", 1.0, 1, "completed", 14.0),
        ("blind", 3.0, 0, "completed", 90.0),
        ("blind", 3.0, 1, "saturated", np.nan),
        ("aware", 1.0, 0, "completed", 8.0),
        ("aware", 1.0, 1, "completed", 8.0),
        ("aware", 2.0, 0, "completed", 9.0),
        ("aware", 2.0, 1, "completed", 11.0),
        ("aware", 3.0, 0, "completed", 20.0),
        ("aware", 3.0, 1, "completed", 20.0),
    ]
)


def test_means_and_intervals_over_seeds():
    table = tables.summary(RUNS, load="rate", value="jct", unit=2.0)
    assert list(table["policy"]) == ["blind"] * 3 + ["aware"] * 3
    assert list(table["rate"]) == [1.0, 2.0, 3.0] * 2
    assert table["mean"].tolist()[:2] == [6.0, 20.0]
    # two figures that are d apart have a standard error of d / 2
    assert table["half_width"][1] == pytest.approx(stdtrit(1, 0.975) * 5.0)
    assert np.isnan(table["half_width"][3])  # of equal figures
    saturated = table.iloc[2]
    assert saturated["status"] == "saturated"
    assert saturated[["mean", "half_width"]].isna().all()


def test_busiest_load_is_one_that_all_completed():
    table = tables.summary(RUNS, load="rate", value="jct")
    assert tables.busiest(table, "rate") == 2.0
    with pytest.raises(InputError, match="all series"):
        tables.busiest(table.assign(status="saturated"), "rate")


def test_curves_draw_means_bands_and_saturation(axes):
    printed = pd.DataFrame({"policy": ["aware", "aware"], "rate": [1.0, 2.0], "value": [7.0, 500.0]})
    figures.curves(axes, RUNS, load="rate", value="jct", published=printed)
    hollow = [line for line in axes.get_lines() if line.get_markerfacecolor() == "none" and len(line.get_xdata())]
    assert [list(line.get_ydata()) for line in hollow] == [[7.0, 500.0]]
    assert axes.get_ylim()[1] > 500
    lines = {tuple(line.get_xdata()): line for line in axes.get_lines() if line not in hollow}
    assert list(lines[1.0, 2.0].get_ydata()) == [12.0, 40.0]
    assert list(lines[1.0, 2.0, 3.0].get_ydata()) == [8.0, 10.0, 20.0]
    crosses = [line for line in axes.get_lines() if line.get_marker() == "x"]
    assert [list(line.get_xdata()) for line in crosses] == [[3.0]]
    assert to_hex(crosses[0].get_color()) == to_hex(lines[1.0, 2.0].get_color())
    whiskers = [np.array([segment[:, 1] for segment in lines.get_segments()]) for lines in axes.collections]
    assert [spans.mean(axis=1).tolist() for spans in whiskers] == [[12.0, 40.0], [10.0]]
    assert np.ptp(whiskers[0][0]) == pytest.approx(2 * stdtrit(1, 0.975) * 2.0)  # two figures that are 4 apart
    assert {text.get_text() for text in axes.texts} == {"blind", "aware"}
    assert "saturated" in axes.get_title("right")


def test_looks_are_distinct_and_stable():
    styles = figures.looks(["a", "b", "a", "c"])
    assert list(styles) == ["a", "b", "c"]
    assert len({style["color"] for style in styles.values()}) == 3
    assert len({style["marker"] for style in styles.values()}) == 3
    assert len(set(figures.SHADES)) == len(figures.SHADES)


def test_more_policies_than_colours_differ_in_their_lines():
    names = [entry.name for entry in list_policies()][:30]
    styles = figures.looks(names).values()
    assert len({(style["color"], style["marker"], style["linestyle"]) for style in styles}) == 30


def compared():
    """Policies by study, as notebooks draw them."""
    found = {name: [policy for policy, _ in studies.sweep_of(name).policies] for name in studies.STUDIES}
    return found | {"deadlines": [*BASELINES, "chronus", AS_PUBLISHED, OURS, REPAIR, "elasticflow_no_admission"]}


# How colours are seen, in linear light: without red, green and blue cones (Machado, Oliveira, Fernandes, 2009).
VISION = {
    "all cones": [[1, 0, 0], [0, 1, 0], [0, 0, 1]],
    "no red": [[0.152, 1.053, -0.205], [0.115, 0.786, 0.099], [-0.004, -0.048, 1.052]],
    "no green": [[0.367, 0.861, -0.228], [0.280, 0.673, 0.047], [-0.012, 0.043, 0.969]],
    "no blue": [[1.256, -0.077, -0.179], [-0.078, 0.931, 0.148], [0.005, 0.691, 0.304]],
}


def lab(colour, vision):
    """Lightness and two opponent colours (CIE 1976), as somebody sees them."""
    light = np.array(to_rgb(colour))
    light = np.where(light <= 0.04045, light / 12.92, ((light + 0.055) / 1.055) ** 2.4)
    seen = np.clip(np.array(VISION[vision]) @ light, 0, 1)
    xyz = np.array([[0.434, 0.376, 0.190], [0.2126, 0.7152, 0.0722], [0.018, 0.109, 0.873]]) @ seen
    x, y, z = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


@pytest.mark.parametrize("vision", VISION)
def test_colours_of_one_picture_can_be_told_apart(vision):
    for names in compared().values():
        seen = [lab(style["color"], vision) for style in figures.looks(names).values()]
        assert all(np.linalg.norm(a - b) > 8 for a, b in itertools.combinations(seen, 2))


@given(st.lists(st.floats(0, 1), max_size=9), st.floats(0.01, 0.2))
def test_names_are_apart_and_in_order(heights, gap):
    placed = np.array(figures.apart(heights, gap))
    order = np.argsort(heights, kind="stable")
    assert (np.diff(placed[order]) >= gap - 1e-9).all()
    if len(heights) < 2 or np.diff(np.sort(heights)).min() >= gap + 1e-9:
        np.testing.assert_allclose(placed, heights, atol=1e-9)


def test_published_curves_are_found_by_the_variable(monkeypatch, reference_data):
    monkeypatch.setenv("ALLOCATOR_REFERENCE", str(reference_data("gavel").parent))
    curves = published.published_curves("single", ["max_min_fairness", "max_min_fairness_perf"])
    assert set(curves["policy"]) == {"max_min_fairness", "max_min_fairness_perf"}
    assert not curves.duplicated(["policy", "jobs_per_hour"]).any()
    assert curves["value"].between(5, 500).all()  # hours, not ratios
    times = published.recorded_decision_times()
    assert times.groupby("policy")["jobs"].apply(lambda jobs: jobs.is_monotonic_increasing and jobs.is_unique).all()
