"""The scheduler and simulator of Shockwave (Zheng et al., NSDI 2023, public artifact), which grew out of Gavel's."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from allocator.policies.paper_labels import SHOCKWAVE_COMPARISON, SHOCKWAVE_PLANNER, SHOCKWAVE_WEIGHTS
from allocator.presets.gavel import GAVEL
from allocator.presets.preset import Comparison

# Settings of policies in Shockwave's comparison. Its linear programs were solved by ECOS, as in the choice "published";
# for finish-time fairness, runs of the published code with Clarabel are on record.
_POLICIES: dict[str, Mapping[str, Any]] = {
    **SHOCKWAVE_COMPARISON,
    "finish_time_fairness": {"solver": "clarabel"},
}

SHOCKWAVE = dataclasses.replace(
    GAVEL.replace(
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
    policy_settings=_POLICIES,
    policy_settings_by_gpus={"shockwave": SHOCKWAVE_WEIGHTS},
    comparison=Comparison(
        policies=tuple(SHOCKWAVE_COMPARISON),
        cluster="v100:32",
        generator="shockwave",
        jobs=120,
        mean_interarrival_seconds=40.0,
        seed=25,
    ),
)

# To the letter: progress is rounded past the end of some jobs, which then hold their GPUs for five rounds.
SHOCKWAVE_PUBLISHED = dataclasses.replace(
    SHOCKWAVE.replace(finished_jobs_linger_rounds=5),
    name="shockwave_published",
    policy_settings={**_POLICIES, "shockwave": SHOCKWAVE_PLANNER},
)
