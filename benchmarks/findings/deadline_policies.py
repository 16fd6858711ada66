"""Jobs with deadlines: studies after D. Gu et al., ASPLOS 2023."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.findings.words import few, listed, paired, plus_minus, sentence

if TYPE_CHECKING:
    import pandas as pd

RATIO, PERCENT = "deadline_ratio", 0.01
OURS, AS_PUBLISHED = "elasticflow, ours", "elasticflow, published"


def deadlines(end_to_end: pd.DataFrame, tightness: pd.DataFrame, ablation: pd.DataFrame) -> list[str]:
    """Who keeps deadlines, and why: rows of three studies, with a column ``label``; an index is not looked at."""
    draws = int(end_to_end["seed"].nunique())
    over = f"means over {few(draws)} draws of jobs, 95 % intervals" if draws > 1 else "one trace, so no intervals"
    published = paired(end_to_end, value=RATIO, series="label", first=OURS, second=AS_PUBLISHED, unit=PERCENT)
    means = end_to_end.groupby("label", sort=False)[RATIO].mean() / PERCENT
    fixed = means.drop([name for name in means.index if name.startswith(("elasticflow", "edf"))])
    late = end_to_end[end_to_end["label"] == OURS]["late"].sum()
    half = tightness[tightness["case"].astype(float) < 1.0].groupby("label")[RATIO].mean() / PERCENT
    in_time = [name for name in fixed.index if half.get(name, 0.0) > 0.0]
    parts = _parts(ablation)
    return [
        sentence(
            f"ElasticFlow completes {plus_minus(published.first, digits=0)} % of the jobs by their deadlines as it is "
            f"here and {plus_minus(published.second, digits=0)} % as published, earliest deadline first "
            f"{means['edf']:.0f} %, and the best policy with fixed numbers of GPUs, `{fixed.idxmax()}`, "
            f"{fixed.max():.0f} % ({over})"
        ),
        sentence(
            "of the jobs that it lets in "
            + (
                "none is late: a promise is made only if a schedule is known that keeps it, and those before it"
                if late == 0
                else f"{late:.0f} are late, as decisions wait for slots and starts cost"
            )
        ),
        sentence(
            f"with deadlines at half of a job's duration ElasticFlow still has {half[OURS]:.0f} % in time, and of the "
            "policies with fixed numbers of GPUs "
            + (f"only {listed(f'`{name}`' for name in in_time)} any" if in_time else "none has any")
            + ", since only more GPUs make a job faster than it is alone"
        ),
        sentence(
            f"where decisions are free, earliest deadline first has {parts['edf']:.0f} % in time, with admission "
            f"{parts['edf_admission']:.0f} %, with elastic numbers of GPUs but no admission "
            f"{parts['elasticflow_no_admission']:.0f} %, and with both {parts[OURS]:.0f} %"
            + (
                ": neither does it alone"
                if parts[OURS] > 5.0 + max(parts["edf_admission"], parts["elasticflow_no_admission"])
                else "; with so few jobs on so many GPUs the parts hardly differ"
            )
        ),
        "On the testbed of 128 A100 the paper reports 67 % for ElasticFlow, 46 % for Tiresias, 41 % for Chronus, 39 "
        "% for Themis, 21 % for Gandiva and 9 % for EDF (figure 6b).",
    ]


def _parts(ablation: pd.DataFrame) -> pd.Series:
    """Jobs in time in per cent by policy, where decisions cost nothing, all jobs and the largest cluster."""
    gpus = ablation["cluster"].str.split(":").str[1].astype(int)
    whole = ablation["submitted_jobs"] == ablation["submitted_jobs"].max()
    rows = ablation[whole & (gpus == gpus[whole].max()) & (ablation["case"] == "nothing")]
    return rows.groupby("label")[RATIO].mean() / PERCENT
