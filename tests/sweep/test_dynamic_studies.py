"""Sweeps over jobs that change as they train, and the studies of them."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import numpy as np
import pytest

from allocator import Cluster
from allocator.cli.options.runs import RunOptions
from allocator.policies.paper_labels import SHOCKWAVE_COMPARISON
from allocator.presets import preset
from allocator.sweep import Point, Sweep, Workload, run
from allocator.sweep.execute import Materials, run_point
from allocator.sweep.jobs import trace_of
from allocator.variants import Variant
from tests.sweep.sweep_definitions import TINY, continuous, static
from throughputs import InputError, Trace, default_table
from throughputs.traces.shockwave_generator import shockwave_trace

STUDIES = Path(__file__).resolve().parents[2] / "benchmarks" / "studies"
COMPARISONS = ("shockwave_canonical", "shockwave_scale", "shockwave_contention", "shockwave_tradeoff")

DYNAMIC = {"generator": "shockwave", "multi_gpu": True, "mean_interarrival_seconds": 40}


def dynamic(load=30, seed=25, kind="static", **workload):
    return Point(kind, "isolated", "v100:8", load, seed, workload=Workload(**(DYNAMIC | workload)))


def study(name, *, small=False):
    return Sweep.from_toml(STUDIES / f"{name}.toml", small=small)


def assert_same(first, second):
    for name in Trace.column_names():
        np.testing.assert_array_equal(getattr(first, name), getattr(second, name))


# Workloads


def test_jobs_are_those_of_the_published_generator():
    assert_same(trace_of(dynamic(), default_table())(30), shockwave_trace(30, 40.0, seed=25))
    finer = trace_of(dynamic(n_durations=1000), default_table())(30)
    assert_same(finer, shockwave_trace(30, 40.0, seed=25, n_durations=1000))
    alone = trace_of(dynamic(multi_gpu=False), default_table())(30)
    assert set(alone.scale_factor) == {1}


def test_jobs_of_a_study_are_those_of_the_published_trace(public_data):
    from throughputs import read_table, read_trace

    points = {
        "shockwave_canonical": (25, "120_0.2_5_100_40_25", "tacc"),
        "shockwave_scale": (15, "900_0.2_5_1000_5_15", "wisr"),
    }
    for name, (seed, file, measured) in points.items():
        table = read_table(public_data(f"shockwave/{measured}_throughputs.json.gz"))
        expected = read_trace(next(public_data("shockwave/traces").glob(f"{file}_*")))
        point = next(p for p in study(name).points() if p.seed == seed)
        drawn = trace_of(point, table)(len(expected))
        assert point.load == len(expected)
        for column in ("job_type", "scale_factor", "mode", "total_steps", "arrival_time"):
            np.testing.assert_array_equal(getattr(drawn, column), getattr(expected, column))


@pytest.mark.parametrize("generator", ["gavel", "shockwave", "default"])
def test_jobs_of_a_static_sweep_may_arrive_one_after_the_other(generator):
    spaced = trace_of(dynamic(400, generator=generator, mean_interarrival_seconds=50), default_table())(400)
    gaps = np.diff(spaced.arrival_time)
    assert abs(gaps.mean() / 50 - 1) < 4 / np.sqrt(400)  # four standard errors of an exponential's mean
    together = trace_of(dynamic(400, generator=generator, mean_interarrival_seconds=None), default_table())(400)
    assert not together.arrival_time.any()


def test_a_longer_trace_begins_with_the_shorter():
    point = dynamic(2.0, kind="continuous", mean_interarrival_seconds=None, priorities=False, slos=True)
    jobs = trace_of(point, default_table())
    short, longer = jobs(20), jobs(50)
    for name in Trace.column_names():
        np.testing.assert_array_equal(getattr(longer, name)[:20], getattr(short, name))
    assert not np.isnan(short.slo).any()


def test_weights_deadlines_and_durations_of_dynamic_jobs():
    trace = trace_of(dynamic(2000, priorities=True, fixed_duration_seconds=1800.0), default_table())(2000)
    assert abs((trace.priority_weight == 5).mean() - 0.2) < 4 * np.sqrt(0.2 * 0.8 / 2000)
    assert set(trace.priority_weight) == {1.0, 5.0}
    assert set(trace.duration) == {1800.0}


def test_identity_counts_what_is_set():
    plain = Point("static", "isolated", TINY, 5, 0)
    assert Point("static", "isolated", TINY, 5, 0, workload=Workload(mean_interarrival_seconds=None)).key == plain.key
    changed = [
        {"mean_interarrival_seconds": 9.0},
        {"generator": "shockwave"},
        {"generator": "shockwave", "n_durations": 9},
    ]
    keys = {Point("static", "isolated", TINY, 5, 0, workload=Workload(**change)).key for change in changed}
    assert len(keys | {plain.key}) == 4


@pytest.mark.parametrize(
    ("definition", "field"),
    [
        (static(workload={"mean_interarrival_seconds": 0}), "workload.mean_interarrival_seconds"),
        (continuous(workload={"mean_interarrival_seconds": 40}), "workload.mean_interarrival_seconds"),
        (continuous(cases=[{"workload": {"mean_interarrival_seconds": 40}}]), "workload.mean_interarrival_seconds"),
        (static(workload={"n_durations": 4, "generator": "shockwave"}), "workload.n_durations"),
        (static(workload={"n_durations": 100}), "workload.n_durations"),
        (static(vary={"workload.n_durations": [100]}), "workload.n_durations"),
    ],
)
def test_what_a_sweep_has_no_use_for_is_refused(definition, field):
    with pytest.raises(InputError) as caught:
        Sweep.from_dict(definition)
    assert caught.value.field == field


# Cases with clusters, loads and seeds of their own


def test_a_case_may_have_its_own_clusters_loads_and_seeds():
    cases = [{"name": "own", "clusters": ["v100:3"], "jobs": [4], "seeds": [9]}, {"name": "shared", "seeds": [7, 6]}]
    points = Sweep.from_dict(static(cases=cases)).points()
    own = [(p.cluster, p.load, p.seed) for p in points if p.case == "own"]
    assert own == [("v100:3", 4, 9)]
    shared = [(p.cluster, p.load, p.seed) for p in points if p.case == "shared"]
    assert shared == list(itertools.product([TINY], (5, 8), (6, 7)))


def test_a_sweep_needs_none_where_every_case_has_its_own():
    case = {"clusters": ["v100:3"], "jobs": [4], "seeds": [9]}
    sweep = Sweep.from_dict({"kind": "static", "policies": ["isolated"], "cases": [case]})
    assert [(p.cluster, p.load, p.seed) for p in sweep.points()] == [("v100:3", 4, 9)]
    for missing in ("clusters", "jobs", "seeds"):
        cases = [case, {name: value for name, value in case.items() if name != missing}]
        with pytest.raises(InputError, match=f"field '{missing}'"):
            Sweep.from_dict({"kind": "static", "policies": ["isolated"], "cases": cases})


@pytest.mark.parametrize(
    ("case", "field"),
    [
        ({"clusters": ["v100:0"]}, "cases[0].clusters[0]"),
        ({"clusters": [{"gpus": "v100:4", "colour": 1}]}, "cases[0].clusters[0].colour"),
        ({"jobs": [0]}, "cases[0].jobs"),
        ({"seeds": [-1]}, "cases[0].seeds"),
        ({"rates": [1.0]}, "cases[0].rates"),
    ],
)
def test_errors_name_the_case(case, field):
    with pytest.raises(InputError) as caught:
        Sweep.from_dict(static(cases=[case]))
    assert caught.value.field == field


# Results


def test_results_have_the_figures_of_dynamic_jobs(tmp_path):
    definition = {
        "kind": "static",
        "policies": ["gandiva_fair", "shockwave"],
        "jobs": [8],
        "seeds": [25],
        "clusters": ["v100:4"],
        "workload": DYNAMIC,
        "settings": {"preset": "shockwave", "policy": {"fairness_exponent": 3}},
        "keep_jobs": True,
    }
    sweep = Sweep.from_dict(definition)
    table = run(sweep, tmp_path, jobs=1)
    assert set(table["status"]) == {"completed"}
    named = ["geometric_mean_jct", "harmonic_mean_jct", "worst_rho_static", "unfair_fraction_static",
             "very_unfair_fraction_static", "worst_rho_themis", "mean_envy", "largest_envy"]  # fmt: skip
    assert table[named].notna().all(axis=None)
    assert (table["harmonic_mean_jct"] <= table["geometric_mean_jct"]).all()
    assert (table["geometric_mean_jct"] <= table["average_jct"]).all()
    assert list(table["mean_interarrival_seconds"]) == [40, 40]
    assert list(table["policy_fairness_exponent"])[1] == 3
    for row in table.to_dict("records"):
        record = json.loads((tmp_path / "points" / f"{row['point']}.json").read_text())
        assert row["worst_rho_static"] == record["figures"]["worst_rho_static"]


# Studies


@pytest.mark.parametrize("name", [*COMPARISONS, "shockwave_fairness_rows"])
@pytest.mark.parametrize("small", [False, True])
def test_studies_are_of_dynamic_jobs_on_one_type(name, small):
    points = study(name, small=small).points()
    for point in points:
        assert point.cluster.startswith("v100:")
        assert point.preset == "shockwave"
        assert (point.workload.generator, point.workload.multi_gpu) == ("shockwave", True)
        assert point.workload.mean_interarrival_seconds > 0
    assert len(points) == len({point.key for point in points})


@pytest.mark.parametrize("name", COMPARISONS)
def test_comparisons_have_the_policies_of_the_paper(name):
    own = dict(study(name).policies)
    assert list(own) == list(SHOCKWAVE_COMPARISON)
    assert own["allox"] == SHOCKWAVE_COMPARISON["allox"]


def test_scales_are_those_of_the_published_configurations(public_data):
    first = {}
    for point in study("shockwave_scale").points():
        if point.policy == "shockwave":
            first.setdefault(point.cluster, point)
    assert [(p.cluster, p.load, p.seed) for p in first.values()] == [
        ("v100:64", 220, 4), ("v100:128", 460, 1), ("v100:256", 900, 15)
    ]  # fmt: skip
    for cluster, point in first.items():
        gpus = cluster.removeprefix("v100:")
        published = json.loads(public_data(f"shockwave/configurations/scale_{gpus}gpus.json").read_text())
        policy = point.make_policy()
        found = (policy.makespan_weight, policy.fairness_exponent, policy.future_rounds, policy.relative_gap)
        assert found == tuple(published[key] for key in ("k", "lambda", "future_rounds", "solver_rel_gap"))


@pytest.mark.parametrize(
    ("gpus", "weights"),
    [(14, (1e-3, 12)), (32, (1e-3, 12)), (63, (1e-3, 12)), (64, (10, 5)), (128, (1e-3, 15)), (512, (1e5, 5))],
)
def test_the_preset_has_weights_by_the_size_of_the_cluster(gpus, weights):
    cluster = Cluster({"v100": gpus})
    for name in ("shockwave", "shockwave_published"):
        settings = preset(name).settings_of_policy("shockwave", cluster)
        assert (settings["makespan_weight"], settings["fairness_exponent"]) == weights
        assert "makespan_weight" not in preset(name).settings_of_policy("allox", cluster)
    assert preset("default").settings_of_policy("shockwave", cluster) == {}


@pytest.mark.parametrize(("gpus", "exponent"), [(32, 12.0), (64, 5.0)])
def test_the_command_line_takes_the_weights_of_the_cluster(gpus, exponent):
    (policy,) = RunOptions(preset="shockwave", cluster=f"v100:{gpus}").runs([Variant("shockwave")]).policies
    assert policy.fairness_exponent == exponent
    options = RunOptions(preset="shockwave", cluster=f"v100:{gpus}", settings=["policy.fairness_exponent=7"])
    (policy,) = options.runs([Variant("shockwave")]).policies
    assert policy.fairness_exponent == 7


def test_the_rules_are_compared_on_the_same_jobs():
    points = study("shockwave_fairness_rows").points()
    settings = {(p.policy_settings["fairness_rows"], p.policy_settings["forecast"]) for p in points}
    assert settings == set(itertools.product(("published", "own_finish", "off"), ("oracle", "causal", "true")))
    loads = {chosen: {(p.load, p.seed) for p in points if p.policy_settings["fairness_rows"] == chosen}
             for chosen in ("published", "own_finish", "off")}  # fmt: skip
    assert loads["published"] == loads["own_finish"] == loads["off"]


@pytest.mark.parametrize("rows", ["published", "own_finish", "off"])
def test_plans_that_are_fair_to_all_are_counted(rows):
    settings = {"fairness_rows": rows}
    workload = Workload(**DYNAMIC)
    point = Point("static", "shockwave", "v100:8", 8, 0, settings, workload=workload, preset="shockwave")
    record = run_point(point, Materials.of([point]), log=lambda _: None, report=lambda _: None).record
    assert record["status"] == "completed"
    share = record["figures"]["fair_plans"]
    assert 0 <= share <= 1
    assert share > 0 or rows != "own_finish"
    assert share == 0 or rows != "off"
