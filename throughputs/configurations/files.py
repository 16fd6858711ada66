"""Configurations in CSV and Parquet files."""

from __future__ import annotations

import os

from throughputs.configurations.configurations import Configurations
from throughputs.files import read_rows, write_rows


def read_configurations(path: str | os.PathLike[str]) -> Configurations:
    """Configurations from a CSV (``.csv``, ``.csv.gz``) or Parquet file, one row per column.

    ================  ============================================================================================
    column            meaning
    ================  ============================================================================================
    ``job``           label of the job; text in CSV files
    ``pool``          text: accelerator type, or a partition of one
    ``gpus``          whole number, at least 1
    ``rate``          number, at least 0: throughput of the job, steps/s
    ``batch_size``    whole number or empty, may be left out: batch size, where a job may choose
    ``partner``       label or empty, may be left out: the job on the same GPUs. A pair stands once
    ``partner_rate``  number or empty, may be left out: its throughput, steps/s
    ================  ============================================================================================

    Raises
    ------
    InputError
        Names the file, the line and the field that cannot be used.
    OSError
        The file cannot be opened.
    """
    return read_rows(path, Configurations.from_frame)


def write_configurations(configurations: Configurations, path: str | os.PathLike[str]) -> None:
    """Write configurations as CSV or Parquet; the file is replaced in one step.

    Raises
    ------
    InputError
        The extension is not known.
    """
    write_rows(path, configurations)
