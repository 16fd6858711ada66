"""Pieces of markup that all sections are made of."""

from __future__ import annotations

from collections.abc import Sequence

from throughputs.shown import escape


def head(title: str, style: str, content_policy: str) -> str:
    """A page up to its body, for light and dark paper and for narrow screens."""
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta http-equiv="Content-Security-Policy" content="{content_policy}">
<title>{escape(title)}</title>
<style>
{style}</style>
</head>"""


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
