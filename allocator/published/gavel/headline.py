"""Figures 8 and 9 of Gavel (Narayanan et al., OSDI 2020): JCT against load, blind to types and aware of them."""

from __future__ import annotations

from collections.abc import Iterator

from allocator.experiments.run import Run
from allocator.experiments.workloads import workload
from allocator.studies.headline import Made, headline
from allocator.studies.study import Options
from allocator.studies.tables import Shown

_PRINTED = {
    (2.0, "max_min_fairness"): (23.47,),
    (2.0, "max_min_fairness_perf"): (16.95,),
    (4.0, "max_min_fairness"): (23.49,),
    (4.0, "max_min_fairness_perf"): (16.82,),
    (5.2, "max_min_fairness"): (63.78,),
    (5.2, "max_min_fairness_perf"): (22.02,),
}
"""Hours, as the notebooks of its artifact print them: seed 0, jobs 4000 to 4999, 36 GPUs of each type."""


def _runs(options: Options) -> Iterator[Made]:
    for rate, policy in _PRINTED:
        if rate == 5.2 or not options.quick:
            jobs = workload({"generator": "gavel"})
            run = Run("continuous", policy, "v100:36,p100:36,k80:36", rate, 0, workload=jobs, window=(4000, 5000),
                      preset="gavel")  # fmt: skip
            yield (rate, policy), 0, run.result


STUDY = headline(
    "Gavel: jobs of one GPU at so many per hour",
    ("jobs_per_hour", "policy"),
    {"average JCT, h": Shown("average_jct", unit=3600.0)},
    _PRINTED,
    _runs,
)
