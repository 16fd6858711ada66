"""Studies of policies for deadlines beside each other: ElasticFlow, its baselines, Chronus (docs/deadlines.md).

    python -m benchmarks deadlines --quick
    python -m benchmarks end_to_end ablation
    python -m benchmarks clusters --processes 2       # ten clusters, 70,000 jobs; can be continued

A study is one or more sweeps, since Chronus and the policies of ElasticFlow's simulator have presets of their own; in
`saturation`, jobs are offered one after another, each of which alone would be in time, and let in by filling, by
repair, and by the program of shares between deadlines, which tells what any schedule can do with those let in before.

The variable ALLOCATOR_DATA names the folder of the public data (docs/contributing.md): in it, ``elasticflow`` holds
``throughputs_A100`` and ``traces/elasticflow-traces.tar.gz``. Without them jobs come from `throughputs.deadline_trace`
on the embedded throughputs, gangs of up to 8 GPUs.
"""

from __future__ import annotations

import os
import tarfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pandas as pd

from allocator import Cluster, SimulationResult, get_policy, simulate
from allocator.presets import Preset, preset
from allocator.published.elasticflow.headline import GPUS, TESTBED
from allocator.studies.study import Options, Row, Run, Study
from allocator.studies.tables import Shown, markdown
from allocator.sweep import Point, Sweep
from benchmarks.published import CLUSTER_RATIOS, TESTBED_RATIOS
from formulations.deadlines import DeadlineJob, ScalingCurve
from formulations.deadlines.program import least_gpu_seconds
from throughputs import ThroughputTable, Trace, default_table, read_table, read_trace
from throughputs.numerics import power_of_ten

FOLDER = Path("benchmarks/results") / "deadlines"
HOUR = 3600.0

# Jobs and clusters

CLUSTER_GPUS = {name: gpus for name, gpus in GPUS.items() if name != TESTBED}
"""GPUs of the cluster on which each of the ten traces was simulated, in servers of 8."""

TESTBED_TRACE = TESTBED


@dataclass(frozen=True)
class Inputs:
    """Where jobs and throughputs come from.

    Attributes
    ----------
    accelerator : the one type of the clusters.
    throughputs : folder of the throughputs; None: the embedded table.
    traces : folder of the unpacked public traces; None: jobs are drawn.
    draws : how many times jobs are drawn, each with a seed of its own.
    """

    accelerator: str = "v100"
    throughputs: Path | None = None
    traces: Path | None = None
    draws: int = 1

    @classmethod
    def found(cls, cache: Path, data: str | os.PathLike[str] | None = None) -> Inputs:
        """The public data in `data`, else where ALLOCATOR_DATA says; traces are unpacked into `cache`, once."""
        folder = Path(data or os.environ.get("ALLOCATOR_DATA") or "absent") / "elasticflow"
        archive, throughputs = folder / "traces/elasticflow-traces.tar.gz", folder / "throughputs_A100"
        if not (archive.is_file() and throughputs.is_dir()):
            return cls()
        traces = cache / "elasticflow-traces"
        if not (traces / f"{TESTBED_TRACE}.csv").exists():
            with tarfile.open(archive) as packed:
                packed.extractall(traces, filter="data")
        return cls("a100", throughputs, traces)

    @property
    def public(self) -> bool:
        """Whether the jobs are those of the public traces."""
        return self.traces is not None

    @property
    def seeds(self) -> list[int]:
        """Draws of the jobs; a recorded trace is what it is."""
        return [0] if self.public else list(range(self.draws))

    def cluster(self, gpus: int) -> dict[str, str]:
        """A cluster of so many GPUs in servers of 8, as a sweep has it."""
        return {"gpus": f"{self.accelerator}:{gpus}", "gpus_per_server": f"{self.accelerator}:8"}

    def tables(self) -> dict[str, ThroughputTable]:
        """Throughputs by accelerator: the public ones of A100 and T4, or the embedded ones."""
        if self.throughputs is None:
            return {self.accelerator: default_table()}
        folders = {self.accelerator: self.throughputs, "t4": self.throughputs.with_name("throughputs_T4")}
        return {accelerator: read_table(folder, accelerator) for accelerator, folder in folders.items()}

    def workload(self, trace: str = TESTBED_TRACE) -> dict[str, Any]:
        """Jobs of a public trace, or drawn ones, as a sweep has them."""
        if self.traces is None:
            return {"generator": "deadlines", "multi_gpu": True, "mean_interarrival_seconds": 600.0}
        path = self.traces / f"{trace}.csv"
        return {"generator": "recorded", "trace": str(path), "throughputs": str(self.throughputs)}

    def jobs_of(self, trace: str, drawn: int) -> int:
        """Jobs of a public trace, or as many as are drawn."""
        return drawn if self.traces is None else len(read_trace(self.traces / f"{trace}.csv"))


# Sweeps

AS_PUBLISHED, OURS, REPAIR = "elasticflow, published", "elasticflow, ours", "elasticflow, repair"
"""What the studies call ElasticFlow: under its preset, by default, and with the other admission."""

BASELINES = ("edf", "edf_admission", "tiresias", "gandiva_time_slicing", "themis")
"""What ElasticFlow is compared with, under its preset."""

PUBLISHED = ("elasticflow", "elasticflow_no_admission", *BASELINES)

_OURS = "elasticflow@default"
_VARIANTS: tuple[dict[str, Any], ...] = ({"name": _OURS}, {"name": _OURS, "admission": "repair"})
_NO_ADMISSION = "elasticflow_no_admission@default"

_CHRONUS = {"name": "chronus", "solver": "none"}
"""The greedy rule: the lease program takes 20 times as long on these traces, and meets as many deadlines."""

WORLDS: Mapping[str, str] = MappingProxyType({"nothing": "off", "starts": "starts", "all who run": "running"})
"""Who loses time by decisions, and the setting for it: nobody, jobs whose GPUs change, or as published everybody."""

_STARTS = {"overhead": "starts"}
"""A decision costs those whose GPUs change. As published it costs all that run, whether or not anything changes."""

_SLOT_SECONDS = 240.0
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
    chronus = _sweep(f"{name}_chronus", [_CHRONUS], preset="chronus_elasticflow", **definition)
    return [_sweep(name, policies, **definition), chronus]


def _testbed(inputs: Inputs, *, small: bool) -> dict[str, Any]:
    return {
        "seeds": inputs.seeds,
        "jobs": [20 if small else inputs.jobs_of(TESTBED_TRACE, 195)],
        "clusters": [inputs.cluster(16 if small else 128)],
        "workload": inputs.workload(),
    }


def _on_testbed(name: str, policies: Sequence[Any], definition: dict[str, Any], *, small: bool) -> list[Sweep]:
    """All policies, ElasticFlow as published and as it is here."""
    # Themis would take longer than all others together in small studies of many cases.
    kept = [policy for policy in policies if not (small and "cases" in definition and policy == "themis")]
    ours = _sweep(f"{name}_ours", _VARIANTS, world=_STARTS, **definition)
    return [*_with_chronus(name, kept, **definition), ours]


def end_to_end(inputs: Inputs, *, small: bool) -> list[Sweep]:
    """The 195 jobs of the testbed on 16 servers of 8 GPUs."""
    policies = [name for name in PUBLISHED if name != "elasticflow_no_admission"]
    return _on_testbed("end_to_end", policies, _testbed(inputs, small=small), small=small)


def tightness(inputs: Inputs, *, small: bool) -> list[Sweep]:
    """Deadlines at the same multiple of the duration for every job, from half of it to twice."""
    factors = (0.5, 1.0, 1.5) if small else (0.5, 0.75, 1.0, 1.25, 1.5, 2.0)
    cases = [{"name": f"{u:g}", "workload": {"deadline_factors": [u, u]}} for u in factors]
    return _on_testbed("tightness", PUBLISHED, _testbed(inputs, small=small) | {"cases": cases}, small=small)


def best_effort(inputs: Inputs, *, small: bool) -> list[Sweep]:
    """A tenth to nine tenths of the jobs without deadlines."""
    shares = (0.3, 0.9) if small else (0.1, 0.3, 0.5, 0.7, 0.9)
    cases = [{"name": f"{share:g}", "workload": {"best_effort": share}} for share in shares]
    return _on_testbed("best_effort", PUBLISHED, _testbed(inputs, small=small) | {"cases": cases}, small=small)


def ablation(inputs: Inputs, *, small: bool) -> list[Sweep]:
    """Admission, elastic scaling and both, by what decisions cost; a program, Chronus."""
    definition = _testbed(inputs, small=small)
    policies = ["edf", "edf_admission", "elasticflow", _NO_ADMISSION, *_VARIANTS]
    several = definition | {"clusters": [inputs.cluster(gpus) for gpus in ((8, 16) if small else (32, 64, 128))]}
    # The program takes seconds for tens of jobs, and minutes for hundreds: it is asked about few jobs on few GPUs.
    few = definition | {"jobs": [10 if small else 20], "clusters": [inputs.cluster(8)]}
    worlds = [{"name": name, "overhead": overhead} for name, overhead in WORLDS.items()]
    return [
        _sweep("ablation", policies, cases=worlds, **several),
        _sweep("ablation_chronus", [_CHRONUS], preset="chronus_elasticflow", **several),
        _sweep("ablation_few", [*policies, {"name": "elasticflow_mip"}], cases=worlds, **few),
    ]


def clusters(inputs: Inputs, *, small: bool) -> list[Sweep]:
    """The traces of ten clusters, slots of a minute; without the public traces, three loads of drawn jobs."""
    if inputs.public:
        names = ["cluster10"] if small else sorted(CLUSTER_GPUS, key=lambda name: inputs.jobs_of(name, 0))
        found = [(name, inputs.workload(name), CLUSTER_GPUS[name], inputs.jobs_of(name, 0)) for name in names]
    else:
        drawn, jobs = inputs.workload(), 40 if small else 300
        gaps = (900.0,) if small else (300.0, 900.0, 2700.0)
        found = [(f"drawn, {gap:g} s", drawn | {"mean_interarrival_seconds": gap}, 32, jobs) for gap in gaps]
    cases = [
        {"name": name, "workload": workload, "clusters": [inputs.cluster(gpus)], "jobs": [jobs]}
        for name, workload, gpus, jobs in found
    ]
    return _with_chronus("clusters", PUBLISHED, cases=cases, seeds=inputs.seeds, slot_seconds=60.0)


SWEEPS: Mapping[str, Callable[..., list[Sweep]]] = {
    each.__name__: each for each in (end_to_end, tightness, best_effort, ablation, clusters)
}
"""By name, a function from the inputs, and whether they are to be small, to the sweeps."""


def label(policy: str, admission: object) -> str:
    """What a study calls a policy: ElasticFlow by its admission where that is not as published."""
    if policy == "elasticflow":
        return AS_PUBLISHED
    if policy == _OURS:
        return REPAIR if admission == "repair" else OURS
    return policy.partition("@")[0]


def _labelled(results: pd.DataFrame) -> pd.DataFrame:
    admissions = results.get("policy_admission", pd.Series(index=results.index, dtype=object))
    return results.assign(label=list(map(label, results["policy"], admissions)))


def simulated(point: Point) -> SimulationResult:
    """One run of a study, made now."""
    return point.result()


def efficiency_over_time(
    labels: Sequence[str], *, small: bool = False, inputs: Inputs | None = None
) -> dict[str, pd.DataFrame]:
    """Efficiency of the cluster on the end-to-end jobs of the first seed, simulated now: time (seconds) and efficiency.

    Parameters
    ----------
    labels : of policies, as the studies call them, Chronus left out.
    """
    points: dict[str, Point] = {}
    for sweep in end_to_end(inputs or Inputs(), small=small):
        for point in sweep.points():
            points.setdefault(label(point.policy, point.policy_settings.get("admission")), point)
    return {name: simulated(point).efficiency for name, point in points.items() if name in labels}


# Near saturation

ADMISSIONS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "filling": {"admission": "each"},
        "repair": {"admission": "repair"},
        "repair, any size": {"admission": "repair", "repair_quantile": 1.0},
    }
)
"""Settings of ElasticFlow by what the study calls them."""

BOUND = "bound"
_SIZES = (8, 16, 32, 64)
_DRAWS, _OFFERED = 6, 30

SLOTS: Mapping[str, Preset] = MappingProxyType(
    {
        "any time": preset("default").replace(restart_penalty_seconds=0.0),
        "slots": preset("elasticflow").replace(overhead="starts", slot_seconds=_SLOT_SECONDS),
    }
)
"""Worlds by case: decisions at any time that cost nothing, or in slots of 240 s where starts cost seconds."""


def saturation(inputs: Inputs, *, small: bool) -> Iterator[Run]:
    """One run for each draw, admission and world; the bound knows no worlds."""
    for accelerator, table in inputs.tables().items():
        for gpus in _SIZES[:2] if small else _SIZES:
            for seed in range(1 if small else _DRAWS):
                cluster = Cluster({accelerator: gpus}, gpus_per_server={accelerator: min(gpus, 8)})
                labels = {"cluster": str(cluster), "seed": seed}
                yield labels, partial(_offered, table, cluster, seed)


def _offered(table: ThroughputTable, cluster: Cluster, seed: int) -> list[Row]:
    accelerator, gpus = cluster.accelerators[0], cluster.total_gpus
    trace = _offers(table, accelerator, gpus, seed)
    common = {"submitted_jobs": _OFFERED, "status": "completed"}
    met = len(_let_in_by_the_bound(table, accelerator, gpus, trace))
    rows = [{**common, "label": BOUND, "case": "", "admitted": met, "deadline_ratio": met / _OFFERED}]
    for case, world in SLOTS.items():
        for name, settings in ADMISSIONS.items():
            result = simulate(trace, cluster, get_policy("elasticflow", **settings), table, preset=world)
            rows.append({**common, "label": name, "case": case, **result.summary()})
    return rows


def _offers(table: ThroughputTable, accelerator: str, gpus: int, seed: int) -> Trace:
    """Jobs of any type that all GPUs together would complete in time."""
    rng = np.random.default_rng((seed, gpus))
    offers: list[tuple[str, float, float]] = []
    while len(offers) < _OFFERED:
        kind = table.job_types[int(rng.integers(len(table.job_types)))]
        curve = _curve(table, accelerator, gpus, kind)
        seconds = float(power_of_ten(rng.uniform(3.0, 4.5)))
        usual = [rate for level, rate in zip(curve.levels, curve.rates, strict=True) if level <= max(1, gpus // 4)]
        work = seconds * usual[int(rng.integers(len(usual)))]
        deadline = seconds * float(rng.uniform(0.5, 1.5))
        if work <= deadline * curve.rates[-1]:
            offers.append((kind, work, deadline))
    kinds, steps, due = (list(column) for column in zip(*offers, strict=True))
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
        if least_gpu_seconds([*let_in, job], gpus, 0.0) < np.inf:
            let_in.append(job)
    return let_in


# The studies

_SHOWN = {
    "in time": Shown("deadline_ratio", ".3f"),
    **{name: Shown(name, ".0f") for name in ("admitted", "rejected", "late")},
    "cluster efficiency": Shown("cluster_efficiency", ".3f"),
    "CPU s": Shown("cpu_seconds", ".1f"),
}


def _runs(listed: Callable[..., Any], inputs: Inputs | None, options: Options) -> Any:
    found = Inputs.found(options.folder / "inputs") if inputs is None else inputs
    return listed(found, small=options.quick)


def study(name: str, inputs: Inputs | None = None) -> Study:
    """A study by its name, on these inputs; None: those that are found."""
    by = ("label", "case", "cluster", "submitted_jobs")
    if name == "saturation":
        shown = {key: _SHOWN[key] for key in ("in time", "admitted", "late")}
        return Study("Deadlines, saturation", partial(_runs, saturation, inputs), by, shown)
    return Study(f"Deadlines, {name}", partial(_runs, SWEEPS[name], inputs), by, _SHOWN, derived=_labelled)


STUDIES = {name: study(name) for name in (*SWEEPS, "saturation")}


def run_study(name: str, folder: Path, *, small: bool = False, inputs: Inputs | None = None, **options: Any) -> Any:
    """One row per run of a study (docs/sweeps.md), with a column ``label``: the policy as the study calls it.

    Runs that `folder` holds are not made again; `options` are further ones of `Options`.
    """
    return study(name, inputs).results(Options(small, folder, **options))


# Tables of docs/deadlines.md


def markdown_of_clusters(results: pd.DataFrame, names: Sequence[str] = tuple(CLUSTER_RATIOS)) -> str:
    """Shares of jobs in time on the ten clusters beside those of figure 8b, a row for each cluster."""
    head = ["trace", "jobs", *(f"`{name}`" for name in (_name(label) for label in CLUSTER_LABELS))]
    return markdown(pd.DataFrame([row_of_cluster(results, name) for name in names], columns=head))


CLUSTER_LABELS = (AS_PUBLISHED, "elasticflow_no_admission", *BASELINES, "chronus")
"""Columns of the tables of ten clusters."""


def _name(label: str) -> str:
    return label.partition(",")[0]


def row_of_cluster(results: pd.DataFrame, name: str) -> list[str]:
    """One row of that table: measured / published; a run that is not there, or did not complete, is a dash."""
    rows = results[results["case"] == name]
    done = rows[rows["status"] == "completed"].drop_duplicates("label").set_index("label")["deadline_ratio"]
    cells = []
    for each in CLUSTER_LABELS:
        measured = f"{done[each]:.3f}" if each in done else "-"
        known = CLUSTER_RATIOS[name].get(_name(each))
        cells.append(measured if known is None else f"{measured} / {known:.3f}")
    return [name, "-" if rows.empty else f"{int(rows['submitted_jobs'].iloc[0]):,}", *cells]


def markdown_of_seconds(results: pd.DataFrame, names: Sequence[str] = tuple(CLUSTER_RATIOS)) -> str:
    """CPU seconds of the runs on the ten clusters, a row for each cluster; and of all runs of a policy or a cluster."""
    rows = []
    for name in (*names, None):
        here = results if name is None else results[results["case"] == name]
        seconds = here.groupby("label")["cpu_seconds"].sum()
        cells = [f"{seconds[each]:,.0f}" if each in seconds else "-" for each in CLUSTER_LABELS]
        rows.append([name or "together", *cells, f"{seconds.sum():,.0f}" if len(seconds) else "-"])
    columns = ["trace", *(f"`{_name(each)}`" for each in CLUSTER_LABELS), "all policies"]
    return markdown(pd.DataFrame(rows, columns=columns))


def markdown_of_policies(results: pd.DataFrame) -> str:
    """A row for each policy: in time, and on the published testbed, admitted, late, cluster efficiency, mean JCT."""
    done = results["status"] == "completed"
    cells = {
        "policy": results["label"],
        "in time": results["deadline_ratio"].map("{:.3f}".format).where(done, "-"),
        "testbed": results["policy"].map(TESTBED_RATIOS).map(lambda known: "-" if pd.isna(known) else f"{known:.3f}"),
        "admitted": results["admitted"].map("{:.0f}".format).where(done, "-"),
        "late": results["late"].map("{:.0f}".format).where(done, "-"),
        "cluster efficiency": results["cluster_efficiency"].map("{:.4f}".format).where(done, "-"),
        "mean JCT (h)": (results["average_jct"] / HOUR).map("{:.2f}".format).where(done, "-"),
    }
    return markdown(pd.DataFrame(cells))


def markdown_by_case(results: pd.DataFrame, cases: Sequence[str], *, hours: bool = False) -> str:
    """Jobs in time, a row for each policy and a column for each case; with `hours` also the mean JCT of best effort."""
    texts = results["deadline_ratio"].map("{:.3f}".format)
    if hours:
        texts += (results["best_effort_average_jct"] / HOUR).map(", {:.1f} h".format)
    cells = results.assign(text=texts).pivot(index="label", columns="case", values="text")
    rows = cells.loc[list(dict.fromkeys(results["label"])), list(cases)]
    return markdown(rows.rename_axis("policy").reset_index())


def markdown_of_ablation(results: pd.DataFrame) -> str:
    """Jobs in time, in brackets those that were let in and are late; by who loses time by decisions, and by GPUs."""
    texts = results["deadline_ratio"].map("{:.3f}".format) + results["late"].map(" ({:.0f})".format)
    gpus = results["cluster"].str.partition(":")[2].astype(int)
    keys = pd.DataFrame({"policy": results["label"], "decisions cost": results["case"].fillna("-").replace("", "-")})
    cells = keys.assign(text=texts, gpus=gpus).pivot(index=list(keys), columns="gpus", values="text")
    order = [group for _, group in keys.drop_duplicates().groupby("policy", sort=False)]
    cells = cells.loc[list(pd.concat(order).itertuples(index=False, name=None))]
    return markdown(cells.rename(columns="{} GPUs".format).reset_index())


def markdown_of_saturation(results: pd.DataFrame) -> str:
    """Jobs that were let in, and in brackets those of them that were late; a row for each cluster."""
    columns = [(BOUND, ""), *((name, world) for world in SLOTS for name in ADMISSIONS)]
    head = ["cluster", "offered", *(f"{name}, {world}" if world else name for name, world in columns)]
    rows = []
    for cluster in [*dict.fromkeys(results["cluster"]), None]:
        here = results if cluster is None else results[results["cluster"] == cluster]
        sums = here.fillna({"case": ""}).groupby(["label", "case"])[["admitted", "late", "submitted_jobs"]].sum()
        cells = [
            f"{sums.loc[key, 'admitted']:,.0f}" + (f" ({sums.loc[key, 'late']:.0f})" if key[1] else "")
            for key in columns
        ]
        rows.append([cluster or "together", f"{sums.loc[(BOUND, ''), 'submitted_jobs']:,.0f}", *cells])
    return markdown(pd.DataFrame(rows, columns=head))
