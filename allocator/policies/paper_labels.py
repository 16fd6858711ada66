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


def paper_label(policy: str) -> str:
    """The paper's name of a policy, or its own where the paper has none."""
    return SHOCKWAVE_LABELS.get(policy, policy)
