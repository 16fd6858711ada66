"""Estimating the throughput of pairs of jobs that were never run together."""

from throughputs.estimator.completion import LowRankCompletion
from throughputs.estimator.estimator import Estimate, ThroughputEstimator, sample_profile

__all__ = [
    "Estimate",
    "LowRankCompletion",
    "ThroughputEstimator",
    "sample_profile",
]
