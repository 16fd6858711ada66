"""Predictions as one HTML page that opens without a network; nothing in it is a script."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from allocator.predictions.charts import agreement_chart, shape_chart
from allocator.report.colours import style_rules
from allocator.report.figures import MISSING
from allocator.report.page.markup import document, header, plain_heads, section, table
from throughputs.predict import DurationPredictions, shape_functions

TITLE = "Predicted durations"
_STYLE = """
.figures { width: auto; min-width: 50% }
.agreement { max-width: 820px }
"""

_MOST_SHAPES = 12
_LEAST_REACH = 1.02

FIGURES = (
    ("compared", "compared", "jobs of which the duration, a prediction and a median are known"),
    ("rank_correlation", "rank correlation", "Spearman's, of predicted and true durations: 1 is the true order"),
    ("error_s", "error (s)", "mean absolute error of the predictions"),
    ("error_of_median_s", "error of median (s)", "mean absolute error of the median of what was known, for all jobs"),
)
"""Key, heading and meaning of the figures of predictions."""

_SOURCES = {
    "model": "by a model",
    "median": "by the median of those that had ended",
    "file": "by a file",
    "truth": "by their true duration with noise",
    "none": "not predicted",
}


def told_sources(quality: Mapping[str, object]) -> str:
    """How many jobs were predicted by what, in words; of `DurationPredictions.quality`."""
    predicted = quality["predicted"]
    assert isinstance(predicted, Mapping)
    return ", ".join(f"{count:,} {_SOURCES[name]}" for name, count in predicted.items()) or "nothing to predict"


def cells_of(quality: Mapping[str, float]) -> dict[str, str]:
    """The figures of `FIGURES` as text, by key."""
    forms = {"rank_correlation": "{:.3f}"}
    values = {key: float(quality[key]) for key, *_ in FIGURES}
    return {
        key: MISSING if np.isnan(value) else forms.get(key, "{:,.0f}").format(value) for key, value in values.items()
    }


def render_page(predictions: DurationPredictions, *, source: str = "") -> str:
    """The text of the page; `source` is what the jobs are of."""
    sections = (_periods(predictions), _agreement(predictions), _shapes(predictions))
    body = "\n".join([_heading(predictions, source), "<main>", *sections, "</main>"])
    return document(TITLE, body, style_rules(["max_min_fairness_perf"]) + _STYLE)


def _heading(predictions: DurationPredictions, source: str) -> str:
    quality = predictions.quality()
    texts = cells_of(quality)
    facts = (
        ("jobs", f"{quality['jobs']:,}" + (f" of {source}" if source else "")),
        ("predicted", told_sources(quality)),
        ("rank correlation", texts["rank_correlation"]),
        ("error", f"{texts['error_s']} s, of the median {texts['error_of_median_s']} s"),
    )
    return header(TITLE, "How long jobs were said to run when they were submitted, beside how long they ran.", facts)


def _periods(predictions: DurationPredictions) -> str:
    columns = (
        ("from day", "when models were fitted anew"),
        ("jobs", "submitted since"),
        ("had ended", "jobs that had ended by then: what was known"),
        *((heading, about) for _, heading, about in FIGURES),
    )
    lines = []
    for period in predictions.periods:
        cells = [f"{period.jobs:,}", f"{period.known:,}", *cells_of(period.quality).values()]
        inside = "".join(f"<td>{cell}</td>" for cell in cells)
        lines.append(f'<tr><th scope="row">{period.begin / 86400:.1f}</th>{inside}</tr>')
    how = (
        "Each row is predicted from jobs that had ended when it begins, as if none had waited. Errors are means over "
        "the jobs compared; the median is that of all durations known by then."
    )
    return section("periods", "From fit to fit", how, table(plain_heads(columns), lines))


def _agreement(predictions: DurationPredictions) -> str:
    chart = agreement_chart(predictions)
    if not chart:
        return ""
    how = (
        "Jobs in groups of equal size by their predictions: the dot is the median of what they took, the line spans "
        "the middle half of them. Predictions are right on average where dots are on the dashed line."
    )
    return section("agreement", "Predicted and true", how, f'<div class="agreement">{chart}</div>')


def _shapes(predictions: DurationPredictions) -> str:
    if predictions.last is None:
        return ""
    shapes = [shape for shape in shape_functions(predictions.last) if shape.reach >= _LEAST_REACH][:_MOST_SHAPES]
    if not shapes:
        return ""
    low = min(0.5, *(float(shape.factors.min()) for shape in shapes)) * 0.9
    high = max(2.0, *(float(shape.factors.max()) for shape in shapes)) * 1.1
    charts = "".join(shape_chart(f"shape-{place}", shape, (low, high)) for place, shape in enumerate(shapes))
    how = (
        "By what factor the last model's predictions change with one column, averaged over jobs that it was fitted to; "
        "1 (dashed) is no change. 'last, same user' is what the last job of the same user took that had ended, "
        "'mean, ...' the geometric mean of the last ten. Columns that change predictions most come first."
    )
    return section("shapes", "Shape functions", how, f'<div class="panels">{charts}</div>')
