"""All kinds of trouble in any order, on a cluster in memory: every job ends where it belongs, and none runs twice."""

from __future__ import annotations

import asyncio
import uuid
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from allocator.runtime.records.book import FINAL
from allocator.runtime.service import Service
from allocator.runtime.settings import ServiceSettings
from tests.runtime.model_cluster import ModelCluster, job, run_on, service_on, settle, two_types, world_under
from tests.runtime.test_policy_faults import odd_worlds

KINDS = ("", "", "", "crash", "deaf", "stubborn", "broken", "refused", "doomed", "careless")
POLICIES = ("fifo_perf", "max_min_fairness_perf", "srtf", "gandiva_fair", "finish_time_fairness_perf")
SETTINGS = ServiceSettings(grace_seconds=3.0, notice_seconds=1.0, retries=2, max_fruitless=3)
"""Short, as much happens."""

happenings = st.one_of(
    st.tuples(st.just("submit"), st.sampled_from(KINDS), st.integers(1, 3)),
    st.tuples(st.sampled_from(["cancel", "stop"]), st.integers(0, 12)),
    st.tuples(st.sampled_from(["drain", "evict", "resume", "lose", "return", "cut"]), st.sampled_from(["v", "k"])),
    st.tuples(st.just("policy"), st.sampled_from(POLICIES)),
    st.tuples(st.sampled_from(["crash", "silence", "speech", "broken policy", "look", "forget"])),
    st.tuples(st.just("time"), st.sampled_from([0.5, 3.0, 11.0])),
)


class World:
    """The service of the moment, its cluster, and what may happen to them."""

    def __init__(self, folder: object, cluster: ModelCluster) -> None:
        self._folder, self.cluster, self._policy = folder, cluster, "fifo_perf"
        self.service: Service

    async def begin(self) -> None:
        self.service = await service_on(self._folder, self.cluster, self._policy, SETTINGS)  # type: ignore[arg-type]

    async def happen(self, what: str, *more: object) -> None:
        service, cluster = self.service, self.cluster
        if what == "submit":
            kind, gpus = more
            service.submit([(uuid.uuid4().hex, job(20.0 + len(service.book.by_id), str(kind), gpus=gpus))])
        elif what in ("cancel", "stop"):
            chosen = [one for one in service.book.by_id if one.id == more[0]]
            if what == "cancel":
                service.cancel(chosen)
            else:
                service.stop([one for one in chosen if one.state in ("starting", "running")], "for a test")
        elif what in ("drain", "evict", "resume"):
            evicted = list(service.book.holding.values()) if what == "evict" else []
            service.drain(str(more[0]), what != "resume", evicted)
        elif what in ("lose", "return", "cut"):
            cluster.machines[:] = [
                replace(node, up=what == "return") if node.name == more[0] else node for node in cluster.machines
            ]
            if what == "cut":
                # its jobs are gone with it
                for key in [key for key, run in cluster.runs.items() if more[0] in run.order.gpus]:
                    del cluster.runs[key]
        elif what == "policy":
            self._policy = str(more[0])
            service.use_policy(world_under(self._policy))
        elif what == "broken policy":
            service.use_policy(odd_worlds(lambda: 1 / 0))
        elif what == "crash":
            await self.end()
            cluster.silent = False
            await self.begin()
        elif what in ("silence", "speech"):
            cluster.silent = what == "silence"
        elif what == "look":
            await service.look()
        elif what == "time":
            await run_on(service, cluster, cluster.clock + float(str(more[0])))
        elif what == "forget":
            # what the cluster keeps of those that have ended is lost
            for key in [key for key, run in cluster.runs.items() if run.seen.phase == "ended"]:
                del cluster.runs[key]

    async def end(self) -> None:
        for task in self.service._dispatch.tasks.values():
            task.cancel()
        self.service.deciding.abandon()
        self.service.journal.close()


def run(folder: object, story: list[tuple[object, ...]]) -> Service:
    cluster = two_types(2, 2)
    world = World(folder, cluster)

    async def go() -> Service:
        await world.begin()
        for what, *more in story:
            await world.happen(str(what), *more)
        # then all is well again
        await world.happen("speech")
        for node in ("v", "k"):
            await world.happen("return", node)
            await world.happen("resume", node)
        await world.happen("policy", "fifo_perf")
        world.service._next_look = 0.0
        await settle(world.service)
        big = [one for one in world.service.book.active.values() if one.gpus > 2]
        world.service.cancel(big)
        await run_on(world.service, cluster, cluster.clock + 3000.0)
        for _ in range(3):
            cluster.advance(6.0)
            await settle(world.service)
        await world.end()
        return world.service

    service = asyncio.run(go())
    assert all(one.state in FINAL for one in service.book.by_id), list(service.book.active.values())
    assert not cluster.running()
    assert not cluster.violations
    assert len(cluster.starts) == len(set(cluster.starts))
    assert service.trouble == ""
    assert sum(service.book.counts.values()) == len(service.book.by_id)
    kinds = [one.command[2] if len(one.command) > 2 else "" for one in service.book.by_id]
    for one, kind in zip(service.book.by_id, kinds, strict=True):
        if kind in ("broken", "refused"):
            assert one.state in ("failed", "cancelled")
        if one.state == "cancelled":
            assert one.reason == "cancelled"
        assert one.run_seconds <= (one.finished_at or 0.0) - one.submitted_at + 1e-6
    return service


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(story=st.lists(happenings, min_size=5, max_size=40))
def test_a_story(tmp_path_factory: pytest.TempPathFactory, story: list[tuple[object, ...]]) -> None:
    run(tmp_path_factory.mktemp("story"), story)


@pytest.mark.exhaustive
@settings(max_examples=600, deadline=None, suppress_health_check=list(HealthCheck))
@given(story=st.lists(happenings, min_size=20, max_size=120))
def test_a_long_story(tmp_path_factory: pytest.TempPathFactory, story: list[tuple[object, ...]]) -> None:
    run(tmp_path_factory.mktemp("story"), story)
