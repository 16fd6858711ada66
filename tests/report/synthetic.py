"""Plausible results without a simulator: policies that differ in order and in how much they preempt."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from allocator.cluster import Cluster
from allocator.protocol.allocation import Allocation
from allocator.results.result import SimulationResult
from throughputs import ThroughputMatrix

ROUND_SECONDS = 360.0
JOB_TYPES = (
    "ResNet-18 (batch size 64)",
    "ResNet-50 (batch size 128)",
    "Transformer (batch size 32)",
    "LM (batch size 20)",
    "Recommendation (batch size 2048)",
    "A3C",
)
POLICIES = (
    "fifo",
    "isolated",
    "max_min_fairness",
    "max_min_fairness_perf",
    "finish_time_fairness_perf",
    "max_sum_throughput_perf",
    "min_total_duration_perf",
    "allox",
)


@dataclass
class _Trace:
    types: list[str]
    scale: NDArray[np.int64]
    work: NDArray[np.float64]  # seconds on the fastest type
    arrival: NDArray[np.float64]
    rates: NDArray[np.float64]  # relative to the fastest type


def _trace(n_jobs: int, n_types: int, seed: int, job_types: Sequence[str]) -> _Trace:
    rng = np.random.default_rng(seed)
    speed = np.array([1.0, 0.6, 0.25, 0.2])[:n_types]
    return _Trace(
        types=[job_types[k] for k in rng.integers(len(job_types), size=n_jobs)],
        scale=rng.choice([1, 2, 4, 8], p=[0.6, 0.2, 0.15, 0.05], size=n_jobs),
        work=10 ** rng.uniform(4.2, 5.4, size=n_jobs),
        arrival=np.sort(rng.uniform(0, 60 * 3600, size=n_jobs)).round(1),
        rates=np.clip(speed * rng.uniform(0.7, 1.3, size=(n_jobs, n_types)), 0.05, 1.0),
    )


def make_result(
    policy: str = "fifo",
    *,
    n_jobs: int = 100,
    n_rounds: int = 1500,
    cluster: str = "v100:36,p100:36,k80:36",
    churn: float = 0.0,
    seed: int = 0,
    decide_every: int = 20,
    job_types: Sequence[str] = JOB_TYPES,
    prices: bool = True,
) -> SimulationResult:
    """Run a list of jobs in rounds; `churn` is the fraction of rounds in which running jobs change places."""
    machine = Cluster.parse(cluster)
    trace = _trace(n_jobs, len(machine.accelerators), seed, job_types)
    rng = np.random.default_rng([seed, sum(policy.encode())])
    left, completion = trace.work.copy(), np.full(n_jobs, np.nan)
    start, ran, gpu_time = np.full(n_jobs, np.nan), np.zeros(n_jobs, int), np.zeros(n_jobs)
    rows, timeline, decisions = [], [], []
    places: dict[int, tuple[int, list[int]]] = {}
    for number in range(n_rounds):
        clock = number * ROUND_SECONDS
        active = [j for j in range(n_jobs) if trace.arrival[j] <= clock and left[j] > 0]
        if not active and clock > trace.arrival.max(initial=0):
            break
        if rng.random() < churn:
            places = {}
            rng.shuffle(active)
        places = _place(machine, trace, active, places)
        for job, (kind, gpus) in places.items():
            needed = left[job] / trace.rates[job, kind]
            end = clock + min(ROUND_SECONDS, needed)
            left[job] = 0.0 if needed <= ROUND_SECONDS else left[job] - trace.rates[job, kind] * ROUND_SECONDS
            if left[job] <= 0:
                completion[job] = end
            start[job] = clock if np.isnan(start[job]) else start[job]
            ran[job] += 1
            gpu_time[job] += len(gpus) * (end - clock)
            ids = " ".join(map(str, gpus))
            rows.append(
                (
                    number,
                    clock,
                    end,
                    job,
                    machine.accelerators[kind],
                    ids,
                    trace.rates[job, kind] * (end - clock),
                )
            )
        busy = sum(len(gpus) for _, gpus in places.values())
        queued = len(active) - len(places)
        timeline.append((number, clock, clock + ROUND_SECONDS, len(active), len(places), queued, busy))
        if decide_every and number % decide_every == 0 and active:
            decisions.append((number, clock, _allocation(policy, machine, trace, sorted(active), rng, prices)))
    jct = completion - trace.arrival
    isolated = trace.work * 1.9
    jobs = pd.DataFrame(
        {
            "job_id": np.arange(n_jobs),
            "job_type": trace.types,
            "scale_factor": trace.scale,
            "priority_weight": 1.0,
            "total_steps": trace.work,
            "arrival_time": trace.arrival,
            "start_time": start,
            "completion_time": completion,
            "jct": jct,
            "isolated_jct": isolated,
            "rho": jct / isolated,
            "gpu_seconds": gpu_time,
            "rounds_run": ran,
            "preemptions": 0,
            "status": pd.Categorical(np.where(np.isnan(completion), "unfinished", "completed")),
        }
    )
    makespan = float(np.nanmax(completion)) if np.isfinite(completion).any() else float("nan")
    rounds = pd.DataFrame(
        rows, columns=["round", "start_time", "end_time", "job_id", "accelerator", "gpus", "steps"]
    ).astype({"accelerator": "category"})
    columns = ["round", "start_time", "end_time", "active_jobs", "running_jobs", "queued_jobs", "busy_gpus"]
    return SimulationResult(
        policy=policy,
        cluster=machine,
        settings={
            "trace": "synthetic, 100 jobs",
            "preset": "gavel",
            "round_seconds": 360,
            "policy": policy,
            "seed": seed,
        },
        jobs=jobs,
        rounds=rounds,
        timeline=pd.DataFrame(timeline, columns=columns),
        makespan=makespan,
        utilization=gpu_time.sum() / (machine.total_gpus * makespan),
        policy_seconds=float(rng.uniform(0.1, 30)),
        wall_seconds=40.0,
        decisions=tuple(decisions),
    )


def changed(result: SimulationResult, **changes: Any) -> SimulationResult:
    """The result with some of its attributes or tables replaced."""
    names = [field.name for field in fields(result)] + ["jobs", "rounds", "timeline"]
    return SimulationResult(**{name: getattr(result, name) for name in names} | changes)


def make_results(n_policies: int = len(POLICIES), **options: Any) -> list[SimulationResult]:
    """Several policies on one trace; the first never preempts, the last in almost every round."""
    churn = np.linspace(0, 0.95, n_policies) ** 2
    names = [POLICIES[k] if k < len(POLICIES) else f"policy_{k}" for k in range(n_policies)]
    return [make_result(name, churn=float(churn[k]), **options) for k, name in enumerate(names)]


def _place(
    machine: Cluster, trace: _Trace, order: list[int], old: dict[int, tuple[int, list[int]]]
) -> dict[int, tuple[int, list[int]]]:
    active = set(order)
    kept = {job: place for job, place in old.items() if job in active}
    taken = {gpu for _, gpus in kept.values() for gpu in gpus}
    free = [
        [gpu for gpu in range(first, first + count) if gpu not in taken]
        for first, count in zip(machine.first_gpu.tolist(), machine.capacity.tolist(), strict=True)
    ]
    for job in order:
        if job in kept:
            continue
        kind = next((m for m in range(len(free)) if len(free[m]) >= trace.scale[job]), None)
        if kind is not None:
            kept[job] = (kind, [free[kind].pop(0) for _ in range(int(trace.scale[job]))])
    return kept


def _allocation(
    policy: str, machine: Cluster, trace: _Trace, active: list[int], rng: np.random.Generator, prices: bool
) -> Allocation:
    matrix = ThroughputMatrix(trace.rates[active], active, machine.accelerators, trace.scale[active])
    shares = rng.dirichlet(np.full(len(machine.accelerators) + 1, 0.4), size=len(active))[:, :-1]
    shares[shares < 0.05] = 0.0
    program = "fair" in policy
    return Allocation(
        policy=policy,
        throughputs=matrix,
        shares=shares,
        status="optimal" if program else "order",
        certified=program,
        objective=float(shares.sum()) if program else np.nan,
        objective_unit="normalised throughput" if program else "",
        gap=3e-9 if program else np.nan,
        prices=rng.uniform(0, 0.02, size=len(machine.accelerators)) if prices else None,
        solver="interior point" if program else "",
        seconds=0.0034,
    )
