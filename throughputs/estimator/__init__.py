"""Estimating the throughput of pairs of jobs that were never run together."""

from throughputs.estimator.completion import low_rank_completion
from throughputs.estimator.estimator import Estimate, ThroughputEstimator, sample_profile

__all__ = [
    "Estimate",
    "ThroughputEstimator",
    "low_rank_completion",
    "sample_profile",
]
