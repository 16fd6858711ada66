"""The studies as sweeps: what is run, on which jobs and clusters, under which settings.

A study is one or more sweeps, since Chronus and the policies of ElasticFlow's simulator have presets of their own. Runs
that are there are not made again; `load` of the same folder gives what has come so far.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from allocator import Cluster, get_policy, simulate
from allocator.sweep import Sweep, run
from allocator.sweep.execute import Materials
from benchmarks.deadlines.inputs import CLUSTER_GPUS, TESTBED_TRACE, Inputs
from benchmarks.deadlines.saturation import near_saturation

if TYPE_CHECKING:
    import pandas as pd
    from rich.console import Console

    from allocator.simulator import SimulationResult
    from allocator.sweep.definition.point import Point

AS_PUBLISHED, OURS, REPAIR = "elasticflow, published", "elasticflow, ours", "elasticflow, repair"
"""What the studies call ElasticFlow: under its preset, by default, and with the other admission."""

BASELINES = ("edf", "edf_admission", "tiresias", "gandiva_time_slicing", "themis")
"""What ElasticFlow is compared with, under its preset."""

PUBLISHED = ("elasticflow", "elasticflow_no_admission", *BASELINES)

_OWN = asdict(get_policy("elasticflow"))
"""The default, in a world whose preset has other settings."""

_VARIANTS: tuple[dict[str, Any], ...] = (
    {"name": "elasticflow", **_OWN},
    {"name": "elasticflow", **_OWN, "admission": "repair"},
)
_NO_ADMISSION = {"name": "elasticflow_no_admission", **asdict(get_policy("elasticflow_no_admission"))}

_OPTIMUM = {"name": "elasticflow_mip"}

_CHRONUS = {"name": "chronus", "solver": "none"}
"""The greedy rule: the lease program takes 20 times as long on these traces, and meets as many deadlines."""

WORLDS: Mapping[str, str] = MappingProxyType({"nothing": "off", "starts": "starts", "all who run": "running"})
"""Who loses time by decisions, and the setting for it: nobody, jobs whose GPUs change, or as published everybody."""

_STARTS = {"overhead": "starts"}
"""A decision costs those whose GPUs change. As published it costs all that run, whether or not anything changes."""

_SLOT_SECONDS = 240.0
_FACTORS = (0.5, 0.75, 1.0, 1.25, 1.5, 2.0)
_SHARES = (0.1, 0.3, 0.5, 0.7, 0.9)
_NONE: Mapping[str, Any] = MappingProxyType({})


def _sweep(
    name: str,
    policies: Sequence[Any],
    *,
    preset: str = "elasticflow",
    slot_seconds: float = _SLOT_SECONDS,
    world: Mapping[str, Any] = _NONE,
    **definition: Any,
) -> Sweep:
    settings: dict[str, Any] = {"preset": preset}
    if preset == "elasticflow":
        settings |= {"slot_seconds": slot_seconds, "policy": {"slot_seconds": slot_seconds}, **world}
    base = {"kind": "static", "seeds": [0], "keep_jobs": True}
    return Sweep.from_dict({**base, **definition, "name": name, "policies": list(policies), "settings": settings})


def _with_chronus(name: str, policies: Sequence[Any], **definition: Any) -> list[Sweep]:
    """The policies under ElasticFlow's preset, and Chronus under that of the copy which it compares with."""
    return [
        _sweep(name, policies, **definition),
        _sweep(f"{name}_chronus", [_CHRONUS], preset="chronus_elasticflow", **definition),
    ]


def end_to_end(inputs: Inputs, *, small: bool) -> list[Sweep]:
    """The 195 jobs of the testbed on 16 servers of 8 GPUs: all policies, ElasticFlow as published and as it is here."""
    definition = _testbed(inputs, small=small)
    policies = [name for name in PUBLISHED if name != "elasticflow_no_admission"]
    return [
        *_with_chronus("end_to_end", policies, **definition),
        _sweep("end_to_end_ours", _VARIANTS, world=_STARTS, **definition),
    ]


def tightness(inputs: Inputs, *, small: bool) -> list[Sweep]:
    """Deadlines at the same multiple of the duration for every job, from half of it to twice."""
    factors = _FACTORS[::2] if small else _FACTORS
    definition = _testbed(inputs, small=small)
    definition["cases"] = [{"name": f"{u:g}", "workload": {"deadline_factors": [u, u]}} for u in factors]
    return [
        *_with_chronus("tightness", _quick(PUBLISHED, small=small), **definition),
        _sweep("tightness_ours", _VARIANTS, world=_STARTS, **definition),
    ]


def best_effort(inputs: Inputs, *, small: bool) -> list[Sweep]:
    """A tenth to nine tenths of the jobs without deadlines."""
    shares = _SHARES[1::3] if small else _SHARES
    definition = _testbed(inputs, small=small)
    definition["cases"] = [{"name": f"{share:g}", "workload": {"best_effort": share}} for share in shares]
    return [
        *_with_chronus("best_effort", _quick(PUBLISHED, small=small), **definition),
        _sweep("best_effort_ours", _VARIANTS, world=_STARTS, **definition),
    ]


def ablation(inputs: Inputs, *, small: bool) -> list[Sweep]:
    """Admission, elastic scaling and both, by what decisions cost; a program, Chronus."""
    definition = _testbed(inputs, small=small)
    policies = ["edf", "edf_admission", "elasticflow", _NO_ADMISSION, *_VARIANTS]
    sizes = [8, 16] if small else [32, 64, 128]
    several = definition | {"clusters": [inputs.cluster(gpus) for gpus in sizes]}
    # The program takes seconds for tens of jobs, and minutes for hundreds: it is asked about few jobs on few GPUs.
    few = definition | {"jobs": [10 if small else 20], "clusters": [inputs.cluster(8)]}
    worlds = [{"name": name, "overhead": overhead} for name, overhead in WORLDS.items()]
    return [
        _sweep("ablation", policies, cases=worlds, **several),
        _sweep("ablation_chronus", [_CHRONUS], preset="chronus_elasticflow", **several),
        _sweep("ablation_few", [*policies, _OPTIMUM], cases=worlds, **few),
    ]


def _testbed(inputs: Inputs, *, small: bool) -> dict[str, Any]:
    return {
        "seeds": inputs.seeds,
        "jobs": [20 if small else inputs.jobs_of(TESTBED_TRACE, 195)],
        "clusters": [inputs.cluster(16 if small else 128)],
        "workload": inputs.workload(),
    }


def _quick(policies: Sequence[str], *, small: bool) -> list[str]:
    """Without Themis in the small variant, where it would take longer than all others together."""
    return [name for name in policies if not (small and name == "themis")]


def clusters(inputs: Inputs, *, small: bool) -> list[Sweep]:
    """The traces of ten clusters, slots of a minute; without the public traces, three loads of drawn jobs."""
    if inputs.public:
        names = ["cluster10"] if small else sorted(CLUSTER_GPUS, key=lambda name: inputs.jobs_of(name, 0))
        cases = [
            {
                "name": name,
                "workload": inputs.workload(name),
                "clusters": [inputs.cluster(CLUSTER_GPUS[name])],
                "jobs": [inputs.jobs_of(name, 0)],
            }
            for name in names
        ]
    else:
        cases = [
            {
                "name": f"drawn, {gap} s",
                "workload": inputs.workload() | {"mean_interarrival_seconds": float(gap)},
                "clusters": [inputs.cluster(32)],
                "jobs": [40 if small else 300],
            }
            for gap in ((900,) if small else (300, 900, 2700))
        ]
    return _with_chronus("clusters", PUBLISHED, cases=cases, seeds=inputs.seeds, slot_seconds=60.0)


STUDIES: Mapping[str, Callable[..., list[Sweep]]] = {
    "end_to_end": end_to_end,
    "tightness": tightness,
    "best_effort": best_effort,
    "ablation": ablation,
    "clusters": clusters,
}
"""By name, a function from the inputs, and whether they are to be small, to the sweeps."""


ONE_BY_ONE: Mapping[str, Callable[..., pd.DataFrame]] = {"saturation": near_saturation}
"""Studies that are no sweeps, in the same form: a function to the rows."""


def run_study(
    name: str,
    folder: Path,
    *,
    small: bool = False,
    inputs: Inputs | None = None,
    jobs: int | None = None,
    console: Console | None = None,
) -> pd.DataFrame:
    """Make the runs of a study that `folder` does not hold yet.

    Returns
    -------
    One row per run of all sweeps (docs/sweeps.md), with a column ``label``: the policy as the study calls it.
    """
    import pandas as pd

    inputs = Inputs.found(folder / "inputs") if inputs is None else inputs
    if name in ONE_BY_ONE:
        return ONE_BY_ONE[name](inputs, small=small)
    found = [
        run(sweep, folder / sweep.name, jobs=jobs, console=console) for sweep in STUDIES[name](inputs, small=small)
    ]
    results = pd.concat(found, ignore_index=True)
    admissions = results.get("policy_admission", pd.Series(index=results.index, dtype=object))
    pairs = zip(results["policy"], admissions, strict=True)
    return results.assign(label=[_label(policy, {"admission": admission}) for policy, admission in pairs])


def efficiency_over_time(
    labels: Sequence[str], *, small: bool = False, inputs: Inputs | None = None
) -> dict[str, pd.DataFrame]:
    """Efficiency of the cluster on the end-to-end jobs of the first seed, simulated now: time (seconds) and efficiency.

    Parameters
    ----------
    labels : of policies, as `run_study` calls them, Chronus left out.
    """
    found = {}
    for sweep in end_to_end(Inputs() if inputs is None else inputs, small=small):
        for point in sweep.points():
            label = _label(point.policy, point.policy_settings)
            if label in labels and label not in found:
                found[label] = simulated(point).efficiency
    return found


def simulated(point: Point) -> SimulationResult:
    """One run of a study, made now."""
    materials = Materials.of([point])
    return simulate(
        materials.jobs_of(point)(int(point.load)),
        Cluster.parse(point.cluster, point.gpus_per_server),
        point.make_policy(),
        materials.tables[point.workload.throughputs],
        preset=point.chosen,
    )


def _label(policy: str, settings: Mapping[str, Any]) -> str:
    """What a study calls a policy: ElasticFlow by its admission where that is not as published."""
    if policy != "elasticflow":
        return policy
    return {"each": OURS, "repair": REPAIR}.get(str(settings.get("admission")), AS_PUBLISHED)
