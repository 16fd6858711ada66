"""Studies of single decisions, measured: what one takes of the processor, and how near to the optimum it is proven.

- `DECISIONS`: the `auto` path beside the plain cvxpy + ECOS path, on the same state, in one run;
- `GOODPUT`: Sia and Pollux, by the program and by Pollux' genetic search;
- `LEASES`: lease programs of Chronus with several deadlines for most jobs, all jobs admitted at their last one;
- `PLANNING`: plans of Shockwave, numbers of rounds and their order, beside the program in binaries as published.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from allocator import Cluster, ClusterState, ThroughputMatrix, default_table, get_policy
from allocator.presets import preset
from allocator.protocol import Assignment
from allocator.studies.study import Options, Row, Run, Study, cpu_seconds, over_draws
from allocator.studies.tables import Shown
from formulations.leases import LeaseProgram, latest_slots, solve_leases
from formulations.shockwave import PlanningProgram, solve_plan
from throughputs import Configurations, TraceGenerator
from throughputs.arrays import Ints
from throughputs.goodput import best_batch_sizes
from throughputs.goodput.profiles import default_profiles
from throughputs.traces.generator import PUBLISHED_PRIORITIES

# Programs of shares: families of jobs on a cluster with a quarter as many GPUs of each type as there are jobs

POLICIES = (
    "max_min_fairness_perf",
    "finish_time_fairness_perf",
    "min_total_duration_perf",
    "max_sum_throughput_perf",
)
FAMILIES = ("published", "gangs", "distinct")
"""Single-GPU jobs of the published types, as in the original's run-time study; the published mix of gangs and
priorities; no two jobs alike."""


def draw_shares(family: str, n_jobs: int, seed: int = 2) -> ClusterState:
    """A cluster in the middle of its work: jobs with some steps done and some time spent."""
    rng = np.random.default_rng(seed)
    gangs: dict[str, Any] = {} if family == "gangs" else {"scale_factors": {1: 1.0}}
    priorities = PUBLISHED_PRIORITIES if family == "gangs" else None
    trace = TraceGenerator(n_jobs=n_jobs, priorities=priorities, **gangs).generate(rng)
    cluster = Cluster(dict.fromkeys(("v100", "p100", "k80"), n_jobs // 4))
    matrix = default_table().matrix(range(n_jobs), trace.job_type, trace.scale_factor, cluster.accelerators)
    if family == "distinct":
        spread = rng.uniform(0.8, 1.25, matrix.rates.shape)
        matrix = ThroughputMatrix(matrix.rates * spread, matrix.jobs, matrix.accelerators, matrix.scale_factors)
    return ClusterState(
        cluster,
        matrix,
        priority_weights=trace.priority_weight,
        steps_remaining=trace.total_steps * rng.uniform(0.05, 1.0, n_jobs),
        elapsed_seconds=rng.uniform(0, 1e5, n_jobs),
        isolated_seconds=rng.uniform(0, 1e5, n_jobs),
    )


def _decisions(options: Options) -> Iterator[Run]:
    for family in FAMILIES:
        for n_jobs in (128,) if options.quick else (128, 512, 2048):
            state = draw_shares(family, n_jobs)
            for name in POLICIES:
                labels = {"family": family, "jobs": n_jobs, "policy": name}
                yield labels, partial(_both_paths, state, name, 3 if options.quick else 15)


def _both_paths(state: ClusterState, name: str, repetitions: int) -> Row:
    auto, plain = get_policy(name), get_policy(name, solver="ecos", choice="published")
    ours, theirs = auto.allocate(state), plain.allocate(state)
    seconds = cpu_seconds(lambda: auto.allocate(state), repetitions)
    plain_seconds = cpu_seconds(lambda: plain.allocate(state), max(3, repetitions // 4))
    return {
        "seconds": seconds, "gap": ours.gap, "solver": ours.solver, "status": ours.status, "objective": ours.objective,
        "plain_seconds": plain_seconds, "plain_gap": theirs.gap, "plain_objective": theirs.objective,
        "ratio": plain_seconds / seconds,
    }  # fmt: skip


DECISIONS = Study(
    "One decision, median CPU time (auto: solve, prove, choose; plain: cvxpy + ECOS)",
    _decisions,
    by=("family", "jobs", "policy"),
    shown={
        "auto, ms": Shown("seconds", ".2f", 1e-3),
        "gap": Shown("gap", ".0e"),
        "plain, ms": Shown("plain_seconds", ".1f", 1e-3),
        "gap of plain": Shown("plain_gap", ".0e"),
        "ratio": Shown("ratio", ".0f"),
    },
)


# Goodput: jobs train the embedded models and are at some point of their training. The embedded figures are of one
# accelerator type; others here are faster by a factor that is drawn for each model.

Sizes = dict[str, tuple[int, int]]
"""GPUs of each type, and how many are in a node."""

LARGE: Sizes = {"t4": (768, 4), "v100": (512, 8), "a100": (768, 8)}
SMALL: Sizes = {"t4": (24, 4), "v100": (16, 8), "a100": (24, 8)}
ONE_TYPE: Sizes = {"t4": (64, 4)}
MODELS = ("cifar10", "deepspeech2", "bert", "yolov3", "imagenet", "ncf")
CHOICES: tuple[tuple[str, dict[str, Any], int, Sizes], ...] = (
    ("sia", {}, 160, SMALL),
    ("pollux", {}, 160, ONE_TYPE),
    ("sia", {"preset": "sia"}, 160, SMALL),
    ("sia", {}, 1024, LARGE),
    ("sia", {"preset": "sia"}, 1024, LARGE),
    ("pollux", {"search": "genetic", "generations": 100}, 160, ONE_TYPE),
    ("pollux", {"search": "genetic"}, 12, {"t4": (32, 4)}),
)
"""Policy, its settings, jobs and cluster; the first two are the quick ones."""


def draw_state(n_jobs: int, cluster: Sizes, seed: int = 0) -> ClusterState:
    """Jobs that run on some GPUs, or wait, in the midst of their training."""
    rng = np.random.default_rng(seed)
    counts = {name: configurations(*size) for name, size in cluster.items()}
    known = sorted({(g, n) for found in counts.values() for g, n in found.tolist()})
    gpus, nodes = np.array(known).T
    names = rng.integers(len(MODELS), size=n_jobs)
    models = default_profiles().goodput([MODELS[k] for k in names], "t4", progress=rng.uniform(0, 1, n_jobs))
    goodput = best_batch_sizes(models, nodes=nodes, gpus=gpus).goodput
    factors = rng.uniform(1.5, 4.0, (len(MODELS), len(cluster)))
    factors[:, 0] = 1.0
    most = 2 ** rng.integers(1, 7, n_jobs)
    rows = [
        (job, pool, g, goodput[job, known.index((g, n))] * factors[names[job], pool])
        for job in range(n_jobs)
        for pool, found in enumerate(counts.values())
        for g, n in found.tolist()
        if g <= most[job] and goodput[job, known.index((g, n))] > 0
    ]
    job, pool, count, rate = map(np.array, zip(*rows, strict=True))
    ways = Configurations(job, pool, count, rate, pools=tuple(cluster))
    of = Cluster({name: size[0] for name, size in cluster.items()}, {name: size[1] for name, size in cluster.items()})
    first = ways.offsets[:-1]
    rates = np.zeros((n_jobs, len(cluster)))
    rates[np.arange(n_jobs), ways.pool[first]] = ways.rate[first]
    matrix = ThroughputMatrix(rates, ways.jobs, tuple(cluster), ways.gpus[first])
    elapsed = rng.uniform(60.0, 4e4, n_jobs)
    running = _running(ways, of.capacity.copy(), rng)
    return ClusterState(of, matrix, configurations=ways, elapsed_seconds=elapsed, running=running)


def configurations(gpus: int, per_node: int) -> Ints:
    """(C, 2) GPUs and nodes of Sia's configurations, of at most 64 GPUs: powers of two of a node, or whole nodes."""
    inside = [(1 << k, 1) for k in range(per_node.bit_length())]
    return np.array([*inside, *((n * per_node, n) for n in range(2, min(gpus, 64) // per_node + 1))])


def _running(ways: Configurations, left: Ints, rng: np.random.Generator) -> Assignment:
    """Jobs in an order that is drawn run on a number of GPUs that is drawn, while there are some."""
    rows = []
    for job in rng.permutation(ways.n_jobs).tolist():
        row = int(rng.integers(ways.offsets[job], ways.offsets[job + 1]))
        if ways.gpus[row] <= left[ways.pool[row]]:
            left[ways.pool[row]] -= ways.gpus[row]
            rows.append(row)
    chosen = np.array(rows)
    return Assignment.of(ways.job[chosen], ways.pool[chosen], ways.gpus[chosen])


def _goodput(options: Options) -> Iterator[Run]:
    seeds, repetitions = (1, 1) if options.quick else (5, 3)
    for name, settings, n_jobs, cluster in CHOICES[: 2 if options.quick else None]:
        given = ", ".join(f"{key}={value}" for key, value in settings.items())
        for seed in range(seeds):
            gpus = sum(count for count, _ in cluster.values())
            labels = {"policy": name, "settings": given, "jobs": n_jobs, "gpus": gpus, "seed": seed}
            yield labels, partial(_choice, name, settings, n_jobs, cluster, seed, repetitions)


def _choice(name: str, settings: dict[str, Any], n_jobs: int, cluster: Sizes, seed: int, repetitions: int) -> Row:
    state, own = draw_state(n_jobs, cluster, seed), dict(settings)
    policy = preset(own.pop("preset", "default")).make_policy(name, state.cluster, **own)
    assert state.configurations is not None
    gap = policy.allocate(state).gap
    seconds = cpu_seconds(lambda: policy.allocate(state), repetitions)
    return {"columns": state.configurations.n_columns, "seconds": seconds, "gap": gap}


GOODPUT = Study(
    "One decision by goodput, CPU time (gap: worst of the draws)",
    _goodput,
    by=("policy", "settings", "jobs", "gpus"),
    shown={"columns": Shown("columns", ",.0f", over="max"), **over_draws(), "gap": Shown("gap", ".0e", over="max")},
)

SIZES = (64, 128, 256, 512, 1024, 2048)
"""GPUs of one type, with half as many jobs."""

CHOOSING = ("sia", "pollux", "optimus", "max_sum_throughput_perf")


def measure_sizes(sizes: Sequence[int] = SIZES, *, draws: int = 3, repetitions: int = 3) -> pd.DataFrame:
    """CPU time of decisions about clusters of several sizes, with half as many jobs as T4 GPUs.

    Returns
    -------
    One row for each policy of `CHOOSING`, size and draw, with the columns policy, gpus, seed, status and
    decision_seconds: the median of the repetitions, of which one more comes first and does not count.
    """
    rows = []
    for gpus in sizes:
        states = [draw_state(gpus // 2, {"t4": (gpus, 4)}, seed) for seed in range(draws)]
        for name in CHOOSING:
            policy = get_policy(name)
            for seed, state in enumerate(states):
                policy.allocate(state)
                seconds = cpu_seconds(partial(policy.allocate, state), repetitions)
                rows.append((name, gpus, seed, "completed", seconds))
    return pd.DataFrame(rows, columns=["policy", "gpus", "seed", "status", "decision_seconds"])


# Lease programs

LEASE_SIZES = ((100, 40, 48), (400, 90, 128), (400, 90, 192))
"""Jobs, leases and GPUs."""


def draw_leases(n_jobs: int, slots: int, gpus: int, seed: int = 0, objective: str = "minimize") -> LeaseProgram:
    """Jobs that are admitted one by one, as long as there is room before their last deadline."""
    rng = np.random.default_rng(seed)
    free = np.full(slots, gpus)
    columns: list[tuple[int, int]] = []
    chances: list[tuple[int, int, float]] = []
    while len(columns) < n_jobs:
        width = int(rng.choice([1, 2, 4, 8, 16], p=[0.85, 0.05, 0.05, 0.04, 0.01]))
        needed = min(max(1, int(rng.lognormal(1.6, 1.0))), slots - 10)
        due = needed + rng.integers(0, 30) + np.cumsum([0, *rng.integers(1, 6, 3)])
        due = np.minimum(due[: 4 if rng.random() < 0.6 else 1], slots)
        taken = latest_slots(free, width, needed, int(due[-1]))
        if taken is None:
            continue
        free[taken] -= width
        chances += [(len(columns), int(day), value) for day, value in zip(due, (10.0, 8.0, 5.0, 2.0), strict=False)]
        columns.append((width, needed))
    widths, leases = (np.array(column) for column in zip(*columns, strict=True))
    job, deadline, value = (np.array(column) for column in zip(*chances, strict=True))
    return LeaseProgram(widths, leases, job, deadline, value.astype(float), np.full(slots, gpus), objective)


def _leases(options: Options) -> Iterator[Run]:
    sizes, seeds, repetitions = (LEASE_SIZES[:1], 2, 1) if options.quick else (LEASE_SIZES, 5, 3)
    for size in sizes:
        for objective in ("minimize", "maximize"):
            for seed in range(seeds):
                labels = dict(zip(("jobs", "leases", "gpus"), size, strict=True))
                yield (
                    {**labels, "objective": objective, "seed": seed},
                    partial(_lease, draw_leases(*size, seed, objective), repetitions),
                )


def _lease(program: LeaseProgram, repetitions: int) -> Row:
    solve = partial(solve_leases, program, relative_gap=1e-4, time_limit_seconds=60.0)
    return {"options": len(program.job), "seconds": cpu_seconds(solve, repetitions), "gap": solve().gap}


LEASES = Study(
    "One lease program in HiGHS to a gap of 1e-4, CPU time",
    _leases,
    by=("jobs", "leases", "gpus", "objective"),
    shown={
        "options": Shown("options", ",.0f", over="median"),
        **over_draws(),
        "worst gap": Shown("gap", ".1e", over="max"),
    },
)


# Plans

PLAN_SIZES = ((120, 32), (460, 128), (900, 256))
"""Jobs and GPUs, as in the published studies."""

PATHS = (("rounds", "auto"), ("rounds", "highs"), ("counts", "highs"), ("binaries", "highs"))
MOST_JOBS = {"counts": 460, "binaries": 120}
"""Forms whose larger programs take minutes."""


def draw_plan(n_jobs: int, gpus: int, seed: int = 0) -> PlanningProgram:
    """Jobs at some point of their training, four to a GPU, a good part of them late; 20 rounds of two minutes."""
    rng = np.random.default_rng(seed)
    widths = rng.choice([1, 2, 4, 8], n_jobs, p=[0.6, 0.3, 0.09, 0.01])
    epochs = rng.integers(5, 200, n_jobs).astype(np.float64)
    seconds = np.exp(rng.uniform(np.log(720), np.log(18000), n_jobs))
    epoch_seconds = np.maximum(1.0, np.round(seconds / epochs))
    done = np.floor(epochs * rng.uniform(0, 1, n_jobs))
    remaining = epoch_seconds * (epochs - done) * rng.uniform(0.8, 1.2, n_jobs)
    now, share = 4800.0, min(1.0, gpus / n_jobs)
    target = (now + remaining / share) * np.exp(rng.normal(-0.1, 0.25, n_jobs))
    return PlanningProgram(
        gpus, 20, 120.0, widths, epochs, done, epoch_seconds, remaining, target, now, share, fairness_rows="off"
    )


def _plans(options: Options) -> Iterator[Run]:
    sizes, seeds, repetitions = (PLAN_SIZES[:1], 2, 1) if options.quick else (PLAN_SIZES, 5, 3)
    for n_jobs, gpus in sizes:
        programs = [draw_plan(n_jobs, gpus, seed) for seed in range(seeds)]
        for form, solver in PATHS:
            for seed, program in enumerate(programs):
                labels = {"jobs": n_jobs, "gpus": gpus, "form": form, "solver": solver, "seed": seed}
                if n_jobs <= MOST_JOBS.get(form, n_jobs):
                    yield labels, partial(_plan, program, form, solver, repetitions)


def _plan(program: PlanningProgram, form: str, solver: str, repetitions: int) -> Row:
    solve = partial(solve_plan, program, form=form, solver=solver)
    plan = solve()
    seconds = cpu_seconds(solve, repetitions)
    return {"seconds": seconds, "gap": plan.gap, "ordering_gap": plan.ordering_gap, "objective": plan.objective}


PLANNING = Study(
    "One plan of 20 rounds, CPU time (gaps: worst of the draws)",
    _plans,
    by=("jobs", "gpus", "form", "solver"),
    shown={
        **over_draws(),
        "gap": Shown("gap", ".0e", over="max"),
        "gap of the order": Shown("ordering_gap", ".0e", over="max"),
    },
)
