"""The simulator that came with ElasticFlow (Gu et al., ASPLOS 2023, public artifact)."""

from collections.abc import Mapping
from typing import Any

from allocator.mechanism.settings import MechanismSettings
from allocator.presets.preset import Comparison, Preset
from allocator.simulator.settings import SimulatorSettings

__all__ = ["ELASTICFLOW"]

# What a decision costs jobs that have GPUs, in the loops of the policies that are charged.
_CHARGED: Mapping[str, Any] = {"overhead": "running", "overhead_reuses_groups": True}

# Jobs with a fixed number of GPUs run for as long as their trace says.
_FIXED: Mapping[str, Any] = {"gang_rates": "duration"}

# The policies that ElasticFlow was compared with, to the letter. Leases of Themis are as short as slots.
_BASELINES: Mapping[str, Mapping[str, Any]] = {
    "tiresias": {"promote_after": None, "published_limits": True},
    "gandiva_time_slicing": {"published_sets": True, "published_turns": True},
    "themis": {"lease_seconds": 1.0, "published_fairness": True, "choice": "published"},
}

ELASTICFLOW = Preset(
    "elasticflow",
    MechanismSettings(placement="anew"),
    SimulatorSettings(
        slot_seconds=60.0,
        ends="second",
        overhead_doubling_seconds=2.0,
        overhead_restart_decisions="slot",
        batch_size_adaptation="off",
    ),
    policy_names={"gandiva": "gandiva_time_slicing"},
    policy_settings=_BASELINES,
    world_settings={
        "elasticflow": {**_CHARGED, "ends": "slot", "deadlines_judged_by": "training"},
        "elasticflow_no_admission": {**_CHARGED, "ends": "slot"},
        "edf_admission": _CHARGED,
        "tiresias": {
            **_FIXED,
            "overhead": "starts",
            "overhead_delays_end": "restarts",
            "slot_spares_last_arrival": True,
        },
        "gandiva_time_slicing": {
            **_FIXED,
            "overhead": "active",
            "overhead_while_arrivals": True,
            "slot_spares_last_arrival": True,
        },
        "themis": {"ends": "slot", "slot_grid": True},
    },
    world_settings_by_gpus={
        1: {"overhead_base_seconds": 2.0, "overhead_restart_seconds": 27.0},
        256: {"overhead_base_seconds": 7.0, "overhead_restart_seconds": 47.0},
    },
    comparison=Comparison(
        policies=(
            "elasticflow",
            "elasticflow_no_admission",
            "edf",
            "edf_admission",
            "tiresias",
            "gandiva_time_slicing",
            "themis",
        ),
        cluster="a100:128",
    ),
)
