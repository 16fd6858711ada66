"""Trainers of Ray Train, unmodified, shrink and grow as a policy decides."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest
import ray
from ray.cluster_utils import Cluster

from allocator.ray import Coordinator
from allocator.runtime.adapters.ray.supervisor import SERVICES
from tests.lease.jobs import ROOT
from throughputs import InputError

pytestmark = pytest.mark.deep

PATIENCE = 240.0
"""Seconds for what takes a few on a machine that has nothing else to do."""

TRAINER = """
import sys, time
from pathlib import Path
import ray
from ray import train
from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer
import allocator.ray

address, name, most, folder = sys.argv[1:]

def fit(config):
    while not Path(folder, name).exists():
        time.sleep(0.2)
        train.report({"workers": train.get_context().get_world_size()})

ray.init(address, log_to_driver=False)
scaling = train.ScalingConfig(num_workers=(1, int(most)), use_gpu=True, elastic_resize_monitor_interval_s=1)
callbacks = allocator.ray.callbacks(total=1e6, per_worker=True)
run = train.RunConfig(name=name, storage_path=folder + "/runs", callbacks=callbacks)
DataParallelTrainer(fit, scaling_config=scaling, run_config=run).fit()
"""


@pytest.fixture
def address():
    node = {"num_cpus": 4, "num_gpus": 2}
    cluster = Cluster(initialize_head=True, head_node_args=node | {"include_dashboard": False})
    try:
        cluster.add_node(**node)
        ray.init(cluster.address, log_to_driver=False)
        yield cluster.address
    finally:
        ray.shutdown()
        cluster.shutdown()


def test_a_trainer_shrinks_for_another_one_and_grows_when_that_is_through(address, tmp_path):
    coordinator = Coordinator("sia", round_seconds=10.0)
    with pytest.raises(InputError, match=r"Coordinator\('sia'\) is the one there"):
        Coordinator("pollux")
    # a job of a service
    job = ray.util.placement_group([{"GPU": 1}], name=f"{SERVICES}1:job:1", lifetime="detached")
    programs = {}

    def begin(name, most):
        command = [sys.executable, "-c", TRAINER, address, name, str(most), str(tmp_path)]
        log = (tmp_path / f"{name}.log").open("w")
        programs[name] = subprocess.Popen(command, env={"PYTHONPATH": str(ROOT)}, stdout=log, stderr=log)

    def until(**workers):
        """Until trainers run with so many workers each, as those have said themselves."""
        end = time.monotonic() + PATIENCE
        while (running := {row["name"]: row["running"] for row in coordinator.status()}) != workers:
            ended = [name for name, program in programs.items() if program.poll() and name in workers]
            assert not ended, (tmp_path / f"{ended[0]}.log").read_text()
            assert time.monotonic() < end, running
            time.sleep(0.2)

    try:
        ray.get(job.ready())
        begin("first", 4)
        until(first=3)
        ray.util.remove_placement_group(job)
        until(first=4)
        begin("second", 2)
        until(first=2, second=2)
        (tmp_path / "second").touch()
        until(first=4)
        (tmp_path / "first").touch()
        assert [program.wait(PATIENCE) for program in programs.values()] == [0, 0]
        assert coordinator.status() == []
    finally:
        for program in programs.values():
            program.kill()
            program.wait()
