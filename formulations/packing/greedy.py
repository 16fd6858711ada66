"""The published rule: waiting jobs in order, each beside the first running job that it may join.

Source: Hu et al. (Lucid), ASPLOS 2023, section 3.3 and public artifact.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from formulations.packing.jobs import PackingJobs, PackingLimits, admissible_pairs, checked_retained
from throughputs.arrays import Flags, Ints

HostChoice = Literal["first", "fastest"]
"""Of the hosts that a job may join: the first to have started, or that with which the two keep most together."""


@dataclass(frozen=True, eq=False)
class Greedy:
    """What becomes of W waiting jobs.

    Attributes
    ----------
    host : (W,) the host that each joins, -1 for none; from R on, waiting job ``host - R``, which starts now.
    starts : (W,) whether it starts on GPUs of its own.
    """

    host: Ints
    starts: Flags


def _no_room(job: int) -> bool:  # noqa: ARG001
    return False


def first_hosts(
    guests: PackingJobs,
    hosts: PackingJobs,
    retained: ArrayLike,
    limits: PackingLimits,
    *,
    start: Callable[[int], bool] = _no_room,
    may_start: ArrayLike | None = None,
    place_first: bool = False,
    choice: HostChoice = "first",
) -> Greedy:
    """Walk through W waiting jobs, first in line first: each joins a host, or else starts on GPUs of its own.

    Nobody holds up those behind. A host takes one guest; a job that starts is a host for those behind it at once.

    Parameters
    ----------
    guests : W waiting jobs in the order in which they are considered.
    hosts : R running jobs that have their GPUs to themselves, in the order in which they started.
    retained : (K, K) fractions of throughput kept by kind beside kind.
    start : gives waiting job i GPUs of its own if there is room, and answers whether it did.
    may_start : (W,) False for jobs of which it is known that `start` has no room for them; None: not known.
    place_first : whether a job looks for free GPUs before it looks for a host; as published it packs first.
    choice : which host.
    """
    W, R = len(guests), len(hosts)
    kept = checked_retained(retained)
    room = np.ones(W, dtype=np.bool_) if may_start is None else np.asarray(may_start, dtype=np.bool_)
    # Of hosts the running jobs, then the waiting ones, which are open once they start.
    everybody = hosts.followed_by(guests) if room.any() else hosts
    allowed = admissible_pairs(guests, everybody, kept, limits)
    open_to_guests = np.arange(len(everybody)) < R
    host, starts = np.full(W, -1, dtype=np.int64), np.zeros(W, dtype=np.bool_)
    # Most jobs of a long line have no choice: they are passed over.
    has_choice: Flags = np.asarray(allowed[:, :R].any(axis=1))

    def starts_now(i: int) -> bool:
        """Whether job i starts; it is a host for others then."""
        if not room[i] or not start(i):
            return False
        starts[i] = open_to_guests[R + i] = True
        has_choice[allowed[:, R + i]] = True
        return True

    for i in range(W) if room.any() else np.flatnonzero(has_choice).tolist():
        if not (room[i] or has_choice[i]) or (place_first and starts_now(i)):
            continue
        candidates = np.flatnonzero(allowed[i] & open_to_guests) if has_choice[i] else _NOBODY
        if len(candidates):
            best = candidates[0]
            if choice == "fastest":
                own, theirs = guests.kind[i], everybody.kind[candidates]
                best = candidates[(kept[own, theirs] + kept[theirs, own]).argmax()]
            host[i], open_to_guests[best] = best, False
        elif not place_first:
            starts_now(i)
    return Greedy(host, starts)


_NOBODY = np.empty(0, dtype=np.int64)
