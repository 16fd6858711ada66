"""What a sweep is: its definition, its points, their identities."""

from __future__ import annotations

import copy
import itertools
import pickle
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocator.presets import preset
from allocator.registry import list_policies, settings_of
from allocator.sweep import Point, Sweep, Workload
from allocator.sweep.definition.settings import SETTINGS
from allocator.sweep.store import BY_WEIGHT, FIGURES
from tests.sweep.sweep_definitions import TINY, continuous, static
from throughputs import InputError, default_table, write_table

TOML = """
kind = "continuous"
policies = ["fifo_perf", { name = "max_min_fairness_perf", solver = "highs" }]
rates = { first = 0.2, last = 0.6, count = 3 }
seeds = [2, 0]
clusters = ["v100:2,k80:2", { gpus = "v100:4", gpus_per_server = "v100:2" }]
window = [10, 20]

[workload]
multi_gpu = true

[settings]
preset = "gavel"

[vary]
round_seconds = [360, 720]

[vary.workload]
priorities = [false, true]

[small]
seeds = [5]
rates = [0.5]

[small.workload]
slos = true
"""


@pytest.fixture
def toml(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(TOML)
    return path


def test_points_are_all_combinations(toml):
    sweep = Sweep.from_toml(toml)
    points = sweep.points()
    assert sweep.name == "mine"
    assert len(points) == 2 * 2 * 3 * 2 * 2 * 2
    found = {(p.policy, p.cluster, p.load, p.seed, p.settings["round_seconds"], p.workload.priorities) for p in points}
    expected = itertools.product(
        ("fifo_perf", "max_min_fairness_perf"),
        ("v100:2,k80:2", "v100:4"),
        (0.2, 0.4, 0.6),
        (0, 2),
        (360, 720),
        (False, True),
    )
    assert found == set(expected)
    assert all(p.workload.multi_gpu and p.preset == "gavel" and p.chosen.name == "gavel" for p in points)
    assert {p.policy_settings.get("solver") for p in points if p.policy == "max_min_fairness_perf"} == {"highs"}
    assert {p.gpus_per_server for p in points if p.cluster == "v100:4"} == {"v100:2"}


def test_the_small_variant_changes_what_it_names(toml):
    points = Sweep.from_toml(toml, small=True).points()
    assert {(p.load, p.seed) for p in points} == {(0.5, 5)}
    assert all(p.workload.slos and p.workload.multi_gpu for p in points)
    assert not any(p.workload.slos for p in Sweep.from_toml(toml).points())


def test_a_file_without_a_small_variant(tmp_path):
    path = tmp_path / "a.toml"
    path.write_text(TOML.partition("[small]")[0])
    with pytest.raises(InputError, match=r"a\.toml: field 'small'"):
        Sweep.from_toml(path, small=True)


def test_loads_and_seeds_ascend_within_a_series():
    points = Sweep.from_dict(continuous(rates=[0.9, 0.3], seeds=[4, 1])).points()
    for _, series in itertools.groupby(points, key=lambda p: p.series):
        assert [(p.load, p.seed) for p in series] == [(0.3, 1), (0.3, 4), (0.9, 1), (0.9, 4)]


def test_evenly_spaced_rates_are_clean_numbers():
    points = Sweep.from_dict(continuous(rates={"first": 0.4, "last": 6.0, "count": 15}, seeds=[0])).points()
    assert sorted({p.load for p in points}) == [round(0.4 * i, 1) for i in range(1, 16)]


def test_cases_are_taken_one_at_a_time():
    cases = [
        {"name": "ideal", "ideal": True},
        {"round_seconds": 720},
        {"preset": "gavel", "policy": {"solver": "highs"}},
    ]
    sweep = Sweep.from_dict(continuous(policies=["max_min_fairness"], cases=cases, rates=[1.0], seeds=[0]))
    ideal, longer, published = sweep.points()
    assert (ideal.case, ideal.chosen.simulator.ideal) == ("ideal", True)
    assert (longer.case, longer.chosen.mechanism.round_seconds) == ("", 720)
    assert (published.preset, published.policy_settings) == ("gavel", {"solver": "highs"})


def test_a_policy_without_a_varied_setting_stands_once():
    sweep = Sweep.from_dict(
        continuous(policies=["fifo_perf", "max_min_fairness"], vary={"policy.solver": ["auto", "highs"]}, rates=[1.0])
    )
    counts = [sum(p.policy == name for p in sweep.points()) for name in ("fifo_perf", "max_min_fairness")]
    assert counts == [2, 4]  # two seeds


def test_none_as_text_stands_for_nothing():
    settings = {"max_waiting_jobs": "none", "max_overdraft_rounds": "none"}
    point = Sweep.from_dict(continuous(settings=settings)).points()[0]
    assert point.chosen.simulator.max_waiting_jobs is None
    assert point.chosen.mechanism.max_overdraft_rounds is None


def test_usual_limits_of_a_continuous_run():
    point = Sweep.from_dict(continuous(rates=[0.5], window=[10, 20])).points()[0]
    limits = point.chosen.simulator
    assert limits.max_waiting_jobs == 10 * 6
    assert limits.max_clock_seconds == 3600 * (4 * 20 / 0.5 + 5000)
    assert Sweep.from_dict(static()).points()[0].chosen.simulator.max_waiting_jobs is None


# Identity


def test_identity_is_the_same_on_every_machine():
    # Changes only together with FORMAT, which says that results of old folders no longer count.
    point = Point("static", "fifo_perf", TINY, 5, 0)
    assert point.key == "89e8c7a231b781ad"


@given(st.randoms(use_true_random=False))
def test_identity_does_not_depend_on_the_order_of_keys(rng: random.Random):
    settings = {"round_seconds": 720, "queue": "per_type", "whole_steps": True}
    names = list(settings)
    rng.shuffle(names)
    first = Point("static", "fifo_perf", TINY, 5, 0, settings=settings)
    second = Point("static", "fifo_perf", TINY, 5.0, 0, settings={name: settings[name] for name in names})
    assert first.key == second.key


def test_settings_as_in_the_preset_do_not_count():
    plain = Point("static", "fifo_perf", TINY, 5, 0, preset="gavel")
    spelt = Point(
        "static", "fifo_perf", TINY, 5, 0, preset="gavel", settings={"round_seconds": 360, "queue": "per_type"}
    )
    assert plain.key == spelt.key
    assert plain.key != Point("static", "fifo_perf", TINY, 5, 0, settings={"round_seconds": 360}).key


@pytest.mark.parametrize(
    "change",
    [
        {"policy": "fifo"},
        {"cluster": "v100:2"},
        {"load": 6},
        {"seed": 1},
        {"kind": "continuous"},
        {"policy_settings": {"solver": "highs"}},
        {"gpus_per_server": "v100:2"},
        {"window": (0, 5)},
        {"preset": "gavel"},
        {"settings": {"round_seconds": 720}},
        {"workload": Workload(multi_gpu=True)},
        {"workload": Workload(generator="default")},
        {"workload": Workload(prices={"v100": 1.0})},
    ],
)
def test_identity_tells_everything_apart(change):
    usual = {"kind": "static", "policy": "isolated", "cluster": TINY, "load": 5, "seed": 0}
    assert Point(**usual).key != Point(**(usual | change)).key


def test_a_label_is_not_part_of_the_identity():
    cases = [{"name": "one", "round_seconds": 720}]
    named, other = (Sweep.from_dict(static(cases=[case | change])).points()[0]
                    for case in cases for change in ({}, {"name": "two"}))  # fmt: skip
    assert named.key == other.key


def test_a_file_counts_by_its_contents(tmp_path):
    for name in ("a.csv", "b.csv"):
        write_table(default_table(), tmp_path / name)
    points = [Point("static", "fifo_perf", TINY, 5, 0, workload=Workload(throughputs=str(tmp_path / name)))
              for name in ("a.csv", "b.csv")]  # fmt: skip
    assert points[0].key == points[1].key
    with open(tmp_path / "b.csv", "a") as file:
        file.write("Other,1,v100,1.0,,,\n")
    changed = Point("static", "fifo_perf", TINY, 5, 0, workload=Workload(throughputs=str(tmp_path / "b.csv")))
    assert changed.key != points[0].key
    # A point travels without its files.
    travelled = pickle.dumps(points[0])
    (tmp_path / "a.csv").unlink()
    assert pickle.loads(travelled).specification() == points[0].specification()


def test_series_leave_out_load_and_seed_only():
    points = Sweep.from_dict(continuous()).points()
    assert len({p.series for p in points}) == 2
    limited = Sweep.from_dict(continuous(vary={"max_clock_seconds": [1e6, 2e6]})).points()
    assert len({p.series for p in limited}) == 4


def test_specifications_are_copies():
    point = Point("static", "fifo_perf", TINY, 5, 0)
    before = copy.deepcopy(point.specification())
    point.specification()["workload"]["generator"] = "other"
    assert point.specification() == before


def test_columns_of_settings_collide_with_no_other():
    taken = {*FIGURES, *Point("static", "fifo_perf", TINY, 5, 0).columns(()), "point", "status", "by_rule"}
    assert not taken & set(SETTINGS)
    of_policies = {f"policy_{name}" for entry in list_policies() for name in settings_of(entry.name)}
    assert not of_policies & (taken | set(SETTINGS))
    assert set(BY_WEIGHT) <= set(FIGURES)


def test_every_setting_of_the_preset_is_a_name():
    assert set(SETTINGS) == set(preset("default").as_dict()) - {"preset", "choice", "fairness"}


# Bad definitions


@pytest.mark.parametrize(
    ("change", "field", "message"),
    [
        ({"kind": "steady"}, "kind", "continuous or static"),
        ({"policies": ["fifo_pref"]}, "policies[0]", "did you mean 'fifo_perf'"),
        ({"policies": []}, "policies", "at least one"),
        ({"policies": ["fifo_perf", "fifo_perf"]}, "policies[1]", "once"),
        ({"policies": [{"name": "fifo_perf", "colour": 1}]}, "policies[0].colour", "one of"),
        ({"policies": [7]}, "policies[0]", "a table"),
        ({"rates": [0.0]}, "rates", "above 0"),
        ({"rates": [1.0, 1.0]}, "rates", "once"),
        ({"rates": "fast"}, "rates", "numbers"),
        ({"rates": {"first": 1, "last": 2}}, "rates", "first, last and a count"),
        ({"rates": {"first": 1, "last": 2, "count": 1.5}}, "rates", "first, last and a count"),
        ({"rates": [float("inf")]}, "rates", "numbers"),
        ({"seeds": [-1]}, "seeds", "at least 0"),
        ({"seeds": [1.5]}, "seeds", "whole"),
        ({"seeds": []}, "seeds", "at least one"),
        ({"clusters": ["v100"]}, "clusters[0]", "TYPE:COUNT"),
        ({"clusters": ["v100:0"]}, "clusters[0]", "at least one GPU"),
        ({"clusters": [{"gpus": "v100:4", "gpus_per_server": "k80:4"}]}, "clusters[0]", "one of v100"),
        ({"clusters": ["v100:4", "v100:4"]}, "clusters", "once"),
        ({"window": [20, 10]}, "window", "first, end"),
        ({"window": None}, "window", "first, end"),
        ({"settings": {"round_second": 1}}, "settings.round_second", "did you mean 'round_seconds'"),
        ({"settings": {"preset": "gavell"}}, "settings.preset", "did you mean 'gavel'"),
        ({"settings": {"round_seconds": -1}}, "settings of fifo_perf", "round_seconds: above 0"),
        ({"settings": {"round_seconds": "long"}}, "settings.round_seconds", "found 'long', expected a finite number"),
        ({"settings": {"max_clock_seconds": float("inf")}}, "settings.max_clock_seconds", "finite"),
        ({"settings": 3}, "settings", "a table"),
        ({"settings": {"policy": {"solver": "highs"}}}, "policy.solver", "at least one of the policies"),
        ({"vary": {"round_seconds": 360}}, "vary.round_seconds", "a list"),
        ({"vary": {"round_seconds": []}}, "vary.round_seconds", "a list"),
        ({"vary": {"workload": {"seed": [1]}}}, "vary.workload.seed", "one of"),
        ({"cases": [{"idael": True}]}, "cases[0].idael", "did you mean 'ideal'"),
        ({"cases": []}, "cases", "at least one"),
        ({"workload": {"generator": "poisson"}}, "workload.generator", "default, deadlines, goodput or recorded"),
        ({"workload": {"multi_gpu": 1}}, "workload.multi_gpu", "true or false"),
        ({"workload": {"throughputs": "missing.csv"}}, "workload.throughputs", "file that exists"),
        ({"workload": {"prices": {"v100": -1}}}, "workload.prices", "dollars"),
        ({"workload": {"fixed_duration_seconds": 0}}, "workload.fixed_duration_seconds", "above 0"),
        ({"keep_jobs": "yes"}, "keep_jobs", "true or false"),
        ({"sedes": [1]}, "sedes", "did you mean 'seeds'"),
        ({"jobs": [5]}, "jobs", "one of"),
    ],
)  # fmt: skip
def test_bad_definitions_name_the_key(change, field, message):
    with pytest.raises(InputError) as caught:
        Sweep.from_dict(continuous(**change), source="mine.toml")
    assert caught.value.source == "mine.toml"
    assert caught.value.field == field
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("change", "field"), [({"window": [1, 2]}, "window"), ({"jobs": [0]}, "jobs"), ({"rates": [1.0]}, "rates")]
)
def test_bad_static_definitions(change, field):
    with pytest.raises(InputError) as caught:
        Sweep.from_dict(static(**change))
    assert caught.value.field == field


def test_a_missing_kind_is_named():
    definition = static()
    del definition["kind"]
    with pytest.raises(InputError, match="field 'kind'"):
        Sweep.from_dict(definition)


def test_bad_toml_names_file_and_line(tmp_path):
    path = tmp_path / "bad.toml"
    path.write_text('kind = "static"\npolicies = = 3\n')
    with pytest.raises(InputError, match=r"bad\.toml:2: "):
        Sweep.from_toml(path)


def test_files_are_relative_to_the_definition(tmp_path):
    write_table(default_table(), tmp_path / "speeds.csv")
    path = tmp_path / "a.toml"
    path.write_text(
        'kind = "static"\npolicies = ["fifo_perf"]\njobs = [5]\nseeds = [0]\nclusters = ["v100:2"]\n'
        '[workload]\nthroughputs = "speeds.csv"\n'
    )
    point = Sweep.from_toml(path).points()[0]
    assert point.workload.throughputs == str((tmp_path / "speeds.csv").resolve())
