"""Measured steps as a training script might log them, to try a fit with."""

from __future__ import annotations

import numpy as np

from throughputs.goodput.profiles import default_profiles
from throughputs.goodput.samples import SAMPLE_COLUMNS

_ACCELERATOR, _GPUS_ON_A_NODE = "t4", 4
_GPUS = (1, 2, 4, 8, 16)
_BATCH_SIZES = 4
_NOISE = 0.05


def example_samples(model: str = "imagenet", seed: int = 0) -> str:
    """A table of samples in text with commas, drawn from an embedded profile with noise of up to 5 % on each time.

    Raises
    ------
    InputError
        There is no such profile.
    """
    profiles = default_profiles()
    profile = profiles.find(model)
    rng = np.random.default_rng(seed)
    sizes = np.unique(
        np.rint(np.linspace(profile.least_local_batch_size, profile.largest_local[_ACCELERATOR], _BATCH_SIZES))
    )
    gpus, size = np.repeat(_GPUS, len(sizes)), np.tile(sizes, len(_GPUS))
    nodes = -(-gpus // _GPUS_ON_A_NODE)
    exact = profiles.goodput([model], _ACCELERATOR).throughput
    gradient, step = exact.gradient_time(size[None])[0], exact.step_time(nodes, gpus, size)[0]
    factors = rng.uniform(1.0 - _NOISE, 1.0 + _NOISE, (2, len(size)))
    sync = np.where(gpus > 1, np.maximum(step - gradient, 0.0), 0.0) * factors[0]
    lines = [",".join(SAMPLE_COLUMNS)]
    columns = (nodes, gpus, size, gradient * factors[1] + sync, sync)
    rows = zip(*(column.tolist() for column in columns), strict=True)
    lines += ["{:d},{:d},{:.0f},{:.5f},{:.5f}".format(*row) for row in rows]
    return "\n".join(lines) + "\n"
