"""The simulator that came with Pollux (Qiao et al., OSDI 2021, public artifact petuum/adaptdl, osdi21-artifact)."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from allocator.mechanism.settings import MechanismSettings
from allocator.presets.preset import Comparison, Preset
from allocator.published.pollux.world import SlotsOfTheClock, StartsThatServe
from allocator.simulator.goodput.rule import Goodput

EVERY_MINUTE = SlotsOfTheClock(slot_seconds=60.0, slot_grid=True, slot_origin_seconds=0.0)
GOODPUT = Goodput(epoch_ends="second", goodput_most_gpus=64)
"""The loop of this simulator, from which that of Sia was made: decisions every minute."""

# Optimus knows the true step times, and counts iterations of whole epochs with the batch size asked for.
_ORACLE: Mapping[str, Any] = {
    "goodput_knowledge": "true",
    "goodput_batch_size": "submitted",
    "goodput_counts": "iterations",
}

POLLUX = Preset(
    "pollux",
    MechanismSettings(placement="most_free", decide_every_seconds=60.0),
    (
        StartsThatServe(restart_penalty_seconds=30.0, restart_when_moved=True, starts_count_as_service=True),
        EVERY_MINUTE,
        replace(
            GOODPUT,
            goodput_columns="all",
            goodput_projection=False,
            goodput_fit="pollux",
            goodput_most_gpus_of_model=(("ncf", 1),),
        ),
    ),
    world_settings={
        "optimus": _ORACLE,
        "tiresias": {"goodput_batch_size": "submitted"},
        "pollux": {
            "placement": "consolidated",
            "goodput_columns": "powers",
            "goodput_batch_size_of_model": (("ncf", 32768),),
        },
    },
    policies={
        "optimus": "allocator.published.pollux.world:PublishedOptimus",
        "tiresias": "allocator.published.pollux.world:TiresiasByEntry",
    },
    policy_settings={
        "optimus": {"search": "marginal_gains"},
        "pollux": {"restart_seconds": 30.0},
        "tiresias": {"queue_limits": (57600.0,), "promote_after": None},
    },
    comparison=Comparison(
        policies=("pollux", "optimus", "tiresias"),
        cluster="t4:64",
        gpus_per_server="t4:4",
        throughputs="goodput",
        jobs=160,
        mean_interarrival_seconds=180.0,
    ),
)
