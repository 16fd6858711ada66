"""Figures of a run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from allocator.results.cost import owned_cost
from allocator.results.deadlines import deadline_figures
from allocator.results.efficiency import average_efficiency, loaded_utilization
from allocator.results.fairness import pairwise_envy
from allocator.results.views.summary import Summary
from throughputs.numerics import exp, log

if TYPE_CHECKING:
    import pandas as pd

    from allocator.results.result import SimulationResult

__all__ = [
    "UNFAIR_RHO",
    "VERY_UNFAIR_RHO",
    "completion_figures",
    "deadline_measure",
    "priorities_table",
    "sizes_table",
    "summarize",
    "users_table",
]

# A job counts as treated unfairly when it took this much longer than on its isolated share: 1 with a margin for
# the granularity of rounds.
UNFAIR_RHO = 1.05

# The margin that other comparisons allow.
VERY_UNFAIR_RHO = 1.1

HOUR = 3600.0

# Smallest gang of each size class: one GPU, part of a server, a server, several.
SIZE_CLASSES = (1, 2, 5, 9)

_DEADLINES_BY_WEIGHT = ("deadline_jobs", "deadline_ratio")


def summarize(result: SimulationResult) -> Summary:
    """The figures of a run."""
    every_job, timeline = result.jobs, result.timeline
    windowed = "measured" in every_job
    jobs = every_job[every_job["measured"]] if windowed else every_job
    if windowed:
        start, end = _span(jobs)
        timeline = timeline[(timeline["end_time"] > start) & (timeline["start_time"] < end)]
    length = (timeline["end_time"] - timeline["start_time"]).to_numpy(dtype=np.float64)
    status = list(jobs.get("status", ()))
    opportunities = extensions = None
    if result.record is not None:
        extensions, opportunities = result.record.leases
    summary: dict[str, Any] = {
        "policy": result.policy,
        **({"label": result.label} if result.label != result.policy else {}),
        "cluster": str(result.cluster),
        "status": result.status,
        "status_detail": result.status_detail,
        **completion_figures(jobs),
        "makespan": float(result.makespan),
        "utilization": float(result.utilization),
        "loaded_utilization": loaded_utilization(result.record),
        "average_queue": _time_average(timeline["queued_jobs"].to_numpy(dtype=np.float64), length),
        "average_active": _time_average(timeline["active_jobs"].to_numpy(dtype=np.float64), length),
        "jobs": len(jobs),
        "unserved_jobs": status.count("unserved"),
        "dropped_jobs": status.count("dropped"),
        "rejected_jobs": status.count("rejected"),
        "cut_off_jobs": status.count("cut_off"),
        "unfinished_jobs": status.count("unfinished"),
        "preemptions": int(jobs["preemptions"].sum()),
        "migrations": None if result.record is None else result.record.migrations,
        "restart_gpu_hours": float(every_job["restart_gpu_seconds"].sum()) / HOUR
        if _knows_restarts(every_job)
        else None,
        "lease_extensions": extensions,
        "lease_opportunities": opportunities,
        "lease_extension_rate": extensions / opportunities if extensions is not None and opportunities else None,
        **_envy_figures(jobs),
        **deadline_figures(jobs, deadline_measure(result)),
        **_efficiency_figures(result),
        "cost": float(every_job["cost"].sum()) if "cost" in every_job else None,
        "owned_cost": owned_cost(result.record),
        "rounds": int(result.timeline["rounds"].sum()) if "rounds" in result.timeline else len(result.timeline),
        "policy_calls": result.policy_calls,
        "fallback_decisions": sum(bool(allocation.fallbacks) for _, _, allocation in result.decisions),
        "policy_seconds": float(result.policy_seconds),
        "wall_seconds": float(result.wall_seconds),
    }
    if windowed and result.record is not None:
        utilization = result.record.utilization_between(start, end)
        summary |= {"window_start": start, "window_end": end, "window_utilization": utilization}
    if jobs["priority_weight"].nunique() > 1:
        summary["by_priority"] = _rows(priorities_table(every_job, deadline_measure(result)))
    if jobs["scale_factor"].nunique() > 1:
        summary["by_size"] = _rows(sizes_table(every_job))
    if "user" in jobs:
        summary["by_user"] = _rows(users_table(jobs))
    if len(result.entities):
        summary["by_entity"] = _rows(result.entities)
    return Summary.of(summary | dict.fromkeys(result.not_told))


def priorities_table(jobs: pd.DataFrame, measure: str = "first") -> pd.DataFrame:
    """One row per priority weight, heaviest first, of a run's table of jobs (of the measured ones, with a window).

    Columns priority_weight, jobs, completed_jobs, average_jct, median_jct, p99_jct (seconds), average_rho, worst_rho,
    unfair_fraction, deadline_jobs, deadline_ratio (by the `measure` of `deadlines.deadline_figures`); empty where there
    is nothing to measure.
    """
    import pandas as pd

    measured = jobs[jobs["measured"]] if "measured" in jobs else jobs
    rows = []
    for weight, group in measured.groupby("priority_weight", sort=True):
        due = {"deadline_jobs": 0, "deadline_ratio": None} | deadline_figures(group, measure)
        figures = {"priority_weight": weight, "jobs": len(group)} | completion_figures(group)
        rows.append(figures | {name: due[name] for name in _DEADLINES_BY_WEIGHT})
    columns = ["priority_weight", "jobs", *completion_figures(jobs.iloc[:0]), *_DEADLINES_BY_WEIGHT]
    return pd.DataFrame(rows[::-1], columns=columns)


def sizes_table(jobs: pd.DataFrame) -> pd.DataFrame:
    """One row per size class (1, 2 to 4, 5 to 8, 9 or more GPUs) that a run's jobs have; the measured ones, if any are.

    Columns gpus (text), jobs, completed_jobs, completion times, waiting and running times (seconds), rho and
    restart_gpu_hours; empty where there is nothing to measure.
    """
    import pandas as pd

    measured = jobs[jobs["measured"]] if "measured" in jobs else jobs
    last = [str(size - 1) for size in SIZE_CLASSES[1:]]
    names = [
        first if first == end else f"{first}-{end}" for first, end in zip(map(str, SIZE_CLASSES), last, strict=False)
    ]
    names.append(f"{SIZE_CLASSES[-1]}+")
    classes = np.searchsorted(SIZE_CLASSES, measured["scale_factor"].to_numpy(), side="right") - 1
    rows = []
    for position in np.unique(classes).tolist():
        group = measured[classes == position]
        restarts = float(group["restart_gpu_seconds"].sum()) / HOUR if _knows_restarts(group) else None
        figures = {"gpus": names[position], "jobs": len(group)} | completion_figures(group)
        rows.append(figures | {"restart_gpu_hours": restarts})
    columns = ["gpus", "jobs", *completion_figures(jobs.iloc[:0]), "restart_gpu_hours"]
    return pd.DataFrame(rows, columns=columns)


def users_table(jobs: pd.DataFrame) -> pd.DataFrame:
    """One row per user of some of a run's jobs, those with the most GPU time first.

    Columns user (empty: jobs that name none), jobs, completed_jobs, gpu_hours, gpu_share (of the GPU time of all these
    jobs), and of the completed jobs average_jct, average_queueing_time (seconds; without GPUs, from arrival on and
    whenever preempted), average_rho and worst_rho; nan where there is nothing to measure.

    Parameters
    ----------
    jobs : rows of `SimulationResult.jobs`, with its column user.
    """
    import pandas as pd

    users, of = np.unique(jobs["user"].to_numpy(dtype=np.str_), return_inverse=True)
    n = len(users)
    used = np.bincount(of, jobs["gpu_seconds"].to_numpy(np.float64), n)
    jct, rho = jobs["jct"].to_numpy(np.float64), jobs["rho"].to_numpy(np.float64)
    worst = np.full(n, np.nan)
    np.fmax.at(worst, of, rho)
    columns = {
        "user": users,
        "jobs": np.bincount(of, minlength=n),
        "completed_jobs": np.bincount(of[~np.isnan(jct)], minlength=n),
        "gpu_hours": used / HOUR,
        "gpu_share": used / max(float(used.sum()), 1e-300),
        "average_jct": _means(jct, of, n),
    }
    if "queueing_time" in jobs:
        columns["average_queueing_time"] = _means(jobs["queueing_time"].to_numpy(np.float64) + 0 * jct, of, n)
    columns |= {"average_rho": _means(rho, of, n), "worst_rho": worst}
    return pd.DataFrame(columns).iloc[np.argsort(-used, kind="stable")].reset_index(drop=True)


def _means(values: NDArray[np.float64], of: NDArray[np.int64], n: int) -> NDArray[np.float64]:
    """(n,) means of the values of each part, without nan; nan where there are none."""
    there = ~np.isnan(values)
    counts = np.bincount(of[there], minlength=n)
    sums = np.bincount(of[there], values[there], n)
    means: NDArray[np.float64] = np.divide(sums, counts, out=np.full(n, np.nan), where=counts > 0)
    return means


def _knows_restarts(jobs: pd.DataFrame) -> bool:
    """Tables of a run that others made may lack it, and a schedule out of a job log does not say."""
    return "restart_gpu_seconds" in jobs and not (len(jobs) and jobs["restart_gpu_seconds"].isna().all())


def completion_figures(jobs: pd.DataFrame) -> dict[str, Any]:
    """Completed jobs, their completion times (seconds) and rho, of a table of jobs; None where there is nothing."""
    jct = _defined(jobs["jct"].to_numpy(dtype=np.float64))
    figures = {
        "completed_jobs": int(jct.size),
        "average_jct": _finite(jct.mean()) if jct.size else None,
        "median_jct": _finite(np.median(jct)) if jct.size else None,
        "p99_jct": _finite(np.percentile(jct, 99)) if jct.size else None,
        **_mean_figures(jct),
        **{f"average_{part}": _mean_of(jobs, part) for part in ("queueing_time", "running_time")},
        **_rho_figures(jobs, "rho"),
    }
    for name in ("rho_static", "rho_themis", "rho_isolated"):
        if name in jobs:
            figures |= _rho_figures(jobs, name)
    return figures


def _mean_figures(jct: NDArray[np.float64]) -> dict[str, Any]:
    """The means that a few long jobs move less."""
    some = bool(jct.size and (jct > 0).all())
    return {
        "geometric_mean_jct": _finite(np.float64(exp(log(jct).mean()))) if some else None,
        "harmonic_mean_jct": _finite(1 / (1 / jct).mean()) if some else None,
    }


def _mean_of(jobs: pd.DataFrame, part: str) -> float | None:
    """Mean of a part of the completion times of the completed jobs; None where it is not known."""
    if part not in jobs:
        return None
    values = _defined(jobs[part].to_numpy(dtype=np.float64)[~np.isnan(jobs["jct"].to_numpy(dtype=np.float64))])
    return _finite(values.mean()) if values.size else None


def _rho_figures(jobs: pd.DataFrame, column: str) -> dict[str, Any]:
    """Average, worst and unfair share of one kind of rho; the ending of its name goes to all of them."""
    rho = _defined(jobs[column].to_numpy(dtype=np.float64))
    ending = column.removeprefix("rho")
    return {
        f"average_rho{ending}": _finite(rho.mean()) if rho.size else None,
        f"worst_rho{ending}": _finite(rho.max()) if rho.size else None,
        f"unfair_fraction{ending}": float((rho > UNFAIR_RHO).mean()) if rho.size else None,
        f"very_unfair_fraction{ending}": float((rho > VERY_UNFAIR_RHO).mean()) if rho.size else None,
    }


def _envy_figures(jobs: pd.DataFrame) -> dict[str, Any]:
    if "scheduled_fraction" not in jobs:
        return {}
    mean, largest = pairwise_envy(jobs["scheduled_fraction"].to_numpy(dtype=np.float64))
    return {"mean_envy": mean, "largest_envy": largest}


def deadline_measure(result: SimulationResult) -> str:
    """Which deadlines count for the ratio of those kept."""
    return str(result.settings.get("deadline_measure", "first"))


def _efficiency_figures(result: SimulationResult) -> dict[str, Any]:
    if "deadline" not in result.jobs:
        return {}
    return {"cluster_efficiency": None if result.record is None else average_efficiency(result.record)}


def _span(jobs: pd.DataFrame) -> tuple[float, float]:
    """First arrival and last completion, seconds."""
    done = _defined(jobs["completion_time"].to_numpy(dtype=np.float64))
    start = float(jobs["arrival_time"].min()) if len(jobs) else 0.0
    return start, max(start, float(done.max())) if done.size else start


def _rows(table: pd.DataFrame) -> list[dict[str, Any]]:
    """As JSON has them."""
    return [{str(key): _plain(value) for key, value in row.items()} for row in table.to_dict("records")]


def _plain(value: Any) -> Any:
    """A cell as JSON has it."""
    number = value.item() if isinstance(value, np.generic) else value
    return None if isinstance(number, float) and np.isnan(number) else number


def _defined(values: NDArray[np.float64]) -> NDArray[np.float64]:
    return values[~np.isnan(values)]


def _finite(value: np.floating[Any]) -> float | None:
    return float(value) if np.isfinite(value) else None


def _time_average(values: NDArray[np.float64], seconds: NDArray[np.float64]) -> float | None:
    return float((values * seconds).sum() / seconds.sum()) if seconds.sum() > 0 else None
