"""Fits and goodput recorded on the published code, and the measured tables that they were made of."""

from __future__ import annotations

import gzip
import json
import tarfile
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from allocator.published.pollux.tables import StepTimes, read_step_times
from throughputs.goodput import BatchSizeLimits, GoodputModels, GradientStatistics, Samples, ThroughputModels
from throughputs.goodput.log_errors import LEAST, Cells, Loss

__all__ = [
    "LEAST",
    "NAMES",
    "Samples",
    "loss_of",
    "models",
    "name",
    "parameters",
    "recorded",
    "samples_of",
    "unpacked",
    "with_goodput",
]

RECORDED = Path(__file__).resolve().parent / "pollux_sia" / "goodput_cases.json.gz"

NAMES = ("alpha_c", "beta_c", "alpha_n", "beta_n", "alpha_r", "beta_r", "gamma")
"""Of the parameters in the published code, in our order."""


@cache
def recorded() -> list[dict[str, Any]]:
    """54 fits: six models on three accelerator types, with three sets of samples each; 18 with goodput as well."""
    cases: list[dict[str, Any]] = json.loads(gzip.decompress(RECORDED.read_bytes()))
    return cases


def with_goodput() -> list[dict[str, Any]]:
    return [case for case in recorded() if "goodput" in case]


def parameters(case: dict[str, Any]) -> list[float]:
    return [case["perf_params"][name] for name in NAMES]


def loss_of(theta: Any, samples: Samples) -> Any:
    """What parameters (7,) are worth in a fit to the samples."""
    return Loss(Cells.of(samples))(np.atleast_2d(theta))[0]


def models(cases: list[dict[str, Any]]) -> GoodputModels:
    """Models of the recorded parameters, which accumulate gradients."""

    def column(name: str) -> list[float]:
        return [case[name] for case in cases]

    limits = BatchSizeLimits(
        *map(column, ("init_batch_size", "max_batch_size", "min_local_bsz", "max_local_bsz")), True
    )
    statistics = GradientStatistics(column("grad_sqr"), column("grad_var"))
    return GoodputModels(ThroughputModels([parameters(case) for case in cases]), statistics, limits)


def name(case: dict[str, Any]) -> str:
    return "-".join(case[key] for key in ("cluster", "app", "profile"))


def unpacked(archive: Path, folder: Path) -> Path:
    """The folder of the measured tables."""
    with tarfile.open(archive) as tar:
        tar.extractall(folder, filter="data")
    return folder / "traces"


def samples_of(case: dict[str, Any], tables: Path) -> Samples:
    """The samples of a recorded fit: the first of each configuration in the two tables of a model and a type."""
    folder = tables / case["app"]
    found = [read_step_times(folder / f"{kind}-{case['cluster']}.csv") for kind in ("placements", "scalability")]
    samples = StepTimes.joined(found).samples()
    keys = np.stack([samples.nodes, samples.gpus, samples.batch_size], axis=1)
    first = np.sort(np.unique(keys, axis=0, return_index=True)[1])
    kept = {"one_gpu": samples.gpus == 1, "single_node": samples.nodes == 1, "full": samples.gpus > 0}[case["profile"]]
    return samples.take(first[kept[first]])
