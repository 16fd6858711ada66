"""Orders in time: who is asked to end, pressed and killed when, and what is ordered again."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from allocator.lease.files import LEASE_FILE, Grant, Report, read_file, write_file
from allocator.runtime.adapters.base import Adapter, AdapterError, NoAnswerError, Node, Seen, StartOrder
from allocator.runtime.dispatch import Dispatch
from allocator.runtime.records.book import Book, Job
from allocator.runtime.settings import ServiceSettings
from allocator.runtime.watching import Watching

SETTINGS = ServiceSettings(notice_seconds=2.0, grace_seconds=5.0)


class Cluster(Adapter):
    """Remembers orders, with the time; the first `failures` of them raise `error`."""

    def __init__(self, error: type[AdapterError] = AdapterError, failures: int = 0) -> None:
        self.clock, self.orders = 0.0, list[tuple[str, float]]()
        self.environment: dict[str, str] = {}
        self._error, self._failures = error, failures

    def _take(self, what: str) -> None:
        self.orders.append((what, self.clock))
        if len(self.orders) <= self._failures:
            raise self._error("not now")

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    async def nodes(self) -> Sequence[Node]:
        return ()

    async def observe(self) -> Sequence[Seen]:
        return ()

    async def start(self, order: StartOrder) -> None:
        self.environment = dict(order.environment)
        self._take("start")

    async def stop(self, job: str, epoch: int) -> None:  # noqa: ARG002
        self._take("stop")

    async def kill(self, job: str, epoch: int) -> None:  # noqa: ARG002
        self._take("kill")

    async def forget(self, job: str) -> None:  # noqa: ARG002
        self._take("forget")


class Desk:
    """A job, and who gives orders for it."""

    def __init__(self, folder: Path, cluster: Cluster, state: str) -> None:
        self.cluster = cluster
        places = {"v": (0,)}
        self.job = Job(0, "a", ("x",), "/", state=state, reason="why", epoch=3, places=places, environment={"B": "2"})
        self.watching = Watching(folder, Book(), SETTINGS)
        self.folder = self.watching.folder(self.job)
        self.refused: list[tuple[Seen, int]] = []
        self.dispatch = Dispatch(
            cluster,
            self.watching,
            SETTINGS,
            lambda: cluster.clock,
            lambda _: {"A": "1", "B": "1"},
            lambda _, seen, later: self.refused.append((seen, later)),
            lambda: None,
        )

    async def settle(self) -> None:
        while self.dispatch.tasks:
            await asyncio.wait(list(self.dispatch.tasks.values()))

    async def press(self, seconds: float) -> list[tuple[str, float]]:
        """Told to end, for so long; half a second between two looks."""
        self.folder.mkdir(parents=True, exist_ok=True)
        while self.cluster.clock <= seconds:
            self.dispatch.press(self.job, self.cluster.clock)
            await self.settle()
            self.cluster.clock += 0.5
        return self.cluster.orders


@pytest.mark.parametrize("reports", [True, False])
def test_who_reports_has_notice_and_all_have_grace(tmp_path: Path, reports: bool) -> None:
    async def go() -> None:
        desk = Desk(tmp_path, Cluster(), "stopping")
        if reports:
            desk.watching.of(desk.job, 0.0).report = Report("a", 3, "training")
        kills = [("kill", 5.0), ("kill", 10.0)]
        assert await desk.press(12.0) == [("stop", 2.0 if reports else 0.0), *kills]
        grant = read_file(desk.folder / LEASE_FILE, Grant)
        assert grant == Grant("a", 3, 0, True, "why", SETTINGS.grace_seconds, None, 1, "")

    asyncio.run(go())


def test_a_signal_that_was_not_taken_is_sent_again(tmp_path: Path) -> None:
    async def go() -> None:
        desk = Desk(tmp_path, Cluster(failures=2), "stopping")
        assert await desk.press(4.5) == [("stop", 0.0), ("stop", 1.0), ("stop", 2.0)]

    asyncio.run(go())


def test_a_start_that_nobody_knows_of_is_killed_again_and_then_forgotten(tmp_path: Path) -> None:
    async def go() -> None:
        desk = Desk(tmp_path, Cluster(), "running")
        for _ in range(14):
            desk.dispatch.clear(Seen("b", 1, "running"))
            await desk.settle()
            desk.cluster.clock += 0.5
        desk.dispatch.clear(Seen("b", 1, "ended"))
        await desk.settle()
        assert desk.cluster.orders == [("kill", 0.0), ("kill", 5.0), ("forget", 7.0)]

    asyncio.run(go())


def test_a_start_goes_out_under_its_epoch_with_all_variables(tmp_path: Path) -> None:
    async def go() -> None:
        desk = Desk(tmp_path, Cluster(), "starting")
        desk.dispatch.start(desk.job)
        desk.dispatch.start(desk.job)
        await desk.settle()
        assert desk.cluster.orders == [("start", 0.0)]
        # what was submitted comes before what the service says
        assert desk.cluster.environment == {"A": "1", "B": "2"}
        grant = read_file(desk.folder / LEASE_FILE, Grant)
        assert grant == Grant("a", 3, 0, False, "", SETTINGS.grace_seconds, None, 1, "")

    asyncio.run(go())


def test_a_start_is_ordered_again_where_nobody_answers_and_refused_where_it_is(tmp_path: Path) -> None:
    async def go(error: type[AdapterError]) -> Desk:
        desk = Desk(tmp_path, Cluster(error, failures=1), "starting")
        for _ in range(4):
            desk.dispatch.start(desk.job)
            await desk.settle()
            if desk.refused:
                break
            desk.cluster.clock += 0.5
        return desk

    silent, refusing = asyncio.run(go(NoAnswerError)), asyncio.run(go(AdapterError))
    assert silent.cluster.orders == [("start", 0.0), ("start", 1.0), ("start", 1.5)]
    assert silent.refused == []
    assert [(seen.reason, epoch) for seen, epoch in refusing.refused] == [("not now", 0)]


def test_a_start_behind_a_later_epoch_is_refused_with_it(tmp_path: Path) -> None:
    async def go() -> None:
        desk = Desk(tmp_path, Cluster(), "starting")
        desk.folder.mkdir(parents=True)
        write_file(desk.folder / LEASE_FILE, Grant("a", 9))
        desk.dispatch.start(desk.job)
        await desk.settle()
        assert [later for _, later in desk.refused] == [9]
        assert desk.cluster.orders == []

    asyncio.run(go())


def test_a_kill_that_went_wrong_is_ordered_again_soon(tmp_path: Path) -> None:
    async def go() -> None:
        desk = Desk(tmp_path, Cluster(failures=2), "running")
        for _ in range(14):
            desk.dispatch.clear(Seen("b", 1, "running"))
            await desk.settle()
            desk.cluster.clock += 0.5
        assert desk.cluster.orders == [("kill", clock) for clock in (0.0, 1.0, 2.0)]

    asyncio.run(go())


@pytest.mark.parametrize("meanwhile", ["stopping", "queued"])
def test_a_start_of_which_the_mind_was_changed_meanwhile_is_not_ordered(tmp_path: Path, meanwhile: str) -> None:
    async def go() -> None:
        desk = Desk(tmp_path, Cluster(), "starting")
        desk.dispatch.start(desk.job)
        desk.job.state = meanwhile
        await desk.settle()
        assert desk.cluster.orders == []

    asyncio.run(go())


def test_what_went_wrong_before_an_end_does_not_delay_what_comes_after(tmp_path: Path) -> None:
    async def go() -> None:
        desk = Desk(tmp_path, Cluster(NoAnswerError, failures=1), "starting")
        desk.dispatch.start(desk.job)
        await desk.settle()
        assert desk.dispatch.troubles == {"a": "not now"}
        desk.dispatch.ended(desk.job)
        assert desk.dispatch.troubles == {}
        desk.dispatch.start(desk.job)
        await desk.settle()
        assert desk.cluster.orders == [("start", 0.0)] * 2

    asyncio.run(go())
