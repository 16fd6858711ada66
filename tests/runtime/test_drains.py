"""Nodes that are drained: what runs there goes on to its end, nothing new starts, and it can be taken back."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from click.testing import CliRunner

from allocator.cli.app import load
from allocator.runtime.adapters.base import Node
from allocator.runtime.door.requests import Requests
from allocator.runtime.recorded import RecordedRun
from tests.runtime.model_cluster import (
    ModelCluster,
    job,
    leave,
    one_type,
    run_on,
    service_on,
    settle,
    started,
    states,
    submit,
    two_types,
)


@pytest.mark.parametrize(("policy", "killed"), [("fifo_perf", True), ("max_min_fairness_perf", False)])
async def test_running_jobs_finish_nothing_starts_there_and_it_is_taken_back(tmp_path, policy, killed):
    cluster = two_types()
    service = await started(tmp_path, cluster, *(job(200.0) for _ in range(4)), policy=policy)
    there = [one.id for one in service.book.by_id if "v" in one.placed.places]
    answer = Requests(service).answer({"do": "drain", "node": "v"})
    assert (answer["drained"], answer["jobs"], len(there)) == (True, there, 2)
    await run_on(service, 15.0)
    # taken back at once, all have a GPU each: nobody is stopped
    service.drain("v", False)
    await run_on(service, 15.0)
    assert len(cluster.starts) == 4
    for drained in (False, True, True):
        service.drain("v", drained)
    assert [event["drained"] for event in service.journal.events() if event.kind == "node"] == [True, False, True]
    if killed:
        await leave(service)
        service = await service_on(tmp_path, cluster, policy)
    await submit(service, *(job(20.0) for _ in range(4)))
    on_it = [service.book.by_id[number] for number in there]
    while any(one.state != "completed" for one in on_it):
        await run_on(service, 5.0)
        assert all(one in on_it for one in service.book.holding.values() if "v" in one.placed.places)
        assert service.hardware.cluster.gpus == {"v100": 0, "k80": 2}
    assert [one.epoch for one in on_it] == [1, 1]
    service.drain("v", False)
    await run_on(service, 2000.0)
    assert set(states(service)) == {"completed"}


async def test_a_gang_keeps_the_gpus_that_it_has_on_other_nodes(tmp_path):
    cluster = ModelCluster([Node("a", "k80", 2), Node("b", "k80", 2)], {"k80": 1.0})
    service = await started(tmp_path, cluster, job(60.0, gpus=3), job(200.0))
    service.drain("a", True)
    await submit(service, job(20.0), job(20.0))
    ((kept, _),) = service.hardware.kept
    assert (kept, service.hardware.cluster.gpus) == ("b", {"k80": 1})
    await run_on(service, 45.0)
    assert states(service)[0] == "running"
    await run_on(service, 40.0)
    assert states(service)[0] == "completed"
    assert (service.hardware.kept, service.hardware.cluster.gpus) == (frozenset(), {"k80": 2})
    await run_on(service, 900.0)
    assert set(states(service)) == {"completed"}


@pytest.mark.parametrize("how", ["lost", "while it starts"])
async def test_a_job_that_is_not_to_stay_on_a_drained_node_goes_on_elsewhere(tmp_path, how):
    cluster = two_types(1, 1)
    service = await service_on(tmp_path, cluster, "max_min_fairness_perf")
    (one,) = service.submit([("0", job(200.0))])
    if how == "lost":
        await settle(service)
        await run_on(service, 5.0)
    while not one.placed.gpus:
        await service.look()
        await asyncio.sleep(0)
    (node,) = one.placed.places
    service.drain(node, True)
    if how == "lost":
        cluster.machines[:] = [replace(m, up=m.name != node) for m in cluster.machines]
    await settle(service)
    await run_on(service, 20.0)
    assert (one.state, set(one.placed.places)) == ("running", {"v", "k"} - {node})


async def test_a_node_that_the_cluster_itself_drains(tmp_path):
    cluster = one_type(1)
    service = await started(tmp_path, cluster, job(60.0), job(10.0))
    cluster.machines[0] = replace(cluster.machines[0], drained=True, reason="drain: fan")
    await run_on(service, 80.0)
    assert states(service) == ["completed", "queued"]
    requests = Requests(service)
    assert requests.answer({"do": "resume", "node": "k"})["drained"] is True
    assert requests.answer({"do": "status"})["service"]["nodes"][0]["state"] == "drained"


async def test_what_is_free_is_told_from_what_drained_nodes_still_run(tmp_path):
    service = await started(tmp_path, one_type(2), job(40.0), job(20.0))
    service.drain("k", True)
    await run_on(service, 50.0)
    run = RecordedRun(service.journal.events())
    assert [gpus[run.cluster.accelerators.index("k80")] for _, gpus in run.record.capacity] == [2, 1, 0]


class Asked:
    """A client in the place of one that speaks with a service."""

    def __init__(self, jobs):
        self.jobs, self.evicted = jobs, []

    def ask(self, what, **fields):
        if what == "status":
            return {"service": {}, "jobs": self.jobs}
        self.evicted.append(fields["evict"])
        return {"node": fields["node"], "drained": True, "jobs": []}


@pytest.mark.parametrize(
    ("options", "typed", "evicted"),
    [
        ([], "", [[]]),
        (["--now"], "y\n", [[3]]),
        (["--now"], "n\n", []),
        (["--now"], "", []),
        (["--now", "--yes"], "", [[3]]),
    ],
)
def test_who_evicts_is_told_whom_and_asked(monkeypatch, options, typed, evicted):
    rows = [(3, "ada", "v", "running"), (4, "bob", "k", "running"), (5, "eve", "v", "stopping")]
    asked = Asked(
        [
            {"name": "train", "run_seconds": 90.0, "id": number, "user": user, "places": {node: [0]}, "state": state}
            for number, user, node, state in rows
        ]
    )
    monkeypatch.setattr("allocator.cli.service.jobs.Client", lambda _: asked)
    done = CliRunner().invoke(load("drain"), ["v", "--state", "x", *options], input=typed)
    assert asked.evicted == evicted
    assert (done.exit_code == 0) == bool(evicted)
    if options == ["--now"]:
        assert "job 3" in done.output
        assert "ada" in done.output
        assert "job 4" not in done.output
