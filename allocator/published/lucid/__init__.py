"""The simulator of Lucid (Hu et al., ASPLOS 2023, public artifact), which that of Helios (SC 2021) grew into."""

from collections.abc import Mapping
from typing import Any

from allocator.mechanism.settings import MechanismSettings
from allocator.presets.preset import Comparison, Preset
from allocator.published.lucid.world import SecondsCountedDown, SharedGpus
from allocator.simulator.rules.general import BatchSizes, GangRates

# A loop that counts seconds down and looks for zero first sees the end of a job a second late.
_COUNTED_DOWN: Mapping[str, Any] = {
    "end_delay_seconds": 1.0,
    "preemption_penalty_by_gpus": ((1, 40.0), (9, 60.0)),
}

LUCID = Preset(
    "lucid",
    MechanismSettings(placement="best_fit"),
    (SharedGpus(), SecondsCountedDown(), GangRates("duration"), BatchSizes("off")),
    world_settings={
        "srtf": _COUNTED_DOWN,
        # Once a minute of the clock of the trace.
        "tiresias": {**_COUNTED_DOWN, "slot_seconds": 60.0, "slot_grid": True},
        "lucid": {"seconds_counted_down": True, "end_delay_seconds": 1.0, "guests_stay_slow": True},
    },
    policies={
        "lucid": "allocator.published.lucid.policy:PublishedLucid",
        "qssf": "allocator.published.lucid.orders:PublishedQssf",
        "tiresias": "allocator.published.lucid.orders:TiresiasByArrival",
    },
    policy_names={"fifo": "fcfs"},
    policy_settings={
        # Above 18,000 GPU seconds, of which it counts whole ones.
        "tiresias": {"queue_limits": (18_001.0,), "promote_after": None},
    },
    comparison=Comparison(
        policies=("fcfs", "sjf", "srtf", "qssf", "tiresias"),
        cluster="v100:1080",
    ),
)
