"""Pictures of studies: one look for all of them, for notebooks and scripts.

    from benchmarks import figures

    figures.use_style()
    fig, axes = figures.panels(1)
    figures.curves(axes[0], results, load="jobs_per_hour", value="average_jct", unit=3600)

A policy has one colour and one marker in all of them; its variants are darker or lighter, and settings have shades.
Colours can be told apart with any kind of colour vision, and every line has its name beside it. Lines are means over
seeds with the 95 % confidence interval of the mean (Student's t) as a band. A load at which a seed has saturated is
marked and has no mean: what happened to complete by then says little.
"""

from __future__ import annotations

from pathlib import Path

from benchmarks.figures.comparison import bars, differences, key_beside, paired_differences, pareto_front, trade_off
from benchmarks.figures.curves import by_draw, cumulative, curves
from benchmarks.figures.labels import LineEnd, key, name_lines
from benchmarks.figures.means import busiest, half_width, summary
from benchmarks.figures.published import published_curves, recorded_decision_times
from benchmarks.figures.published_dynamic import published_comparison
from benchmarks.figures.style import FAINT, INK, SHADES, looks, panels, policy_of, use_style

__all__ = [
    "FAINT",
    "INK",
    "SHADES",
    "STUDIES",
    "LineEnd",
    "bars",
    "busiest",
    "by_draw",
    "cumulative",
    "curves",
    "differences",
    "half_width",
    "key",
    "key_beside",
    "looks",
    "name_lines",
    "paired_differences",
    "panels",
    "pareto_front",
    "policy_of",
    "published_comparison",
    "published_curves",
    "recorded_decision_times",
    "summary",
    "trade_off",
    "use_style",
]

STUDIES = Path(__file__).resolve().parents[1] / "studies"
"""The folder of the studies' definitions."""
