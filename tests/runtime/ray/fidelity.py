"""Thirty small jobs on Ray, some of them elastic, under three policies and by Ray alone.

``python -m tests.runtime.ray.fidelity --out tests/reference/ray_runs.json`` records them in half an hour, for the table
in docs/ray.md, which `python -m tests.tables ray` writes.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.runtime import fidelity
from benchmarks.runtime.fidelity import Arrival, Kind
from tests.runtime.ray.costs import ray_cluster
from throughputs.files import write_text

NODES, GPUS = 4, 2
ROUND_SECONDS = 5.0
POLICIES = ("fifo", "max_min_fairness", "sia")

KINDS = {
    "one": Kind({"gpu": 20.0}, (1,)),
    "two": Kind({"gpu": 20.0}, (2,)),
    "four": Kind({"gpu": 20.0}, (4,)),
    "elastic": Kind({"gpu": 20.0}, (1, 2, 4)),
}
"""Elastic jobs ask for two GPUs, which they have wherever nobody chooses another number."""

ALONE = {"policy": "fcfs", "policy_settings": {"backfill": "skip"}, "name": "Ray alone"}
"""What Ray does, as a policy: whoever fits into what is free starts, and keeps it."""


def drawn_kind(rng: np.random.Generator) -> tuple[str, int]:
    """Type and GPUs of a job: one in three is elastic."""
    return [("one", 1), ("one", 1), ("two", 2), ("four", 4), ("elastic", 2), ("elastic", 2)][int(rng.integers(6))]


def alone(address: str, jobs: Sequence[Arrival]) -> list[tuple[float, float, float]]:
    """Jobs as tasks of Ray's, each in a placement group: when each came, began and was through, seconds."""
    import ray
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

    def train(command: list[str]) -> float:
        began = time.time()
        subprocess.run(command, check=True, env=os.environ | fidelity.variables())
        return began

    ray.init(address, log_to_driver=False)
    remote: Any = ray.remote(num_cpus=0, num_gpus=1, max_retries=0)(train)
    waiting, here, times = list(enumerate(jobs)), {}, {}
    first = time.time()
    while waiting or here:
        while waiting and time.time() >= first + waiting[0][1].at:
            number, job = waiting.pop(0)
            came = time.time()
            group = ray.util.placement_group([{"GPU": 1}] * job.gpus)
            inside = remote.options(scheduling_strategy=PlacementGroupSchedulingStrategy(group, 0))
            here[inside.remote(fidelity.command_of(job, KINDS))] = number, came, group
        for done in ray.wait(list(here), timeout=0.05)[0] if here else ():
            number, came, group = here.pop(done)
            ray.util.remove_placement_group(group)
            times[number] = came - first, ray.get(done) - first, time.time() - first
    ray.shutdown()
    return [times[number] for number in range(len(jobs))]


def kept(jobs: Sequence[Arrival], times: Sequence[tuple[float, float, float]]) -> dict[str, Any]:
    """A run of Ray's as those of policies stay; a start costs what passes between the last event before it, and its
    end, beyond the time of its steps.
    """
    events = sorted(moment for came, _, through in times for moment in (came, through))
    rates = {(job.job_type, job.gpus): fidelity.GANG_SPEED[job.gpus] * KINDS[job.job_type].rates["gpu"] for job in jobs}
    costs = [
        through - max(moment for moment in events if moment <= began) - job.steps / rates[job.job_type, job.gpus]
        for job, (_, began, through) in zip(jobs, times, strict=True)
    ]
    seconds = [through - came for came, _, through in times]
    return ALONE | {
        "restart_seconds": round(float(np.mean(costs)), 4),
        "rates": [[name, gpus, rate] for (name, gpus), rate in sorted(rates.items())],
        "accelerators": ["gpu"],
        "jobs": [
            [job.job_type, job.gpus, float(job.steps), round(came, 3), round(jct, 3)]
            for job, (came, _, _), jct in zip(jobs, times, seconds, strict=True)
        ],
        "real": {"average_jct": float(np.mean(seconds)), "makespan": max(through for _, _, through in times)},
    }


def studied(policy: str, jobs: Sequence[Arrival], folder: Path) -> dict[str, Any]:
    """The jobs on a cluster of their own; "": by Ray alone."""
    cluster = f"gpu:{NODES * GPUS}"
    with ray_cluster(NODES, GPUS) as address:
        if policy:
            run = fidelity.Run(folder / policy, policy, ROUND_SECONDS, ["--ray", address], kinds=KINDS)
            found = fidelity.kept(folder / policy, policy, fidelity.measured([run], jobs)[policy], cluster)
        else:
            found = kept(jobs, alone(address, jobs)) | {"cluster": cluster}
    return found | {"gpus_per_server": f"gpu:{GPUS}"}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.runtime.ray.fidelity", description=__doc__)
    parser.add_argument("--jobs", type=int, default=30)
    parser.add_argument("--seconds", type=float, default=40.0, help="of a job with the GPUs it asks for, on average")
    parser.add_argument("--mean-interarrival", type=float, default=8.0, help="seconds")
    parser.add_argument("--policies", default=",".join((*POLICIES, "")), help="names; an empty one is Ray alone")
    parser.add_argument("--out", type=Path, help="file for the figures")
    chosen = parser.parse_args()
    jobs = fidelity.draw(chosen.jobs, chosen.seconds, chosen.mean_interarrival, ROUND_SECONDS, KINDS, drawn_kind)
    with tempfile.TemporaryDirectory() as folder:
        runs = [studied(policy, jobs, Path(folder)) for policy in chosen.policies.split(",")]
    for run in runs:
        print(run.get("name", run["policy"]), run["restart_seconds"], run["real"])
    if chosen.out is not None:
        figures: Mapping[str, Any] = {"settings": {"round_seconds": ROUND_SECONDS}, "runs": runs}
        figures |= {"load": round(os.getloadavg()[1], 1)}
        write_text(chosen.out, json.dumps(figures, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
