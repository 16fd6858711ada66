"""The throughput estimator: what pairs of jobs would keep, from a few profiled entries of each job.

>>> import numpy as np
>>> from throughputs.colocation.model import default_colocation
>>> names, accelerators = ["A3C", "CycleGAN", "LM (batch size 20)", "Transformer (batch size 64)"], ["v100", "p100"]
>>> truth = default_colocation().retained(names, accelerators)
>>> estimator = ThroughputEstimator(truth[:3, :3])  # the first three are the reference models
>>> rng = np.random.default_rng(1)
>>> for job in range(4):
...     position = estimator.add(sample_profile(truth[job, :3], 0.8, rng))
>>> estimator.retained().shape
(4, 4, 2)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike

from throughputs.arrays import Floats, Ints
from throughputs.colocation.model import retained_fractions
from throughputs.errors import InputError, expect, expect_one_of
from throughputs.estimator.completion import low_rank_completion
from throughputs.limits import require_all
from throughputs.numerics import dot, matmul
from throughputs.tables.table import ThroughputTable

Estimate = Literal["match", "fingerprint"]
"""What stands for a job in a pair: the reference model it matches, or its own fingerprint."""

_SOURCE = "throughput estimator"


class ThroughputEstimator:
    """Estimates retained fractions (see `throughputs.colocation.model`) of pairs of jobs nobody has run together.

    There are n reference models, profiled in full with one another on M accelerator types: ``Q[r, s, j]`` is the
    fraction of its isolated throughput that r keeps beside s on type j. A new job a is profiled beside some of them:
    ``f_a[s, j]`` is known for (s, j) in Omega_a. Then, for each job on its own,

    1. *completion*: the row f_a is set below the n rows ``Q[r]``, each as a vector of n M entries, and the matrix is
       completed at low rank (`low_rank_completion`); estimates are cut to [0, 1] and profiled entries kept as they
       are. This is the fingerprint of the job;
    2. *match*: a* = argmin_r d(f_a, Q[r]), d the cosine distance, or for a fingerprint of zeros, which has no angle,
       the Euclidean one; the first of equals;
    3. *pairs*: R[a, b, j] = Q[a*, b*, j] (``estimate="match"``), or f_a[b*, j] (``"fingerprint"``), which keeps what is
       particular to a. Where either of two jobs is estimated at 0, they may not share and both are 0.

    Jobs of one estimator have one scale factor, as only equal gangs may share. No estimate depends on the order in
    which jobs are added.

    Source: D. Narayanan et al., "Heterogeneity-Aware Cluster Scheduling Policies for Deep Learning Workloads",
    OSDI 2020, section 6 (match). Profiled entries are found by reference model here, so that they
    belong to the right columns whatever the number of reference models.

    Parameters
    ----------
    references : (n, n, M) Q, fractions in [0, 1].
    estimate : as above.

    Raises
    ------
    InputError
        The references are not a cube of fractions, there are none, or the estimate is unknown.
    """

    def __init__(
        self,
        references: ArrayLike,
        *,
        estimate: Estimate = "match",
    ) -> None:
        self.references = np.array(references, dtype=float)
        self.estimate = estimate
        shape = self.references.shape
        expect(
            len(shape) == 3 and shape[0] == shape[1] and shape[0],
            _SOURCE,
            "references",
            shape,
            "shape (n, n, M), n at least 1",
        )
        _check_fractions("references", self.references, "fractions from 0 to 1")
        expect_one_of(estimate, get_args(Estimate), _SOURCE, "estimate")
        self._fingerprints: list[Floats] = []
        self._matches: list[int] = []

    @classmethod
    def from_table(
        cls,
        table: ThroughputTable,
        job_types: Sequence[str],
        accelerators: Sequence[str],
        *,
        scale_factor: int = 1,
        estimate: Estimate = "match",
    ) -> ThroughputEstimator:
        """Estimator with job types of a table as reference models, for gangs of one size.

        Fractions above 1 (noise of a measurement) count as 1.

        Raises
        ------
        InputError
            The table does not know a name, or has no figure for a pair of reference models.
        """
        fractions = retained_fractions(table, job_types, accelerators, scale_factor)
        if np.isnan(fractions).any():
            a, b, j = (int(i) for i in np.argwhere(np.isnan(fractions))[0])
            where = f"{job_types[a]} beside {job_types[b]} on {accelerators[j]!r}"
            raise InputError(table.source, field=where, expected="the throughput of every pair of reference models")
        return cls(np.minimum(fractions, 1.0), estimate=estimate)

    @property
    def matches(self) -> Ints:
        """(G,) position of the reference model that each job was matched with."""
        return np.array(self._matches, dtype=np.int64)

    @property
    def fingerprints(self) -> Floats:
        """(G, n, M) fraction each job keeps beside each reference model: profiled, or completed."""
        return np.array(self._fingerprints, dtype=float).reshape(-1, *self.references.shape[1:])

    def add(self, profile: ArrayLike) -> int:
        """Take in a job from its profile; answers with its position.

        Parameters
        ----------
        profile : (n, M) fraction the job keeps beside each reference model, nan where it was not profiled; 0 where
            the two do not fit.

        Raises
        ------
        InputError
            The shape is another one, or an entry is not a fraction.
        """
        measured = np.array(profile, dtype=float)
        shape = self.references.shape[1:]
        expect(measured.shape == shape, _SOURCE, "profile", measured.shape, f"shape {shape}, as of one reference model")
        _check_fractions("profile", np.nan_to_num(measured), "fractions from 0 to 1, or nan")
        row = measured.ravel()
        rows = self.references.reshape(len(self.references), -1)
        completed = low_rank_completion(np.vstack([rows, row]))[-1]
        fingerprint = np.where(np.isnan(row), np.clip(completed, 0.0, 1.0), row)
        self._matches.append(int(np.argmin(_distances(fingerprint, rows))))
        self._fingerprints.append(fingerprint.reshape(measured.shape))
        return len(self._matches) - 1

    def retained(self) -> Floats:
        """(G, G, M) fraction that row keeps beside column."""
        match = self.matches
        matched = self.references[match] if self.estimate == "match" else self.fingerprints
        fractions = matched[:, match]
        return np.where(fractions.swapaxes(0, 1) > 0, fractions, 0.0)


def sample_profile(row: ArrayLike, percentage: float, rng: np.random.Generator) -> Floats:
    """A row (n, M) of which each entry is profiled with probability `percentage`, in [0, 1]; nan where it is not.

    Raises
    ------
    InputError
        The percentage is not in [0, 1].
    """
    values = np.asarray(row, dtype=float)
    expect(0.0 <= percentage <= 1.0, _SOURCE, "percentage", percentage, "a number from 0 to 1")
    # random() is below 1, so that 1 profiles everything and 0 nothing
    return np.where(rng.random(values.shape) < percentage, values, np.nan)


def _check_fractions(field: str, values: Floats, expected: str) -> None:
    require_all((values >= 0) & (values <= 1), values, _SOURCE, lambda *at: f"{field}{list(at)}", expected)


def _distances(fingerprint: Floats, rows: Floats) -> Floats:
    """(R,) distance of a fingerprint (C,) from each of the rows (R, C)."""
    if not fingerprint.any():
        return np.asarray(np.sqrt((rows**2).sum(axis=1)))
    lengths = np.sqrt((rows * rows).sum(axis=1) * dot(fingerprint, fingerprint))
    return np.where(lengths > 0, 1.0 - matmul(rows, fingerprint) / np.where(lengths > 0, lengths, 1.0), 1.0)
