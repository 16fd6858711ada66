"""``python -m benchmarks.fit_goodput FOLDER``: fit profiles of models to the measured tables of Pollux.

FOLDER holds a folder for each model with ``placements.csv``, ``scalability.csv`` and ``validation-B.csv``, as
``simulator/traces`` of petuum/adaptdl, branch osdi21-artifact, has them. Prints how far the fits are off; with
``--out`` writes the profiles that `throughputs.goodput.default_profiles` reads.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from allocator.published.pollux.tables import StepTimes, Validation, read_step_times, read_validation
from throughputs.files import write_text
from throughputs.goodput import PARAMETERS, Fit, GradientStatistics, Samples, fit_model
from throughputs.goodput.profiles import Profile

HEADER = """\
# Profiles of six models on t4 GPUs, four on a node: throughput models, gradient noise and batch sizes.
# Fitted by benchmarks/fit_goodput.py to measurements of A. Qiao et al., "Pollux: Co-adaptive Cluster Scheduling for
# Goodput-Optimized Deep Learning", OSDI 2021; public artifact petuum/adaptdl, branch osdi21-artifact (Apache-2.0).
# Meaning of every key: throughputs/goodput/profiles.py; error of the fits: docs/goodput.md.
"""

PARTS = 10
"""Of a training, with one noise scale each."""

DIGITS = 4

LIMITS = {
    "cifar10": (4096, 32, 1024),
    "deepspeech2": (640, 10, 80),
    "bert": (384, 4, 12),
    "yolov3": (512, 4, 16),
    "imagenet": (12800, 20, 200),
    "ncf": (32768, 32, 32768),
}
"""Models with the published largest global batch size, and the least and largest on a GPU."""


@dataclass(frozen=True)
class Fitted:
    """A profile and how far it is off.

    Attributes
    ----------
    throughput : the fit of the seven parameters, and the samples it was made of.
    efficiency_error : root mean square, over epochs and batch sizes, of statistical efficiency.
    steps_error : largest relative error of the steps of a training, over batch sizes.
    """

    profile: Profile
    throughput: Fit
    samples: Samples
    efficiency_error: float
    steps_error: float


def fitted(folder: Path, largest: int, least_local: int, largest_local: int) -> Fitted:
    """The profile of the model of a folder."""
    tables = [read_step_times(folder / name) for name in ("placements.csv", "scalability.csv")]
    samples = StepTimes.joined(tables).samples()
    fit = fit_model(samples)
    parameters = tuple(float(f"{value:.{DIGITS}g}") for value in fit.parameters)
    validation = read_validation(folder)
    initial = int(validation.batch_size[0])
    noise = tuple(float(f"{value:.{DIGITS}g}") for value in noise_scales(validation))
    steps = float(np.rint(validation.least_progress()[-1]))
    profile = Profile(initial, largest, least_local, True, steps, noise, {"t4": largest_local}, {"t4": parameters})
    rounded = Fit(parameters, fit.loss)
    worked = [profile.steps(float(size)) for size in validation.batch_size]
    off = np.abs(np.array(worked) / validation.iteration[:, -1] - 1.0)
    return Fitted(profile, rounded, samples, efficiency_error(validation, noise), float(off.max()))


def noise_scales(validation: Validation) -> list[float]:
    """Over each part of the training the noise scale with the least squares of errors of efficiency.

    Efficiencies are those of all batch sizes, weighted by the progress of their epochs in the part.
    """
    candidates = np.geomspace(1.0, 1e9, 3601)
    scale = (validation.batch_size / validation.batch_size[0])[:, None]
    share, truth = shares(validation), efficiencies(validation)
    initial = float(validation.batch_size[0])
    told = (candidates + initial) / (candidates + initial * scale)
    found = []
    for part in range(PARTS):
        weight = np.maximum(np.minimum(share[:, 1:], (part + 1) / PARTS) - np.maximum(share[:, :-1], part / PARTS), 0.0)
        squares = (weight[:, :, None] * (told[:, None, :] - truth[:, :, None]) ** 2).sum(axis=(0, 1))
        found.append(float(candidates[int(np.argmin(squares))]))
    return found


def shares(validation: Validation) -> np.ndarray:
    """(V, E + 1) share of the training that is done before each epoch and after the last."""
    progress = np.concatenate([np.zeros((len(validation.batch_size), 1)), validation.progress], axis=1)
    return np.asarray(progress / progress[:, -1:])


def efficiencies(validation: Validation) -> np.ndarray:
    """(V, E) statistical efficiency of each batch size in each epoch, as measured."""
    scale = (validation.batch_size / validation.batch_size[0])[:, None]
    rows = zip(validation.square_norm, validation.variance, scale, strict=True)
    return np.stack([GradientStatistics(s, v).efficiency(np.full(len(s), k[0])) for s, v, k in rows])


def efficiency_error(validation: Validation, noise: tuple[float, ...]) -> float:
    """Root mean square error of efficiency over epochs and batch sizes, each epoch at its middle."""
    share = shares(validation)
    middle = (share[:, 1:] + share[:, :-1]) / 2.0
    phi = np.asarray(noise)[np.minimum((middle * len(noise)).astype(int), len(noise) - 1)]
    initial = float(validation.batch_size[0])
    told = (phi + initial) / (phi + validation.batch_size[:, None])
    return float(np.sqrt(np.mean((told - efficiencies(validation)) ** 2)))


def written(profiles: dict[str, Fitted]) -> str:
    """The profiles as TOML."""
    lines = [HEADER]
    lines.append('source = "A. Qiao et al., Pollux, OSDI 2021, public artifact petuum/adaptdl (Apache-2.0)"')
    for name, found in profiles.items():
        profile = found.profile
        lines += [
            f"\n[models.{name}]",
            f"initial_batch_size = {profile.initial_batch_size}",
            f"largest_batch_size = {profile.largest_batch_size}",
            f"least_local_batch_size = {profile.least_local_batch_size}",
            f"accumulation = {str(profile.accumulation).lower()}",
            f"initial_steps = {profile.initial_steps:.0f}",
            f"noise_scale = [{', '.join(f'{value:g}' for value in profile.noise_scale)}]",
        ]
        for accelerator, parameters in profile.parameters.items():
            lines.append(f"\n[models.{name}.types.{accelerator}]")
            lines.append(f"largest_local_batch_size = {profile.largest_local[accelerator]}")
            lines += [f"{key} = {value:g}" for key, value in zip(PARAMETERS, parameters, strict=True)]
    return "\n".join(lines) + "\n"


def errors(profiles: dict[str, Fitted]) -> list[tuple[str, ...]]:
    """Rows of the table of errors: samples, relative errors of step times, of efficiency, of steps."""
    rows = []
    for name, found in profiles.items():
        off = found.throughput.errors(found.samples)
        rows.append(
            (
                name,
                str(len(found.samples)),
                f"{found.throughput.loss:.3f}",
                f"{100 * off['mean']:.1f}",
                f"{100 * off['root_mean_square']:.1f}",
                f"{100 * off['largest']:.0f}",
                f"{found.efficiency_error:.3f}",
                f"{100 * found.steps_error:.0f}",
            )
        )
    return rows


COLUMNS = ("model", "steps measured", "loss", "mean %", "root mean square %", "largest %", "efficiency", "steps %")


def fit_all(folder: Path) -> dict[str, Fitted]:
    """Profiles of all models of `LIMITS`."""
    return {name: fitted(folder / name, *limits) for name, limits in LIMITS.items()}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fit_goodput", description=__doc__)
    parser.add_argument("folder", type=Path, help="folder with a folder of measured tables for each model")
    parser.add_argument("--out", type=Path, help="TOML file for the profiles")
    chosen = parser.parse_args()
    profiles = fit_all(chosen.folder)
    console = Console()
    table = Table(*COLUMNS, title="errors of step times, of statistical efficiency, of the steps of a training")
    for row in errors(profiles):
        table.add_row(*row)
    console.print(table)
    if chosen.out is not None:
        write_text(chosen.out, written(profiles))
        console.print(f"Profiles: {chosen.out}")


if __name__ == "__main__":
    main()
