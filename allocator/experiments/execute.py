"""A run in, a record out. What fails is told in the record and never ends the sweep."""

from __future__ import annotations

import json
import platform
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from allocator.checkpoint.checkpoint import package_version
from allocator.experiments.decide import decide
from allocator.experiments.run import FORMAT, Materials, Run
from allocator.protocol.policy import told
from allocator.registry import policies_of_others
from allocator.results.measures.cost import average_prices
from allocator.results.result import SimulationResult

if TYPE_CHECKING:
    import pandas as pd

Log = Callable[[str], None]
Report = Callable[[float], None]

REPORT_SECONDS = 0.5


@dataclass(frozen=True)
class Outcome:
    """What a run leaves: a record ready for JSON, and the measured jobs if they are wanted."""

    record: dict[str, Any]
    jobs: pd.DataFrame | None = None


def carried_out(run: Run, materials: Materials, *, keep_jobs: bool = False, log: Log, report: Report) -> Outcome:
    """Simulate one run, or make its decision.

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
    log(f"{_now()} {run.label} on {run.cluster}, point {run.key}")
    log(json.dumps(run.specification(), indent=2))
    figures: dict[str, Any] = {}
    prices: dict[str, Any] = {}
    jobs = None
    try:
        if run.kind == "decision":
            trace = materials.jobs_of(run)(materials.n_jobs(run))
            figures, status, detail, jobs = decide(run, trace, materials, report)
        else:
            result = materials.simulate(run, progress=_progress(materials.n_jobs(run), log, report))
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
        "point": run.key,
        "specification": run.specification(),
        "settings": run.all_settings,
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
    return Outcome(record, jobs if keep_jobs else None)


def _figures(result: SimulationResult) -> dict[str, Any]:
    """The summary of a run, with what came of estimates and of plans."""
    figures = dict(result.summary())
    # Stage 1 of a plan keeps every job to its fair finish time, the later ones do not.
    stages = [allocation.stage for _, _, allocation in result.decisions]
    planned = [stage for stage in stages if stage is not None]
    if planned:
        figures["fair_plans"] = planned.count(1) / len(planned)
    believed = result.record.jobs.believed
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
