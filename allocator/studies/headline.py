"""The main table of a paper: runs on its public data, and beside them the figures that it prints.

Packages bring theirs by entry points in the group ``allocator.studies``, whose values are studies.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from allocator.results.result import SimulationResult
from allocator.studies.study import PRINTED, Options, Run, Simulated, Study, side_by_side
from allocator.studies.tables import Shown
from throughputs import InputError
from throughputs.entry_points import entries_of
from throughputs.errors import one_of

Key = tuple[Any, ...]
Made = tuple[Key, int, Callable[..., SimulationResult]]
"""What tells a line of the table, the number of the draw, and the run, which takes `progress`."""


def studies() -> tuple[str, ...]:
    """Names of the studies of installed packages."""
    return tuple(entries_of("allocator.studies"))


def study(name: str) -> Study:
    """The study of that name; raises `InputError` for an unknown one."""
    known = entries_of("allocator.studies")
    if name not in known:
        raise InputError("study", found=name, expected=one_of(name, known))
    found: Study = known[name].load()
    return found


def headline(
    title: str,
    by: tuple[str, ...],
    shown: Mapping[str, Shown],
    printed: Mapping[Key, tuple[float, ...]],
    runs: Callable[[Options], Iterable[Made]],
) -> Study:
    """The study of a paper's table.

    Parameters
    ----------
    by : columns that tell its lines apart, the last of them the policy.
    shown : its figures, of the summary of a run.
    printed : by line, in the units that are shown.
    runs : lists the runs.
    """
    columns: dict[str, Shown] = {}
    for name, each in shown.items():
        columns |= {name: each, f"{name}, printed": Shown(PRINTED + each.column, each.form, over="max")}

    def listed(options: Options) -> Iterator[Run]:
        for key, draw, make in runs(options):
            known = dict(zip((PRINTED + each.column for each in shown.values()), printed[key], strict=True))
            labels = dict(zip(by, key, strict=True)) | {"seed": draw}
            yield Simulated(labels, known, tuple(each.column for each in shown.values()), make)

    return Study(title, listed, by, columns, side_by_side)
