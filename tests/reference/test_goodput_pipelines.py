"""The pipelined model of Sia's artifact, which its own simulator cannot run, as a training in ours."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from allocator.published.pollux.tables import read_step_times
from allocator.published.pollux.trainings import read_trainings
from throughputs.goodput.trainings import Trainings

pytestmark = pytest.mark.exhaustive

STAGES = {"rtx": 8, "dgx-ext": 2}


@pytest.fixture(scope="module")
def folder(goodput_folder: Path) -> Path:
    """The tables of the model."""
    return next(goodput_folder.glob("**/gpt_pmp"))


@pytest.fixture(scope="module")
def tables(folder: Path) -> Any:
    return {kind: read_step_times(folder / f"placements-{kind}.csv") for kind in STAGES}


@pytest.fixture(scope="module")
def read(folder: Path) -> Trainings:
    return read_trainings(folder.parent)


def test_steps_are_those_of_the_artifacts_form(read: Trainings, tables: Any) -> None:
    """T = 3 ((S - 1) f + M f) + T_sync, f and T_sync as measured, on every placement that was."""
    training = read.find("gpt_pmp")
    assert dict(training.stages) == STAGES
    assert (training.least_local, dict(training.largest_local)) == (48, dict.fromkeys(STAGES, 48))
    for kind, table in tables.items():
        for row in np.flatnonzero(table.batch_size == 1).tolist():
            shape = tuple(map(int, table.placement[row]))
            expected = 3 * (STAGES[kind] - 1 + 48) * table.step_time[row] + table.sync_time[row]
            assert training.step_time(kind, shape, 48.0) == pytest.approx((expected, table.sync_time[row]), rel=1e-12)
    # eight GPUs of a type that was measured on whole nodes only
    assert training.step_time("rtx", (4, 4), 48.0) == training.step_time("rtx", (8,), 48.0)
