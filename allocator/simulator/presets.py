"""Presets: sets of settings by name, one for each published system, and the default.

>>> preset("gavel").mechanism.recompute_interval_seconds
1920.0
>>> preset("gavel").replace(round_seconds=720.0).mechanism.round_seconds
720.0
"""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from allocator.cluster import Cluster
from allocator.mechanism.settings import MechanismSettings
from allocator.policies.paper_labels import (
    SHOCKWAVE_COMPARISON,
    SHOCKWAVE_LABELS,
    SHOCKWAVE_PLANNER,
    SHOCKWAVE_WEIGHTS,
)
from allocator.simulator.settings import SimulatorSettings
from throughputs import InputError

__all__ = ["Comparison", "FairnessYardstick", "Preset", "preset", "preset_names"]

FairnessYardstick = Literal["isolated", "static", "themis"]
"""What rho divides a completion time by: "isolated": `fairness.isolated_jct`; "static", "themis": the time that the job
needs alone times `fairness.static_contention` or `fairness.round_contention`."""


@dataclass(frozen=True)
class Comparison:
    """What is compared under a preset where nothing else is said, and how it is shown.

    Attributes
    ----------
    policies : their names.
    cluster : GPUs by accelerator type.
    generator : "default": `throughputs.TraceGenerator`; "shockwave": `throughputs.shockwave_trace`.
    jobs, mean_interarrival_seconds, seed : of the jobs that are drawn.
    labels : what the paper calls the policies.
    bars : figures of the summary that are also shown as bars.
    """

    policies: tuple[str, ...] = (
        "max_min_fairness_perf",
        "finish_time_fairness_perf",
        "min_total_duration_perf",
        "max_sum_throughput_perf",
        "max_min_fairness",
        "finish_time_fairness",
        "isolated",
        "fifo_perf",
        "fifo",
    )
    cluster: str = "v100:36,p100:36,k80:36"
    generator: Literal["default", "shockwave"] = "default"
    jobs: int = 160
    mean_interarrival_seconds: float = 600.0
    seed: int = 0
    labels: Mapping[str, str] = field(default_factory=dict)
    bars: tuple[str, ...] = ()


@dataclass(frozen=True)
class Preset:
    """Settings of mechanism and simulator under one name, and what else belongs to a published system.

    Attributes
    ----------
    name, mechanism, simulator : the settings and their name.
    choice : which of the optima of a program is taken.
    fairness : the rho by which runs are compared; all that are known stay in the results.
    policy_settings : settings of policies by their names, where they differ from the usual ones.
    policy_settings_by_gpus : those that go with the size of the cluster: by name of the policy, then by GPUs. A cluster
        has those of the largest size that it reaches; one below all of them those of the smallest.
    comparison : what is compared where nothing else is said.

    Raises
    ------
    InputError
        No such yardstick of fairness.
    """

    name: str = "default"
    mechanism: MechanismSettings = field(default_factory=MechanismSettings)
    simulator: SimulatorSettings = field(default_factory=SimulatorSettings)
    choice: str = "balanced"
    fairness: FairnessYardstick = "isolated"
    policy_settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    policy_settings_by_gpus: Mapping[str, Mapping[int, Mapping[str, Any]]] = field(default_factory=dict)
    comparison: Comparison = field(default_factory=Comparison)

    def __post_init__(self) -> None:
        known = get_args(FairnessYardstick)
        if self.fairness not in known:
            raise InputError("preset", field="fairness", found=self.fairness, expected=f"one of {', '.join(known)}")

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
        return dataclasses.replace(
            self,
            mechanism=dataclasses.replace(self.mechanism, **{k: v for k, v in changes.items() if k in mechanism}),
            simulator=dataclasses.replace(self.simulator, **{k: v for k, v in changes.items() if k in simulator}),
        )

    def settings_of_policy(self, name: str, cluster: Cluster) -> dict[str, Any]:
        """Settings of the policy of that name on `cluster` under this preset; empty where they are the usual ones."""
        settings = dict(self.policy_settings.get(name, {}))
        if by_gpus := self.policy_settings_by_gpus.get(name):
            reached = [gpus for gpus in by_gpus if gpus <= cluster.total_gpus]
            settings |= by_gpus[max(reached, default=min(by_gpus))]
        return settings

    def as_dict(self) -> dict[str, Any]:
        """Every setting by name, ready for JSON."""
        settings = dataclasses.asdict(self.mechanism) | dataclasses.asdict(self.simulator)
        return {"preset": self.name, "choice": self.choice, "fairness": self.fairness} | {
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

# Settings of policies in Shockwave's comparison. The solver of its linear programs stopped where `homogeneous` stops;
# for finish-time fairness, runs of the published code with Clarabel are on record.
_SHOCKWAVE_POLICIES: dict[str, Mapping[str, Any]] = {
    **SHOCKWAVE_COMPARISON,
    "max_min_fairness": {"solver": "homogeneous"},
    "finish_time_fairness": {"solver": "clarabel"},
}

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
    fairness="static",
    policy_settings=_SHOCKWAVE_POLICIES,
    policy_settings_by_gpus={"shockwave": SHOCKWAVE_WEIGHTS},
    comparison=Comparison(
        policies=tuple(SHOCKWAVE_COMPARISON),
        cluster="v100:32",
        generator="shockwave",
        jobs=120,
        mean_interarrival_seconds=40.0,
        seed=25,
        labels=SHOCKWAVE_LABELS,
        bars=("makespan", "average_jct", "worst_rho", "unfair_fraction"),
    ),
)

_PRESETS = {
    "default": Preset(),
    "gavel": _GAVEL,
    "shockwave": _SHOCKWAVE,
    # To the letter: progress is rounded past the end of some jobs, which then hold their GPUs for five rounds.
    "shockwave_published": dataclasses.replace(
        _SHOCKWAVE.replace(finished_jobs_linger_rounds=5),
        name="shockwave_published",
        policy_settings={
            **_SHOCKWAVE_POLICIES,
            "shockwave": SHOCKWAVE_PLANNER,
        },
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
