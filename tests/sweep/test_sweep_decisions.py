"""Sweeps of single decisions; entities and estimates in sweeps of any kind."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
import pytest
from rich.console import Console

import allocator
from allocator.protocol.jobs import JobTable
from allocator.protocol.policy import Need
from allocator.sweep import Sweep, load_jobs, run
from allocator.sweep.definition.settings import SETTINGS
from allocator.sweep.execute import Materials, run_point
from allocator.sweep.jobs import trace_of
from allocator.sweep.store import BY_ENTITY, FIGURES_OF_DECISIONS
from allocator.sweep.summary import summary_table
from tests.sweep.sweep_definitions import DOCS, TINY, continuous, static
from throughputs import InputError, default_table, gavel_trace
from throughputs.estimator.believed import BelievedColocation

ENTITIES = [
    {"name": "above", "weight": 2},
    {"name": "first", "parent": "above", "jobs": 2},
    {"name": "second", "weight": 3, "policy": "fifo"},
]


def decision(**changes):
    usual = {
        "kind": "decision",
        "policies": ["max_min_fairness_perf"],
        "jobs": [4, 9],
        "seeds": [0],
        "clusters": [TINY],
        "workload": {"generator": "gavel", "multi_gpu": True},
    }
    return usual | changes


def single(point, **options):
    return run_point(point, Materials.of([point]), log=lambda _: None, report=lambda _: None, **options)


# Decisions


@pytest.mark.parametrize("policy", ["max_min_fairness_perf", "max_min_fairness_packed", "isolated", "gandiva"])
def test_a_decision_is_that_of_the_policy(policy):
    point = Sweep.from_dict(decision(policies=[policy], settings={"preset": "gavel"})).points()[-1]
    outcome = single(point, keep_jobs=True)
    cluster = allocator.Cluster.parse(TINY)
    table = allocator.load_throughputs(colocated=True)
    trace = gavel_trace(9, 0.0, multi_gpu=True, seed=0, whole_steps=False)
    jobs = JobTable.from_trace(trace, table, cluster, needs=Need.COLOCATION)
    expected = point.make_policy().allocate(jobs.snapshot(np.arange(9), 0.0, cluster, needs=Need.COLOCATION))
    assert outcome.record["status"] == "completed"
    figures = outcome.record["figures"]
    np.testing.assert_allclose(outcome.jobs["throughput"], expected.effective_throughput, rtol=1e-12)
    for j, name in enumerate(cluster.accelerators):
        np.testing.assert_array_equal(outcome.jobs[f"share_{name}"], expected.shares[:, j])
    if np.isfinite(expected.objective):
        assert figures["objective"] == expected.objective
    else:
        assert figures["objective"] is None
    assert figures["decision_seconds"] > 0
    assert (outcome.jobs["normalised_throughput"] > 0).sum() == 9 - figures["unserved_jobs"]
    assert figures["total_normalised_throughput"] == pytest.approx(outcome.jobs["normalised_throughput"].sum())
    time = outcome.jobs.filter(like="share_").sum(axis=1) + outcome.jobs["paired_share"]
    assert time.between(0, 1 + 1e-7).all()


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("decisions")
    definition = decision(
        policies=["max_min_fairness_water_filling_perf"],
        jobs=[6, 12],
        workload={"generator": "gavel", "entities": ENTITIES},
        keep_jobs=True,
        repetitions=2,
    )
    sweep = Sweep.from_dict(definition)
    return folder, sweep, run(sweep, folder, jobs=1)


def test_rows_of_decisions_are_documented(finished):
    _, _, table = finished
    text = DOCS.read_text()
    documented = set(re.findall(r"`([a-z0-9_]+)`", text))
    documented |= {f"{stem}_entity_{e['name']}" for stem in BY_ENTITY if f"`{stem}_entity_NAME`" in text
                   for e in ENTITIES}  # fmt: skip
    assert set(table.columns) <= documented
    assert set(FIGURES_OF_DECISIONS) <= documented
    assert not set(SETTINGS) & set(table.columns)
    assert table["measured_decisions"].tolist() == [2, 2]


def test_jobs_go_to_entities_in_turn(finished):
    folder, _, table = finished
    jobs = load_jobs(folder)
    for point, rows in jobs.groupby("point"):
        n = len(rows)
        assert rows["entity"].tolist() == (["first", "first", "second"] * n)[:n]
        row = table[table["point"] == point].iloc[0]
        shares = rows.groupby("entity")["normalised_throughput"].sum() / rows["normalised_throughput"].sum()
        assert row["throughput_share_entity_first"] == pytest.approx(shares["first"])
        assert row["jobs_entity_second"] == n // 3
        assert row["jobs_entity_above"] == 0


def test_the_screen_shows_times_of_decisions(finished):
    _, _, table = finished
    screen = Console(width=160, record=True, quiet=False, file=open("/dev/null", "w"))  # noqa: SIM115
    screen.print(summary_table(table, title="mine", rows=9))
    written = screen.export_text()
    assert "decision (ms)" in written
    assert "makespan" not in written
    assert f"{1000 * table['decision_seconds'][0]:.2f}" in written


def test_a_second_call_decides_nothing(finished):
    folder, sweep, table = finished
    pd.testing.assert_frame_equal(run(sweep, folder, jobs=1), table)


def test_a_decision_that_takes_too_long_ends_its_series(tmp_path):
    clusters = [{"gpus": "v100:1,p100:1,k80:1", "per_jobs": 4}]
    definition = decision(jobs=[8, 16, 32], clusters=clusters, max_decision_seconds=1e-9, repetitions=3)
    table = run(Sweep.from_dict(definition), tmp_path, jobs=1)
    assert table["status"].tolist() == ["saturated"] * 3
    assert table["by_rule"].tolist() == [False, True, True]
    assert "more than 1e-09" in table["status_detail"][0]
    assert table["measured_decisions"][0] == 1
    assert table["decision_seconds"].notna().tolist() == [True, False, False]


def test_a_cluster_grows_with_the_jobs():
    clusters = [{"gpus": "v100:1,p100:2", "per_jobs": 4}, "v100:5"]
    points = Sweep.from_dict(decision(jobs=[2, 4, 11], clusters=clusters)).points()
    assert [p.cluster for p in points] == ["v100:1,p100:1", "v100:1,p100:2", "v100:2,p100:5"] + ["v100:5"] * 3
    assert len({p.series for p in points}) == 2
    assert len({p.key for p in points}) == 6


def test_how_often_it_is_measured_counts_for_the_identity_of_decisions_only():
    once, twice = (Sweep.from_dict(decision(repetitions=n)).points()[0].key for n in (1, 2))
    assert once != twice
    assert "repetitions" not in Sweep.from_dict(static()).points()[0].specification()


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"window": [1, 2]}, "window"),
        ({"rates": [1.0]}, "rates"),
        ({"repetitions": 0}, "repetitions"),
        ({"repetitions": 1.5}, "repetitions"),
        ({"max_decision_seconds": 0}, "max_decision_seconds"),
        ({"max_decision_seconds": "long"}, "max_decision_seconds"),
        ({"settings": {"round_seconds": 360}}, "round_seconds"),
        ({"vary": {"ideal": [True, False]}}, "ideal"),
        ({"clusters": [{"gpus": TINY, "per_jobs": 0}]}, "clusters[0].per_jobs"),
        ({"clusters": [{"gpus": "v100:4", "gpus_per_server": "v100:2", "per_jobs": 4}]}, "clusters[0].per_jobs"),
        ({"workload": {"entities": [{"name": "a", "wieght": 1}]}}, "workload.entities"),
        ({"workload": {"entities": [{"name": "a", "jobs": -1}]}}, "workload.entities[0].jobs"),
        ({"workload": {"entities": [{"name": "a", "jobs": 0}]}}, "workload.entities"),
        ({"workload": {"entities": [{"name": "a", "parent": "b"}]}}, "workload.entities"),
        ({"workload": {"entities": ["a"]}}, "workload.entities[0]"),
        ({"workload": {"profiling_percentage": 1.5}}, "workload.profiling_percentage"),
        ({"workload": {"reference_models": 0}}, "workload.reference_models"),
        ({"workload": {"reference_models": 2.0}}, "workload.reference_models"),
    ],
)
def test_bad_definitions_of_decisions_name_the_key(change, field):
    with pytest.raises(InputError) as caught:
        Sweep.from_dict(decision(**change))
    assert caught.value.field == field


@pytest.mark.parametrize("key", ["repetitions", "max_decision_seconds"])
def test_only_decisions_are_measured(key):
    with pytest.raises(InputError) as caught:
        Sweep.from_dict(static(**{key: 3}))
    assert caught.value.field == key


def test_a_continuous_sweep_has_no_growing_cluster():
    with pytest.raises(InputError, match="number of jobs"):
        Sweep.from_dict(continuous(clusters=[{"gpus": TINY, "per_jobs": 4}]))


# Entities and estimates


def test_entities_reach_the_simulator():
    workload = {"entities": ENTITIES}
    point = Sweep.from_dict(static(policies=["max_min_fairness_water_filling_perf"], workload=workload)).points()[-1]
    table = default_table()
    trace = trace_of(point, table)(8)
    assert trace.entity.tolist() == ["first", "first", "second"] * 2 + ["first", "first"]
    expected = allocator.simulate(
        trace, allocator.Cluster.parse(TINY), point.make_policy(), table, seed=1, entities=point.entities
    )
    record = single(point).record
    assert record["figures"]["by_entity"] == expected.summary()["by_entity"]
    assert record["figures"]["average_jct"] == expected.summary()["average_jct"]


def test_more_jobs_leave_the_first_ones_with_their_entities():
    point = Sweep.from_dict(continuous(workload={"entities": ENTITIES})).points()[0]
    jobs = trace_of(point, default_table())
    assert jobs(20).entity.tolist() == jobs(50).entity.tolist()[:20]


def test_workloads_without_news_have_their_old_identity():
    point, other = (Sweep.from_dict(static(workload=w)).points()[0] for w in ({}, {"entities": "none"}))
    assert point.key == other.key == "89e8c7a231b781ad"
    changed = Sweep.from_dict(static(workload={"entities": ENTITIES})).points()[0]
    assert changed.key != point.key


def test_estimates_are_made_where_a_policy_packs():
    cases = [{"name": "known"}, {"name": "some", "workload": {"profiling_percentage": 0.2, "reference_models": 3}}]
    sweep = Sweep.from_dict(static(policies=["isolated", "max_min_fairness_packed"], jobs=[8], seeds=[2], cases=cases))
    plain, known, some = sweep.points()
    assert (plain.policy, plain.case, plain.estimation) == ("isolated", "known", None)
    assert known.estimation is None
    assert (some.estimation.profiling_percentage, some.estimation.reference_models) == (0.2, 3)
    figures = single(some).record["figures"]
    assert figures["estimation_error"] > 0.01
    assert figures["measured_pairs"] >= 1
    assert "estimation_error" not in single(known).record["figures"]


def test_a_decision_on_estimates_is_valued_at_the_truth():
    workload = {"generator": "gavel", "profiling_percentage": 0.1, "reference_models": 2}
    point = Sweep.from_dict(decision(policies=["max_min_fairness_packed"], jobs=[24], workload=workload)).points()[0]
    outcome = single(point, keep_jobs=True)
    cluster, table = allocator.Cluster.parse(TINY), allocator.load_throughputs(colocated=True)
    jobs = JobTable.from_trace(trace_of(point, table)(24), table, cluster, needs=Need.COLOCATION)
    jobs.believed = BelievedColocation(jobs.colocation, point.estimation, point.seed)
    believed = point.make_policy().allocate(jobs.snapshot(np.arange(24), 0.0, cluster, needs=Need.COLOCATION))
    assert outcome.record["figures"]["objective"] == believed.objective
    assert outcome.record["figures"]["estimation_error"] == jobs.believed.error > 0
    pairs, columns, true = believed.pairs, jobs.colocation, (jobs.rates * believed.shares).sum(axis=1)
    for p in range(len(pairs)):
        i, k, j = pairs.first[p], pairs.second[p], pairs.accelerator[p]
        true[i] += columns.together[columns.group[i], columns.group[k], j] * pairs.share[p]
        true[k] += columns.together[columns.group[k], columns.group[i], j] * pairs.share[p]
    np.testing.assert_allclose(outcome.jobs["throughput"], true, rtol=1e-12)
    assert not np.allclose(true, believed.effective_throughput)
