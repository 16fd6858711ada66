import io
import math

import numpy as np
import pytest
from rich.console import Console

from allocator.protocol.allocation import Allocation
from allocator.report import allocation_table, comparison_table
from allocator.report.figures import FIGURES, format_column
from throughputs import ThroughputMatrix

FAST = {
    "policy": "fast",
    "average_jct": 7200.0,
    "median_jct": 3600.0,
    "p99_jct": 36000.0,
    "makespan": 72000.0,
    "utilization": 0.75,
    "worst_rho": 3.0,
    "unfair_fraction": 0.25,
    "policy_seconds": 0.5,
    "wall_seconds": 1.0,
    "completed_jobs": 10,
    "jobs": 10,
    "rounds": 100,
}
FAIR = FAST | {
    "policy": "fair",
    "average_jct": 10800.0,
    "worst_rho": 1.1,
    "unfair_fraction": 0.0,
    "policy_seconds": 4.0,
}


def text_of(renderable: object, width: int = 100) -> str:
    file = io.StringIO()
    Console(file=file, width=width, color_system=None).print(renderable)
    return file.getvalue()


def row_of(text: str, name: str) -> list[str]:
    return next(line.split() for line in text.splitlines() if line.split()[:1] == [name])


def test_a_run_cut_short_does_not_win_on_its_few_short_jobs() -> None:
    short = FAST | {"policy": "short", "average_jct": 1.0, "policy_seconds": 0.1, "completed_jobs": 1}
    text = text_of(comparison_table([short, FAST, FAIR]))
    row = row_of(text, "short")
    assert row[-1] == "1/10"
    assert row[1] == "0.000"
    assert row[-2] == "0.100*"  # time in the policy does not depend on which jobs completed


@pytest.mark.parametrize(("largest", "shown"), [(3.6e6, "1,000"), (36000, "10.00"), (3.6, "0.00100"), (0.0, "0.00")])
def test_decimals_follow_the_largest_value(largest: float, shown: str) -> None:
    assert format_column(FIGURES[0], [{"average_jct": largest}]) == [shown]


def allocation(n_jobs: int, prices: bool = True) -> Allocation:
    matrix = ThroughputMatrix(np.ones((n_jobs, 2)), [f"[red]job{k}" for k in range(n_jobs)], ("v100", "k80"))
    shares = np.tile([0.625, 0.0], (n_jobs, 1))
    values = np.array([0.5, 0.25]) if prices else None
    return Allocation(
        "max_min", matrix, shares, "optimal", 0.75, "steps/s", 0.75, 1e-9, values, solver="highs", certified=True
    )


def test_a_zero_of_a_run_in_which_nothing_completed_is_a_dash() -> None:
    by_key = {figure.key: figure for figure in FIGURES}
    rows = [{"makespan": 0.0, "policy_seconds": 0.0, "preemptions": 3, "completed_jobs": done} for done in (0, 1)]
    shown = {key: [text.strip("0.") for text in format_column(by_key[key], rows)] for key in rows[0] if key in by_key}
    assert shown == {"makespan": ["-", ""], "policy_seconds": ["", ""], "preemptions": ["3", "3"]}


def test_allocation_shows_shares_prices_and_the_certificate() -> None:
    text = text_of(allocation_table(allocation(2)))
    assert row_of(text, "[red]job1") == ["[red]job1", "1", "0.625", "0.000", "0.625"]
    assert "price per GPU" in text
    assert "0.25" in text
    assert "optimal; objective 0.75 steps/s; gap 1.0e-09" in text


def test_values_are_shown_in_their_units_and_the_best_is_marked() -> None:
    none = {"policy": "none", "average_jct": math.nan, "makespan": None}
    text = text_of(comparison_table([FAST, FAIR | {"utilization": 0.9}]))
    assert row_of(text, "fast") == ["fast", "2.000*", "1.000", "10.00", "20.00", "75.0", "3.00", "25.0", "0.500*"]
    assert row_of(text, "fair") == ["fair", "3.000", "1.000", "10.00", "20.00", "90.0*", "1.10*", "0.0*", "4.000"]
    higher = [figure.key for figure in FIGURES if figure.better == "high"]
    assert higher == ["loaded_utilization", "utilization", "gpu_utilization"]
    text = text_of(comparison_table([none, FAST]))
    assert row_of(text, "none") == ["none", *["-"] * 8]
    assert "*" not in text_of(comparison_table([FAST]))
    assert "price per GPU" in text_of(allocation_table(allocation(0, prices=False)))


def test_intervals_stand_behind_their_means() -> None:
    text = text_of(comparison_table([FAST, FAIR], half_widths=[{"average_jct": 360.0}, {}]), width=200)
    assert row_of(text, "fast")[1:4] == ["2.000", "±", "0.100*"]
    assert row_of(text, "fair")[1] == "3.000"
