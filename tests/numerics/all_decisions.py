"""Decisions of every family of programs and small simulations; prints a digest of the bytes of each result as JSON.

A script of its own, so that it can be run as if on another processor (`test_processors.py`). What it draws are
uniform numbers and choices, which no processor changes.
"""

from __future__ import annotations

import hashlib
import json
from io import StringIO

import numpy as np
import pandas as pd

import allocator
from allocator.cli.inputs.examples import example_samples
from allocator.cluster import Cluster
from allocator.registry import get_policy
from allocator.results.deadlines import assign_slos
from allocator.testing.worlds import World
from formulations import (
    FinishTimeFairness,
    Makespan,
    MaxMin,
    MaxSum,
    NashWelfare,
    Polytope,
    WaterFilling,
    solve,
)
from throughputs import (
    PlainColumns,
    ThroughputMatrix,
    TraceGenerator,
    default_colocation,
    default_table,
)
from throughputs.goodput import Samples, best_batch_sizes, fit_model
from throughputs.goodput.profiles import default_profiles

TABLE = default_table().with_colocation(default_colocation())
HOUR = {"time_limit_seconds": 3600.0}
"""Searches end when they are through, not when a busy machine has taken its time."""


def digest(*parts):
    """Of arrays and tables, byte by byte."""
    known = hashlib.sha256()
    for part in parts:
        if isinstance(part, pd.DataFrame):
            known.update(part.to_csv(float_format="%.17g").encode())
        elif part is not None:
            known.update(np.ascontiguousarray(part).tobytes())
    return known.hexdigest()[:16]


PUBLISHED = ("max_min_fairness_perf", "finish_time_fairness_perf", "min_total_duration_perf", "max_sum_throughput_perf")
COST = "max_sum_throughput_normalized_by_cost"
SHARES = (
    *(*PUBLISHED, "isolated", "nash_welfare", "allox", f"{COST}_perf_SLOs", f"{COST}_packed_SLOs"),
    *("max_min_fairness_water_filling_perf", "max_min_fairness_strategy_proof_perf", "finish_time_fairness_packed"),
    *("max_min_fairness_packed", "min_total_duration_packed", "max_min_fairness_water_filling_packed"),
)


def decided(name, **settings):
    """Digest of shares, prices and pairs of a policy's decision about a dozen jobs."""
    policy = get_policy(name, **settings)
    found = policy.allocate(World(12, 3).state(policy))
    pairs = () if (p := found.pairs) is None else (p.first, p.second, p.accelerator, p.share)
    return f"{name}, {settings}", digest(found.shares, found.prices, *pairs)


def few():
    """Every family, and the published points."""
    yield from map(decided, SHARES)
    for name in PUBLISHED:
        yield decided(name, choice="published")


def simulations():
    """Tables of small runs: shares, published points, planners, an estimator, deadlines, goodput."""
    cluster, one = Cluster.parse("v100:4,p100:4,k80:4"), Cluster.parse("v100:4")
    short = TraceGenerator(n_jobs=8, seed=1, mean_interarrival=800.0).generate()
    due = assign_slos(short, np.random.default_rng(0), {1.2: 0.5, 2.0: 0.5})
    for name, jobs, gpus, settings, run in (
        ("finish_time_fairness_perf", short, cluster, {}, {}),
        ("fifo_perf", short, cluster, {}, {}),
        ("min_total_duration_perf", short, cluster, {"choice": "published"}, {"preset": "gavel"}),
        ("shockwave", short, one, HOUR, {"preset": "shockwave"}),
        ("elasticflow", due, one, {"admission": "repair"}, {}),
        ("elasticflow_mip", due, one, HOUR, {}),
        ("sia", short, one, {}, {}),
        ("pollux", short, one, {"search": "genetic", "generations": 20}, {}),
    ):
        result = allocator.simulate(jobs, gpus, get_policy(name, **settings), TABLE, **run)
        yield f"simulation of {name}, {settings}", digest(result.jobs, result.rounds)


def sizes():
    """By each of the other ways in which a family is solved by itself; from 3,000 classes on prices come first."""
    for n, gpus in ((30, 4), (3200, 300)):
        rng = np.random.default_rng(n)
        matrix = ThroughputMatrix(rng.uniform(0.1, 5.0, (n, 3)), range(n), "abc", rng.choice([1, 1, 2, 4], n))
        weights, steps, seconds = rng.uniform(0.5, 2, n), rng.uniform(1e3, 2e4, n), rng.uniform(1e3, 1e4, n)
        goals = [MaxMin(weights), Makespan(steps), FinishTimeFairness(seconds, steps, steps + seconds), MaxSum(weights)]
        for goal in (*goals, NashWelfare(weights), *([WaterFilling(weights, weights[::-1])] if n < 200 else [])):
            found = solve(Polytope(PlainColumns(matrix), np.full(3, gpus)), goal)
            yield f"{type(goal).__name__}, {n} jobs", digest(found.shares, found.prices, found.multipliers)


def goodput():
    """Fits to measured steps, and batch sizes by the embedded profiles."""
    fit = fit_model(Samples.from_frame(pd.read_csv(StringIO(example_samples("bert")))))
    yield "fit", digest(np.array(fit.parameters), np.array(fit.loss))
    jobs = default_profiles().goodput(list(default_profiles().models), "t4", 0.4)
    best = best_batch_sizes(jobs, [1, 1, 2], [1, 4, 8])
    yield "batch sizes", digest(best.goodput, best.throughput, best.batch_size)


if __name__ == "__main__":
    print(json.dumps(dict(found for part in (few, sizes, simulations, goodput) for found in part())))
