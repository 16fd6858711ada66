"""The report: one HTML file that opens anywhere, without a network.

>>> write_report([fifo_result, max_min_result], "report.html")  # doctest: +SKIP
PosixPath('report.html')
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from allocator.report.colours import style_rules
from allocator.report.figures import Rows
from allocator.report.page.markup import document, heading, legend
from allocator.report.page.payload import build_payload, script_elements
from allocator.report.page.sections import (
    allocation_section,
    course_sections,
    distribution_sections,
    jobs_section,
    timeline_section,
)
from allocator.report.page.seeds import Policies
from allocator.report.page.tables import breakdown_sections, comparison_section, differences_section
from allocator.report.presentation import Presentation
from allocator.results.output import summary_of
from throughputs.files import write_text

if TYPE_CHECKING:
    from allocator.results.result import SimulationResult

SCRIPTS = (
    "core.js",
    "address.js",
    "download.js",
    "tables.js",
    "charts.js",
    "runs.js",
    "drawing.js",
    "timeline.js",
    "jobs.js",
    "allocation.js",
)


def write_report(results: Sequence[SimulationResult], path: str | Path, **page: Any) -> Path:
    """Write the page of `render_report`, to which `page` goes, and return where it is; its folder is made if needed.

    >>> import tempfile
    >>> import allocator
    >>> from throughputs import Trace
    >>> run = allocator.simulate(Trace(["A3C"], [1], [1000.0], [0.0]), "v100:1", "fifo_perf")
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_report([run], Path(folder) / "report.html").name
    'report.html'
    """
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    write_text(target, render_report(results, **page))
    return target


def render_report(
    results: Sequence[SimulationResult],
    *,
    title: str = "Comparison of scheduling policies",
    description: str = "",
    summaries: Rows | None = None,
    sections: Sequence[str] = (),
) -> str:
    """The text of the report on runs.

    Parameters
    ----------
    results : finished simulations, in the order in which they are shown. Those with the same label and different seeds
        become one policy: its figures are means, with 95 % intervals.
    title, description : heading of the page, and a paragraph below it; lines above the last are larger.
    summaries : figures of each result, with its settings under "settings", as `save_result` returns them; made of the
        results when omitted.
    sections : further sections, as markup; they come first.
    """
    if summaries is None:
        summaries = [summary_of(result) for result in results]
    policies = Policies.of(summaries)
    shown = Presentation.of(policies.summaries)
    names, of_run = policies.run_names(shown.names, summaries), policies.of_run
    payload = build_payload(results, names, shown.names, of_run, shown.rho)
    runs = payload["runs"]
    colours = style_rules(str(summary.get("policy")) for summary in policies.summaries)
    body = [heading(results, policies, title, description)]
    if results:
        body += [
            legend(shown.names),
            "<main>",
            *sections,
            comparison_section(policies),
            differences_section(policies, policies.differences(summaries)),
            *distribution_sections(results, of_run, shown.rho, shown.meaning),
            *course_sections(runs, of_run, payload["origin"]),
            timeline_section(names),
            jobs_section(names),
            *breakdown_sections(policies.summaries),
            *([allocation_section(names)] if any(result.decisions for result in results) else []),
            "</main>",
        ]
    else:
        body.append('<main><p class="empty">There are no results to compare.</p></main>')
    script = "\n".join((files("allocator.report") / "assets" / name).read_text(encoding="utf-8") for name in SCRIPTS)
    scripts = f"""<div id="tip" role="status" hidden></div>
{script_elements(payload)}
<script>
(async () => {{
"use strict";
{script}}})();
</script>
"""
    return document(title, "\n".join(body), colours, scripts)
