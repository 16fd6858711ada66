"""What is said of a job before it runs: where it fits, which type was meant, and what its deadline is judged by."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from allocator.cli.service.watch import _Hindrances
from allocator.runtime.adapters.base import Node
from allocator.runtime.decisions.hardware import Hardware
from allocator.runtime.decisions.knowledge import Knowledge
from allocator.runtime.decisions.prospects import Prospects
from allocator.runtime.door.requests import Requests
from allocator.runtime.records.book import Job
from tests.runtime.model_cluster import run_on, service_on, settle, two_types
from throughputs import InputError, default_table
from throughputs.errors import nearest_names

RESNET = "ResNet-18 (batch size 16)"


def prospects(**more: Any) -> Prospects:
    nodes = (Node("v", "v100", 2), Node("k", "k80", 4, up=False))
    return Prospects(Knowledge(("v100", "k80"), default_table()), Hardware(nodes), **more)


def asked(**more: Any) -> Job:
    return Job(0, "0", ("train",), **more)


def test_a_job_that_no_nodes_could_hold_is_refused_and_one_that_some_could_is_told(tmp_path: Path) -> None:
    async def go() -> None:
        cluster = two_types(2, 1)
        service = await service_on(tmp_path, cluster)
        requests = Requests(service)
        job = {"command": ["train", "5"], "working_directory": "/", "gpus": 2}
        refused = requests.answer({"do": "submit", "jobs": [job, job | {"gpus": 3}]})
        there = "there are v100:2,k80:1, nodes that are drained or down included"
        assert refused["error"] == f"submit: field 'gpus': found 3, expected at most 2, of one type: {there}"
        assert not service.book.jobs
        assert requests.answer({"do": "submit", "jobs": [job]})["jobs"][0]["notices"] == []
        service.drain("v", True)
        (made,) = requests.answer({"do": "submit", "jobs": [job]})["jobs"]
        back = "and v100:2,k80:1 when the nodes that are drained or down are in use again"
        why = f"needs 2 GPUs of one type; there are v100:0,k80:1, {back}"
        assert made["notices"] == [f"cannot start now: {why}"]
        assert requests.answer({"do": "status"})["service"]["cannot_run"] == [0, 1]
        assert requests.answer({"do": "status", "jobs": [1]})["jobs"][0]["reason"] == why
        service.drain("v", False)
        await settle(service)
        assert requests.answer({"do": "status"})["service"]["cannot_run"] == []
        await run_on(service, cluster, 20.0)
        assert service.book.counts["completed"] == 2
        # as after a restart with fewer GPUs
        cluster.machines[0] = Node("v", "v100", 1)
        service.submit([("2", job)])
        service.see_nodes(cluster.machines)
        assert service.deciding.why_unfit(service.book.jobs["2"]).endswith("cancel it, or serve more GPUs")
        await service._finish()

    asyncio.run(go())


def test_types_on_which_a_job_does_not_run_are_no_room_for_it() -> None:
    table = default_table()
    kind, gpus = next(
        (kind, gpus)
        for kind in table.job_types
        for gpus in table.scale_factors_of(kind)
        if 2 < gpus <= 4 and (table.rates([kind], [gpus], ["v100", "k80"]) > 0).all()
    )
    of_table = asked(job_type=kind, gpus=int(gpus))
    there = prospects()
    assert not there.fits(of_table)
    assert there.fits(of_table, anyhow=True)
    # measured on one type of two that the table lacks: nothing says that it does not run on the other
    assert there.fits(asked(gpus=2, measured={("v100", 2): 3.0}))


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("resnet-18 (batch size 16)", RESNET),
        ("ResNt-50", "ResNet-50"),
        ("resnet", "ResNet-18"),
        ("cycle", "CycleGAN"),
        ("zzzz", None),
        ("", None),
    ],
)
def test_the_nearest_names_are_found_by_what_they_begin_with_and_by_misspellings(
    name: str, nearest: str | None
) -> None:
    found = nearest_names(name, default_table().job_types)
    assert len(found) <= 3
    assert found[0].startswith(nearest) if nearest else not found


def test_a_job_type_that_the_table_lacks_is_told_with_its_neighbours() -> None:
    of = prospects()
    told = of.about_type("ResNet-18", 1)
    assert told.startswith("the throughput table has no job type 'ResNet-18' (did you mean 'ResNet-18 (batch size 16)'")
    assert told.endswith("it is taken to be equally fast on all types")
    assert "did you mean" not in of.about_type("zzzz", 1)
    assert of.about_type(RESNET, 1) == of.about_type("", 1) == ""
    assert "with 1, 2, 4, 8 GPUs, not with 3" in of.about_type(RESNET, 3)
    # what a job of this name did counts as known
    of.knowledge.learn("mine", 1, {("v100", 1): 4.0})
    assert of.about_type("mine", 1) == ""


def test_a_deadline_is_judged_by_what_is_believed_of_the_job() -> None:
    of = prospects()
    due = asked(deadline=110.0)
    assert of.about_deadline(due, 10.0) == (
        "it is due in 100 s and is taken to need 3600 s, as it says neither --steps nor --duration"
    )
    assert of.about_deadline(replace(due, duration=50.0), 10.0) == ""
    assert of.about_deadline(replace(due, duration=150.0), 10.0) == "it is due in 100 s and is taken to need 150 s"
    assert of.about_deadline(replace(due, total_steps=101.0), 10.0).endswith(
        "101 s, at one step a second as nothing is known of its speed"
    )
    assert of.about_deadline(replace(due, total_steps=101.0, measured={("v100", 1): 2.0}), 10.0) == ""
    assert of.about_deadline(asked(), 10.0) == ""
    assert of.why_rejected(replace(due, duration=50.0), 10.0) == (
        "it is due in 100 s and is taken to need 50 s, for which there is no room beside those let in before"
    )
    # a policy that chooses the number of GPUs may give it more
    alone = replace(due, job_type=RESNET, total_steps=1e6)
    assert prospects(elastic=True)._seconds(alone) < of._seconds(alone)


def test_a_policy_that_rejects_says_what_it_took_a_job_to_need(tmp_path: Path) -> None:
    async def go() -> None:
        cluster = two_types(2, 0)
        cluster.machines.pop()
        service = await service_on(tmp_path, cluster, "elasticflow")
        job = {"command": ["train", "5"], "working_directory": "/", "deadline": 60.0}
        (made,) = Requests(service).answer({"do": "submit", "jobs": [job]})["jobs"]
        why = "it is due in 60 s and is taken to need 3600 s, as it says neither --steps nor --duration"
        assert made["notices"] == [why]
        await settle(service)
        (one,) = service.book.by_id
        assert (one.state, one.reason) == ("rejected", f"elasticflow cannot promise its deadline: {why}")
        await service._finish()

    asyncio.run(go())


class Answering:
    """A service that always answers the same of its jobs."""

    def follow(self, what: str, jobs: list[int]) -> dict[str, Any]:
        assert what == "status"
        return {"jobs": [{"id": job, "reason": f"needs {job} more GPUs"} for job in jobs]}


def test_who_waits_is_told_once_what_cannot_run(capsys: pytest.CaptureFixture[str]) -> None:
    hindrances = _Hindrances(Answering())  # type: ignore[arg-type]
    service = {"cannot_run": [1, 4], "trouble": ""}
    hindrances.tell(service, None)
    hindrances.tell(service, None)
    assert capsys.readouterr().err == "job 1 cannot run: needs 1 more GPUs\njob 4 cannot run: needs 4 more GPUs\n"
    hindrances.tell({"cannot_run": [4], "trouble": "no decision"}, None)
    hindrances.tell(service | {"trouble": "no decision"}, None)
    # job 1 could run in between
    assert capsys.readouterr().err == "trouble: no decision\njob 1 cannot run: needs 1 more GPUs\n"
    _Hindrances(Answering()).tell(service, [4, 7])  # type: ignore[arg-type]
    assert capsys.readouterr().err == "job 4 cannot run: needs 4 more GPUs\n"


def test_a_job_that_can_never_run_here_raises_by_itself() -> None:
    with pytest.raises(InputError, match="at most 4, of one type"):
        prospects().check(asked(gpus=5))
    prospects().check(asked(gpus=4))
