"""Figures 6b and 8b of ElasticFlow (Gu et al., ASPLOS 2023): deadlines that are kept."""

from __future__ import annotations

import tarfile
from collections.abc import Iterator
from typing import Any

from allocator.data import path_of
from allocator.experiments.run import Run
from allocator.presets import preset
from allocator.studies.headline import Made, headline
from allocator.studies.study import Options
from allocator.studies.tables import Shown
from throughputs import read_trace

POLICIES = ("elasticflow", "edf", "tiresias", "gandiva_time_slicing", "themis", "chronus")
TESTBED = "195job"
GPUS = (
    {TESTBED: 128} | {f"cluster{k:02d}": 1024 if k in (4, 7, 8, 9) else 512 for k in range(1, 10)} | {"cluster10": 256}
)
"""A100 of the cluster on which each of the traces was run, in servers of 8."""

_FIGURES = (
    (0.6667, 0.0872, 0.4564, 0.2103, 0.3897, 0.4103),
    (0.788, 0.182, 0.478, 0.246, 0.464, 0.474),
    (0.822, 0.228, 0.470, 0.286, 0.431, 0.445),
    (0.455, 0.095, 0.401, 0.314, 0.389, 0.426),
    (0.631, 0.007, 0.120, 0.228, 0.432, 0.450),
    (0.832, 0.375, 0.420, 0.228, 0.430, 0.453),
    (0.607, 0.105, 0.466, 0.381, 0.425, 0.432),
    (0.665, 0.046, 0.346, 0.351, 0.437, 0.460),
    (0.896, 0.252, 0.373, 0.325, 0.423, 0.447),
    (0.938, 0.800, 0.468, 0.329, 0.456, 0.466),
    (0.981, 0.769, 0.473, 0.354, 0.431, 0.454),
)
RATIOS = {trace: dict(zip(POLICIES, row, strict=True)) for trace, row in zip(GPUS, _FIGURES, strict=True)}
"""Parts of the deadlines that are kept, as the plot scripts of the artifact have them; the first on the testbed."""


def _runs(options: Options) -> Iterator[Made]:
    archive = path_of("elasticflow-itp")
    speeds = str(path_of("elasticflow-throughputs") / "throughputs_A100")
    folder = options.folder / "elasticflow-traces"
    with tarfile.open(archive) as packed:
        packed.extractall(folder, filter="data")
    for name in (TESTBED,) if options.quick else GPUS:
        trace = read_trace(folder / f"{name}.csv")
        for policy in POLICIES:
            # the greedy rule of Chronus: its program takes 20 times as long, and meets as many
            world = "chronus_elasticflow" if policy == "chronus" else "elasticflow"
            own: dict[str, Any] = {"solver": "none"} if policy == "chronus" else {}
            slots = {} if policy == "chronus" else {"slot_seconds": 240.0 if name == TESTBED else 60.0}
            own |= slots if "slot_seconds" in preset(world).kinds_of_policy(policy) else {}
            run = Run("trace", policy, f"a100:{GPUS[name]}", gpus_per_server="a100:8", workload=trace, preset=world,
                      throughputs=speeds, policy_settings=own, settings=slots)  # fmt: skip
            yield (name, policy), 0, run.result


STUDY = headline(
    "ElasticFlow: deadlines that are kept",
    ("trace", "policy"),
    {"in time, %": Shown("deadline_ratio", ".1f", 0.01)},
    {(name, policy): (100 * ratio,) for name, row in RATIOS.items() for policy, ratio in row.items()},
    _runs,
)
