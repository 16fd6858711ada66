"""Values of options, by hand: times counted from now or from the first job, and prices of every type."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from tests.cli.command import ran, told

pytestmark = pytest.mark.usefixtures("folder")


def test_within_counts_from_now() -> None:
    answer = told("admit --cluster v100:1 --job-type A3C --steps 9 --clock 5000 --within 900")
    assert (answer["admitted"], answer["deadline"], answer["plan"][0]["start"]) == (True, 5900.0, 5000.0)


def test_the_first_arrival_becomes_second_0() -> None:
    head = "job_id,submit_time,iteration,model_name,ddl,batch_size,num_gpu,duration,best_effort\n"
    Path("late.csv").write_text(f"{head}a,50,3600,bert,9000,64,1,3600,0\nb,60,7200,bert,3700,64,2,3600,0\n")
    ran("trace convert late.csv p.csv --to pollux --lossy --start first")
    assert pd.read_csv("p.csv")[["time", "ddl"]].to_numpy().tolist() == [[0, 8950], [10, 3650]]


def test_each_type_has_its_price() -> None:
    """Of 2.50 and 0.50 an hour, owned until the last job is through."""
    ran("trace generate --jobs 2 --single-gpu --out jobs.csv")
    run = "simulate --trace jobs.csv --policy fifo --cluster v100:1,k80:1 --prices v100:2.5,k80:0.5 --out out"
    summary = told(run)
    assert summary["owned_cost"] == pytest.approx(3.0 * summary["makespan"] / 3600.0)
