"""What ``--import`` makes known beside policies, and entry points that are broken."""

from __future__ import annotations

import json
from importlib.metadata import EntryPoint
from pathlib import Path

import pandas as pd
import pytest

from allocator import simulate
from allocator.experiments.workloads import workloads
from allocator.presets import preset
from allocator.simulator.rules.base import Rule
from tests.cli.command import ran
from throughputs import InputError, Trace, entry_points

MODULE = '''\
import dataclasses
from allocator.experiments.workloads import Workload
from allocator.presets import preset
from throughputs import Trace
from throughputs.traces.logs.layouts import Layout

LATE = dataclasses.replace(preset("default").replace(restart_penalty_seconds=120.0), name="late_starts")
KIND = Layout("kind", {"submit": "when", "duration": "took", "gpus": "n"}, told_by=("when", "took", "n"))
ROWS = Layout("rows", {"submit": "a", "duration": "b", "gpus": "c"}, line="rows of .*", cells=lambda text, source: (
    {name: __import__("numpy").array(["1"], dtype=object) for name in "abcd"}, None, ()))

@dataclasses.dataclass(frozen=True, kw_only=True)
class Equal(Workload):
    """Jobs that are all alike."""
    generator = "equal"
    seconds: int = 10
    def drawn(self, draw):
        return Trace(["LM (batch size 20)"] * draw.jobs, [1] * draw.jobs, [float(self.seconds)] * draw.jobs,
                     [0.0] * draw.jobs)
'''


@pytest.fixture
def _known(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ALLOCATOR_IMPORT", "")
    monkeypatch.setattr(entry_points, "_given", {})
    Path("imported_here.py").write_text(MODULE)


@pytest.mark.usefixtures("_known")
def test_presets_workloads_and_layouts_of_an_imported_file():
    Path("log.csv").write_text("when,took,n,x\n0,60,1,3\n")
    assert "of kind" in ran("trace import log.csv --out t.csv --import ./imported_here.py").out
    asked = "simulate --trace t.csv --cluster gpu:1 --policy fifo --preset late_starts --json"
    assert json.loads(ran(f"{asked} --out run --import ./imported_here.py").out)["average_jct"] == 180.0
    swept = "--jobs 2 -p fifo -c v100:1 --vary workload.seconds=10,20 --generator equal --out s -j 1"
    ran(f"sweep static {swept} --import ./imported_here.py")
    assert pd.read_parquet("s/results.parquet")["seconds"].tolist() == [10, 20]
    Path("rows.txt").write_text("rows of mine\nx\n")
    assert "not read" not in ran("trace import rows.txt --out r.csv --import ./imported_here.py").out


def test_a_broken_entry_point_is_named(monkeypatch):
    broken = entry_points.Entry(EntryPoint("mine", "json:absent", "allocator.workloads"))
    monkeypatch.setattr(entry_points, "_given", {"allocator.workloads": {"mine": broken}})
    with pytest.raises(InputError, match=r"'mine'.*AttributeError.*json:absent"):
        workloads()


class Counts(Rule):
    """Tells of each job a number of its own."""

    def start(self, world):
        world.jobs.register("counted", 7, told=True)
        return []


def test_a_column_of_a_rule_is_one_of_the_results():
    trace = Trace(["a"], [1], [60.0], [0.0], duration=[60.0])
    chosen = preset("default").with_rules(Counts())
    assert simulate(trace, "gpu:1", "fifo", preset=chosen).jobs["counted"].tolist() == [7]
