"""The comparison of Shockwave (Zheng et al., NSDI 2023) on other clusters and other draws of its jobs."""

from __future__ import annotations

import csv
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from allocator import Cluster, read_table, read_trace, simulate
from allocator.policies.shockwave.policy import Shockwave
from allocator.presets import preset
from allocator.published.shockwave import SHOCKWAVE_COMPARISON, SHOCKWAVE_LABELS, SHOCKWAVE_WEIGHTS
from allocator.published.shockwave.generator import shockwave_trace
from allocator.results.result import SimulationResult
from formulations.shockwave import PlanningProgram
from tests.conftest import _data_root, _reference_root
from throughputs import ThroughputTable, Trace

MIX = "0,0.5,0.5_0.6,0.3,0.09,0.01_multigpu_dynamic"
"""End of the names of the published traces: modes of training and gangs."""

WORKLOADS = {
    32: ("tacc", "120_0.2_5_100_40_25"),
    64: ("wisr", "220_0.2_5_100_25_4"),
    128: ("wisr", "460_0.2_5_100_10_1"),
    256: ("wisr", "900_0.2_5_1000_5_15"),
}
"""Throughput table and trace that were published for so many GPUs."""

LINEAR = ("max_min_fairness", "min_total_duration", "max_sum_throughput_perf")
"""Policies whose programs ECOS solves under the preset as it comes."""

SEEDS = (*range(1, 11), 25)
"""Draws of jobs; 25 is the published one."""


@cache
def throughputs_of(name: str) -> ThroughputTable:
    """The published throughput table."""
    return read_table(_data_root() / f"shockwave/{name}_throughputs.json.gz")


@cache
def published_jobs(gpus: int) -> Trace:
    """The published jobs for a cluster of that size."""
    return read_trace(_data_root() / f"shockwave/traces/{WORKLOADS[gpus][1]}_{MIX}.trace")


class FromTheStart(Shockwave):
    """Rho counts from the start of the clock."""

    def _program(self, *given: Any) -> PlanningProgram:
        return replace(super()._program(*given), start_seconds=0.0)


def run(
    policy: str, gpus: int, trace: Trace, table: str, preset_name: str = "shockwave", weights_of: int = 0, **own: Any
) -> SimulationResult:
    """One run under a preset, with its settings of the policy and others above them.

    `weights_of` is the number of GPUs whose k and lambda are taken; those of the cluster unless it is given.
    """
    chosen, cluster = preset(preset_name), Cluster({"v100": gpus})
    kind = own.pop("kind", None)
    made = chosen.make_policy(policy, Cluster({"v100": weights_of or gpus}), **own)
    made = made if kind is None else kind(**made.settings())
    return simulate(trace, cluster, made, throughputs_of(table), preset=chosen)


def completion_times(policy: str, gpus: int, solver: str) -> NDArray[np.float64]:
    """(N,) seconds, of the published jobs for that cluster in the published world."""
    table, _ = WORKLOADS[gpus]
    return run(policy, gpus, published_jobs(gpus), table, "shockwave_published", solver=solver).jobs["jct"].to_numpy()


def row_of_weights(gpus: int, preset_name: str, weights_of: int) -> str:
    """Figures of Shockwave on the published jobs for that cluster, with the k and lambda of a cluster size."""
    table, _ = WORKLOADS[gpus]
    found = run("shockwave", gpus, published_jobs(gpus), table, preset_name, weights_of).summary()
    weights = SHOCKWAVE_WEIGHTS[weights_of]
    figures = (
        f"{found['makespan']:,.0f}",
        f"{found['average_jct']:,.0f}",
        f"{found['worst_rho_static']:.2f}",
        f"{100 * found['unfair_fraction_static']:.1f}",
    )
    named = f"{weights['makespan_weight']:g}, {weights['fairness_exponent']:g} (those of {weights_of})"
    return f"| {gpus} | `{preset_name}` | {named} | {' | '.join(figures)} |"


def table_of_weights() -> str:
    """Shockwave on larger clusters, with the weights published for 32 GPUs and with those for the cluster."""
    lines = ["| GPUs | preset | k, lambda | makespan (s) | average JCT (s) | worst rho | unfair % |", "|---" * 7 + "|"]
    for gpus in (64, 128, 256):
        for name in ("shockwave", "shockwave_published"):
            lines += [row_of_weights(gpus, name, weights_of) for weights_of in (32, gpus)]
    return "\n".join(lines)


@cache
def figures_of_seed(seed: int) -> dict[str, tuple[float, float, float, float]]:
    """Makespan, average JCT, worst rho and share of unfair jobs by policy, for one draw of 120 jobs on 32 GPUs."""
    trace = shockwave_trace(120, 40.0, seed=seed, table=throughputs_of("tacc"))
    found = {}
    for policy in SHOCKWAVE_COMPARISON:
        summary = run(policy, 32, trace, "tacc").summary()
        names = ("makespan", "average_jct", "worst_rho_static", "unfair_fraction_static")
        found[policy] = tuple(float(summary[name]) for name in names)
    return found  # type: ignore[return-value]


def behind_the_best(seed: int) -> tuple[float, float]:
    """Shockwave's makespan and average JCT over the best of any other policy, less 1."""
    figures = figures_of_seed(seed)
    ours, *others = (figures[name][:2] for name in SHOCKWAVE_COMPARISON)
    makespan, jct = (ours[k] / min(other[k] for other in others) - 1 for k in range(2))
    return makespan, jct


def row_of_seed(seed: int) -> str:
    """How Shockwave fares beside the others with one draw."""
    figures, (makespan, jct) = figures_of_seed(seed), behind_the_best(seed)
    fewest = min(figures[name][3] for name in figures if name != "shockwave")
    rho = f"{figures['shockwave'][2]:.2f} / {figures['gandiva_fair'][2]:.2f}"
    unfair = f"{100 * figures['shockwave'][3]:.1f} / {100 * fewest:.1f}"
    return f"| {seed} | {_signed(makespan)} | {_signed(jct)} | {rho} | {unfair} |"


def _signed(part: float) -> str:
    text = f"{100 * part:+.1f}"
    return "0.0" if float(text) == 0 else text


def table_of_seeds() -> str:
    """How Shockwave fares beside the others, draw by draw."""
    lines = [
        "| seed | makespan, % above the best other | average JCT, % above the best other "
        "| worst rho: shockwave / gandiva_fair | unfair %: shockwave / fewest other |",
        "|---|---|---|---|---|",
        *(row_of_seed(seed) for seed in SEEDS),
    ]
    means = np.mean([behind_the_best(seed) for seed in SEEDS if seed != 25], axis=0)
    lines.append(f"| mean of 1 to 10 | {_signed(means[0])} | {_signed(means[1])} | | |")
    return "\n".join(lines)


@cache
def published() -> dict[tuple[str, str, str], dict[str, str]]:
    """Figures that the authors published for the canonical jobs: by group, policy and kind (simulation, physical)."""
    with open(_reference_root() / "shockwave/published/summary.csv", newline="") as file:
        return {(row["group"], row["policy_file"], row["kind"]): row for row in csv.DictReader(file)}


PUBLISHED_RUNS = {
    "published": ("tacc_32gpus", "shockwave"),
    "published, older version": ("tacc_32gpus", "old_shockwave"),
    "published, other hyperparameters": ("tacc_32gpus", "new_orig_hyperparam_shockwave"),
    "published, second set of results": ("tacc_32gpus_comparison", "shockwave"),
}
OUR_RUNS: dict[str, tuple[str, dict[str, Any]]] = {
    "preset `shockwave_published`": ("shockwave_published", {}),
    "preset `shockwave`, the default policy": ("shockwave", {}),
    'the same, `forecast="oracle"`': ("shockwave", {"forecast": "oracle"}),
    'the same, `forecast="true"`: batch sizes known to the end': ("shockwave", {"forecast": "true"}),
    "oracle forecast, `momentum=0.9`, rho from the start of the clock: as published but for the cap on priorities": (
        "shockwave",
        {"forecast": "oracle", "momentum": 0.9, "kind": FromTheStart},
    ),
}


def row_of_run(name: str) -> str:
    """Figures of one run of Shockwave on the canonical jobs."""
    if name in PUBLISHED_RUNS:
        row = published()[*PUBLISHED_RUNS[name], "simulation"]
        wanted = ("makespan", "avg_jct", "worst_rho", "unfair_pct_gt1_05", "unfair_pct_gt1_1", "cluster_util")
        figures = [float(row[column]) for column in wanted]
    else:
        chosen, settings = OUR_RUNS[name]
        summary = canonical("shockwave", chosen, **settings).summary()
        unfair = (100 * float(summary[f"{how}unfair_fraction_static"]) for how in ("", "very_"))
        figures = [summary["makespan"], summary["average_jct"], summary["worst_rho_static"], *unfair]
        figures.append(summary["utilization"])
    makespan, jct, rho, unfair_part, very, busy = figures
    return f"| {name} | {makespan:,.0f} | {jct:,.0f} | {rho:.3f} | {unfair_part:.2f} / {very:.2f} | {busy:.3f} |"


@cache
def canonical(policy: str, preset_name: str, **own: Any) -> SimulationResult:
    """A run of the canonical jobs."""
    return run(policy, 32, published_jobs(32), "tacc", preset_name, **own)


def table_of_runs() -> str:
    """Runs of Shockwave on the canonical jobs, published ones and ours."""
    head = "| run | makespan (s) | average JCT (s) | worst rho | unfair % (rho above 1.05 / 1.1) | utilisation |"
    return "\n".join([head, "|---|---|---|---|---|---|", *(row_of_run(name) for name in (*PUBLISHED_RUNS, *OUR_RUNS))])


def row_of_policy(policy: str) -> str:
    """Figures of a policy on the canonical jobs under the preset `shockwave`, beside the published ones."""
    ours, theirs = canonical(policy, "shockwave").summary(), published()["tacc_32gpus", policy, "simulation"]
    cells = (
        f"{ours['makespan']:,.0f} / {float(theirs['makespan']):,.0f}",
        f"{ours['average_jct']:,.0f} / {float(theirs['avg_jct']):,.0f}",
        f"{ours['worst_rho_static']:.2f} / {float(theirs['worst_rho']):.2f}",
        f"{100 * ours['unfair_fraction_static']:.1f} / {float(theirs['unfair_pct_gt1_05']):.1f}",
    )
    return f"| {policy} | {SHOCKWAVE_LABELS.get(policy, policy)} | {' | '.join(cells)} |"


def table_of_policies() -> str:
    """The seven policies beside the published simulation."""
    head = (
        "| policy | in the paper | makespan (s): ours / published | average JCT (s): ours / published "
        "| worst rho | unfair % |"
    )
    return "\n".join([head, "|---|---|---|---|---|---|", *(row_of_policy(policy) for policy in SHOCKWAVE_COMPARISON)])


DAYLIGHT_SAVING_SECONDS = 3600.0
"""What the clock of the physical run of finish_time_fairness lost; the authors add it to its makespan."""


def row_of_machines(policy: str) -> str:
    """A policy on 32 real GPUs, in the authors' simulation of them, and here."""
    group = "tacc_32gpus_comparison"
    physical, simulated = (published()[group, policy, kind] for kind in ("physical", "simulation"))
    ours, lost = (
        canonical(policy, "shockwave_published").summary(),
        DAYLIGHT_SAVING_SECONDS * (policy == "finish_time_fairness"),
    )
    cells = (
        f"{float(physical['makespan']) + lost:,.0f} | {float(simulated['makespan']):,.0f} | {ours['makespan']:,.0f}",
        f"{float(physical['avg_jct']):,.0f} | {float(simulated['avg_jct']):,.0f} | {ours['average_jct']:,.0f}",
        f"{float(physical['worst_rho']):.2f} | {float(simulated['worst_rho']):.2f} | {ours['worst_rho_static']:.2f}",
    )
    return f"| {policy} | {' | '.join(cells)} |"


def table_of_machines() -> str:
    """The physical cluster, the authors' simulation of it, and ours."""
    columns = [f"{what}: physical | their simulation | ours" for what in ("makespan", "average JCT", "worst rho")]
    rows = [row_of_machines(policy) for policy in SHOCKWAVE_COMPARISON if policy != "gandiva_fair"]
    return "\n".join([f"| policy | {' | '.join(columns)} |", "|---" * 10 + "|", *rows])
