"""A quota by user: the jobs of a user have no more than a part of each accelerator type; the rest is shared fairly."""

from dataclasses import dataclass

import numpy as np

from allocator import ConvexPolicy


@dataclass(frozen=True)
class UserQuota(ConvexPolicy):
    """Proportional fairness with a quota of GPUs for each user; users are the entities that jobs belong to."""

    part: float = 0.5

    paper = "an example"
    program = "max_x sum_i w_i log(T_i.x_i), sum_{i of u} s_i x_ij <= q c_j for all users u and all j"

    def statement(self, cp, shares, state):
        """Objective and rows; a job that belongs to nobody has no quota."""
        throughput = cp.sum(cp.multiply(state.rates, shares), axis=1)
        welfare = state.priority_weights @ cp.log(throughput)
        users = np.full(state.n_jobs, -1) if state.membership is None else state.membership.of_job
        of_user = [state.scale_factors * (users == user) for user in np.unique(users[users >= 0])]
        return cp.Maximize(welfare), [gpus @ shares <= self.part * state.capacity for gpus in of_user]
