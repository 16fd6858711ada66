"""A recorded run beside a simulation of the same jobs: the error of each figure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from allocator.presets import Preset, preset
from allocator.protocol import Need
from allocator.registry import get_policy, settings_of
from allocator.results.result import SimulationResult
from allocator.runtime.recorded.run import RecordedRun
from allocator.simulator.engine import simulate

__all__ = ["FIGURES", "compared", "preset_of", "simulated"]

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


def compared(real: SimulationResult, other: SimulationResult) -> dict[str, Any]:
    """Figures of both runs, and completion times job by job, each with the error of the simulation.

    Errors are relative, null where the real figure is 0 or one of the two is absent; times in seconds.
    """
    one, two = real.summary(), other.summary()
    jobs = []
    times = real.jobs["jct"].tolist(), other.jobs["jct"].tolist()
    for number, (seen, expected) in enumerate(zip(*times, strict=True)):
        row = {"job_id": number, "real": _known(seen), "simulated": _known(expected)}
        jobs.append(row | {"error": _error(row["real"], row["simulated"])})
    errors = sorted(abs(job["error"]) for job in jobs if job["error"] is not None)
    return {
        "policy": real.policy,
        "figures": [
            {"figure": name, "real": one[name], "simulated": two[name], "error": _error(one[name], two[name])}
            for name in FIGURES
        ],
        "mean_absolute_error_of_jct": sum(errors) / len(errors) if errors else None,
        "largest_absolute_error_of_jct": errors[-1] if errors else None,
        "restart_seconds": other.settings.get("restart_penalty_seconds"),
        "jobs": jobs,
    }


def _known(seconds: float) -> float | None:
    return None if seconds != seconds else float(seconds)


def _error(real: float | None, expected: float | None) -> float | None:
    return None if not real or expected is None else (expected - real) / real
