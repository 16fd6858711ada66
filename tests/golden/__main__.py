"""`make golden`, or `python -m tests.golden [SUITE[/FILE] ...]`: says what is not as it was, and keeps what is."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from importlib import import_module
from itertools import groupby

from tests.golden.kept import FOLDER, Case, Taken, differences, read, write

SUITES = ("policies", "commands", "service")
"""Modules of this folder with a function `cases`; each keeps its goldens in files whose names begin with its own."""


def _taken(case: Case) -> Taken:
    return case.take()


def renew(suite: str, cases: Sequence[Case]) -> None:
    """Take all cases of a suite, or of one of its files, on all cores; print what changed; keep them file by file."""
    counts: Counter[str] = Counter()
    with ProcessPoolExecutor() as pool:
        taken = zip(cases, pool.map(_taken, cases, chunksize=2), strict=True)
        for file, group in groupby(taken, lambda pair: pair[0].file):
            before, goldens = read(file), {}
            for case, now in group:
                goldens[case.name] = now.kept
                counts["new" if case.name not in before else "taken"] += 1
                found = differences(before[case.name], now) if case.name in before else []
                if found:
                    counts["changed"] += 1
                    print("\n  ".join([f"\r{case.title}", *found, f"$ {case.line}"]))
                print(f"\r{suite}: {counts.total() - counts['changed']} of {len(cases)}", end="", file=sys.stderr)
            counts["gone"] += len({*before} - {*goldens})
            write(file, goldens)
    print(f"\r{suite}: {counts['changed']} of {len(cases)} changed, {counts['new']} new, {counts['gone']} gone")
    kept = {path.relative_to(FOLDER).as_posix().removesuffix(".json.xz") for path in FOLDER.rglob("*.json.xz")}
    for file in kept - {case.file for case in cases}:
        if suite == file.split("/")[0]:
            print(f"{file}: gone")
            write(file, {})


if __name__ == "__main__":
    for name in sys.argv[1:] or SUITES:
        cases = import_module(f"tests.golden.{name.partition('/')[0]}").cases()
        wanted = [case for case in cases if name in (case.file, case.file.split("/")[0])]
        renew(name, sorted(wanted, key=lambda case: case.file))
