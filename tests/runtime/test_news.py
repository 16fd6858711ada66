"""What a world is told of a round that is over."""

from __future__ import annotations

import asyncio
import uuid
from pathlib import Path

import pytest

from allocator.runtime.decisions.world import News, Verdict, World
from tests.runtime.model_cluster import SAVE_SECONDS, START_SECONDS, job, run_on, service_on, settle, two_types


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[tuple[News, Verdict]]:
    """All news and what was decided on them."""
    found: list[tuple[News, Verdict]] = []
    decide = World.decide

    def remember(world: World, news: News) -> Verdict:
        verdict = decide(world, news)
        found.append((news, verdict))
        return verdict

    monkeypatch.setattr(World, "decide", remember)
    return found


def run(folder: Path, jobs: int, seconds: float) -> None:
    cluster = two_types(1, 1)

    async def go() -> None:
        service = await service_on(folder, cluster, "max_min_fairness_perf")
        service.submit((uuid.uuid4().hex, job(400.0)) for _ in range(jobs))
        await settle(service)
        await run_on(service, cluster, seconds)
        await service._finish()

    asyncio.run(go())


def test_whoever_moves_has_the_time_of_its_round(tmp_path: Path, told: list[tuple[News, Verdict]]) -> None:
    """Two jobs change places every round: the end of the lease before says nothing of the one that follows."""
    run(tmp_path, 2, 95.0)
    rounds = [news.seconds for news, _ in told if news.seconds]
    assert len(rounds) >= 5
    assert all(seconds == pytest.approx(10.0, abs=1.1) for one in rounds for seconds in one.values())


def test_speeds_that_hardly_change_are_no_news(tmp_path: Path, told: list[tuple[News, Verdict]]) -> None:
    run(tmp_path, 3, 95.0)
    assert any(news.measured for news, _ in told[5:])
    asked = [verdict.recomputed for _, verdict in told]
    # when they came, and when they were first measured on either type
    assert sum(asked) <= 6 < len(asked)
    assert not any(asked[-3:])


def test_a_world_is_told_what_starts_cost(tmp_path: Path, told: list[tuple[News, Verdict]]) -> None:
    """Whoever was started by the last decision has paid for it, nobody else has."""
    run(tmp_path, 3, 95.0)
    costs = [cost for news, _ in told for cost in news.lost_seconds.values()]
    assert set(costs) == {0.0, START_SECONDS + SAVE_SECONDS}
    seen = [verdict.start_seconds for _, verdict in told]
    assert seen[0] == 0.0
    # from the first start that was paid for on, also behind decisions that cost nobody anything
    assert seen[-1] == START_SECONDS + SAVE_SECONDS
    assert seen == sorted(seen)


@pytest.mark.parametrize(
    ("took", "lead"),
    [((), 5.0), ((0.01,), 0.12), ((0.01, 1.5, *[0.01] * 18), 3.1), ((1.5, *[0.01] * 20), 0.12), ((60.0,), 5.0)],
)
def test_rounds_are_decided_as_late_as_slow_decisions_have_time(
    tmp_path: Path, took: tuple[float, ...], lead: float
) -> None:
    """Of rounds of 10 s: at half time without a decision so far, else by the slowest of the last twenty."""

    async def go() -> None:
        cluster = two_types(1, 1)
        service = await service_on(tmp_path, cluster, "max_min_fairness_perf")
        service.submit([(uuid.uuid4().hex, job(400.0))])
        await settle(service)
        cluster.advance(0.5)
        await settle(service)
        deciding, end = service.deciding, service.deciding.outlook().ends
        deciding._took.clear()
        deciding._took.extend(took)
        assert not deciding.due(end - lead - 0.01, service.book)
        assert deciding.due(end - lead + 0.01, service.book)
        await service._finish()

    asyncio.run(go())
