"""What knowing throughputs is worth: studies after D. Narayanan et al., OSDI 2020, section 7.

Figures of the paper are those that its public notebooks print: hours, 36 GPUs of each of three types, jobs 4000 to
4999, seed 0; of the makespan, means of three seeds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.figures.means import busiest, summary
from benchmarks.findings.words import Paired, compared, few, listed, paired, plus_minus, sentence

if TYPE_CHECKING:
    import pandas as pd

HOUR = 3600.0


def las_single_gpu(results: pd.DataFrame) -> list[str]:
    """Least attained service, jobs of one GPU."""
    return [
        *_attained_service(results),
        "The paper's notebooks print 23.5 h without and 16.8 h with throughputs at 4.0 jobs per hour on 108 GPUs; at "
        "5.6, where the queue of the blind policy grows, 96.0 and 29.0 h, and 19.6 h with space sharing.",
    ]


def las_multi_gpu(results: pd.DataFrame) -> list[str]:
    """Least attained service, gangs."""
    return [
        *_attained_service(results),
        "The paper's notebooks print 26.1 h without and 18.5 h with throughputs at 1.0 jobs per hour on 108 GPUs; at "
        "2.6, 70.5 and 36.4 h, and 30.5 h with space sharing.",
    ]


def _attained_service(results: pd.DataFrame) -> list[str]:
    blind, aware, packed = "max_min_fairness", "max_min_fairness_perf", "max_min_fairness_packed"
    load, lightest = _busiest(results), float(results["jobs_per_hour"].min())
    rows = results[results["jobs_per_hour"] == load]
    pair = _hours(rows, aware, blind)
    lightly, heavily = (
        compared(*_hours(results[results["jobs_per_hour"] == at], packed, aware).means, more="longer", less="shorter")
        for at in (lightest, load)
    )
    means = rows.groupby("policy", sort=False)["average_jct"].mean()
    beside = [
        f"that of `{name}` is {compared(means[name], means[aware], more='longer', less='shorter')}"
        for name in means.index
        if name not in (blind, aware, packed)
    ]
    return [
        sentence(
            f"with throughputs known, average JCT is {compared(*pair.means, more='longer', less='shorter')} than "
            f"without at {load:g} jobs per hour, the largest load that all policies bear: {plus_minus(pair.first)} h "
            f"under `{aware}` and {plus_minus(pair.second)} h under `{blind}` (means over {few(len(pair.first))} "
            "seeds, 95 % intervals)"
        ),
        sentence(
            f"it is {'shorter' if pair.means[0] < pair.means[1] else 'longer'} {pair.on_same_jobs()}"
            + (
                ", since types differ in how much faster they make a job, and the blind policy hands out GPUs as if "
                "they did not"
                if pair.means[0] < pair.means[1]
                else ""
            )
        ),
        sentence(
            f"with space sharing as well (`{packed}`) it is {lightly} than with throughputs alone at {lightest:g} jobs "
            f"per hour, where few jobs wait, and {heavily} at {load:g}"
        ),
        sentence(f"beside `{aware}`, {listed(beside)}"),
        _saturation(results),
    ]


def _busiest(results: pd.DataFrame) -> float:
    return busiest(summary(results, load="jobs_per_hour", value="average_jct"), "jobs_per_hour")


def _hours(rows: pd.DataFrame, first: str, second: str, value: str = "average_jct") -> Paired:
    return paired(rows, value=value, series="policy", first=first, second=second, unit=HOUR)


def _saturation(results: pd.DataFrame) -> str:
    """At which loads policies no longer keep up."""
    saturated = results[results["status"] == "saturated"].groupby("policy", sort=False)["jobs_per_hour"].min()
    if not len(saturated):
        return f"No policy saturates at up to {results['jobs_per_hour'].max():g} jobs per hour."
    return sentence(f"some can no longer keep up: {listed(f'`{name}` at {at:g}' for name, at in saturated.items())}")


def finish_time_fairness(results: pd.DataFrame) -> list[str]:
    """Finish-time fairness, gangs."""
    blind, aware = "finish_time_fairness", "finish_time_fairness_perf"
    load = _busiest(results)
    rows = results[results["jobs_per_hour"] == load]
    worst = paired(rows, value="worst_rho", series="policy", first=aware, second=blind)
    unfair = paired(rows, value="unfair_fraction", series="policy", first=aware, second=blind, unit=0.01)
    pair = _hours(rows, aware, blind)
    return [
        sentence(
            f"with throughputs known, {plus_minus(unfair.first, digits=0)} % of the jobs take over 5 % longer than "
            f"alone on their share of the cluster, and without, {plus_minus(unfair.second, digits=0)} % (means over "
            f"{few(len(unfair.first))} seeds, 95 % intervals), at {load:g} jobs per hour, the largest load that both "
            "bear"
        ),
        sentence(
            f"the worst rho, that of a single job, is {'lower' if worst.means[0] < worst.means[1] else 'higher'} with "
            f"throughputs, {worst.means[0]:.2f} and {worst.means[1]:.2f}, {worst.on_same_jobs('', 2)}"
        ),
        sentence(
            f"average JCT, which is not the objective, is {compared(*pair.means, more='longer', less='shorter')} with "
            f"throughputs ({pair.means[0]:.1f} and {pair.means[1]:.1f} h), {pair.on_same_jobs()}"
        ),
        "The paper's notebooks print 18.5 h with and 26.1 h without throughputs at 1.0 jobs per hour on 108 GPUs, "
        "and 33.9 and 64.4 h at 2.6.",
    ]


def makespan(results: pd.DataFrame) -> list[str]:
    """Makespan, gangs."""
    aware, blind, packed = "min_total_duration_perf", "min_total_duration", "min_total_duration_packed"
    n = int(results["submitted_jobs"].max())
    rows = results[results["submitted_jobs"] == n]
    pair, sharing = (_hours(rows, first, second, "makespan") for first, second in ((aware, blind), (packed, aware)))
    spans = rows.groupby("policy", sort=False)["makespan"].mean() / HOUR
    times = rows.groupby("policy", sort=False)["average_jct"].mean() / HOUR
    return [
        sentence(
            f"with throughputs known, {n} jobs have a makespan {compared(*pair.means, more='longer', less='shorter')} "
            f"than without: {plus_minus(pair.first, digits=0)} h under `{aware}` and "
            f"{plus_minus(pair.second, digits=0)} h under `{blind}` (means over {few(len(pair.first))} seeds, 95 % "
            "intervals)"
        ),
        sentence(f"it is {'shorter' if pair.means[0] < pair.means[1] else 'longer'} {pair.on_same_jobs(digits=0)}"),
        sentence(
            f"space sharing makes it {compared(*sharing.means, more='longer', less='shorter')}, "
            f"{sharing.on_same_jobs(digits=0)}"
        ),
        sentence(
            f"the shortest makespan is that of `{spans.idxmin()}`, {spans.min():.0f} h, the longest that of "
            f"`{spans.idxmax()}`, {spans.max():.0f} h"
            + (
                ", whose jobs keep whatever type they drew, and wait behind the first gang that does not fit"
                if spans.idxmax() == "fifo"
                else ""
            )
        ),
        sentence(
            f"the shortest average JCT is that of `{times.idxmin()}`, {times.min():.0f} h"
            + (
                f" beside {times[aware]:.0f} h under `{aware}`: to end early, long jobs have to start early, and short "
                "ones wait"
                if times.idxmin() != aware
                else ""
            )
        ),
        "The paper's notebooks print 426.6 h for FIFO, 263.9 h for Gandiva, 169.4 h with throughputs and 168.1 h "
        "with space sharing, for 500 jobs on 108 GPUs.",
    ]


def priorities(results: pd.DataFrame) -> list[str]:
    """Weights, gangs."""
    blind, aware = "max_min_fairness", "max_min_fairness_perf"
    load, lightest = _busiest(results), float(results["jobs_per_hour"].min())
    rows = results[results["jobs_per_hour"] == load]
    heavy, light = (_hours(rows, aware, blind, f"average_jct_weight_{weight}") for weight in (5, 1))
    own = results[results["policy"] == aware]
    means = {weight: own.groupby("jobs_per_hour")[f"average_jct_weight_{weight}"].mean() for weight in (5, 1)}
    growth = {weight: figures[load] / figures[lightest] for weight, figures in means.items()}
    return [
        sentence(
            "with throughputs known, average JCT of jobs of weight 5 is "
            f"{compared(*heavy.means, more='longer', less='shorter')} than without at {load:g} jobs per hour, the "
            f"largest load that both bear: {plus_minus(heavy.first)} and {plus_minus(heavy.second)} h (means over "
            f"{few(len(heavy.first))} seeds, 95 % intervals)"
        ),
        sentence(f"it is {'shorter' if heavy.means[0] < heavy.means[1] else 'longer'} {heavy.on_same_jobs()}"),
        sentence(
            f"that of weight 1 is {compared(*light.means, more='longer', less='shorter')} ({light.means[0]:.1f} and "
            f"{light.means[1]:.1f} h), {light.on_same_jobs()}"
        ),
        sentence(
            f"as the load grows from {lightest:g} to {load:g} jobs per hour, average JCT under `{aware}` is "
            f"{growth[5]:.2f} times what it was for weight 5 and {growth[1]:.2f} times for weight 1"
            + (
                ": the wait falls to those of small weight, as it should"
                if growth[5] < growth[1]
                else ", so that weights do not yet decide who waits"
            )
        ),
        "A fifth of the jobs has weight 5, and a few long ones make their average, which is why its intervals are "
        "wide; there is no recorded figure of the paper to compare with.",
    ]
