"""A quota: gangs of several GPUs have no more than a part of each accelerator type; what remains is shared fairly."""

from dataclasses import dataclass

from allocator import ConvexPolicy


@dataclass(frozen=True)
class GangQuota(ConvexPolicy):
    """Proportional fairness with a quota of GPUs for gangs of more than one."""

    part: float = 0.5

    paper = "an example"
    program = "max_x sum_i w_i log(T_i.x_i), sum_{i: s_i > 1} s_i x_ij <= q c_j for all j"

    def statement(self, cp, shares, state):
        """Objective and rows; `--set policy.part=0.3` makes the quota 30 % of each type."""
        throughput = cp.sum(cp.multiply(state.rates, shares), axis=1)
        of_gangs = state.scale_factors * (state.scale_factors > 1) @ shares
        welfare = state.priority_weights @ cp.log(throughput)
        return cp.Maximize(welfare), [of_gangs <= self.part * state.capacity]
