"""Reading a folder of throughputs by number of GPUs, one CSV file for each model, as ElasticFlow has them.

A file ``MODEL.csv`` has the columns ``global_batch_size,1,2,4,...``: in each row a batch size, and the steps/s of the
whole job on so many GPUs. A cell that is empty, ``nan`` or 0 was not profiled. A job type is a model with its batch
size, named ``MODEL (batch size B)``. The folder is of one accelerator type, by its name ``throughputs_A100``.

Source: D. Gu et al., "ElasticFlow: An Elastic Serverless Training Platform for Distributed Deep Learning", ASPLOS 2023
(public artifact pkusys/ElasticFlow).
"""

from __future__ import annotations

import re
from pathlib import Path

from throughputs.errors import InputError
from throughputs.files import read_frame
from throughputs.frames import NOT_NEGATIVE, Column, FrameReader
from throughputs.tables.figures import TableBuilder
from throughputs.tables.files import accelerator_of_folder
from throughputs.tables.table import ThroughputTable
from throughputs.traces.named import BATCH_SIZE

_BATCH_SIZE = "global_batch_size"
_RATE = Column("number", 0.0, NOT_NEGATIVE, "steps/s of at least 0; nothing, nan or 0 where they are not known")


def read_folder(path: Path, accelerator: str | None = None) -> ThroughputTable:
    """Throughput table from the CSV files of a folder.

    Parameters
    ----------
    path : the folder.
    accelerator : the type that its figures are of; that of the folder's name if omitted.

    Raises
    ------
    InputError
        No accelerator type, no CSV file, or a file, line and field that cannot be used.
    OSError
        A file cannot be opened.
    """
    accelerator = accelerator_of_folder(path) if accelerator is None else accelerator
    if not accelerator:
        expected = "a folder named throughputs_TYPE, or the accelerator type by name"
        raise InputError(path, found=path.name, expected=expected)
    files = sorted(file for file in path.iterdir() if file.suffix.lower() == ".csv")
    if not files:
        raise InputError(path, found="no CSV file", expected="files MODEL.csv")
    builder = TableBuilder()
    builder.accelerator(accelerator)
    for file in files:
        _read_model(file, accelerator, builder)
    return ThroughputTable(*builder.figures(), str(path))


def _read_model(path: Path, accelerator: str, builder: TableBuilder) -> None:
    frame, first_line = read_frame(path)
    first, *names = (str(name).strip() for name in frame.columns)
    if first != _BATCH_SIZE:
        raise InputError(path, line=first_line - 1, found=first, expected=f"{_BATCH_SIZE} as the first column")
    for name in names or [""]:
        if not re.fullmatch(r"[1-9]\d{0,14}", name, re.ASCII) or names.count(name) > 1:
            expected = "a number of GPUs in each further column, each once"
            raise InputError(path, line=first_line - 1, found=name, expected=expected)
    cells = frame.set_axis([first, *names], axis=1).replace("(?i)^ *nan *$", "", regex=True)
    reader = FrameReader(cells, str(path), first_line)
    table = reader.read({_BATCH_SIZE: Column("whole", None, *BATCH_SIZE)} | dict.fromkeys(names, _RATE))
    sizes, *rates = table.values()
    reader.require_once(sizes, sizes, _BATCH_SIZE, "each batch size once")
    for size, *row in zip(*(column.tolist() for column in (sizes, *rates)), strict=True):
        for count, rate in zip(names, row, strict=True):
            if rate > 0:
                builder.add_isolated(accelerator, (f"{path.stem} (batch size {size})", int(count)), rate)
