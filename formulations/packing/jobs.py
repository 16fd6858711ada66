"""Who may share GPUs with whom: gang size, memory, sharing scores and predicted lengths."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from formulations.arguments import figures
from throughputs.arrays import Flags, Floats, Ints


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

    def followed_by(self, others: PackingJobs) -> PackingJobs:
        """These jobs, then the others."""
        return PackingJobs(*map(np.concatenate, zip(vars(self).values(), vars(others).values(), strict=True)))


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

    Source: Hu et al. (Lucid), ASPLOS 2023, section 3.3.
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
    fractions = checked_retained(retained)
    both = (fractions > 0) & (fractions.T > 0)
    same = (guests.gpus[:, None] == hosts.gpus) & (guests.gpus[:, None] <= limits.largest_gang)
    budget = guests.score[:, None] + hosts.score <= limits.score_budget
    length = guests.length[:, None] <= limits.length_ratio * hosts.length
    return np.asarray(same & budget & length & both[guests.kind[:, None], hosts.kind])


def checked_retained(retained: ArrayLike) -> Floats:
    """(K, K) the fractions as an array; InputError for others than finite numbers of at least 0."""
    kinds = len(np.atleast_1d(retained))
    return figures("packing", "retained", retained, (kinds, kinds), "numbers of at least 0")
