"""Observations: the state of the cluster as arrays of fixed size."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from gymnasium import spaces

from allocator.protocol import ClusterState
from throughputs.arrays import Values

# Gymnasium wants finite bounds; what is beyond is told as this.
_LARGEST = 1e15

_COLUMNS = (
    "scale_factor",
    "priority_weight",
    "elapsed_seconds",
    "steps_remaining",
    "has_deadline",
    "seconds_to_deadline",
)


def job_columns(accelerators: Sequence[str]) -> tuple[str, ...]:
    """Names of the columns of ``observation["jobs"]``.

    scale_factor (GPUs of the gang), priority_weight, elapsed_seconds (since the arrival), steps_remaining,
    has_deadline (0 or 1), seconds_to_deadline (below 0 when it is past, 0 for a job without one); then by type
    ``rate:v100`` (steps/s of the gang there, 0 where it cannot run) and ``gpus:v100`` (GPUs it has there now).
    """
    return (*_COLUMNS, *(f"rate:{name}" for name in accelerators), *(f"gpus:{name}" for name in accelerators))


def observation_space(accelerators: Sequence[str], max_jobs: int) -> spaces.Dict:
    """The space of `observation_of`."""

    def numbers(*shape: int, least: float = 0.0) -> spaces.Box:
        return spaces.Box(least, _LARGEST, shape, dtype=float)

    return spaces.Dict(
        {
            "jobs": numbers(max_jobs, len(job_columns(accelerators)), least=-_LARGEST),
            "mask": spaces.MultiBinary(max_jobs),
            "capacity": numbers(len(accelerators)),
            "clock": numbers(1),
            "unseen_jobs": numbers(1),
        }
    )


def observation_of(state: ClusterState, max_jobs: int) -> dict[str, Values]:
    """What an agent sees of a state.

    jobs (max_jobs, F): the active jobs in the order of their arrival, the columns those of `job_columns`, padded with
    zeros; mask (max_jobs,): 1 where there is a job; capacity (M,) GPUs by type; clock (1,) seconds; unseen_jobs (1,):
    active jobs beyond `max_jobs`.
    """
    n, m = state.rates.shape
    gpus = np.zeros((n, m))
    gpus[state.running.jobs, state.running.pool] = state.running.gpus
    has_deadline = np.isfinite(state.slo_seconds)
    columns = np.column_stack(
        [
            state.scale_factors,
            state.priority_weights,
            state.elapsed_seconds,
            state.steps_remaining,
            has_deadline,
            np.where(has_deadline, state.slo_seconds, 0.0),
            state.rates,
            gpus,
        ]
    )
    seen = min(n, max_jobs)
    jobs = np.zeros((max_jobs, columns.shape[1]))
    jobs[:seen] = np.clip(columns[:seen], -_LARGEST, _LARGEST)
    mask = np.zeros(max_jobs, dtype=np.int8)
    mask[:seen] = 1
    return {
        "jobs": jobs,
        "mask": mask,
        "capacity": state.capacity.astype(float),
        "clock": np.array([min(state.clock, _LARGEST)]),
        "unseen_jobs": np.array([float(n - seen)]),
    }
