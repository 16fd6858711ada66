"""Files of every reader: line ends, digits, and what compressed ones unpack to."""

from __future__ import annotations

import gzip
from pathlib import Path

import pandas as pd
import pytest

from allocator.protocol.entities import Entities
from throughputs import (
    InputError,
    import_log,
    limits,
    read_configurations,
    read_prices,
    read_table,
    read_trace,
)
from throughputs.files import read_cells, read_frame, read_json

TEXTS = {
    "trace": (read_trace, "job_type,scale_factor,total_steps,arrival_time\nA3C,1,5,0\nA3C,2,7,1\n"),
    "log": (import_log, "submit_time,duration_s,gpus\n0,5,1\n1,7,2\n"),
    "sacct": (import_log, "JobID|Submit|Elapsed|State|AllocTRES\n7|2024-03-01T08:00:00|01:00:00|FAILED|gres/gpu=1\n"),
    "table": (read_table, "job_type,scale_factor,accelerator,throughput\nA3C,1,v100,7.5\n"),
    "configurations": (read_configurations, "job,pool,gpus,rate\nlm,v100,1,64.5\n"),
    "prices": (read_prices, "accelerator,time_seconds,price\nv100,0,1.5\n"),
    "entities": (Entities.parse, "name,weight\nads,2\nweb,1\n"),
    "cells": (read_cells, "a,b\n1,2\n"),
}
DIGITS = {
    "trace": ("A3C,2,7", "A3C,2,٧", "total_steps", 3),
    "table": ("7.5", "７.５", "throughput", 2),
    "configurations": ("64.5", "٦٤.٥", "rate", 2),
    "prices": ("1.5", "١.٥", "price", 2),
    "entities": ("web,1", "web,١", "weight", 3),
}


def told(found):
    """What was read, in a form that can be compared."""
    if hasattr(found, "trace"):
        found = found.trace
    frame = found.to_frame() if hasattr(found, "to_frame") else found
    return str(frame.to_csv() if isinstance(frame, pd.DataFrame) else repr(getattr(found, "rates", frame)))


@pytest.mark.parametrize("name", TEXTS)
@pytest.mark.parametrize("end", ["\r", "\r\n"])
def test_lines_may_end_with_carriage_returns(tmp_path: Path, name, end) -> None:
    read, text = TEXTS[name]
    path = tmp_path / "some.csv"
    path.write_bytes(text.encode())
    whole = told(read(path))
    for again in (text.replace("\n", end), text.replace("\n", end).removesuffix(end), text.replace("\n", end) + "\n"):
        path.write_bytes(again.encode())
        assert told(read(path)) == whole


def test_a_header_with_carriage_returns_in_it_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_bytes(b"submit_time,duration_s\r,gpus\n0,5,1\n1,5,1\n")
    with pytest.raises(InputError, match=r"log.csv:1: "):
        import_log(path)


@pytest.mark.parametrize("name", DIGITS)
def test_digits_of_other_scripts_are_refused(tmp_path: Path, name) -> None:
    old, new, field, line = DIGITS[name]
    read, text = TEXTS[name]
    path = tmp_path / "some.csv"
    path.write_text(text.replace(old, new))
    with pytest.raises(InputError, match=f"some.csv:{line}: field '{field}'"):
        read(path)


@pytest.fixture
def bound(monkeypatch) -> int:
    monkeypatch.setattr(limits, "LARGEST_UNPACKED", 100_000)
    return limits.LARGEST_UNPACKED


@pytest.mark.parametrize("read", [read_frame, read_cells, read_json, read_trace, import_log])
def test_what_unpacks_to_more_than_the_bound_is_refused(tmp_path: Path, bound, read) -> None:
    path = tmp_path / "some.csv.gz"
    path.write_bytes(gzip.compress(b"submit_time,duration_s,gpus\n" + b"0,1,1\n" * bound))
    assert path.stat().st_size < bound / 10
    with pytest.raises(InputError, match=r"some.csv.gz: found 'more than 100,000 bytes unpacked', expected at most"):
        read(path)
    path.write_bytes(gzip.compress(b" " * (bound - 2) + b"[]"))
    assert read_json(path) == []


def test_parquet_is_bounded_by_its_cells(tmp_path: Path, bound) -> None:
    pd.DataFrame({"job_id": [0] * 20_000}).to_parquet(tmp_path / "some.parquet")
    assert (tmp_path / "some.parquet").stat().st_size < bound / 10
    with pytest.raises(InputError, match="more than 100,000 bytes unpacked"):
        read_frame(tmp_path / "some.parquet")
    pd.DataFrame({"job_id": [0] * 2_000}).to_parquet(tmp_path / "some.parquet")
    assert len(read_frame(tmp_path / "some.parquet")[0]) == 2_000


def test_the_bound_has_room_for_a_line_of_each_job() -> None:
    assert limits.LARGEST_UNPACKED >= 200 * limits.MOST_JOBS
