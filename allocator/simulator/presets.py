"""Presets: sets of settings by name, one for each published system, and the default.

>>> preset("gavel").mechanism.recompute_interval_seconds
1920.0
>>> preset("gavel").replace(round_seconds=720.0).mechanism.round_seconds
720.0
"""

from __future__ import annotations

import dataclasses
import difflib
from dataclasses import dataclass, field
from typing import Any

from allocator.mechanism.settings import MechanismSettings
from allocator.simulator.settings import SimulatorSettings
from throughputs import InputError

__all__ = ["Preset", "preset", "preset_names"]


@dataclass(frozen=True)
class Preset:
    """Settings of mechanism and simulator under one name, and which of the optima of a program is taken (`choice`)."""

    name: str = "default"
    mechanism: MechanismSettings = field(default_factory=MechanismSettings)
    simulator: SimulatorSettings = field(default_factory=SimulatorSettings)
    choice: str = "balanced"

    def replace(self, **changes: Any) -> Preset:
        """The same with some settings changed, each named as in `MechanismSettings` or `SimulatorSettings`.

        Raises
        ------
        InputError
            No such setting.
        """
        mechanism = {f.name for f in dataclasses.fields(MechanismSettings)}
        simulator = {f.name for f in dataclasses.fields(SimulatorSettings)}
        for name in changes:
            if name not in mechanism | simulator:
                raise InputError("settings", found=name, expected=_suggestion(name, sorted(mechanism | simulator)))
        return Preset(
            self.name,
            dataclasses.replace(self.mechanism, **{k: v for k, v in changes.items() if k in mechanism}),
            dataclasses.replace(self.simulator, **{k: v for k, v in changes.items() if k in simulator}),
            self.choice,
        )

    def as_dict(self) -> dict[str, Any]:
        """Every setting by name, ready for JSON."""
        settings = dataclasses.asdict(self.mechanism) | dataclasses.asdict(self.simulator)
        return {"preset": self.name, "choice": self.choice} | {
            k: list(v) if isinstance(v, tuple) else v for k, v in settings.items()
        }


# The scheduler and simulator that came with Gavel, OSDI'20.
_GAVEL = Preset(
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
    SimulatorSettings(
        round_end="slowest",
        whole_steps=True,
        idle_gap_counts_as_service=True,
        pairs_end_together=True,
        max_zero_step_rounds=5,
        batch_size_adaptation="off",
    ),
    choice="published",
)

# Those of Shockwave, NSDI'23, which grew out of them.
_SHOCKWAVE = dataclasses.replace(
    _GAVEL.replace(
        round_seconds=120.0,
        recompute_interval_seconds=1000.0,
        decide_at_rate_changes=False,
        restart_penalty_seconds=20.0,
        restart_penalty_slack_seconds=5.0,
        overtime_factor=1.5,
        batch_size_adaptation="published",
    ),
    name="shockwave",
)

_PRESETS = {
    "default": Preset(),
    "gavel": _GAVEL,
    "shockwave": _SHOCKWAVE,
    # To the letter: progress is rounded past the end of some jobs, which then hold their GPUs for five rounds.
    "shockwave_published": dataclasses.replace(
        _SHOCKWAVE.replace(finished_jobs_linger_rounds=5), name="shockwave_published"
    ),
}


def preset_names() -> tuple[str, ...]:
    """Names of all presets."""
    return tuple(_PRESETS)


def preset(name: str | Preset) -> Preset:
    """The preset of that name; a `Preset` is returned as it is.

    Raises
    ------
    InputError
        No such preset.
    """
    if isinstance(name, Preset):
        return name
    if name not in _PRESETS:
        raise InputError("preset", found=name, expected=_suggestion(name, list(_PRESETS)))
    return _PRESETS[name]


def _suggestion(name: str, known: list[str]) -> str:
    close = difflib.get_close_matches(name, known, n=1)
    listed = f"one of {', '.join(known)}"
    return f"{listed}; did you mean {close[0]!r}?" if close else listed
