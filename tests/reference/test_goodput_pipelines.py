"""The pipelined model of Sia's artifact, which its own simulator cannot run, as a training in ours."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import allocator
from allocator import InputError
from allocator.cli.app import app
from allocator.presets import preset
from throughputs import Trace
from throughputs.goodput import ThroughputModels
from throughputs.goodput.pipeline import PipelineModels
from throughputs.goodput.profiles import Profile, Profiles
from throughputs.goodput.tables import read_step_times, read_validation
from throughputs.goodput.trainings import Trainings, read_trainings, trainings_of

pytestmark = pytest.mark.exhaustive

STAGES = {"rtx": 8, "dgx-ext": 2}


@pytest.fixture(scope="module")
def folder(goodput_folder: Path) -> Path:
    """The tables of the model."""
    return next(goodput_folder.glob("**/gpt_pmp"))


@pytest.fixture(scope="module")
def tables(folder: Path) -> Any:
    return {kind: read_step_times(folder / f"placements-{kind}.csv") for kind in STAGES}


@pytest.fixture(scope="module")
def read(folder: Path) -> Trainings:
    return read_trainings(folder.parent)


@pytest.fixture(scope="module")
def stated(folder: Path, tables: Any) -> Trainings:
    """Stages 8 and 2, 48 micro-batches of one sample (SOSP'23, sec. 3.5, artifact); times as they were measured."""
    parameters = {}
    for kind, table in tables.items():
        one, two = (int(np.flatnonzero((table.gpus == n * STAGES[kind]) & (table.batch_size == 1))[0]) for n in (1, 2))
        sync = float(table.sync_time[two])
        parameters[kind] = (0.0, float(table.step_time[one]), sync, 0.0, sync, 0.0, 1.0)
    progress = read_validation(folder).least_progress()
    profile = Profile(
        initial_batch_size=48,
        largest_batch_size=384,
        least_local_batch_size=48,
        accumulation=False,
        initial_steps=float(progress[-1]) / 4,
        noise_scale=(1e9,) * len(progress),
        largest_local=dict.fromkeys(STAGES, 48),
        parameters=parameters,
        stages=STAGES,
        micro_batches=48,
    )
    return trainings_of(Profiles({"gpt_pmp": profile}, "Sia's artifact"))


def test_steps_are_those_of_the_artifacts_form(read: Trainings, stated: Trainings, tables: Any) -> None:
    """T = 3 ((S - 1) f + M f) + T_sync, f and T_sync as measured, on every placement that was."""
    training = read.find("gpt_pmp")
    assert dict(training.stages) == STAGES
    assert (training.least_local, dict(training.largest_local)) == (48, dict.fromkeys(STAGES, 48))
    for kind, table in tables.items():
        for row in np.flatnonzero(table.batch_size == 1).tolist():
            shape = tuple(map(int, table.placement[row]))
            expected = 3 * (STAGES[kind] - 1 + 48) * table.step_time[row] + table.sync_time[row]
            assert training.step_time(kind, shape, 48.0) == pytest.approx((expected, table.sync_time[row]), rel=1e-12)
            if (kind, shape) in (("rtx", (8, 8)), ("dgx-ext", (4,))):
                assert stated.find("gpt_pmp").step_time(kind, shape, 48.0)[0] == pytest.approx(expected, rel=1e-9)
    # eight GPUs of a type that was measured on whole nodes only
    assert training.step_time("rtx", (4, 4), 48.0) == training.step_time("rtx", (8,), 48.0)


def test_goodput_of_the_tables_is_that_of_the_model_of_pipelines(read: Trainings, tables: Any) -> None:
    """Throughput of the published form times statistical efficiency, on two copies."""
    training = read.find("gpt_pmp")
    for kind, stages in STAGES.items():
        table = tables[kind]
        two = int(np.flatnonzero((table.gpus == 2 * stages) & (table.batch_size == 1))[0])
        sync = float(table.sync_time[two])
        parameters = ThroughputModels((0.0, float(table.step_time[two]), sync, 0.0, sync, 0.0, 1.0))
        form = PipelineModels(parameters, [stages], [48], [384.0])
        rate = form.samples_per_second([int(table.nodes[two])], [2 * stages])[0, 0]
        shape = tuple(map(int, table.placement[two]))
        assert 96.0 / training.step_time(kind, shape, 48.0)[0] == pytest.approx(rate, rel=1e-9)
        square, variance = training.statistics(96.0, 0)
        efficiency = (variance / square + 1.0) / (variance / square + 8.0)
        assert training.worth_in(96.0, 0) == pytest.approx(8.0 * efficiency, rel=1e-9)


@pytest.mark.parametrize(("policy", "types"), [("sia", ("rtx", "dgx-ext")), ("pollux", ("rtx",))])
def test_its_jobs_are_trained_on_whole_copies(policy: str, types: tuple[str, ...], stated: Trainings) -> None:
    gpus = {"rtx": 24, "dgx-ext": 16}
    cluster = allocator.Cluster({name: gpus[name] for name in types}, gpus_per_server=dict.fromkeys(types, 8))
    trace = Trace(["gpt_pmp (batch size 48)"] * 2, [8, 8], np.ones(2), [0.0, 600.0], category=["adaptive"] * 2)
    chosen = preset(policy)
    settings = chosen.settings_of_policy(policy, cluster)
    result = allocator.simulate(trace, cluster, allocator.get_policy(policy, **settings), stated, preset=chosen)
    assert (result.jobs["status"] == "completed").all()
    used = result.rounds["gpus"].str.split().str.len().to_numpy()
    for name in types:
        found = used[(result.rounds["accelerator"] == name).to_numpy()]
        assert (found % STAGES[name] == 0).all()
        assert found.max(initial=0) <= 8 * STAGES[name]


def test_the_folder_is_throughputs_of_the_command(folder: Path, tmp_path: Path) -> None:
    """Two jobs in pipelines and another one."""
    trace = tmp_path / "workload.csv"
    trace.write_text(
        "name,time,application,num_replicas,batch_size,max_sample\n"
        "gpt_pmp-0,0,gpt_pmp,8,48,96000\ncifar10-1,30,cifar10,2,256,96000\ngpt_pmp-2,600,gpt_pmp,16,96,96000\n"
    )
    command = "simulate --preset sia --policy sia --cluster rtx:24,dgx-ext:16 --gpus-per-server rtx:8,dgx-ext:8 --json"
    given = ["--trace", str(trace), "--throughputs", str(folder.parent), "--out", str(tmp_path / "out")]
    found = CliRunner().invoke(app, [*command.split(), *given])
    assert found.exit_code == 0, found.output
    assert json.loads(found.stdout)["completed_jobs"] == 3


def test_copies_come_out_even(folder: Path, tmp_path: Path) -> None:
    model = tmp_path / "broken"
    model.mkdir()
    for path in folder.glob("*.csv"):
        (model / path.name).write_text(path.read_text())
    with (model / "scalability-rtx.csv").open("a") as file:
        file.write("1,0.099,0.3,1,12\n")
    with pytest.raises(InputError, match=r"broken.*rtx.*12.*8"):
        read_trainings(tmp_path)
