"""The small trace through a real Slurm with virtual nodes: ``python -m tests.runtime.slurm.fidelity``.

As `benchmarks.runtime.fidelity`, with a Slurm cluster of its own for each policy.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from contextlib import ExitStack
from pathlib import Path

from benchmarks.runtime.fidelity import POLICIES, Run, draw, measured
from tests.runtime.slurm.cluster import VirtualCluster


def main():
    parser = argparse.ArgumentParser(prog="python -m tests.runtime.slurm.fidelity", description=__doc__)
    parser.add_argument("--policies", default=",".join(POLICIES), help="names")
    parser.add_argument("--jobs", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=40.0, help="of a job on v100, on average")
    parser.add_argument("--mean-interarrival", type=float, default=5.0, help="seconds")
    parser.add_argument("--round", type=float, default=12.0, help="seconds")
    chosen = parser.parse_args()
    jobs = draw(chosen.jobs, chosen.seconds, chosen.mean_interarrival, chosen.round)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="slurm-")))
        runs = []
        for number, policy in enumerate(chosen.policies.split(",")):
            root = folder / str(number)
            root.mkdir()
            nodes = {}
            for part in POLICIES[policy].split(","):
                kind, _, gpus = part.partition(":")
                nodes[f"{kind}n"] = (kind, int(gpus))
            cluster = VirtualCluster(root, nodes)
            stack.callback(cluster.end)
            cluster.begin()
            options = ["--adapter", "slurm", "--grace", "20"]
            runs.append(Run(root / policy, policy, chosen.round, options, cluster.environment))
        found = measured(runs, jobs)
    for policy, comparison in found.items():
        rows = {row["figure"]: (row["real"], row["simulated"], row["error"]) for row in comparison["figures"]}
        print(policy, "restart", round(comparison["restart_seconds"], 2), rows)
    print("load average", round(os.getloadavg()[1], 1))


if __name__ == "__main__":
    main()
