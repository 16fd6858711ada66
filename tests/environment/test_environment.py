"""The environment is the simulator: its checker is content, and a policy's answers lead to the policy's run."""

from __future__ import annotations

import warnings
from pathlib import Path

import gymnasium
import numpy as np
import pandas as pd
import pytest
from gymnasium.utils.env_checker import check_env
from hypothesis import given
from hypothesis import strategies as st

import allocator
from allocator.environment import ENVIRONMENT, REWARDS, ClusterEnvironment
from allocator.environment.actions import chosen_by_scores, into_polytope
from tests.simulator.worlds import make_trace
from throughputs import Trace, TraceGenerator

ROOT = Path(__file__).resolve().parents[2]
CLUSTER = "v100:3,p100:2,k80:4"
JOBS = TraceGenerator(n_jobs=14, mean_interarrival=1500.0, scale_factors={1: 0.7, 2: 0.3}, seed=3).generate()


def play(environment: ClusterEnvironment, answer) -> list[float]:
    """One episode with the actions that `answer` makes of the environment; the rewards."""
    environment.reset(seed=0)
    rewards, over = [], False
    while not over:
        _, reward, terminated, truncated, _ = environment.step(answer(environment))
        rewards.append(reward)
        over = terminated or truncated
    return rewards


def of_policy(policy: allocator.Policy):
    """Answers with what the policy answers."""
    if policy.answers == "shares":
        return lambda environment: environment.action_of(policy.allocate(environment.state))
    return lambda environment: environment.action_of(policy.plan(environment.state, None))


@pytest.mark.parametrize("action", ["shares", "assignment"])
@pytest.mark.parametrize("reward", ["average_jct", "worst_rho"])
def test_gymnasiums_own_checker_is_content(action, reward):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(gymnasium.make(ENVIRONMENT, action=action, reward=reward).unwrapped)


class WidestFirst(allocator.OrderPolicy):
    """Gangs of many GPUs first."""

    name = "widest_first"

    def key(self, state):
        return -state.scale_factors.astype(float)


SHARES = ("max_min_fairness_perf", "max_sum_throughput_perf", "srtf", "min_total_duration_perf")
POLICIES = [*map(allocator.get_policy, (*SHARES, "finish_time_fairness_perf", "nash_welfare")), WidestFirst()]


SLOW = ("min_total_duration_perf", "nash_welfare")


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "policy",
    [pytest.param(one, id=one.name, marks=[pytest.mark.exhaustive] * (one.name in SLOW)) for one in POLICIES],
)
def test_answers_of_a_policy_lead_to_its_run_job_by_job(policy):
    action = "assignment" if isinstance(policy, allocator.OrderPolicy) else "shares"
    environment = ClusterEnvironment(CLUSTER, JOBS, action=action)
    play(environment, of_policy(policy))
    expected, found = allocator.simulate(JOBS, CLUSTER, policy), environment.result()
    pd.testing.assert_frame_equal(found.jobs, expected.jobs, check_exact=True)
    pd.testing.assert_frame_equal(found.rounds, expected.rounds, check_exact=True)


@pytest.mark.parametrize("reward", REWARDS)
def test_rewards_add_up_to_the_figure_of_the_run(reward):
    columns = {name: getattr(JOBS, name) for name in JOBS.column_names()}
    trace = Trace(**columns | {"slo": np.where(np.arange(len(JOBS)) % 2, 1.5, np.nan)})
    environment = ClusterEnvironment(CLUSTER, trace, reward=reward)
    rewards = play(environment, of_policy(allocator.get_policy("max_min_fairness_perf")))
    summary = environment.result().summary()
    if reward == "throughput":
        assert sum(rewards) == pytest.approx(len(trace))
    else:
        sign = 1 if reward in ("completed_jobs", "deadline_ratio") else -1
        assert sum(rewards) == pytest.approx(sign * summary[reward])
        assert summary[reward] > 0


def test_what_is_seen():
    trace = make_trace([100.0, 7200.0, 50.0], sizes=[1, 2, 1], arrivals=[0.0, 0.0, 0.0])
    environment = ClusterEnvironment({"a": 2, "b": 1}, trace, [[1.0, 2.0], [1.0, 0.0], [1.0, 1.0]], max_jobs=2)
    observation, _ = environment.reset()
    assert environment.observation_space.contains(observation)
    first, second = (dict(zip(environment.job_columns, row, strict=True)) for row in observation["jobs"])
    assert (first["rate:b"], first["steps_remaining"], first["has_deadline"]) == (2.0, 100.0, 0.0)
    assert (second["scale_factor"], second["rate:b"], second["gpus:a"]) == (2.0, 0.0, 0.0)
    assert observation["mask"].tolist() == [1, 1]
    assert observation["capacity"].tolist() == [2.0, 1.0]
    assert observation["unseen_jobs"].tolist() == [1.0]
    # the first job completes in the first round, and the last one comes into sight
    observation, _, terminated, _, info = environment.step(np.array([[0.0, 1.0], [1.0, 0.0]]))
    assert observation["mask"].tolist() == [1, 1]
    assert observation["unseen_jobs"].tolist() == [0.0]
    assert observation["jobs"][:, environment.job_columns.index("gpus:a")].tolist() == [2.0, 0.0]
    assert (info["completed_jobs"], info["seconds"], terminated) == (1, 360.0, False)
    observation, _, _, _, _ = environment.step(np.array([[1.0, 0.0], [0.0, 1.0]]))
    assert observation["mask"].tolist() == [1, 0]
    assert not observation["jobs"][1].any()


def test_episodes_are_drawn_from_the_seed():
    environment = ClusterEnvironment(CLUSTER, TraceGenerator(n_jobs=5, scale_factors={1: 1.0}))

    def rates(**kinds) -> list[float]:
        environment.reset(**kinds)
        return environment._run.world.jobs.total_steps.tolist()

    first, second = rates(seed=7), rates()
    assert first != second
    assert (rates(seed=7), rates()) == (first, second)
    assert rates(options={"trace": JOBS}) == JOBS.total_steps.tolist()
    by_function = ClusterEnvironment(CLUSTER, lambda seed: make_trace([seed + 1.0]), np.ones((1, 3)))
    by_function.reset(seed=1)
    assert by_function.state.steps_remaining[0] > 1


def test_episodes_end_early():
    late = ClusterEnvironment(CLUSTER, JOBS, horizon=3600.0)
    rewards = play(late, lambda env: env.action_space.sample())
    assert len(rewards) < 20
    assert late.result().status == "saturated"
    idle = ClusterEnvironment(CLUSTER, JOBS, action="assignment")
    idle.reset()
    over = False
    while not over:
        observation, _, terminated, over, info = idle.step(np.zeros((64, 3)))
        assert not terminated
    assert "no job made progress" in info["reason"]
    assert not observation["mask"].any()


def test_the_agent_is_asked_now_and_then():
    trace = make_trace([36000.0])
    assert len(play(ClusterEnvironment("a:1", trace, np.ones((1, 1))), lambda _: np.ones((64, 1)))) == 1
    for action in ("shares", "assignment"):
        often = ClusterEnvironment("a:1", trace, np.ones((1, 1)), action=action, decide_every=3600.0)
        assert len(play(often, lambda _: np.ones((64, 1)))) >= 10


shares = st.lists(st.lists(st.floats(-2, 3), min_size=3, max_size=3), min_size=1, max_size=6)


@given(shares, st.integers(0, 2**31))
def test_shares_are_scaled_into_the_polytope(given_shares, seed):
    rng = np.random.default_rng(seed)
    asked = np.array(given_shares)
    gangs, capacity = rng.integers(1, 5, len(asked)), rng.integers(0, 6, 3)
    rates = rng.uniform(0.0, 1.0, asked.shape) * (rng.uniform(size=asked.shape) < 0.7)
    feasible = into_polytope(asked, gangs, rates, capacity)
    assert (feasible >= 0).all()
    assert (feasible[rates == 0] == 0).all()
    assert (feasible.sum(axis=1) <= 1 + 1e-6).all()
    assert (gangs @ feasible <= capacity * (1 + 1e-6)).all()
    np.testing.assert_array_equal(into_polytope(feasible, gangs, rates, capacity), feasible)


def test_scores_fill_the_types():
    scores = np.array([[0.9, 0.1], [0.8, 0.0], [0.5, 0.5], [0.0, 1.0]])
    rates = np.array([[1.0, 1.0], [1.0, 1.0], [1.0, 1.0], [1.0, 0.0]])
    rows = chosen_by_scores(scores, np.array([1, 2, 1, 1]), rates, np.array([2, 1]))
    # the gang of two finds one GPU left on the first type and has no score on the other; job 3 cannot run there
    assert rows.jobs.tolist() == [0, 2]
    assert rows.pool.tolist() == [0, 0]


def test_actions_of_policies_and_what_becomes_of_them():
    environment = ClusterEnvironment(CLUSTER, JOBS, action="assignment")
    environment.reset()
    with pytest.raises(allocator.InputError, match="the answer of a plan policy"):
        environment.action_of(allocator.get_policy("isolated").allocate(environment.state))
    action = environment.action_of(allocator.get_policy("srtf").allocate(environment.state))
    assert environment.carried_out(action).sum() == environment.state.n_jobs
    by_shares = ClusterEnvironment(CLUSTER, JOBS)
    by_shares.reset()
    assert by_shares.carried_out(np.ones((64, 3))).sum() == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"action": "share"}, "did you mean 'shares'"),
        ({"reward": "makespann"}, "did you mean 'makespan'"),
        ({"max_jobs": 0}, "at least 1"),
        ({"decide_every": 0.0}, "seconds above 0"),
        ({"render_mode": "human"}, "None or 'ansi'"),
        ({"preset": "gavell"}, "gavel"),
    ],
)
def test_settings_that_are_none(settings, told):
    with pytest.raises(allocator.InputError, match=told):
        ClusterEnvironment(CLUSTER, JOBS, **settings)


def test_calls_out_of_order_and_actions_that_are_none():
    environment = ClusterEnvironment(CLUSTER, JOBS)
    nobody = ClusterEnvironment("a:1", make_trace([1.0]), np.zeros((1, 1)))
    for call, told in [
        (lambda: environment.step(np.zeros((64, 3))), r"reset\(\) before"),
        (environment.result, "one that is over"),
        (lambda: environment.reset() and environment.result(), "one that is over"),
        (lambda: environment.step(np.zeros((3, 64))), r"\(64, 3\)"),
        (lambda: environment.step(np.full((64, 3), np.nan)), "finite"),
        (lambda: environment.reset(options={"jobs": JOBS}), "'trace' alone"),
        (nobody.reset, "a job that a:1 can run"),
    ]:
        with pytest.raises(allocator.InputError, match=told):
            call()
