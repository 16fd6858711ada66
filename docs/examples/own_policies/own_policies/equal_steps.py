"""An objective over the polytope: shares of time, which the round mechanism turns into rounds."""

from dataclasses import dataclass

import numpy as np

from allocator import ProgramPolicy
from formulations import MaxMin


@dataclass(frozen=True)
class EqualSteps(ProgramPolicy):
    """Give every job the same number of steps per second."""

    paper = "an example"
    program = "max_x min_i T_i.x_i"

    def believed_rates(self, state):
        """(N, M) steps/s that the policy counts with."""
        return state.rates

    def objective(self, state, rates):
        """Max-min of the throughputs themselves."""
        return MaxMin(np.ones(state.n_jobs))
