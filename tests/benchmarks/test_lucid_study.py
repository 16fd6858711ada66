"""The study of Lucid: all policies on the same jobs, and groups of jobs that add up to the runs."""

from __future__ import annotations

import pandas as pd
import pytest
from rich.console import Console

from benchmarks.lucid import BUDGETS, FORMS, ORDERS, Study, run_study

pytestmark = pytest.mark.exhaustive

STUDY = Study(60, (3, 1), load=2.0, seeds=(0, 1))


@pytest.fixture(scope="module")
def tables() -> tuple[pd.DataFrame, pd.DataFrame]:
    return run_study(STUDY, console=Console(quiet=True))


def test_every_policy_runs_every_draw_to_the_end(tables: tuple[pd.DataFrame, pd.DataFrame]) -> None:
    runs, _ = tables
    assert len(runs) == 2 * (len(FORMS) * len(BUDGETS) + len(ORDERS))
    assert set(runs["status"]) == {"completed"}
    assert runs["score_budget"].isna().sum() == 2 * len(ORDERS)
    waits = runs.groupby("policy")["average_queueing"].mean()
    assert waits.idxmax() == "fifo"  # which lets nobody pass
    # A budget changes who shares, and nothing else: without one that does, the two forms with free GPUs first agree.
    least = runs[runs["score_budget"] == 0].set_index(["policy", "seed"])["average_jct"]
    assert (least["lucid"] == least["lucid_program"]).all()
    assert runs[runs["policy"] == "lucid"].groupby("score_budget")["average_queueing"].mean().nunique() > 1


def test_groups_add_up_to_their_runs(tables: tuple[pd.DataFrame, pd.DataFrame]) -> None:
    runs, groups = tables
    usual = runs[runs["score_budget"].isna() | (runs["score_budget"] == 2)].set_index(["policy", "seed"])
    summed = groups.groupby(["policy", "seed"])[["jobs", "jct", "queueing"]].sum()
    assert (summed["jobs"] == STUDY.jobs).all()
    assert usual["average_jct"].loc[summed.index].to_numpy() == pytest.approx(summed["jct"] / STUDY.jobs)
    assert usual["average_queueing"].loc[summed.index].to_numpy() == pytest.approx(summed["queueing"] / STUDY.jobs)
    assert set(zip(groups["virtual_cluster"], groups["gpus"], strict=True)) == {("vc1", 24), ("vc2", 8)}
    assert set(groups["size"]) == {"up to 8 GPUs", "more"}
