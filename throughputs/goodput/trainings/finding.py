"""Trainings by the name of a file or folder."""

from __future__ import annotations

import os
from pathlib import Path

from throughputs.entry_points import load
from throughputs.goodput.profiles import default_profiles, read_profiles
from throughputs.goodput.trainings.profiled import trainings_of
from throughputs.goodput.trainings.training import Trainings

EMBEDDED = "goodput"
"""The name of the embedded profiles."""


def find_trainings(source: str | os.PathLike[str]) -> Trainings | None:
    """The trainings that are meant, None where it is something else.

    A folder with a folder of measured tables for each model, profiles in a TOML file, or the embedded profiles, which
    are called "goodput" where there is no such file.

    Raises
    ------
    InputError
        Tables or profiles that cannot be used.
    OSError
        A file cannot be opened.
    """
    path = Path(source)
    if path.is_dir():
        if not any(path.glob("*/validation-*.csv")):
            return None
        measured: Trainings = load("goodput", "trainings")(path)
        return measured
    if path.suffix.lower() == ".toml":
        return trainings_of(read_profiles(path))
    return trainings_of(default_profiles()) if str(path) == EMBEDDED and not path.exists() else None
