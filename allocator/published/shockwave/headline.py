"""The canonical simulation of Shockwave (Zheng et al., NSDI 2023): 120 jobs on 32 GPUs."""

from __future__ import annotations

from collections.abc import Iterator

from allocator.data import path_of
from allocator.experiments.run import Run
from allocator.studies.headline import Made, headline
from allocator.studies.study import Options
from allocator.studies.tables import Shown
from throughputs import read_trace

_TRACE = "120_0.2_5_100_40_25_0,0.5,0.5_0.6,0.3,0.09,0.01_multigpu_dynamic.trace"
_PRINTED = {
    ("shockwave",): (6.722, 2.766, 1.784, 5.00),
    ("min_total_duration",): (6.724, 5.502, 7.741, 74.17),
    ("finish_time_fairness",): (8.869, 3.139, 3.438, 22.50),
    ("max_min_fairness",): (9.224, 3.132, 2.947, 25.00),
    ("allox",): (9.025, 2.757, 4.964, 27.50),
    ("max_sum_throughput_perf",): (8.864, 2.682, 4.976, 25.00),
    ("gandiva_fair",): (8.991, 3.493, 1.854, 51.67),
}
"""Of the runs that the artifact holds."""


def _runs(options: Options) -> Iterator[Made]:
    trace = read_trace(path_of(f"shockwave-traces/{_TRACE}"))
    speeds = str(path_of("shockwave-throughputs/tacc_throughputs.json"))
    for key in _PRINTED:
        run = Run("trace", *key, "v100:32", workload=trace, throughputs=speeds, preset="shockwave_published")
        if key != ("shockwave",) or not options.quick:
            yield key, 0, run.result


STUDY = headline(
    "Shockwave: 120 jobs on 32 GPUs",
    ("policy",),
    {
        "makespan, h": Shown("makespan", unit=3600.0),
        "average JCT, h": Shown("average_jct", unit=3600.0),
        "worst rho": Shown("worst_rho_static"),
        "unfair jobs, %": Shown("unfair_fraction_static", ".1f", 0.01),
    },
    _PRINTED,
    _runs,
)
