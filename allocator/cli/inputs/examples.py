"""Files to try commands with: a job log as a small cluster might keep it, and steps as a training script logs them."""

from __future__ import annotations

import numpy as np
import pandas as pd

from throughputs.goodput.profiles import default_profiles
from throughputs.goodput.samples import SAMPLE_COLUMNS
from throughputs.limits import check_number_of_jobs
from throughputs.traces.generator import LogUniformDurations

_ACCELERATOR, _GPUS_ON_A_NODE = "t4", 4
_MEASURED_GPUS = (1, 2, 4, 8, 16)
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
    gpus, size = np.repeat(_MEASURED_GPUS, len(sizes)), np.tile(sizes, len(_MEASURED_GPUS))
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


EXAMPLE_COLUMNS = ("job", "owner", "start", "hours", "num_gpus", "model", "queue")
"""Header of the log; ``start`` is when a job was submitted, as people name columns."""

_FIRST = np.datetime64("2025-03-03T08:00:00", "s")
_MEAN_SECONDS_BETWEEN_JOBS = 5400.0
_OWNERS = {"ada": 0.45, "ben": 0.25, "cleo": 0.15, "dev": 0.10, "eli": 0.05}
_GPUS = {1: 0.55, 2: 0.15, 4: 0.15, 8: 0.12, 0: 0.03}
_MODELS = ("llama-8b", "vit-large", "whisper", "unet", "")
_QUEUES = ("batch", "interactive")
_NEVER_RAN = 0.02


def example_log(n_jobs: int = 200, seed: int = 0) -> str:
    """A log in text with commas; a few of its jobs asked for no GPU or never ran, as in real ones."""
    check_number_of_jobs(n_jobs, "example log")
    rng = np.random.default_rng(seed)
    after = np.concatenate([[0.0], np.cumsum(rng.exponential(_MEAN_SECONDS_BETWEEN_JOBS, n_jobs - 1))])
    submitted = _FIRST + np.rint(after).astype(np.int64)
    hours = np.maximum(LogUniformDurations().sample(rng, n_jobs) / 3600, 0.01)
    hours[rng.random(n_jobs) < _NEVER_RAN] = 0.0
    columns = (
        np.arange(1, n_jobs + 1),
        rng.choice(list(_OWNERS), n_jobs, p=list(_OWNERS.values())),
        [f"{at}+00:00" for at in submitted],
        hours,
        rng.choice(list(_GPUS), n_jobs, p=list(_GPUS.values())),
        rng.choice(_MODELS, n_jobs),
        rng.choice(_QUEUES, n_jobs),
    )
    table = pd.DataFrame(dict(zip(EXAMPLE_COLUMNS, columns, strict=True)))
    return table.to_csv(index=False, float_format="%.2f", lineterminator="\n")
