"""Tables of docs/deadlines.md from the studies of deadlines, whose runs are kept (`benchmarks.deadlines.FOLDER`)."""

from __future__ import annotations

from pathlib import Path

from benchmarks.deadlines import FOLDER, Inputs, run_study
from benchmarks.deadlines.report import markdown_of_clusters, markdown_of_policies, row_of_cluster
from tests.conftest import _data_root

ROOT = Path(__file__).resolve().parents[2]
FULL = ROOT / FOLDER / "full"


def table_of_end_to_end(folder: Path = FULL) -> str:
    """Policies on the 195 jobs of the testbed."""
    return markdown_of_policies(run_study("end_to_end", folder, inputs=_inputs(folder)), testbed=True)


def table_of_clusters(folder: Path = FULL) -> str:
    """Policies on the traces of ten clusters; many minutes."""
    return markdown_of_clusters(run_study("clusters", folder, inputs=_inputs(folder)))


def row_of_smallest(folder: Path) -> str:
    """The row of cluster10, made of new runs."""
    return row_of_cluster(run_study("clusters", folder, small=True, inputs=_inputs(folder)), "cluster10")


def _inputs(folder: Path) -> Inputs:
    found = Inputs.found(folder / "inputs", _data_root())
    if not found.public:
        raise FileNotFoundError("elasticflow/traces: the public traces of ElasticFlow (docs/contributing.md)")
    return found
