"""The jobs of a running service as a test of admission sees them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from allocator.cluster import Cluster
from allocator.runtime.decisions.knowledge import Knowledge
from allocator.runtime.door.client import Client
from allocator.runtime.recorded.run import THROUGHPUTS_FILE
from allocator.runtime.records.journal import ReadOnlyJournal
from throughputs import InputError, ThroughputTable, Trace, read_table
from throughputs.tables.builder import TableBuilder
from throughputs.tables.merge import merged_tables

__all__ = ["Presence", "present_jobs"]


@dataclass(frozen=True)
class Presence:
    """What there is now.

    Attributes
    ----------
    jobs : that wait or run, with the steps left to them and the GPUs that they have; those whose length nobody knows,
        and that have no deadline, are left out: they make room for any that have one.
    cluster : GPUs that can be used.
    throughputs : what is believed of these jobs, each a type of its own, and of job types.
    clock : of the service, seconds.
    slot_seconds, restart_seconds : with which its policy reckons.
    """

    jobs: Trace
    cluster: Cluster
    throughputs: ThroughputTable
    clock: float
    slot_seconds: float
    restart_seconds: float


def present_jobs(state: Path, throughputs: Path | None) -> Presence:
    """Ask the service of a state folder; `throughputs` take the place of those that it believes in.

    Raises
    ------
    InputError
        A job with a deadline that says neither its steps nor how long it takes.
    """
    answer = Client(state).ask("status", active=True)
    cluster = Cluster({name: gpus for name, gpus in answer["service"]["cluster"].items() if gpus})
    known = read_table(throughputs or state / THROUGHPUTS_FILE)
    knowledge = Knowledge(cluster.accelerators, known)
    builder = TableBuilder()
    names: list[str] = []
    gpus_now: list[int] = []
    steps_left: list[float] = []
    due: list[float] = []
    for job in answer["jobs"]:
        measured = {(way["accelerator"], way["gpus"]): way["rate"] for way in job["measured"]}
        ways = knowledge.believed(job["job_type"], job["gpus"], measured)
        left = (job["total_steps"] or 0.0) - job["steps"]
        if not job["total_steps"]:
            if job["deadline"] is not None:
                found, expected = f"job {job['id']} without steps", "jobs whose steps are known"
                raise InputError(f"service on {state}", found=found, expected=expected)
            continue
        held = sum(map(len, job["places"].values()))
        name = f"job {job['id']}"
        for (accelerator, gpus), rate in ways.items():
            builder.add_isolated(accelerator, (name, gpus), rate)
        names.append(name)
        gpus_now.append(held or job["gpus"])
        steps_left.append(max(left, 1.0))
        due.append(np.nan if job["deadline"] is None else job["deadline"])
    of_jobs = ThroughputTable(*builder.figures(), known.source)
    run: dict[str, Any] = dict(getattr(ReadOnlyJournal(state).last("run"), "data", None) or {})
    own, settings = run.get("policy_settings", {}), run.get("settings", {})
    return Presence(
        Trace(names, gpus_now, steps_left, [0.0] * len(names), deadline=due, source=f"service on {state}"),
        cluster,
        merged_tables(known, of_jobs),
        float(answer["service"]["clock"]),
        float(own.get("slot_seconds") or 0.0),
        float(own.get("restart_seconds") or settings.get("restart_penalty_seconds") or 0.0),
    )
