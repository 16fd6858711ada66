"""Files that cannot be written: the message names the file, nothing half written stays, devices stay devices."""

from __future__ import annotations

import errno
import os
import stat
import sys
from pathlib import Path

import pandas as pd
import pytest

from allocator import cli
from throughputs.files import write_frame, write_text

NO_SPACE = os.strerror(errno.ENOSPC)


def full(*_args, **_kwargs):
    raise OSError(errno.ENOSPC, NO_SPACE)


@pytest.mark.parametrize("name", ["out.txt", "out.csv.gz", "out.parquet"])
def test_a_full_disk_is_told_with_the_file(name, tmp_path, monkeypatch):
    path = tmp_path / name
    path.write_text("as it was")
    monkeypatch.setattr(Path, "write_bytes", full)
    monkeypatch.setattr(pd.DataFrame, "to_parquet", full)
    with pytest.raises(OSError, match="No space") as caught:
        write_frame(path, pd.DataFrame({"a": [1]})) if name != "out.txt" else write_text(path, "new")
    assert (caught.value.errno, caught.value.filename) == (errno.ENOSPC, str(path))
    assert [p.name for p in tmp_path.iterdir()] == [name]
    assert path.read_text() == "as it was"


def test_the_command_line_says_it_in_one_line(tmp_path, monkeypatch, capsys):
    out = tmp_path / "jobs.csv"
    monkeypatch.setattr(Path, "write_bytes", full)
    monkeypatch.setattr(sys, "argv", ["allocator", "trace", "generate", "--jobs", "3", "--out", str(out)])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 2
    assert capsys.readouterr().err == f"error: {out}: {NO_SPACE}\n"


def test_a_pipe_is_written_to_and_not_replaced(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        write_text(pipe, "through")
        assert os.read(reader, 100) == b"through"
    finally:
        os.close(reader)
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    assert [p.name for p in tmp_path.iterdir()] == ["pipe"]
