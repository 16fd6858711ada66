"""Throughput models from measured steps."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from throughputs.arrays import Floats
from throughputs.entry_points import entries_of, load
from throughputs.errors import expect_one_of
from throughputs.goodput.log_errors import Cells, minimised, starting_points
from throughputs.goodput.model import ThroughputModels
from throughputs.goodput.samples import Samples

_REMEMBERED = 1 << 14
"""Fits that are kept: a simulation asks for the same again, for jobs of one kind that ran on the same GPUs."""

_ACROSS_NODES = 1.1
"""How much longer than on one node synchronisation lasts on several, as long as nothing is measured there."""


@dataclass(frozen=True)
class Fit:
    """A throughput model and how well it agrees with the samples it was fitted to.

    Attributes
    ----------
    parameters : the seven, in the order of `PARAMETERS`.
    loss : what the fit made small.
    """

    parameters: tuple[float, ...]
    loss: float

    @property
    def model(self) -> ThroughputModels:
        """The model, as one of a single job."""
        return ThroughputModels(self.parameters)

    def errors(self, samples: Samples) -> dict[str, float]:
        """Relative errors of step times: root mean square, mean and largest of ``|fitted - measured| / measured``."""
        relative = np.abs(self.step_times(samples) / samples.step_time - 1.0)
        return {
            "root_mean_square": float(np.sqrt(np.mean(relative * relative))),
            "mean": float(np.mean(relative)),
            "largest": float(np.max(relative)),
        }

    def step_times(self, samples: Samples) -> Floats:
        """(S,) seconds of the steps of the samples as the model has them."""
        return np.asarray(self.model.step_time(samples.nodes, samples.gpus, samples.batch_size)[0])


_LEAST_LOSS = "least_loss"


def fits() -> tuple[str, ...]:
    """Names of the ways to fit: to the least loss, and those that packages bring along."""
    return (_LEAST_LOSS, *entries_of("throughputs.fits"))


def check_fit(fit: str) -> None:
    """InputError unless the way to fit is known."""
    # packages are asked for theirs only where it is none of ours: they may be in the midst of being imported
    if fit != _LEAST_LOSS:
        expect_one_of(fit, fits(), "goodput", "fit")


def fit_model(samples: Samples, fit: str = "least_loss") -> Fit:
    """The throughput model for measured steps: with the least loss (`throughputs.goodput.log_errors`), or another's.

    Parameters that samples say nothing about are held as in the published code, and steps on several nodes, as long
    as there is no sample of any, are taken to synchronise at least 1.1 times as long as on one. Fits are remembered.

    Parameters
    ----------
    samples : the measured steps.
    fit : one of `fits()`: "least_loss", or the name of an entry point ``throughputs.fits``, as of a published descent.

    Raises
    ------
    InputError
        Another fit.
    """
    return fit_models([samples], fit)[0]


def fit_models(samples: Sequence[Samples], fit: str = "least_loss") -> list[Fit]:
    """`fit_model` of each, those of as many distinct configurations at once; results do not depend on the company."""
    check_fit(fit)
    remembered = _remembered[fit]
    new = {one.content: one for one in samples if one.content not in remembered}
    by_size: dict[int, list[tuple[bytes, Cells]]] = {}
    for content, one in new.items():
        cells = Cells.of(one)
        by_size.setdefault(cells.weight.shape[1], []).append((content, cells))
    for problems in by_size.values():
        contents, cells_of = zip(*problems, strict=True)
        remembered.update(zip(contents, _fitted(cells_of, fit), strict=True))
    found = [remembered[one.content] for one in samples]
    while len(remembered) > _REMEMBERED:
        del remembered[next(iter(remembered))]
    return found


def _fitted(problems: Sequence[Cells], fit: str) -> list[Fit]:
    """Fits of problems with as many cells."""
    cells = Cells.together(problems)
    if fit == _LEAST_LOSS:
        theta, loss = minimised(cells, starting_points(cells))
    else:
        theta, loss = load("fits", fit)(cells)
    unmeasured = np.add.reduce(cells.basis[:, 2], axis=1) == 0
    across = np.maximum(theta[:, 2:4], _ACROSS_NODES * theta[:, 4:6])
    theta[:, 2:4] = np.where(unmeasured[:, None], across, theta[:, 2:4])
    return [Fit(tuple(row), value) for row, value in zip(theta.tolist(), loss.tolist(), strict=True)]


_remembered: defaultdict[str, dict[bytes, Fit]] = defaultdict(dict)
