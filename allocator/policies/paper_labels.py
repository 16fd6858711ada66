"""What papers call the policies that they compare.

>>> from allocator.policies.paper_labels import paper_label
>>> paper_label("finish_time_fairness"), paper_label("isolated")
('Themis', 'isolated')
"""

from __future__ import annotations

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
"""Names in Zheng et al., NSDI 2023: labels by policy."""

DEADLINE_LABELS = {
    "elasticflow": "ElasticFlow",
    "elasticflow_no_admission": "EDF + Elastic Scaling",
    "elasticflow_mip": "ElasticFlow, by programs",
    "edf": "EDF",
    "edf_admission": "EDF + Admission Control",
    "tiresias": "Tiresias",
    "gandiva_time_slicing": "Gandiva",
    "themis": "Themis",
    "chronus": "Chronus",
}
"""Names in Gu et al., ASPLOS 2023, secs. 6.1 and 6.4: labels by policy; the programs are ours."""

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

SHOCKWAVE_PLANNER: dict[str, float | str | None] = {
    "forecast": "oracle",
    "fairness_rows": "published",
    "priority_cap": None,
    "momentum": 0.9,
    "clock": "rounds",
    "rho_from": "start",
}
"""Settings of the policy `shockwave` that are those of its published code; the program itself is solved in our form."""

SHOCKWAVE_WEIGHTS: dict[int, dict[str, float]] = {
    32: {"makespan_weight": 1e-3, "fairness_exponent": 12.0},
    64: {"makespan_weight": 1e1, "fairness_exponent": 5.0},
    128: {"makespan_weight": 1e-3, "fairness_exponent": 15.0},
    256: {"makespan_weight": 1e5, "fairness_exponent": 5.0},
}
"""k and lambda of the policy `shockwave` by the GPUs of the cluster, from the configurations of its published code."""


def paper_label(policy: str) -> str:
    """The paper's name of a policy, or its own where the paper has none."""
    return SHOCKWAVE_LABELS.get(policy, policy)
