"""Packing two jobs on the same GPUs: who may share with whom, the published greedy, and the best pairs.

Waiting job i beside host j starts now instead of after a wait, and both go slower for as long as they share. In GPU
time this saves

    b_ij = g_i (w_i - r_i (1 / R_ij - 1) - r_j (1 / R_ji - 1))

with gangs of g_i GPUs, r seconds left alone, an expected wait of w_i seconds and retained fractions R. That the two
share to the end is assumed, so b_ij is what is saved at least. Each guest joins at most one host and each host takes at
most one guest, an assignment problem::

    max  sum_ij b_ij z_ij    sum_j z_ij <= 1,   sum_i z_ij <= 1,   z_ij in {0, 1},  z_ij = 0 where the two may not share

Limits on scores, memory, sizes and lengths are constraints, not penalties: who may not share does not, however much it
would save. The published rule walks through the line instead, and each job takes the first host that it may join.

>>> import numpy as np
>>> from formulations.packing import PackingJobs, PackingLimits, best_pairs, first_hosts, pair_savings
>>> waiting = PackingJobs(gpus=[1, 1], score=[0, 1], length=[600.0, 900.0], kind=[0, 1])
>>> running = PackingJobs(gpus=[1, 1], score=[1, 1], length=[800.0, 5000.0], kind=[1, 1])
>>> retained = np.array([[1.0, 0.9], [0.8, 0.7]])
>>> first_hosts(waiting, running, retained, PackingLimits()).host.tolist()
[0, 1]
>>> savings = pair_savings(
...     waiting, running, retained, PackingLimits(),
...     remaining=[600.0, 900.0], host_remaining=[800.0, 5000.0], wait=[3600.0, 3600.0],
... )
>>> best_pairs(savings).tolist()
[1, 0]

Source: Hu et al. (Lucid), ASPLOS 2023, section 3.3 and public artifact; the program is ours.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from formulations.arguments import figures
from throughputs.arrays import Flags, Floats, Ints

HostChoice = Literal["first", "fastest"]
"""Of the hosts that a job may join: the first to have started, or that with which the two keep most together."""


@dataclass(frozen=True, eq=False)
class PackingJobs:
    """N jobs, as far as packing looks at them.

    Attributes
    ----------
    gpus : (N,) GPUs of the gang.
    score : (N,) sharing score: 0 for a job that hardly disturbs another one on the same GPUs, 1, or 2.
    length : (N,) predicted GPU seconds, predicted duration times GPUs.
    kind : (N,) row of each job in the table of retained fractions.

    Raises
    ------
    InputError
        Columns of different length, a gang without GPUs, or a score or length below 0.
    """

    gpus: Ints
    score: Ints
    length: Floats
    kind: Ints

    def __init__(self, gpus: ArrayLike, score: ArrayLike, length: ArrayLike, kind: ArrayLike) -> None:
        columns = {"gpus": gpus, "score": score, "length": length, "kind": kind}
        for name, values in columns.items():
            numbers = "numbers above 0" if name == "gpus" else "numbers of at least 0"
            column = figures("packing", name, values, (len(np.atleast_1d(gpus)),), numbers)
            object.__setattr__(self, name, column if name == "length" else column.astype(np.int64))

    def __len__(self) -> int:
        return len(self.gpus)

    def part(self, rows: slice) -> PackingJobs:
        """Some of the jobs."""
        return PackingJobs(*(values[rows] for values in vars(self).values()))


@dataclass(frozen=True)
class PackingLimits:
    """What two jobs on the same GPUs have to keep.

    Attributes
    ----------
    score_budget : the most that their sharing scores may be together; 0, 1 or 2 bound the interference, 4 does not.
    largest_gang : gangs with more GPUs share with nobody.
    length_ratio : the job that joins is predicted to take at most so many times the GPU time of the one that it joins.

    Raises
    ------
    InputError
        A limit that is negative, or a gang without GPUs.
    """

    score_budget: int = 2
    largest_gang: int = 8
    length_ratio: float = 2.0

    def __post_init__(self) -> None:
        for name in ("score_budget", "length_ratio"):
            figures("packing", name, getattr(self, name), (), "numbers of at least 0")
        figures("packing", "largest_gang", self.largest_gang, ())


def admissible_pairs(guests: PackingJobs, hosts: PackingJobs, retained: ArrayLike, limits: PackingLimits) -> Flags:
    """(W, R) whether each of W guests may join each of R hosts, which have their GPUs to themselves.

    Two jobs may share where their gangs have the same size, up to the largest that shares; where both make progress,
    which they do not where the memory of the GPU is too small for the two; where their scores keep the budget; and
    where the guest is not predicted to take much longer than the host.

    Parameters
    ----------
    retained : (K, K) what a job of each kind keeps of its throughput beside one of each other kind; 0: may not share.
    """
    kept = _checked(retained)
    both = (kept > 0) & (kept.T > 0)
    same = (guests.gpus[:, None] == hosts.gpus) & (guests.gpus[:, None] <= limits.largest_gang)
    budget = guests.score[:, None] + hosts.score <= limits.score_budget
    length = guests.length[:, None] <= limits.length_ratio * hosts.length
    return np.asarray(same & budget & length & both[guests.kind[:, None], hosts.kind])


def _checked(retained: ArrayLike) -> Floats:
    """(K, K) the fractions as an array; InputError for others than finite numbers of at least 0."""
    kinds = len(np.atleast_1d(retained))
    return figures("packing", "retained", retained, (kinds, kinds), "numbers of at least 0")


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


def first_hosts(
    guests: PackingJobs,
    hosts: PackingJobs,
    retained: ArrayLike,
    limits: PackingLimits,
    *,
    start: Callable[[int], bool] = lambda _: False,
    may_start: ArrayLike = True,
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
    may_start : (W,) False for jobs of which it is known that `start` has no room for them.
    place_first : whether a job looks for free GPUs before it looks for a host; as published it packs first.
    choice : which host.
    """
    W, R = len(guests), len(hosts)
    host, starts, room = np.full(W, -1, dtype=np.int64), np.zeros(W, dtype=np.bool_), np.zeros(W, dtype=np.bool_)
    room[:] = may_start
    # of hosts the running jobs, then the waiting ones, which take guests once they start
    allowed = admissible_pairs(guests, hosts, retained, limits)
    if room.any():
        allowed = np.hstack([allowed, admissible_pairs(guests, guests, retained, limits) & room])
    takes = np.arange(allowed.shape[1]) < R
    kind, kept = np.concatenate([hosts.kind, guests.kind]), np.asarray(retained)

    def starts_now(i: int) -> bool:
        """Whether job i starts; it is a host for others then."""
        if room[i] and start(i):
            starts[i] = takes[R + i] = True
        return bool(starts[i])

    # most jobs of a long line have no choice: they are passed over
    for i in np.flatnonzero(room | allowed.any(axis=1)).tolist():
        if place_first and starts_now(i):
            continue
        candidates = np.flatnonzero(allowed[i] & takes)
        if len(candidates):
            own, theirs = guests.kind[i], kind[candidates]
            best = candidates[(kept[own, theirs] + kept[theirs, own]).argmax() if choice == "fastest" else 0]
            host[i], takes[best] = best, False
        elif not place_first:
            starts_now(i)
    return Greedy(host, starts)


def pair_savings(
    guests: PackingJobs,
    hosts: PackingJobs,
    retained: ArrayLike,
    limits: PackingLimits,
    *,
    remaining: ArrayLike,
    host_remaining: ArrayLike,
    wait: ArrayLike,
) -> Floats:
    """(W, R) GPU seconds that each pair saves, b_ij; -inf for two that may not share.

    Parameters
    ----------
    retained : (K, K) fractions of throughput kept by kind beside kind.
    remaining, host_remaining : (W,), (R,) seconds that the jobs are predicted to need alone.
    wait : (W,) seconds that each guest is expected to wait for GPUs of its own.

    Raises
    ------
    InputError
        A column of another length, or times below 0 or not finite.
    """
    kept = _checked(retained)
    r, r_host, w = (
        figures("packing", name, values, (len(jobs),), "numbers of at least 0")
        for name, values, jobs in (
            ("remaining", remaining, guests),
            ("host_remaining", host_remaining, hosts),
            ("wait", wait, guests),
        )
    )
    slower = 1.0 / np.where(kept > 0, kept, 1.0) - 1.0
    own, theirs = guests.kind[:, None], hosts.kind
    saved = guests.gpus[:, None] * (w[:, None] - (r[:, None] * slower[own, theirs] + r_host * slower[theirs, own]))
    return np.where(admissible_pairs(guests, hosts, kept, limits), saved, -np.inf)


def best_pairs(savings: Floats) -> Ints:
    """(W,) the host that each guest joins, -1 for none, so that the pairs save most of ``savings`` (W, R).

    Exactly, by `scipy.optimize.linear_sum_assignment`. Pairs that save nothing are left out.
    """
    from scipy.optimize import linear_sum_assignment

    host = np.full(len(savings), -1, dtype=np.int64)
    guest, joins = linear_sum_assignment(np.maximum(savings, 0.0), maximize=True)
    saves = savings[guest, joins] > 0
    host[guest[saves]] = joins[saves]
    return host
