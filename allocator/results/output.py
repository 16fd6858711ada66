"""Results of a simulation as files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from allocator.results.result import SimulationResult
from allocator.results.tables import decisions_table, rates_table, shares_table
from throughputs.files import write_frame, write_text


def save_result(result: SimulationResult, directory: str | Path) -> dict[str, Any]:
    """Write summary.json, jobs.csv, rounds.parquet and timeline.parquet into a directory; returns the summary.

    If jobs differ in weight there is also priorities.csv, entities.csv if the run has entities, and efficiency.csv if
    jobs have deadlines and their throughput by number of GPUs is known, fragmentation.parquet where servers have
    several GPUs; and for `allocator.explain` rates.parquet, and decisions.parquet and shares.parquet where the policy
    decided on shares of time. The directory is made if needed. Each file is replaced in one step, the summary last:
    where it stands, the run is complete.
    """
    directory = Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    # that of a run which was here before tells nothing of the files that follow
    (directory / "summary.json").unlink(missing_ok=True)
    write_frame(directory / "jobs.csv", result.jobs)
    write_frame(directory / "rounds.parquet", result.rounds)
    write_frame(directory / "timeline.parquet", result.timeline)
    for name, table, wanted in (
        ("priorities.csv", result.priorities, len(result.priorities) > 1),
        ("entities.csv", result.entities, len(result.entities) > 0),
        ("efficiency.csv", result.efficiency, len(result.efficiency) > 0),
        ("fragmentation.parquet", result.fragmentation, len(result.fragmentation) > 0),
    ):
        if wanted:
            write_frame(directory / name, table)
        else:
            (directory / name).unlink(missing_ok=True)
    _save_decisions(result, directory)
    summary = summary_of(result)
    write_text(directory / "summary.json", json.dumps(summary, indent=2, allow_nan=False) + "\n")
    return summary


def summary_of(result: SimulationResult) -> dict[str, Any]:
    """The summary of a run with the servers of its cluster and its settings, ready for JSON."""
    servers = {"gpus_per_server": dict(result.cluster.gpus_per_server)}
    return result.summary().to_dict() | servers | {"settings": result.settings}


def _save_decisions(result: SimulationResult, directory: Path) -> None:
    """What an explanation reads besides: speeds, and the decisions on shares of time."""
    record, cluster = result.record, result.cluster
    tables = {} if record is None else {"rates.parquet": rates_table(record)}
    if record is not None and result.decisions:
        tables["decisions.parquet"] = decisions_table(result.decisions, cluster)
        tables["shares.parquet"] = shares_table(result.decisions, cluster)
    for name in ("rates.parquet", "decisions.parquet", "shares.parquet"):
        if name in tables:
            write_frame(directory / name, tables[name])
        else:
            (directory / name).unlink(missing_ok=True)
