"""Recorded runs of the original of Gavel (Narayanan et al., OSDI 2020), and the same runs here."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from allocator import Cluster, get_policy, read_table, read_trace, simulate
from allocator.registry import settings_of
from allocator.results.result import SimulationResult
from tests.conftest import _data_root, _reference_root
from throughputs import ThroughputTable, Trace

RECORDED = {
    "n100_lam0_multi1_prio0_seed0": """
        fifo_perf max_min_fairness_perf min_total_duration min_total_duration_perf
    """,
    "n100_lam1200_multi1_prio0_seed0": """
        isolated fifo_perf max_min_fairness max_min_fairness_perf finish_time_fairness
        finish_time_fairness_perf min_total_duration min_total_duration_perf max_sum_throughput_perf
    """,
    "n100_lam1200_multi1_prio1_seed0": """
        isolated max_min_fairness max_min_fairness_perf
    """,
    "n120_lam600_multi0_prio0_seed0": """
        isolated fifo_perf max_min_fairness max_min_fairness_perf finish_time_fairness
        finish_time_fairness_perf min_total_duration min_total_duration_perf max_sum_throughput_perf
    """,
    "n150_lam600_multi1_prio0_seed0": """
        isolated fifo_perf max_min_fairness max_min_fairness_perf
    """,
    "n200_lam300_multi0_prio0_seed0": """
        isolated fifo_perf max_min_fairness max_min_fairness_perf
    """,
    "n40_lam1800_multi1_prio0_seed0": """
        isolated fifo_perf max_min_fairness max_min_fairness_perf finish_time_fairness
        finish_time_fairness_perf min_total_duration min_total_duration_perf max_sum_throughput_perf
    """,
    "n40_lam900_multi0_prio0_seed0": """
        isolated fifo_perf max_min_fairness max_min_fairness_perf finish_time_fairness
        finish_time_fairness_perf min_total_duration min_total_duration_perf max_sum_throughput_perf
    """,
}
"""Policies that the original was run with, by trace."""

FILLING = [
    (f"{trace}_seed0", policy)
    for policy, traces in {
        "max_min_fairness_water_filling_perf": """
            n100_lam1200_multi1_prio0 n100_lam1200_multi1_prio1 n120_lam600_multi0_prio0
            n200_lam300_multi0_prio0 n40_lam1800_multi1_prio0 n40_lam900_multi0_prio0
        """,
        "max_min_fairness_water_filling": """
            n100_lam1200_multi1_prio0 n120_lam600_multi0_prio0 n40_lam1800_multi1_prio0 n40_lam900_multi0_prio0
        """,
    }.items()
    for trace in traces.split()
]
"""(trace, policy) of the recorded runs of water filling, which the original solves with ECOS and GLPK in turn."""

PAIRS = [
    (f"{trace}_seed0", policy)
    for policy, traces in {
        "min_total_duration_packed": "n40_lam900_multi0_prio0",
        "max_min_fairness_packed": "n40_lam900_multi0_prio0",
        "max_min_fairness_water_filling_packed": "n40_lam900_multi0_prio0",
        "finish_time_fairness_packed": "n40_lam900_multi0_prio0",
        "fifo_packed": "n40_lam1800_multi1_prio0 n40_lam900_multi0_prio0",
        "allox": "n120_lam600_multi0_prio0 n200_lam300_multi0_prio0 n40_lam900_multi0_prio0",
    }.items()
    for trace in traces.split()
]
"""(trace, policy) of the recorded runs with pairs, and of those of AlloX."""

SEED = "_seed0"
"""End of the name of every trace."""

_ORDER = (
    "isolated",
    "fifo_perf",
    "max_min_fairness_perf",
    "finish_time_fairness_perf",
    "min_total_duration_perf",
    "max_sum_throughput_perf",
    "max_min_fairness",
    "finish_time_fairness",
    "min_total_duration",
)

ORDERS = ("isolated", "fifo_perf")
"""Those that solve no program."""

PATHS: dict[str, dict[str, str]] = {
    "auto": {"choice": "published"},
    "homogeneous": {"choice": "published", "solver": "homogeneous"},
    "ecos": {"choice": "published", "solver": "ecos"},
}
"""Settings of policies by the column of the table in docs/fidelity.md; `auto` is what the preset says."""


def runs_of(*policies: str) -> list[tuple[str, str]]:
    """(trace, policy) of the recorded runs; of some policies only if any are named."""
    return [
        (trace, policy)
        for trace, names in RECORDED.items()
        for policy in names.split()
        if policy in policies or not policies
    ]


def recorded_runs(path: Path) -> dict[tuple[str, str], dict[str, Any]]:
    """The runs in the usual setting that a file of recordings holds, by trace and policy."""
    usual = {"gen": None, "window": None, "interval": 360, "per_server": "1:1:1", "status": "ok", "ideal": False}
    with gzip.open(path, "rt") as lines:
        runs = [json.loads(line) for line in lines]
    return {
        (run["trace"].removesuffix(".trace"), run["policy"]): run
        for run in runs
        if run["trace"] and all(run[key] == value for key, value in usual.items())
    }


def replay(run: dict[str, Any], trace: Trace, table: ThroughputTable, **settings: str) -> SimulationResult:
    """The recorded run of a policy with these settings, each of which it must have."""
    v100, p100, k80 = (int(count) for count in run["cluster"].split(":"))
    cluster = Cluster({"v100": v100, "p100": p100, "k80": k80})
    return simulate(trace, cluster, get_policy(run["policy"], **settings), table, preset="gavel", seed=run["seed"])


def recorded_jct(run: dict[str, Any]) -> NDArray[np.float64]:
    """(N,) seconds."""
    return np.array([run["jct_s"][str(job)] for job in range(len(run["jct_s"]))])


def agreement(result: SimulationResult, run: dict[str, Any]) -> str:
    """Differences of average JCT and makespan in per cent, and the share of jobs within a second of their record."""
    ours, theirs = result.jobs["jct"].to_numpy(), recorded_jct(run)
    average, makespan = ours.mean() / theirs.mean() - 1, result.makespan / run["makespan_s"] - 1
    near = int((np.abs(ours - theirs) <= 1.0).sum())
    # no run is called whole that is not
    share = 100 if near == len(ours) else min(round(100 * near / len(ours)), 99)
    return f"{_per_cent(average)} / {_per_cent(makespan)} ({share} %)"


def _per_cent(part: float) -> str:
    text = f"{100 * part:+.2f}"
    return "0" if float(text) == 0 else text


def table() -> str:
    """The table of agreement in docs/fidelity.md, from new runs."""
    runs = recorded_runs(_reference_root() / "gavel/sim_results.jsonl.gz")
    throughputs = read_table(_data_root() / "gavel/simulation_throughputs.json.gz")
    cells: dict[str, dict[str, tuple[str, ...]]] = {}
    for trace, policy in sorted(runs_of(), key=lambda run: (_ORDER.index(run[1]), run[0])):
        run = runs[trace, policy]
        jobs = read_trace(_data_root() / "gavel/traces" / run["trace"])
        cells.setdefault(policy, {})[trace] = tuple(
            agreement(replay(run, jobs, throughputs, **settings), run) if taken else ""
            for settings, taken in _columns(policy)
        )
    lines = [f"| policy | trace | {' | '.join(f'`{column}`' for column in PATHS)} |", "|---|---|---|---|---|"]
    for policy, rows in cells.items():
        alike = len(set(rows.values())) == 1
        named = {f"all {len(rows)}": next(iter(rows.values()))} if alike else rows
        lines += [f"| {policy} | {trace.removesuffix(SEED)} | {' | '.join(row)} |" for trace, row in named.items()]
    return "\n".join(lines)


def table_of_filling() -> str:
    """Agreement of the runs of water filling, from new runs."""
    return _table_of_one_column(FILLING)


def table_of_pairs() -> str:
    """Agreement of the runs with pairs, and of those of AlloX, from new runs."""
    return _table_of_one_column(PAIRS)


def _table_of_one_column(runs: list[tuple[str, str]]) -> str:
    return "\n".join(["| policy | trace | `auto` |", "|---|---|---|", *(row_of_run(*run) for run in runs)])


def row_of_run(trace: str, policy: str) -> str:
    """Agreement of one run with its record, under the preset as it comes."""
    run = recorded_runs(_reference_root() / "gavel/sim_results.jsonl.gz")[trace, policy]
    throughputs = read_table(_data_root() / "gavel/simulation_throughputs.json.gz")
    settings = PATHS["auto"] if "choice" in settings_of(policy) else {}
    result = replay(run, read_trace(_data_root() / "gavel/traces" / run["trace"]), throughputs, **settings)
    return f"| {policy} | {trace.removesuffix(SEED)} | {agreement(result, run)} |"


def _columns(policy: str) -> list[tuple[dict[str, str], bool]]:
    """Settings of each column, and whether the policy has one there."""
    if policy in ORDERS:
        return [({}, column == "auto") for column in PATHS]
    return [
        (settings, column != "homogeneous" or not policy.startswith("finish_time"))
        for column, settings in PATHS.items()
    ]


def printed_cells(rows: list[list[str]]) -> dict[tuple[str, str, str], str]:
    """The cells of the rows of that table by trace, policy and column; a row for all traces stands for each."""
    cells = {}
    for policy, listed, *row in rows:
        traces = [
            trace for trace, name in runs_of(policy) if listed in (trace.removesuffix(SEED), f"all {_count(policy)}")
        ]
        for trace in traces:
            for column, cell in zip(PATHS, row, strict=True):
                cells[trace, policy, column] = cell
    return cells


def _count(policy: str) -> int:
    return len(runs_of(policy))
