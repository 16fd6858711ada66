"""The service on a Ray cluster of several nodes on this machine.

- `RAY`: what it costs;
- ``python -m benchmarks.runtime.on_ray --out tests/reference/ray_runs.json``: 30 small jobs, some of them elastic,
  under three policies and by Ray alone, for the table in docs/ray.md, which `python -m tests.tables ray` writes.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from allocator.runtime.adapters.ray import RayAdapter, RaySettings
from allocator.runtime.service import Service
from allocator.studies.study import Options, Row, Run, Study
from allocator.studies.tables import Shown, duration
from benchmarks.runtime import fidelity
from benchmarks.runtime.fidelity import Arrival, Kind
from benchmarks.runtime.overheads import dispatch, serving, submit
from throughputs.files import write_text


@contextmanager
def ray_cluster(nodes: int, gpus: int) -> Iterator[str]:
    """The address of a cluster of nodes with so many logical GPUs each, as long as it is used."""
    from ray.cluster_utils import Cluster

    told: dict[str, Any] = {"num_cpus": 2, "num_gpus": gpus, "include_dashboard": False}
    cluster: Any = Cluster(initialize_head=True, head_node_args=told)
    try:
        for _ in range(nodes - 1):
            cluster.add_node(num_cpus=2, num_gpus=gpus)
        yield cluster.address
    finally:
        cluster.shutdown()


def _ray(options: Options) -> Iterator[Run]:
    jobs, queued, seconds = (10, 100, 5.0) if options.quick else (100, 1_000, 30.0)
    yield {"part": f"{jobs} jobs at once"}, partial(_measured, jobs, queued, seconds)


def _measured(jobs: int, queued: int, seconds: float) -> list[Row]:
    with ray_cluster(2, (jobs + 1) // 2) as address:

        def adapter(state: Path) -> RayAdapter:
            return RayAdapter(state, RaySettings(address))

        # the first time Ray starts processes that stay
        again = [row for _ in range(3) for row in asyncio.run(dispatch(jobs, adapter))]
        return again + asyncio.run(_load(jobs, queued, seconds, adapter))


async def _load(jobs: int, queued: int, seconds: float, adapter: Any) -> list[Row]:
    """Parts of a core that the service takes, and the process that is connected to Ray, while jobs run and wait."""

    async def use(service: Service) -> list[Row]:
        submit(service, jobs + queued, "sleep", "600")
        while sum(job.state == "running" for job in service.book.by_id) < jobs:
            await asyncio.sleep(0.1)
        await asyncio.sleep(5.0)
        bridge = service.adapter._connection._process.pid
        names = {"service": os.getpid(), "process that is connected to Ray": bridge}
        before = {name: _cpu_seconds(pid) for name, pid in names.items()}
        began = time.perf_counter()
        await asyncio.sleep(seconds)
        passed = time.perf_counter() - began
        return [
            {"what": f"CPU of the {name} in a second, {queued:,} queued", "size": jobs, "seconds": used / passed}
            for name, pid in names.items()
            for used in [_cpu_seconds(pid) - before[name]]
        ]

    return await serving(adapter, "fifo", 60.0, use)


def _cpu_seconds(pid: int) -> float:
    told = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(told[11]) + int(told[12])) / os.sysconf("SC_CLK_TCK")


RAY = Study(
    "What the service costs on Ray, wall time",
    _ray,
    by=("what",),
    shown={name: Shown("seconds", duration, over=over) for name, over in (("median", "median"), ("most", "max"))},
)


# ----------------------------------------------------------------------------------------------------------------------
# Small jobs under policies, and by Ray alone
# ----------------------------------------------------------------------------------------------------------------------

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
    parser = argparse.ArgumentParser(prog="python -m benchmarks.runtime.on_ray", description=__doc__)
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
