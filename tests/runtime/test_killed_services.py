"""Services that are killed with SIGKILL at any moment: no job is lost, none runs twice, no step is forgotten."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("killed_services.py")
ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("seed", [1, 2, 3, 4])
def test_sixty_kills_and_every_job_completes_once(tmp_path: Path, seed: int) -> None:
    jobs = 40
    told = subprocess.run(
        [sys.executable, str(SCRIPT), str(tmp_path), "60", str(seed), str(jobs)],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert told.returncode == 0, told.stderr[-4000:]
    result = json.loads(told.stdout)
    assert result["killed"] >= 55
    assert result["states"] == ["completed"] * jobs
    for number in range(jobs):
        lines = [line.split() for line in (tmp_path / f"job{number}").read_text().splitlines()]
        assert all(line[0] == "step" for line in lines), f"job {number} ran twice at once: {lines}"
        # every step is saved before it is reported: none is done twice, none is left out
        assert [int(line[1]) for line in lines] == list(range(1, 21 + number % 7))
        epochs = [int(line[2]) for line in lines]
        assert epochs == sorted(epochs)
