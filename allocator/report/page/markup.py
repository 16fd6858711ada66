"""Pieces of markup that pages are made of: the document, its header, sections, tables, lists to choose from."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from importlib.resources import files
from typing import TYPE_CHECKING

from allocator.report.charts import policy_class
from allocator.report.figures import MISSING
from allocator.report.page.seeds import Policies
from allocator.report.presentation import ended_otherwise
from throughputs.shown import escape

if TYPE_CHECKING:
    from allocator.results.result import SimulationResult


SCRIPTS = "script-src 'unsafe-inline'; "


def document(title: str, body: str, style: str, script: str = "") -> str:
    """A whole page in the style of the report, for light and dark paper and for narrow screens.

    `body` and `script` are markup, `style` are further rules. The browser is told to refuse whatever is not in the
    file, and scripts where the page has none.
    """
    allowed = f"style-src 'unsafe-inline'; {SCRIPTS if script else ''}img-src data:"
    usual = (files("allocator.report") / "assets" / "style.css").read_text(encoding="utf-8")
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; {allowed}">
<title>{escape(title)}</title>
<style>
{usual}{style}</style>
</head>
<body>
{body}
{script}</body>
</html>
"""


def header(title: str, lead: str, facts: Iterable[tuple[str, str]], answers: Iterable[str] = (), more: str = "") -> str:
    """The top of a page: its title, answers in larger letters, a sentence, and facts by name; `more` is markup."""
    parts = [f"<h1>{escape(title)}</h1>", *(f'<p class="answer">{escape(each)}</p>' for each in answers)]
    if lead:
        parts.append(f'<p class="lead">{escape(lead)}</p>')
    if rows := "".join(f"<div><dt>{escape(name)}</dt><dd>{escape(text)}</dd></div>" for name, text in facts):
        parts.append(f'<dl class="facts">{rows}</dl>')
    return "\n".join(["<header>", *parts, *filter(None, [more]), "</header>"])


def table(heads: str, rows: Iterable[str], *, tall: bool = False) -> str:
    """A table of figures that scrolls; `heads` and `rows` are markup."""
    inside = f'<table class="figures"><thead><tr>{heads}</tr></thead><tbody>{"".join(rows)}</tbody></table>'
    return f'<div class="scroll{" tall" if tall else ""}" tabindex="0" role="region" aria-label="Table">{inside}</div>'


def plain_heads(titles: Iterable[tuple[str, str]]) -> str:
    """Headings of a table, each with what it means."""
    return "".join(f'<th scope="col" title="{escape(about)}">{escape(text)}</th>' for text, about in titles)


def section(name: str, title: str, how: str, body: str) -> str:
    """A section with its heading and a line on how to read it; `body` is markup."""
    return (
        f'<section id="{name}" aria-labelledby="{name}-heading">\n'
        f'<div class="head"><h2 id="{name}-heading">{escape(title)}</h2></div>\n'
        f'<p class="how">{escape(how)}</p>\n{body}\n</section>'
    )


def choice(name: str, label: str, options: Sequence[str], *, none: str | None = None) -> str:
    """A labelled list to choose one of the options from, or none where that has a name."""
    first = "" if none is None else f'<option value="">{escape(none)}</option>'
    rest = "".join(f'<option value="{index}">{escape(option)}</option>' for index, option in enumerate(options))
    return f'<label>{escape(label)} <select id="{name}">{first}{rest}</select></label>'


def heading(results: Sequence[SimulationResult], policies: Policies, title: str, description: str) -> str:
    """Title, description and what was run."""
    *answers, lead = description.split("\n")
    settings = _settings(results) if any(result.settings for result in results) else ""
    return header(title, lead, _facts(results, policies), answers, settings)


def _facts(results: Sequence[SimulationResult], policies: Policies) -> list[tuple[str, str]]:
    if not results:
        return []
    facts = [
        ("cluster", distinct(f"{result.cluster.in_words} ({result.cluster.total_gpus} GPUs)" for result in results)),
        ("jobs", distinct(f"{len(result.jobs):,}" for result in results)),
        ("policies", str(len(policies.summaries))),
    ]
    if policies.most_runs > 1:
        facts.append(("runs", f"{len(results)}, with different seeds"))
    ends = [(result.label, ended_otherwise(result.summary())) for result in results]
    if any(words for _, words in ends):
        facts.append(("ended otherwise", "; ".join(f"{label}: {words}" for label, words in ends if words)))
    for key in ("trace", "preset"):
        values = [_setting_text(result.settings[key]) for result in results if key in result.settings]
        if values:
            facts.append((key, distinct(values)))
    return facts


def distinct(texts: Iterable[str]) -> str:
    """The texts, each once, in a line."""
    return "; ".join(dict.fromkeys(texts))


def _settings(results: Sequence[SimulationResult]) -> str:
    """All settings: one column when every policy agrees on a setting, otherwise each policy's value."""
    keys = [key for key in dict.fromkeys(key for r in results for key in r.settings) if key != "policy"]
    rows = []
    for key in keys:
        texts = [_setting_text(result.settings.get(key)) for result in results]
        if len(set(texts)) == 1:
            value = escape(texts[0])
        else:
            pairs = zip(results, texts, strict=True)
            value = "<br>".join(f"{escape(result.label)}: {escape(text)}" for result, text in pairs)
        rows.append(f'<tr><th scope="row">{escape(str(key))}</th><td>{value}</td></tr>')
    return (
        "<details><summary>Settings of the runs</summary>"
        '<table class="settings">'
        '<thead><tr><th scope="col">setting</th><th scope="col">value</th></tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></details>"
    )


def _setting_text(value: object) -> str:
    if value is None:
        return MISSING
    return value if isinstance(value, str) else json.dumps(value, default=str, ensure_ascii=False)


def line_sample(name: str) -> str:
    """A piece of the curve of a policy, and its name beside it."""
    return f'<svg width="26" height="10" aria-hidden="true"><path class="curve" d="M1 5H25"/></svg>{escape(name)}'


def legend(names: Sequence[str]) -> str:
    """One button per policy, pressed means shown, and the baseline. Stays in view: it holds for the whole page."""
    buttons = "".join(
        f'<button type="button" class="key {policy_class(position)}" '
        f'data-policy="{position}" aria-pressed="true">'
        f"{line_sample(name)}</button>"
        for position, name in enumerate(names)
    )
    baseline = choice("baseline", "Baseline", names, none="none") if len(names) > 1 else ""
    return (
        f'<div class="legend"><div class="keys" role="group" aria-label="Policies: show or hide everywhere">{buttons}'
        f"</div>{baseline}</div>"
    )
