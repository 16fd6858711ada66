"""Estimating the throughput of pairs of jobs that were never run together."""

from throughputs.estimator.completion import LowRankCompletion
from throughputs.estimator.estimator import Basis, Distance, Estimate, ThroughputEstimator, sample_profile
from throughputs.estimator.sweep import estimation_errors

__all__ = [
    "Basis",
    "Distance",
    "Estimate",
    "LowRankCompletion",
    "ThroughputEstimator",
    "estimation_errors",
    "sample_profile",
]
