"""The simulator of Chronus (Gao et al., SoCC 2021, public artifact), and its copy that ElasticFlow compares with."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from allocator.mechanism.settings import MechanismSettings
from allocator.presets.preset import Comparison, Preset
from allocator.published.chronus.policy import WaitingCounts
from allocator.published.elasticflow import LABELS
from allocator.simulator.rules.general import Limits
from allocator.simulator.rules.starts import StartsTakeTime

_START_COST = 0.5
"""Units of time for which a job on one GPU does nothing when it starts: 0.1 to write a checkpoint, 0.4 to read one. On
g GPUs it is 1 + log2 g times as much."""

_PUBLISHED: Mapping[str, Any] = {
    "tie_break": "solver",
    "objective": "adaptive",
    "start_cost": _START_COST,
    "margin": 1.1,
}

# Minutes, leases of 20, admission every 5; servers of 8 GPUs.
CHRONUS = Preset(
    name="chronus",
    mechanism=MechanismSettings(placement="local_search"),
    world=(
        StartsTakeTime(
            restart_penalty_seconds=_START_COST * 60.0, restart_penalty_per_doubling_seconds=_START_COST * 60.0
        ),
        Limits(max_rounds_without_progress=100_000),
        WaitingCounts(),
    ),
    policies={"chronus": "allocator.published.chronus.policy:PublishedChronus"},
    policy_settings={
        "chronus": {
            **_PUBLISHED,
            "time_unit_seconds": 60.0,
            "tick_seconds": 60.0,
            "slot_seconds": 300.0,
            "lease_seconds": 1200.0,
            "max_search_options": 400,
        }
    },
    comparison=Comparison(
        policies=("chronus",),
        labels=LABELS,
        cluster="v100:960",
        drawn_cluster="v100:32",
        drawn_gpus_per_server="v100:8",
        # those of its traces are 1.1 to 5 times the duration, 2.1 in the mean
        workload={"generator": "deadlines", "deadline_factors": (1.1, 3.2)},
        jobs=100,
        mean_interarrival_seconds=200.0,
    ),
)

# Seconds, with constants that were made for minutes.
CHRONUS_ELASTICFLOW = dataclasses.replace(
    CHRONUS.replace(restart_penalty_seconds=_START_COST, restart_penalty_per_doubling_seconds=_START_COST),
    name="chronus_elasticflow",
    policy_settings={
        "chronus": {
            **_PUBLISHED,
            "time_unit_seconds": 1.0,
            "tick_seconds": 240.0,
            "slot_seconds": 240.0,
            "lease_seconds": 240.0,
            "max_search_options": 4800,
            "forced_guarantee": False,
            "accepted_run_early": False,
        }
    },
)
