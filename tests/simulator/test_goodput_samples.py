"""Jobs that are through after so many samples, as ElasticFlow has Pollux run jobs with deadlines."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from allocator.cli.app import app


@pytest.mark.exhaustive
def test_a_workload_with_deadlines_on_the_command_line(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = ["name,time,application,num_replicas,batch_size,ddl,max_sample", "a,10,cifar10,4,1024,1500,600000"]
    Path("deadlines.csv").write_text("\n".join([*rows, "b,70,ncf,2,32768,90,6000000", ""]))
    page = (Path(__file__).resolve().parents[2] / "docs" / "goodput.md").read_text()
    command = page.split("tests/simulator/test_goodput_samples.py -->\n```sh\n")[1].split("```")[0]
    words = command.replace("\\\n", " ").split()
    assert words.pop(0) == "allocator"
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    found = json.loads(Path("deadline-results/summary.json").read_text())
    assert (found["deadline_jobs"], found["met"], found["late"]) == (2, 1, 1)
    assert np.isclose(found["deadline_ratio"], 0.5)
