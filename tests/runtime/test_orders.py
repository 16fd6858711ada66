"""Orders: what is wanted against what is, who is asked to end, pressed and killed when, and what is ordered again."""

from __future__ import annotations

import asyncio
import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocator.lease.files import LEASE_FILE, Grant, Report, read_file, write_file
from allocator.runtime.adapters.base import NOWHERE, AdapterError, NoAnswerError, Placed, Seen
from allocator.runtime.decisions.hardware import held, orders
from allocator.runtime.dispatch import Dispatch
from allocator.runtime.records.book import Book, Job
from allocator.runtime.settings import ServiceSettings
from allocator.runtime.watching import Watching

SETTINGS = ServiceSettings(notice_seconds=2.0, grace_seconds=5.0)


class Cluster:
    """Remembers orders, with the time; the first `failures` of them raise `error`."""

    def __init__(self, error=AdapterError, failures=0):
        self.clock, self.orders, self.environment = 0.0, [], {}
        self._error, self._failures = error, failures

    async def _take(self, what):
        self.orders.append((what, self.clock))
        if len(self.orders) <= self._failures:
            raise self._error("not now")

    async def start(self, order):
        self.environment = dict(order.environment)
        await self._take("start")

    async def stop(self, *_):
        await self._take("stop")

    async def kill(self, *_):
        await self._take("kill")

    def lease_ends(self, _):
        pass

    async def forget(self, _):
        await self._take("forget")


class Desk:
    """A job, and who gives orders for it."""

    def __init__(self, folder, state, *cluster):
        self.cluster, self.refusals = Cluster(*cluster), []
        placed = Placed(places={"v": (0,)})
        self.job = Job(0, "a", ("x",), "/", state=state, reason="why", epoch=3, placed=placed, environment={"B": "2"})
        self.watching = Watching(folder, Book(), SETTINGS)
        self.folder = self.watching.folder(self.job)
        refused = lambda _, seen, later: self.refusals.append((seen.reason, later))  # noqa: E731
        self.dispatch = Dispatch(self.cluster, self.watching, SETTINGS, self.clock, refused, lambda: None)
        self.dispatch.variables = lambda _: {"A": "1", "B": "1"}

    def clock(self):
        return self.cluster.clock

    async def give(self, order, seconds=0.0):
        """An order again and again, for so long; half a second between two looks."""
        until = self.cluster.clock + seconds
        while self.cluster.clock <= until:
            order()
            await self.settle()
            self.cluster.clock += 0.5
        return self.cluster.orders

    async def settle(self):
        while self.dispatch.tasks:
            await asyncio.wait(list(self.dispatch.tasks.values()))

    def press(self):
        self.folder.mkdir(parents=True, exist_ok=True)
        self.dispatch.press(self.job, self.cluster.clock)

    def start(self):
        self.dispatch.start(self.job)

    def clear(self):
        self.dispatch.clear(Seen("b", 1, "running"))


@pytest.mark.parametrize(("reports", "stop"), [(True, 2.0), (False, 0.0)])
async def test_who_reports_has_notice_and_all_have_grace(tmp_path, reports, stop):
    desk = Desk(tmp_path, "stopping")
    if reports:
        desk.watching.of(desk.job).report = Report("a", 3, "training")
    assert await desk.give(desk.press, 12.0) == [("stop", stop), ("kill", 5.0), ("kill", 10.0)]
    grant = read_file(desk.folder / LEASE_FILE, Grant)
    assert grant == Grant("a", 3, True, 1, "")


async def test_orders_that_were_not_taken_are_given_again_soon(tmp_path):
    desk = Desk(tmp_path, "stopping", AdapterError, 2)
    assert await desk.give(desk.press, 4.5) == [("stop", 0.0), ("stop", 1.0), ("stop", 2.0)]
    desk = Desk(tmp_path, "running", AdapterError, 2)
    assert await desk.give(desk.clear, 6.5) == [("kill", 0.0), ("kill", 1.0), ("kill", 2.0)]


async def test_a_start_that_nobody_knows_of_is_killed_again_and_then_forgotten(tmp_path):
    desk = Desk(tmp_path, "running")
    await desk.give(desk.clear, 6.5)
    desk.dispatch.clear(Seen("b", 1, "ended"))
    await desk.settle()
    assert desk.cluster.orders == [("kill", 0.0), ("kill", 5.0), ("forget", 7.0)]


async def test_a_start_goes_out_once_under_its_epoch_with_all_variables(tmp_path):
    desk = Desk(tmp_path, "starting")
    desk.start()
    assert await desk.give(desk.start) == [("start", 0.0)]
    # what was submitted comes before what the service says
    assert desk.cluster.environment == {"A": "1", "B": "2"}
    grant = read_file(desk.folder / LEASE_FILE, Grant)
    assert grant == Grant("a", 3, False, 1, "")


async def test_a_start_is_ordered_again_where_nobody_answers_and_refused_where_it_is(tmp_path):
    silent, refusing = Desk(tmp_path, "starting", NoAnswerError, 1), Desk(tmp_path, "starting", AdapterError, 1)
    assert await silent.give(silent.start, 1.0) == [("start", 0.0), ("start", 1.0)]
    await refusing.give(refusing.start)
    assert (silent.refusals, refusing.refusals) == ([], [("not now", 0)])
    # what went wrong before an end does not delay what comes after
    desk = Desk(tmp_path, "starting", NoAnswerError, 1)
    for troubles in ({"a": "not now"}, {}):
        desk.start()
        await desk.settle()
        assert desk.dispatch.troubles == troubles
        desk.dispatch.ended(desk.job)
        assert desk.dispatch.troubles == {}
    assert desk.cluster.orders == [("start", 0.0)] * 2


async def test_a_start_behind_a_later_epoch_is_refused_with_it(tmp_path):
    desk = Desk(tmp_path, "starting")
    desk.folder.mkdir(parents=True)
    write_file(desk.folder / LEASE_FILE, Grant("a", 9))
    assert await desk.give(desk.start) == []
    assert [later for _, later in desk.refusals] == [9]


@pytest.mark.parametrize(("meanwhile", "epoch"), [("stopping", 3), ("queued", 3), ("starting", 4)])
async def test_a_start_of_which_the_mind_was_changed_meanwhile_is_not_ordered(tmp_path, meanwhile, epoch):
    desk = Desk(tmp_path, "starting")
    desk.start()
    desk.job.state, desk.job.epoch = meanwhile, epoch
    await desk.settle()
    assert desk.cluster.orders == []


def placed(gpus):
    return Placed("a", {"n": tuple(gpus)}) if gpus else NOWHERE


@st.composite
def situations(draw):
    """Jobs that hold disjoint GPUs of one node, and targets that are disjoint, too."""
    n = draw(st.integers(1, 6))

    def parts():
        order = draw(st.permutations(range(8)))
        cuts = [0, *sorted(draw(st.lists(st.integers(0, 8), min_size=n, max_size=n)))]
        return {str(k): placed(sorted(order[a:b])) for k, (a, b) in enumerate(itertools.pairwise(cuts))}

    jobs = {}
    for key, part in parts().items():
        state = draw(st.sampled_from(["starting", "running", "stopping"])) if part.gpus else "queued"
        jobs[key] = Job(int(key), key, ("x",), state=state, placed=part)
    return {key: part for key, part in parts().items() if part.gpus}, jobs


@given(situations())
def test_orders_reach_what_is_wanted_and_never_double_a_gpu(situation):
    targets, jobs = situation
    for _ in range(3):
        stops, starts = orders(targets, {uuid: job for uuid, job in jobs.items() if job.placed.gpus}, jobs)
        assert all(job.state != "stopping" for job in stops)
        assert all(job.state == "queued" for job in starts)
        for job in stops:
            job.state = "stopping"
        for job in starts:
            job.state, job.placed = "running", targets[job.uuid]
        assert len(held(jobs)) == sum(job.held_gpus for job in jobs.values())
        for job in jobs.values():
            if job.state == "stopping":
                job.state, job.placed = "queued", NOWHERE
    assert {uuid: job.placed for uuid, job in jobs.items() if job.placed.gpus} == targets


def test_of_two_that_a_plan_gives_a_gpu_one_has_it():
    jobs = {name: Job(k, name, ("x",)) for k, name in enumerate("ab")}
    both = dict.fromkeys("ab", placed([0]))
    assert orders(both, {}, jobs) == ([], [jobs["a"]])
    jobs["a"].state, jobs["a"].placed = "running", placed([0])
    assert orders(both, {"a": jobs["a"]}, jobs) == ([], [])
