"""Orders of waiting jobs: by arrival, length or predicted GPU time, none preempted, and by what is left."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from allocator.policies.base.ordering import OrderPolicy
from allocator.policies.base.waiting_line import LinePolicy
from allocator.protocol import ClusterState, Need
from allocator.registry import register
from throughputs.arrays import Floats
from throughputs.numerics import quotient


@register(
    "fcfs",
    paper="folklore; EASY backfilling: Lifka, JSSPP 1995; as FIFO in Hu et al. (Helios), SC 2021, sec. 4.2",
    program="in order of arrival: a gang on the fastest type with room, kept to its end",
)
@dataclass(frozen=True)
class FirstComeFirstServed(LinePolicy):
    """First come, first served, between events: the first job in line starts as soon as it finds room.

    The line of batch schedulers, with `backfill` if wanted. A job keeps its GPUs to its end. `fifo` is Gavel's baseline
    of this name, which decides in rounds and draws accelerator types.
    """

    in_order_of_rows: ClassVar[bool] = True

    def key(self, state: ClusterState) -> Floats:
        """(N, 1) all alike: ids ascend with arrival."""
        return np.zeros((state.n_jobs, 1))


@register(
    "sjf",
    paper="folklore; as SJF in Hu et al. (Helios), SC 2021, sec. 4.2",
    program="in order of n_i / max_j T_ij: a gang on the fastest type with room, kept to its end",
)
@dataclass(frozen=True)
class ShortestJobFirst(LinePolicy):
    """Shortest job first: of those who wait the one that needs least time starts next, and keeps its GPUs to its end.

        in order of   n_i / max_j T_ij

    n: steps. That needs to know how long jobs take; `qssf` goes by predictions, `srtf` preempts.
    """

    needs = Need.LENGTHS | Need.FRACTIONS

    def key(self, state: ClusterState) -> Floats:
        """(N, 1) seconds on the fastest type."""
        return quotient(state.steps_remaining, state.fastest_rates, np.inf)[:, None]


@register(
    "qssf",
    paper="Hu et al. (Helios), SC 2021, sec. 4.2 (Quasi-Shortest-Service-First)",
    program="in order of s_i p_i: a gang on the fastest type with room, kept to its end",
)
@dataclass(frozen=True)
class QuasiShortestServiceFirst(LinePolicy):
    """Start those first who are predicted to take least GPU time, and leave them their GPUs to the end.

        in order of   s_i p_i

    s: GPUs of the gang, or the fraction of one that the job asks for; p: predicted length in seconds, from the trace
    (column predicted_seconds). A job without a prediction counts with its true length.
    """

    needs = Need.PREDICTIONS | Need.FRACTIONS

    def key(self, state: ClusterState) -> Floats:
        """(N, 2) GPU seconds, then GPUs."""
        gpus = state.gpus_taken.astype(np.float64)
        return np.stack([state.predicted_seconds * gpus, gpus], axis=1)


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

    needs = Need.LENGTHS | Need.FRACTIONS

    def key(self, state: ClusterState) -> Floats:
        """(N,) seconds that each job still needs on its fastest type."""
        return quotient(state.steps_remaining, state.fastest_rates, np.inf)
