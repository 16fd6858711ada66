"""Long runs: a month of jobs under an order that decides at events, and one job of a billion equal rounds."""

from __future__ import annotations

import time
from typing import Any

from rich.console import Console
from rich.table import Table

from allocator import Cluster, default_table, get_policy, simulate
from allocator.presets import preset_names
from throughputs import Trace, gavel_trace

MONTH_SECONDS = 30 * 86_400
JOBS = 24_000
GPUS_PER_TYPE = 400
ROUNDS = 1e9


def measure(*, quick: bool, console: Console) -> list[dict[str, Any]]:
    """One row per run: least CPU time, decisions, and stretches that were recorded."""
    jobs = 1_000 if quick else JOBS
    table, cluster = default_table(), Cluster(dict.fromkeys(("v100", "p100", "k80"), GPUS_PER_TYPE))
    month = gavel_trace(jobs, MONTH_SECONDS / JOBS, seed=0)
    rate = table.rates(["LM (batch size 20)"], [1], ["v100"])[0, 0]
    runs: list[tuple[str, dict[str, Any]]] = [
        (f"{jobs:,} jobs, srtf", {"trace": month, "cluster": cluster, "policy": get_policy("srtf")})
    ]
    for name in preset_names():
        job = Trace(["LM (batch size 20)"], [1], [rate * 360.0 * ROUNDS], [0.0])
        policy = get_policy("max_min_fairness_perf")
        runs.append(
            (f"1e9 rounds, {name}", {"trace": job, "cluster": Cluster({"v100": 4}), "policy": policy, "preset": name})
        )
    rows = []
    for label, arguments in runs:
        with console.status(label):
            seconds = []
            for _ in range(1 if quick else 3):
                started = time.process_time()
                result = simulate(throughputs=table, **arguments)
                seconds.append(time.process_time() - started)
        assert result.record is not None
        rows.append(
            {
                "run": label,
                "seconds": min(seconds),
                "policy_calls": result.policy_calls,
                "recorded": len(result.record.outcomes),
            }
        )
    return rows


def table(rows: list[dict[str, Any]]) -> Table:
    """The rows for people."""
    shown = Table(title="Long runs, least CPU time of three")
    for name in ("run", "seconds", "decisions", "stretches recorded"):
        shown.add_column(name, justify="left" if name == "run" else "right")
    for row in rows:
        shown.add_row(row["run"], f"{row['seconds']:.2f}", f"{row['policy_calls']:,}", f"{row['recorded']:,}")
    return shown
