"""Goodput: how fast jobs make progress by nodes, GPUs and batch size (Pollux, Sia)."""

from throughputs.goodput.batch_size import BatchSizeLimits, BestBatchSizes, GoodputModels, best_batch_sizes
from throughputs.goodput.efficiency import GradientStatistics
from throughputs.goodput.fit import Fit, fit_model, fit_models, fits
from throughputs.goodput.model import PARAMETERS, ThroughputModels
from throughputs.goodput.samples import Samples, read_samples

__all__ = [
    "PARAMETERS",
    "BatchSizeLimits",
    "BestBatchSizes",
    "Fit",
    "GoodputModels",
    "GradientStatistics",
    "Samples",
    "ThroughputModels",
    "best_batch_sizes",
    "fit_model",
    "fit_models",
    "fits",
    "read_samples",
]
