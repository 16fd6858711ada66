"""``--entities`` of the commands that simulate."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pandas as pd
import pytest

from allocator import simulate
from allocator.cluster import Cluster
from allocator.registry import get_policy
from throughputs import Trace, TraceGenerator, default_table, read_trace, write_trace

CLUSTER = "v100:2,p100:2,k80:2"
ENTITIES = """
[research]
weight = 2
[vision]
parent = "research"
policy = "fifo"
[production]
weight = 3
"""


def run(*arguments):
    command = [sys.executable, "-m", "allocator", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, env=os.environ | {"COLUMNS": "200"})


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A trace whose jobs name entities, the same trace without, and the entities."""
    folder = tmp_path_factory.mktemp("entities")
    trace = TraceGenerator(
        n_jobs=12, mean_interarrival=600, scale_factors={1: 1.0}, seed=1, table=default_table()
    ).generate()
    write_trace(trace, folder / "plain.csv")
    table = pd.read_csv(folder / "plain.csv", comment="#")
    table["entity"] = ["research", "vision", "production", ""] * 3
    table.to_csv(folder / "owned.csv", index=False)
    (folder / "entities.toml").write_text(ENTITIES)
    return folder


def test_simulate_tells_what_each_entity_got(files, tmp_path):
    done = run(
        "simulate", "--trace", files / "owned.csv", "--policy", "max_min_fairness_water_filling_perf", "--cluster",
        CLUSTER, "--entities", files / "entities.toml", "--out", tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    lines = [line.split() for line in done.stdout.splitlines()]
    first = [line[0] for line in lines if line and line[0] in ("research", "vision", "production", "(no")]
    # an entity is followed by those inside it, jobs without one come last
    assert first == ["research", "vision", "production", "(no"]
    summary = json.loads((tmp_path / "summary.json").read_text())
    direct = simulate(
        read_trace(files / "owned.csv"),
        Cluster.parse(CLUSTER),
        get_policy("max_min_fairness_water_filling_perf"),
        default_table(),
        entities=files / "entities.toml",
    ).summary()
    assert summary["by_entity"] == direct["by_entity"]
    assert {row["entity"]: row["jobs"] for row in summary["by_entity"]} == {
        "research": 6,
        "production": 3,
        "vision": 3,
        "": 3,
    }
    assert len(pd.read_csv(tmp_path / "entities.csv")) == 4


def test_compare_tells_it_for_every_policy(files, tmp_path):
    policies = ["max_min_fairness_water_filling_perf", "fifo_perf"]
    arguments = ["compare", "--trace", files / "owned.csv", "--policies", ",".join(policies), "--cluster", CLUSTER,
                 "--entities", files / "entities.toml", "--out", tmp_path]  # fmt: skip
    done = run(*arguments)
    assert done.returncode == 0, done.stderr
    assert "Entities" in done.stdout
    assert done.stdout.count("production") == 2
    rows = json.loads(run(*arguments, "--json").stdout)
    assert [row["policy"] for row in rows] == policies
    for row in rows:
        top = sum(each["gpu_share"] for each in row["by_entity"] if each["parent"] == "")
        assert top == pytest.approx(1.0)


@pytest.mark.parametrize("command", ["simulate", "compare"])
def test_bad_ones_say_so(command, files, tmp_path):
    policy = ["--policy" if command == "simulate" else "--policies", "fifo_perf"]

    def error(trace, entities):
        done = run(command, "--trace", trace, *policy, "--entities", entities, "--out", tmp_path, "--cluster", CLUSTER)
        assert done.returncode != 0
        assert "Traceback" not in done.stderr
        return done.stderr

    assert "in a column entity" in error(files / "plain.csv", files / "entities.toml")
    few = tmp_path / "few.json"
    few.write_text(json.dumps({"research": 2, "production": 1}))
    assert "vision" in error(files / "owned.csv", few)
    assert "no such file" in error(files / "owned.csv", tmp_path / "absent.toml").lower()


def test_users_become_entities_and_what_is_not_used_is_said_once(tmp_path):
    users, partitions = ["ann", "bob", "ann", ""], ["gpu", "gpu", "a100", ""]
    seconds = [600.0] * 4
    trace = Trace(["job"] * 4, [1] * 4, seconds, [0.0] * 4, duration=seconds, user=users, partition=partitions)
    write_trace(trace, tmp_path / "jobs.csv")
    common = ["--trace", tmp_path / "jobs.csv", "--policies", "max_min_fairness_water_filling,fifo", "--out", tmp_path]
    plain = run("compare", *common, "--cluster", "h100:2")
    said = (
        f"{tmp_path}/jobs.csv: not used: user (--entities-by user shares the cluster among users), partition (none is"
    )
    assert plain.returncode == 0, plain.stderr
    assert plain.stderr.count("not used") == 1
    assert said in plain.stderr
    owned = run("compare", *common, "--cluster", "h100:1,a100:1", "--entities-by", "user", "--json")
    assert owned.returncode == 0, owned.stderr
    assert "not used" not in owned.stderr
    assert "1 jobs run anywhere" not in owned.stderr
    assert f"{tmp_path}/jobs.csv: 2 jobs run anywhere, as the cluster has no type named 'gpu'" in owned.stderr
    rows = json.loads(owned.stdout)[0]["by_entity"]
    assert [(row["entity"], row["weight"], row["jobs"]) for row in rows][:2] == [("ann", 1.0, 2), ("bob", 1.0, 1)]
    (tmp_path / "weights.toml").write_text("[ann]\nweight = 3\n[bob]\nweight = 1\n")
    weighed = run(
        "simulate", "--trace", tmp_path / "jobs.csv", "--policy", "max_min_fairness_water_filling", "--cluster",
        "h100:1", "--entities-by", "user", "--entities", tmp_path / "weights.toml", "--out", tmp_path / "w", "--json",
    )  # fmt: skip
    assert json.loads(weighed.stdout)["by_entity"][0]["weight"] == 3.0
    refused = run("compare", *common, "--cluster", "h100:2", "--entities-by", "owner")
    assert refused.returncode == 2
    assert "field 'owner': found 'owner', expected one of user, partition" in refused.stderr
