"""The scheduler and simulator that came with Gavel (Narayanan et al., OSDI 2020, public artifact)."""

from allocator.mechanism.settings import MechanismSettings
from allocator.presets.preset import Preset
from allocator.published.gavel.world import IdleTime, RoundLength
from allocator.simulator.rules.general import BatchSizes
from allocator.simulator.rules.starts import StartsTakeTime

GAVEL = Preset(
    "gavel",
    MechanismSettings(
        round_seconds=360.0,
        recompute_interval_seconds=1920.0,
        free_decision_at_start=True,
        decide_early_when_idle=False,
        initial_credit_rounds=0.5,
        max_overdraft_rounds=None,
        late_jobs_add_type_time=False,
        priority="time_fraction",
        queue="per_type",
        accelerator_order=("v100", "p100", "k80"),
        shuffle_accelerators=True,
        shuffle_seed_offset=5,
        tie_breaks=("deficit", "share"),
        idle_fill="queue_order",
        undecided_jobs_block_gpus=True,
        placement="in_order",
        pair_rows="all",
        priority_digits=None,
    ),
    (
        RoundLength(round_end="slowest", whole_steps=True, pairs_end_together=True),
        StartsTakeTime(),
        IdleTime(idle_gap_counts_as_service=True, max_zero_step_rounds=5),
        BatchSizes("off"),
    ),
    choice="published",
)
