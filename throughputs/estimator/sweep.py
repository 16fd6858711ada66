"""The error of the throughput estimator over how much is profiled and how many reference models there are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from throughputs.errors import InputError
from throughputs.estimator.completion import LowRankCompletion
from throughputs.estimator.estimator import Basis, Distance, Estimate, ThroughputEstimator, sample_profile

if TYPE_CHECKING:
    import pandas as pd


def estimation_errors(
    truth: ArrayLike,
    percentages: Sequence[float],
    reference_counts: Sequence[int],
    *,
    trials: int = 10,
    seed: int = 0,
    noise: float = 0.0,
    completion: LowRankCompletion | None = None,
    distance: Distance = "cosine",
    basis: Basis = "completed",
    estimate: Estimate = "match",
) -> pd.DataFrame:
    """Error of the estimator when every job type is profiled once, as one row per setting, trial and set of pairs.

    In each trial the reference models are drawn from the job types without replacement, every job type is profiled
    beside them at random, and all pairs are estimated. Trials with the same number are comparable: smaller sets of
    references are parts of larger ones, and what a small percentage profiles a larger one profiles too.

    Columns
    -------
    ``profiling_percentage`` (0 to 1), ``reference_models``, ``trial``;
    ``pairs`` : ``all``, or ``new`` for those with at least one job type that is not a reference model;
    ``mean_absolute_error``, ``root_mean_square_error`` : of the retained fraction over those pairs and accelerator
        types, nan when there are none;
    ``match_rank`` : mean, over the job types (all, or new ones), of the rank of the chosen reference model by true
        distance; 1 is the nearest.

    Parameters
    ----------
    truth : (G, G, M) retained fractions of all job types, in [0, 1], for example of `retained_fractions`.
    percentages : parts of the entries that are profiled, each in [0, 1].
    reference_counts : numbers of reference models, each from 1 to G.
    trials, seed : at least 1 trial; trial t draws from ``numpy.random.default_rng([seed, t])``.
    noise : standard deviation of the relative error of a profiled entry, at least 0.
    completion, distance, basis, estimate : see `ThroughputEstimator`.

    Raises
    ------
    InputError
        A setting is out of its range, or the truth is not a cube of fractions.
    """
    import pandas as pd

    fractions = np.asarray(truth, dtype=np.float64)
    counts = [int(n) for n in reference_counts]
    _check(fractions, counts, trials, noise)
    rows: list[dict[str, Any]] = []
    for trial in range(trials):
        rng = np.random.default_rng([seed, trial])
        order = rng.permutation(len(fractions))
        profile_seed = int(rng.integers(2**63))
        for n in counts:
            references = np.sort(order[:n])
            for percentage in percentages:
                estimator = ThroughputEstimator(
                    fractions[np.ix_(references, references)],
                    completion,
                    distance=distance,
                    basis=basis,
                    estimate=estimate,
                )
                draws = np.random.default_rng(profile_seed)
                known = sample_profile(fractions, percentage, draws)
                known = np.clip(known * (1.0 + noise * draws.standard_normal(known.shape)), 0.0, 1.0)
                for profile in known[:, references]:
                    estimator.add(profile)
                setting = {"profiling_percentage": float(percentage), "reference_models": n, "trial": trial}
                rows.extend({**setting, **errors} for errors in _errors(estimator, fractions, references))
    return pd.DataFrame(rows)


def _errors(
    estimator: ThroughputEstimator, truth: NDArray[np.float64], references: NDArray[np.int64]
) -> Iterator[dict[str, Any]]:
    difference = estimator.retained() - truth
    ranks = _match_ranks(estimator, truth[:, references])
    new = ~np.isin(np.arange(len(truth)), references)
    for name, jobs, pairs in (
        ("all", np.ones_like(new), np.ones((len(new), len(new)), dtype=np.bool_)),
        ("new", new, new[:, np.newaxis] | new),
    ):
        chosen = difference[pairs]
        yield {
            "pairs": name,
            "mean_absolute_error": float(np.abs(chosen).mean()) if chosen.size else np.nan,
            "root_mean_square_error": float(np.sqrt((chosen**2).mean())) if chosen.size else np.nan,
            "match_rank": float(ranks[jobs].mean()) if jobs.any() else np.nan,
        }


def _match_ranks(estimator: ThroughputEstimator, fingerprints: NDArray[np.float64]) -> NDArray[np.int64]:
    """(G,) how many reference models are nearer to the true fingerprint than the chosen one, plus 1."""
    rows = estimator.references.reshape(estimator.n_references, -1)
    distances = np.stack([estimator.distances(row.ravel(), rows) for row in fingerprints])
    chosen = np.take_along_axis(distances, estimator.matches[:, np.newaxis], axis=1)
    return np.asarray(1 + (distances < chosen).sum(axis=1))


def _check(truth: NDArray[np.float64], counts: list[int], trials: int, noise: float) -> None:
    source = "estimation errors"
    if truth.ndim != 3 or truth.shape[0] != truth.shape[1] or not truth.size:
        raise InputError(source, field="truth", found=truth.shape, expected="shape (G, G, M)")
    for n in counts:
        if not 1 <= n <= len(truth):
            raise InputError(source, field="reference_counts", found=n, expected=f"numbers from 1 to {len(truth)}")
    if trials < 1:
        raise InputError(source, field="trials", found=trials, expected="at least 1")
    if not 0 <= noise < np.inf:
        raise InputError(source, field="noise", found=noise, expected="a finite number of at least 0")
