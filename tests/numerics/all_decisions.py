"""Decisions of every family of programs and small simulations; prints a digest of the bytes of each result as JSON.

A script of its own, so that it can be run as if on another processor (`test_processors.py`). What it draws are
uniform numbers and choices, which no processor changes.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterator
from functools import cache
from io import StringIO

import numpy as np
import pandas as pd

import allocator
from allocator.cluster import Cluster
from allocator.presets import preset
from allocator.protocol import ClusterState, Policy
from allocator.registry import get_policy
from allocator.results.deadlines import assign_slos
from formulations import MaxMin, PackedPolytope, solve_packed
from throughputs import (
    LowRankCompletion,
    PackedColumns,
    ThroughputMatrix,
    ThroughputTable,
    TraceGenerator,
    default_colocation,
    default_table,
)
from throughputs.estimator.believed import Estimation
from throughputs.goodput import Samples, best_batch_sizes, fit_model
from throughputs.goodput.batch_size import GRIDS
from throughputs.goodput.example import example_samples
from throughputs.goodput.profiles import default_profiles

TYPES = ("v100", "p100", "k80")


@cache
def table() -> ThroughputTable:
    """The embedded table, with pairs."""
    return default_table().with_colocation(default_colocation())


def digest(*parts: object) -> str:
    """Of arrays and tables, byte by byte."""
    known = hashlib.sha256()
    for part in parts:
        if isinstance(part, pd.DataFrame):
            known.update(part.to_csv(float_format="%.17g").encode())
        elif part is not None:
            known.update(np.ascontiguousarray(part).tobytes())
    return known.hexdigest()[:16]


def state_of(kind: str, n: int, seed: int, cluster: str = "v100:8,p100:10,k80:12") -> ClusterState:
    """Jobs of published types, or with figures that no two share; gangs and weights with the latter."""
    rng = np.random.default_rng([seed, n])
    gpus = Cluster.parse(cluster)
    M = len(gpus.accelerators)
    sizes = np.ones(n, dtype=np.int64)
    colocation = None
    if kind == "published":
        names = [t for t in table().job_types if 1 in table().scale_factors_of(t)]
        types = [names[i] for i in rng.integers(0, len(names), n)]
        matrix = table().matrix(range(n), types, sizes, gpus.accelerators)
        colocation = PackedColumns.from_table(table(), types, sizes, gpus.accelerators)
    else:
        sizes = rng.choice([1, 1, 1, 2, 4], n)
        rates = rng.uniform(0.1, 1.0, (n, M)) * rng.uniform(0.5, 5.0, (n, 1))
        rates[rng.random((n, M)) < 0.1] = 0.0
        rates[rates.max(axis=1) == 0] = 1.0
        matrix = ThroughputMatrix(rates, range(n), list(gpus.accelerators), sizes)
    seconds = rng.uniform(1e3, 2e4, n)
    return ClusterState(
        gpus,
        matrix,
        priority_weights=rng.choice([1.0, 2.0, 5.0], n) if kind == "distinct" else np.ones(n),
        steps_remaining=seconds * matrix.rates.max(axis=1),
        elapsed_seconds=rng.uniform(0, 1e4, n),
        isolated_seconds=rng.uniform(0, 1e4, n),
        slo_seconds=np.where(rng.random(n) < 0.5, rng.uniform(5.0, 50.0, n) * seconds, np.inf),
        gpu_prices=np.linspace(3.0, 1.0, M),
        colocation=colocation,
    )


PROGRAMS: dict[str, dict[str, object]] = {
    "max_min_fairness": {},
    "max_min_fairness_perf": {},
    "max_min_fairness_water_filling": {},
    "max_min_fairness_water_filling_perf": {},
    "finish_time_fairness": {},
    "finish_time_fairness_perf": {},
    "min_total_duration_perf": {},
    "max_sum_throughput_perf": {},
    "max_sum_throughput_normalized_by_cost_perf": {"cost": "total"},
    "max_sum_throughput_normalized_by_cost_perf_SLOs": {},
    "nash_welfare": {},
    "max_min_fairness_strategy_proof_perf": {},
    "allox": {},
    "isolated": {},
}
PACKED = (
    "max_min_fairness_packed",
    "finish_time_fairness_packed",
    "min_total_duration_packed",
    "max_min_fairness_water_filling_packed",
    "max_sum_throughput_normalized_by_cost_packed_SLOs",
)
MANY = ("max_min_fairness_perf", "finish_time_fairness_perf", "min_total_duration_perf", "max_sum_throughput_perf")
MANY_JOBS = 3200
"""From 3,000 classes on the prices of programs come first."""


def decided(policy: Policy, state: ClusterState) -> str:
    """Digest of shares, prices and pairs."""
    allocation = policy.allocate(state)
    pairs = allocation.pairs
    shared = () if pairs is None else (pairs.first, pairs.second, pairs.accelerator, pairs.share)
    return digest(allocation.shares, allocation.prices, *shared)


def decisions() -> Iterator[tuple[str, str]]:
    """Every family, by each of the ways in which it is solved by itself."""
    for name, settings in PROGRAMS.items():
        for kind, n in (("published", 40), ("distinct", 30), ("distinct", 150)):
            if n > 100 and name in ("allox", "max_min_fairness_strategy_proof_perf"):
                continue
            yield f"{name}, {n} {kind} jobs", decided(get_policy(name, **settings), state_of(kind, n, 1))
    contended = "v100:200,p100:300,k80:400"
    for name in (*MANY, "nash_welfare"):
        yield f"{name}, many jobs", decided(get_policy(name), state_of("distinct", MANY_JOBS, 2, contended))
    for name in PACKED:
        yield name, decided(get_policy(name), state_of("published", 24, 3))


def published() -> Iterator[tuple[str, str]]:
    """The points at which the original's solvers stop."""
    names = ("max_min_fairness_perf", "min_total_duration_perf", "max_sum_throughput_perf", "finish_time_fairness_perf")
    for name in names:
        state = state_of("published", 20, 4)
        yield f"{name}, published", decided(get_policy(name, choice="published"), state)
    policy = get_policy("min_total_duration_packed", choice="published")
    yield "min_total_duration_packed, published", decided(policy, state_of("published", 12, 4))
    for name in ("min_total_duration_perf", "max_sum_throughput_perf"):
        policy = get_policy(name, solver="homogeneous")
        yield f"{name}, homogeneous", decided(policy, state_of("distinct", 20, 4))


def written_out() -> Iterator[tuple[str, str]]:
    """Space sharing, all times beside groups written out."""
    state = state_of("published", 30, 5)
    polytope = PackedPolytope(state.colocation, state.capacity)
    solution = solve_packed(polytope, MaxMin(np.ones(30)), solver="highs")
    yield "written out", digest(solution.shares, solution.prices, solution.pairs.share)


def simulations() -> Iterator[tuple[str, str]]:
    """Tables of small runs: the policies of the demonstration, planners, an estimator."""
    cluster = Cluster.parse("v100:4,p100:4,k80:4")
    trace = TraceGenerator(n_jobs=16, seed=0, mean_interarrival=1000.0).generate()
    for name in preset("default").comparison.policies:
        result = allocator.simulate(trace, cluster, get_policy(name), table())
        yield f"simulation of {name}", digest(result.jobs, result.rounds)
    for name in ("max_min_fairness_perf", "min_total_duration_perf"):
        policy = get_policy(name, choice="published")
        result = allocator.simulate(trace, cluster, policy, table(), preset="gavel")
        yield f"simulation of {name}, gavel", digest(result.jobs, result.rounds)
    few = TraceGenerator(n_jobs=10, seed=1, mean_interarrival=500.0).generate()
    policy = get_policy("max_min_fairness_packed")
    estimation = Estimation(0.5, 5, completion=LowRankCompletion())
    result = allocator.simulate(few, cluster, policy, table(), estimation=estimation)
    yield "simulation with an estimator", digest(result.jobs, result.rounds)
    # searches end when they are through, not when a busy machine has taken its time
    hour = {"time_limit_seconds": 3600.0}
    planning = get_policy("shockwave", **hour)
    result = allocator.simulate(few, Cluster.parse("v100:4"), planning, table(), preset="shockwave")
    yield "simulation of shockwave", digest(result.jobs, result.rounds)
    due = assign_slos(few, np.random.default_rng(0), {1.2: 0.5, 2.0: 0.5})
    for name, settings in (("elasticflow", {"admission": "repair"}), ("elasticflow_mip", hour), ("edf_admission", {})):
        result = allocator.simulate(due, Cluster.parse("v100:4"), get_policy(name, **settings), table())
        yield f"simulation of {name}", digest(result.jobs, result.rounds)


def goodput() -> Iterator[tuple[str, str]]:
    """Fits to measured steps, one with what no sample says, batch sizes by the embedded profiles, and selections."""
    for model in ("cifar10", "bert"):
        samples = Samples.from_frame(pd.read_csv(StringIO(example_samples(model))))
        for label, some in (("all", samples), ("one node", samples.take(samples.nodes == 1))):
            fit = fit_model(some)
            yield f"fit of {model}, {label}", digest(np.array(fit.parameters), np.array(fit.loss))
    jobs = default_profiles().goodput(list(default_profiles().models), "t4", 0.4)
    for grid in GRIDS:
        best = best_batch_sizes(jobs, [1, 1, 1, 2, 4], [1, 2, 4, 8, 16], grid=grid)
        yield f"batch sizes, {grid}", digest(best.goodput, best.throughput, best.batch_size)
    few = TraceGenerator(n_jobs=6, seed=1, mean_interarrival=500.0).generate()
    genetic = {"search": "genetic", "generations": 20}
    for name, settings in (("sia", {}), ("sia", {"power": -0.7}), ("pollux", {}), ("pollux", genetic)):
        result = allocator.simulate(few, Cluster.parse("v100:8"), get_policy(name, **settings), table())
        yield f"simulation of {name}, {settings}", digest(result.jobs, result.rounds)


PARTS = {
    "decisions": decisions,
    "published": published,
    "written_out": written_out,
    "goodput": goodput,
    "simulations": simulations,
}

if __name__ == "__main__":
    print(json.dumps({name: found for part in sys.argv[1:] or PARTS for name, found in PARTS[part]()}))
