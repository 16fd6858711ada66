"""A recorded run beside a simulation of the same jobs: the error of each figure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import mean, median
from typing import Any

from allocator.presets import Preset, preset
from allocator.protocol import Need
from allocator.registry import get_policy, settings_of
from allocator.results.result import SimulationResult
from allocator.runtime.recorded.run import RecordedRun
from allocator.simulator.engine import simulate

FIGURES = ("average_jct", "median_jct", "makespan", "utilization", "preemptions")
"""Of the summaries."""


def preset_of(run: RecordedRun) -> Preset:
    """The settings with which a service ran, as its journal says; with what a start cost it on average."""
    told: Mapping[str, Any] = run.told.run.get("settings", {})
    chosen = preset(str(told.get("preset", "default")))
    known = chosen.as_dict()
    own = {name: value for name, value in told.items() if name in known and name not in _NAMES}
    own |= {"restart_penalty_seconds": run.restart_seconds, "restart_when_moved": True, "restart_delays": True}
    return chosen.replace(**{name: tuple(v) if isinstance(v, list) else v for name, v in own.items()})


_NAMES = ("preset", "choice", "fairness")


def simulated(run: RecordedRun, chosen: Preset) -> SimulationResult:
    """The jobs of a recorded run under the same policy, in a world where all goes as `chosen` says."""
    own = {name: value for name, value in _policy_settings(run).items() if name in settings_of(run.policy)}
    policy, trace, cluster = get_policy(run.policy, **own), run.trace, run.cluster
    # a service knows how fast jobs are, and nothing of their epochs, which a table would tell by job type
    whole = policy.needs & (Need.COLOCATION | Need.CONFIGURATIONS)
    rates = run.table.rates(trace.job_type, trace.scale_factor, cluster.accelerators)
    return simulate(
        trace,
        cluster,
        policy,
        run.table if whole else rates,
        preset=chosen,
        seed=int(run.told.run.get("seed", 0)),
        entities=run.told.run.get("entities"),
    )


def _policy_settings(run: RecordedRun) -> dict[str, Any]:
    told: Mapping[str, Any] = run.told.run.get("policy_settings", {})
    return {name: tuple(value) if isinstance(value, list) else value for name, value in told.items()}


@dataclass(frozen=True)
class Caveat:
    """Why some of a comparison means nothing.

    Attributes
    ----------
    words : for people. figures : that are not to be compared. jobs : whether completion times job by job are neither.
    """

    words: str
    figures: tuple[str, ...]
    jobs: bool


def caveats(run: RecordedRun) -> list[Caveat]:
    """What a simulation of a recorded run cannot have as it was."""
    told, found = run.told, []
    if told.changes:
        listed = "; ".join(f"after {clock - told.since:.0f} s {words}" for clock, words in told.changes)
        words = f"What the service ran with changed while jobs were there: {listed}. The simulation has the last of it"
        found.append(Caveat(f"{words} all the time.", FIGURES, jobs=True))
    if told.capacity_changed:
        words = "GPUs came or went while jobs were there. The simulation has all that there ever were, all the time."
        found.append(Caveat(words, FIGURES, jobs=True))
    unfinished = len(told.book.active)
    if unfinished:
        words = f"{unfinished} of {len(told.book.by_id)} jobs are not through. The simulation carries them to their end"
        found.append(Caveat(f"{words}.", ("makespan", "utilization", "preemptions"), jobs=False))
    return found


def compared(real: SimulationResult, other: SimulationResult, caveats: Sequence[Caveat] = ()) -> dict[str, Any]:
    """Figures of both runs, and completion times job by job, each with the error of the simulation.

    Average and median are those of the jobs that complete in both. Errors are relative, null where the real figure is
    0, where one of the two is absent, or where a caveat says that they mean nothing; times in seconds.
    """
    one, two = real.summary().to_dict(), other.summary().to_dict()
    spoiled = {name for caveat in caveats for name in caveat.figures}
    no_jobs = any(caveat.jobs for caveat in caveats)
    jobs: list[dict[str, Any]] = []
    times = real.jobs["jct"].tolist(), other.jobs["jct"].tolist()
    for number, (seen, expected) in enumerate(zip(*times, strict=True)):
        row = {"job_id": number, "real": _known(seen), "simulated": _known(expected)}
        jobs.append(row | {"error": None if no_jobs else _error(row["real"], row["simulated"])})
    errors = sorted(abs(job["error"]) for job in jobs if job["error"] is not None)
    both = [job for job in jobs if job["real"] is not None and job["simulated"] is not None]
    for figures, kind in ((one, "real"), (two, "simulated")):
        seconds = [job[kind] for job in both]
        figures["average_jct"] = mean(seconds) if both else None
        figures["median_jct"] = median(seconds) if both else None
    return {
        "policy": real.policy,
        "caveats": [caveat.words for caveat in caveats],
        "figures": [
            {
                "figure": name,
                "real": one[name],
                "simulated": two[name],
                "error": None if name in spoiled else _error(one[name], two[name]),
            }
            for name in FIGURES
        ],
        "jobs_that_complete_in_both": len(both),
        "mean_absolute_error_of_jct": sum(errors) / len(errors) if errors else None,
        "largest_absolute_error_of_jct": errors[-1] if errors else None,
        "restart_seconds": other.settings.get("restart_penalty_seconds"),
        "jobs": jobs,
    }


def _known(seconds: float) -> float | None:
    return None if seconds != seconds else float(seconds)


def _error(real: float | None, expected: float | None) -> float | None:
    return None if not real or expected is None else (expected - real) / real
