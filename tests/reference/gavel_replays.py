"""Recorded runs of the original of Gavel (Narayanan et al., OSDI 2020), and the same runs here."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from allocator import Cluster, Policy, read_table, read_trace, simulate
from allocator.presets import preset
from allocator.results.result import SimulationResult
from tests.conftest import _data_root, _reference_root

read_once = cache(read_table)

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

THROUGHPUTS = "gavel/simulation_throughputs.json.gz"
RUNS = "gavel/sim_results.jsonl.gz"

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


def runs_of() -> list[tuple[str, str]]:
    """(trace, policy) of the recorded runs."""
    return [(trace, policy) for trace, names in RECORDED.items() for policy in names.split()]


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


def cluster_of(run: dict[str, Any]) -> Cluster:
    """GPUs of a recorded run, numbered by types in alphabetical order as in the original."""
    return Cluster(dict(sorted(zip(("v100", "p100", "k80"), map(int, run["cluster"].split(":")), strict=True))))


def run_with(
    policy: Policy, trace: str, cluster: Cluster, data: Callable[[str], Path], seed: int = 0
) -> SimulationResult:
    """A run on a published trace, whose file `data` finds, as it finds the throughputs."""
    table = read_once(data(THROUGHPUTS))
    return simulate(read_trace(data(f"gavel/traces/{trace}.trace")), cluster, policy, table, preset="gavel", seed=seed)


def replay(run: dict[str, Any], data: Callable[[str], Path]) -> SimulationResult:
    """The recorded run of a policy, which is as the preset has it."""
    policy = preset("gavel").make_policy(run["policy"], cluster_of(run))
    return run_with(policy, run["trace"].removesuffix(".trace"), cluster_of(run), data, run["seed"])


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


def table(runs: list[tuple[str, str]]) -> str:
    """Agreement of these runs under the preset as it comes, from new runs."""
    found: dict[str, dict[str, str]] = {}
    for trace, policy in sorted(runs, key=lambda run: (_ORDER.index(run[1]) if run[1] in _ORDER else 0, run[0])):
        run = _recorded()[trace, policy]
        found.setdefault(policy, {})[trace] = agreement(replay(run, _public), run)
    lines = ["| policy | trace | difference |", "|---|---|---|"]
    for policy, rows in found.items():
        alike = len(rows) > 1 and len(set(rows.values())) == 1
        named = {f"all {len(rows)}": next(iter(rows.values()))} if alike else rows
        lines += [f"| {policy} | {trace.removesuffix(SEED)} | {row} |" for trace, row in named.items()]
    return "\n".join(lines)


def _public(name: str) -> Path:
    return _data_root() / name


@cache
def _recorded() -> dict[tuple[str, str], dict[str, Any]]:
    return recorded_runs(_reference_root() / RUNS)


def printed_cells(rows: list[list[str]]) -> dict[tuple[str, str], str]:
    """The cells of the rows of such a table by trace and policy; a row for all traces stands for each."""
    found = {}
    for policy, listed, cell in rows:
        traces = [name for name, other in (*runs_of(), *FILLING, *PAIRS) if policy == other]
        found |= {(each, policy): cell for each in traces if listed in (each.removesuffix(SEED), f"all {len(traces)}")}
    return found
