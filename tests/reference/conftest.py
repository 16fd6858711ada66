"""What several tests of this folder read, once."""

from __future__ import annotations

import gzip
import json
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.reference.gavel_replays import RUNS, recorded_runs
from tests.reference.sia_headline import ARCHIVES


@pytest.fixture(scope="session")
def decisions(reference_data: Callable[[str], Path]) -> dict[str, dict[str, Any]]:
    """Recorded decisions of the original of Gavel by the name of the instance."""
    with gzip.open(reference_data("gavel/policy_reference.json.gz")) as file:
        return {record["instance"]["name"]: record for record in json.load(file)}


@pytest.fixture(scope="session")
def gavel_runs(reference_data: Callable[[str], Path]) -> dict[tuple[str, str], dict[str, Any]]:
    """Recorded runs of Gavel by trace and policy."""
    return recorded_runs(reference_data(RUNS))


@pytest.fixture(scope="session")
def goodput_folder(public_data: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The measured tables and workloads of Pollux and Sia, unpacked."""
    folder = tmp_path_factory.mktemp("pollux_sia")
    for name in (*ARCHIVES, "osdi21_workloads"):
        with tarfile.open(public_data(f"pollux_sia/{name}.tar.xz")) as archive:
            archive.extractall(folder / name, filter="data")
    return folder
