"""Tables of docs/goodput.md: errors of the embedded profiles, fits beside the recorded ones, and searches of Pollux."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np

from allocator import get_policy
from allocator.protocol import Assignment, ClusterState
from allocator.published.pollux.genetic import search_on_nodes
from benchmarks.decisions import draw_state
from benchmarks.fit_goodput import errors, fit_all
from formulations.goodput import solve_on_nodes
from tests.conftest import _data_root, _reference_root
from tests.reference import goodput_cases as cases
from tests.reference import pollux_cases
from throughputs.goodput import fit_model

ARCHIVE = "pollux_sia/sia_traces.tar.xz"

SAMPLES = {"one_gpu": "one GPU", "single_node": "one node", "full": "all"}
TYPES = {"aws": "T4", "rtx": "RTX 2080 Ti", "dgx-ext": "A100"}


def table_of_profiles() -> str:
    """The errors of new fits to the measurements."""
    with tempfile.TemporaryDirectory() as folder:
        return markdown_of_profiles(cases.unpacked(_data_root() / ARCHIVE, Path(folder)))


def markdown_of_profiles(tables: Path) -> str:
    """The table of the fits to these measurements."""
    lines = [
        "| model | steps measured | loss | step time: mean error | root mean square | largest | efficiency "
        "| steps of a training |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, samples, loss, mean, rms, largest, efficiency, steps in errors(fit_all(tables)):
        lines.append(f"| {name} | {samples} | {loss} | {mean} % | {rms} % | {largest} % | {efficiency} | {steps} % |")
    return "\n".join(lines)


def table_of_fits() -> str:
    """Losses of the recorded fits, and of new ones to the same samples."""
    with tempfile.TemporaryDirectory() as folder:
        return markdown_of_fits(cases.unpacked(_data_root() / ARCHIVE, Path(folder)))


def markdown_of_fits(tables: Path) -> str:
    """The table of the fits to these measurements."""
    heads = " | ".join(f"{label}: published | ours" for label in SAMPLES.values())
    lines = [f"| type | model | {heads} |", "|---|---|" + "---|" * 6]
    for cluster, label in TYPES.items():
        of_type = [case for case in cases.recorded() if case["cluster"] == cluster]
        for app in dict.fromkeys(case["app"] for case in of_type):
            cells = [
                cell
                for profile in SAMPLES
                for case in of_type
                if (case["app"], case["profile"]) == (app, profile)
                for cell in losses(case, tables)
            ]
            lines.append(f"| {label} | {app} | {' | '.join(f'{cell:.4f}' for cell in cells)} |")
    return "\n".join(lines)


def losses(case: dict, tables: Path) -> tuple[float, float]:
    """The recorded loss and ours, of the parameters that the samples say something about."""
    samples = cases.samples_of(case, tables)
    return recorded_loss(case, samples), fit_model(samples).loss


def recorded_loss(case: dict, samples: cases.Samples) -> float:
    """What the recorded parameters are worth in the fit: what is assumed of several nodes comes after it."""
    theta = np.array(cases.parameters(case))
    if (samples.nodes == 1).all():
        theta[2:4] = cases.LEAST
    return float(cases.loss_of(theta, samples))


DRAWN = ((40, 16), (160, 16))
"""Jobs and nodes of states that nobody recorded."""

SEARCHES = (100, 200)
"""Generations."""

SEEDS, FEWER_SEEDS = 5, 3


def table_of_searches() -> str:
    """How far below what is proven genetic searches of Pollux end."""
    return markdown_of_searches(_reference_root() / pollux_cases.RECORDED)


def markdown_of_searches(recorded: Path) -> str:
    """The table of the searches for these recorded cases, and for drawn states."""
    ours = " | ".join(f"ours, {generations} generations" for generations in SEARCHES)
    lines = [
        f"| jobs | nodes | published search, one run | {ours} | as jobs come | branch and bound |",
        "|---|---|---|---|---|---|---|",
    ]
    lines += [row_of_recorded(case) for case in pollux_cases.read(recorded)]
    for n_jobs, nodes in DRAWN:
        states = [draw_state(n_jobs, {"t4": (4 * nodes, 4)}, seed) for seed in range(FEWER_SEEDS)]
        cells = [
            mean_and_range([decided(state, generations, [n_jobs]) for state in states]) for generations in SEARCHES
        ]
        coming = [decided(state, SEARCHES[0], list(range(1, n_jobs + 1))) for state in states] if n_jobs <= 40 else []
        cells.append(mean_and_range(coming) if coming else "")
        lines.append(f"| {n_jobs} | {nodes} | | {' | '.join(cells)} | |")
    return "\n".join(lines)


def row_of_recorded(case: dict) -> str:
    """The row of a recorded case."""
    program = pollux_cases.node_program(case)
    worth = pollux_cases.without_restarts(case, program)
    exact = solve_on_nodes(program)
    below = [
        [
            1.0 - search_on_nodes(program, rng, generations, without_restarts=worth).fitness / exact.bound
            for rng in map(np.random.default_rng, range(SEEDS))
        ]
        for generations in SEARCHES
    ]
    published = percent(1.0 - case["ga"][0]["fitness"] / exact.bound)
    cells = [published, *map(mean_and_range, below), "", percent(exact.gap)]
    return f"| {case['n_jobs']} | {case['n_nodes']} | {' | '.join(cells)} |"


def decided(state: ClusterState, generations: int, jobs: list[int]) -> float:
    """Gap of the last decision about so many of the jobs in turn, of which each goes on from the one before."""
    policy = get_policy("pollux", search="genetic", generations=generations)
    memory, running = policy.new_memory(), Assignment.none()
    for count in jobs:
        there = state.take(np.arange(count))
        there.running = running
        plan = policy.plan(there, memory)
        running = plan.steps[0].assignment
    return float(1.0 - plan.allocation.objective / plan.allocation.bound)


def percent(share: float) -> str:
    return f"{100 * max(share, 0.0):.1f} %"


def mean_and_range(shares: list[float]) -> str:
    """The mean, and where they differ the least and the largest."""
    least, mean, most = percent(min(shares)), percent(float(np.mean(shares))), percent(max(shares))
    return mean if least == most else f"{mean} ({least.removesuffix(' %')} to {most})"
