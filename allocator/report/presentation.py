"""How the runs of a comparison are shown: by which rho, and under which names."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from dataclasses import dataclass

from allocator.presets import Comparison, preset, preset_names
from allocator.protocol.views import Need
from allocator.report.figures import FIGURES, MISSING, OF_SOME_RUNS, Figure, Row, Rows
from throughputs import InputError
from throughputs.shown import counted

_OF_STARTS = r"(re)?starts?_(penalty|seconds)"
"""Names of settings that make starts cost."""

HONEST = ("qssf", "slurm")
"""Policies that take predicted lengths where others take the true ones."""

_MEANING = {
    "isolated": "job completion time / the same on an isolated share of the cluster",
    "static": "job completion time / (time that the job needs alone x jobs of the trace per GPU)",
    "slowdown": "job completion time / that of the job alone, ten minutes at least",
    "themis": "job completion time / (time that the job needs alone x jobs in the cluster per GPU, meanwhile)",
}


@dataclass(frozen=True)
class Presentation:
    """What the preset of the runs says about showing them; the usual where they differ in it.

    Attributes
    ----------
    names : of the runs: those of the policies, with what the paper calls them, or labels of their own.
    labels : the paper's names alone; the run's own where it has none.
    figures : columns of the table.
    rho : column of the jobs' rho.
    meaning : what that rho is.
    usual : whether it is the one that presets without a yardstick of their own have.
    """

    names: tuple[str, ...]
    labels: tuple[str, ...]
    figures: tuple[Figure, ...]
    rho: str
    meaning: str
    usual: bool

    @classmethod
    def of(cls, summaries: Rows) -> Presentation:
        """The presentation of runs by their summaries, each with the settings of its run under "settings"."""
        settings = [summary.get("settings", {}) for summary in summaries]
        presets = {str(each.get("preset")) for each in settings}
        shown = preset(presets.pop()).comparison if len(presets) == 1 and presets <= {*preset_names()} else Comparison()
        yardstick = _yardstick({str(each.get("fairness", "isolated")) for each in settings}, summaries)
        runs = [str(summary.get("label", summary.get("policy", MISSING))) for summary in summaries]
        labels = tuple(shown.labels.get(run, run) for run in runs)
        figures = {
            figure.key: _by(yardstick, figure)
            for figure in (*FIGURES, *OF_SOME_RUNS)
            if any(summary.get(figure.key) is not None for summary in summaries)
        }
        logged = all("average_bounded_slowdown" in summary for summary in summaries) and bool(summaries)
        if logged and yardstick == "isolated":
            figures = {key: figure for key, figure in figures.items() if key not in _ABOUT_RHO}
            rho, meaning = "bounded_slowdown", _MEANING["slowdown"]
        else:
            rho, meaning = "rho" + _ending(yardstick), _MEANING[yardstick]
        return cls(
            names=tuple(run if label == run else f"{run} ({label})" for run, label in zip(runs, labels, strict=True)),
            labels=labels,
            figures=tuple(figures.values()),
            rho=rho,
            meaning=meaning,
            usual=yardstick == "isolated",
        )


def _ending(yardstick: str) -> str:
    return "" if yardstick == "isolated" else f"_{yardstick}"


def _yardstick(wanted: set[str], summaries: Rows) -> str:
    """The one by which all are to be compared, if all have its figures."""
    yardstick = wanted.pop() if len(wanted) == 1 else "isolated"
    known = yardstick in _MEANING and all(f"worst_rho{_ending(yardstick)}" in summary for summary in summaries)
    return yardstick if known else "isolated"


_ABOUT_RHO = {"worst_rho": "largest rho of any job", "unfair_fraction": "completed jobs with rho above 1.05"}


def _by(yardstick: str, figure: Figure) -> Figure:
    """The figure, of the rho with that yardstick."""
    if figure.key not in _ABOUT_RHO or yardstick == "isolated":
        return figure
    about = f"{_ABOUT_RHO[figure.key]}: {_MEANING[yardstick]}"
    return dataclasses.replace(figure, key=figure.key + _ending(yardstick), about=about)


_ENDED_OTHERWISE = {
    "cut_off_jobs": "cut off before the last step",
    "dropped_jobs": "given up",
    "rejected_jobs": "rejected",
}


def ended_otherwise(summary: Row) -> str:
    """How many jobs of a run ended without their last step, and how; empty where none did."""
    counts = ((int(summary.get(key) or 0), words) for key, words in _ENDED_OTHERWISE.items())
    return ", ".join(f"{counted(count, 'job')} {words}" for count, words in counts if count)


def exceeded_shares(names: Sequence[str], summaries: Rows) -> list[str]:
    """A line for each run in which jobs had more than a policy meant that they have."""
    return [
        f"{name}: {summary['exceeded_jobs']:,} jobs had more GPU time than their shares: rows and theorems of this "
        "policy do not hold for what they received (idle_fill fills GPUs that it leaves idle)"
        for name, summary in zip(names, summaries, strict=True)
        if summary.get("exceeded_jobs")
    ]


def true_lengths(names: Sequence[str], summaries: Rows) -> list[str]:
    """A line that names the runs of policies that are told how long jobs run, and what to compare with instead."""
    told = [name for name, summary in zip(names, summaries, strict=True) if _told_lengths(summary)]
    if not told:
        return []
    what = "told how long each job still runs, which a real scheduler can only predict"
    return [f"{what}: {', '.join(told)}; policies that predict it: {' and '.join(HONEST)}"]


def _told_lengths(summary: Row) -> bool:
    named = str(summary.get("settings", {}).get("preset", "default"))
    try:
        return Need.LENGTHS in preset(named).class_of_policy(str(summary["policy"])).needs
    except (InputError, KeyError):  # of a policy that is not installed here
        return False


def free_restarts(summaries: Rows) -> list[str]:
    """A line that says where preemptions cost nothing; none where they do, or nobody was preempted."""
    free = [
        summary.get("restart_gpu_hours") == 0
        and bool(summary.get("preemptions"))
        and not any(value for name, value in summary.get("settings", {}).items() if re.search(_OF_STARTS, name))
        for summary in summaries
    ]
    if not any(free):
        return []
    if all(free):
        return ["starts are free here: --restart-penalty SECONDS makes them cost"]
    names = [str(summary.get("policy")) for summary, is_free in zip(summaries, free, strict=True) if is_free]
    return [f"starts are free under {', '.join(names)}"]
