"""The comparison of Shockwave's paper by one command, and policies with settings from presets and the command line."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from allocator.published.shockwave import SHOCKWAVE_COMPARISON
from allocator.published.shockwave.generator import shockwave_trace
from tests.cli.command import ran, refused, told
from throughputs import write_trace

JOBS = 6
COMPARE = "compare --preset shockwave"


@pytest.fixture(scope="module")
def compared(tmp_path_factory):
    """The seven policies of the paper and its fair share, on few jobs."""
    out = tmp_path_factory.mktemp("compared")
    names = ",".join([*SHOCKWAVE_COMPARISON, "isolated_plus"])
    shown = ran(f"{COMPARE} --jobs {JOBS} --cluster v100:4 --policies {names} --out {out}").out
    return out, shown, {row["policy"]: row for row in json.loads((out / "comparison.json").read_text())}


@pytest.mark.exhaustive
def test_jobs_names_and_settings_are_those_of_the_paper(compared):
    out, shown, rows = compared
    expected = shockwave_trace(JOBS, 40.0, seed=25)
    assert list(rows) == [*SHOCKWAVE_COMPARISON, "isolated_plus"]
    fair = pd.read_csv(out / "isolated_plus" / "jobs.csv")["jct"]
    for name, row in rows.items():
        jobs = pd.read_csv(out / name / "jobs.csv")
        assert jobs["job_type"].tolist() == list(expected.job_type)
        np.testing.assert_allclose(jobs["arrival_time"], expected.arrival_time)
        np.testing.assert_allclose(jobs["rho_isolated"], jobs["jct"] / fair)
        assert row["worst_rho_isolated"] == pytest.approx((jobs["jct"] / fair).max())
    for name, label in (("shockwave", "Shockwave"), ("min_total_duration", "OSSP"), ("isolated_plus", "Fair share")):
        assert rows[name]["paper_label"] == label
        line = next(line for line in shown.splitlines() if line.startswith(f" {name} ("))
        assert f"({label})" in line
        assert f" {rows[name]['worst_rho_static']:.2f}" in line
    used = {name: row["settings"]["policy_settings"] for name, row in rows.items()}
    assert (used["allox"]["alpha"], used["allox"]["gangs"]) == (0.2, "one_gpu_share")
    assert used["max_min_fairness"]["choice"] == used["min_total_duration"]["choice"] == "published"


@pytest.mark.usefixtures("folder")
def test_what_is_said_stands_above_the_preset():
    write_trace(shockwave_trace(4, 300.0, seed=3), "own.csv")
    own = "--solver highs --set policy.alpha=0.5 --set round_seconds=240"
    allox, las = told(f"{COMPARE} --trace own.csv --policies allox,max_min_fairness --cluster v100:3 --out a {own}")
    assert (allox["jobs"], allox["settings"]["policy_settings"]["alpha"]) == (4, 0.5)
    assert allox["settings"]["policy_settings"]["gangs"] == "one_gpu_share"
    assert (las["settings"]["policy_settings"]["solver"], las["settings"]["round_seconds"]) == ("highs", 240)
    assert "worst_rho_isolated" not in allox
    ran(f"{COMPARE} --policies gandiva_fair --jobs 4 --cluster v100:2 --seed 7 --out b")
    jobs = pd.read_csv("b/gandiva_fair/jobs.csv")
    np.testing.assert_allclose(jobs["arrival_time"], shockwave_trace(4, 40.0, seed=7).arrival_time)
    # a solver goes to those who know it
    rows = told(f"{COMPARE} --policies shockwave,max_min_fairness --jobs 2 --cluster v100:2 --solver clarabel --out c")
    assert [row["settings"]["policy_settings"]["solver"] for row in rows] == ["auto", "clarabel"]
    run = "simulate --trace own.csv --policy shockwave --preset shockwave_published --cluster v100:3 --out run"
    used = told(f"{run} --set policy.future_rounds=5 --set policy.bases=[0,0.5,1]")["settings"]
    given = used["policy_settings"]
    assert (given["future_rounds"], given["bases"], given["momentum"]) == (5, [0, 0.5, 1], 0.9)
    assert (given["fairness_rows"], used["fairness"]) == ("published", "static")


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ("shockwave,allox --set policy.future_round=3", ["'future_rounds'"]),
        ("gandiva_fair --set policy.alpha=3", ["alpha"]),
        ("shockwave --set policy.forecast=magic", ["forecast", "oracle, causal, true"]),
        ("shockwave --solver clarabel", ["auto, highs, cbc"]),
        ("shockwave --set fairness=static", ["--set", "'fairness'"]),
        ("shockwave,shockwave", ["--policies", "'shockwave'"]),
    ],
)
def test_what_cannot_be_set_is_said(folder: Path, asked, words):
    message = refused(f"{COMPARE} --out . --policies {asked}")
    assert [word for word in words if word not in message] == [], message
    assert not any(folder.iterdir())
