"""The study of Lucid: all policies on the same jobs, and groups of jobs that add up to the runs."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd
import pytest

from benchmarks import lucid

pytestmark = pytest.mark.exhaustive

JOBS = 60


@pytest.fixture(scope="module")
def rows() -> pd.DataFrame:
    study = lucid.STUDIES["lucid"]
    return replace(study, runs=lambda _: lucid.runs_of(JOBS, (3, 1), load=2.0, seeds=(0, 1))).results()


def test_every_policy_runs_every_draw_to_the_end(rows: pd.DataFrame) -> None:
    runs = rows[rows["virtual_cluster"].isna()]
    assert len(runs) == 2 * (len(lucid.FORMS) * len(lucid.BUDGETS) + len(lucid.ORDERS))
    assert set(runs["status"]) == {"completed"}
    assert runs["score_budget"].isna().sum() == 2 * len(lucid.ORDERS)
    waits = runs.groupby("policy")["average_queueing"].mean()
    assert waits.idxmax() == "fifo"  # which lets nobody pass
    # A budget changes who shares, and nothing else: without one that does, the two forms with free GPUs first agree.
    least = runs[runs["score_budget"] == 0].set_index(["policy", "seed"])["average_jct"]
    assert (least["lucid"] == least["lucid_program"]).all()
    assert runs[runs["policy"] == "lucid"].groupby("score_budget")["average_queueing"].mean().nunique() > 1


def test_groups_add_up_to_their_runs(rows: pd.DataFrame) -> None:
    runs, groups = (rows[whole] for whole in (rows["virtual_cluster"].isna(), rows["virtual_cluster"].notna()))
    usual = runs[runs["score_budget"].isna() | (runs["score_budget"] == 2)].set_index(["policy", "seed"])
    summed = groups.groupby(["policy", "seed"])[["jobs", "jct", "queueing"]].sum()
    assert (summed["jobs"] == JOBS).all()
    assert usual["average_jct"].loc[summed.index].to_numpy() == pytest.approx(summed["jct"] / JOBS)
    assert usual["average_queueing"].loc[summed.index].to_numpy() == pytest.approx(summed["queueing"] / JOBS)
    assert set(zip(groups["virtual_cluster"], groups["gpus"], strict=True)) == {("vc1", 24), ("vc2", 8)}
    assert set(groups["size"]) == {"up to 8 GPUs", "more"}


def test_the_table_has_a_row_for_each_policy_and_budget(rows: pd.DataFrame) -> None:
    cells = lucid.STUDIES["lucid"].table(rows)
    assert len(cells) == len(lucid.FORMS) * len(lucid.BUDGETS) + len(lucid.ORDERS)
    assert cells["average JCT, h"].str.contains("\N{PLUS-MINUS SIGN}").all()
