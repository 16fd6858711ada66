"""Shockwave's planner: what it states, what it remembers, what it returns; and equal shares, its baselines."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from allocator import Cluster, ClusterState, ThroughputMatrix, get_policy
from allocator.policies.shockwave import policy as planner
from allocator.presets import preset
from allocator.protocol.plan import UpcomingRounds
from allocator.protocol.training import TrainingView
from formulations.shockwave import PlanningProgram
from throughputs.training import Profiles, Regimes
from throughputs.training.forecast import dirichlet_remaining_seconds

GPUS, ROUND = 8, 120.0


def shockwave(**settings: Any) -> Any:
    """Its plans are to be proven, however busy the machine is."""
    return get_policy("shockwave", time_limit_seconds=3600.0, **settings)


def published(**settings: Any) -> Any:
    settings = {"makespan_weight": 1e-3, "fairness_exponent": 12.0, "time_limit_seconds": 3600.0} | settings
    return preset("shockwave_published").make_policy("shockwave", Cluster({"v100": GPUS}), **settings)


class World:
    """Profiles and widths of jobs that change their batch size once or twice; labels are positions."""

    def __init__(self, n_jobs: int, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        sizes, seconds = [], []
        for _ in range(n_jobs):
            epochs, rungs = int(self.rng.integers(5, 80)), int(self.rng.integers(1, 4))
            cuts = np.sort(self.rng.integers(0, epochs, rungs - 1))
            rung = np.searchsorted(cuts, np.arange(epochs), side="right")
            sizes.append(32 * 2**rung)
            seconds.append(self.rng.uniform(20, 120) / 1.3**rung)
        self.profiles = Profiles.of_jobs(sizes, seconds, np.full(n_jobs, 50_000))
        self.widths = self.rng.choice([1, 1, 2, 4], n_jobs)

    def state(
        self, jobs: Any = None, done: Any = 0, clock: float = 0.0, admitted: Any = 0.0, round_: int | None = None
    ) -> ClusterState:
        """Some of the jobs, with what they have done (epochs), in this round."""
        jobs = np.arange(len(self.widths)) if jobs is None else np.array(jobs, dtype=np.int64)
        part, none = self.profiles.take(jobs), np.zeros(len(jobs))
        done, admitted = none.astype(int) + done, none + admitted
        batch = part.batch_size[part.offsets[:-1] + np.minimum(done, part.epochs - 1)]
        return ClusterState(
            Cluster({"v100": GPUS}),
            ThroughputMatrix(np.ones((len(jobs), 1)), jobs.tolist(), ["v100"], self.widths[jobs]),
            steps_remaining=np.maximum(1.0, part.total_seconds * (1 - done / part.epochs)),
            elapsed_seconds=clock - admitted,
            clock=clock,
            training=TrainingView(self.profiles, jobs, done, batch, admitted, none, none.copy()),
            upcoming=None if round_ is None else UpcomingRounds(round_, ROUND),
        )

    def halfway(self) -> Any:
        return self.rng.integers(0, self.profiles.epochs)


@pytest.fixture
def programs(monkeypatch: pytest.MonkeyPatch) -> list[PlanningProgram]:
    """The programs that policies state."""
    stated: list[PlanningProgram] = []
    solve = planner.solve_plan

    def record(program: PlanningProgram, **settings: Any) -> Any:
        stated.append(program)
        return solve(program, **settings)

    monkeypatch.setattr(planner, "solve_plan", record)
    return stated


def plain_target(series: list[tuple[int, float]], number: int, momentum: float = 0.9) -> float:
    """The fair finish time from its (round, estimate) series."""
    weights = [later - at for (at, _), (later, _) in zip(series, [*series[1:], (number, 0)], strict=True)]
    values = [value for _, value in series]
    mean = np.average(values, weights=weights) if sum(weights) else values[-1]
    return momentum * mean + (1 - momentum) * values[-1]


def test_targets_follow_the_changes_of_the_set_of_jobs(programs: list[PlanningProgram]) -> None:
    """A run with arrivals, completions and plans without either, against a plain restatement of the targets."""
    world, policy = World(16, 4), published(priority_cap=1e5)
    memory, series, last = policy.new_memory(), {}, set()
    admitted, done, durations = np.full(16, -1.0), np.zeros(16, int), Regimes.of(world.profiles)
    steps = [(0, range(4)), (3, range(6)), (3, range(7)), (11, range(7)), (13, range(2, 11)), (21, range(2, 11))]
    steps += [(24, [3, 9, 10, 12, 15]), (24, [3, 9, 10, 12]), (40, range(16))]
    for number, present in steps:
        jobs, clock = np.array(list(present)), number * 115.0
        admitted[jobs] = np.where(admitted[jobs] < 0, clock, admitted[jobs])
        done[jobs] = np.minimum(done[jobs] + jobs % 5, world.profiles.epochs[jobs] - 1)
        policy.plan(world.state(jobs, done[jobs], clock, admitted[jobs], number), memory)
        share = min(1.0, GPUS / len(jobs))
        if last != set(jobs.tolist()):
            regimes, e = durations.take(jobs), done[jobs]
            left = np.maximum(dirichlet_remaining_seconds(regimes, e), 1.0)
            finish = admitted[jobs] + (regimes.finished_seconds(e) + left) / share
            series = {job: [*series.get(job, []), (number, at)] for job, at in zip(jobs.tolist(), finish, strict=True)}
        last = set(jobs.tolist())
        expected = [plain_target(series[job], number) for job in jobs.tolist()]
        np.testing.assert_allclose(programs[-1].target_seconds, expected, rtol=1e-12)
        assert programs[-1].now_seconds == number * ROUND
        np.testing.assert_allclose(programs[-1].share, share)


def test_causal_plans_do_not_see_the_future() -> None:
    """The steps left are not part of what a plan is made from."""
    world, other = World(12, 6), World(12, 6)
    rng, done, known = np.random.default_rng(6), world.halfway(), world.profiles
    later = np.arange(known.offsets[-1]) > (known.offsets[:-1] + done)[known.job]
    sizes = np.where(later, 32 * 2 ** rng.integers(0, 6, len(later)), known.batch_size)
    seconds = np.where(later, rng.uniform(5, 300, len(later)), known.epoch_seconds)
    other.profiles = Profiles(known.offsets, sizes, seconds, known.samples_per_epoch)
    states = [each.state(done=done, clock=3000.0) for each in (world, other)]
    for forecast, alike in (("causal", True), ("oracle", False)):
        assert np.array_equal(*(shockwave(forecast=forecast).allocate(state).shares for state in states)) is alike


def test_a_late_job_comes_first() -> None:
    """Three like jobs, each as wide as the cluster; the one that was kept waiting is given the first rounds."""
    world, policy = World(3, 0), shockwave()
    world.profiles = Profiles.of_jobs([[32] * 40] * 3, [[60.0] * 40] * 3, [1000] * 3)
    world.widths = np.full(3, GPUS)
    state = world.state(done=20, clock=6000.0, admitted=[5000.0, 0.0, 5000.0], round_=50)
    plan = policy.plan(state, policy.new_memory())
    assert [step.assignment.jobs.tolist() for step in plan.steps[:5]] == [[1]] * 5


def test_plans_do_not_depend_on_when_the_clock_began() -> None:
    """But for the published reckoning, by which everybody is served fairly as time goes on."""
    world = World(14, 8)
    done, admitted = world.halfway(), world.rng.uniform(0, 4000, 14)
    for policy, alike in ((shockwave(), True), (published(), False)):
        now, later = (
            policy.plan(world.state(None, done, 6000.0 + more, admitted + more, 50), policy.new_memory())
            for more in (0.0, 2.0**20)
        )
        assert np.array_equal(now.allocation.shares, later.allocation.shares) is alike


@pytest.mark.parametrize("name", ["gandiva_fair", "isolated_plus"])
def test_equal_shares_look_at_gangs_only_for_where_they_fit(name: str) -> None:
    matrix, policy = ThroughputMatrix(np.ones((5, 2)), range(5), ["v100", "k80"], [1, 2, 4, 8, 1]), get_policy(name)
    for gpus, fits, each in (((1, 3), "both one none none both", 5), ((2, 6), "both both one none both", 4)):
        shares = policy.allocate(ClusterState(Cluster(dict(zip(("v100", "k80"), gpus, strict=True))), matrix)).shares
        of = {"both": [1 / each, 3 / each], "one": [0.0, 3 / each], "none": [0.0, 0.0]}
        np.testing.assert_allclose(shares, [of[fit] for fit in fits.split()])
    assert policy.strict_queue == (name == "isolated_plus")
