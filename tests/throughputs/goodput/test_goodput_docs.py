"""The tables of docs/goodput.md are those of new fits, and its commands and examples work."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests import tables
from tests.reference import goodput_cases as cases
from tests.reference import goodput_tables, pollux_cases

PAGE = Path(__file__).resolve().parents[3] / "docs" / "goodput.md"


@pytest.mark.exhaustive
def test_the_tables_are_those_of_new_fits(public_data, tmp_path):
    found = cases.unpacked(public_data(goodput_tables.ARCHIVE), tmp_path)
    assert tables.printed("goodput-profiles") == goodput_tables.markdown_of_profiles(found)
    assert tables.printed("goodput-fits") == goodput_tables.markdown_of_fits(found)


@pytest.mark.deep
def test_the_table_of_searches_is_that_of_new_ones(reference_data):
    recorded = reference_data(pollux_cases.RECORDED)
    assert tables.printed("goodput-searches") == goodput_tables.markdown_of_searches(recorded)


def test_the_python_of_the_page(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for text in re.findall(r"```python\n(.*?)```", PAGE.read_text(), flags=re.DOTALL):
        exec(text, {})
    printed = re.findall(r"```text\n(.*?)```", PAGE.read_text(), flags=re.DOTALL)
    assert capsys.readouterr().out == "".join(printed)
