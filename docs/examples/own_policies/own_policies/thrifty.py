"""A view of one's own, which the world keeps: the energy that each job has used."""

from dataclasses import dataclass

import numpy as np

from allocator import OrderPolicy, View

WATTS = {"v100": 300.0, "p100": 250.0, "k80": 150.0}


def joules(cluster, rows, seconds):
    """(K,) what rows use that train for so many seconds."""
    watts = np.array([WATTS.get(name, 300.0) for name in cluster.accelerators])
    return watts[rows.pool] * rows.gpus_taken * seconds


ENERGY = View("joules that the job has used", name="energy", needed=True, adds=joules)


@dataclass(frozen=True)
class Thrifty(OrderPolicy):
    """Jobs that have used the least energy go first; who runs gives way only where that saves more than `margin`."""

    margin: float = 1e8

    needs = ENERGY
    in_order_of_rows = True  # of equals, who came first
    paper = "an example"
    program = "in order of E_i, less the margin for those that run"

    def key(self, state):
        """(N,) joules; the margin keeps two jobs from taking turns at every event."""
        runs = np.isin(np.arange(state.n_jobs), state.running.jobs)
        return state[ENERGY] - self.margin * runs
