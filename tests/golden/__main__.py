"""`make golden`, or `python -m tests.golden [SUITE ...]`: says what is not as it was, and keeps it as it is now."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from importlib import import_module
from typing import Any

from tests.golden.kept import FOLDER, Case, Taken, differences, read, write

SUITES = ("policies", "commands", "service")
"""Modules of this folder with a function `cases`; each keeps its goldens in files whose names begin with its own."""


def _taken(case: Case) -> Taken:
    return case.take()


def renew(suite: str, cases: Sequence[Case]) -> None:
    """Take all cases of a suite on all cores, print what changed, and keep them."""
    goldens: dict[str, dict[str, Any]] = defaultdict(dict)
    changed = new = 0
    with ProcessPoolExecutor() as pool:
        for done, (case, taken) in enumerate(zip(cases, pool.map(_taken, cases, chunksize=4), strict=True), 1):
            before = read(case.file).get(case.name)
            new += before is None
            if before is not None and (found := differences(before, taken)):
                changed += 1
                print("\n  ".join([f"\r{case.title}", *found, f"$ {case.line}"]))
            goldens[case.file][case.name] = taken.kept
            print(f"\r{suite}: {done} of {len(cases)}", end="", flush=True, file=sys.stderr)
    kept = {path.relative_to(FOLDER).as_posix().removesuffix(".json.xz") for path in FOLDER.rglob("*.json.xz")}
    of_suite = sorted(file for file in kept if file.split("/")[0] == suite)
    gone = sum(name not in goldens.get(file, {}) for file in of_suite for name in read(file))
    for file in {*goldens, *of_suite}:
        write(file, goldens.get(file, {}))
    print(f"\r{suite}: {changed} of {len(cases)} changed, {new} new, {gone} gone")


if __name__ == "__main__":
    for name in sys.argv[1:] or SUITES:
        renew(name, import_module(f"tests.golden.{name}").cases())
