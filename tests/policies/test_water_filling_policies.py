"""Water filling by name: against a sequence of programs, and through every way to give entities."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

import allocator
from allocator import Cluster, ClusterState, Entities, Entity, InputError, ThroughputMatrix, get_policy
from allocator.instance import read_instance, state_from_json
from allocator.protocol.entities import Membership, arrival_ranks
from formulations import proportional_throughput
from tests.formulations.filling_reference import reference_filling
from tests.formulations.programs import written_out
from throughputs import PlainColumns

NAMES = ["max_min_fairness_water_filling", "max_min_fairness_water_filling_perf"]
PACKED = "max_min_fairness_water_filling_packed"
TYPES = ["v100", "p100", "k80"]


def draw(seed):
    """Jobs of mixed gangs and weights; five entities of either policy in a hierarchy of up to three levels."""
    rng = np.random.default_rng([seed, 7])
    N = int(rng.integers(2, 11))
    rates = rng.uniform(0.3, 3.0, (N, 3)) * rng.choice([1.0, 10.0], (N, 1))
    matrix = ThroughputMatrix(rates, list(range(N)), TYPES, rng.choice([1, 1, 2], N))
    cluster = Cluster(dict(zip(TYPES, rng.integers(2, 4, 3).tolist(), strict=True)))
    above = [None, None, *(rng.choice(["a", "b"]) for _ in range(2)), rng.choice(["c", "d"])]
    listed = [
        Entity(name, float(rng.choice([1, 2, 3])), str(rng.choice(["fairness", "fifo"])), parent)
        for name, parent in zip("abcde", above, strict=True)
    ]
    # listed in any order
    known = Entities([listed[i] for i in rng.permutation(5)])
    names = rng.choice([*"abcde", ""], N).astype(object)
    membership = Membership(known, known.positions(names), rng.permutation(N))
    return ClusterState(cluster, matrix, priority_weights=rng.choice([1.0, 2.0, 5.0], N), membership=membership)


def test_is_what_trying_every_job_finds():
    for seed in range(2):
        state = draw(seed)
        units = proportional_throughput(state.rates, state.capacity) / state.scale_factors
        m, columns = state.membership, written_out(PlainColumns(state.throughputs))
        known = (each.tolist() for each in (m.entities.parent, m.entities.weights, m.entities.fifo))
        of = list(zip(*known, strict=True)), m.of_job, m.arrival_rank
        wanted = reference_filling(columns, state.capacity.astype(float), units, state.priority_weights, *of)
        allocation = get_policy(NAMES[1]).allocate(state)
        assert allocation.status == "optimal"
        assert allocation.objective <= allocation.bound * (1 + 1e-9)
        found = allocation.effective_throughput / units
        np.testing.assert_allclose(found, wanted, atol=2e-5, rtol=2e-5, err_msg=f"seed {seed}")


@pytest.mark.parametrize("name", [*NAMES, PACKED])
def test_nobody_is_below_max_min_and_what_is_left_is_used(name):
    """The first bottleneck is that of max-min fairness; a job held by nobody runs all the time on its best type."""
    matrix = ThroughputMatrix([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]], ["a", "b", "c"], ["v100", "k80"], [1, 1, 1])
    allocation = get_policy(name).allocate(ClusterState(Cluster.parse("v100:1,k80:1"), matrix))
    shares = [[0.5, 0.0], [0.5, 0.0], [0.0, 1.0]]
    np.testing.assert_allclose(allocation.shares, shares, atol=1e-7)


@pytest.mark.parametrize("name", [*NAMES, PACKED])
def test_order_of_jobs_does_not_matter(name):
    state, policy = draw(0), get_policy(name)
    order = np.random.default_rng(0).permutation(state.n_jobs)
    one, other = policy.allocate(state), policy.allocate(state.take(order))
    np.testing.assert_array_equal(one.effective_throughput[order], other.effective_throughput)


def test_a_fifo_entity_serves_first_come_first_and_leaves_the_rest():
    """Two entities of weight 1 share one type; in the second only the first job runs, until it is full."""
    speeds = pd.DataFrame({"v100": [1.0] * 4}, index=["a", "b", "c", "d"])
    entities = {"one": 1, "two": {"policy": "fifo"}}
    jobs = pd.DataFrame({"entity": ["one", "one", "two", "two"], "elapsed_seconds": [0, 0, 10, 20]}, index=speeds.index)
    share = {}
    for gpus in (1, 2, 3):
        answer = allocator.solve(NAMES[1], speeds, f"v100:{gpus}", jobs=jobs, entities=entities)
        share[gpus] = answer.shares[:, 0]
    np.testing.assert_allclose(share[1], [0.25, 0.25, 0.0, 0.5], atol=1e-7)
    np.testing.assert_allclose(share[2], [0.5, 0.5, 0.0, 1.0], atol=1e-7)
    np.testing.assert_allclose(share[3], [0.75, 0.75, 0.5, 1.0], atol=1e-7)
    jobs["arrival_rank"] = [0, 0, 1, 2]
    answer = allocator.solve(NAMES[1], speeds, "v100:1", jobs=jobs, entities=entities)
    np.testing.assert_allclose(answer.shares[:, 0], [0.25, 0.25, 0.5, 0.0], atol=1e-7)


def test_weights_through_two_levels():
    """1 GPU: top 3 (a: 2, lone job: 1); in a, job 3 of 4 and entity b 1 of 4, which has two jobs."""
    speeds = pd.DataFrame({"v100": [1.0] * 4}, index=list("wxyz"))
    entities = [{"name": "b", "parent": "a", "weight": 1}, Entity("a", 2)]
    jobs = pd.DataFrame({"entity": ["a", "b", "b", None], "priority_weight": [3, 1, 1, 1]}, index=speeds.index)
    answer = allocator.solve(NAMES[1], speeds, "v100:1", jobs=jobs, entities=entities)
    np.testing.assert_allclose(answer.shares[:, 0], [1 / 2, 1 / 12, 1 / 12, 1 / 3], atol=1e-8)
    assert answer.objective == pytest.approx(1 / 3)


LISTED = [Entity("research", 2.0), Entity("vision", 1.0, "fifo", "research"), Entity("production", 3.0)]


def test_every_way_to_say_it_means_the_same(tmp_path):
    known = Entities([LISTED[1], LISTED[0], LISTED[2]])
    assert set(known) == set(LISTED)
    assert known.names.index("research") < known.names.index("vision")
    rows = [
        {"name": e.name, "weight": e.weight, "policy": e.policy} | ({"parent": e.parent} if e.parent else {})
        for e in known
    ]
    by_name = {row["name"]: {k: v for k, v in row.items() if k != "name"} for row in rows}

    def toml(header, row):
        return header + "".join(f"{k} = {json.dumps(v)}\n" for k, v in row.items())

    files = {
        "list.toml": "".join(toml("[[entities]]\n", row) for row in rows),
        "sections.toml": "".join(toml(f"[{name}]\n", row) for name, row in by_name.items()),
        "list.json": json.dumps(rows),
        "named.json": json.dumps({"entities": by_name}),
        "table.csv": known.to_frame().to_csv(index=False),
    }
    known.to_frame().to_parquet(tmp_path / "table.parquet")
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    paths = [tmp_path / name for name in [*files, "table.parquet"]]
    for given in (*paths, *map(str, paths), known, list(known), rows, by_name, known.to_dict(), known.to_frame()):
        assert Entities.parse(given) == known
    assert Entities.parse({"a": 2}) == Entities([Entity("a", 2.0)])
    assert len(Entities.parse([])) == 0


BAD = """
[{"name": "a", "weight": 0}] | [0].weight
[{"name": "a", "weight": true}] | [0].weight True
[{"name": "a", "weight": NaN}] | [0].weight
{"a": "heavy"} | a.weight 'heavy'
[{"name": "a"}, {"name": "a"}] | name 'a'
[{"name": ""}] | [0].name
[{"weight": 1}] | [0].name
[{"name": "a", "wieght": 1}] | wieght 'weight'
[{"name": "a", "policy": "fairnes"}] | policy 'fairness'
{"vision": {}, "x": {"parent": "visoin"}} | parent 'x' 'vision'
{"a": {"parent": "a"}} | a->a
{"top": {"parent": "a"}, "a": {"parent": "b"}, "b": {"parent": "a"}} | a->b->a
{"a": {"name": "b"}} | a.name
["a"] | [0]
3 | int
e.toml: [a | e.toml
e.json: [;1,] | e.json:2
e.yaml: a: 1 | e.yaml
e.csv: name,weight;a,1;b,-1 | e.csv:3 weight
e.csv: weight;1 | name
"""


@pytest.mark.parametrize("line", BAD.strip().splitlines())
def test_bad_entities_are_refused(line, tmp_path):
    """Values, or files with ; for the end of a line."""
    text, words = line.split(" | ")
    if text.startswith("e."):
        name, _, text = text.partition(": ")
        given = tmp_path / name
        given.write_text(text.replace(";", "\n"))
    else:
        given = json.loads(text)
    with pytest.raises(InputError) as error:
        Entities.parse(given)
    assert [word for word in words.split() if word.replace("->", " -> ") not in str(error.value)] == []


def test_an_instance_file_takes_entities(tmp_path):
    data = {
        "cluster": {"v100": 1},
        "jobs": [
            {"throughputs": {"v100": 1.0}, "entity": "one", "time_since_start": 1.0},
            {"throughputs": {"v100": 1.0}, "entity": "one", "time_since_start": 2.0},
            {"throughputs": {"v100": 1.0}},
        ],
        "entities": [{"name": "one", "weight": 3, "policy": "fifo"}],
    }
    (tmp_path / "instance.json").write_text(json.dumps(data))
    answer = get_policy(NAMES[1]).allocate(read_instance(tmp_path / "instance.json"))
    np.testing.assert_allclose(answer.shares[:, 0], [0, 0.75, 0.25], atol=1e-8)
    for job, rank in zip(data["jobs"], [1, 2, 0], strict=True):
        job["arrival_rank"] = rank
    answer = get_policy(NAMES[1]).allocate(state_from_json(data))
    np.testing.assert_allclose(answer.shares[:, 0], [0.75, 0, 0.25], atol=1e-8)
    del data["jobs"][1]["arrival_rank"]
    other = [{"throughputs": {"v100": 1.0}, "entity": "two"}]
    for wrong, told in (
        ({}, r"jobs\[1\].arrival_rank"),
        ({"jobs": other}, r"jobs\[0\].entity.*'two'"),
        ({"jobs": other, "entities": [{"name": "one", "weight": -3}]}, r"entities.\[0\].weight"),
        ({"jobs": other, "entities": []}, "entit"),
    ):
        with pytest.raises(InputError, match=told):
            state_from_json(data | wrong)


def test_ranks_do_not_depend_on_the_order_of_jobs():
    elapsed, labels = np.array([5.0, 9.0, 5.0, 5.0]), [10, "x", 2, "a"]
    assert arrival_ranks(elapsed, labels).tolist() == [2, 0, 1, 3]
    order = [3, 1, 0, 2]
    again = arrival_ranks(elapsed[order], [labels[i] for i in order])
    assert again.tolist() == [3, 0, 2, 1]


def test_membership_is_checked():
    known = Entities.parse({"a": 1})
    with pytest.raises(InputError, match="of_job"):
        Membership(known, [0, 1])
    with pytest.raises(InputError, match="arrival_rank"):
        Membership(known, [0, -1], [1.0])
    state = draw(0)
    with pytest.raises(InputError, match="membership"):
        ClusterState(state.cluster, state.throughputs, membership=Membership(known, [0]))
