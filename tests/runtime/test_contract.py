"""The adapters of this machine and of the cluster in memory keep the contract; that of Slurm does in `slurm`."""

from __future__ import annotations

import os
import uuid

import pytest

from allocator.runtime.adapters.base import Placed, StartOrder
from tests.runtime.contract import AdapterContract
from tests.runtime.model_cluster import two_types
from tests.runtime.worlds import Local, lines, until


class OnModel:
    def __init__(self, folder):
        self._folder, self._cluster = folder, two_types()
        self._free = iter([("v", 0), ("v", 1), ("k", 0), ("k", 1)])

    async def open(self):
        return self._cluster

    def order(self, kind, job="", epoch=1):
        node, position = next(self._free)
        behaviour = {"waits": "deaf", "ignores": "stubborn"}.get(kind, kind)
        places, job = {node: (position,)}, job or str(uuid.uuid4())
        command = ("train", "1000", behaviour)
        return StartOrder(job, epoch, command, Placed("v100", places), self._folder, self._folder)

    async def ready(self, order):
        pass

    async def release(self, order):
        self._cluster.runs[order.job].steps = 1000.0
        self._cluster.advance(0.001)

    def begun(self, job):
        return [epoch for one, epoch in self._cluster.starts if one == job]


COMMANDS = {
    "waits": "echo $ALLOCATOR_LEASE_EPOCH >> {folder}/begun; read _ < {folder}/gate",
    "ignores": "trap '' TERM; echo 1 >> {folder}/begun; while :; do sleep 600; done",
}


class WithCommands:
    """Stages on which jobs are commands: a job is let go through a pipe."""

    def command(self, kind, folder):
        if not (folder / "gate").exists():
            os.mkfifo(folder / "gate")
        return ("sh", "-c", COMMANDS[kind].format(folder=folder)) if kind in COMMANDS else ("no-such-command", "x")

    async def ready(self, order):
        await until(lambda: order.epoch in self.begun(order.job))

    async def release(self, order):
        self.gate = os.open(order.folder / "gate", os.O_RDWR)
        os.write(self.gate, b"\n")

    def begun(self, job):
        return [int(line) for line in lines(self.folder_of(job) / "begun")]


class OnThisMachine(WithCommands, Local):
    folder_of = Local.folder

    def order(self, kind, job="", epoch=1):
        job = job or self.new_job()
        return super().order(job, *self.command(kind, self.folder(job)), epoch=epoch)


class TestModel(AdapterContract):
    @pytest.fixture
    def stage(self, tmp_path):
        return OnModel(tmp_path)


class TestLocal(AdapterContract):
    @pytest.fixture
    def stage(self, tmp_path):
        yield OnThisMachine(tmp_path)
        for path in tmp_path.rglob("gate"):  # nothing waits any longer
            gate = os.open(path, os.O_RDWR)
            os.write(gate, b"\n")
            os.close(gate)
