"""What is believed of jobs that share GPUs, before they have run together and after.

Job types are profiled a little (`throughputs.ThroughputEstimator`), and what pairs of them do is estimated from that;
policies and the mechanism count with the estimates. Once a pair has run on a type, what it really does there is known.

>>> from throughputs import PackedColumns
>>> truth = PackedColumns([0, 1], [[4.0], [2.0]], [[[2.0], [3.0]], [[1.0], [1.2]]])
>>> believed = BelievedColocation(truth, Estimation(reference_models=1), seed=0)
>>> bool(believed.together[0, 1, 0] == truth.together[0, 1, 0])
False
>>> believed.measure(np.array([0]), np.array([1]), np.array([0]))
True
>>> believed.together[[0, 1], [1, 0], 0]
array([3., 1.])

Source: D. Narayanan et al., OSDI 2020, section 6 (throughput estimator).
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from throughputs.arrays import Floats, Ints
from throughputs.errors import InputError, expect
from throughputs.estimator.estimator import ThroughputEstimator, sample_profile
from throughputs.files import JsonObject
from throughputs.packed import PackedColumns

# Of the seeds of a run: the stream of the estimator.
_STREAM = 4


@dataclass(frozen=True)
class Estimation:
    """How what jobs do in pairs is estimated.

    Parameters
    ----------
    profiling_percentage : part of the entries (reference model, accelerator type) that is profiled of every job type,
        0 to 1.
    reference_models : how many job types, drawn at random among those with gangs of one size, are profiled in full with
        one another; None, or more than there are: all.

    Raises
    ------
    InputError
        A percentage outside its range, or no reference model.

    >>> Estimation(profiling_percentage=0.3, reference_models=8).reference_models
    8
    """

    profiling_percentage: float = 1.0
    reference_models: int | None = None

    def __post_init__(self) -> None:
        percentage, models = self.profiling_percentage, self.reference_models
        expect(0.0 <= percentage <= 1.0, "estimation", "profiling_percentage", percentage, "0 to 1")
        if models is not None and models < 1:
            raise InputError("estimation", field="reference_models", found=models, expected="at least 1")

    def as_dict(self) -> JsonObject:
        """Every setting by name, ready for JSON."""
        return asdict(self)


class BelievedColocation:
    """Throughput of G groups of jobs beside each other as it is believed to be.

    Parameters
    ----------
    truth : what they do; groups of jobs with equal rates. Jobs may be added to it later, groups not.
    estimation : settings.
    seed : of the draws of reference models and profiles, which are independent of each other for each gang size: more
        reference models include the fewer, and a larger percentage what a smaller one profiles.

    Attributes
    ----------
    together : (G, G, M) steps/s, as `PackedColumns.together`; 0 where two groups are believed not to fit.
    error : mean absolute error of the retained fraction (throughput beside another job over throughput alone) before
        anything has run, over pairs of groups with gangs of one size and the types that both can run on; nan without.
    measured_pairs : pairs of groups and types that have been measured, each pair once.
    """

    def __init__(self, truth: PackedColumns, estimation: Estimation, seed: int) -> None:
        self._alone = truth.alone
        self._truth = truth.together
        self.together: Floats = np.zeros_like(truth.together)
        self._measured = np.zeros(truth.together.shape, dtype=bool)
        self.measured_pairs = 0
        errors: list[Floats] = []
        for size in np.unique(truth.group_scale_factors).tolist():
            groups = np.flatnonzero(truth.group_scale_factors == size)
            errors.append(self._estimate(groups, estimation, np.random.default_rng([seed, _STREAM, size])))
        known = np.concatenate(errors) if errors else np.empty(0)
        self.error = float(known.mean()) if known.size else float("nan")

    def _estimate(self, groups: Ints, estimation: Estimation, rng: np.random.Generator) -> Floats:
        """Fill in what is believed of groups with gangs of one size; returns the errors of the retained fractions."""
        square = np.ix_(groups, groups)
        alone = self._alone[groups]
        able = (alone[:, None] > 0) & (alone[None, :] > 0)
        retained = np.divide(self._truth[square], alone[:, None], out=np.zeros(able.shape), where=able)
        retained = np.minimum(retained, 1.0)
        references = np.sort(rng.permutation(len(groups))[: estimation.reference_models])
        estimator = ThroughputEstimator(retained[np.ix_(references, references)])
        for profile in sample_profile(retained, estimation.profiling_percentage, rng)[:, references]:
            estimator.add(profile)
        believed = np.where(able, estimator.retained(), 0.0)
        self.together[square] = believed * alone[:, None]
        return np.asarray(np.abs(believed - retained)[able])

    def state(self) -> dict[str, Any]:
        """What a checkpoint keeps."""
        return {"together": self.together, "measured": self._measured, "measured_pairs": self.measured_pairs}

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from `state`."""
        self.together, self._measured = state["together"], state["measured"]
        self.measured_pairs = state["measured_pairs"]

    def measure(self, one: Ints, other: Ints, accelerator: Ints) -> bool:
        """Pairs of jobs of groups `one` and `other` (K,) ran on `accelerator` (K,): what they do is known from now on.

        Answers whether this changes what was believed.
        """
        new = ~self._measured[one, other, accelerator]
        if not new.any():
            return False
        one, other, accelerator = one[new], other[new], accelerator[new]
        changed = False
        for a, b in ((one, other), (other, one)):
            self._measured[a, b, accelerator] = True
            changed |= bool((self.together[a, b, accelerator] != self._truth[a, b, accelerator]).any())
            self.together[a, b, accelerator] = self._truth[a, b, accelerator]
        keys = np.stack([np.minimum(one, other), np.maximum(one, other), accelerator])
        self.measured_pairs += len(np.unique(keys, axis=1).T)
        return changed
