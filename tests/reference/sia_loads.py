"""Sia's public workloads with more jobs (SOSP 2023, sec. 5): tables of docs/fidelity.md.

More jobs per hour on the same 64 GPUs, and larger clusters with jobs in proportion. Runs take from a second (total
throughput on 64 GPUs) to some tens of minutes (Sia on 2,048), so their figures are kept in `RECORDED`.
``python -m tests.reference.sia_loads`` makes those that are not there yet, with ``--anew`` all of them;
``--up-to SIZE`` stops at clusters of so many times 64 GPUs.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from allocator import Cluster, Policy, simulate
from allocator.presets import preset
from allocator.published.sia_headline import CLUSTERS, settings_of
from tests.reference.sia_headline import NAMES, unpacked
from throughputs import Trace, read_trace
from throughputs.goodput.trainings import Trainings

RECORDED = Path(__file__).with_name("sia_loads.csv")

RATES = (10, 20, 30, 40, 50)
"""Jobs per hour, for eight hours, on 64 GPUs."""

SIZES = (1, 2, 4, 8, 16, 32)
"""Times 64 GPUs; each job of the first workload from Helios comes as many times."""

DRAWS = 10
"""How many workloads there are of each rate."""

FIGURES = ("average", "p99", "contention", "restarts", "decision_median", "decision_p95")
"""Average and 99th percentile of JCT (h), jobs in the cluster on average, starts of a job after the first, processor
time of a decision (s)."""

HETEROGENEOUS = "three types"


@dataclass(frozen=True, order=True)
class Load:
    """One run.

    Attributes
    ----------
    kind : "rate" (jobs per hour) or "size" (times 64 GPUs).
    factor : how many of these.
    cluster : a name in `CLUSTERS`, made larger by the factor of a size.
    policy : by its registered name.
    number : of the workload.
    """

    kind: str
    factor: int
    cluster: str
    policy: str
    number: int

    def trace(self, workloads: Path) -> Trace:
        """Its jobs, from the folder of the workloads."""
        if self.kind == "rate":
            return read_trace(workloads / f"scale/rate_{self.factor}/workload-{self.number}.csv")
        once = read_trace(workloads / f"saturn/workload-{self.number}.csv")
        columns = {name: np.repeat(getattr(once, name), self.factor) for name in Trace.column_names()}
        return Trace(**columns, source=f"{once.source}, each job {self.factor} times")

    def gpus(self) -> Cluster:
        """Its cluster."""
        one, times = CLUSTERS[self.cluster], self.factor if self.kind == "size" else 1
        gpus = {name: count * times for name, count in one.gpus.items()}
        return Cluster(gpus, gpus_per_server=dict(one.gpus_per_server))

    def run(self, trainings: Trainings, workloads: Path) -> dict[str, Any]:
        """The row of the run, made now."""
        world, own = settings_of(self.cluster, self.policy)
        chosen, cluster = preset("sia").replace(**world), self.gpus()
        seconds: list[float] = []
        policy = timed(chosen.make_policy(self.policy, cluster, **own), seconds)
        result = simulate(self.trace(workloads), cluster, policy, trainings, preset=chosen)
        times = np.sort(result.jobs["jct"].to_numpy())
        return vars(self) | {
            "jobs": len(times),
            "gpus": cluster.total_gpus,
            "average": float(times.mean()) / 3600.0,
            "p99": float(times[int(0.99 * len(times))]) / 3600.0,
            "contention": mean_contention(result.jobs),
            "restarts": float(result.jobs["preemptions"].mean()),
            "decision_median": float(np.median(seconds)),
            "decision_p95": float(np.percentile(seconds, 95)),
        }


def mean_contention(jobs: pd.DataFrame) -> float:
    """Jobs in the cluster on average, over the time in which there was any; of jobs that all completed."""
    arrival, end = np.sort(jobs["arrival_time"]), np.sort(jobs["completion_time"])
    # nobody is there where the next arrival comes after as many completions as there were arrivals
    empty = np.maximum(arrival[1:] - end[:-1], 0.0).sum()
    return float(jobs["jct"].sum() / (end[-1] - arrival[0] - empty))


KEY = ("kind", "factor", "cluster", "policy", "number")


def timed(policy: Policy, seconds: list[float]) -> Policy:
    """The policy; from now on it notes in `seconds` the processor time of each decision."""
    name = "plan" if policy.answers == "plan" else "allocate"
    decide = getattr(policy, name)

    def decide_timed(*arguments: Any) -> Any:
        began = time.process_time()
        answer = decide(*arguments)
        seconds.append(time.process_time() - began)
        return answer

    object.__setattr__(policy, name, decide_timed)
    return policy


def loads(draws: int = DRAWS) -> Iterator[Load]:
    """All runs, those that say most first."""
    for number in range(1, draws + 1):
        for factor in RATES:
            for policy in ("max_sum_throughput_perf", "sia"):
                yield Load("rate", factor, HETEROGENEOUS, policy, number)
        if number == 1:
            for factor in SIZES:
                for policy in ("max_sum_throughput_perf", "sia"):
                    yield Load("size", factor, HETEROGENEOUS, policy, 1)


def recorded() -> pd.DataFrame:
    """A row for each run: `KEY`, jobs, GPUs and `FIGURES`."""
    return pd.read_csv(RECORDED) if RECORDED.exists() else pd.DataFrame(columns=[*KEY, "jobs", "gpus", *FIGURES])


def record(*, draws: int, largest: int, anew: bool) -> None:
    """Make the runs that are not recorded, one after the other, and keep each as it is there."""
    rows = recorded().iloc[:0] if anew else recorded()
    there = set(rows[list(KEY)].itertuples(index=False, name=None))
    with tempfile.TemporaryDirectory() as folder:
        trainings, workloads = unpacked(Path(folder))
        for load in loads(draws):
            if tuple(vars(load).values()) in there or (load.kind == "size" and load.factor > largest):
                continue
            row = load.run(trainings, workloads)
            print(row, flush=True)
            rows = pd.DataFrame([*rows.to_dict("records"), row]).sort_values(list(KEY))
            rows.to_csv(RECORDED, index=False, float_format="%.10g", lineterminator="\n")


def rates_table() -> str:
    """Means over the draws that were run, by jobs per hour on 64 GPUs of three types."""
    head = [
        "jobs per hour",
        "policy",
        "draws",
        "average JCT, h",
        "p99 JCT, h",
        "jobs in the cluster",
        "restarts of a job",
    ]
    return _table(head, "rate", lambda factor: str(factor))


def sizes_table() -> str:
    """One draw of jobs, by GPUs."""
    head = ["GPUs, jobs", "policy", "draws", "average JCT, h", "p99 JCT, h", "jobs in the cluster", "restarts of a job"]
    return _table(head, "size", lambda factor: f"{64 * factor:,}, {160 * factor:,}")


def _table(head: list[str], kind: str, name: Callable[[int], str]) -> str:
    rows = recorded()
    lines = [f"| {' | '.join([*head, 'a decision, ms (p95)'])} |", "|---" * (len(head) + 1) + "|"]
    for (factor, policy), runs in rows[rows["kind"] == kind].groupby(["factor", "policy"]):
        mean = runs[list(FIGURES)].mean()
        decision = f"{1000 * mean['decision_median']:.1f} ({1000 * mean['decision_p95']:.1f})"
        figures = [f"{mean['average']:.2f}", *(f"{mean[figure]:.1f}" for figure in FIGURES[1:4]), decision]
        lines.append(f"| {name(factor)} | {NAMES[policy]} | {len(runs)} | {' | '.join(figures)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--draws", type=int, default=DRAWS)
    arguments.add_argument("--up-to", type=int, default=SIZES[-1])
    arguments.add_argument("--anew", action="store_true")
    chosen_arguments = arguments.parse_args()
    record(draws=chosen_arguments.draws, largest=chosen_arguments.up_to, anew=chosen_arguments.anew)
