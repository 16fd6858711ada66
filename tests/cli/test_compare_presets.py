"""What `allocator compare --preset NAME` compares where nothing else is said, preset by preset."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from allocator.cli.app import app
from allocator.cluster import Cluster
from allocator.presets import preset
from throughputs import deadline_trace, read_trace
from throughputs.goodput.profiles import default_profiles
from throughputs.goodput.trainings import training_trace

PAGE = Path(__file__).resolve().parents[2] / "docs" / "simulator.md"
HERE = "tests/cli/test_compare_presets.py -->\n```sh\n"


def invoke(*words: object):
    return CliRunner().invoke(app, [str(word) for word in words])


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def compared(out: Path) -> list[dict]:
    return json.loads((out / "comparison.json").read_text())


def test_the_commands_of_the_page(folder: Path) -> None:
    commands = PAGE.read_text().split(HERE)[1].split("```")[0].strip().splitlines()
    assert len(commands) == 2
    for command in commands:
        done = invoke(*command.split()[1:])
        assert done.exit_code == 0, done.output
    with_deadlines = compared(folder / "deadlines-compared")
    assert [row["policy"] for row in with_deadlines] == list(preset("elasticflow").comparison.policies)
    assert {row["deadline_jobs"] for row in with_deadlines} == {40}
    assert [row["policy"] for row in compared(folder / "goodput-compared")] == [
        "sia",
        "pollux",
        "max_min_fairness_perf",
    ]


@pytest.mark.parametrize(("name", "factors"), [("elasticflow", (0.5, 1.5)), ("chronus", (1.1, 3.2))])
@pytest.mark.usefixtures("folder")
def test_presets_of_deadlines_draw_deadlines(name: str, factors: tuple[float, float]) -> None:
    """On GPUs that the embedded table knows, in nodes of eight."""
    policy = preset(name).comparison.policies[0]
    done = invoke("compare", "--preset", name, "--policies", policy, "--jobs", 12, "--seed", 4, "--out", "out")
    assert done.exit_code == 0, done.output
    jobs = pd.read_csv(Path("out") / policy / "jobs.csv")
    expected = deadline_trace(12, 200.0, rng=np.random.default_rng(4), factors=factors)
    assert jobs["job_type"].tolist() == list(expected.job_type)
    np.testing.assert_allclose(jobs["deadline"], expected.deadline)
    assert "on v100:32" in done.stdout


@pytest.mark.parametrize("name", ["pollux", "sia"])
@pytest.mark.usefixtures("folder")
def test_presets_of_goodput_draw_trainings(name: str) -> None:
    """On nodes of four, so that nothing is said of nodes; the throughputs are the embedded profiles."""
    policy = preset(name).comparison.policies[0]
    done = invoke("compare", "--preset", name, "--policies", policy, "--jobs", 3, "--out", "out")
    assert done.exit_code == 0, done.output
    assert "each GPU is a node of its own" not in done.stderr
    settings = {"rng": np.random.default_rng(0), "trainings": default_profiles(), "gpus_per_node": 4}
    expected = training_trace(3, 180.0, **settings)
    jobs = pd.read_csv(Path("out") / policy / "jobs.csv")
    assert jobs["job_type"].tolist() == [name.partition(" (")[0] for name in expected.job_type]
    np.testing.assert_allclose(jobs["arrival_time"], expected.arrival_time)
    assert compared(Path("out"))[0]["cluster"] == "t4:64"


@pytest.mark.usefixtures("folder")
def test_what_is_said_takes_the_place_of_the_preset() -> None:
    common = ("compare", "--preset", "elasticflow", "--policies", "edf", "--jobs", 4, "--out", "out")
    for words, cluster in (
        (("--cluster", "v100:8"), "v100:8"),
        (("--gpus-per-server", "v100:4"), "v100:32"),
    ):
        assert invoke(*common, *words).exit_code == 0
        assert compared(Path("out"))[0]["cluster"] == cluster
    # the cluster of the preset's own traces, which the embedded table has no figures for
    assert invoke("trace", "generate", "--jobs", 3, "--out", "jobs.csv").exit_code == 0
    assert len(read_trace("jobs.csv")) == 3
    of_trace = invoke(*common[:5], "--trace", "jobs.csv", "--out", "other")
    assert "found 'a100'" in str(of_trace.exception)


@pytest.mark.usefixtures("folder")
def test_a_comparison_has_the_jobs_of_trace_generate() -> None:
    drawing = ("--preset", "elasticflow", "--jobs", 6, "--seed", 2)
    done = invoke("trace", "generate", *drawing, "--mean-interarrival", 200, "--out", "jobs.csv")
    assert done.exit_code == 0, done.output
    common = ("compare", "--policies", "edf", "--cluster", "v100:32", "--gpus-per-server", "v100:8")
    assert invoke(*common, *drawing, "--out", "draw").exit_code == 0
    assert invoke(*common, *drawing[:2], "--seed", 2, "--trace", "jobs.csv", "--out", "file").exit_code == 0
    one, other = (pd.read_csv(Path(out) / "edf" / "jobs.csv") for out in ("draw", "file"))
    pd.testing.assert_frame_equal(one, other)
    assert one["deadline"].notna().all()


@pytest.mark.parametrize("preset_name", ["default", "elasticflow"])
@pytest.mark.usefixtures("folder")
def test_durations_are_meant_on_a_type_that_the_table_has(preset_name: str) -> None:
    """v100 where it is one of them, else the first."""
    rows = ("bert,1,h100,40", "bert,1,l4,10", "bert,2,h100,70", "bert,2,l4,18")
    Path("mine.csv").write_text("\n".join(["job_type,scale_factor,accelerator,throughput", *rows, ""]))
    table = ("--throughputs", "mine.csv", "--preset", preset_name)
    done = invoke("trace", "generate", *table, "--single-gpu", "--jobs", 5, "--out", "jobs.csv")
    assert done.exit_code == 0, (done.output, done.exception)
    jobs = read_trace("jobs.csv")
    np.testing.assert_allclose(jobs.total_steps, jobs.duration * 40.0, atol=1.0)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ("--preset", "elasticflow", "--priorities"),
            "--priorities: found True, expected nothing with --preset elastic",
        ),
        (("--preset", "shockwave", "--duration", 9), "--duration: found 9.0, expected nothing with --preset shockwave"),
        (("--preset", "elasticflo"), "did you mean 'elasticflow'?"),
    ],
)
@pytest.mark.usefixtures("folder")
def test_what_generators_do_not_take(words: tuple[object, ...], said: str) -> None:
    done = invoke("trace", "generate", *words, "--out", "jobs.csv")
    assert said in str(done.exception)
    assert not Path("jobs.csv").exists()


def test_presets_draw_on_clusters_that_there_are_throughputs_for() -> None:
    for name in ("elasticflow", "chronus"):
        usual = preset(name).comparison
        assert Cluster.parse(usual.drawn_cluster, usual.drawn_gpus_per_server).accelerators == ("v100",)
        assert re.search(rf"`{name}` \| {usual.jobs} ", PAGE.read_text())


@pytest.mark.usefixtures("folder")
def test_jobs_are_drawn_for_a_table_of_ones_own() -> None:
    rows = [f"bert,{gpus},h100,{40 * gpus**0.9}" for gpus in (1, 2, 4, 8)]
    Path("mine.csv").write_text("\n".join(["job_type,scale_factor,accelerator,throughput", *rows, ""]))
    own = ("--throughputs", "mine.csv", "--cluster", "h100:8", "--policies", "fifo", "--jobs", 4)
    done = invoke("compare", *own, "--out", "out")
    assert done.exit_code == 0, (done.output, done.exception)
    assert set(pd.read_csv("out/fifo/jobs.csv")["job_type"]) == {"bert"}
