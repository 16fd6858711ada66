"""The jobs of a running service as a test of admission sees them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from allocator.cluster import Cluster
from allocator.policies.deadlines.promises import NO_REPAIR, Repair
from allocator.runtime.decisions.knowledge import Knowledge
from allocator.runtime.door.client import Client
from allocator.runtime.recorded import THROUGHPUTS_FILE
from allocator.runtime.records.journal import ReadOnlyJournal
from throughputs import InputError, ThroughputTable, Trace, read_table
from throughputs.tables.figures import TableBuilder
from throughputs.tables.files import merged_tables


def present_jobs(state: Path, throughputs: Path | None) -> tuple[dict[str, Any], str]:
    """Ask the service of a state folder; `throughputs` take the place of those that it believes in.

    Returns
    -------
    Arguments of `AdmissionTest`, and the policy in force. Jobs are those that wait or run, with the steps left to them
    and the GPUs that they have; those whose length nobody knows, and that have no deadline, are left out: they make
    room for any that have one. Each is a type of its own, beside job types. What a start is taken to need is the
    setting of the policy, or the dearest of the last starts of these jobs, whichever is more.

    Raises
    ------
    InputError
        There are GPUs of several types in use, or of none.
    """
    answer = Client(state).ask("status", active=True)
    cluster = Cluster(_of_one_type(answer["service"], state))
    known = read_table(throughputs or state / THROUGHPUTS_FILE)
    knowledge = Knowledge(cluster.accelerators, known)
    builder = TableBuilder()
    names: list[str] = []
    gpus_now: list[int] = []
    steps_left: list[float] = []
    due: list[float] = []
    in_use = {node["name"] for node in answer["service"]["nodes"] if node["state"] == "up"}
    for job in answer["jobs"]:
        if job["state"] == "running" and not in_use.issuperset(job["places"]):
            # it ends on GPUs that are not given out any more
            continue
        measured = {(way["accelerator"], way["gpus"]): way["rate"] for way in job["measured"]}
        ways = knowledge.believed(job["job_type"], job["gpus"], measured)
        if not job["total_steps"] and job["deadline"] is None:
            continue
        total = knowledge.expected_steps(job["total_steps"] or 0.0, job["duration"] or 0.0, ways, job["gpus"])
        left = total - job["steps"]
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
    own = run.get("policy_settings", {})
    source = f"service on {state}"
    arguments = {
        "jobs": Trace(names, gpus_now, steps_left, [0.0] * len(names), deadline=due, source=source),
        "cluster": cluster,
        "throughputs": merged_tables(known, of_jobs),
        "clock": float(answer["service"]["clock"]),
        "slot_seconds": float(own.get("slot_seconds") or 0.0),
        "restart_seconds": max(float(own.get("restart_seconds") or 0.0), float(answer["service"]["start_seconds"])),
        "margin_seconds": float(own.get("margin_seconds") or 0.0),
        "repair": repair_of(own),
    }
    return arguments, answer["service"]["policy"]


def _of_one_type(service: dict[str, Any], state: Path) -> dict[str, int]:
    """The GPUs in use by type, of which there is one."""
    there = {name: gpus for name, gpus in service["cluster"].items() if gpus}
    if len(there) == 1:
        return there
    found = ",".join(f"{name}:{gpus}" for name, gpus in there.items()) or "no GPUs in use"
    drained = " ".join(node["name"] for node in service["nodes"] if node["state"] == "drained")
    remedy = f"resume nodes ({drained})" if drained else "wait for nodes that are down"
    if there:
        one = next(iter(there))
        others = ", ".join(sorted({n["name"] for n in service["nodes"] if n["accelerator"] not in (one, "")}))
        remedy = (
            f"drain the nodes of the other types (allocator drain; {others} for an answer on {one}), or have a service "
            f"for each type; about empty GPUs of one type ask without --state (--cluster {one}:{there[one]})"
        )
    expected = f"GPUs of one type, as nothing promises deadlines across types: {remedy}"
    raise InputError(f"service on {state}", found=found, expected=expected)


def repair_of(own: Mapping[str, Any]) -> Repair:
    """When a policy with these settings admits jobs by plans in other orders."""
    if own.get("admission", "repair") != "repair" or not own.get("repair_rounds"):
        return NO_REPAIR
    quantile = own.get("repair_quantile", NO_REPAIR.quantile)
    return Repair(int(own["repair_rounds"]), int(own["repair_jobs"]), quantile)
