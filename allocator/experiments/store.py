"""The folder of a sweep.

    sweep.json         what the sweep is: its points and the cells that describe them
    points/KEY.json    record of one finished run; KEY is the point's identity
    jobs/KEY.parquet   its measured jobs, if they are kept
    logs/*.log         one log for each run
    results.parquet    one row per run, made of the above

Every file but the logs is replaced in one step.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from allocator.checkpoint.checkpoint import package_version
from allocator.conversion import convert, is_number
from allocator.experiments.definition import Sweep
from allocator.experiments.execute import Outcome
from allocator.experiments.run import FORMAT, LOADS, Kind, Run
from allocator.results.summary import NUMBERS, OF_COMPLETED
from throughputs import InputError
from throughputs.files import read_frame, read_json, write_frame, write_json, write_text
from throughputs.limits import LARGEST_WHOLE_NUMBER

if TYPE_CHECKING:
    import pandas as pd

Record = dict[str, Any]

FIGURES = tuple(dict.fromkeys(("jobs", *NUMBERS, "estimation_error", "measured_pairs", "fair_plans")))
"""Columns that a run has under the same names: the numbers of its summary, and what came of estimates and of plans."""

FIGURES_OF_DECISIONS = (
    "jobs", "unserved_jobs", "decision_seconds", "measured_decisions", "decision_status", "decision_solver",
    "objective", "bound", "gap", "least_normalised_throughput", "total_normalised_throughput", "estimation_error",
)  # fmt: skip
"""The same for a decision."""

TEXT = (
    "status_detail", "case", "gpus_per_server", "throughputs", "prices", "entities", "entities_by", "decision_solver",
)  # fmt: skip
"""Columns of text that may be empty throughout."""

BY_WEIGHT = ("jobs", "average_jct", "p99_jct", "average_rho")
"""Figures of each priority weight, in columns such as average_jct_weight_5."""

BY_ENTITY = ("jobs", "average_jct", "average_rho", "gpu_share", "throughput_share")
"""Figures of each entity, in columns such as throughput_share_entity_vision."""


OF_RUNS = ("cpu_seconds", "run_seconds", "started_at", "host", "version", "python")
"""What a record says of the run itself."""

_IDENTITY = re.compile(r"[0-9a-f]{16}")


class Store:
    """Reads and writes the folder of a sweep."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)
        self.results = self.folder / "results.parquet"

    def begin(self, sweep: Sweep, points: Sequence[Run]) -> None:
        """Make the folder and write down what the sweep is."""
        for name in ("points", "logs", *(["jobs"] if sweep.keep_jobs else [])):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        described = [
            {"point": point.key, "series": point.series, "load": point.load, "seed": point.seed,
             "cells": point.columns(sweep.named)}
            for point in points
        ]  # fmt: skip
        contents = {
            "format": FORMAT,
            "name": sweep.name,
            "kind": sweep.kind,
            "description": sweep.description,
            "skip_saturated": sweep.skip_saturated,
            "version": package_version(),
            "points": described,
        }
        write_json(self.folder / "sweep.json", contents, indent=1)

    def save(self, outcome: Outcome) -> None:
        """Keep what a run left; the record comes last, so that where it stands, everything does."""
        key = outcome.record["point"]
        if outcome.jobs is not None:
            write_frame(self.jobs_path(key), outcome.jobs)
        write_text(self.folder / "points" / f"{key}.json", json.dumps(outcome.record, indent=1) + "\n")

    def records(self, keys: Iterable[str], *, with_jobs: bool = False) -> dict[str, Record]:
        """Records of those runs that have finished, by point; with `with_jobs` only where the jobs are there too."""
        found = {}
        for key in keys:
            record = self._record(key)
            if record is None or (with_jobs and record["status"] != "failed" and not self.jobs_path(key).exists()):
                continue
            found[key] = record
        return found

    def jobs_path(self, key: str) -> Path:
        """Where the jobs of a run are kept."""
        return self.folder / "jobs" / f"{key}.parquet"

    def log_path(self, run: Run) -> Path:
        """Where a run writes its log."""
        return self.folder / "logs" / run.log_name

    def table(self, records: Mapping[str, Record] | None = None) -> pd.DataFrame:
        """One row per run of the sweep that has finished or need not run; columns as in docs/sweeps.md."""
        import pandas as pd

        contents = self.contents()
        points = contents["points"]
        if records is None:
            records = self.records(point["point"] for point in points)
        places = [(point["point"], point["series"], (point["load"], point["seed"])) for point in points]
        first = first_saturated(places, records) if contents["skip_saturated"] else {}
        rows = []
        for point, (key, series, place) in zip(points, places, strict=True):
            if series in first and place > first[series]:
                rows.append(_skipped(point, contents["kind"], first[series]))
            elif key in records:
                rows.append(_row(point, contents["kind"], records[key]))
        frame = pd.DataFrame(rows)
        return frame.apply(_uniform) if len(frame) else frame

    def write_results(self, records: Mapping[str, Record] | None = None) -> pd.DataFrame:
        """Bring results.parquet up to date; returns the table."""
        frame = self.table(records)
        write_frame(self.results, frame)
        return frame

    def contents(self) -> dict[str, Any]:
        """What sweep.json holds.

        Raises
        ------
        InputError
            The folder is not that of a sweep, or of another format.
        """
        path = self.folder / "sweep.json"
        try:
            contents = read_json(path)
        except FileNotFoundError:
            raise InputError(self.folder, expected="the folder of a sweep, with a file sweep.json") from None
        if not isinstance(contents, dict) or contents.get("format") != FORMAT:
            found = contents.get("format") if isinstance(contents, dict) else contents
            raise InputError(path, field="format", found=found, expected=str(FORMAT))
        _check(contents, _CONTENTS, path)
        for i, point in enumerate(contents["points"]):
            _check(point, _POINT, path, f"points[{i}].")
            if not _IDENTITY.fullmatch(point["point"]):
                raise InputError(path, field=f"points[{i}].point", found=point["point"], expected="an identity")
        return contents

    def _record(self, key: str) -> Record | None:
        path = self.folder / "points" / f"{key}.json"
        try:
            record: Record = convert(read_json(path), Mapping, source=path, field="record")
            _check(record, _RECORD, path)
            for rows in ("by_priority", "by_entity"):
                convert(record["figures"].get(rows, ()), _Rows, source=path, field=rows)
        except (FileNotFoundError, InputError):
            return None  # a damaged file counts as none: the run is made again
        return record if record["point"] == key else None


Place = tuple[float, int]
"""Load and seed."""


def first_saturated(
    places: Iterable[tuple[str, str, Place]], records: Mapping[str, Mapping[str, Any]]
) -> dict[str, Place]:
    """By series, the first place whose own run saturated.

    A series is the runs that differ in load and seed only. They stand in the order of load, and of seed for equal
    loads. The first one that saturates marks all behind it: a larger load, or the same load with another seed, is taken
    to saturate too. The mark depends on the results alone, not on the order in which the runs happened to be made.

    Parameters
    ----------
    places : (run, series, place) of every run of the sweep.
    records : records of the runs so far, by run.
    """
    first: dict[str, Place] = {}
    for key, series, place in places:
        if records.get(key, {}).get("status") == "saturated" and (series not in first or place < first[series]):
            first[series] = place
    return first


def load(out: str | os.PathLike[str]) -> pd.DataFrame:
    """The results of a sweep as far as it has come: one row per run, columns as in docs/sweeps.md.

    Raises
    ------
    InputError
        `out` is not the folder of a sweep.
    """
    return Store(out).table()


def load_jobs(out: str | os.PathLike[str]) -> pd.DataFrame:
    """The measured jobs of all completed runs of a sweep that keeps them, with the run's `point` as first column.

    Raises
    ------
    InputError
        `out` is not the folder of a sweep, or it keeps no jobs.
    """
    import pandas as pd

    store = Store(out)
    table = store.table()
    parts = []
    for key in table["point"][table["status"] == "completed"] if len(table) else ():
        path = store.jobs_path(key)
        if path.exists():
            jobs, _ = read_frame(path)
            jobs.insert(0, "point", key)
            parts.append(jobs)
    if not parts:
        raise InputError(store.folder, found="no tables of jobs", expected="a sweep with keep_jobs")
    return pd.concat(parts, ignore_index=True)


_Rows = tuple[Mapping[str, Any], ...]

# What tables read of files that may have been damaged.
_CONTENTS = {"name": str, "kind": Kind, "skip_saturated": bool, "points": _Rows}
_POINT = {"point": str, "series": str, "load": float, "seed": int, "cells": Mapping[str, Any]}
_RECORD = dict.fromkeys(("point", "status", "status_detail"), str) | {"figures": Mapping[str, Any]}


def _check(value: Record, kinds: Mapping[str, Any], path: Path, place: str = "") -> None:
    """Raise `InputError` unless what a file holds has values of these types."""
    for name, kind in kinds.items():
        convert(value.get(name), kind, source=path, field=place + name)


def _row(point: Mapping[str, Any], kind: str, record: Record) -> dict[str, Any]:
    figures = record["figures"]
    saturated = record["status"] == "saturated"
    names = FIGURES_OF_DECISIONS if kind == "decision" else FIGURES
    row = {
        "point": point["point"],
        "status": record["status"],
        "status_detail": record["status_detail"],
        "saturated_load": point["load"] if saturated else None,
        "by_rule": False,
        **point["cells"],
        **{name: None if saturated and OF_COMPLETED.search(name) else figures.get(name) for name in names},
    }
    for weight in figures.get("by_priority", ()) if not saturated else ():
        if is_number(value := weight.get("priority_weight")):
            row |= {f"{name}_weight_{value:g}": weight.get(name) for name in BY_WEIGHT}
    for entity in figures.get("by_entity", ()) if not saturated else ():
        if entity.get("entity"):
            row |= {f"{name}_entity_{entity['entity']}": entity[name] for name in BY_ENTITY if name in entity}
    return row | {name: record.get(name) for name in OF_RUNS}


def _skipped(point: Mapping[str, Any], kind: Kind, first: tuple[float, int]) -> dict[str, Any]:
    """The row of a point that is taken to saturate because an earlier one of its series did."""
    return {
        "point": point["point"],
        "status": "saturated",
        "status_detail": f"not run: saturated at {LOADS[kind][1].format(first[0])} with seed {first[1]}",
        "saturated_load": first[0],
        "by_rule": True,
        **point["cells"],
    }


def _uniform(column: pd.Series[Any]) -> pd.Series[Any]:
    """The column with one type, as Parquet wants it: numbers, flags or text."""
    import pandas as pd

    there = column[column.notna()]
    kinds = set(map(type, there))
    if column.name not in TEXT and kinds == {bool}:
        return column if len(there) == len(column) else column.astype("boolean")
    if column.name not in TEXT and kinds <= {int, float} and all(map(is_number, there)):
        whole = kinds == {int} and len(there) == len(column) and max(map(abs, there)) <= LARGEST_WHOLE_NUMBER
        return column.astype("int64" if whole else "float64")
    pairs = zip(column, column.notna(), strict=True)
    texts = [value if isinstance(value, str) else json.dumps(value) if known else None for value, known in pairs]
    return pd.Series(texts, index=column.index, dtype="object")
