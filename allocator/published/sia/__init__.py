"""The simulator that came with Sia (Jayaram Subramanya et al., SOSP 2023, public artifact)."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from allocator.mechanism.settings import MechanismSettings
from allocator.presets.preset import Preset
from allocator.published.pollux import EVERY_MINUTE, GOODPUT, POLLUX
from allocator.published.sia.rounds import FractionsSinceArrival
from allocator.published.sia.world import StartsByShape

# Policies in rounds have six minutes, each with a decision, and a mechanism close to that of Gavel's simulator.
_ROUNDS: Mapping[str, Any] = {
    "round_seconds": 360.0,
    "decide_every_seconds": 360.0,
    "slot_seconds": 360.0,
    "goodput_in_rounds": "trained",
    "restart_delays": True,
    "placement": "in_order",
    "discipline": FractionsSinceArrival(),
}

SIA = Preset(
    "sia",
    MechanismSettings(placement="anew", decide_every_seconds=60.0),
    (
        StartsByShape(
            restart_penalty_seconds=30.0,
            restart_when_moved=True,
            restart_penalty_by_job_type=(
                ("bert", 120.0),
                ("cifar10", 50.0),
                ("deepspeech2", 25.0),
                ("imagenet", 250.0),
                ("ncf", 15.0),
                ("yolov3", 80.0),
            ),
            restart_keeps_shape=True,
        ),
        EVERY_MINUTE,
        replace(
            GOODPUT,
            goodput_fit="sia",
            goodput_slowdown=(
                ("bert", 1.2),
                ("cifar10", 1.8),
                ("deepspeech2", 1.2),
                ("imagenet", 1.2),
                ("ncf", 1.5),
                ("yolov3", 1.2),
            ),
        ),
    ),
    world_settings={
        "max_sum_throughput_perf": _ROUNDS,
        "finish_time_fairness_perf": _ROUNDS,
        "shockwave": _ROUNDS,
    },
    policies={"sia": "allocator.published.sia.policy:PublishedSia"},
    policy_settings={
        "finish_time_fairness_perf": {"choice": "published"},
        "shockwave": {"future_rounds": 5, "makespan_weight": 1e-9, "round_seconds": 360.0},
        "sia": {
            "restart_seconds": 30.0,
            "restart_seconds_of_type": (
                ("bert", 120.0),
                ("cifar10", 30.0),
                ("deepspeech2", 25.0),
                ("imagenet", 250.0),
                ("yolov3", 45.0),
            ),
        },
    },
    comparison=replace(POLLUX.comparison, policies=("sia",)),
)
