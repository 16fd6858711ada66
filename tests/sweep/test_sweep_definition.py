"""What a sweep is: its definition, its points, their identities."""

from __future__ import annotations

import itertools
import pickle
import random
import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocator import registry
from allocator.cluster import Cluster
from allocator.experiments.store import BY_WEIGHT, FIGURES
from allocator.experiments.workloads import workload
from allocator.presets import kinds_of_presets, preset, preset_names
from allocator.registry import list_policies, settings_of
from allocator.sweep import Point, Sweep
from tests.sweep.sweep_definitions import ENTITIES, TINY, continuous, decision, definition, static
from throughputs import InputError, Trace, default_table, write_table, write_trace

TOML = """
kind = "continuous"
policies = ["fifo_perf", { name = "max_min_fairness_perf", solver = "highs" }]
rates = { first = 0.2, last = 0.6, count = 3 }
seeds = [2, 0]
clusters = ["v100:2,k80:2", { gpus = "v100:4", gpus_per_server = "v100:2" }]
window = [10, 20]

[workload]
multi_gpu = true
throughputs = "speeds.csv"

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
    write_table(default_table(), tmp_path / "speeds.csv")
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
        ("fifo_perf", "max_min_fairness_perf"), ("v100:2,k80:2", "v100:4"), (0.2, 0.4, 0.6), (0, 2), (360, 720),
        (False, True),
    )  # fmt: skip
    assert found == set(expected)
    assert all(p.workload.multi_gpu and not p.workload.slos and p.chosen.name == "gavel" for p in points)
    assert {p.policy_settings.get("solver") for p in points if p.policy == "max_min_fairness_perf"} == {"highs"}
    assert {p.gpus_per_server for p in points if p.cluster == "v100:4"} == {"v100:2"}
    # files are beside the definition
    assert {p.throughputs for p in points} == {str(toml.parent.resolve() / "speeds.csv")}


def test_rules_of_ones_own_are_of_all_runs_and_their_files_beside_the_definition(toml):
    (toml.parent / "rule_of_a_sweep.py").write_text(
        "from dataclasses import dataclass\nfrom allocator.simulator import Rule\n\n"
        "@dataclass(frozen=True)\nclass Slower(Rule):\n    by: float = 1.0\n"
    )
    toml.write_text(f'world = ["./rule_of_a_sweep.py:Slower(by=0.5)"]\n{toml.read_text()}')
    rules = {point.world for point in Sweep.from_toml(toml).points()}
    assert [(type(rule).__name__, rule.by) for world in rules for rule in world] == [("Slower", 0.5)]


def test_the_small_variant_changes_what_it_names(toml):
    points = Sweep.from_toml(toml, small=True).points()
    assert {(p.load, p.seed) for p in points} == {(0.5, 5)}
    assert all(p.workload.slos and p.workload.multi_gpu for p in points)
    toml.write_text(TOML.partition("[small]")[0])
    with pytest.raises(InputError, match=r"mine\.toml: field 'small'"):
        Sweep.from_toml(toml, small=True)
    toml.write_text('kind = "static"\npolicies = = 3\n')
    with pytest.raises(InputError, match=r"mine\.toml:2: "):
        Sweep.from_toml(toml)


def test_loads_and_seeds_ascend_within_a_series():
    points = Sweep.from_dict(continuous(rates=[0.9, 0.3], seeds=[4, 1])).points()
    for _, series in itertools.groupby(points, key=lambda p: p.series):
        assert [(p.load, p.seed) for p in series] == [(0.3, 1), (0.3, 4), (0.9, 1), (0.9, 4)]
    assert len({p.series for p in points}) == 2
    limited = Sweep.from_dict(continuous(vary={"max_clock_seconds": [1e6, 2e6]})).points()
    assert len({p.series for p in limited}) == 4
    spaced = Sweep.from_dict(continuous(rates={"first": 0.4, "last": 6.0, "count": 15}, seeds=[0])).points()
    assert sorted({p.load for p in spaced}) == [round(0.4 * i, 1) for i in range(1, 16)]


def test_cases_are_taken_one_at_a_time():
    cases = [
        {"name": "ideal", "ideal": True},
        {"round_seconds": 720},
        {"preset": "gavel", "policy": {"solver": "highs"}},
    ]
    sweep = Sweep.from_dict(continuous(policies=["max_min_fairness"], cases=cases, rates=[1.0], seeds=[0]))
    ideal, longer, published = sweep.points()
    assert (ideal.case, ideal.chosen.as_dict()["ideal"]) == ("ideal", True)
    assert (longer.case, longer.chosen.mechanism.round_seconds) == ("", 720)
    assert (published.preset, published.policy_settings) == ("gavel", {"solver": "highs"})


def test_settings_are_for_the_policies_that_have_them():
    sweep = Sweep.from_dict(
        continuous(policies=["fifo_perf", "max_min_fairness"], vary={"policy.solver": ["auto", "highs"]}, rates=[1.0])
    )
    counts = [sum(p.policy == name for p in sweep.points()) for name in ("fifo_perf", "max_min_fairness")]
    assert counts == [2, 4]  # two seeds
    taken = {*FIGURES, *Point("static", "fifo_perf", TINY, 5, 0).columns(()), "point", "status", "by_rule"}
    of_policies = {f"policy_{name}" for entry in list_policies() for name in settings_of(entry.name)}
    settings = set(kinds_of_presets())
    assert not (taken & settings) | (of_policies & (taken | settings))
    assert set(BY_WEIGHT) <= set(FIGURES)
    of_presets = {
        n for name in preset_names() for n in preset(name).in_run("shockwave", Cluster({"v100": 8})).as_dict()
    }
    assert of_presets - {"preset", "choice", "fairness"} <= set(kinds_of_presets())


def test_usual_limits_of_a_continuous_run():
    (point,) = Sweep.from_dict(continuous(policies=["fifo"], rates=[0.5], seeds=[0])).points()
    assert point.chosen.as_dict()["max_waiting_jobs"] == 10 * 6
    assert point.chosen.as_dict()["max_clock_seconds"] == 3600 * (4 * 20 / 0.5 + 5000)
    assert Sweep.from_dict(static()).points()[0].chosen.as_dict()["max_waiting_jobs"] is None
    unlimited = Sweep.from_dict(continuous(settings={"max_waiting_jobs": "none", "max_overdraft_rounds": "none"}))
    chosen = unlimited.points()[0].chosen
    assert (chosen.as_dict()["max_waiting_jobs"], chosen.mechanism.discipline.max_overdraft_rounds) == (None, None)


def test_a_cluster_grows_with_the_jobs():
    clusters = [{"gpus": "v100:1,p100:2", "per_jobs": 4}, "v100:5"]
    points = Sweep.from_dict(decision(jobs=[2, 4, 11], clusters=clusters)).points()
    assert [p.cluster for p in points] == ["v100:1,p100:1", "v100:1,p100:2", "v100:2,p100:5"] + ["v100:5"] * 3
    assert (len({p.series for p in points}), len({p.key for p in points})) == (2, 6)


# Identity


def test_identity_is_the_same_on_every_machine():
    # Changes only together with FORMAT, which says that results of old folders no longer count.
    assert Point("static", "fifo_perf", TINY, 5, 0).key == "89e8c7a231b781ad"
    for jobs in ({}, {"entities": "none"}):
        assert Sweep.from_dict(static(workload=jobs)).points()[0].key == "89e8c7a231b781ad"


@given(st.randoms(use_true_random=False))
def test_identity_does_not_depend_on_the_order_of_keys(rng: random.Random):
    settings = {"round_seconds": 720, "placement": "in_order", "restart_when_moved": True}
    shares = {"rigid": 1, "adaptive": 2}
    keys = set()
    for load in (5, 5.0):
        settings, shares = (dict(rng.sample(list(each.items()), len(each))) for each in (settings, shares))
        own = definition("static", policies=["sia"], jobs=[load], seeds=[0], clusters=["t4:8"], settings=settings)
        workload = {"generator": "goodput", "categories": shares}
        keys.add(Sweep.from_dict(own | {"workload": workload}).points()[0].key)
    assert len(keys) == 1


def test_what_is_as_in_the_preset_and_labels_do_not_count():
    def key(**changes):
        return Point("static", "fifo_perf", TINY, 5, 0, **changes).key

    usual = {"round_seconds": 360, "placement": "in_order"}
    assert key(preset="gavel") == key(preset="gavel", settings=usual) != key(settings={"round_seconds": 360})
    assert key(workload=workload({})) == key()
    named = (Sweep.from_dict(static(cases=[{"name": name, "round_seconds": 720}])) for name in ("one", "two"))
    assert len({sweep.points()[0].key for sweep in named}) == 1
    assert "repetitions" not in Sweep.from_dict(static()).points()[0].specification()


CHANGES = [
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
    {"kind": "decision", "repetitions": 1},
    {"kind": "decision", "repetitions": 2},
    {"prices": {"v100": 1.0}},
    *(
        {"workload": workload(change)}
        for change in (
            {"multi_gpu": True}, {"generator": "default"}, {"mean_interarrival_seconds": 9.0},
            {"generator": "shockwave"}, {"generator": "shockwave", "n_durations": 9},
            {"generator": "goodput", "categories": {"adaptive": 1.0}},
            {"generator": "goodput", "categories": {"rigid": 1.0}}, {"entities": tuple(ENTITIES)},
        )
    ),
]  # fmt: skip


def test_identity_tells_everything_apart():
    usual = {"kind": "static", "policy": "isolated", "cluster": TINY, "load": 5, "seed": 0}
    keys = [Point(**usual | change).key for change in ({}, *CHANGES)]
    assert len(set(keys)) == len(keys)


def test_a_file_counts_by_its_contents(tmp_path, monkeypatch):
    def point(name):
        return Point("static", "fifo_perf", TINY, 5, 0, throughputs=str(tmp_path / name))

    for name in ("a.csv", "b.csv"):
        write_table(default_table(), tmp_path / name)
    one = point("a.csv")
    assert one.key == point("b.csv").key
    with open(tmp_path / "b.csv", "a") as file:
        file.write("Other,1,v100,1.0,,,\n")
    assert point("b.csv").key != one.key
    # a point travels without its files
    travelled = pickle.dumps(one)
    (tmp_path / "a.csv").unlink()
    assert pickle.loads(travelled).specification() == one.specification()
    one.specification()["workload"]["generator"] = "other"
    assert pickle.loads(travelled).specification() == one.specification()
    # as does a policy of one's own
    monkeypatch.setattr(registry, "_ENTRIES", dict(registry._ENTRIES))
    written, beside = tmp_path / "mine_of_a_trace.py", tmp_path / "helper_of_a_trace.py"
    beside.write_text("SIGN = 1\n")
    written.write_text(
        "import allocator\nfrom helper_of_a_trace import SIGN\n\nclass MineOfATrace(allocator.OrderPolicy):\n"
        "    paper = program = 'none'\n\n    def key(self, state):\n        return SIGN * state.elapsed_seconds\n"
    )
    (name,) = registry.import_policies(str(written))
    assert [registry.sources_of(registry.class_of(each)) for each in (name, "fifo")] == [[beside, written], []]
    keys = [Point("static", policy, TINY, 5, 0).key for policy in (name, name, "fifo")]
    assert keys[0] == keys[1]
    for changed in (written, beside):
        changed.write_text(changed.read_text() + "# sooner\n")
        keys.append(Point("static", name, TINY, 5, 0).key)
    assert len(set(keys)) == 4
    assert Point("static", "fifo", TINY, 5, 0).key == keys[2]


# Bad definitions: kind | what is changed | field that is named, and further words

BAD = """
continuous | kind = "steady" | kind 'steady' static
continuous | policies = ["fifo_pref"] | policies[0] 'fifo_perf'
continuous | policies = [] | policies
continuous | policies = ["fifo_perf", "fifo_perf"] | policies[1]
continuous | policies = [{ name = "fifo_perf", colour = 1 }] | policies[0].colour
continuous | policies = [7] | policies[0] 7
continuous | rates = [0.0] | rates 0
continuous | rates = [1.0, 1.0] | rates once
continuous | rates = "fast" | rates
continuous | rates = { first = 1, last = 2 } | rates count
continuous | rates = { first = 1, last = 2, count = 1.5 } | rates.count
continuous | rates = [inf] | rates
continuous | seeds = [-1] | seeds
continuous | seeds = [1.5] | seeds
continuous | seeds = [] | seeds
continuous | clusters = ["v100"] | clusters[0] 'v100'
continuous | clusters = ["v100:0"] | clusters[0]
continuous | clusters = [{ gpus = "v100:4", gpus_per_server = "k80:4" }] | clusters[0] k80
continuous | clusters = [{ gpus = "v100:4", per_jobs = 4 }] | clusters[0].per_jobs
continuous | clusters = ["v100:4", "v100:4"] | clusters once
continuous | window = [20, 10] | window
continuous | window = "none" | window
continuous | settings.round_second = 1 | settings.round_second 'round_seconds'
continuous | settings.preset = "gavell" | settings.preset 'gavel'
continuous | settings.round_seconds = -1 | settings_of_fifo_perf round_seconds
continuous | settings.round_seconds = "long" | settings.round_seconds 'long'
continuous | settings.max_clock_seconds = inf | settings.max_clock_seconds
continuous | settings = 3 | settings 3
continuous | settings.policy.solver = "highs" | policy.solver
continuous | vary.round_seconds = 360 | vary.round_seconds 360
continuous | vary.round_seconds = [] | vary.round_seconds
continuous | vary.workload.seed = [1] | vary.workload.seed
continuous | cases = [{ idael = true }] | cases[0].idael 'ideal'
continuous | cases = [] | cases
continuous | cases = [{ workload.mean_interarrival_seconds = 40 }] | workload.mean_interarrival_seconds
continuous | workload.generator = "poisson" | workload.generator 'poisson' goodput
continuous | workload.multi_gpu = 1 | workload.multi_gpu
continuous | workload.throughputs = "missing.csv" | workload.throughputs 'missing.csv'
continuous | workload.prices.v100 = -1 | workload.prices
continuous | workload.fixed_duration_seconds = 0 | workload.fixed_duration_seconds
continuous | workload.mean_interarrival_seconds = 40 | workload.mean_interarrival_seconds
continuous | keep_jobs = "yes" | keep_jobs 'yes'
continuous | sedes = [1] | sedes 'seeds'
continuous | jobs = [5] | jobs
static | window = [1, 2] | window
static | jobs = [0] | jobs
static | rates = [1.0] | rates
static | repetitions = 3 | repetitions
static | max_decision_seconds = 3 | max_decision_seconds
static | workload.mean_interarrival_seconds = 0 | workload.mean_interarrival_seconds
static | workload = { n_durations = 4, generator = "shockwave" } | workload.n_durations
static | workload.n_durations = 100 | workload.n_durations
static | vary.workload.n_durations = [100] | workload.n_durations
static | workload = { generator = "goodput", categories = { adaptve = 1 } } | workload.categories 'adaptive'
static | workload = { generator = "goodput", categories = { rigid = -1 } } | workload.categories.rigid
static | workload = { generator = "goodput", categories = { rigid = 0 } } | workload.categories
static | workload = { generator = "goodput", categories = "rigid" } | workload.categories
static | workload = { generator = "gavel", categories = { rigid = 1 } } | workload.categories goodput
static | cases = [{ clusters = ["v100:0"] }] | cases[0].clusters[0]
static | cases = [{ clusters = [{ gpus = "v100:4", colour = 1 }] }] | cases[0].clusters[0].colour
static | cases = [{ jobs = [0] }] | cases[0].jobs
static | cases = [{ seeds = [-1] }] | cases[0].seeds
static | cases = [{ rates = [1.0] }] | cases[0].rates
decision | window = [1, 2] | window
decision | world = ["NodesFail(mtbf_hours=2)"] | world
trace | world = ["NodesFial(mtbf_hours=2)"] | world[0] NodesFial
decision | rates = [1.0] | rates
decision | repetitions = 0 | repetitions
decision | repetitions = 1.5 | repetitions
decision | max_decision_seconds = 0 | max_decision_seconds
decision | max_decision_seconds = "long" | max_decision_seconds
decision | settings.round_seconds = 360 | round_seconds
decision | vary.ideal = [true, false] | ideal
decision | clusters = [{ gpus = "v100:4", per_jobs = 0 }] | clusters[0].per_jobs
decision | clusters = [{ gpus = "v100:4", gpus_per_server = "v100:2", per_jobs = 4 }] | clusters[0].per_jobs
decision | workload.entities = [{ name = "a", wieght = 1 }] | workload.entities wieght
decision | workload.entities = [{ name = "a", jobs = -1 }] | workload.entities[0].jobs
decision | workload.entities = [{ name = "a", jobs = 0 }] | workload.entities
decision | workload.entities = [{ name = "a", parent = "b" }] | workload.entities
decision | workload.entities = ["a"] | workload.entities[0]
decision | workload.profiling_percentage = 1.5 | workload.profiling_percentage
decision | workload.reference_models = 0 | workload.reference_models
decision | workload.reference_models = 2.0 | workload.reference_models
trace | loads = [0] | loads
trace | loads = [1, 1.0] | loads once
trace | vary.round_seconds = [60, 360, 60.0] | vary.round_seconds once
trace | jobs = [5] | jobs
trace | window = [0, 2] | window
trace | workload.trace = "none" | workload.trace
trace | workload.trace = "missing.csv" | workload.trace 'missing.csv'
trace | clusters = [{ gpus = "a100:1", per_jobs = 4 }] | clusters[0].per_jobs
trace | workload.generator = "gavel" | workload.generator
trace | workload.multi_gpu = true | workload.multi_gpu
trace | workload.fixed_duration_seconds = 60.0 | workload.fixed_duration_seconds
"""


@pytest.mark.parametrize("line", BAD.strip().splitlines())
def test_bad_definitions_name_the_key(line, tmp_path):
    write_trace(Trace(["a"], [1], [5.0], [0.0], duration=[5.0]), tmp_path / "jobs.csv")
    kind, change, words = line.split(" | ")
    own = definition(kind)
    if kind == "trace":
        own["workload"] = {"trace": str(tmp_path / "jobs.csv")}
    for name, value in tomllib.loads(change).items():
        kept = own[name] if kind == "trace" and name == "workload" else {}
        own[name] = kept | value if isinstance(value, dict) and kept else value
    field, *more = words.split()
    with pytest.raises(InputError) as caught:
        Sweep.from_dict(own, source="mine.toml")
    assert (caught.value.source, caught.value.field) == ("mine.toml", field.replace("_of_", " of "))
    assert [word for word in more if word not in str(caught.value)] == []


def test_a_missing_kind_is_named():
    with pytest.raises(InputError, match="field 'kind'"):
        Sweep.from_dict({name: value for name, value in static().items() if name != "kind"})
