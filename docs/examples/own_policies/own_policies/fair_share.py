"""Fair share by user: whoever has had the fewest GPU hours of late goes first, with all their jobs."""

from dataclasses import dataclass

import numpy as np

from allocator import Need, OrderPolicy


@dataclass(frozen=True)
class FairShare(OrderPolicy):
    """Run the jobs first of users whose jobs that are here have had the least GPU time."""

    needs = Need.SERVICE
    in_order_of_rows = True  # of equals, whose job came first
    paper = "an example"
    program = "in order of sum_{k of the user of i} GPU seconds of k"

    def key(self, state):
        """(N,) GPU seconds of all jobs of the user of each job; `state.account` and `state.queue` do as well."""
        _, user = np.unique(state.submitter.astype(str), return_inverse=True)
        return np.bincount(user, state.gpu_seconds)[user]
