"""Reading a folder of throughputs by number of GPUs, one CSV file for each model, as ElasticFlow has them.

A file ``MODEL.csv`` has the columns ``global_batch_size,1,2,4,...``: in each row a batch size, and the steps/s of the
whole job on so many GPUs. A cell that is empty, ``nan`` or 0 was not profiled. A job type is a model with its batch
size, named ``MODEL (batch size B)``. The folder is of one accelerator type, by its name ``throughputs_A100``.

Source: D. Gu et al., "ElasticFlow: An Elastic Serverless Training Platform for Distributed Deep Learning", ASPLOS 2023
(public artifact pkusys/ElasticFlow).
"""

from __future__ import annotations

import sys
from pathlib import Path

from throughputs.errors import InputError
from throughputs.files import read_frame
from throughputs.frames import parsed_number
from throughputs.limits import LARGEST_WHOLE_NUMBER
from throughputs.tables.figures import TableBuilder
from throughputs.tables.files import accelerator_of_folder
from throughputs.tables.table import ThroughputTable

_BATCH_SIZE = "global_batch_size"
_NOT_PROFILED = ("", "nan")


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
    gpus = [_whole(path, first_line - 1, None, name, "a number of GPUs in each further column") for name in names]
    if not gpus or len(set(gpus)) < len(gpus):
        expected = f"{_BATCH_SIZE} and numbers of GPUs, each once"
        raise InputError(path, line=first_line - 1, found=names, expected=expected)
    for line, row in enumerate(frame.fillna("").to_numpy().tolist(), start=first_line):
        size, *cells = (cell.strip() for cell in row)
        batch_size = _whole(path, line, _BATCH_SIZE, size, "a batch size of at least 1")
        job_type = f"{path.stem} (batch size {batch_size})"
        for count, cell in zip(gpus, cells, strict=True):
            rate = _rate(path, line, str(count), cell)
            problem = builder.add_isolated(accelerator, (job_type, count), rate) if rate > 0 else None
            if problem is not None:
                raise InputError(path, line=line, field=_BATCH_SIZE, found=size, expected="each batch size once")


def _whole(path: Path, line: int, field: str | None, text: str, expected: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= len(str(LARGEST_WHOLE_NUMBER)) and int(text) >= 1):
        raise InputError(path, line=line, field=field, found=text, expected=expected)
    return int(text)


def _rate(path: Path, line: int, field: str, text: str) -> float:
    """Steps/s; 0 where they were not profiled."""
    if text.lower() in _NOT_PROFILED:
        return 0.0
    try:
        rate = parsed_number(text)
    except ValueError:
        rate = -1.0
    if not 0 <= rate <= sys.float_info.max:
        expected = "steps/s of at least 0; nothing, nan or 0 where they are not known"
        raise InputError(path, line=line, field=field, found=text, expected=expected)
    return rate
