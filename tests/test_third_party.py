"""The notices of others travel with the package, and name every file that needs them."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("allocator", "formulations", "throughputs")
NOTICES = (ROOT / "THIRD_PARTY.md").read_text()


def test_each_notice_is_whole():
    """Copyright line, permission and disclaimer, as the licence asks."""
    plain = re.sub(r"\s+", " ", NOTICES.replace("\n>", "\n"))
    holders = "2020 Stanford Future Data Systems, 2022 Data and Systems Hub at UW-Madison, 2021 S-Lab System Group"
    for holder in holders.split(", "):
        start = plain.index(f"Copyright (c) {holder}")
        notice = plain[start : plain.index("## ", start)]
        for part in (
            "Permission is hereby granted, free of charge",
            "The above copyright notice and this permission notice shall be included in all copies",
            'THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND',
            "OUT OF OR IN CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE SOFTWARE.",
        ):
            assert part in notice, holder
    named = re.findall(r"`((?:allocator|throughputs|formulations|docs|tests)/[^`]*)`", NOTICES)
    assert len(named) >= 12
    assert [name for name in named if not (ROOT / name).exists()] == []
    assert "THIRD_PARTY.md" in (ROOT / "docs" / "data.md").read_text()


def test_every_file_with_figures_of_others_is_named():
    """A file of the packages that gives a public artifact and its licence as its source."""
    files = [
        path for package in PACKAGES for path in (ROOT / package).rglob("*") if path.suffix in (".py", ".csv", ".toml")
    ]
    named = re.compile(r"\((MIT|Apache-2\.0)\)")
    sources = [path for path in files if named.search(path.read_text()) and path.parent.name != "sets"]
    assert len(sources) >= 5
    for path in sources:
        assert path.name in NOTICES, f"{path.relative_to(ROOT)} is not in THIRD_PARTY.md"
