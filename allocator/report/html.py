"""The report: one HTML file that opens anywhere, without a network.

>>> write_report([fifo_result, max_min_result], "report.html")  # doctest: +SKIP
PosixPath('report.html')
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from allocator.report.payload import build_payload, to_script_json
from allocator.report.presentation import Presentation
from allocator.report.sections import (
    allocation_section,
    bars_section,
    comparison_section,
    distribution_sections,
    efficiency_section,
    heading,
    legend,
    queue_section,
    sizes_section,
    timeline_section,
    utilization_section,
)

if TYPE_CHECKING:
    from allocator.results.result import SimulationResult

__all__ = ["render_report", "write_report"]

SCRIPTS = ("core.js", "charts.js", "timeline.js", "allocation.js")
# A second lock on the promise in the module's first line: the browser refuses whatever is not in the file.
CONTENT_POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"


def write_report(
    results: Sequence[SimulationResult],
    path: str | Path,
    *,
    title: str = "Comparison of scheduling policies",
    description: str = "",
    summaries: Sequence[Mapping[str, Any]] | None = None,
    sections: Sequence[str] = (),
) -> Path:
    """Write the report on `results`, one per policy, and return where it is.

    Parameters
    ----------
    results : finished simulations, in the order in which they are shown.
    path : file to write; its folder is made if needed.
    title, description : heading of the page, and a paragraph below it.
    summaries : figures of each result, with its settings under "settings", as `save_result` returns them; made of the
        results when omitted.
    sections : further sections, as markup; they come first.
    """
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    page = render_report(results, title=title, description=description, summaries=summaries, sections=sections)
    target.write_text(page, encoding="utf-8")
    return target


def render_report(
    results: Sequence[SimulationResult],
    *,
    title: str = "Comparison of scheduling policies",
    description: str = "",
    summaries: Sequence[Mapping[str, Any]] | None = None,
    sections: Sequence[str] = (),
) -> str:
    """The text of the report; parameters as for `write_report`."""
    if summaries is None:
        summaries = [result.summary().to_dict() | {"settings": result.settings} for result in results]
    shown = Presentation.of(summaries)
    payload = build_payload(results, rho=shown.rho)
    names = [result.label for result in results]
    body = [heading(results, title, description)]
    if results:
        body += [
            legend(shown.names),
            "<main>",
            *sections,
            comparison_section(summaries),
            bars_section(summaries),
            *distribution_sections(results, rho=shown.rho, meaning=shown.meaning),
            timeline_section(names),
            queue_section([policy["queue"] for policy in payload["policies"]]),
            utilization_section([policy["utilization"] for policy in payload["policies"]]),
            efficiency_section([policy["efficiency"] for policy in payload["policies"]]),
            sizes_section(summaries),
            allocation_section(names),
            "</main>",
        ]
    else:
        body.append('<main><p class="empty">There are no results to compare.</p></main>')
    return _document(title, "\n".join(body), to_script_json(payload))


def _document(title: str, body: str, data: str) -> str:
    assets = files("allocator.report") / "assets"
    style = (assets / "style.css").read_text(encoding="utf-8")
    script = "\n".join((assets / name).read_text(encoding="utf-8") for name in SCRIPTS)
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta http-equiv="Content-Security-Policy" content="{CONTENT_POLICY}">
<title>{escape(title)}</title>
<style>
{style}</style>
</head>
<body>
{body}
<div id="tip" role="status" hidden></div>
<script type="application/json" id="report-data">{data}</script>
<script>
(() => {{
"use strict";
{script}}})();
</script>
</body>
</html>
"""
