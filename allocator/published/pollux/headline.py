"""The simulations of Pollux (Qiao et al., OSDI 2021): 160 jobs on 64 T4, as the artifact publishes their results."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from allocator import Cluster
from allocator.data import path_of
from allocator.presets import preset
from allocator.published.pollux.trainings import read_trainings
from allocator.simulator.engine import simulate
from allocator.studies.headline import Made, headline
from allocator.studies.study import Options
from allocator.studies.tables import Shown
from throughputs import read_trace
from throughputs.goodput.trainings import Trainings

_EIGHT, _SIXTH = "1 to 8", "6"
_PRINTED = {
    (_EIGHT, "pollux"): (0.764,),
    (_EIGHT, "tiresias"): (1.122,),
    (_EIGHT, "optimus"): (1.578,),
    (_SIXTH, "pollux"): (0.679,),
    (_SIXTH, "tiresias"): (0.964,),
    (_SIXTH, "optimus"): (1.473,),
}


def _runs(options: Options) -> Iterator[Made]:
    known, cluster, chosen = read_trainings(path_of("sia-profiles")), Cluster({"aws": 64}, {"aws": 4}), preset("pollux")
    # the same tables of T4, by the names of a later artifact; one model had a smaller limit of its batch size
    yolov3: Any = known.models["yolov3"]
    trainings = Trainings({**known.models, "yolov3": yolov3.with_largest_local("aws", 8)}, known.source)
    for workload, policy in _PRINTED:
        if options.quick == (workload == _SIXTH):
            for number in (6,) if options.quick else range(1, 9):
                trace = read_trace(path_of(f"pollux-workloads/workloads/workload-{number}.csv"))
                asked = chosen.make_policy(policy, cluster)
                made = partial(simulate, trace, cluster, asked, trainings, preset=chosen)
                yield (workload, policy), number, made


STUDY = headline(
    "Pollux: workloads of 160 jobs on 64 GPUs",
    ("workloads", "policy"),
    {"average JCT, h": Shown("average_jct", ".3f", 3600.0)},
    _PRINTED,
    _runs,
)
