"""Nodes that are drained: what runs there goes on to its end, nothing new starts, and it can be taken back."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from allocator.cli.app import load
from allocator.cli.service.serve import _Maker
from allocator.cli.service.serve_options import Told
from allocator.runtime.adapters.base import Node
from allocator.runtime.decisions.hardware import Hardware
from allocator.runtime.door.client import MOST_AT_ONCE, ServiceError
from allocator.runtime.door.requests import Requests
from allocator.runtime.door.stopped import StoppedService
from allocator.runtime.recorded.leases import Leases
from allocator.runtime.records.journal import JournalError
from tests.runtime.lives import leave, started, states, submit
from tests.runtime.model_cluster import ModelCluster, job, one_type, run_on, service_on, settle, two_types, world_under
from throughputs import InputError

POLICIES = ["fifo_perf", "max_min_fairness_perf", "srtf"]


def serving(name: str) -> _Maker:
    """As `allocator serve` makes worlds."""
    return _Maker.of(Told({}, name, {}))


@pytest.mark.parametrize("policy", POLICIES)
def test_running_jobs_finish_and_nothing_starts_there(tmp_path: Path, policy: str) -> None:
    async def go() -> None:
        cluster = two_types(2, 2)
        service = await started(tmp_path, cluster, *(job(150.0) for _ in range(4)), policy=policy)
        there = [one for one in service.book.by_id if "v" in one.places]
        assert len(there) == 2
        answer = Requests(service).answer({"do": "drain", "node": "v"})
        assert (answer["drained"], answer["jobs"]) == (True, [one.id for one in there])
        submit(service, *(job(20.0) for _ in range(4)))
        starts = [start for start in cluster.starts if start[0] in {one.uuid for one in there}]
        while any(one.state != "completed" for one in there):
            await run_on(service, cluster, cluster.clock + 5.0)
            assert all(one in there for one in service.book.holding.values() if "v" in one.places)
            assert service.hardware.cluster.gpus == {"v100": 0, "k80": 2}
        assert [one.epoch for one in there] == [1, 1]
        assert [start for start in cluster.starts if start[0] in {one.uuid for one in there}] == starts
        service.drain("v", False)
        await run_on(service, cluster, 2000.0)
        assert set(states(service)) == {"completed"}
        assert not cluster.violations
        await service._finish()

    asyncio.run(go())


@pytest.mark.parametrize("killed", [False, True])
@pytest.mark.parametrize("policy", POLICIES)
def test_a_node_that_is_taken_back_has_its_jobs_still(tmp_path: Path, policy: str, killed: bool) -> None:
    async def go() -> None:
        cluster = two_types(2, 2)
        service = await started(tmp_path, cluster, *(job(400.0) for _ in range(4)), policy=policy)
        service.drain("v", True)
        await run_on(service, cluster, cluster.clock + 15.0)
        if killed:
            await leave(service)
            service = await service_on(tmp_path, cluster, policy)
            await settle(service)
        starts = len(cluster.starts)
        service.drain("v", False)
        await run_on(service, cluster, cluster.clock + 15.0)
        # all have a GPU each: nobody was stopped
        assert len(cluster.starts) == starts == 4
        await run_on(service, cluster, 2000.0)
        assert set(states(service)) == {"completed"}
        await service._finish()

    asyncio.run(go())


def test_a_gang_keeps_the_gpus_that_it_has_on_other_nodes(tmp_path: Path) -> None:
    async def go() -> None:
        cluster = ModelCluster([Node("a", "k80", 2), Node("b", "k80", 2)], {"k80": 1.0})
        service = await started(tmp_path, cluster, job(60.0, gpus=3), job(200.0))
        service.drain("a", True)
        submit(service, job(20.0), job(20.0))
        (kept,) = service.hardware.kept
        assert kept[0] == "b"
        assert service.hardware.cluster.gpus == {"k80": 1}
        await run_on(service, cluster, 50.0)
        assert states(service)[0] == "running"
        await run_on(service, cluster, 90.0)
        assert states(service)[0] == "completed"
        assert (service.hardware.kept, service.hardware.cluster.gpus) == (frozenset(), {"k80": 2})
        await run_on(service, cluster, 900.0)
        assert set(states(service)) == {"completed"}
        assert not cluster.violations
        await service._finish()

    asyncio.run(go())


def test_a_drained_node_that_is_lost_gives_its_jobs_up(tmp_path: Path) -> None:
    async def go() -> None:
        cluster = two_types(1, 1)
        service = await started(tmp_path, cluster, job(100.0), policy="max_min_fairness_perf")
        (one,) = service.book.by_id
        (node,) = one.places
        service.drain(node, True)
        cluster.machines[:] = [replace(m, up=m.name != node) for m in cluster.machines]
        await run_on(service, cluster, 40.0)
        assert (one.state, set(one.places)) == ("running", {"v", "k"} - {node})
        await service._finish()

    asyncio.run(go())


def test_a_node_that_the_cluster_itself_drains(tmp_path: Path) -> None:
    async def go() -> None:
        cluster = one_type(1)
        service = await started(tmp_path, cluster, job(60.0), job(10.0))
        cluster.machines[0] = replace(cluster.machines[0], drained=True, reason="drain: fan")
        await run_on(service, cluster, 100.0)
        assert states(service) == ["completed", "queued"]
        answer = Requests(service).answer({"do": "resume", "node": "k"})
        assert answer["drained"] is True
        assert Requests(service).answer({"do": "status"})["service"]["nodes"][0]["state"] == "drained"
        await service._finish()

    asyncio.run(go())


def test_with_all_nodes_drained_a_service_starts_again_and_takes_another_policy(tmp_path: Path) -> None:
    async def go() -> None:
        cluster = two_types(1, 1)
        service = await service_on(tmp_path, cluster)
        submit(service, job(500.0), job(20.0), job(20.0))
        await settle(service)
        for node in ("v", "k"):
            service.drain(node, True)
        await run_on(service, cluster, 10.0)
        await leave(service)
        (node, other) = StoppedService(tmp_path).answer({"do": "status"})["service"]["nodes"]
        assert (node["state"], other["state"]) == ("drained", "drained")
        maker = serving("max_min_fairness_perf")
        service = await service_on(tmp_path, cluster, make_world=maker)
        assert maker.described(service.hardware)["policy"] == "max_min_fairness_perf"
        assert maker.rhythm(service.hardware)
        service.deciding.check()
        await run_on(service, cluster, 30.0)
        assert service.trouble == service.deciding.trouble == ""
        service.use_policy(serving("fifo"))
        with pytest.raises(InputError):
            # what the policy cannot decide about with all nodes in use is refused also now
            service.use_policy(world_under("shockwave"))
        await run_on(service, cluster, 60.0)
        assert service.deciding.policy.name == "fifo"
        service.drain("k", False)
        await run_on(service, cluster, 2000.0)
        assert states(service) == ["completed"] * 3
        assert [one.epoch for one in service.book.by_id if one.id == 0] == [1]
        await service._finish()

    asyncio.run(go())


def test_what_is_free_is_told_from_what_drained_nodes_still_run(tmp_path: Path) -> None:
    async def go() -> Leases:
        cluster = one_type(2)
        service = await started(tmp_path, cluster, job(40.0), job(20.0))
        service.drain("k", True)
        await run_on(service, cluster, 100.0)
        told = Leases.of_events(service.journal.events())
        await service._finish()
        return told

    assert [gpus["k80"] for _, gpus in asyncio.run(go()).capacity] == [2, 1, 0]


class Asked:
    """A client in the place of one that speaks with a service."""

    def __init__(self, jobs: list[dict[str, Any]]) -> None:
        self.jobs, self.asked = jobs, []  # type: ignore[var-annotated]

    def ask(self, what: str, **fields: Any) -> dict[str, Any]:
        if what == "status":
            return {"service": {}, "jobs": self.jobs, "more": False}
        self.asked.append(fields)
        return {"node": fields["node"], "drained": True, "jobs": []}


@pytest.mark.parametrize(
    ("options", "typed", "evicted"),
    [
        ([], "", []),
        (["--now"], "y\n", [3]),
        (["--now"], "n\n", None),
        (["--now"], "", None),
        (["--now", "--yes"], "", [3]),
    ],
)
def test_who_evicts_is_told_whom_and_asked(
    monkeypatch: pytest.MonkeyPatch, options: list[str], typed: str, evicted: list[int] | None
) -> None:
    common = {"name": "train", "run_seconds": 90.0}
    asked = Asked(
        [
            common | {"id": 3, "user": "ada", "places": {"v": [0]}, "state": "running"},
            common | {"id": 4, "user": "bob", "places": {"k": [0]}, "state": "running"},
            common | {"id": 5, "user": "eve", "places": {"v": [1]}, "state": "stopping"},
        ]
    )
    monkeypatch.setattr("allocator.cli.service.jobs.Client", lambda _: asked)
    done = CliRunner().invoke(load("drain"), ["v", "--state", "x", *options], input=typed)
    assert [fields["evict"] for fields in asked.asked] == ([] if evicted is None else [evicted])
    assert (done.exit_code == 0) == (evicted is not None)
    if "--now" in options and "--yes" not in options:
        assert "job 3" in done.output
        assert "ada" in done.output
        assert "job 4" not in done.output


def test_hardware_in_full_has_all_nodes() -> None:
    nodes = [Node("a", "k80", 2, up=False), Node("b", "v100", 4, drained=True), Node("c", "k80", 2)]
    hardware = Hardware(nodes, (), {"c"})
    assert hardware.cluster.gpus == {"k80": 0, "v100": 0}
    assert hardware.in_full.cluster.gpus == {"k80": 4, "v100": 4}
    assert hardware.stays({"b": (0,)})
    assert not hardware.stays({"a": (0,), "b": (0,)})


class Full(Asked):
    """A service whose disk is full from the second request on."""

    def ask(self, what: str, **fields: Any) -> dict[str, Any]:
        self.asked.append({"do": what} | fields)
        if len(self.asked) > 1:
            raise ServiceError("journal: database or disk is full")
        return {"cancelled": list(fields["jobs"]), "through": []}


def test_of_many_jobs_those_that_were_cancelled_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    full = Full([])
    monkeypatch.setattr("allocator.cli.service.jobs.Client", lambda _: full)
    done = CliRunner().invoke(load("cancel"), ["--state", "x", *map(str, range(MOST_AT_ONCE + 1))])
    assert isinstance(done.exception, ServiceError)
    assert done.output.splitlines() == [f"job {number} cancelled" for number in range(MOST_AT_ONCE)]
    again = CliRunner().invoke(load("cancel"), ["--state", "x", "--json", "1"])
    assert (isinstance(again.exception, ServiceError), again.output) == (True, "")


@pytest.mark.parametrize("asked", [{"do": "cancel", "jobs": [0, 1]}, {"do": "drain", "node": "k", "evict": [0]}])
def test_on_a_full_disk_nothing_is_half_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: dict[str, Any]
) -> None:
    async def go() -> None:
        service = await started(tmp_path, one_type(1), job(40.0), job(40.0))
        append, before = service.journal.append, states(service)
        assert before == ["running", "queued"]
        room = [1]

        def little_room(events: Any) -> Any:
            room[0] -= 1
            if room[0] < 0:
                raise JournalError("journal: database or disk is full")
            return append(events)

        for left in (0, 1):
            room[0] = left
            with monkeypatch.context() as full:
                full.setattr(service.journal, "append", little_room)
                answer = Requests(service).answer(asked)
            assert answer["ok"] == bool(left)
            if not left:
                assert "disk is full" in answer["error"]
                assert states(service) == before
                assert not service.book.drained
        assert states(service) == ["stopping", "cancelled" if asked["do"] == "cancel" else "queued"]
        assert service.book.drained == ({"k"} if asked["do"] == "drain" else set())
        await leave(service)

    asyncio.run(go())
