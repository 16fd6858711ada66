"""The scheduler and simulator that came with Gavel (Narayanan et al., OSDI 2020, public artifact)."""

from allocator.mechanism.settings import MechanismSettings
from allocator.presets.preset import Preset
from allocator.published.gavel.rounds import TimeFractions
from allocator.published.gavel.world import IdleTime, RoundLength
from allocator.simulator.rules.general import BatchSizes
from allocator.simulator.rules.starts import StartsTakeTime

GAVEL = Preset(
    "gavel",
    MechanismSettings(
        round_seconds=360.0,
        recompute_interval_seconds=1920.0,
        placement="in_order",
        discipline=TimeFractions(accelerator_order=("v100", "p100", "k80")),
    ),
    (
        RoundLength(round_end="slowest", whole_steps=True, pairs_end_together=True),
        StartsTakeTime(),
        IdleTime(idle_gap_counts_as_service=True, max_zero_step_rounds=5),
        BatchSizes("off"),
    ),
    choice="published",
    policies={"min_total_duration_packed": "allocator.published.gavel.packed:PublishedMinTotalDurationPacked"},
)
