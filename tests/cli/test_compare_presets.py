"""What `allocator compare --preset NAME` compares where nothing else is said, preset by preset."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from allocator.cluster import Cluster
from allocator.presets import preset
from tests.cli.command import ran, refused
from throughputs import deadline_trace, read_trace
from throughputs.goodput.profiles import default_profiles
from throughputs.goodput.trainings import training_trace

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "simulator.md").read_text()
pytestmark = pytest.mark.usefixtures("folder")


def compared(out: str) -> list[dict]:
    return json.loads(Path(out, "comparison.json").read_text())


@pytest.mark.exhaustive
def test_the_commands_of_the_page() -> None:
    lines = PAGE.split("tests/cli/test_compare_presets.py -->\n```sh\n")[1].split("```")[0].strip().splitlines()
    assert len(lines) == 2
    for line in lines:
        # fewer jobs say the same
        ran(re.sub(r"--jobs \d+", "--jobs 4", line.removeprefix("allocator ")))
    rows = compared("deadlines-compared")
    assert [row["policy"] for row in rows] == list(preset("elasticflow").comparison.policies)
    assert {row["deadline_jobs"] for row in rows} == {4}
    assert [row["policy"] for row in compared("goodput-compared")] == ["sia", "pollux", "max_min_fairness_perf"]


@pytest.mark.parametrize(("name", "factors"), [("elasticflow", (0.5, 1.5)), ("chronus", (1.1, 3.2))])
def test_presets_of_deadlines_draw_deadlines(name: str, factors: tuple[float, float]) -> None:
    """On GPUs that the embedded table knows, in nodes of eight."""
    usual = preset(name).comparison
    assert Cluster.parse(usual.drawn_cluster, usual.drawn_gpus_per_server).accelerators == ("v100",)
    assert re.search(rf"`{name}` \| {usual.jobs} ", PAGE)
    done = ran(f"compare --preset {name} --policies edf --jobs 8 --seed 4 --out out")
    jobs = pd.read_csv("out/edf/jobs.csv")
    expected = deadline_trace(8, 200.0, rng=np.random.default_rng(4), factors=factors)
    assert jobs["job_type"].tolist() == list(expected.job_type)
    np.testing.assert_allclose(jobs["deadline"], expected.deadline)
    assert "on v100:32" in done.out


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", ["pollux", "sia"])
def test_presets_of_goodput_draw_trainings(name: str) -> None:
    """On nodes of four, so that nothing is said of nodes; the throughputs are the embedded profiles."""
    policy = "max_min_fairness_perf"
    done = ran(f"compare --preset {name} --policies {policy} --jobs 2 --out out")
    assert "each GPU is a node of its own" not in done.err
    settings = {"rng": np.random.default_rng(0), "trainings": default_profiles(), "gpus_per_node": 4}
    expected = training_trace(2, 180.0, **settings)
    jobs = pd.read_csv(Path("out") / policy / "jobs.csv")
    assert jobs["job_type"].tolist() == [name.partition(" (")[0] for name in expected.job_type]
    np.testing.assert_allclose(jobs["arrival_time"], expected.arrival_time)
    assert compared("out")[0]["cluster"] == "t4:64"


def test_a_comparison_has_the_jobs_of_trace_generate_and_what_is_said_takes_the_place_of_the_preset() -> None:
    ran("trace generate --generator deadlines --seed 2 --jobs 4 --mean-interarrival 200 --out jobs.csv")
    drawing = "--preset elasticflow --seed 2 --jobs 4"
    common = f"compare --policies edf --cluster v100:8 --gpus-per-server v100:8 {drawing}"
    ran(f"{common} --out draw")
    ran(f"{common.removesuffix(' --jobs 4')} --trace jobs.csv --out file")
    one, other = (pd.read_csv(Path(out) / "edf" / "jobs.csv") for out in ("draw", "file"))
    pd.testing.assert_frame_equal(one, other)
    assert one["deadline"].notna().all()
    assert compared("draw")[0]["cluster"] == "v100:8"
    # the cluster of the preset's own traces, which the embedded table has no figures for
    assert "'a100'" in refused("compare --preset elasticflow --policies edf --trace jobs.csv --out other")


@pytest.mark.parametrize("more", ["", "--generator deadlines"])
def test_jobs_are_drawn_for_a_table_of_ones_own(more: str) -> None:
    """Durations are meant on v100 where it is one of the types, else on the first."""
    rows = ("bert,1,h100,40", "bert,1,l4,10", "bert,2,h100,70", "bert,2,l4,18")
    Path("mine.csv").write_text("\n".join(["job_type,scale_factor,accelerator,throughput", *rows, ""]))
    ran(f"trace generate --throughputs mine.csv --single-gpu --jobs 5 --out jobs.csv {more}")
    jobs = read_trace("jobs.csv")
    np.testing.assert_allclose(jobs.total_steps, jobs.duration * 40.0, atol=1.0)
    ran("compare --throughputs mine.csv --cluster h100:8 --policies fifo --jobs 2 --out out")
    assert set(pd.read_csv("out/fifo/jobs.csv")["job_type"]) == {"bert"}


def test_the_published_generator_by_name(public_data) -> None:
    ran("trace generate --generator gavel --jobs 40 --mean-interarrival 900 --single-gpu --format gavel --out n.trace")
    theirs = public_data("gavel/traces/n40_lam900_multi0_prio0_seed0.trace")
    assert Path("n.trace").read_bytes() == theirs.read_bytes()
