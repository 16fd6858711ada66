"""The studies that come with the benchmarks: they are sweeps, and the full ones match the published curves."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from allocator.sweep import Sweep
from allocator.sweep.execute import Materials, run_point

STUDIES = sorted((Path(__file__).resolve().parents[2] / "benchmarks" / "studies").glob("*.toml"))

# Study, trace and policy in the published table.
CURVES = [
    ("las_single_gpu", "single", "max_min_fairness_perf"),
    ("las_multi_gpu", "multi", "max_min_fairness_perf"),
    ("finish_time_fairness", "multi", "finish_time_fairness_perf"),
]


def test_there_are_studies():
    names = {path.stem for path in STUDIES}
    assert names >= {"las_single_gpu", "las_multi_gpu", "finish_time_fairness", "makespan", "mechanism_fidelity",
                     "priorities", "hierarchical", "estimation", "policy_runtimes", "shockwave_canonical",
                     "shockwave_contention", "shockwave_fairness_rows", "shockwave_scale",
                     "shockwave_tradeoff"}  # fmt: skip


def _but_sizes(sweep):
    """The cases of a sweep but those that are sizes of clusters, which are smaller in the small variant."""
    return {point.case for point in sweep.points() if not point.case.endswith(" GPUs")}


@pytest.mark.parametrize("path", STUDIES, ids=lambda path: path.stem)
def test_both_variants_are_sweeps(path):
    full, small = Sweep.from_toml(path), Sweep.from_toml(path, small=True)
    assert full.description
    assert {p.policy for p in small.points()} == {p.policy for p in full.points()}
    assert _but_sizes(small) <= _but_sizes(full)
    assert len(small.points()) < len(full.points())
    if "OSDI 2020" in full.description:
        assert full.seeds == (0, 1, 2)
    if "OSDI 2020" in full.description and full.kind != "decision":
        assert {p.cluster for p in full.points()} == {"v100:36,p100:36,k80:36"}


@pytest.mark.parametrize("small", [True, False])
@pytest.mark.parametrize("path", STUDIES, ids=lambda path: path.stem)
def test_all_are_compared_on_the_same_three_draws_or_more(path, small):
    seeds: dict[tuple[object, ...], set[int]] = {}
    for point in Sweep.from_toml(path, small=small).points():
        others = tuple(sorted({**point.policy_settings}.items(), key=str))
        seeds.setdefault((point.case, point.cluster, point.load, point.preset, point.policy, others), set()).add(
            point.seed
        )
    assert min(map(len, seeds.values())) >= 3
    by_load = {(case, cluster, load): found for (case, cluster, load, *_), found in seeds.items()}
    assert all(found == by_load[key[:3]] for key, found in seeds.items())


@pytest.mark.parametrize("path", STUDIES, ids=lambda path: path.stem)
def test_the_heaviest_policy_of_the_small_variant_completes(path):
    point = Sweep.from_toml(path, small=True).points()[-1]
    record = run_point(point, Materials.of([point]), log=lambda _: None, report=lambda _: None).record
    assert record["status"] == "completed", record["status_detail"]
    assert record["figures"].get("completed_jobs", point.load) > 0


def test_studies_have_the_policies_of_the_published_curves(reference_data):
    published = pd.read_csv(reference_data("gavel/published_mean_jct_by_rate.csv"))
    for study, trace in (("las_single_gpu", "single"), ("las_multi_gpu", "multi")):
        groups = published[(published["trace"] == trace) & published["group_policies"].str.contains("max_min")]
        sweep = Sweep.from_toml(next(path for path in STUDIES if path.stem == study))
        assert {name for name, _ in sweep.policies} == set(groups["policy"])


def test_the_hierarchy_is_that_of_the_published_figure():
    points = Sweep.from_toml(next(path for path in STUDIES if path.stem == "hierarchical")).points()
    assert {p.load for p in points} == set(range(1, 19))
    for point in points:
        assert [(e["weight"], e["policy"], e["jobs"]) for e in point.workload.entities] == [
            (w, point.case, 6) for w in (1, 2, 3)
        ]
    assert {p.cluster for p in points} == {"v100:3,p100:3,k80:3"}


def test_run_times_are_measured_with_a_quarter_of_the_jobs_as_gpus_of_each_type():
    points = Sweep.from_toml(next(path for path in STUDIES if path.stem == "policy_runtimes")).points()
    for point in points:
        quarter = int(point.load / 4)
        assert point.cluster == f"v100:{quarter},p100:{quarter},k80:{quarter}"
    assert max(p.load for p in points) == 8192


def test_estimation_profiles_from_a_tenth_to_everything():
    points = Sweep.from_toml(next(path for path in STUDIES if path.stem == "estimation")).points()
    settings = {(p.workload.profiling_percentage, p.workload.reference_models) for p in points}
    assert settings == {(None, None)} | {(p, n) for p in (0.1, 0.5, 1.0) for n in (4, 16, 26)}
    assert all(not p.workload.estimated for p in points if p.policy == "max_min_fairness_perf")


@pytest.mark.parametrize(("study", "trace", "policy"), CURVES)
def test_full_studies_have_the_points_of_the_published_curves(study, trace, policy, reference_data):
    published = pd.read_csv(reference_data("gavel/published_mean_jct_by_rate.csv"))
    curve = published[(published["trace"] == trace) & (published["policy"] == policy)]
    sweep = Sweep.from_toml(next(path for path in STUDIES if path.stem == study))
    points = [p for p in sweep.points() if p.policy == policy and p.seed == 0]
    assert {p.load for p in points} == set(curve["input_job_rate_per_hr"])
    assert all(p.window == (4000, 5000) and p.workload.multi_gpu == (trace == "multi") for p in points)
    assert all(p.preset == "gavel" and p.workload.generator == "gavel" for p in points)
