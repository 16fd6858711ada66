"""Small trainings for tests: models whose figures are easy to reckon with."""

from __future__ import annotations

import numpy as np

from allocator.published.pollux.trainings import read_trainings
from throughputs import Trace
from throughputs.goodput.profiles import Profile, Profiles
from throughputs.goodput.trainings import trainings_of


def profile(noise=(1e9, 1e9), steps=1000.0, sync=0.0, **types):
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


def trainings(**models):
    return trainings_of(Profiles(models or {"net": profile()}, "a test"))


def jobs(*arrivals, model="net (batch size 16)", gpus=1, category="adaptive"):
    n = len(arrivals)
    return Trace([model] * n, [gpus] * n, np.ones(n), arrivals, category=[category] * n)


def with_fewer_samples_on_two_nodes(folder):
    """Measured tables of a model: on two nodes nothing is known of more than 16 samples on a GPU, although 64 fit."""
    of_model = folder / "net"
    of_model.mkdir()
    rows = [f"1,{b},{0.01 * b},0" for b in (4, 64)] + [f"11,{b},{0.01 * b + 0.1},0.1" for b in (4, 16)]
    (of_model / "placements-gpu.csv").write_text("\n".join(["placement,local_bsz,step_time,sync_time", *rows, ""]))
    for size in (16, 128):
        epochs = [f"{500 * k},{500 * k * 16 // size},0.5,1e-9,1" for k in (1, 2)]
        text = "\n".join(["progress,iteration,metric,grad_sqr,grad_var", *epochs, ""])
        (of_model / f"validation-{size}.csv").write_text(text)
    return read_trainings(folder)
