"""Small trainings for tests: models whose figures are easy to reckon with."""

from __future__ import annotations

import numpy as np

from throughputs import Trace
from throughputs.goodput.profiles import Profile, Profiles
from throughputs.goodput.trainings import Trainings, trainings_of


def profile(noise: tuple[float, ...] = (1e9, 1e9), steps: float = 1000.0, sync: float = 0.0, **types: float) -> Profile:
    """A model of which a sample takes a hundredth of a second on a GPU of speed 1; batches of 16 to 256 samples."""
    speeds = types or {"gpu": 1.0}
    return Profile(
        initial_batch_size=16,
        largest_batch_size=256,
        least_local_batch_size=4,
        accumulation=True,
        initial_steps=steps,
        noise_scale=noise,
        largest_local=dict.fromkeys(speeds, 64),
        parameters={name: (0.0, 0.01 / speed, 2.0 * sync, 0.0, sync, 0.0, 1.0) for name, speed in speeds.items()},
    )


def trainings(**models: Profile) -> Trainings:
    return trainings_of(Profiles(models or {"net": profile()}, "a test"))


def jobs(*arrivals: float, model: str = "net (batch size 16)", gpus: int = 1, category: str = "adaptive") -> Trace:
    n = len(arrivals)
    return Trace([model] * n, [gpus] * n, np.ones(n), arrivals, category=[category] * n)


class StopAt:
    """An observer that ends a run after the stretch with this index."""

    class StopError(Exception):
        """The run was to end here."""

    def __init__(self, index: int) -> None:
        self.index = index

    def decided(self, *given) -> None:
        """Go on."""

    def round_ended(self, outcome) -> None:
        """End the run."""
        if outcome.index == self.index:
            raise self.StopError
