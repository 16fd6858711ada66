"""``--profiler``: Lucid's profiler on servers of its own, ahead of a simulation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np

from allocator.cli.options.groups import option
from allocator.cluster import Cluster
from allocator.conversion import convert_all, convert_text, kinds_of
from allocator.policies.lucid.profiling import ProfilerSettings, ProfilingRun, profile_apart
from throughputs import InputError
from throughputs.errors import one_of
from throughputs.files import write_frame

if TYPE_CHECKING:
    import pandas as pd

    from allocator.protocol import Policy
    from allocator.results.result import SimulationResult
    from throughputs import Trace

ProfilerOption = Annotated[
    str | None,
    option(
        "--profiler",
        "Lucid only: profile jobs first on servers of their own, as published (default), or with other settings: "
        "servers, limit_seconds, largest_gang; from=VC+VC takes a server from each of these virtual clusters.",
        "default|SETTING=VALUE,...",
    ),
]

_DEFAULT = "default"
_FROM = "from"
_SETTINGS = ("servers", "limit_seconds", "largest_gang")
_SOURCE = "--profiler"
_HOUR = 3600.0


@dataclass(frozen=True, eq=False)
class Profiled:
    """What the profiler leaves to the cluster.

    Attributes
    ----------
    trace : all N jobs.
    run : what became of them in the profiler.
    left : the jobs that were not through there, which come to the cluster at their submission.
    cluster : without the servers that the profiler took.
    settings : of the profiler.
    """

    trace: Trace
    run: ProfilingRun
    left: Trace
    cluster: Cluster
    settings: ProfilerSettings

    def table(self, result: SimulationResult) -> pd.DataFrame:
        """A row for each of the N jobs: job_id, profiled, profiler_queueing_time, ended_in_profiler, job_in_cluster
        (its id in the other tables of the run, -1 for none), completion_time and jct over both (seconds)."""
        import pandas as pd

        run, at = self.run, np.full(len(self.trace), -1)
        at[~run.ended] = np.arange(len(self.left))
        end = run.end.copy()
        end[~run.ended] = result.jobs["completion_time"].to_numpy()
        return pd.DataFrame(
            {
                "job_id": np.arange(len(self.trace)),
                "profiled": run.profiled,
                "profiler_queueing_time": np.where(run.profiled, run.queue_seconds, np.nan),
                "ended_in_profiler": run.ended,
                "job_in_cluster": at,
                "completion_time": end,
                "jct": end - self.trace.arrival_time,
            }
        )

    def save(self, result: SimulationResult, directory: Path) -> dict[str, Any]:
        """Write profiler.csv beside the other tables of a run; returns the figures of all jobs."""
        table = self.table(result)
        write_frame(directory / "profiler.csv", table)
        known = table["jct"].notna()
        return {
            "servers": self.settings.servers,
            "jobs": len(table),
            "profiled": int(self.run.profiled.sum()),
            "ended": int(self.run.ended.sum()),
            "average_queueing_time": float(table["profiler_queueing_time"].mean()) if self.run.profiled.any() else None,
            "average_jct": float(table.loc[known, "jct"].mean()) if known.any() else None,
        }


def told(figures: Mapping[str, Any]) -> str:
    """The figures of `Profiled.save` in words."""
    servers, wait, jct = (figures[name] for name in ("servers", "average_queueing_time", "average_jct"))
    return (
        f"profiler on {servers} server{'s' * (servers > 1)}: {figures['profiled']:,} of {figures['jobs']:,} jobs "
        f"profiled"
        + (f" after {wait:,.0f} s in line on average" if wait is not None else "")
        + f", {figures['ended']:,} ended there; average JCT of all jobs "
        + (f"{jct / _HOUR:.2f} h" if jct is not None else "unknown")
        + ". The tables are of the others; profiler.csv has all."
    )


def profile_first(text: str, trace: Trace, cluster: Cluster, policy: Policy) -> Profiled:
    """Run the profiler over the jobs as `text`, the value of the option, says.

    Raises
    ------
    InputError
        Another policy than those of Lucid, or one that profiles in the cluster; settings that are none; a virtual
        cluster without a server to spare; jobs whose times are not whole seconds or whose duration the trace does not
        say; or no job is left for the cluster.
    """
    own = policy.settings()
    if "profiling_pool" not in own:
        raise InputError(_SOURCE, found=f"policy {policy.name}", expected="lucid or lucid_program, which use profiles")
    if own["profiling_pool"]:
        expected = "no profiling_pool of the policy beside it: jobs are profiled once"
        raise InputError(_SOURCE, field="profiling_pool", found=own["profiling_pool"], expected=expected)
    settings, lenders = _settings(text)
    left_of = _without(cluster, lenders)
    if np.isnan(trace.duration).any():
        row = int(np.argmax(np.isnan(trace.duration)))
        expected = "seconds: the profiler runs jobs for their duration"
        raise InputError(trace.source, line=row + 1, field="duration", found="nothing", expected=expected)
    try:
        run = profile_apart(trace.arrival_time, trace.scale_factor, trace.duration, settings)
    except InputError as error:
        raise InputError(trace.source, field=error.field, found=error.found, expected=error.expected) from None
    if run.ended.all():
        expected = f"jobs that run for more than {settings.limit_seconds:g} s: all end in the profiler"
        raise InputError(trace.source, field="duration", found="shorter ones alone", expected=expected)
    return Profiled(trace, run, trace.take(np.flatnonzero(~run.ended)), left_of, settings)


def _settings(text: str) -> tuple[ProfilerSettings, list[str]]:
    """Settings of the profiler, and virtual clusters that lend it a server each.

    It stays as large as it is: to give back what it borrowed it would need a forecast of arrivals.
    """
    kinds = {name: kind for name, kind in kinds_of(ProfilerSettings).items() if name in _SETTINGS}
    texts: dict[str, str] = {}
    lenders: list[str] = []
    for part in () if text == _DEFAULT else text.split(","):
        name, equals, value = (piece.strip() for piece in part.partition("="))
        if not (equals and value):
            raise InputError(_SOURCE, found=part, expected=f"{_DEFAULT}, or SETTING=VALUE, as in servers=2")
        if name == _FROM:
            lenders += value.split("+")
        else:
            texts[name] = value
    given = convert_all(texts, kinds | {_FROM: str}, _SOURCE, read=convert_text)
    if lenders:
        stated = given.setdefault("servers", len(lenders))
        if stated != len(lenders):
            expected = f"{stated} virtual clusters, one for each of its servers"
            raise InputError(_SOURCE, field=_FROM, found=", ".join(lenders), expected=expected)
    return ProfilerSettings(**given, elastic=False), lenders


def _without(cluster: Cluster, lenders: list[str]) -> Cluster:
    """The cluster less a server of each of these pools."""
    gpus = dict(cluster.gpus)
    for name in lenders:
        if name not in gpus:
            raise InputError(_SOURCE, field=_FROM, found=name, expected=one_of(name, tuple(gpus)))
        size = cluster.gpus_per_server[name]
        if gpus[name] <= size:
            expected = f"one with more than a server, which has {size} GPUs"
            raise InputError(_SOURCE, field=_FROM, found=f"{name} with {gpus[name]} GPUs", expected=expected)
        gpus[name] -= size
    return Cluster(gpus, cluster.gpus_per_server)
