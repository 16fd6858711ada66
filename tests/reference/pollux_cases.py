"""Fitness of Pollux recorded on the published code: states, one run of its search, and branch and bound."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from formulations.goodput import NodeProgram
from throughputs import Configurations as Ways

__all__ = ["RECORDED", "node_program", "read", "without_restarts"]

RECORDED = "pollux_sia/pollux_fitness_cases.json"


def read(path: Path) -> list[dict[str, Any]]:
    """The four cases."""
    return json.loads(path.read_bytes())["cases"]  # type: ignore[no-any-return]


def node_program(case: dict[str, Any]) -> NodeProgram:
    order, n, g = case["job_order"], case["n_nodes"], case["gpus_per_node"]
    rows: list[tuple[int, int, int, float]] = []
    held, held_speedup = np.zeros((len(order), n), dtype=np.int64), np.zeros(len(order))
    for i, name in enumerate(order):
        job = case["jobs"][name]
        for node in case["base"].get(name, []):
            held[i, node] += 1
        kept = max(job["age"] - job["num_restarts"] * 30.0, 0.0) / (job["age"] + 30.0)
        speedups = {(nodes, gpus): speedup / g for nodes, gpus, speedup in case["speedup_table_fair"][name]}
        if held[i].any():
            held_speedup[i] = speedups[np.count_nonzero(held[i]), held[i].sum()]
        rows += [
            (i, gpus, nodes, kept * speedup)
            for (nodes, gpus), speedup in speedups.items()
            if gpus <= job["max_replicas"]
        ]
    job, gpus, nodes, speedup = map(np.array, zip(*sorted(rows), strict=True))
    ways = Ways(job, np.zeros(len(job), int), gpus, np.ones(len(job)), batch_size=nodes, jobs=order, pools=["t4"])
    return NodeProgram(ways, ways.batch_size, speedup, n, g, held, held_speedup)


def without_restarts(case: dict[str, Any], program: NodeProgram) -> Any:
    """(C,) speedups over a fair share of the columns of a program."""
    tables = [
        {(nodes, gpus): speedup for nodes, gpus, speedup in case["speedup_table_fair"][name]}
        for name in case["job_order"]
    ]
    columns = zip(program.ways.job.tolist(), program.nodes.tolist(), program.ways.gpus.tolist(), strict=True)
    return np.array([tables[job][nodes, gpus] for job, nodes, gpus in columns])
