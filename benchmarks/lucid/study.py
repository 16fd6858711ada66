"""The study of Lucid: every policy on the same draws of jobs, as tables of the runs and of groups of jobs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.lucid.setting import BUDGETS, BUSY, FORMS, ORDERS, SERVERS, Setting

if TYPE_CHECKING:
    import pandas as pd
    from rich.console import Console

    from allocator import SimulationResult

LARGEST_SMALL_GANG = 8
"""Jobs with more GPUs are large (Lucid, table 5)."""
PUBLISHED_BUDGET = 2


@dataclass(frozen=True)
class Study:
    """Jobs and clusters of a study.

    Attributes
    ----------
    jobs : of each draw.
    servers : with eight GPUs, of each virtual cluster.
    load : GPU time that is asked for while jobs arrive, over what there is.
    seeds : of the draws.
    """

    jobs: int
    servers: tuple[int, ...]
    load: float = BUSY
    seeds: tuple[int, ...] = (0, 1, 2)

    @classmethod
    def of_size(cls, *, small: bool) -> Study:
        """400 jobs on five virtual clusters with 232 GPUs, or 6,000 on fifteen with 1,080."""
        return cls(400, (12, 8, 5, 3, 1)) if small else cls(6_000, SERVERS)


def run_study(study: Study, *, console: Console | None = None) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Run all forms under all score budgets, and all orders.

    Parameters
    ----------
    study : what is run.
    console : for a word on what is being run; None: none.

    Returns
    -------
    (runs, groups). Of `runs` a row for each policy, score budget and draw: ``policy``, ``score_budget`` (nan for
    orders), ``seed``, ``status``, ``submitted_jobs``, ``average_jct``, ``p99_jct``, ``average_queueing`` (seconds).
    Of `groups`, under the published budget of 2, a row for each virtual cluster and size: ``policy``, ``seed``,
    ``status``, ``virtual_cluster``, ``gpus`` of that, ``size`` (``up to 8 GPUs`` or ``more``), ``jobs``, and the sums
    ``jct`` and ``queueing`` (seconds).
    """
    import pandas as pd

    runs: list[dict[str, Any]] = []
    groups: list[pd.DataFrame] = []
    for seed in study.seeds:
        setting = Setting.drawn(study.jobs, seed, study.load, study.servers)
        for policy, budget in _variants():
            if console is not None:
                console.print(f"{policy}, draw {seed}", style="dim")
            given = {} if budget is None else {"score_budget": budget}
            result = setting.run(policy, **given)
            labels = {"policy": policy, "seed": seed, "status": result.status}
            runs.append(labels | {"score_budget": budget} | _figures(result.jobs))
            if budget in (None, PUBLISHED_BUDGET):
                groups.append(_by_group(setting, result).assign(**labels))
    whole = pd.DataFrame(runs)
    return whole.assign(score_budget=whole["score_budget"].astype(float)), pd.concat(groups, ignore_index=True)


def _variants() -> Sequence[tuple[str, int | None]]:
    return [*((form, budget) for form in FORMS for budget in BUDGETS), *((order, None) for order in ORDERS)]


def _figures(jobs: pd.DataFrame) -> dict[str, float]:
    return {
        "submitted_jobs": len(jobs),
        "average_jct": float(jobs["jct"].mean()),
        "p99_jct": float(jobs["jct"].quantile(0.99)),
        "average_queueing": float(jobs["queueing_time"].mean()),
    }


def _by_group(setting: Setting, result: SimulationResult) -> pd.DataFrame:
    """Jobs and sums of their JCT and queueing, by virtual cluster and size."""
    jobs = result.jobs
    named = jobs.assign(
        virtual_cluster=jobs["partition"],
        size=np.where(jobs["scale_factor"] <= LARGEST_SMALL_GANG, f"up to {LARGEST_SMALL_GANG} GPUs", "more"),
    )
    keys = ["virtual_cluster", "size"]
    summed = named.groupby(keys, sort=False).agg(
        jobs=("jct", "size"), jct=("jct", "sum"), queueing=("queueing_time", "sum")
    )
    table = summed.reset_index()
    gpus = dict(zip(setting.cluster.accelerators, setting.cluster.capacity.tolist(), strict=True))
    return table.assign(gpus=table["virtual_cluster"].map(gpus))
