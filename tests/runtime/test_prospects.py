"""What is known of jobs and GPUs before a job runs: speeds, where it fits, and what its deadline is judged by."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from allocator.runtime.adapters.base import Node, Placed
from allocator.runtime.decisions.hardware import Hardware
from allocator.runtime.decisions.knowledge import Knowledge, Prospects, moving_average
from allocator.runtime.door.requests import Requests
from allocator.runtime.records.book import Job
from tests.runtime.model_cluster import run_on, service_on, settle, two_types
from throughputs import default_table

RESNET = "ResNet-18 (batch size 16)"


def prospects(**more):
    nodes = (Node("v", "v100", 2), Node("k", "k80", 4, up=False))
    return Prospects(Knowledge(("v100", "k80"), default_table()), Hardware(nodes), **more)


def asked(**more):
    return Job(0, "0", ("train",), **more)


def test_gpus_are_numbered_type_by_type_and_nodes_come_and_go():
    nodes = [Node("x", "v100", 2), Node("y", "k80", 4), Node("z", "v100", 4), Node("down", "k80", 4, up=False)]
    hardware = Hardware(nodes)
    assert hardware.cluster.gpus == {"v100": 6, "k80": 4}
    assert hardware.cluster.gpus_per_server == {"v100": 4, "k80": 4}
    assert hardware.places((3, 4)) == {"z": (3,), "x": (0,)}
    assert hardware.numbers(Placed("v100", {"x": (0,), "z": (3,)})) == (3, 4)
    assert hardware.numbers(Placed("k80", {"down": (0,)})) is None
    less = Hardware(nodes, hardware.cluster.accelerators, {"z", "y"})
    assert less.cluster.gpus == {"v100": 2, "k80": 0}
    assert less.numbers(Placed("v100", {"z": (0,)})) is None


@pytest.mark.parametrize(("sizes", "server"), [([4, 4, 2], 4), ([4, 3, 2], 1), ([8, 4, 4], 4), ([], 1)])
def test_servers_of_unequal_size_are_cut_into_equal_ones(sizes, server):
    nodes = [Node(f"n{k}", "a", size) for k, size in enumerate(sizes)]
    assert Hardware(nodes, ["a"]).cluster.gpus_per_server["a"] == server


def test_what_was_measured_takes_the_place_of_the_table():
    table, knowledge = default_table(), Knowledge(("v100", "k80"), default_table())
    usual = knowledge.believed(RESNET, 1, {})
    assert usual["v100", 1] == pytest.approx(table.rates([RESNET], [1], ["v100"])[0, 0])
    halved = {("k80", 1): usual["k80", 1] / 2}
    slow = knowledge.believed(RESNET, 1, halved)
    # as slow everywhere, as far as anybody knows
    assert slow["v100", 1] == pytest.approx(usual["v100", 1] / 2)
    knowledge.learn(asked(job_type=RESNET, measured=halved))
    assert knowledge.believed(RESNET, 1, {}) == slow
    unknown = knowledge.believed("nobody knows", 3, {})
    assert unknown == {("v100", 3): 1.0, ("k80", 3): 1.0}
    # one that names no type says nothing of others
    knowledge.learn(asked(measured={("k80", 1): 7.0}))
    assert knowledge.believed("", 1, {}) == {("v100", 1): 1.0, ("k80", 1): 1.0}
    rates = knowledge.rates([slow, unknown], [1, 3])
    assert rates.shape == (2, 2)
    assert np.all(rates > 0)
    assert (moving_average(None, 4.0), moving_average(4.0, 2.0)) == (4.0, 3.0)


@pytest.mark.parametrize(("steps", "duration", "expected"), [(10.0, 5.0, 10.0), (0.0, 5.0, 20.0), (0.0, 0.0, 14400.0)])
def test_steps_that_nobody_told_follow_from_the_duration(steps, duration, expected):
    ways = {("v100", 2): 4.0, ("k80", 2): 1.0, ("v100", 4): 9.0}
    assert Knowledge(("v100", "k80"), None).expected_steps(steps, duration, ways, 2) == expected


async def test_a_job_that_no_nodes_could_hold_is_refused_and_one_that_some_could_is_told(tmp_path):
    cluster = two_types(2, 1)
    service = await service_on(tmp_path, cluster)
    requests = Requests(service)
    job = {"command": ["train", "5"], "working_directory": "/", "gpus": 2}

    def ask(what="status", **more):
        return requests.answer({"do": what, **more})

    refused = ask("submit", jobs=[job, job | {"gpus": 3}])["error"]
    assert all(words in refused for words in ("'gpus': found 3", "at most 2", "v100:2,k80:1"))
    assert not service.book.jobs
    assert ask("submit", jobs=[job])["jobs"][0]["notices"] == []
    service.drain("v", True)
    (notice,) = ask("submit", jobs=[job])["jobs"][0]["notices"]
    assert all(words in notice for words in ("needs 2 GPUs", "v100:0,k80:1", "v100:2,k80:1"))
    assert ask()["service"]["cannot_run"] == [0, 1]
    assert ask(jobs=[1])["jobs"][0]["reason"] in notice
    service.drain("v", False)
    await settle(service)
    assert ask()["service"]["cannot_run"] == []
    await run_on(service, 20.0)
    assert service.book.counts["completed"] == 2
    # as after a restart with fewer GPUs
    cluster.machines[0] = Node("v", "v100", 1)
    (one,) = service.submit([("2", job)])
    service.see_nodes(cluster.machines)
    assert "cancel it, or serve more GPUs" in service.deciding.why_unfit(one)


def test_a_job_type_that_the_table_lacks_is_told_with_its_neighbours():
    of = prospects()
    told = of.about_type("ResNet-18", 1)
    assert "no job type 'ResNet-18'" in told
    assert f"'{RESNET}'" in told
    assert "did you mean" not in of.about_type("zzzz", 1)
    assert of.about_type(RESNET, 1) == of.about_type("", 1) == ""
    assert "1, 2, 4, 8 GPUs, not with 3" in of.about_type(RESNET, 3)
    # what a job of this name did counts as known
    of.knowledge.learn(asked(job_type="mine", measured={("v100", 1): 4.0}))
    assert of.about_type("mine", 1) == ""


def test_a_deadline_is_judged_by_what_is_believed_of_the_job():
    of, due = prospects(), asked(deadline=110.0)
    fast = {"total_steps": 101.0, "measured": {("v100", 1): 2.0}}
    for more, needs in (({}, "3600 s"), ({"duration": 150.0}, "150 s"), ({"total_steps": 101.0}, "101 s")):
        told = of.about_deadline(replace(due, **more), 10.0)
        assert "due in 100 s" in told
        assert needs in told
    for one in (replace(due, duration=50.0), replace(due, **fast), replace(due, total_steps=101.0, steps=1.0), asked()):
        assert of.about_deadline(one, 10.0) == ""
    told = of.why_rejected(replace(due, duration=50.0), 10.0)
    assert "50 s, for which there is no room" in told
    # a policy that chooses the number of GPUs may give it more
    alone = replace(due, job_type=RESNET, total_steps=1e6)
    assert prospects(elastic=True)._seconds(alone) < of._seconds(alone)


async def test_a_policy_that_rejects_says_what_it_took_a_job_to_need(tmp_path):
    service = await service_on(tmp_path, two_types(2, 0), "elasticflow")
    job = {"command": ["train", "5"], "working_directory": "/", "deadline": 60.0}
    jobs = Requests(service).answer({"do": "submit", "jobs": [job, job | {"duration": 5.0}]})["jobs"]
    ((why,), none) = (made["notices"] for made in jobs)
    assert none == []
    assert "3600 s" in why
    await settle(service)
    one, other = service.book.by_id
    assert (one.state, one.reason) == ("rejected", f"elasticflow cannot promise its deadline: {why}")
    await run_on(service, 20.0)
    assert other.state == "completed"
