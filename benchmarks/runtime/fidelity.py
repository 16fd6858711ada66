"""One small trace through the runtime and through the simulator: ``python -m benchmarks.runtime.fidelity``.

Real processes on virtual accelerators, trainers of known speed, real time: one service for each policy, all at once.
What they did is recorded by `allocator record`, and with ``--out tests/reference/runtime_runs.json`` kept for the table
in docs/fidelity.md, which `python -m tests.tables runtime` writes.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from allocator.runtime.door.client import Client, NoServiceError
from throughputs import ThroughputTable, read_table, read_trace, write_table
from throughputs.files import write_text

TRAINER = Path(__file__).with_name("trainer.py")

POLICIES = {
    "max_min_fairness_perf": "v100:4,k80:4",
    "finish_time_fairness_perf": "v100:4,k80:4",
    "shockwave": "v100:6",
    "fifo_perf": "v100:4,k80:4",
}
"""With the cluster of each: Shockwave is for one type."""

GANG_SPEED = {1: 1.0, 2: 1.8, 4: 3.2}
"""Of a gang beside one GPU, by number of GPUs."""

LOAD_SECONDS, SAVE_SECONDS = 0.2, 0.1


@dataclass(frozen=True)
class Kind:
    """A job type: steps/s on one GPU by accelerator type, and the numbers of GPUs with which it can run."""

    rates: Mapping[str, float]
    sizes: tuple[int, ...] = (1, 2)


KINDS = {"small": Kind({"v100": 40.0, "k80": 16.0}), "large": Kind({"v100": 20.0, "k80": 5.0})}


@dataclass(frozen=True)
class Arrival:
    """A job to be submitted `at` seconds after the first."""

    at: float
    job_type: str
    gpus: int
    steps: int


def one_of_two(rng: np.random.Generator) -> tuple[str, int]:
    """Type and GPUs of a job."""
    return ("small", "large")[int(rng.integers(2))], 2 if rng.random() < 0.25 else 1


def draw(
    jobs: int,
    seconds: float,
    mean_interarrival: float,
    round_seconds: float,
    kinds: Mapping[str, Kind] = KINDS,
    drawn_kind: Callable[[np.random.Generator], tuple[str, int]] = one_of_two,
) -> list[Arrival]:
    """Jobs that take half to one and a half times `seconds` with their GPUs of the fastest type.

    They come in the middle of rounds: who comes just before one begins may be too late for its decision, which is a
    matter of milliseconds and no question of fidelity.
    """
    rng = np.random.default_rng(0)
    at = 0.0
    drawn = []
    for _ in range(jobs):
        job_type, gpus = drawn_kind(rng)
        length = seconds * rng.uniform(0.5, 1.5)
        into = at % round_seconds
        middle = at - into + 0.15 * round_seconds + 0.5 * into if drawn else 0.0
        steps = round(length * max(kinds[job_type].rates.values()) * GANG_SPEED[gpus])
        drawn.append(Arrival(round(middle, 3), job_type, gpus, steps))
        at += float(rng.exponential(mean_interarrival))
    return drawn


def throughputs(kinds: Mapping[str, Kind]) -> ThroughputTable:
    """What the trainers do."""
    types = tuple(next(iter(kinds.values())).rates)
    keys = [(name, gpus) for name, kind in kinds.items() for gpus in kind.sizes]
    rates = [[kinds[name].rates[kind] * GANG_SPEED[gpus] for kind in types] for name, gpus in keys]
    return ThroughputTable(keys, types, rates)


def command_of(job: Arrival, kinds: Mapping[str, Kind]) -> list[str]:
    """What trains."""
    told = {"--steps": str(job.steps), "--gpus": str(job.gpus), "--rates": _listed(kinds[job.job_type].rates)}
    told |= {"--gangs": _listed(GANG_SPEED), "--load": str(LOAD_SECONDS), "--save": str(SAVE_SECONDS)}
    return [sys.executable, "-S", str(TRAINER), *(word for pair in told.items() for word in pair)]


def _listed(figures: Mapping[Any, float]) -> str:
    return ",".join(f"{name}={figure}" for name, figure in figures.items())


class Run:
    """One policy on its cluster, in a service of its own.

    Parameters
    ----------
    folder : for its state and results. policy, round_seconds : of the service.
    cluster : options of the service that say what it runs on.
    environment : of the service, besides that of this process.
    kinds : job types.
    """

    def __init__(
        self,
        folder: Path,
        policy: str,
        round_seconds: float,
        cluster: Sequence[str],
        environment: Mapping[str, str] | None = None,
        kinds: Mapping[str, Kind] = KINDS,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._kinds = kinds
        self.policy, self.state, self.out = policy, folder / "state", folder / "out"
        write_table(throughputs(kinds), folder / "table.csv")
        command = ["serve", "--state", str(self.state), *cluster, "--policy", policy, "--whole-rounds"]
        command += ["--round", str(round_seconds), "--throughputs", str(folder / "table.csv")]
        with (folder / "service.log").open("w") as log:
            self._service = subprocess.Popen(
                [sys.executable, "-m", "allocator", *command],
                stdout=log,
                stderr=log,
                env={**os.environ, **(environment or {}), **variables()},
            )
        self._client = Client(self.state)

    def wait_until_ready(self) -> None:
        """Until it answers."""
        while True:
            try:
                self._client.ask("status", jobs=[])
                return
            except NoServiceError:
                if self._service.poll() is not None:
                    raise
                time.sleep(0.1)

    def submit(self, job: Arrival) -> None:
        """Submit one job."""
        told = {
            "command": command_of(job, self._kinds),
            "working_directory": "/",
            "environment": variables(),
            "gpus": job.gpus,
            "job_type": job.job_type,
            "total_steps": job.steps,
        }
        self._client.ask("submit", jobs=[told])

    def finish(self) -> dict[str, Any]:
        """Wait until all jobs are through, end the service; what `allocator record` says."""
        while any(job["state"] not in ("completed", "failed") for job in self._client.ask("status")["jobs"]):
            time.sleep(0.5)
        self.stop()
        command = [sys.executable, "-m", "allocator", "record", "--state", str(self.state), "--out", str(self.out)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env={**os.environ, **variables()})
        comparison: dict[str, Any] = json.loads((self.out / "comparison.json").read_text())
        return comparison

    def stop(self) -> None:
        """End the service."""
        self._service.terminate()
        self._service.wait()


def variables() -> dict[str, str]:
    """Of services and trainers, besides those of this process."""
    root = str(Path(__file__).resolve().parents[2])
    return {"PYTHONPATH": root, "OMP_NUM_THREADS": "1"}


def measure(
    folder: Path, policies: Sequence[str], jobs: Sequence[Arrival], round_seconds: float
) -> dict[str, dict[str, Any]]:
    """Real beside simulated by policy."""
    return measured(
        [Run(folder / policy, policy, round_seconds, ["--virtual", POLICIES[policy]]) for policy in policies], jobs
    )


def measured(runs: Sequence[Run], jobs: Sequence[Arrival]) -> dict[str, dict[str, Any]]:
    """Real beside simulated by policy, of services that were started."""
    try:
        for run in runs:
            run.wait_until_ready()
        began = time.monotonic()
        for job in jobs:
            time.sleep(max(began + job.at - time.monotonic(), 0.0))
            for run in runs:
                run.submit(job)
        return {run.policy: run.finish() for run in runs}
    finally:
        for run in runs:
            run.stop()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.runtime.fidelity", description=__doc__)
    parser.add_argument("--policies", default=",".join(POLICIES), help="names")
    parser.add_argument("--jobs", type=int, default=24)
    parser.add_argument("--seconds", type=float, default=24.0, help="of a job on v100, on average")
    parser.add_argument("--mean-interarrival", type=float, default=3.0, help="seconds")
    parser.add_argument("--round", type=float, default=6.0, help="seconds")
    parser.add_argument("--out", type=Path, help="file for the figures")
    parser.add_argument("--keep", type=Path, help="folder for states and results")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        jobs = draw(chosen.jobs, chosen.seconds, chosen.mean_interarrival, chosen.round)
        folders = chosen.keep or Path(folder)
        found = measure(folders, chosen.policies.split(","), jobs, chosen.round)
        figures = {
            "settings": {"round_seconds": chosen.round},
            "load": round(os.getloadavg()[1], 1),
            "runs": [kept(folders / policy, policy, found[policy], POLICIES[policy]) for policy in found],
        }
    for policy, comparison in found.items():
        errors = {row["figure"]: row["error"] for row in comparison["figures"]}
        print(policy, {name: None if error is None else round(error, 4) for name, error in errors.items()})
    print("load average", figures["load"])
    if chosen.out is not None:
        write_text(chosen.out, json.dumps(figures, separators=(",", ":")) + "\n")


def kept(folder: Path, policy: str, comparison: Mapping[str, Any], cluster: str) -> dict[str, Any]:
    """A recorded run as it stays: enough to simulate it again, and the figures to compare with."""
    trace, table = read_trace(folder / "out/trace.csv"), read_table(folder / "out/throughputs.csv")
    seconds = [job["real"] for job in comparison["jobs"]]
    columns = trace.job_type, trace.scale_factor, trace.total_steps, trace.arrival_time, seconds
    return {
        "policy": policy,
        "cluster": cluster,
        "restart_seconds": round(comparison["restart_seconds"], 4),
        "rates": [
            [name, gpus, *np.round(rates, 4).tolist()]
            for (name, gpus), rates in zip(table.keys, table.isolated, strict=True)
        ],
        "accelerators": table.accelerators,
        "jobs": [
            [name, int(gpus), float(steps), round(float(at), 3), round(float(jct), 3)]
            for name, gpus, steps, at, jct in zip(*columns, strict=True)
        ],
        "real": {row["figure"]: row["real"] for row in comparison["figures"]},
    }


if __name__ == "__main__":
    main()
