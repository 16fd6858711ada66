"""Whole simulations: rounds per second beside the original system's.

The workload is the published generator's 200 single-GPU jobs (mean inter-arrival 300 s, seed 0) on 36 v100, 36 p100
and 36 k80: draw for draw the trace of the recorded run.
"""

from __future__ import annotations

import statistics
import time
from typing import Any

from rich.console import Console
from rich.table import Table

from allocator import Cluster, default_table, get_policy, simulate
from allocator.presets import preset
from allocator.registry import settings_of
from throughputs import gavel_trace

# Rounds and wall seconds of the original on this workload (its public code, ECOS, one loaded two-core machine).
RECORDED = {
    "max_min_fairness_perf": (1584, 28.973),
    "max_min_fairness": (2563, 45.725),
    "isolated": (2565, 30.878),
    "fifo_perf": (1600, 17.009),
}


def measure(*, quick: bool, console: Console) -> list[dict[str, Any]]:
    """One row per policy and preset."""
    repetitions = 2 if quick else 9
    trace, cluster = gavel_trace(200, 300.0, seed=0), Cluster({"v100": 36, "p100": 36, "k80": 36})
    rows = []
    for name, (rounds, seconds) in RECORDED.items():
        for preset_name in ("gavel", "default"):
            with console.status(f"{name}, preset {preset_name}"):
                rows.append(measure_one(name, preset_name, trace, cluster, repetitions) | recorded(rounds, seconds))
                rows[-1]["ratio"] = rows[-1]["rounds_per_second"] / rows[-1]["recorded_rounds_per_second"]
    return rows


def recorded(rounds: int, seconds: float) -> dict[str, float]:
    """The original's figures."""
    return {"recorded_rounds": rounds, "recorded_wall_seconds": seconds, "recorded_rounds_per_second": rounds / seconds}


def measure_one(name: str, preset_name: str, trace: Any, cluster: Cluster, repetitions: int) -> dict[str, Any]:
    """Median CPU time of the simulation, the policy's part of it, and what came out."""
    settings = {"choice": preset(preset_name).choice} if "choice" in settings_of(name) else {}
    policy, throughputs = get_policy(name, **settings), default_table()
    simulate(trace.head(20), cluster, policy, throughputs, preset=preset_name)
    seconds, policy_seconds = [], []
    for _ in range(repetitions):
        started = time.process_time()
        result = simulate(trace, cluster, policy, throughputs, preset=preset_name)
        seconds.append(time.process_time() - started)
        policy_seconds.append(result.policy_seconds)
    summary = result.summary()
    return {
        "policy": name,
        "preset": preset_name,
        "rounds": summary["rounds"],
        "policy_calls": summary["policy_calls"],
        "seconds": statistics.median(seconds),
        "policy_seconds": statistics.median(policy_seconds),
        "rounds_per_second": summary["rounds"] / statistics.median(seconds),
        "average_jct": summary["average_jct"],
        "makespan": summary["makespan"],
    }


def table(rows: list[dict[str, Any]]) -> Table:
    """The rows for people."""
    shown = Table(title="Simulation of 200 jobs on 36:36:36, median CPU time, beside the original's recorded run")
    columns = ("policy", "preset", "rounds", "calls", "seconds", "in policy", "rounds/s", "original rounds/s", "ratio")
    for name in columns:
        shown.add_column(name, justify="left" if name in ("policy", "preset") else "right")
    for row in rows:
        shown.add_row(
            row["policy"],
            row["preset"],
            str(row["rounds"]),
            str(row["policy_calls"]),
            f"{row['seconds']:.3f}",
            f"{row['policy_seconds']:.3f}",
            f"{row['rounds_per_second']:,.0f}",
            f"{row['recorded_rounds_per_second']:.1f}",
            f"{row['ratio']:.0f}x",
        )
    return shown
