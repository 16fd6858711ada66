"""The comparison of Shockwave's paper by one command, and policies with settings from presets and the command line."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from allocator.cli.app import app
from allocator.policies.paper_labels import SHOCKWAVE_COMPARISON
from allocator.presets import Comparison, Preset, preset
from allocator.registry import get_policy
from allocator.sweep.definition.point import Point
from throughputs import InputError, write_trace
from throughputs.traces.shockwave_generator import shockwave_trace

JOBS = 9


def invoke(*arguments):
    done = CliRunner().invoke(app, [str(argument) for argument in arguments])
    if isinstance(done.exception, InputError):
        raise done.exception
    assert done.exit_code == 0, done.output
    return done.stdout


@pytest.fixture(scope="module")
def compared(tmp_path_factory):
    """The seven policies of the paper and its fair share, on few jobs."""
    out = tmp_path_factory.mktemp("compared")
    names = [*SHOCKWAVE_COMPARISON, "isolated_plus"]
    arguments = ["--jobs", JOBS, "--cluster", "v100:4", "--policies", ",".join(names), "--out", out]
    shown = invoke("compare", "--preset", "shockwave", *arguments)
    return out, shown, {row["policy"]: row for row in json.loads((out / "comparison.json").read_text())}


def test_the_preset_names_the_canonical_comparison():
    usual = preset("shockwave").comparison
    assert usual.policies == tuple(SHOCKWAVE_COMPARISON)
    assert (usual.cluster, usual.jobs, usual.mean_interarrival_seconds, usual.seed) == ("v100:32", 120, 40.0, 25)
    assert preset("default").comparison == preset("gavel").comparison == Comparison()
    assert preset("shockwave").replace(round_seconds=60).comparison == usual


def test_without_a_trace_the_jobs_are_those_of_the_paper(compared):
    out, _, _ = compared
    expected = shockwave_trace(JOBS, 40.0, seed=25)
    for name in ("shockwave", "gandiva_fair"):
        jobs = pd.read_csv(out / name / "jobs.csv")
        assert jobs["job_type"].tolist() == list(expected.job_type)
        assert jobs["scale_factor"].tolist() == expected.scale_factor.tolist()
        np.testing.assert_allclose(jobs["arrival_time"], expected.arrival_time)


def test_figures_stand_under_the_names_of_the_paper(compared):
    _, shown, summaries = compared
    assert list(summaries) == [*SHOCKWAVE_COMPARISON, "isolated_plus"]
    for name, label in (("shockwave", "Shockwave"), ("min_total_duration", "OSSP"), ("isolated_plus", "Fair share")):
        assert summaries[name]["paper_label"] == label
        row = next(line for line in shown.splitlines() if line.startswith(f" {name} ("))
        assert f"({label})" in row
        assert f" {summaries[name]['worst_rho_static']:.2f}" in row
    assert "jobs of the trace per GPU" in shown


def test_bars_tell_the_ratio_to_the_first(compared):
    _, shown, summaries = compared
    lines = shown.splitlines()
    titles = [line.split("  ")[0].strip() for line in lines]
    start = titles.index("makespan (h)") + 1
    themis = next(line for line in lines[start:] if line.startswith("Themis"))
    ratio = summaries["finish_time_fairness"]["makespan"] / summaries["shockwave"]["makespan"]
    assert f"x{ratio:.2f}" in themis
    for title in ("average JCT (h)", "worst rho", "unfair jobs (%)"):
        assert title in shown


def test_the_report_has_four_panels(compared):
    out, _, summaries = compared
    page = (out / "report.html").read_text()
    assert page.count('class="chart panel"') == 4
    assert "finish_time_fairness (Themis)" in page
    worst = summaries["max_min_fairness"]["worst_rho_static"]
    assert f'data-value="{worst:.9g}"' in page


def test_the_steps_of_the_paper_are_pointed_out(compared):
    _, shown, _ = compared
    assert "shockwave-throughputs" in shown


def test_policies_have_the_settings_of_the_preset(compared):
    _, _, summaries = compared
    used = {name: row["settings"]["policy_settings"] for name, row in summaries.items()}
    assert (used["allox"]["alpha"], used["allox"]["gangs"]) == (0.2, "one_gpu_share")
    assert used["max_min_fairness"]["choice"] == used["min_total_duration"]["choice"] == "published"


def test_rho_with_the_fair_share_as_denominator(compared):
    out, shown, summaries = compared
    fair = pd.read_csv(out / "isolated_plus" / "jobs.csv")
    for name, summary in summaries.items():
        jobs = pd.read_csv(out / name / "jobs.csv")
        np.testing.assert_allclose(jobs["rho_isolated"], jobs["jct"] / fair["jct"])
        assert summary["worst_rho_isolated"] == pytest.approx((jobs["jct"] / fair["jct"]).max())
    assert summaries["isolated_plus"]["worst_rho_isolated"] == 1.0
    assert "rho_isolated" in shown


def test_without_the_fair_share_there_is_no_such_column(tmp_path):
    arguments = ["--policies", "gandiva_fair,isolated", "--jobs", 4, "--cluster", "v100:2", "--out", tmp_path]
    shown = invoke("compare", "--preset", "shockwave", *arguments, "--json")
    rows = json.loads(shown)
    assert [row["policy"] for row in rows] == ["gandiva_fair", "isolated"]
    assert not any("worst_rho_isolated" in row for row in rows)
    assert rows[0]["paper_label"] == "Gandiva-Fair"
    assert "paper_label" not in rows[1]


def test_a_trace_a_seed_and_settings_stand_above_the_preset(tmp_path):
    path = tmp_path / "own.csv"
    write_trace(shockwave_trace(5, 300.0, seed=3), path)
    arguments = [
        "--trace",
        path,
        "--policies",
        "allox,max_min_fairness",
        "--cluster",
        "v100:3",
        "--out",
        tmp_path / "a",
    ]
    own = ["--solver", "highs", "--set", "policy.alpha=0.5", "--set", "round_seconds=240"]
    rows = json.loads(invoke("compare", "--preset", "shockwave", *arguments, *own, "--json"))
    assert [row["jobs"] for row in rows] == [5, 5]
    allox, las = (row["settings"] for row in rows)
    assert (allox["policy_settings"]["alpha"], allox["policy_settings"]["gangs"]) == (0.5, "one_gpu_share")
    assert las["policy_settings"]["solver"] == "highs"
    assert las["round_seconds"] == 240
    drawn = ["--policies", "gandiva_fair", "--jobs", 4, "--cluster", "v100:2", "--seed", 7, "--out", tmp_path / "b"]
    invoke("compare", "--preset", "shockwave", *drawn)
    jobs = pd.read_csv(tmp_path / "b" / "gandiva_fair" / "jobs.csv")
    np.testing.assert_allclose(jobs["arrival_time"], shockwave_trace(4, 40.0, seed=7).arrival_time)


def test_a_solver_goes_to_those_who_know_it(tmp_path):
    arguments = ["--policies", "shockwave,max_min_fairness", "--jobs", 4, "--cluster", "v100:2", "--out", tmp_path]
    rows = json.loads(invoke("compare", "--preset", "shockwave", *arguments, "--solver", "clarabel", "--json"))
    assert [row["settings"]["policy_settings"]["solver"] for row in rows] == ["auto", "clarabel"]
    with pytest.raises(InputError, match="auto, highs, cbc"):
        invoke("compare", "--preset", "shockwave", "--policies", "shockwave", "--solver", "clarabel", "--out", tmp_path)


def test_simulate_takes_settings_of_the_policy(tmp_path):
    path = tmp_path / "own.csv"
    write_trace(shockwave_trace(5, 300.0, seed=3), path)
    arguments = ["--trace", path, "--policy", "shockwave", "--preset", "shockwave_published", "--out", tmp_path / "run"]
    own = ["--cluster", "v100:3", "--set", "policy.future_rounds=5", "--set", "policy.bases=[0,0.5,1]"]
    summary = json.loads(invoke("simulate", *arguments, *own, "--json"))
    used = summary["settings"]["policy_settings"]
    assert (used["future_rounds"], used["bases"]) == (5, [0, 0.5, 1])
    assert (used["fairness_rows"], used["clock"], used["priority_cap"]) == ("published", "rounds", None)
    assert summary["settings"]["fairness"] == "static"


@pytest.mark.parametrize(
    ("policies", "setting", "message"),
    [
        ("shockwave,allox", "policy.future_round=3", "did you mean 'future_rounds'"),
        ("gandiva_fair", "policy.alpha=3", "the policies have none"),
        ("shockwave", "policy.forecast=magic", "oracle, causal, true"),
        ("shockwave", "policy.solver=ecos", "auto, highs, cbc"),
        ("shockwave", "fairness=static", "--set: found .fairness., expected a setting of mechanism"),
    ],
)
def test_what_cannot_be_set_is_said(tmp_path, policies, setting, message):
    with pytest.raises(InputError, match=message):
        invoke("compare", "--preset", "shockwave", "--policies", policies, "--set", setting, "--out", tmp_path)
    assert not any(tmp_path.iterdir())


def test_sweeps_have_the_settings_of_the_preset_too():
    def made(policy, **own):
        return Point("static", policy, "v100:4", 5, 0, own, preset="shockwave").make_policy()

    assert (made("allox").alpha, made("allox").gangs) == (0.2, "one_gpu_share")
    assert (made("allox", alpha=0.7).alpha, made("allox", alpha=0.7).gangs) == (0.7, "one_gpu_share")
    assert made("max_min_fairness").choice == "published"
    assert get_policy("allox").alpha != 0.2


def test_a_preset_knows_its_yardsticks():
    with pytest.raises(InputError, match="isolated, static, themis"):
        Preset(fairness="equal")
