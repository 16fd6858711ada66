"""The parts of the site: links, navigation, gallery, docstrings, pages of policies, and that nothing is fetched."""

from __future__ import annotations

import html
import re
from xml.etree import ElementTree

import pytest

from allocator.registry import list_policies
from docs.site import checks, formulas, gallery, links, policy_pages, policy_runs
from docs.site.navigation import navigation
from tests.site.pages import ROOT, pages

OWN = [entry for entry in list_policies() if entry.factory.__module__.startswith("allocator.policies.")]


def test_links_lead_to_pages_or_to_files_shown_as_pages():
    text = "[a](docs/start.md#x) [b](allocator/api.py) [c](THIRD_PARTY.md) [d](https://x.org) [e](#here) [f](gone.md)"
    assert links.rewritten(text, "README.md") == (
        "[a](start.md#x) [b](source/allocator/api.py.md) [c](source/THIRD_PARTY.md) [d](https://x.org) [e](#here) "
        "[f](gone.md)"
    )
    assert links.rewritten("[up](../THIRD_PARTY.md)", "docs/fidelity.md") == "[up](source/THIRD_PARTY.md)"
    assert links.rewritten("[up](../docs/deadlines.md)", "notebooks/a.ipynb") == "[up](../deadlines.md)"
    assert list(links.link_targets(text, "README.md")) == ["allocator/api.py", "THIRD_PARTY.md"]
    code = "```python\nx = a[0](docs/start.md)\n```\n"
    assert links.rewritten(f"{code}[a](docs/start.md)\n", "README.md") == f"{code}[a](start.md)\n"
    assert "(leases/numpy_trainer.py.md)" in links.source_page("docs/examples/leases")


@pytest.mark.parametrize("page", pages())
def test_every_link_to_a_file_has_its_file(page):
    """As GitHub shows the page; addresses of pages that the build makes are another matter."""
    made = ("policies/", "gallery/", "reference/")
    for target in re.findall(
        r"\]\((?!\w+:|#)([^)#\s]+)", re.sub(r"```.*?```", "", (ROOT / page).read_text(), flags=re.S)
    ):
        if not target.startswith(made):
            assert ((ROOT / page).parent / target).exists(), f"{page}: {target}"


def test_navigation_leaves_out_what_is_absent_and_shows_what_nobody_named():
    nav = [{"Start": ["index.md", {"Gone": "gone.md"}]}, {"All": ["made/*"]}, {"Never": ["never.md"]}]
    there = ["index.md", "made/b.md", "made/index.md", "new.md", "hidden/c.md"]
    assert navigation(nav, there, hidden=["hidden/"]) == [
        {"Start": ["index.md"]},
        {"All": ["made/index.md", "made/b.md"]},
        {"More": ["new.md"]},
    ]


def test_a_notebook_becomes_a_page_with_its_findings_as_caption():
    notebook = {
        "cells": [
            {"cell_type": "markdown", "source": ["# A study\n", "\n", "What is asked."]},
            {"cell_type": "code", "source": ["draw()"], "outputs": [{"data": {"image/png": "aGk="}}]},
            {"cell_type": "markdown", "source": ["## Findings\n", "\n", "It is so.\nStill.\n", "\n", "More."]},
        ]
    }
    text, pictures = gallery.page_of(notebook, "study")
    assert gallery.caption_of(notebook) == "It is so. Still."
    assert pictures == {"study-1.png": b"hi"}
    assert "![A study: picture 1](study-1.png)" in text
    assert '??? code "Code"' in text
    del notebook["cells"][2]
    assert gallery.caption_of(notebook) == "What is asked."


def test_what_a_page_would_fetch_is_found(tmp_path):
    (tmp_path / "a.html").write_text(
        '<link rel="canonical" href="https://x.org"><a href="https://x.org">x</a><script src="local.js"></script>'
    )
    assert checks.fetched_from_elsewhere(tmp_path) == []
    (tmp_path / "b.html").write_text(
        '<script src="https://cdn.org/a.js"></script><link rel="stylesheet" href="//fonts.org/f.css">'
        '<img src="http://x.org/p.png"><style>@import "https://x.org/s.css"</style><pre class="mermaid">a</pre>'
    )
    (tmp_path / "c.css").write_text("@font-face { src: url(https://fonts.org/f.woff2) }")
    found = checks.fetched_from_elsewhere(tmp_path)
    assert len([line for line in found if line.startswith("b.html")]) == 5
    assert found[-1] == "c.css: https://fonts.org/f.woff2"


def test_the_page_of_a_policy_has_its_parts():
    (entry,) = (entry for entry in OWN if entry.name == "fifo")
    page = policy_pages.page_of(entry, [entry, *(other for other in OWN if other.name == "srtf")])
    for part in (
        "# fifo",
        f'alttext="{entry.program}"',
        entry.paper,
        "| `seed` | `0` |",
        "| sharing incentive | ",
        "<svg",
    ):
        assert part in page


_SPELT = {"∑": "sum", "∏": "prod", "∫": "int", "ρ": "rho"}


def _read(program: str) -> ElementTree.Element:
    return ElementTree.fromstring(formulas.typeset(program))


@pytest.mark.parametrize("entry", OWN, ids=lambda entry: entry.name)
def test_a_typeset_program_says_what_the_plain_one_does(entry):
    text, _ = policy_pages._described(entry.factory)
    for program in {entry.program, *map(html.unescape, re.findall(r'alttext="(.*?)"', text))}:
        shown = "".join(_SPELT.get(sign, sign) for sign in "".join(_read(program).itertext()))
        assert re.sub(r"[^A-Za-z0-9]", "", shown) == re.sub(r"[^A-Za-z0-9]", "", program)
        assert not {mark for each in _read(program).iter("mi") for mark in each.text or ""} & set("_^<>* ")


def test_programs_are_typeset_by_their_notation():
    assert formulas.formula("sum_j T_ij") == (
        "<munder><mo>∑</mo><mi>j</mi></munder><msub><mi>T</mi><mrow><mi>i</mi><mi>j</mi></mrow></msub>"
    )
    assert formulas.formula("each row scaled to sum to 1").startswith("<mtext>each row scaled to sum to")
    assert formulas.formula("x*_-i") == "<msubsup><mi>x</mi><mrow><mo>−</mo><mi>i</mi></mrow><mo>*</mo></msubsup>"
    assert "<mtext>fifo_perf\N{NO-BREAK SPACE}</mtext><mi>x</mi>" in formulas.formula("fifo_perf x")
    table = _read("max_x  sum_i u_i      x in X\n       u_i >= 0       for all i\n           + more")
    rows = [[int(cell.get("columnspan", 1)) for cell in row] for row in table.iter("mtr")]
    assert rows == [[1, 1, 1], [1, 1, 1], [1, 1]]
    assert [cell.find("mspace") is not None for cell in table.iter("mtd")][-1]
    page = formulas.in_text("Text:\n\n    u_i <= 1\n\n```python\ndef f():\n\n    return 1\n```\n")
    assert page.count("<math") == 1
    assert "    return 1" in page


def test_every_policy_says_when_to_use_it_and_what_it_must_know():
    page = (ROOT / "docs/which_policy.md").read_text()
    listed = dict(re.findall(r"^\| `(\w+)` \| .+? \| (\w+) \|$", page, re.M))
    assert listed == {entry.name: entry.lengths for entry in OWN}


@pytest.mark.exhaustive
def test_properties_that_the_page_on_theory_counts():
    page = (ROOT / "docs" / "theory.md").read_text()
    claims = re.findall(r"\[`(\w+)`\]\([^)]*\) keeps ([\w -]+) in (\d) of 6", page)
    assert len(claims) == 4
    for name, property_name, count in claims:
        measured = next(each for each in policy_runs.audited(name) if each.name.startswith(property_name))
        assert measured.held == int(count), (name, property_name)
