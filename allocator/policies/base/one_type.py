"""Policies for clusters of one accelerator type: which it is."""

from __future__ import annotations

import numpy as np

from allocator.protocol import ClusterState
from throughputs import InputError


def the_one_type(state: ClusterState, policy: str, why: str = "the plan does not tell types apart") -> int:
    """Position of the one type that has GPUs; 0 where none has.

    Raises
    ------
    InputError
        Several have: names the `policy` and the cluster, and says `why` one is expected.
    """
    if len(state.capacity) == 1:
        return 0
    there = np.flatnonzero(state.capacity > 0)
    if len(there) > 1:
        found, expected = str(state.cluster), f"GPUs of one type: {why}"
        raise InputError(f"policy {policy}", field="cluster", found=found, expected=expected)
    return int(there[0]) if len(there) else 0
