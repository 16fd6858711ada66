"""Jobs that are through are forgotten: decisions are the same, and cost what the jobs cost that are left."""

from __future__ import annotations

import copy
from dataclasses import replace

import numpy as np
import pytest

from allocator.cluster import Cluster
from allocator.presets import preset
from allocator.registry import get_policy
from allocator.runtime.decisions.world import News, Placed, Verdict, World
from allocator.runtime.records.book import Job

MECHANISM = replace(preset("default").replace(round_seconds=10.0).mechanism, placement="consolidated")
POLICIES = {
    "fifo_perf": "v100:3,k80:3",
    "max_min_fairness_perf": "v100:3,k80:3",
    "max_min_fairness": "v100:3,k80:3",
    "finish_time_fairness_perf": "v100:3,k80:3",
    "srtf": "v100:3,k80:3",
    "oef": "v100:3,k80:3",
    "shockwave": "v100:4",
    "elasticflow": "v100:4",
    "tiresias": "v100:4",
}


def submitted(number: int, clock: float) -> Job:
    deadline = clock + 4000.0 if number % 3 == 0 else None
    steps = 500.0 + 13.0 * (number % 7)
    return Job(
        number, f"{number:032x}", ("x",), total_steps=steps, gpus=1 + number % 2, submitted_at=clock, deadline=deadline
    )


def played(policy: str, decisions: int) -> list[tuple[Verdict, int]]:
    """A history in which jobs come and go, GPUs change once, and the service is started again once."""
    cluster, draw = Cluster.parse(POLICIES[policy]), np.random.default_rng(7)
    made = lambda: World(cluster, get_policy(policy), MECHANISM)  # noqa: E731
    world, found, there, last = made(), [], {}, None
    number, running = 0, {}
    for decision in range(decisions):
        clock = 10.0 * decision
        arrived = [submitted(number + k, clock) for k in range(int(draw.integers(0, 3)) + 2 * (decision == 0))]
        number += len(arrived)
        left = [uuid for uuid in there if draw.random() < 0.12]
        steps = dict.fromkeys(there, 10.0 * (decision + 1))
        for uuid in left:
            there.pop(uuid).state = "completed"
        measured = {uuid: {("v100", job.gpus): 1.0 + 0.1 * draw.random()} for uuid, job in list(there.items())[:2]}
        seconds = None if last is None else dict.fromkeys(last.wanted, 10.0)
        there |= {job.uuid: job for job in arrived}
        if decision == decisions // 3:
            world = world.continued(cluster, {uuid: one for uuid, one in running.items() if uuid in world.ids})
        if decision == decisions // 2:
            # what is on disk, and the jobs of the journal
            state, jobs = copy.deepcopy(world.state()), {uuid: replace(job) for uuid, job in there.items()}
            jobs |= {uuid: Job(0, uuid, ("x",), state="completed") for uuid in state["jobs"] if uuid not in jobs}
            known = {uuid: one for uuid, one in running.items() if uuid in there}
            world = made()
            world.restore(state, jobs, known)
            arrived, left, seconds = [], [], None
        news = News(clock, arrived, left, steps, measured, seconds, dict.fromkeys(there, 2.0))
        last = world.decide(news)
        for uuid in last.rejected:
            there.pop(uuid, None)
        running = {uuid: Placed(one.pool, one.gpus, one.partner) for uuid, one in last.wanted.items()}
        found.append((replace(last, policy_seconds=0.0, gap=0.0), len(world.state()["jobs"])))
    return found


@pytest.mark.parametrize("policy", POLICIES)
def test_decisions_are_those_of_a_world_that_forgets_nobody(policy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    forgetting = played(policy, 30)
    monkeypatch.setattr(World, "_forget", lambda _: None)
    keeping = played(policy, 30)
    assert [verdict for verdict, _ in forgetting] == [verdict for verdict, _ in keeping]
    assert sum(bool(verdict.wanted) for verdict, _ in forgetting) > 25
    # there is something to forget
    assert keeping[-1][1] > 2 * forgetting[-1][1]


def test_what_a_world_keeps_does_not_grow_with_those_who_are_through() -> None:
    world = World(Cluster.parse("v100:4"), get_policy("elasticflow"), MECHANISM)
    stay = submitted(0, 0.0)
    world.decide(News(0.0, [stay]))
    for number in range(1, 40):
        world.decide(News(10.0 * number, [submitted(number, 10.0 * number)], [f"{number - 1:032x}"] * (number > 1)))
    state = world.state()
    assert len(state["jobs"]) == len(state["ids"]) == len(world.ids) == 2
    assert state["ids"] == [0, 39]
    assert state["next_id"] == 40
