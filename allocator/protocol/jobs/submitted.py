"""What follows from a trace as it was submitted: deadlines with their values, and predicted lengths."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from allocator.cluster import Cluster
from throughputs import Trace
from throughputs.deadlines import DeadlineOptions
from throughputs.numerics import quotient

# The published deadlines are multiples of a job's duration on this type (Gavel, OSDI'20, public artifact).
REFERENCE_ACCELERATOR = "v100"


def deadlines_of(trace: Trace, rates: NDArray[np.float64], cluster: Cluster) -> NDArray[np.float64]:
    """(N,) seconds on the clock, nan for a job without a deadline."""
    duration = trace.duration
    if np.isnan(duration[~np.isnan(trace.slo)]).any():
        speed = rates.max(axis=1, initial=0.0)
        if REFERENCE_ACCELERATOR in cluster.accelerators:
            reference = rates[:, cluster.accelerators.index(REFERENCE_ACCELERATOR)]
            speed = np.where(reference > 0, reference, speed)
        with np.errstate(divide="ignore"):
            duration = np.where(np.isnan(duration), trace.total_steps / speed, duration)
    return np.where(np.isnan(trace.deadline), trace.arrival_time + trace.slo * duration, trace.deadline)


def predictions_of(trace: Trace, rates: NDArray[np.float64]) -> NDArray[np.float64]:
    """(N,) the predictions of the trace; the length on the fastest type for a job without, 0 where none can run it."""
    length = quotient(trace.total_steps, rates.max(axis=1, initial=0.0), 0.0)
    return np.where(np.isnan(trace.predicted_seconds), length, trace.predicted_seconds)


def options_of(trace: Trace, deadline: NDArray[np.float64]) -> DeadlineOptions:
    """Those of the trace; of the `deadline` (N,) alone for a job without."""
    if not trace.deadline_options.astype(bool).any():
        return DeadlineOptions.of_deadlines(deadline)
    rows = zip(trace.deadline_options, deadline.tolist(), strict=True)
    return DeadlineOptions.of_rows([row or (((at, 1.0),) if np.isfinite(at) else ()) for row, at in rows])
