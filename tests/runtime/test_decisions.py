"""Decisions of a service: what a world is told, policies that fail or take their time, and clocks that jump."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import replace

import pytest

from allocator.lease.files import LEASE_FILE, Grant, read_file
from allocator.mechanism.settings import MechanismSettings
from allocator.presets import preset
from allocator.registry import get_policy
from allocator.runtime.adapters.base import Node
from allocator.runtime.decisions.hardware import Hardware
from allocator.runtime.decisions.knowledge import Knowledge
from allocator.runtime.decisions.world import News, World
from allocator.runtime.door.views import service_view
from allocator.runtime.records.book import Job
from allocator.runtime.records.journal import Event
from tests.runtime.model_cluster import (
    SAVE_SECONDS,
    START_SECONDS,
    job,
    one_type,
    run_on,
    service_on,
    settle,
    started,
    states,
    submit,
    two_types,
    world_under,
)
from tests.simulator.worlds import SharesPolicy, equal_shares
from throughputs import InputError, ThroughputTable


@pytest.mark.parametrize("kind", [RuntimeError, StopIteration])
async def test_a_policy_that_raises_is_asked_again(tmp_path, kind):
    failing = [False, True, True, True, False, True]

    def before():
        if failing and failing.pop(0):
            raise kind("the policy is broken")

    service = await service_on(tmp_path, two_types(), make_world=world_under("max_min_fairness_perf", before=before))
    await submit(service, *(job(100.0) for _ in range(6)))
    await submit(service, *(job(30.0) for _ in range(3)))
    troubles = []
    for _ in range(40):
        await run_on(service, 1.0)
        troubles.append(service.deciding.trouble)
        # who ran runs on
        assert service.adapter.running() or not service.book.active
    assert any("the policy is broken" in trouble for trouble in troubles)
    assert troubles[-1] == ""
    await run_on(service, 900.0)
    assert states(service) == ["completed"] * 9


async def test_a_decision_that_takes_its_time_holds_nothing_up(tmp_path):
    """While a policy thinks, jobs are taken, cancelled and told so, leases are written, and ends are seen."""
    slow, thinking, answer = threading.Event(), threading.Event(), threading.Event()

    def before():
        if slow.is_set():
            thinking.set()
            assert answer.wait(600)

    cluster = two_types(1, 1)
    service = await service_on(tmp_path, cluster, make_world=world_under("fifo_perf", before=before))
    await submit(service, job(20.0), job(500.0, "stubborn"), job(50.0))
    slow.set()
    cluster.advance(1.0)
    while not thinking.is_set():
        # once it is asked, the policy begins to think when its thread has its turn
        if service.deciding._task is None:
            cluster.advance(0.5)
        await service.look()
        await asyncio.sleep(0.01)
    stubborn = service.book.by_id[1]
    service.cancel([stubborn])
    assert read_file(service.watching.folder(stubborn) / LEASE_FILE, Grant).ends
    service.submit([("late", job(20.0))])
    for _ in range(60):
        cluster.advance(0.5)
        await service.look()
        await asyncio.sleep(0.001)
    assert service.deciding._task is not None
    assert stubborn.state == "cancelled"
    assert "completed" in states(service)
    slow.clear()
    answer.set()
    await settle(service)
    await run_on(service, 900.0)
    assert states(service) == ["completed", "cancelled", "completed", "completed"]


@pytest.fixture
def told(monkeypatch):
    """All news and what was decided on them."""
    found, decide = [], World.decide

    def remember(world, news):
        found.append((news, decide(world, news)))
        return found[-1][1]

    monkeypatch.setattr(World, "decide", remember)
    return found


async def test_whoever_moves_has_the_time_of_its_round(tmp_path, told):
    """Two jobs change places every round: the end of the lease before says nothing of the one that follows."""
    jobs = [job(400.0) for _ in range(2)]
    await started(tmp_path, two_types(1, 1), *jobs, policy="max_min_fairness_perf", until=95.0)
    rounds = [news.seconds for news, _ in told if news.seconds]
    assert len(rounds) >= 5
    assert all(seconds == pytest.approx(10.0, abs=1.1) for one in rounds for seconds in one.values())


async def test_a_world_is_told_of_speeds_of_what_starts_cost(tmp_path, told):
    jobs = [job(400.0) for _ in range(3)]
    service = await started(tmp_path, two_types(1, 1), *jobs, policy="max_min_fairness_perf", until=95.0)
    assert any(news.measured for news, _ in told[5:])
    # asked when they came, and when they were first measured on either type: speeds that hardly change are no news
    asked = [verdict.told["asked"] for _, verdict in told]
    assert sum(asked) <= 6 < len(asked)
    assert not any(asked[-3:])
    # whoever was started by the last decision has paid for it, nobody else has
    cost = START_SECONDS + SAVE_SECONDS
    assert {seconds for news, _ in told for seconds in news.lost_seconds.values()} == {0.0, cost}
    assert service_view(service)["start_seconds"] == cost


async def test_rounds_are_decided_as_late_as_slow_decisions_have_time(tmp_path):
    """Of rounds of 10 s: at half time without a decision so far, else by the slowest of the last twenty."""
    service = await started(tmp_path, two_types(1, 1), job(400.0), policy="max_min_fairness_perf", until=0.5)
    deciding, end = service.deciding, service.deciding.round.end
    for took, lead in (
        ((), 5.0),
        ((0.01,), 0.12),
        ((0.01, 1.5, *[0.01] * 18), 3.1),
        ((1.5, *[0.01] * 20), 0.12),
        ((60.0,), 5.0),
    ):
        deciding._took.clear()
        deciding._took.extend(took)
        assert not deciding.due(end - lead - 0.01, service.book)
        assert deciding.due(end - lead + 0.01, service.book)


SMALL, LARGE = "net (batch size 16)", "net (batch size 64)"
TABLE = ThroughputTable([(SMALL, 1), (LARGE, 1)], ["v100"], [[8.0], [3.0]])


class Hearing(SharesPolicy):
    """Keeps the states that it is asked in."""

    def allocate(self, state):
        self.seen = state.rates.tolist()
        return super().allocate(state)


async def test_a_job_with_another_batch_size_is_another_row_of_the_table(tmp_path):
    policy = Hearing(equal_shares)
    world = World(Hardware([Node("here", "v100", 2)]), policy, MechanismSettings(), TABLE)
    first, second = (Job(k, name, ("x",), gpus=1, total_steps=1e4, job_type=SMALL) for k, name in enumerate("ab"))
    world.decide(News(0.0, {"a": first, "b": second}))
    assert policy.seen == [[8.0], [8.0]]
    # the second comes back with another batch size, as another job
    again = replace(second, job_type=LARGE)
    world.decide(News(1e5, {"a": first, "b": again}))
    assert policy.seen == [[8.0], [3.0]]
    # and a wish names that row
    service = await service_on(tmp_path, one_type(1))
    service.deciding.world.knowledge = Knowledge(["v100"], TABLE)
    wish = {"gpus": 1, "batch_size": 64}
    assert service._typed(first, Event("resized", "a", 0.0, wish)).data == wish | {"job_type": LARGE}


MECHANISM = replace(preset("default").replace(round_seconds=10.0).mechanism, placement="consolidated")


def submitted(number, clock):
    deadline = clock + 4000.0 if number % 3 == 0 else None
    told = {"total_steps": 500.0 + 13.0 * (number % 7), "gpus": 1 + number % 2, "deadline": deadline}
    return Job(number, f"{number:032x}", ("x",), submitted_at=clock, **told)


def test_a_policy_that_packs_is_refused():
    with pytest.raises(InputError, match="max_min_fairness_packed"):
        World(Hardware([Node("here", "v100", 2)]), get_policy("max_min_fairness_packed"), MechanismSettings(), TABLE)


def test_what_a_world_keeps_does_not_grow_with_those_who_are_through():
    world = World(Hardware([Node("here", "v100", 4)]), get_policy("elasticflow"), MECHANISM)
    first = submitted(0, 0.0)
    world.decide(News(0.0, {first.uuid: first}))
    for number in range(1, 20):
        job = submitted(number, 10.0 * number)
        world.decide(News(10.0 * number, {first.uuid: first, job.uuid: job}))
    state = world.state()
    assert len(state["jobs"]) == len(world.ids) == 2
    assert (state["ids"], state["next_id"]) == ([0, 19], 20)


def heard():
    """A policy that keeps what it is asked, and a world of a GPU of one type and two of another under it."""
    policy = SharesPolicy()
    return policy, World(Hardware([Node("k", "k80", 1), Node("v", "v100", 2)]), policy, MechanismSettings())


def test_what_is_measured_is_told_on_types_that_have_room_and_small_changes_are_not():
    policy, world = heard()
    gang = Job(0, "a", ("x",), gpus=2, total_steps=1e4)
    world.decide(News(0.0, {"a": gang}))
    told = [policy.states[-1].rates.tolist()]
    for clock, rate in ((1e5, 0.5), (2e5, 0.503), (3e5, 0.8)):
        world.decide(News(clock, {"a": gang}, measured={"a": {("v100", 2): rate}}))
        told.append(policy.states[-1].rates.tolist())
    # one step a second as long as nothing is known, and no gang of two fits the one k80
    assert told == [[[0.0, rate]] for rate in (1.0, 0.5, 0.5, 0.8)]


def test_a_world_that_comes_back_knows_what_its_jobs_did_meanwhile():
    (_, before), (policy, after) = heard(), heard()
    jobs = {name: Job(k, name, ("x",), total_steps=100.0) for k, name in enumerate("ab")}
    before.decide(News(0.0, jobs))
    after.resume(before.state(), jobs, {"a": 30.0})
    after.decide(News(1e5, jobs | {"c": Job(2, "c", ("x",), total_steps=50.0)}))
    assert policy.states[-1].steps_remaining.tolist() == [70.0, 100.0, 50.0]


def test_a_world_that_goes_on_from_another_knows_how_far_jobs_are_by_now():
    def world():
        return World(Hardware([Node("here", "v100", 4)]), get_policy("srtf"), MECHANISM)

    first, jobs = world(), {job.uuid: job for job in (submitted(number, 0.0) for number in range(2))}
    first.decide(News(0.0, jobs))
    other = world()
    other.resume(first.state(), jobs, {uuid: 100.0 * (job.id + 1) for uuid, job in jobs.items()})
    assert other.state()["table"]["progress"]["steps_done"].tolist() == [100.0, 200.0]
