"""Tables of docs/goodput.md: errors of the embedded profiles, and fits beside the recorded ones."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np

from benchmarks.fit_goodput import errors, fit_all
from tests.conftest import _data_root
from tests.reference import goodput_cases as cases
from throughputs.goodput import ThroughputModels, fit_model, loss_of

ARCHIVE = "pollux_sia/sia_traces.tar.xz"

SAMPLES = {"one_gpu": "one GPU", "single_node": "one node", "full": "all"}
TYPES = {"aws": "T4", "rtx": "RTX 2080 Ti", "dgx-ext": "A100"}


def table_of_profiles() -> str:
    """The errors of new fits to the measurements."""
    with tempfile.TemporaryDirectory() as folder:
        return markdown_of_profiles(cases.unpacked(_data_root() / ARCHIVE, Path(folder)))


def markdown_of_profiles(tables: Path) -> str:
    """The table of the fits to these measurements."""
    lines = [
        "| model | steps measured | loss | step time: mean error | root mean square | largest | efficiency "
        "| steps of a training |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, samples, loss, mean, rms, largest, efficiency, steps in errors(fit_all(tables)):
        lines.append(f"| {name} | {samples} | {loss} | {mean} % | {rms} % | {largest} % | {efficiency} | {steps} % |")
    return "\n".join(lines)


def table_of_fits() -> str:
    """Losses of the recorded fits, and of new ones to the same samples."""
    with tempfile.TemporaryDirectory() as folder:
        return markdown_of_fits(cases.unpacked(_data_root() / ARCHIVE, Path(folder)))


def markdown_of_fits(tables: Path) -> str:
    """The table of the fits to these measurements."""
    heads = " | ".join(f"{label}: published | ours" for label in SAMPLES.values())
    lines = [f"| type | model | {heads} |", "|---|---|" + "---|" * 6]
    for cluster, label in TYPES.items():
        of_type = [case for case in cases.recorded() if case["cluster"] == cluster]
        for app in dict.fromkeys(case["app"] for case in of_type):
            cells = [
                cell
                for profile in SAMPLES
                for case in of_type
                if (case["app"], case["profile"]) == (app, profile)
                for cell in losses(case, tables)
            ]
            lines.append(f"| {label} | {app} | {' | '.join(f'{cell:.4f}' for cell in cells)} |")
    return "\n".join(lines)


def losses(case: dict, tables: Path) -> tuple[float, float]:
    """The recorded loss and ours, of the parameters that the samples say something about."""
    samples = cases.samples_of(case, tables)
    return recorded_loss(case, samples), fit_model(samples).loss


def recorded_loss(case: dict, samples: cases.Samples) -> float:
    """What the recorded parameters are worth in the fit: what is assumed of several nodes comes after it."""
    theta = np.array(cases.parameters(case))
    if (samples.nodes == 1).all():
        theta[2:4] = cases.LEAST
    return float(loss_of(ThroughputModels(theta), samples)[0])
