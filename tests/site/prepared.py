"""What pages of docs take for granted: files of the reader's own, made in the folder in which a page's commands run."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

from allocator.cli.inputs.examples import example_log
from allocator.published.shockwave.generator import shockwave_trace
from tests.site.pages import ROOT
from throughputs import TraceGenerator, default_table, gavel_trace, import_log, write_table, write_trace

RULES = ROOT / "throughputs" / "training" / "tables" / "shockwave.toml"


def prepare(page: str, folder: Path) -> None:
    """Put into a folder what a page expects there; nothing for most pages."""
    if page in PREPARED:
        PREPARED[page](folder)


def _commands(folder: Path) -> None:
    jobs = [{"job_id": name, "throughputs": {"v100": fast, "k80": 1.0}} for name, fast in (("a", 4.0), ("b", 2.0))]
    (folder / "instance.json").write_text(json.dumps({"cluster": {"v100": 1, "k80": 1}, "jobs": jobs}))
    (folder / "mine.csv").write_text(example_log())
    write_trace(gavel_trace(20, 900.0, seed=0), folder / "original.trace")
    write_table(default_table(), folder / "simulation_throughputs.json.gz")
    shutil.copy(ROOT / "docs" / "examples" / "leases" / "numpy_trainer.py", folder / "train.py")


def _entities(folder: Path) -> None:
    trace = TraceGenerator(n_jobs=12, mean_interarrival=900.0, seed=0).generate().to_frame()
    trace["entity"] = ["research", "production"] * 6
    trace.to_csv(folder / "jobs.csv")
    (folder / "entities.toml").write_text("[research]\nweight = 1\n\n[production]\nweight = 3\n")


def _checkout(folder: Path) -> None:
    (folder / "benchmarks").symlink_to(ROOT / "benchmarks")


def _studies(folder: Path) -> None:
    _checkout(folder)
    (folder / "mine.csv").write_text(example_log())
    columns = {"submit": "start", "duration": "hours", "gpus": "num_gpus", "user": "owner"}
    write_trace(import_log(folder / "mine.csv", columns).trace, folder / "jobs.csv")


def _training(folder: Path) -> None:
    write_trace(shockwave_trace(10, 60.0, seed=0), folder / "jobs.trace")
    write_table(default_table(), folder / "throughputs.json")
    shutil.copy(RULES, folder / "rules.toml")


PREPARED: dict[str, Callable[[Path], None]] = {
    "docs/commands.md": _commands,
    "docs/entities.md": _entities,
    "docs/studies.md": _checkout,
    "docs/sweeps.md": _studies,
    "docs/training.md": _training,
}
