"""One run: a point in, a record out. What fails is told in the record and never ends the sweep."""

from __future__ import annotations

import json
import platform
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

from allocator.api import load_throughputs
from allocator.cluster import Cluster
from allocator.protocol.elastic import gang_rates
from allocator.protocol.entities import Entities
from allocator.protocol.faults import told
from allocator.protocol.policy import Need
from allocator.registry import policies_of_others
from allocator.results.cost import Prices, average_prices, price_table
from allocator.results.result import SimulationResult
from allocator.simulator.engine import simulate
from allocator.simulator.rules.base import rule_of
from allocator.simulator.rules.general import GangRates
from allocator.sweep.decide import decide
from allocator.sweep.definition.point import FORMAT, Point
from allocator.sweep.jobs import trace_of
from throughputs import InputError, Trace, read_trace
from throughputs.goodput.trainings import Trainings, find_trainings
from throughputs.goodput.trainings.jobs import training_jobs
from throughputs.prices import read_prices

if TYPE_CHECKING:
    import pandas as pd

    from throughputs import ThroughputTable

Log = Callable[[str], None]
Report = Callable[[float], None]

REPORT_SECONDS = 0.5


@dataclass(frozen=True)
class Materials:
    """What the points of a sweep read from files, by the name of the file; None is the embedded table.

    It travels to the processes that run the points, which then need none of the files.
    """

    tables: dict[str | None, ThroughputTable | Trainings]
    prices: dict[str, Prices]
    traces: dict[str, Trace] = field(default_factory=dict)

    @classmethod
    def of(cls, points: Iterable[Point]) -> Materials:
        """Everything that these points read.

        Raises
        ------
        InputError
            A file cannot be used, a trace to be run as a whole has no jobs, or a table lacks an accelerator type of a
            cluster or a job type of a trace.
        """
        points = list(points)
        packs = any(Need.COLOCATION in point.policy_class.needs for point in points)
        tables: dict[str | None, ThroughputTable | Trainings] = {}
        prices: dict[str, Prices] = {}
        traces: dict[str, Trace] = {}
        for point in points:
            workload = point.workload
            name = workload.speeds
            if name not in tables:
                found = None if name is None else find_trainings(name)
                tables[name] = load_throughputs(name, colocated=packs) if found is None else found
            if isinstance(workload.prices, str) and workload.prices not in prices:
                prices[workload.prices] = read_prices(workload.prices)
            if workload.trace is not None and workload.trace not in traces:
                traces[workload.trace] = read_trace(workload.trace)
        materials = cls(tables, prices, traces)
        for point in _once(points):
            materials._check(point)
        return materials

    def _check(self, point: Point) -> None:
        """Refuse a cluster on which nobody knows how fast the jobs are, or what GPUs cost."""
        workload, cluster = point.workload, Cluster.parse(point.cluster)
        table, prices = self.tables[workload.speeds], self.prices_of(point)
        trains, generator = isinstance(table, Trainings), workload.generator
        if trains and (generator not in ("goodput", "recorded") or point.kind == "decision"):
            expected = "a throughput table, or simulations with the generator goodput or a trace"
            raise InputError("workload.throughputs", found=workload.throughputs, expected=expected)
        if generator == "goodput" and not trains:
            expected = "goodput, a file of profiles or a folder of measured models, for the generator goodput"
            raise InputError("workload.throughputs", found=workload.throughputs, expected=expected)
        if point.kind == "trace" and not self.n_jobs(point):
            raise InputError(str(workload.trace), found="no jobs", expected="at least one")
        if workload.trace is None:
            for accelerator in cluster.accelerators:
                if accelerator not in table.accelerators:
                    expected = f"types of the {table.source}: {', '.join(table.accelerators)}"
                    raise InputError("clusters", found=accelerator, expected=expected)
        elif isinstance(table, Trainings):
            training_jobs(self.traces[workload.trace].head(self.n_jobs(point)), table)
        elif rule_of(point.chosen.world, GangRates).gang_rates != "duration":
            gang_rates(self.traces[workload.trace].head(self.n_jobs(point)), table, cluster)
        if workload.trace is not None and workload.entities_by is not None:
            self.traces[workload.trace].owned_by(workload.entities_by)
        if prices is not None:
            price_table(prices, cluster.accelerators)

    def n_jobs(self, point: Point) -> int:
        """Jobs that a simulation begins with; those of a window may be followed by more."""
        if point.kind == "trace":
            return len(self.traces[str(point.workload.trace)])
        return point.window[1] if point.window else int(point.load)

    def jobs_of(self, point: Point) -> Callable[[int], Trace]:
        """From a number of jobs to the trace of that many, as `trace_of`."""
        workload = point.workload
        recorded = None if workload.trace is None else self.traces[workload.trace]
        return trace_of(point, self.tables[workload.speeds], recorded)

    def prices_of(self, point: Point) -> Prices | None:
        """Dollars per GPU hour for a point."""
        chosen = point.workload.prices
        return self.prices[chosen] if isinstance(chosen, str) else chosen


def _once(points: Iterable[Point]) -> list[Point]:
    """One point for each cluster and what its jobs and prices are read from."""
    found: dict[tuple[Any, ...], Point] = {}
    for point in points:
        read = point.workload
        key = (
            read.trace,
            read.entities_by,
            read.speeds,
            str(read.prices),
            point.cluster,
            rule_of(point.chosen.world, GangRates).gang_rates,
        )
        found.setdefault(key, point)
    return list(found.values())


@dataclass(frozen=True)
class Outcome:
    """What a run leaves: a record ready for JSON, and the measured jobs if they are wanted."""

    record: dict[str, Any]
    jobs: pd.DataFrame | None = None


def run_point(point: Point, materials: Materials, *, keep_jobs: bool = False, log: Log, report: Report) -> Outcome:
    """Simulate one point, or make its decision.

    Parameters
    ----------
    keep_jobs : whether the table of jobs is returned.
    log : takes the lines of the run's log.
    report : takes the share of the jobs that have completed, now and then.

    Returns
    -------
    Outcome
        Its status is "completed", "saturated" or "failed"; a failure has its message in status_detail and its
        traceback in the log.
    """
    started = datetime.now(UTC)
    clock, processor = time.perf_counter(), time.process_time()
    log(f"{_now()} {point.label} on {point.cluster}, point {point.key}")
    log(json.dumps(point.specification(), indent=2))
    figures: dict[str, Any] = {}
    prices: dict[str, Any] = {}
    jobs = None
    try:
        if point.kind == "decision":
            table = materials.tables[point.workload.speeds]
            assert not isinstance(table, Trainings)
            trace = materials.jobs_of(point)(int(point.load))
            decided = decide(point, trace, table, materials.prices_of(point), report)
            figures, status, detail = decided.figures, decided.status, decided.status_detail
            jobs = decided.jobs if keep_jobs else None
        else:
            result = _simulate(point, materials, _progress(materials.n_jobs(point), log, report))
            figures, status, detail = _figures(result), result.status, result.status_detail
            prices = average_prices(result.decisions, result.timeline)
            jobs = _measured(result) if keep_jobs else None
    except Exception as error:  # whatever a policy or a solver raises is the result of this run
        status, detail = "failed", f"{type(error).__name__}: {error}"
        log(told(error, policies_of_others()))
    log(json.dumps(figures, indent=2))
    log(f"{_now()} {status}" + (f": {detail}" if detail else ""))
    record = {
        "format": FORMAT,
        "point": point.key,
        "specification": point.specification(),
        "settings": point.all_settings,
        "status": status,
        "status_detail": detail,
        "figures": figures,
        "prices": prices,
        "cpu_seconds": time.process_time() - processor,
        "run_seconds": time.perf_counter() - clock,
        "started_at": started.isoformat(timespec="seconds"),
        "host": platform.node(),
        "version": package_version(),
        "python": platform.python_version(),
    }
    return Outcome(record, jobs)


def package_version() -> str:
    """Version of this package."""
    try:
        return version("cluster-allocator")
    except PackageNotFoundError:
        return "unknown"


def _simulate(point: Point, materials: Materials, progress: Callable[[float, int, int], None]) -> SimulationResult:
    table = materials.tables[point.workload.speeds]
    jobs = materials.jobs_of(point)
    trace = jobs(materials.n_jobs(point))
    named = point.workload.entities_by is not None
    return simulate(
        trace,
        Cluster.parse(point.cluster, point.gpus_per_server),
        point.make_policy(),
        table,
        preset=point.chosen,
        seed=point.seed,
        window=point.window,
        extend=jobs if point.window else None,
        prices=materials.prices_of(point),
        entities=Entities.named(trace.entity, trace.source) if named else point.entities,
        estimation=point.estimation,
        progress=progress,
    )


def _figures(result: SimulationResult) -> dict[str, Any]:
    """The summary of a run, with what came of estimates and of plans."""
    figures = result.summary().to_dict()
    # Stage 1 of a plan keeps every job to its fair finish time, the later ones do not.
    stages = [allocation.stage for _, _, allocation in result.decisions]
    planned = [stage for stage in stages if stage is not None]
    if planned:
        figures["fair_plans"] = planned.count(1) / len(planned)
    believed = None if result.record is None else result.record.jobs.believed
    if believed is not None:
        figures |= {"estimation_error": believed.error, "measured_pairs": believed.measured_pairs}
    return figures


def _measured(result: SimulationResult) -> pd.DataFrame:
    jobs = result.jobs
    return jobs[jobs["measured"]].drop(columns="measured") if "measured" in jobs else jobs


def _progress(expected: int, log: Log, report: Report) -> Callable[[float, int, int], None]:
    """A callback for `simulate`: tells `report` twice a second at most, and the log at each tenth of the jobs."""
    told, tenth = time.monotonic(), 0

    def advance(clock: float, completed: int, _jobs: int) -> None:
        nonlocal told, tenth
        # More jobs than the window's may have to complete before its last one does.
        share = min(completed / max(expected, 1), 0.99)
        now = time.monotonic()
        if now - told >= REPORT_SECONDS:
            told = now
            report(share)
        if int(10 * share) > tenth:
            tenth = int(10 * share)
            log(f"{_now()} {completed} of {expected} jobs completed, simulated clock {clock / 3600.0:.1f} h")

    return advance


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S")
