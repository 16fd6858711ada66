"""Rows of one's own: a fair share of what a cluster can do with so many watts."""

from dataclasses import dataclass

import numpy as np

from allocator import ConstrainedPolicy
from formulations import MaxMin

WATTS = {"v100": 300.0, "p100": 250.0, "k80": 150.0}


@dataclass(frozen=True)
class PowerCap(ConstrainedPolicy):
    """Max-min fairness in normalised throughput, with a cap on the power that GPUs in use draw, averaged over time."""

    watts: float = 9_000.0

    paper = "an example"
    program = "max_x min_i T_i.x_i / max_j T_ij, sum_ij P_j s_i x_ij <= P"

    def objective(self, state, rates):
        """Every job's throughput counts relative to its fastest type."""
        return MaxMin(rates.max(axis=1))

    def rows(self, state, program):
        """One row; `--set policy.watts=5000` lowers the cap."""
        per_gpu = np.array([WATTS.get(name, 300.0) for name in state.cluster.accelerators])
        return {"watts": per_gpu @ program.gpus_used <= self.watts}
