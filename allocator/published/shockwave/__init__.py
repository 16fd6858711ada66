"""The scheduler and simulator of Shockwave (Zheng et al., NSDI 2023, public artifact), which grew out of Gavel's."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from allocator.presets.preset import Comparison
from allocator.published.gavel import GAVEL
from allocator.published.gavel.world import RoundLength
from allocator.published.shockwave.world import RoundedBatchSizes, ShortRoundsStartFree, UnnoticedEnds
from allocator.simulator.rules.base import rule_of

SHOCKWAVE_COMPARISON: dict[str, dict[str, float | str]] = {
    "shockwave": {},
    "min_total_duration": {},
    "finish_time_fairness": {},
    "max_min_fairness": {},
    "allox": {"alpha": 0.2, "gangs": "one_gpu_share"},
    "max_sum_throughput_perf": {},
    "gandiva_fair": {},
}
"""The seven policies of its comparison on one type of accelerator, in the order of the figures: settings by policy.

AlloX looks at a fifth of the waiting jobs and counts a gang as one GPU, which then runs 1 / w of the time.
"""

SHOCKWAVE_LABELS = {
    "shockwave": "Shockwave",
    "min_total_duration": "OSSP",
    "finish_time_fairness": "Themis",
    "max_min_fairness": "Gavel",
    "allox": "AlloX",
    "max_sum_throughput_perf": "MST",
    "gandiva_fair": "Gandiva-Fair",
    "isolated_plus": "Fair share",
}

SHOCKWAVE_WEIGHTS: dict[int, dict[str, float]] = {
    32: {"makespan_weight": 1e-3, "fairness_exponent": 12.0},
    64: {"makespan_weight": 1e1, "fairness_exponent": 5.0},
    128: {"makespan_weight": 1e-3, "fairness_exponent": 15.0},
    256: {"makespan_weight": 1e5, "fairness_exponent": 5.0},
}
"""k and lambda of the policy `shockwave` by the GPUs of the cluster, from the configurations of its published code."""


# Settings of policies in Shockwave's comparison. Its linear programs were solved by ECOS, as in the choice "published";
# for finish-time fairness, runs of the published code with Clarabel are on record.
_POLICIES: dict[str, Mapping[str, Any]] = {
    **SHOCKWAVE_COMPARISON,
    "finish_time_fairness": {"solver": "clarabel"},
}

SHOCKWAVE = dataclasses.replace(
    GAVEL.replace(round_seconds=120.0, recompute_interval_seconds=1000.0),
    name="shockwave",
    world=(
        rule_of(GAVEL.world, RoundLength),
        ShortRoundsStartFree(restart_penalty_seconds=20.0, restart_penalty_slack_seconds=5.0),
        UnnoticedEnds(idle_gap_counts_as_service=True, max_zero_step_rounds=5, overtime_factor=1.5),
        RoundedBatchSizes("published"),
    ),
    fairness="static",
    policy_settings=_POLICIES,
    policy_settings_by_gpus={"shockwave": SHOCKWAVE_WEIGHTS},
    comparison=Comparison(
        policies=tuple(SHOCKWAVE_COMPARISON),
        cluster="v100:32",
        workload={"generator": "shockwave"},
        labels=SHOCKWAVE_LABELS,
        of_embedded_throughputs="The steps of the jobs fit the embedded throughputs. The paper has others: `allocator "
        "data fetch shockwave-throughputs`, then --throughputs with its file tacc_throughputs.json.",
        jobs=120,
        mean_interarrival_seconds=40.0,
        seed=25,
    ),
)

# To the letter: progress is rounded past the end of some jobs, which then hold their GPUs for five rounds.
SHOCKWAVE_PUBLISHED = dataclasses.replace(
    SHOCKWAVE.replace(finished_jobs_linger_rounds=5),
    name="shockwave_published",
    policies={**GAVEL.policies, "shockwave": "allocator.published.shockwave.world:PublishedShockwave"},
)
