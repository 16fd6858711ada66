"""The elastic trainer of docs/ray.md runs as it stands there."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

from tests.examples.test_training_examples import needs
from tests.lease.jobs import ROOT


@needs("torch")
@pytest.mark.exhaustive
def test_the_elastic_trainer_of_the_page(tmp_path):
    program = re.search(r"test_ray_example.py -->\n```python\n(.*?)```", (ROOT / "docs" / "ray.md").read_text(), re.S)[
        1
    ]
    assert len(program.splitlines()) <= 40
    (tmp_path / "trainer.py").write_text(program)
    variables = _variables(tmp_path) | {"RAY_ADDRESS": "local"}
    done = subprocess.run([sys.executable, "trainer.py"], cwd=tmp_path, env=variables, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    said = done.stdout.splitlines()[-1]
    assert float(said.split()[0]) > 0, "the loss"


ELASTIC = """
import os, subprocess, sys, time
from pathlib import Path

import ray
from ray import train
from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer

import allocator.ray

FOLDER, MOST = Path(sys.argv[1]), int(sys.argv[2])


def fit(config):
    context = train.get_context()
    if context.get_world_rank() == 0:
        with open(config["sizes"], "a") as file:
            file.write(f"{context.get_world_size()}\\n")
    while not Path(config["enough"]).exists():
        time.sleep(0.5)
        train.report({})


def begin(name, most):
    scaling = train.ScalingConfig(num_workers=(1, most), elastic_resize_monitor_interval_s=2)
    run = train.RunConfig(name=name, storage_path=str(FOLDER), callbacks=allocator.ray.callbacks(total=1000))
    told = {"sizes": str(FOLDER / f"{name}.sizes"), "enough": str(FOLDER / f"{name}.enough")}
    DataParallelTrainer(fit, train_loop_config=told, scaling_config=scaling, run_config=run).fit()


def until(sizes, name):
    deadline = time.monotonic() + 300
    while not (path := FOLDER / f"{name}.sizes").exists() or path.read_text().split() != sizes:
        assert time.monotonic() < deadline, (name, path.exists() and path.read_text())
        time.sleep(0.5)


if MOST == 4:
    ray.init()
    begin("first", 4)
else:
    ray.init("local", num_cpus=4)
    allocator.ray.Coordinator("sia", round_seconds=20)
    address = ray.get_runtime_context().gcs_address
    variables = {**os.environ, "RAY_ADDRESS": address}
    first = subprocess.Popen([sys.executable, __file__, str(FOLDER), "4"], env=variables)
    until(["4"], "first")
    (FOLDER / "second.enough").touch()
    begin("second", 2)
    until(["2"], "second")
    until(["4", "2", "4"], "first")
    (FOLDER / "first.enough").touch()
    assert first.wait(120) == 0
"""


@needs("torch")
@pytest.mark.exhaustive
def test_a_trainer_makes_room_for_another_and_grows_again(tmp_path):
    (tmp_path / "elastic.py").write_text(ELASTIC)
    command = [sys.executable, "elastic.py", str(tmp_path), "2"]
    done = subprocess.run(command, cwd=tmp_path, env=_variables(tmp_path), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def _variables(folder):
    return os.environ | {"HOME": str(folder), "PYTHONPATH": f"{ROOT}:{os.environ.get('PYTHONPATH', '')}"}
