"""What sharing GPUs under a score is worth on virtual clusters, beside orders under which nobody shares."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.findings.words import compared, few, listed, paired, plus_minus, sentence

if TYPE_CHECKING:
    import pandas as pd

JCT, QUEUEING, HOUR = "average_jct", "average_queueing", 3600.0
ORDERS = ("fifo", "sjf", "srtf", "qssf", "tiresias")
FORMS = ("lucid, as published", "lucid", "lucid_program")
PUBLISHED_BUDGET = 2.0


def lucid(runs: pd.DataFrame, groups: pd.DataFrame) -> list[str]:
    """The forms of Lucid beside the orders of its paper, by score budget, virtual cluster and size.

    Parameters
    ----------
    runs, groups : of `benchmarks.lucid.run_study`.
    """
    usual = runs[runs["score_budget"].isna() | (runs["score_budget"] == PUBLISHED_BUDGET)]
    means = usual.groupby("policy", sort=False)[JCT].mean() / HOUR
    own = usual[usual["policy"] == "lucid"]
    beside = paired(usual, value=JCT, series="policy", first="lucid", second="qssf", unit=HOUR)
    best = means[[name for name in ORDERS if name in means]].idxmin()
    return [
        sentence(
            f"average JCT under `lucid` is {plus_minus(own[JCT], unit=HOUR, digits=2, name='h')}, "
            f"{compared(*beside.means, more='longer', less='shorter')} than under `qssf`, which has the same "
            f"predictions and shares no GPUs, {beside.on_same_jobs(digits=2)}"
        ),
        sentence(
            f"it is {_other(means, 'lucid', 'fifo')} under `fifo` and {_other(means, 'lucid', 'tiresias')} under "
            f"`tiresias`; the best of the orders is `{best}` with {means[best]:.2f} h, which "
            + (
                "stops jobs and knows how long they still run"
                if best == "srtf"
                else f"{'does not know' if best in ('fifo', 'tiresias') else 'reckons with'} how long jobs run"
            )
        ),
        sentence(
            "score budgets of "
            + listed(f"{budget:g}" for budget in sorted(runs["score_budget"].dropna().unique()))
            + " give average JCT of "
            + "; ".join(f"{_by_budget(runs, form)} h under `{form}`" for form in FORMS)
        ),
        sentence(
            f"without a limit instead of the published budget of 2 average JCT is "
            f"{_without_limit(runs, 'lucid, as published')} under the published rules, by which jobs share even where "
            f"GPUs are free, and {_without_limit(runs, 'lucid')} under `lucid`, where they share only for want of free "
            f"GPUs"
        ),
        sentence(
            f"the best pairs instead of the first host (`lucid_program`) make JCT "
            f"{_other(means, 'lucid_program', 'lucid')} under `lucid` (means over {few(int(usual['seed'].nunique()))} "
            f"draws of jobs)"
        ),
        _virtual_clusters(groups),
        _sizes(groups),
        "The paper reports average JCT up to 1.3 times shorter than under Tiresias, on traces of Venus, Saturn and "
        "Philly, and measured speeds of pairs; jobs, predictions and slowdowns are drawn here.",
    ]


def _other(means: pd.Series[float], first: str, second: str) -> str:
    """How the first stands to the second: ``3 % longer than``."""
    said = compared(float(means[first]), float(means[second]), more="longer", less="shorter", same="")
    return f"{said} than" if said else "about the same as"


def _by_budget(runs: pd.DataFrame, form: str) -> str:
    own = runs[runs["policy"] == form].groupby("score_budget")[JCT].mean() / HOUR
    return listed(f"{hours:.2f}" for hours in own)


def _without_limit(runs: pd.DataFrame, form: str) -> str:
    own = runs[runs["policy"] == form].groupby("score_budget")[JCT].mean()
    largest = float(own.index.to_numpy().max())
    return compared(float(own[largest]), float(own[PUBLISHED_BUDGET]), more="longer", less="shorter")


def _virtual_clusters(groups: pd.DataFrame) -> str:
    """Waiting on the smallest and on the largest virtual cluster."""
    waits = _hours(groups, "gpus")
    least, most = waits.columns.min(), waits.columns.max()
    return sentence(
        f"on virtual clusters of {least} GPUs jobs wait {waits.loc['lucid', least]:.2f} h under `lucid` and "
        f"{waits.loc['fifo', least]:.2f} h under `fifo`, on that of {most} GPUs {waits.loc['lucid', most]:.2f} and "
        f"{waits.loc['fifo', most]:.2f} h: GPUs are not lent between them"
    )


def _sizes(groups: pd.DataFrame) -> str:
    """Waiting of small and large jobs."""
    waits = _hours(groups, "size")
    small, large = (float(waits.loc["lucid", size] / waits.loc["fifo", size]) for size in waits.columns)
    jobs = groups[groups["policy"] == "lucid"].groupby("size", sort=False)["jobs"].sum()
    return sentence(
        f"jobs of up to 8 GPUs wait {_times(small)} as long under `lucid` as under `fifo`, the "
        f"{int(jobs['more'])} of {int(jobs.sum()):,} with more GPUs {_times(large)}"
        + (": smaller jobs pass those that wait for whole servers" if large > 1.0 else "")
    )


def _times(ratio: float) -> str:
    return f"{ratio:.2f} times"


def _hours(groups: pd.DataFrame, column: str) -> pd.DataFrame:
    """Mean queueing in hours, policies by the values of a column in ascending order; small jobs before large ones."""
    summed = groups.groupby(["policy", column], sort=False)[["queueing", "jobs"]].sum()
    table = (summed["queueing"] / summed["jobs"] / HOUR).unstack()
    return table[sorted(table.columns, reverse=column == "size")]
