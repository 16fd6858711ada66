"""Jobs on a real Ray cluster of several nodes on this machine."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import uuid
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from zipfile import ZipFile

import pytest
from ray.cluster_utils import Cluster

from allocator.lease.files import LEASE_FILE, Grant, write_file
from allocator.runtime.adapters.base import AdapterError, NoAnswerError, Placed, StartOrder
from allocator.runtime.adapters.node import children, free_port
from allocator.runtime.adapters.ray import RayAdapter
from tests.runtime.contract import AdapterContract, seen, until
from tests.runtime.test_contract import WithCommands
from tests.runtime.worlds import processes_of

pytestmark = pytest.mark.exhaustive


class OnRay(WithCommands):
    """A state folder, and adapters of one scheduler after the other."""

    def __init__(self, address, folder):
        self.address, self.state, self.adapters = address, folder, []

    async def open(self):
        adapter = RayAdapter(self.state, self.address)
        await adapter.open()
        self.adapters.append(adapter)
        return adapter

    async def leave(self):
        last = self.adapters[-1]
        while left := [one for one in await last.observe() if one.phase != "ended"]:
            for one in left:
                await last.kill(one.job, one.epoch)
            await asyncio.sleep(0.2)
        await asyncio.gather(*(last.forget(one.job) for one in await last.observe()))
        for adapter in self.adapters:
            await adapter.close()

    def folder_of(self, job):
        return self.state / "jobs" / job

    def order(self, kind, job="", epoch=1, places=None, **more):
        job = job or str(uuid.uuid4())
        folder = self.folder_of(job)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_file(folder / LEASE_FILE, Grant(job, epoch))
        node = min(self.adapters[-1]._rows.values(), key=lambda row: row["type"] != "V100")["name"]
        command = self.command(kind, folder) if isinstance(kind, str) else kind
        return StartOrder(job, epoch, command, Placed("v100", places or {node: (0,)}), folder, self.state, **more)


QUICK = {"health_check_initial_delay_ms": 0, "health_check_period_ms": 500, "health_check_failure_threshold": 4}
"""Nodes that do not answer are lost soon."""

HEAD = {"num_cpus": 2, "include_dashboard": False, "_system_config": QUICK}


@pytest.fixture(scope="module")
def cluster():
    """Two nodes of two GPUs that need not exist."""
    labels = {"ray.io/accelerator-type": "V100"}
    made = Cluster(initialize_head=True, head_node_args=HEAD | {"num_gpus": 2, "labels": labels})
    try:
        made.add_node(num_cpus=2, num_gpus=2, resources={"accelerator_type:K80": 1})
        yield made
    finally:
        made.shutdown()


@pytest.fixture
def stage(cluster, tmp_path, monkeypatch):
    monkeypatch.setattr(RayAdapter, "patience_seconds", 4.0)
    monkeypatch.setattr(RayAdapter, "lost_seconds", 2.0)
    return OnRay(cluster.address, tmp_path)


class TestContract(AdapterContract):
    """On Ray."""


async def until_ended(adapter, order):
    while (one := await seen(adapter, order.job)) is None or one.phase != "ended":
        await asyncio.sleep(0.1)
    return one


SAYS = """
import json, os, sys
told = {**os.environ, "files": os.listdir(), "alone": os.getpgid(0) == os.getpid()}
json.dump(told, open(sys.argv[1], "w"))
"""
GANG = """
import os
saved = os.environ["ALLOCATOR_CHECKPOINT_DIR"] + "/saved"
before = open(saved).read() if os.path.exists(saved) else ""
if os.environ["RANK"] == "0":
    open(saved, "w").write(before + os.environ["ALLOCATOR_LEASE_EPOCH"])
print("after", before or "nothing", flush=True)
"""


async def test_what_a_gang_saves_and_prints_needs_no_shared_folder(stage):
    adapter = await stage.open()
    first, second = (node.name for node in sorted(await adapter.nodes(), key=lambda node: node.accelerator))
    command, job = ("python", "-c", GANG), str(uuid.uuid4())
    gang = {"one_process_per_gpu": True, "environment": {"OF_THE_JOB": "1"}}
    for epoch, places in enumerate(({first: (0,)}, {second: (1,), first: (0, 1)}, {first: (1,)}), 1):
        order = stage.order(command, job, epoch, places, **gang)
        await adapter.start(order)
        assert (await until_ended(adapter, order)).code == 0
    told = (stage.folder_of(job) / "log").read_text().splitlines()
    assert sorted(told[1:4]) == [f"rank {rank}: after 1" for rank in range(3)]
    assert told[:1] + told[4:] == ["after nothing", "after 12"]
    assert (stage.folder_of(job) / "checkpoint" / "saved").read_text() == "123"


async def test_the_variables_and_the_folder_of_a_job(stage, tmp_path):
    adapter = await stage.open()
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "train.py").touch()
    own = {"env_vars": {"OF_RAY": "2"}, "working_dir": str(tmp_path / "code")}
    env = {"OF_THE_JOB": "1", "RAY_RUNTIME_ENV": json.dumps(own)}
    order = stage.order(("python", "-c", SAYS, str(tmp_path / "told")), environment=env)
    await adapter.start(order)
    assert (await until_ended(adapter, order)).code == 0
    told = json.loads((tmp_path / "told").read_text())
    assert (told["OF_THE_JOB"], told["OF_RAY"], told["CUDA_VISIBLE_DEVICES"], told["alone"]) == ("1", "2", "0", True)
    assert told["files"] == ["train.py"]
    assert {name for name in told if name.startswith("RAY_") and "AUTH" not in name} == {"RAY_ADDRESS"}


@pytest.mark.skipif(not find_spec("virtualenv"), reason="Ray wants virtualenv for it")
async def test_packages_that_a_job_asks_for_are_installed_for_it(stage, tmp_path):
    told = {"METADATA": "Metadata-Version: 2.1\nName: spare\nVersion: 1\n", "RECORD": ""}
    told["WHEEL"] = "Wheel-Version: 1.0\nGenerator: none\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    with ZipFile(wheel := tmp_path / "spare-1-py3-none-any.whl", "w") as made:
        made.writestr("spare.py", "STATUS = 3")
        for name, text in told.items():
            made.writestr(f"spare-1.dist-info/{name}", text)
    adapter = await stage.open()
    own = {"RAY_RUNTIME_ENV": json.dumps({"pip": [str(wheel)]})}
    order = stage.order(("python", "-c", "import spare; raise SystemExit(spare.STATUS)"), environment=own)
    await adapter.start(order)
    assert (await until_ended(adapter, order)).code == 3


OTHER = """
import sys, ray
ray.init(sys.argv[1], log_to_driver=False, namespace="others")
held = ray.remote(num_cpus=0, num_gpus=1, resources={"accelerator_type:K80": 0.001})
ready = held(type("Held", (), {"ready": lambda self: 1})).remote()
ray.get(ready.ready.remote())
print("holds", flush=True)
input()
"""


async def test_gpus_of_others_are_left_alone(stage, cluster):
    adapter = await stage.open()
    other = subprocess.Popen(
        [sys.executable, "-c", OTHER, cluster.address], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert await asyncio.to_thread(other.stdout.readline) == "holds\n"
        while not (node := next(node for node in await adapter.nodes() if node.accelerator == "k80")).taken:
            await asyncio.sleep(0.5)
        assert node.taken == (1,)
        both, one = (stage.order("waits", places={node.name: places}) for places in ((0, 1), (0,)))
        with pytest.raises(AdapterError, match="not free"):
            await adapter.start(both)
        await adapter.start(one)
        await until(adapter, one, "running")
        assert (await adapter.nodes())[0].taken == (1,) or (await adapter.nodes())[1].taken == (1,)
    finally:
        other.kill()
        other.wait()


async def test_jobs_outlive_their_supervisor_and_not_their_node(stage, cluster):
    node = cluster.add_node(num_cpus=1, num_gpus=2)
    adapter = await stage.open()
    name = next(one.name for one in await adapter.nodes() if one.accelerator == "gpu")
    ends, stays = (stage.order("waits", places={name: (place,)}) for place in range(2))
    await asyncio.gather(adapter.start(ends), adapter.start(stays))
    await stage.ready(ends)
    await stage.ready(stays)
    raylet = node.all_processes["raylet"][0].process.pid
    for pid in children(raylet):
        if b"Supervisor" in Path(f"/proc/{pid}/cmdline").read_bytes():
            os.kill(pid, signal.SIGKILL)
    await stage.release(ends)
    assert (await until_ended(adapter, ends)).code == 0
    assert (await seen(adapter, stays.job)).phase == "running"
    cluster.remove_node(node, allow_graceful=False)
    while any(one.up for one in await adapter.nodes() if one.name == name):
        await asyncio.sleep(0.3)
    assert (await until_ended(adapter, stays)).code is None
    assert not processes_of(stays.job)
    assert stage.begun(ends.job) == stage.begun(stays.job) == [1]


no_store = pytest.mark.skipif(not shutil.which("redis-server"), reason="needs redis-server")


@pytest.fixture(params=["raylet", pytest.param("head", marks=no_store)])
def frail(request, tmp_path, monkeypatch):
    """A cluster, and what is lost of its head, on which no job runs; the service is connected by either raylet."""
    store = None
    if request.param == "head":
        monkeypatch.setenv("RAY_REDIS_ADDRESS", f"127.0.0.1:{(port := free_port())}")
        words = ["redis-server", "--bind", "127.0.0.1", "--port", str(port), "--save", "", "--dir", str(tmp_path)]
        store = subprocess.Popen(words, stdout=subprocess.DEVNULL)
    made = Cluster(initialize_head=True, head_node_args=HEAD | {"num_gpus": 1})
    try:
        made.add_node(num_cpus=1, num_gpus=2)
        found = OnRay(made.address, tmp_path)
        found.cluster, found.loses = made, request.param
        yield found
    finally:
        made.shutdown()
        if store is not None:
            store.kill()
            store.wait()


async def test_jobs_outlive_the_raylet_of_the_service_and_a_head_whose_tables_are_kept(frail):
    adapter = await frail.open()
    name = next(node.name for node in await adapter.nodes() if node.gpus == 2)
    first, second = (frail.order("waits", places={name: (place,)}) for place in range(2))
    await adapter.start(first)
    await frail.ready(first)
    head = frail.cluster.head_node
    head.kill_raylet()
    if frail.loses == "head":
        head.kill_gcs_server()
        head.start_gcs_server()
    frail.cluster.add_node(num_cpus=1)
    async with asyncio.timeout(120.0):
        nodes = []
        while all(node.up for node in nodes):
            with suppress(NoAnswerError):
                nodes = await adapter.nodes()
            await asyncio.sleep(0.2)
        while await seen(adapter, second.job) is None:
            with suppress(NoAnswerError):
                await adapter.start(second)
            await asyncio.sleep(0.2)
    for order in (first, second):
        await frail.ready(order)
        await frail.release(order)
        assert (await until_ended(adapter, order)).code == 0
        assert frail.begun(order.job) == [1]
