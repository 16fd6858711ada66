"""Runs of one policy that differ in their seed: their means, and how sure these are."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from allocator.report.figures import Row, Rows
from allocator.results.summary import OF_COMPLETED
from throughputs.files import JsonObject

_CONFIDENCE = 0.95
# What tells the rows of the tables within a summary apart.
_ROW_KEYS = ("accelerator", "gpus", "user", "partition", "entity", "priority_weight")


@dataclass(frozen=True, eq=False)
class Policies:
    """P policies of R runs.

    Attributes
    ----------
    of_run : (R,) position of the policy of each run.
    summaries : (P,) figures of each policy, means over its runs; where one of several did not complete, without
        those that depend on which jobs completed.
    half_widths : (P,) by figure, half the width of its 95 % interval; empty for a policy with one run.
    """

    of_run: tuple[int, ...]
    summaries: tuple[Row, ...]
    half_widths: tuple[Mapping[str, float], ...]

    @classmethod
    def of(cls, summaries: Rows) -> Policies:
        """Put runs together that have the same label and preset, and a seed each; all others stand alone.

        Parameters
        ----------
        summaries : of the runs, each with its settings under "settings".
        """
        alike: dict[tuple[Any, ...], list[int]] = {}
        for run, summary in enumerate(summaries):
            label, named = summary.get("label", summary.get("policy")), summary.get("settings", {}).get("preset")
            alike.setdefault((label, named, summary.get("cluster")), []).append(run)
        groups = sorted(group for runs in alike.values() for group in _of_seeds(runs, summaries))
        of_run = {run: position for position, group in enumerate(groups) for run in group}
        whole = [_of_completed([summaries[run] for run in group]) for group in groups]
        return cls(
            of_run=tuple(of_run[run] for run in range(len(summaries))),
            summaries=tuple(map(_mean, whole)),
            half_widths=tuple(map(_half_widths, whole)),
        )

    @property
    def most_runs(self) -> int:
        """Runs of the policy with the most."""
        return max(map(self.of_run.count, self.of_run), default=0)

    def differences(self, runs: Rows) -> list[JsonObject]:
        """Of each policy but the first, how much its figures differ from those of the first on the same jobs.

        Runs with the same seed have the same jobs, so the seed cancels out of their difference: intervals of paired
        differences are narrower than those of the means. Only pairs of completed runs count.

        Returns
        -------
        (P - 1,) ``policy``, ``baseline`` (the first), ``pairs``, and by figure ``mean`` of policy minus baseline and
        ``half_width`` of its 95 % interval (Student's t). Empty where no policy has two pairs.
        """
        by_seed: list[dict[Any, Row]] = [{} for _ in self.summaries]
        for policy, run in zip(self.of_run, runs, strict=True):
            if run.get("status", "completed") == "completed":
                by_seed[policy][_seed(run)] = run
        names = [summary.get("label", summary.get("policy")) for summary in self.summaries]
        rows = []
        for name, own in zip(names[1:], by_seed[1:], strict=True):
            pairs = [(run, by_seed[0][seed]) for seed, run in own.items() if seed in by_seed[0]]
            known = {
                key: [run[key] - base[key] for run, base in pairs]
                for key in (pairs[0][0] if len(pairs) > 1 else ())
                if all(len(_numbers([run.get(key), base.get(key)])) == 2 for run, base in pairs)
            }
            mean = {key: fmean(values) for key, values in known.items()}
            half = _finite_widths(known)
            rows.append({"policy": name, "baseline": names[0], "pairs": len(pairs), "mean": mean, "half_width": half})
        return rows if any(row["mean"] for row in rows) else []

    def run_names(self, names: Sequence[str], summaries: Rows) -> list[str]:
        """Names of the runs, from the (P,) names of the policies: with the seed where a policy has several."""
        return [
            names[policy] if self.of_run.count(policy) == 1 else f"{names[policy]}, seed {_seed(summary)}"
            for policy, summary in zip(self.of_run, summaries, strict=True)
        ]


def half_width(values: Sequence[float]) -> float:
    """Half the width of the 95 % interval of a mean of n values, t_(0.975, n - 1) s / sqrt(n).

    nan where all values are one and the same, as of a single one: nothing that was drawn had to do with it.
    """
    n = len(values)
    if len(set(values)) < 2:
        return math.nan
    from scipy.special import stdtrit

    mean = fmean(values)
    variance = math.fsum((value - mean) ** 2 for value in values) / (n - 1)
    return float(stdtrit(n - 1, (1 + _CONFIDENCE) / 2)) * math.sqrt(variance / n)


def _of_seeds(runs: list[int], summaries: Rows) -> list[list[int]]:
    seeds = [_seed(summaries[run]) for run in runs]
    different = None not in seeds and len(set(map(str, seeds))) == len(seeds)
    return [runs] if different else [[run] for run in runs]


def _seed(summary: Row) -> Any:
    return summary.get("settings", {}).get("seed")


def _of_completed(summaries: Rows) -> Rows:
    """Of several runs of which some did not complete, what does not depend on which jobs completed, and their seeds."""
    cut = [run for run in summaries if run.get("status", "completed") != "completed"]
    if len(summaries) == 1 or not cut:
        return summaries
    seeds = ", ".join(str(_seed(run)) for run in cut)
    why = {"status": cut[0]["status"], "status_detail": f"seed {seeds}: {cut[0]['status_detail']}; times have no means"}
    return [
        {name: None if OF_COMPLETED.search(name) else [] if name.startswith("by_") else run[name] for name in run} | why
        for run in summaries
    ]


def _mean(summaries: Rows) -> Row:
    """The first summary with the means of its numbers, and of those of the tables in it, over all of them."""
    if len(summaries) == 1:
        return summaries[0]
    return {name: _merged(name, [summary.get(name) for summary in summaries]) for name in summaries[0]}


def _merged(name: str, values: Sequence[Any]) -> Any:
    first, numbers = values[0], _numbers(values)
    if name in _ROW_KEYS or all(value == first for value in values):
        return first
    if numbers:
        return fmean(numbers)
    return _mean_rows([value or [] for value in values]) if isinstance(first, list) else first


def _mean_rows(tables: Sequence[Rows]) -> list[Row]:
    """One row per key that any of the tables has."""
    alike: dict[Any, list[Row]] = {}
    for table in tables:
        for row in table:
            alike.setdefault(next((row[key] for key in _ROW_KEYS if key in row), None), []).append(row)
    return [_mean(rows) for rows in alike.values()]


def _half_widths(summaries: Rows) -> Mapping[str, float]:
    if len(summaries) == 1:
        return {}
    columns = {name: _numbers([summary.get(name) for summary in summaries]) for name in summaries[0]}
    return _finite_widths({name: numbers for name, numbers in columns.items() if len(numbers) == len(summaries)})


def _finite_widths(columns: Mapping[str, Sequence[float]]) -> dict[str, float]:
    widths = {name: half_width(values) for name, values in columns.items()}
    return {name: width for name, width in widths.items() if math.isfinite(width)}


def _numbers(values: Sequence[Any]) -> list[float]:
    return [float(v) for v in values if isinstance(v, int | float) and not isinstance(v, bool) and math.isfinite(v)]
