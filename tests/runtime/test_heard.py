"""What policies hear of real jobs: other batch sizes, and steps that no checkpoint has."""

from __future__ import annotations

import asyncio
import uuid
from pathlib import Path

import numpy as np
import pytest

from allocator import Cluster
from allocator.mechanism.settings import MechanismSettings
from allocator.protocol import ClusterState
from allocator.protocol.allocation import Allocation
from allocator.runtime.decisions.knowledge import Knowledge
from allocator.runtime.decisions.world import News, World
from allocator.runtime.records.book import Book, Job
from allocator.runtime.records.journal import Event
from tests.runtime.model_cluster import job, one_type, run_on, service_on, settle
from tests.simulator.worlds import SharesPolicy, equal_shares
from throughputs import ThroughputTable

SMALL, LARGE = "net (batch size 16)", "net (batch size 64)"
TABLE = ThroughputTable([(SMALL, 1), (LARGE, 1)], ["v100"], [[8.0], [3.0]])


def test_a_type_at_another_batch_size() -> None:
    knowledge = Knowledge(["v100"], TABLE)
    assert knowledge.type_at(SMALL, 64) == LARGE
    assert knowledge.type_at(SMALL, None) == SMALL
    # the table has no such row, or the type no batch size
    assert knowledge.type_at(SMALL, 32) == SMALL
    assert knowledge.type_at("other", 64) == "other"
    assert Knowledge(["v100"], None).type_at(SMALL, 64) == SMALL


def test_measurements_are_of_a_batch_size() -> None:
    book = Book()
    for event in (
        Event("submitted", "a", 0.0, {"command": ["x"], "gpus": 1, "total_steps": 9.0, "job_type": SMALL}),
        Event("measured", "a", 1.0, {"pool": "v100", "gpus": 1, "rate": 7.0}),
        Event("resized", "a", 2.0, {"gpus": 2, "batch_size": None, "job_type": SMALL}),
    ):
        book.apply(event)
    job = book.jobs["a"]
    assert (job.gpus, job.job_type, job.measured) == (2, SMALL, {("v100", 1): 7.0})
    book.apply(Event("resized", "a", 3.0, {"gpus": 2, "batch_size": 64, "job_type": LARGE}))
    assert (job.gpus, job.job_type, job.batch_size, job.measured) == (2, LARGE, 64, {})


class Watching(SharesPolicy):
    """Keeps the states that it is asked in."""

    def allocate(self, state: ClusterState) -> Allocation:
        self.seen = (state.rates.copy(), state.unsaved_steps.copy())
        return super().allocate(state)


def test_the_policy_hears_both() -> None:
    policy = Watching(equal_shares)
    world = World(Cluster({"v100": 2}), policy, MechanismSettings(), TABLE)
    first, second = (Job(k, name, ("x",), gpus=1, total_steps=1e4, job_type=SMALL) for k, name in enumerate("ab"))
    world.decide(News(0.0, [first, second]))
    np.testing.assert_array_equal(policy.seen[0], [[8.0], [8.0]])
    np.testing.assert_array_equal(policy.seen[1], [0.0, 0.0])
    # the second comes back with another batch size, as another job
    again = Job(1, "b", ("x",), gpus=1, total_steps=1e4, job_type=LARGE)
    world.decide(News(1e5, [again], ["b"], unsaved_steps={"a": 40.0}))
    np.testing.assert_array_equal(policy.seen[0], [[8.0], [3.0]])
    np.testing.assert_array_equal(policy.seen[1], [40.0, 0.0])


def test_a_service_tells_what_is_not_saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two jobs take turns on one GPU: what the one that runs has done since its checkpoint."""
    told: list[News] = []
    decide = World.decide
    monkeypatch.setattr(World, "decide", lambda world, news: (told.append(news), decide(world, news))[1])
    cluster = one_type(1)

    async def go() -> None:
        service = await service_on(tmp_path, cluster, "max_min_fairness_perf")
        service.submit((uuid.uuid4().hex, job(400.0)) for _ in range(2))
        await settle(service)
        await run_on(service, cluster, 60.0)
        await service._finish()

    asyncio.run(go())
    unsaved = [steps for news in told for steps in news.unsaved_steps.values()]
    assert min(unsaved) >= 0 < max(unsaved)


def test_a_wish_names_the_row_of_the_table(tmp_path: Path) -> None:
    async def go() -> Event:
        service = await service_on(tmp_path, one_type(1))
        service.deciding._world.knowledge = Knowledge(["v100"], TABLE)
        wish = Event("resized", "a", 0.0, {"gpus": 1, "batch_size": 64})
        made = service._typed(Job(0, "a", ("x",), job_type=SMALL), wish)
        await service._finish()
        return made

    assert asyncio.run(go()).data == {"gpus": 1, "batch_size": 64, "job_type": LARGE}
