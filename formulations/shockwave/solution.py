"""What planning returns: who runs in each round, and the proof that comes with it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from formulations.core.solution import Attempt

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class PlanSolution:
    """A plan of R rounds for N jobs.

    Attributes
    ----------
    rounds_per_job : (N,) planned rounds n_j, before idle GPUs are given away.
    schedule : (N, R) who runs in which round, before idle GPUs are given away.
    backfilled : (N, R) the same after it.
    stage : 1 when the fairness rows are fulfilled, 2 when priorities stand in their place.
    objective : value of that stage's objective at `rounds_per_job`, nan without jobs.
    bound : no plan is better than this.
    gap : distance of the two, relative to the objective (to 1e-3 if that is smaller); priorities above 1e5 count 1e5
        in that objective, so that they do not hide what the plan does for all other jobs.
    status : "optimal" when `gap` is within the tolerance, "feasible" when it is not, "empty" without jobs.
    ordering_cost, ordering_bound, ordering_gap : of stage 3 likewise: cost of the order in `schedule`, a cost that no
        order of the same numbers of rounds is below, and their relative distance. After stage 1 all weights are
        1 / n_j. nan where nothing was proven about the order.
    utilities : (N,) U_j of the plan.
    remaining_after : (N,) L_j of the plan, seconds.
    solver : whose numbers of rounds these are: "knapsack" (our own method), "highs" or "cbc".
    attempts : everything that was tried, in order, with what it was proven to.
    seconds : time for everything.
    """

    rounds_per_job: NDArray[np.int64]
    schedule: NDArray[np.bool_]
    backfilled: NDArray[np.bool_]
    stage: int
    objective: float
    bound: float
    gap: float
    status: str
    ordering_cost: float
    ordering_bound: float
    ordering_gap: float
    utilities: Array
    remaining_after: Array
    solver: str
    attempts: tuple[Attempt, ...]
    seconds: float
