"""The pipelined model of Sia's artifact, which its own simulator cannot run, as a training in ours."""

from __future__ import annotations

import tarfile
from typing import Any

import numpy as np
import pytest

import allocator
from allocator.presets import preset
from throughputs import Trace
from throughputs.goodput.profiles import Profile, Profiles
from throughputs.goodput.tables import read_step_times, read_validation
from throughputs.goodput.trainings import Trainings, trainings_of

STAGES = {"rtx": 8, "dgx-ext": 2}


@pytest.fixture(scope="module")
def models(public_data: Any, tmp_path_factory: pytest.TempPathFactory) -> tuple[Trainings, Any]:
    """Stages 8 and 2, 48 micro-batches of one sample (SOSP'23, sec. 3.5, artifact); times as they were measured."""
    target = tmp_path_factory.mktemp("pipelines")
    with tarfile.open(public_data("pollux_sia/sia_traces.tar.xz")) as archive:
        archive.extractall(target, filter="data")
    folder = next(target.glob("**/gpt_pmp"))
    tables = {kind: read_step_times(folder / f"placements-{kind}.csv") for kind in STAGES}
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
    return trainings_of(Profiles({"gpt_pmp": profile}, "Sia's artifact")), tables


def test_steps_are_those_of_the_artifacts_form(models: tuple[Trainings, Any]) -> None:
    """T = 3 ((S - 1) f + M f) + T_sync, f and T_sync as measured."""
    training, tables = models[0].find("gpt_pmp"), models[1]
    for kind, shape in (("rtx", (8, 8)), ("dgx-ext", (4,))):
        table = tables[kind]
        row = int(np.flatnonzero((table.gpus == sum(shape)) & (table.batch_size == 1))[0])
        expected = 3 * (STAGES[kind] - 1 + 48) * table.step_time[row] + table.sync_time[row]
        assert training.step_time(kind, shape, 48.0)[0] == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize(("policy", "types"), [("sia", ("rtx", "dgx-ext")), ("pollux", ("rtx",))])
def test_its_jobs_are_trained_on_whole_copies(
    policy: str, types: tuple[str, ...], models: tuple[Trainings, Any]
) -> None:
    gpus = {"rtx": 24, "dgx-ext": 16}
    cluster = allocator.Cluster({name: gpus[name] for name in types}, gpus_per_server=dict.fromkeys(types, 8))
    trace = Trace(["gpt_pmp (batch size 48)"] * 2, [8, 8], np.ones(2), [0.0, 600.0], category=["adaptive"] * 2)
    chosen = preset("sia" if policy == "sia" else "pollux")
    settings = chosen.settings_of_policy(policy, cluster)
    result = allocator.simulate(trace, cluster, allocator.get_policy(policy, **settings), models[0], preset=chosen)
    assert (result.jobs["status"] == "completed").all()
    rows = result.rounds
    used = rows["gpus"].str.split().str.len().to_numpy()
    for name in types:
        found = used[(rows["accelerator"] == name).to_numpy()]
        assert (found % STAGES[name] == 0).all()
        assert found.max(initial=0) <= 8 * STAGES[name]
