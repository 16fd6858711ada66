"""Scenarios as files."""

from __future__ import annotations

import json
import re
from pathlib import Path

from allocator.scenarios.page import render_page
from allocator.scenarios.result import WhatIf
from throughputs.files import write_frame, write_text

PAGE = "whatif.html"

_NOT_IN_FOLDERS = re.compile(r"[^A-Za-z0-9_.,=-]+")


def write_scenarios(result: WhatIf, folder: Path) -> Path:
    """Write rows.csv, whatif.json, whatif.html and a folder with jobs.csv for each row; returns the page.

    With more GPUs there is next_gpus.csv too. Each file is replaced in one step, the page last.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for place, row in enumerate(result.side_by_side):
        if row.jobs is not None:
            own = folder / folder_of(place, row.label)
            own.mkdir(exist_ok=True)
            write_frame(own / "jobs.csv", row.jobs)
    write_frame(folder / "rows.csv", result.table)
    if result.more_gpus:
        write_frame(folder / "next_gpus.csv", result.next_gpus)
    else:
        (folder / "next_gpus.csv").unlink(missing_ok=True)
    write_text(folder / "whatif.json", json.dumps(result.as_dict(), indent=2, allow_nan=False) + "\n")
    write_text(folder / PAGE, render_page(result))
    return folder / PAGE


def folder_of(place: int, label: str) -> str:
    """Name of the folder of a row: its number, and its label as far as it can stand in a name."""
    return f"{place + 1}-{_NOT_IN_FOLDERS.sub('-', label)}"[:100]
