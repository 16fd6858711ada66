"""Which runs are asked for - every combination of clusters, loads, settings and policies -, and what
comes of them: run as a sweep, side by side if wanted, and only what a folder does not hold yet."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from allocator.cluster import MOST_TYPES_NAMED, Cluster, cluster_texts
from allocator.experiments.compare import in_words, recorded_beside
from allocator.experiments.definition import Sweep, definition_of_policies
from allocator.experiments.run import Materials, Run
from allocator.experiments.runner import run
from allocator.experiments.store import Store
from allocator.experiments.whatif.page import write_scenarios
from allocator.experiments.whatif.rows import Row, WhatIf, usual_row
from allocator.experiments.workloads import Recorded
from allocator.presets.preset import DEFAULT
from allocator.results.measures.calibration import Calibration, answer, hours
from allocator.results.measures.completion import completion_figures
from allocator.results.outcomes import RECORDED
from allocator.results.summary import OF_COMPLETED
from allocator.variants import Variant, read_variants
from throughputs import InputError, Trace, trace_of, write_trace
from throughputs.files import read_frame
from throughputs.tables.files import place_of_table

if TYPE_CHECKING:
    import pandas as pd
    from rich.console import Console

MOST_RUNS_UNASKED = 8
"""Runs on larger clusters that are made without being asked for."""

HOURS_OF_A_MONTH = 730.5

RUNS = "runs"
"""Folder of the sweep inside that of the scenarios."""

_SOURCE = "whatif"


class Planned(NamedTuple):
    """One row to be: where it stands, its run, and those with more GPUs of a type, by accelerator type."""

    row: Row
    run: Run
    larger: Mapping[str, Run]


@dataclass(frozen=True)
class Scenarios:
    """What is simulated. The rows are the product of the dimensions, the last of them varying fastest.

    Attributes
    ----------
    trace : file of the jobs.
    clusters, loads, vary, policies : the dimensions, in the order in which they vary. Loads multiply the arrival rate.
        `vary` has values by name of a setting, as in a sweep.
    workload, settings : as in the definition of a sweep (docs/sweeps.md), for all rows.
    seed : of everything that is drawn.
    next_gpus : each row is also simulated with so many more GPUs of each type; 0: not; None: 1 where that takes at most
        `MOST_RUNS_UNASKED` further runs, else 0.

    Raises
    ------
    InputError
        Anything that no run could be made of, and a cluster, load, value or policy that is there twice.
    """

    trace: str
    clusters: tuple[Cluster, ...]
    policies: tuple[Variant, ...]
    loads: tuple[float, ...] = (1.0,)
    vary: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    workload: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 0
    next_gpus: int | None = None

    def __post_init__(self) -> None:
        if not self.clusters:
            raise InputError(_SOURCE, field="clusters", found="none", expected="at least one, as in a100:32")
        if self.next_gpus is not None and self.next_gpus < 0:
            raise InputError(_SOURCE, field="next_gpus", found=self.next_gpus, expected="a number of GPUs, at least 0")
        texts = list(map(str, self.clusters))
        if len(set(texts)) < len(texts):
            raise InputError(_SOURCE, field="clusters", found=", ".join(texts), expected="each once")
        # The definition of the sweep checks all else.
        _ = self.sweep

    @cached_property
    def _changes(self) -> list[dict[str, Any]]:
        """Every combination of the varied settings."""
        return [dict(zip(self.vary, values, strict=True)) for values in product(*self.vary.values())]

    @cached_property
    def more_gpus(self) -> int:
        """GPUs by which the clusters of further runs are larger; 0 where there are none."""
        if self.next_gpus is not None:
            return self.next_gpus
        new = set(self._clusters(1)) - set(self._clusters(0))
        of_each = len(self.policies) * len(self.loads) * len(self._changes)
        return int(len(new) * of_each <= MOST_RUNS_UNASKED)

    def _clusters(self, more: int) -> list[tuple[str, str | None]]:
        """The clusters of the rows and those with so many more GPUs of a type, each once, as text."""
        larger = [each for cluster in self.clusters for each in _larger(cluster, more).values()]
        return list(dict.fromkeys(map(cluster_texts, (*self.clusters, *larger))))

    @cached_property
    def sweep(self) -> Sweep:
        """All runs, those on larger clusters included, as one sweep."""
        clusters = self._clusters(self.more_gpus)
        definition = {
            "kind": "trace",
            "name": _SOURCE,
            "policies": definition_of_policies(self.policies, _SOURCE, DEFAULT),
            "clusters": [
                {"gpus": gpus} | ({"gpus_per_server": servers} if servers else {}) for gpus, servers in clusters
            ],
            "loads": list(self.loads),
            "seeds": [self.seed],
            "workload": {**self.workload, "trace": self.trace},
            "settings": dict(self.settings),
            "vary": {name: list(values) for name, values in self.vary.items()},
            "keep_jobs": True,
            # Every row is wanted, whatever came of the others.
            "skip_saturated": False,
        }
        return Sweep.from_dict(definition, source=_SOURCE)

    @cached_property
    def rows(self) -> tuple[Planned, ...]:
        """The rows in their order."""
        clusters, loads = self._clusters(self.more_gpus), tuple(map(float, self.loads))
        # in the order of `Sweep.combinations`
        places = product(self.policies, self._changes, clusters, sorted(loads))
        runs = {repr(place): run for place, run in zip(places, self.sweep.combinations(), strict=True)}
        rows = []
        for cluster, load, change, policy in product(self.clusters, loads, self._changes, self.policies):
            here = {"cluster": str(cluster), "gpus": cluster.total_gpus, "load": load}
            larger = _larger(cluster, self.more_gpus)
            of = {
                name: runs[repr((policy, change, cluster_texts(each), load))]
                for name, each in {"": cluster, **larger}.items()
            }
            rows.append(Planned(Row("", cluster, {**here, **change, "policy": policy.label}), of.pop(""), of))
        stands = [each.row for each in rows]
        return tuple(each._replace(row=replace(each.row, label=_label(each.row, stands))) for each in rows)


def _label(row: Row, rows: Sequence[Row]) -> str:
    """What a row is called: where it differs from others; its cluster where there is but one row."""
    parts = []
    clusters = [each.cluster for each in rows]
    if len(set(map(str, clusters))) > 1 or len(rows) == 1:
        parts.append(_cluster_label(row.cluster, clusters))
    for name, value in row.changes.items():
        if name in ("cluster", "gpus") or all(each.changes[name] == value for each in rows):
            continue
        if name == "load":
            parts.append(f"load {value:g}")
        else:
            parts.append(str(value) if name == "policy" else f"{name}={value}")
    return ", ".join(parts)


def _cluster_label(cluster: Cluster, clusters: Sequence[Cluster]) -> str:
    """The GPUs of the types in which the clusters differ, else of all; or how many in all where these are many."""
    names = cluster.accelerators
    differ = [name for name in names if len({each.gpus.get(name) for each in clusters}) > 1]
    if any(each.accelerators != names for each in clusters) or (not differ and len(names) <= MOST_TYPES_NAMED):
        return str(cluster)
    totals = {each.total_gpus for each in clusters}
    if not differ or (len(differ) > MOST_TYPES_NAMED and len(totals) == len(set(map(str, clusters)))):
        return f"{cluster.total_gpus} GPUs"
    return ",".join(f"{name}:{cluster.gpus[name]}" for name in differ)


def _larger(cluster: Cluster, gpus: int) -> dict[str, Cluster]:
    """The cluster with so many more GPUs of a type, by type."""
    return {
        name: Cluster({**cluster.gpus, name: count + gpus}, cluster.gpus_per_server)
        for name, count in (cluster.gpus.items() if gpus else ())
    }


def whatif(
    trace: Trace | pd.DataFrame | str | os.PathLike[str],
    clusters: Sequence[Cluster | str | Mapping[str, int]] | Cluster | str,
    policies: Sequence[str] | str = "slurm",
    *,
    loads: Sequence[float] = (1.0,),
    vary: Mapping[str, Sequence[Any]] | None = None,
    settings: Mapping[str, Any] | None = None,
    seed: int = 0,
    next_gpus: int | None = None,
    out: str | os.PathLike[str] | None = None,
    jobs: int = 1,
    console: Console | None = None,
    **workload: Any,
) -> WhatIf:
    """What would happen to the jobs of a trace on other clusters, at other loads, under other policies.

    >>> from throughputs import TraceGenerator
    >>> trace = TraceGenerator(n_jobs=10, mean_interarrival=600, seed=1).generate()
    >>> whatif(trace, ["v100:4", "v100:8"], next_gpus=0).table["average_jct_ratio"].round(2).tolist()
    [1.0, 0.77]

    Parameters
    ----------
    trace : the jobs, as `allocator.simulate` takes them.
    clusters : one or several, the first of which the others are compared with.
    policies : names, each with settings of its own where wanted, as in ``"elasticflow:admission=repair"``.
    loads : how many times as often jobs arrive; their times of submission are divided by it, and a deadline on the
        clock moves with the arrival of its job.
    vary, settings : settings with several values and with one, by name, "preset" included, as in a sweep.
    seed : of everything that is drawn.
    next_gpus : simulate each row also with so many more GPUs of each type; 0: not; None: 1 where that takes few runs.
    out : folder for table, page and runs; what it holds already is not run again. None: nothing is kept.
    jobs : runs at a time, in processes of their own; 1: one after the other, in this process.
    console : where progress goes; None: nowhere.
    workload : what a sweep has of its jobs (docs/sweeps.md): `throughputs`, file of a throughput table, of which none
        is needed on GPUs of one type, or of types that are equally fast; `prices`, dollars per GPU hour by type, or a
        file of histories; `slos`, draw a deadline for jobs without one; `whole_gpus`, jobs that ask for a fraction of a
        GPU have it whole; `entities_by`, "user", "partition" or "account": those of the trace become entities, of
        equal weight.

    Returns
    -------
    WhatIf
        `table`, `next_gpus` and the rows with their tables of jobs; prints itself in about ten lines.

    Raises
    ------
    InputError
        Something that cannot be used, told before anything runs.
    """
    trace = trace if isinstance(trace, str | os.PathLike) else trace_of(trace)
    if workload.get("throughputs") is not None:
        workload["throughputs"] = place_of_table(workload["throughputs"])
    listed = [clusters] if isinstance(clusters, Cluster | str | Mapping) else clusters
    with tempfile.TemporaryDirectory() as passing:
        file, name = Path(passing) / "trace.csv", trace.source if isinstance(trace, Trace) else str(trace)
        if isinstance(trace, Trace):
            write_trace(trace, file)
        scenarios = Scenarios(
            trace=str(file if isinstance(trace, Trace) else Path(trace).resolve()),
            clusters=tuple(map(Cluster.of, listed)),
            policies=tuple(read_variants(policies)),
            loads=tuple(loads),
            vary=vary or {},
            workload={
                n: str(each) if isinstance(each, Path) else each for n, each in workload.items() if each is not None
            },
            settings=settings or {},
            seed=seed,
            next_gpus=next_gpus,
        )
        folder = Path(passing if out is None else out)
        result = _run(scenarios, folder, jobs=jobs, console=console, name=name)
        if out is not None:
            write_scenarios(result, folder)
    return result


def _run(
    scenarios: Scenarios, folder: Path, *, jobs: int = 1, console: Console | None = None, name: str | None = None
) -> WhatIf:
    """Run what `folder` does not hold yet of the scenarios, `jobs` at a time, and set the rows side by side.

    `name` is what the trace is called, its file if omitted; other parameters and errors as for `whatif`.
    """
    if jobs < 1:
        raise InputError("jobs", found=jobs, expected="at least 1")
    store, planned, more = Store(folder / RUNS), scenarios.rows, scenarios.more_gpus
    # what progress calls the runs: after the rows, and what they have more
    names = {each.key: f"{one.row.label} + {more} {type_}" for one in planned for type_, each in one.larger.items()} | {
        one.run.key: one.row.label for one in planned
    }
    run(
        scenarios.sweep,
        store.folder,
        jobs=jobs,
        engine="serial" if jobs == 1 else "local",
        console=console,
        names=names,
    )
    records = store.records(names, with_jobs=True)
    recorded, told = _recorded_row(planned[0].run, planned[0].row)
    measured = None if recorded is None or recorded.jobs is None else recorded.jobs.get("measured")
    if measured is not None and not measured.all():
        told += "; utilisation, makespan and cost of simulated rows count all jobs"

    def filled(row: Row, run: Run) -> Row:
        return _filled(row, _record(run, records), store.jobs_path(run.key), measured)

    rows = tuple(
        replace(
            filled(one.row, one.run), next_gpus={name: filled(one.row, larger) for name, larger in one.larger.items()}
        )
        for one in planned
    )
    n_jobs = max((int(row.figures.get("jobs") or 0) for row in rows), default=0)
    calibration, first = None, usual_row(rows)
    if recorded is not None and recorded.jobs is not None and first.jobs is not None and first.load == 1:
        calibration = Calibration.of(first.policy, recorded.jobs, first.jobs)
    said = _answer(planned, rows, scenarios.vary, recorded, calibration)
    return WhatIf(rows, name or scenarios.trace, n_jobs, more, recorded, told, calibration, said)


def _answer(
    planned: Sequence[Planned],
    rows: Sequence[Row],
    vary: Iterable[str],
    recorded: Row | None,
    calibration: Calibration | None,
) -> str:
    """The rows at the recorded load, or where there are none at that of the first, in three sentences, and one on other
    loads; of jobs of a log."""
    first = usual_row(rows)
    if not first.figures.get("average_bounded_slowdown"):
        return ""
    prices = Materials.of([planned[0].run], check=False).prices_of(planned[0].run)
    shown, costs, loads = [], {}, []
    for one, row in zip(planned, rows, strict=True):
        more = {name: n - first.cluster.gpus.get(name, 0) for name, n in row.cluster.gpus.items()}
        changed = ", ".join(f"{abs(n)} {'more' if n > 0 else 'fewer'} {name}" for name, n in more.items() if n)
        parts = [f"with {changed}"] if changed else []
        if row is first or row.policy != first.policy:
            parts.append(in_words(one.run))
        parts += [f"with {name} {row.changes[name]}" for name in vary if row.changes[name] != first.changes[name]]
        if row.load != first.load:
            wait = row.figures.get("average_queueing_time")
            if not parts and wait is not None:
                loads.append(f"{hours(wait)} at load {row.load:g}")
            continue
        parts += [f"at load {row.load:g}"] if row is first and row.load != 1 else []
        words = tuple(parts) or (row.label,)
        shown.append((words, row.figures))
        if isinstance(prices, Mapping) and changed:
            costs[words] = HOURS_OF_A_MONTH * sum(n * prices.get(name, 0.0) for name, n in more.items())
    # what was recorded is of load 1
    beside = None if recorded is None or first.load != 1 else recorded.figures
    said = answer(beside, shown, calibration, costs)
    return f"{said} Jobs would wait {', '.join(loads)}." if said and loads else said


def _filled(row: Row, record: Mapping[str, Any], table: Path, measured: pd.Series[bool] | None) -> Row:
    """The row with what came of a run; where some jobs alone are `measured`, with the figures of these."""
    figures, jobs = record["figures"], read_frame(table)[0] if record["figures"] else None
    if measured is not None and jobs is not None and record["status"] != "saturated":
        some = jobs[measured.to_numpy()]
        figures = figures | completion_figures(some) | {"jobs": len(some)}
    prices = record["prices"]
    return replace(
        row,
        status=record["status"],
        status_detail=record["status_detail"],
        figures=figures,
        prices=prices.get("average_prices", {}),
        price_unit=prices.get("price_unit", ""),
        jobs=jobs,
    )


def _record(run: Run, records: Mapping[str, Any]) -> Mapping[str, Any]:
    """What is kept of a run; without figures where it failed or its process was killed.

    Of a run that was cut short those remain that do not depend on which jobs happened to complete.
    """
    lost = {"status": "lost", "status_detail": "its process ended; run it again", "figures": {}}
    record: dict[str, Any] = {"prices": {}} | records.get(run.key, lost)
    figures = {} if record["status"] == "failed" else dict(record["figures"])
    if record["status"] == "saturated":
        figures |= dict.fromkeys(filter(OF_COMPLETED.search, figures))
    return record | {"figures": figures}


_OF_ROW = ("policy", "label", "cluster", "status", "status_detail")


def _recorded_row(run: Run, first: Row) -> tuple[Row | None, str]:
    """What was recorded on the cluster of the first row, beside which it stands but for policy and load, and what one
    must know of it."""
    assert run.recorded is not None
    jobs = Recorded(trace=run.recorded.trace, entities_by=run.recorded.entities_by)
    run = replace(run, workload=jobs, load=None)
    result, notes = recorded_beside(run, Materials.of([run], check=False))
    if result is None:
        return None, "; ".join(notes)
    row = Row(
        RECORDED,
        first.cluster,
        {**first.changes, "load": 1.0, "policy": RECORDED},
        result.status,
        result.status_detail,
        {name: value for name, value in result.summary().items() if name not in _OF_ROW},
        jobs=result.jobs,
    )
    return row, "; ".join(notes)
