"""Entities, users, partitions and fractions of GPUs on the command line, as the library has them."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest

from allocator import default_table, get_policy, simulate
from allocator.recorded import recorded_schedule
from tests.cli.command import ran, refused, told
from throughputs import Trace, TraceGenerator, read_trace, write_trace

FILLING = "max_min_fairness_water_filling"
ENTITIES = '[research]\nweight = 2\n[vision]\nparent = "research"\npolicy = "fifo"\n[production]\nweight = 3\n'


@pytest.fixture
def owned(folder: Path) -> str:
    """Options with a trace whose jobs name entities, and the entities."""
    generator = TraceGenerator(n_jobs=8, mean_interarrival=600, scale_factors={1: 1.0}, seed=1, table=default_table())
    write_trace(generator.generate(), folder / "plain.csv")
    table = pd.read_csv(folder / "plain.csv", comment="#")
    table.assign(entity=["research", "vision", "production", ""] * 2).to_csv(folder / "owned.csv", index=False)
    (folder / "entities.toml").write_text(ENTITIES)
    return "--cluster v100:2,p100:2,k80:2 --out out --trace owned.csv --entities entities.toml"


@pytest.mark.exhaustive
def test_what_each_entity_got_is_told(owned: str) -> None:
    done = ran(f"simulate --policy {FILLING}_perf {owned}")
    first = [line.split()[0] for line in done.out.splitlines() if line.split()]
    # members stand below their parent, jobs without one come last
    names = ["research", "vision", "production", "(outside)"]
    assert [word for word in first if word in names] == names
    rows = json.loads(Path("out/summary.json").read_text())["by_entity"]
    policy = get_policy(f"{FILLING}_perf")
    trace = read_trace("owned.csv")
    direct = simulate(trace, "v100:2,p100:2,k80:2", policy, default_table(), entities="entities.toml").summary()
    assert rows == direct["by_entity"]
    assert {row["entity"]: row["jobs"] for row in rows} == {"research": 4, "production": 2, "vision": 2, "": 2}
    for row in told(f"compare --policies {FILLING}_perf,fifo_perf {owned}"):
        assert sum(each["gpu_share"] for each in row["by_entity"] if each["parent"] == "") == pytest.approx(1.0)


@pytest.mark.parametrize("command", ["simulate --policy", "compare --policies"])
def test_bad_owners_say_so(command: str, owned: str) -> None:
    asked = f"{command} fifo_perf {owned}"
    assert "entity" in refused(asked.replace("owned.csv", "plain.csv"))
    Path("few.json").write_text(json.dumps({"research": 2, "production": 1}))
    assert "vision" in refused(asked.replace("entities.toml", "few.json"))
    assert "absent.toml" in refused(asked.replace("entities.toml", "absent.toml"))


def test_users_become_entities_and_what_is_not_used_is_said_once(folder: Path) -> None:
    users, partitions, seconds = ["ann", "bob", "ann", ""], ["gpu", "gpu", "a100", ""], [600.0] * 4
    trace = Trace(["job"] * 4, [1] * 4, seconds, [0.0] * 4, duration=seconds, user=users, partition=partitions)
    write_trace(trace, folder / "jobs.csv")
    asked = f"compare --trace jobs.csv --policies {FILLING},fifo --out . --json"
    err = ran(f"{asked} --cluster h100:2").err
    assert err.count("not used") == 1
    assert "jobs.csv: not used: user (--entities-by user shares the cluster among users), partition (none is" in err
    owned = ran(f"{asked} --cluster h100:1,a100:1 --entities-by user")
    assert "not used" not in owned.err
    assert "jobs.csv: 2 jobs run anywhere, as the cluster has no type named 'gpu'" in owned.err
    rows = json.loads(owned.out)[0]["by_entity"]
    assert [(row["entity"], row["weight"], row["jobs"]) for row in rows][:2] == [("ann", 1.0, 2), ("bob", 1.0, 1)]
    Path("weights.toml").write_text("[ann]\nweight = 3\n[bob]\nweight = 1\n")
    weighed = f"simulate --trace jobs.csv --policy {FILLING} --cluster h100:1 --out w --entities-by user --entities"
    assert told(weighed, "weights.toml")["by_entity"][0]["weight"] == 3.0


def test_accounts_become_entities_and_jobs_without_a_limit_have_the_usual(folder: Path) -> None:
    """With a limit of an hour the third job does not pass the second; without one its true length counts."""
    trace = Trace(["job"] * 3, [1, 2, 1], [900.0] * 3, [0.0, 1.0, 2.0], duration=[900.0] * 3, entity=["x", "y", "x"],
                  predicted_seconds=[1800.0, 1800.0, float("nan")])  # fmt: skip
    write_trace(trace, folder / "jobs.csv")
    asked = "simulate --trace jobs.csv --cluster gpu:2 --policy slurm --out out --entities-by account"
    for limit, starts in (("", [0.0, 932.0, 2.0]), ("--default-limit 1", [0.0, 930.0, 1860.0])):
        rows = told(f"{asked} {limit} --json")["by_entity"]
        assert [(row["entity"], row["jobs"]) for row in rows] == [("x", 2), ("y", 1)]
        assert pd.read_csv("out/jobs.csv")["start_time"].tolist() == starts, limit


HALVES = Trace(
    ["a"] * 4, [1] * 4, [600.0] * 4, [0.0] * 4, duration=[600.0] * 4, gpu_fraction=[0.5, 0.25, 1.0, 0.3],
    recorded_start_seconds=[0.0, 0.0, 0.0, 600.0], recorded_end_seconds=[600.0, 600.0, 600.0, 1200.0],
)  # fmt: skip


@pytest.mark.exhaustive
def test_fractions_of_gpus_count_as_such(folder: Path) -> None:
    """The last of four waits for the first three, each of which starts for 30 s."""
    write_trace(HALVES, folder / "jobs.csv")
    common = "--trace jobs.csv --cluster gpu:2 --out out"
    assert "gpu_fraction" not in ran(f"simulate --policy fcfs {common}").err
    jobs = pd.read_csv("out/jobs.csv")
    assert jobs["gpu_fraction"].tolist() == [0.5, 0.25, 1.0, 0.3]
    assert jobs["gpu_seconds"].tolist() == [315.0, 157.5, 630.0, 189.0]
    answer = ran("explain out --job 3").out
    assert "0.3 of a GPU" in answer
    assert "0.25 of 2 gpu free" in answer
    whole = f"simulate --policy max_min_fairness {common.removesuffix('out')}whole"
    message = refused(whole)
    assert all(word in message for word in ("gpu_fraction of job 0", "0.5", "max_min_fairness", "--whole-gpus"))
    ran(f"{whole} --whole-gpus")
    assert "gpu_fraction" not in pd.read_csv("whole/jobs.csv")
    rows = {row["policy"]: row for row in told(f"compare --policies fcfs {common}")}
    assert rows["recorded"]["utilization"] == pytest.approx((600 * 1.75 + 600 * 0.3) / 2400)
    recorded = recorded_schedule(HALVES, "gpu:2")
    assert recorded.timeline["busy_gpus"].tolist() == pytest.approx([1.75, 0.3])
    assert recorded.jobs["gpu_seconds"].tolist() == [300.0, 150.0, 600.0, 180.0]
    more = told("whatif --trace jobs.csv -c gpu:2 -c gpu:3 --policies fcfs --next-gpus 0 --out more")["rows"]
    assert [row["figures"]["average_jct"] for row in more] == pytest.approx([787.5, 630.0, 750.0])


@pytest.mark.parametrize(
    "line",
    [
        "--policy max_min_fairness_perf --reference-models 5 | share",
        "--policy max_min_fairness_packed --profiling-percentage 1.5 | --profiling-percentage 1.5",
        "--policy max_min_fairness_packed --reference-models 0 | --reference-models 0",
        "--policy fifo --solver highs | fifo solver",
        "--policy ffo --solver highs | 'fifo'",
        "--policy sia --set power=2 | --set 'power' policy.power",
        "--policy fifo --set zzzz=1 | --set 'zzzz'",
        "--policy slurm:age_weight=1:size_weight=2 | slurm:age_weight=1,size_weight=2",
    ],
)
def test_options_that_mean_nothing_are_refused(line: str, folder: Path) -> None:
    write_trace(TraceGenerator(n_jobs=2, seed=1).generate(), folder / "jobs.csv")
    asked, words = line.split(" | ")
    message = refused(f"simulate --trace jobs.csv --cluster v100:3,p100:3 --out out {asked}")
    assert [word for word in words.split() if word not in message] == [], message
    assert not Path("out").exists()
