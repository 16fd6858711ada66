"""The studies that come with the benchmarks: they are sweeps, and the full ones match what was published."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from allocator.sweep import Sweep
from tests.reference.tiers import tiered
from tests.sweep.sweep_definitions import single, trace_of
from throughputs import read_table, read_trace

STUDIES = {path.stem: path for path in sorted(Path(__file__).parents[2].glob("benchmarks/studies/*.toml"))}


def study(name: str, small: bool = False) -> Sweep:
    return Sweep.from_toml(STUDIES[name], small=small)


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", STUDIES)
def test_both_variants_compare_all_on_the_same_three_draws_or_more(name):
    full, small = (study(name, small=small) for small in (False, True))
    assert full.description
    points, few = full.points(), small.points()
    assert {p.policy for p in few} == {p.policy for p in points}
    assert len(few) < len(points)
    cases = ({p.case for p in each if not p.case.endswith(" GPUs")} for each in (few, points))
    assert set.issubset(*cases)
    if "OSDI 2020" in full.description:
        assert {case.seeds for case in full.cases} == {(0, 1, 2)}
        assert full.kind == "decision" or {p.cluster for p in points} == {"v100:36,p100:36,k80:36"}
    for each in (points, few):
        seeds: dict[tuple[object, ...], dict[object, set[int]]] = {}
        for p in each:
            own = (p.preset, p.policy, str(sorted(p.policy_settings.items(), key=str)))
            seeds.setdefault((p.case, p.cluster, p.load), {}).setdefault(own, set()).add(p.seed)
        for of_policies in seeds.values():
            first, *others = of_policies.values()
            assert len(first) >= 3
            assert all(other == first for other in others)
        if "shockwave" in name:
            assert len(each) == len({p.key for p in each})
            assert {(p.preset, p.workload.generator, p.workload.multi_gpu) for p in each} == {
                ("shockwave", "shockwave", True)
            }
            assert all(p.workload.mean_interarrival_seconds > 0 for p in each)


@pytest.mark.parametrize("name", tiered(STUDIES, gate=["makespan", "goodput", "shockwave_scale", "policy_runtimes"]))
def test_the_heaviest_policy_of_the_small_variant_completes(name):
    point = study(name, small=True).points()[-1]
    record = single(point).record
    assert record["status"] == "completed", record["status_detail"]
    assert record["figures"].get("completed_jobs", point.load) > 0


@pytest.mark.exhaustive
def test_the_points_of_the_published_curves(reference_data):
    published = pd.read_csv(reference_data("gavel/published_mean_jct_by_rate.csv"))
    for name, trace, policy in (
        ("las_single_gpu", "single", "max_min_fairness_perf"),
        ("las_multi_gpu", "multi", "max_min_fairness_perf"),
        ("finish_time_fairness", "multi", "finish_time_fairness_perf"),
    ):
        curves = published[published["trace"] == trace]
        rates = set(curves.loc[curves["policy"] == policy, "input_job_rate_per_hr"])
        points = [p for p in study(name).points() if p.policy == policy and p.seed == 0]
        assert {p.load for p in points} == rates
        assert all(p.window == (4000, 5000) and p.workload.multi_gpu == (trace == "multi") for p in points)
        assert {(p.preset, p.workload.generator) for p in points} == {("gavel", "gavel")}
        if name.startswith("las"):
            group = curves[curves["group_policies"].str.contains("max_min")]
            assert {name for name, _ in study(name).policies} == set(group["policy"])


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("name", "seed", "file", "table"),
    [
        ("shockwave_canonical", 25, "120_0.2_5_100_40_25", "tacc"),
        ("shockwave_scale", 15, "900_0.2_5_1000_5_15", "wisr"),
    ],
)
def test_jobs_of_a_study_are_those_of_the_published_trace(public_data, name, seed, file, table):
    expected = read_trace(next(public_data("shockwave/traces").glob(f"{file}_*")))
    point = next(p for p in study(name).points() if p.seed == seed)
    drawn = trace_of(point, read_table(public_data(f"shockwave/{table}_throughputs.json.gz")))(len(expected))
    assert point.load == len(expected)
    for column in ("job_type", "scale_factor", "mode", "total_steps", "arrival_time"):
        np.testing.assert_array_equal(getattr(drawn, column), getattr(expected, column))


def test_scales_are_those_of_the_published_configurations(public_data):
    found = {}
    for point in study("shockwave_scale").points():
        if point.policy == "shockwave":
            policy = point.make_policy()
            keys = ("makespan_weight", "fairness_exponent", "future_rounds", "relative_gap")
            found.setdefault(point.cluster, (point.load, point.seed, *(getattr(policy, key) for key in keys)))
    for gpus, load, seed in ((64, 220, 4), (128, 460, 1), (256, 900, 15)):
        published = json.loads(public_data(f"shockwave/configurations/scale_{gpus}gpus.json").read_text())
        keys = ("k", "lambda", "future_rounds", "solver_rel_gap")
        assert found.pop(f"v100:{gpus}") == (load, seed, *(published[key] for key in keys))
    assert not found
