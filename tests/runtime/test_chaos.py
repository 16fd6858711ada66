"""All kinds of trouble in any order: every job ends where it belongs, none runs twice, and no step is forgotten."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time
import uuid
from dataclasses import replace

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from allocator.runtime.records.book import FINAL, Book
from allocator.runtime.settings import ServiceSettings
from tests.runtime.model_cluster import (
    OPEN,
    job,
    leave,
    run_on,
    service_on,
    settle,
    two_types,
    world_under,
)
from tests.runtime.test_real_faults import Forking, states_in
from tests.runtime.worlds import lines

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
    st.tuples(st.just("crash at a write"), st.integers(1, 12), st.booleans()),
    st.tuples(st.just("time"), st.sampled_from([0.5, 3.0, 11.0])),
)


class Crash(BaseException):
    """The service is gone from one instant to the next."""


class CrashingJournal:
    """Raises `Crash` at a write, before or after it is done."""

    def __init__(self, journal, at, before):
        self._journal, self._left, self._before = journal, at, before

    def append(self, events):
        self._left -= 1
        if self._left == 0 and self._before:
            raise Crash
        written = self._journal.append(events)
        if self._left == 0:
            raise Crash
        return written

    def __getattr__(self, name):
        return getattr(self._journal, name)


class Story:
    """The service of the moment, its cluster, and what may happen to them."""

    def __init__(self, folder, cluster):
        self._folder, self.cluster, self._policy = folder, cluster, "fifo_perf"

    async def begin(self):
        self.service = await service_on(self._folder, self.cluster, self._policy, SETTINGS)

    async def again(self):
        await leave(self.service)
        self.cluster.silent = False
        await self.begin()

    async def happen(self, what, *more):
        try:
            await self._happen(what, *more)
        except Crash:
            await self.again()

    async def _happen(self, what, *more):
        service, cluster = self.service, self.cluster
        name = more[0] if more else ""
        if what == "submit":
            service.submit([(uuid.uuid4().hex, job(20.0 + len(service.book.by_id), name, gpus=more[1]))])
        elif what == "cancel":
            service.cancel([one for one in service.book.by_id if one.id == name])
        elif what == "stop":
            there = [one for one in service.book.by_id if one.id == name and one.state in ("starting", "running")]
            service.stop(there, "for a test")
        elif what in ("drain", "evict", "resume"):
            evicted = list(service.book.holding.values()) if what == "evict" else []
            service.drain(name, what != "resume", evicted)
        elif what in ("lose", "return", "cut"):
            cluster.machines[:] = [
                replace(node, up=what == "return") if node.name == name else node for node in cluster.machines
            ]
        elif what == "policy":
            service.use_policy(world_under(name))
            self._policy = name
        elif what == "broken policy":
            service.use_policy(world_under("srtf", before=lambda: 1 / 0))
        elif what == "crash":
            raise Crash
        elif what == "crash at a write":
            service.journal = CrashingJournal(service.journal, *more)
        elif what in ("silence", "speech"):
            cluster.silent = what == "silence"
        elif what == "look":
            await service.look()
        elif what == "time":
            await run_on(service, name)
        # jobs are gone with their node, or what the cluster keeps of those that have ended is lost
        on = lambda run: name in run.order.placed.places  # noqa: E731
        gone = lambda run: on(run) if what == "cut" else what == "forget" and run.seen.phase == "ended"  # noqa: E731
        cluster.runs = {key: run for key, run in cluster.runs.items() if not gone(run)}

    async def play(self, story):
        await self.begin()
        for what, *more in story:
            await self.happen(what, *more)
        # then all is well again
        await self.again()
        for node in ("v", "k"):
            await self.happen("return", node)
            await self.happen("resume", node)
        await self.happen("policy", "fifo_perf")
        self.service._next_look = 0.0
        await settle(self.service)
        self.service.cancel([one for one in self.service.book.active.values() if one.gpus > 2])
        await run_on(self.service, 3000.0)
        for _ in range(3):
            self.cluster.advance(6.0)
            await settle(self.service)


def check_story(folder, story, crashes_only=False):
    cluster = two_types()
    told = Story(folder, cluster)

    async def go():
        await told.play(story)
        service, again = told.service, Book()
        for event in service.journal.events():
            again.apply(event)
        # the book that is read again is the same
        assert vars(again) == vars(service.book)
        await leave(service)
        return service

    try:
        service = asyncio.run(go())
    finally:
        OPEN.clear()
    assert all(one.state in FINAL for one in service.book.by_id), list(service.book.active.values())
    assert not cluster.running()
    assert len(cluster.starts) == len(set(cluster.starts))
    assert service.trouble == ""
    assert sum(service.book.counts.values()) == len(service.book.by_id)
    for one in service.book.by_id:
        kind = one.command[2] if len(one.command) > 2 else ""
        if one.state == "cancelled":
            assert one.reason == "cancelled"
        elif kind in ("broken", "refused") or crashes_only:
            assert one.state == ("failed" if kind in ("broken", "refused", "doomed") else "completed")
        assert one.run_seconds <= one.finished_at - one.submitted_at + 1e-6


only_crashes = st.one_of(
    st.tuples(st.just("submit"), st.sampled_from(["", "crash", "deaf", "broken", "doomed"]), st.integers(1, 2)),
    st.tuples(st.just("crash at a write"), st.integers(1, 12), st.booleans()),
    st.tuples(st.just("time"), st.sampled_from([0.5, 3.0, 11.0])),
)


@settings(max_examples=6, deadline=None, suppress_health_check=list(HealthCheck))
@given(story=st.lists(only_crashes, min_size=5, max_size=25))
def test_crashes_at_any_write_lose_nothing_and_run_nothing_twice(tmp_path_factory, story):
    check_story(tmp_path_factory.mktemp("crashes"), story, crashes_only=True)


@settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
@given(story=st.lists(happenings, min_size=5, max_size=40))
def test_a_story(tmp_path_factory, story):
    check_story(tmp_path_factory.mktemp("story"), story)


SERVICE = """
from allocator.runtime.adapters.base import Node
from allocator.runtime.decisions.hardware import Hardware
from allocator.runtime.settings import ServiceSettings
from tests.runtime.model_cluster import world_under
from tests.runtime.test_real_faults import QUICK, Serving, submit, trainer
policy = "max_min_fairness_perf"
# what the first decision imports is there before the first fork
world_under(policy)(Hardware((Node("here", "v100", 1),))).check()
async def main(words):
    state, jobs = Path(sys.argv[1]), int(words[0])
    settings = ServiceSettings(**vars(QUICK) | {"notice_seconds": 60.0, "grace_seconds": 120.0})
    async with Serving(state, "v100:2,k80:2", settings, policy) as service:
        for number in range(len(service.book.by_id), jobs):
            submit(service, trainer(state / f"job{number}", 20 + number % 7))
        while service.book.active or len(words) == 1:
            await asyncio.sleep(0.05)
"""


def test_services_are_killed_at_any_moment_and_every_job_completes_once(tmp_path):
    kills = 6
    draw, jobs = random.Random(1), kills // 2
    with Forking(SERVICE, str(tmp_path)) as services:
        for life in range(kills):
            service = services.fork(min(jobs, 1 + life))
            time.sleep(draw.choice((0.02, 0.05, 0.1, 0.3, 0.6)) * draw.random())
            os.kill(service, signal.SIGKILL)
            services.gone()
        services.fork(jobs, "to the end")
        services.gone()
    assert states_in(tmp_path) == ["completed"] * jobs
    for number in range(jobs):
        words = [line.split() for line in lines(tmp_path / f"job{number}")]
        assert all(one[0] == "step" for one in words), f"job {number} ran twice at once: {words}"
        # every step is saved before it is reported: none is done twice, none is left out
        assert [int(one[1]) for one in words] == list(range(1, 21 + number % 7))
        epochs = [int(one[2]) for one in words]
        assert epochs == sorted(epochs)
