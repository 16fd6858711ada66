"""How much of the progress of a sample is left when the batch grows: statistical efficiency.

The gradient of a batch is its mean, of squared norm mu^2, and noise, of variance sigma^2 at the initial batch size B0.
A step with a batch of B = s B0 samples makes the progress of

    gain(s) = (sigma^2 + mu^2) / (sigma^2 / s + mu^2)

initial steps, between 1 and s, so a sample makes gain(s) / s of the progress that one makes in a batch of B0: with the
gradient noise scale phi = B0 sigma^2 / mu^2 that is (phi + B0) / (phi + B).

Source: A. Qiao et al., "Pollux", OSDI 2021, section 3.1; T. Johnson et al., "AdaScale SGD", ICML 2020.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from throughputs.arrays import Floats, Rowed
from throughputs.frames import NOT_NEGATIVE, column, keep_columns


@dataclass(frozen=True, eq=False)
class GradientStatistics(Rowed):
    """Statistics of the gradients of J jobs, both at the initial batch size, in one unit of their own for each job.

    Parameters
    ----------
    square_norm : (J,) squared norm of the mean gradient.
    variance : (J,) trace of the covariance of gradients.

    Raises
    ------
    InputError
        Arrays of different length, or a figure that is negative or not finite.
    """

    square_norm: Floats = column("number", within=NOT_NEGATIVE, expected="numbers of at least 0")
    variance: Floats = column("number", within=NOT_NEGATIVE, expected="numbers of at least 0")

    def __init__(self, square_norm: ArrayLike, variance: ArrayLike) -> None:
        given = {"square_norm": np.atleast_1d(square_norm), "variance": np.atleast_1d(variance)}
        keep_columns(self, given, "gradient statistics")

    def gain(self, scale: ArrayLike) -> Floats:
        """(J,) initial steps that one step with `scale` times the batch is worth."""
        return gain(np.asarray(scale, dtype=float), self.square_norm, self.variance)

    def efficiency(self, scale: ArrayLike) -> Floats:
        """(J,) progress of a sample relative to one in a batch of the initial size."""
        return np.asarray(self.gain(scale) / np.asarray(scale, dtype=float))


def gain(scale: Floats, square_norm: Floats, variance: Floats) -> Floats:
    """Initial steps that one step with `scale` times the batch is worth; arrays that broadcast.

    With gradients of which neither mean nor noise is known it is worth one, as in the published code.
    """
    worth = variance / scale + square_norm
    known = worth > 0
    return np.asarray(np.where(known, (variance + square_norm) / np.where(known, worth, 1.0), 1.0))
