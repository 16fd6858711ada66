"""Orders by the time that jobs still need."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce

import numpy as np

from allocator.policies.base.ordering import OrderPolicy
from allocator.policies.base.programs import Array
from allocator.protocol import ClusterState
from allocator.registry import register
from throughputs.numerics import quotient


@register(
    "srtf",
    paper="Schrage, Operations Research 16(3), 1968; as a baseline in Gu et al. (Tiresias), NSDI 2019, sec. 5",
    program="in order of n_i / max_j T_ij: a gang on the fastest type with room, until the next arrival or completion",
)
@dataclass(frozen=True)
class ShortestRemainingTimeFirst(OrderPolicy):
    """Run the jobs that need least time to their end.

        in order of   n_i / max_j T_ij

    n: steps left. Decides at every arrival and completion, not in rounds; a running job is preempted by one that needs
    less time. A gang that does not fit lets smaller ones behind it pass.
    """

    def key(self, state: ClusterState) -> Array:
        """(N,) seconds that each job still needs on its fastest type."""
        fastest: Array = reduce(np.maximum, state.rates.T)
        return quotient(state.steps_remaining, fastest, np.inf)
