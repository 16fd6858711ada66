"""Near saturation: more jobs are offered at once than the cluster can take, each of which alone would be in time.

Jobs are offered one after another, and let in if all deadlines can still be met: by filling, by repair, and by the
program of shares between deadlines, which tells what any schedule can do with the jobs it has let in before. What
filling and repair let in is simulated to the end, where decisions are free and where they are slots apart and starts
cost.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from allocator import Cluster, get_policy, simulate
from allocator.presets import Preset, preset
from benchmarks.deadlines.inputs import Inputs
from formulations.deadlines import DeadlineJob, ScalingCurve
from formulations.deadlines.program import all_can_be_met
from throughputs import ThroughputTable, Trace
from throughputs.numerics import power_of_ten

if TYPE_CHECKING:
    import pandas as pd

ADMISSIONS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "filling": {"admission": "each"},
        "repair": {"admission": "repair"},
        "repair, any size": {"admission": "repair", "repair_quantile": 1.0},
    }
)
"""Settings of ElasticFlow by what the study calls them."""

BOUND = "bound"

WORLDS: Mapping[str, Preset] = MappingProxyType(
    {
        "any time": preset("default"),
        "slots": preset("elasticflow").replace(overhead="starts", slot_seconds=240.0),
    }
)
"""Worlds by case: decisions at any time that cost nothing, or in slots of 240 s where starts cost seconds."""

_SIZES = (8, 16, 32, 64)
_DRAWS, _OFFERED = 6, 30
_LOG_SECONDS = (3.0, 4.5)
_FACTORS = (0.5, 1.5)


def near_saturation(inputs: Inputs, *, small: bool) -> pd.DataFrame:
    """One row for each draw, admission and world, in the columns of a sweep; the bound knows no worlds."""
    import pandas as pd

    return pd.DataFrame(list(_rows(inputs, small=small)))


def _rows(inputs: Inputs, *, small: bool) -> Iterator[dict[str, Any]]:
    for accelerator, table in inputs.tables().items():
        for gpus in _SIZES[:2] if small else _SIZES:
            cluster = Cluster({accelerator: gpus}, gpus_per_server={accelerator: min(gpus, 8)})
            for seed in range(1 if small else _DRAWS):
                trace = _offers(table, accelerator, gpus, seed)
                common = {
                    "cluster": str(cluster), "submitted_jobs": _OFFERED, "seed": seed, "status": "completed",
                }  # fmt: skip
                met = len(_let_in_by_the_bound(table, accelerator, gpus, trace))
                yield {**common, "label": BOUND, "case": "", "admitted": met, "deadline_ratio": met / _OFFERED}
                for case, world in WORLDS.items():
                    for label, options in ADMISSIONS.items():
                        policy = get_policy("elasticflow", **options)
                        result = simulate(trace, cluster, policy, table, preset=world)
                        yield {**common, "label": label, "case": case, **result.summary()}


def _offers(table: ThroughputTable, accelerator: str, gpus: int, seed: int) -> Trace:
    """Jobs of any type that all GPUs together would complete in time."""
    rng = np.random.default_rng((seed, gpus))
    kinds: list[str] = []
    steps: list[float] = []
    due: list[float] = []
    while len(kinds) < _OFFERED:
        kind = table.job_types[int(rng.integers(len(table.job_types)))]
        curve = _curve(table, accelerator, gpus, kind)
        seconds = float(power_of_ten(rng.uniform(*_LOG_SECONDS)))
        usual = [rate for level, rate in zip(curve.levels, curve.rates, strict=True) if level <= max(1, gpus // 4)]
        work = seconds * usual[int(rng.integers(len(usual)))]
        deadline = seconds * float(rng.uniform(*_FACTORS))
        if work <= deadline * curve.rates[-1]:
            kinds.append(kind)
            steps.append(work)
            due.append(deadline)
    fewest = [min(_curve(table, accelerator, gpus, kind).levels) for kind in kinds]
    return Trace(kinds, fewest, steps, np.zeros(_OFFERED), deadline=due)


def _curve(table: ThroughputTable, accelerator: str, gpus: int, kind: str) -> ScalingCurve:
    sizes: Sequence[int] = table.scale_factors_of(kind)
    rates = table.rates([kind] * len(sizes), sizes, [accelerator])[:, 0].tolist()
    return ScalingCurve(sizes, rates, gpus, useful_only=True)


def _let_in_by_the_bound(table: ThroughputTable, accelerator: str, gpus: int, trace: Trace) -> list[DeadlineJob]:
    let_in: list[DeadlineJob] = []
    for kind, work, due in zip(trace.job_type, trace.total_steps.tolist(), trace.deadline.tolist(), strict=True):
        job = DeadlineJob(_curve(table, accelerator, gpus, kind), work, due)
        if all_can_be_met([*let_in, job], gpus, 0.0):
            let_in.append(job)
    return let_in
