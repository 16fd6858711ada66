"""An order: a sort key over jobs; gang fill does the rest, at every arrival and completion."""

from dataclasses import dataclass

import numpy as np

from allocator import Need, OrderPolicy


@dataclass(frozen=True)
class LeastGpuTime(OrderPolicy):
    """Run the jobs first that need the least GPU time to their end."""

    paper = "an example"
    program = "in order of s_i n_i / max_j T_ij"
    needs = Need.LENGTHS

    def key(self, state):
        """(N,) GPU seconds that each job still needs on its fastest type."""
        return state.scale_factors * state.steps_remaining / np.maximum(state.rates.max(axis=1), 1e-300)
