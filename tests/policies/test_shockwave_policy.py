"""Shockwave's planner: what it states, what it remembers, what it returns; and the baselines it is compared with."""

from __future__ import annotations

import numpy as np
import pytest

from allocator import Cluster, ClusterState, ThroughputMatrix, get_policy
from allocator.checkpoint.state_file import StateFile
from allocator.policies.shockwave import policy
from allocator.policies.shockwave.memory import FairFinishes
from allocator.protocol.plan import UpcomingRounds
from allocator.protocol.training import TrainingView
from throughputs import InputError
from throughputs.training import Profiles, Regimes
from throughputs.training.forecast import dirichlet_remaining_seconds

GPUS, ROUND = 8, 120.0


def world(n_jobs, seed=0):
    """Profiles and widths of jobs that change their batch size once or twice."""
    rng = np.random.default_rng(seed)
    sizes, seconds = [], []
    for _ in range(n_jobs):
        epochs, rungs = int(rng.integers(5, 80)), int(rng.integers(1, 4))
        cuts = np.sort(rng.integers(0, epochs, rungs - 1))
        rung = np.searchsorted(cuts, np.arange(epochs), side="right")
        sizes.append(32 * 2**rung)
        seconds.append(rng.uniform(20, 120) / 1.3**rung)
    return Profiles.of_jobs(sizes, seconds, np.full(n_jobs, 50_000)), rng.choice([1, 1, 2, 4], n_jobs)


def state_of(profiles, widths, jobs, done, clock=0.0, admitted=None, upcoming=None):
    """The state of some of the jobs (positions), whose labels are their positions."""
    jobs = np.asarray(jobs)
    part = profiles.take(jobs)
    done = np.asarray(done)
    admitted = np.zeros(len(jobs)) if admitted is None else np.asarray(admitted, dtype=float)
    view = TrainingView(
        profiles,
        jobs,
        done,
        part.batch_size[part.offsets[:-1] + np.minimum(done, part.epochs - 1)],
        admitted,
        np.zeros(len(jobs)),
        np.zeros(len(jobs)),
    )
    return ClusterState(
        Cluster({"v100": GPUS}),
        ThroughputMatrix(np.ones((len(jobs), 1)), jobs.tolist(), ["v100"], widths[jobs]),
        steps_remaining=np.maximum(1.0, part.total_seconds * (1 - done / part.epochs)),
        elapsed_seconds=clock - admitted,
        clock=clock,
        training=view,
        upcoming=upcoming,
    )


def upcoming(number):
    return UpcomingRounds(number, ROUND)


def assignments(plan):
    return [step.assignment for step in plan.steps]


def by_label(plan, state):
    labels = np.array(state.throughputs.jobs)
    return [sorted(labels[chosen.jobs].tolist()) for chosen in assignments(plan)]


@pytest.mark.parametrize(
    "settings",
    [{}, {"forecast": "causal"}, {"forecast": "oracle"}, {"fairness_rows": "published"}, {"clock": "rounds"}],
)
@pytest.mark.parametrize("seed", range(2))
def test_plans_are_feasible_and_proven(seed, settings):
    profiles, widths = world(14, seed)
    rng = np.random.default_rng(seed)
    # to be proven, however busy the machine is
    policy = get_policy("shockwave", time_limit_seconds=3600.0, **settings)
    done = rng.integers(0, profiles.epochs)
    state = state_of(profiles, widths, np.arange(14), done, clock=2400.0, upcoming=upcoming(20))
    plan = policy.plan(state, policy.new_memory())
    assert len(plan.steps) == policy.future_rounds
    count = np.zeros(14)
    for chosen in assignments(plan):
        assert len(set(chosen.jobs.tolist())) == len(chosen.jobs)
        used = widths[chosen.jobs].sum()
        waiting = np.setdiff1d(np.arange(14), chosen.jobs)
        assert used <= GPUS
        # no GPU idles that a waiting job could use
        assert not (widths[waiting] <= GPUS - used).any()
        assert (chosen.pool == 0).all()
        np.testing.assert_array_equal(chosen.gpus, widths[chosen.jobs])
        assert not chosen.shares_gpus
        count[chosen.jobs] += 1
    np.testing.assert_allclose(plan.allocation.shares[:, 0], count / policy.future_rounds)
    assert plan.allocation.status == "optimal"
    assert 0 <= plan.allocation.gap <= policy.relative_gap
    assert plan.allocation.bound >= plan.allocation.objective - 1e-9 * abs(plan.allocation.objective)
    assert plan.allocation.unserved == ()


def test_order_of_jobs_does_not_matter():
    """Also where jobs are alike in everything: the plan is the same, label by label."""
    profiles, widths = world(8, 2)
    jobs = np.concatenate([np.arange(8), np.arange(8, 12)])
    profiles, widths = profiles.joined(profiles.take(np.zeros(4, int))), np.append(widths, [widths[0]] * 4)
    state = state_of(profiles, widths, jobs, np.zeros(12, int), upcoming=upcoming(0))
    shuffled = state.subset(np.random.default_rng(0).permutation(12))
    assert shuffled.upcoming == state.upcoming
    policy = get_policy("shockwave", time_limit_seconds=3600.0)
    plans = [by_label(policy.plan(s, policy.new_memory()), s) for s in (state, shuffled)]
    assert plans[0] == plans[1]


def plain_target(series, number, momentum=0.9):
    """The fair finish time from its (round, estimate) series."""
    weights = [later - round_ for (round_, _), (later, _) in zip(series, [*series[1:], (number, 0)], strict=True)]
    values = [value for _, value in series]
    mean = np.average(values, weights=weights) if sum(weights) else values[-1]
    return momentum * mean + (1 - momentum) * values[-1]


class Recorder:
    """Keeps the programs that a policy states."""

    def __init__(self, monkeypatch):
        self.programs = []
        solve = policy.solve_plan

        def record(program, **settings):
            self.programs.append(program)
            return solve(program, **settings)

        monkeypatch.setattr(policy, "solve_plan", record)


def test_targets_follow_the_changes_of_the_set_of_jobs(monkeypatch):
    """A run with arrivals, completions and plans without either, against a plain restatement of the targets."""
    recorder = Recorder(monkeypatch)
    profiles, widths = world(16, 4)
    policy = get_policy("shockwave", clock="rounds", forecast="oracle", momentum=0.9)
    memory, series, last = policy.new_memory(), {}, set()
    admitted, done = np.full(16, -1.0), np.zeros(16, int)
    durations = Regimes.of(profiles)
    steps = [(0, range(4)), (3, range(6)), (3, range(7)), (11, range(7)), (13, range(2, 11)), (21, range(2, 11))]
    steps += [(24, [3, 9, 10, 12, 15]), (24, [3, 9, 10, 12]), (40, range(16))]
    for number, present in steps:
        jobs = np.array(list(present))
        clock = number * 115.0
        admitted[jobs] = np.where(admitted[jobs] < 0, clock, admitted[jobs])
        done[jobs] = np.minimum(done[jobs] + jobs % 5, profiles.epochs[jobs] - 1)
        state = state_of(
            profiles, widths, jobs, done[jobs], clock=clock, admitted=admitted[jobs], upcoming=upcoming(number)
        )
        policy.plan(state, memory)
        if last != set(jobs.tolist()):
            regimes, e = durations.take(jobs), done[jobs]
            left = np.maximum(dirichlet_remaining_seconds(regimes, e), 1.0)
            finish = admitted[jobs] + (regimes.finished_seconds(e) + left) / min(1.0, GPUS / len(jobs))
            series = {job: series.get(job, []) for job in jobs.tolist()}
            for job, value in zip(jobs.tolist(), finish, strict=True):
                series[job] = [*series[job], (number, value)]
        last = set(jobs.tolist())
        expected = [plain_target(series[job], number) for job in jobs.tolist()]
        found = recorder.programs[-1]
        np.testing.assert_allclose(found.target_seconds, expected, rtol=1e-12)
        assert found.now_seconds == number * ROUND
        np.testing.assert_allclose(found.share, min(1.0, GPUS / len(jobs)))


def test_a_job_that_comes_back_is_a_new_one():
    finishes = FairFinishes().take(np.array([-1, -1]), 0)
    finishes.append(np.array([100.0, 200.0]), 0)
    assert finishes.target(0, 0.9).tolist() == [100.0, 200.0]
    finishes = finishes.take(np.array([1, -1]), 10)
    finishes.append(np.array([400.0, 50.0]), 10)
    np.testing.assert_allclose(finishes.target(10, 0.9), [0.9 * 200 + 0.1 * 400, 50.0])
    np.testing.assert_allclose(finishes.target(30, 0.9), [0.9 * (10 * 200 + 20 * 400) / 30 + 0.1 * 400, 50.0])


def test_memory_survives_a_checkpoint_and_holds_calibration(monkeypatch, tmp_path):
    recorder = Recorder(monkeypatch)
    profiles, widths = world(9, 5)
    policy = get_policy("shockwave")

    def at(number, jobs, slow):
        done = np.zeros(len(jobs), int)
        state = state_of(profiles, widths, jobs, done, clock=number * ROUND, upcoming=upcoming(number))
        if slow:
            state.training.measured_seconds[:] = number * ROUND
            promised = number * ROUND / state.training.profiles.epoch_seconds[state.training.profiles.offsets[:-1]]
            state.training.measured_samples[:] = 50_000 * promised / 3
        return state

    memory = policy.new_memory()
    policy.plan(at(0, np.arange(6), slow=False), memory)
    policy.plan(at(5, np.arange(6), slow=True), memory)
    assert (memory.factor > 2).all()
    file = StateFile(tmp_path / "memory")
    file.write({}, memory.state())
    thawed = policy.new_memory()
    thawed.restore(file.read().state)
    plans = [policy.plan(at(6, np.array([8, 2, 4, 7]), slow=False), m) for m in (memory, thawed)]
    first, second = ([a.jobs.tolist() for a in assignments(plan)] for plan in plans)
    assert first == second
    # labels in order: 2 and 4 stay as calibrated, 7 and 8 are new
    assert memory.jobs == [2, 4, 7, 8]
    assert (memory.factor[:2] > 2).all()
    assert memory.factor[2:].tolist() == [1.0, 1.0]
    rounded = np.maximum(1, np.rint(profiles.epoch_seconds[profiles.offsets[:-1]]))[[2, 4, 7, 8]]
    np.testing.assert_allclose(recorder.programs[-1].epoch_seconds, rounded * memory.factor)


def test_causal_plans_do_not_see_the_future():
    profiles, widths = world(12, 6)
    rng = np.random.default_rng(6)
    done = rng.integers(0, profiles.epochs)
    later = np.arange(profiles.offsets[-1]) > (profiles.offsets[:-1] + done)[profiles.job]
    sizes = np.where(later, 32 * 2 ** rng.integers(0, 6, len(later)), profiles.batch_size)
    seconds = np.where(later, rng.uniform(5, 300, len(later)), profiles.epoch_seconds)
    other = Profiles(profiles.offsets, sizes, seconds, profiles.samples_per_epoch)
    states = [state_of(p, widths, np.arange(12), done, clock=3000.0) for p in (profiles, other)]
    # the steps left are not part of what a plan is made from
    causal, oracle = (get_policy("shockwave", forecast=mode) for mode in ("causal", "oracle"))
    shares = [causal.allocate(state).shares for state in states]
    np.testing.assert_array_equal(*shares)
    assert not np.array_equal(*(oracle.allocate(state).shares for state in states))


def test_a_late_job_comes_first():
    """Three like jobs, each as wide as the cluster; the one that was kept waiting is given the first rounds."""
    profiles = Profiles.of_jobs([[32] * 40] * 3, [[60.0] * 40] * 3, [1000] * 3)
    admitted = [5000.0, 0.0, 5000.0]
    state = state_of(
        profiles, np.full(3, GPUS), [0, 1, 2], [20] * 3, clock=6000.0, admitted=admitted, upcoming=upcoming(50)
    )
    policy = get_policy("shockwave")
    plan = policy.plan(state, policy.new_memory())
    assert [chosen.jobs.tolist() for chosen in assignments(plan)[:5]] == [[1]] * 5


def test_plans_do_not_depend_on_when_the_clock_began():
    """But for the published reckoning, by which everybody is served fairly as time goes on."""
    profiles, widths = world(14, 8)
    rng = np.random.default_rng(8)
    done, admitted = rng.integers(0, profiles.epochs), rng.uniform(0, 4000, 14)

    def shares(rho_from, later):
        policy = get_policy("shockwave", rho_from=rho_from)
        state = state_of(
            profiles, widths, np.arange(14), done,
            clock=6000.0 + later, admitted=admitted + later, upcoming=upcoming(50),
        )  # fmt: skip
        return policy.plan(state, policy.new_memory()).allocation.shares

    np.testing.assert_array_equal(shares("admission", 0.0), shares("admission", 2.0**20))
    assert not np.array_equal(shares("start", 0.0), shares("start", 2.0**20))


def test_without_profiles_jobs_are_steady(monkeypatch):
    recorder = Recorder(monkeypatch)
    matrix = ThroughputMatrix([[2.0], [4.0]], ["a", "b"], ["v100"])
    policy = get_policy("shockwave")
    memory = policy.new_memory()
    for steps in (1000.0, 500.0):
        state = ClusterState(
            Cluster({"v100": 1}),
            matrix,
            steps_remaining=np.full(2, steps),
            elapsed_seconds=np.zeros(2),
            clock=40.0,
            upcoming=upcoming(1),
        )
        policy.plan(state, memory)
    first, second = recorder.programs
    np.testing.assert_allclose(first.epochs * first.epoch_seconds, [500.0, 250.0])
    np.testing.assert_array_equal(first.epochs_done, 0)
    np.testing.assert_allclose(second.epochs_done / second.epochs, 0.5)
    np.testing.assert_allclose(second.remaining_seconds, [250.0, 125.0], rtol=0.03)
    np.testing.assert_allclose(first.target_seconds, 40.0 + 2 * np.array([500.0, 250.0]), rtol=0.03)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("forecast", "prophet"),
        ("calibration_band", -0.1),
        ("momentum", 1.5),
        ("clock", "sundial"),
        ("rho_from", "birth"),
    ]
    + [(name, 0) for name in ("future_rounds", "relative_gap", "time_limit_seconds", "replan_rounds", "round_seconds")],
)
def test_bad_settings_say_so(field, value):
    with pytest.raises(InputError, match=f"shockwave.*{field}"):
        get_policy("shockwave", **{field: value})


@pytest.mark.parametrize("name", ["gandiva_fair", "isolated_plus"])
def test_equal_shares_look_at_gangs_only_for_where_they_fit(name):
    types = ["v100", "k80"]
    matrix = ThroughputMatrix(np.ones((5, 2)), range(5), types, [1, 2, 4, 8, 1])
    policy = get_policy(name)
    shares = policy.allocate(ClusterState(Cluster({"v100": 1, "k80": 3}), matrix)).shares
    both, one, none = [1 / 5, 3 / 5], [0.0, 3 / 5], [0.0, 0.0]
    np.testing.assert_allclose(shares, [both, one, none, none, both])
    plenty = policy.allocate(ClusterState(Cluster({"v100": 2, "k80": 6}), matrix)).shares
    both, one = [1 / 4, 3 / 4], [0.0, 3 / 4]
    np.testing.assert_allclose(plenty, [both, both, one, none, both])
    assert policy.strict_queue == (name == "isolated_plus")
