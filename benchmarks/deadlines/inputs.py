"""What the studies run on: the public traces of ElasticFlow where they are at hand, else jobs that are drawn.

The variable ALLOCATOR_DATA names the folder of the public data (docs/contributing.md): in it, ``elasticflow`` holds
``throughputs_A100`` and ``traces/elasticflow-traces.tar.gz``. Without them jobs come from `throughputs.deadline_trace`
on the embedded throughputs, gangs of up to 8 GPUs.
"""

from __future__ import annotations

import os
import tarfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from throughputs import ThroughputTable, default_table, read_table, read_trace

CLUSTER_GPUS = {
    "cluster01": 512,
    "cluster02": 512,
    "cluster03": 512,
    "cluster04": 1024,
    "cluster05": 512,
    "cluster06": 512,
    "cluster07": 1024,
    "cluster08": 1024,
    "cluster09": 1024,
    "cluster10": 256,
}
"""GPUs of the cluster on which each of the ten traces was simulated, in servers of 8."""

TESTBED_TRACE = "195job"

_ARCHIVE = "traces/elasticflow-traces.tar.gz"
_THROUGHPUTS = "throughputs_A100"
_MORE_THROUGHPUTS = "throughputs_T4"
_MEAN_INTERARRIVAL_SECONDS = 600.0


@dataclass(frozen=True)
class Inputs:
    """Where jobs and throughputs come from.

    Attributes
    ----------
    accelerator : the one type of the clusters.
    throughputs : folder of the throughputs; None: the embedded table.
    traces : folder of the unpacked public traces; None: jobs are drawn.
    draws : how many times jobs are drawn, each with a seed of its own.
    """

    accelerator: str = "v100"
    throughputs: Path | None = None
    traces: Path | None = None
    draws: int = 1

    @classmethod
    def found(cls, cache: Path, data: str | os.PathLike[str] | None = None) -> Inputs:
        """The public data in `data`, else where ALLOCATOR_DATA says; traces are unpacked into `cache`, once."""
        root = data or os.environ.get("ALLOCATOR_DATA")
        if not root:
            return cls()
        folder = Path(root) / "elasticflow"
        archive, throughputs = folder / _ARCHIVE, folder / _THROUGHPUTS
        if not (archive.is_file() and throughputs.is_dir()):
            return cls()
        traces = cache / "elasticflow-traces"
        if not (traces / f"{TESTBED_TRACE}.csv").exists():
            with tarfile.open(archive) as packed:
                packed.extractall(traces, filter="data")
        return cls("a100", throughputs, traces)

    @property
    def public(self) -> bool:
        """Whether the jobs are those of the public traces."""
        return self.traces is not None

    @property
    def seeds(self) -> list[int]:
        """Draws of the jobs; a recorded trace is what it is."""
        return [0] if self.public else list(range(self.draws))

    def cluster(self, gpus: int) -> dict[str, str]:
        """A cluster of so many GPUs in servers of 8, as a sweep has it."""
        return {"gpus": f"{self.accelerator}:{gpus}", "gpus_per_server": f"{self.accelerator}:8"}

    def tables(self) -> dict[str, ThroughputTable]:
        """Throughputs by accelerator: the public ones of A100 and T4, or the embedded ones."""
        if self.throughputs is None:
            return {self.accelerator: default_table()}
        folders = {self.accelerator: self.throughputs, "t4": self.throughputs.parent / _MORE_THROUGHPUTS}
        return {accelerator: read_table(folder, accelerator) for accelerator, folder in folders.items()}

    def trace(self, name: str) -> Path | None:
        """File of a public trace."""
        return None if self.traces is None else self.traces / f"{name}.csv"

    def workload(self, trace: str = TESTBED_TRACE, **settings: Any) -> dict[str, Any]:
        """Jobs of a public trace, or drawn ones, as a sweep has them."""
        path = self.trace(trace)
        if path is None:
            return {
                "generator": "deadlines",
                "multi_gpu": True,
                "mean_interarrival_seconds": _MEAN_INTERARRIVAL_SECONDS,
                **settings,
            }
        return {"generator": "recorded", "trace": str(path), "throughputs": str(self.throughputs), **settings}

    def jobs_of(self, trace: str, drawn: int) -> int:
        """Jobs of a public trace, or as many as are drawn."""
        path = self.trace(trace)
        return drawn if path is None else len(read_trace(path))
