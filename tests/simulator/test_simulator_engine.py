"""Worked examples by hand, and properties that hold for every run."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allocator.cluster import Cluster
from allocator.protocol.allocation import Allocation
from allocator.simulator import SimulationResult, SimulationStalledError, StretchOutcome, preset, simulate
from tests.simulator.worlds import SharesPolicy, equal_shares, make_trace, worlds
from throughputs import InputError, Trace

ONE_GPU = Cluster({"v100": 1})
PRESETS = st.sampled_from(["default", "gavel"])


def test_one_job_runs_whole_rounds_and_finishes_inside_the_last() -> None:
    # 1000 steps at 2 steps/s: a round of 360 s does 720, the other 280 take 140 s more.
    result = simulate(make_trace([1000]), ONE_GPU, SharesPolicy(), [[2.0]])
    job = result.jobs.iloc[0]
    assert (job.start_time, job.completion_time, job.jct, job.rounds_run) == (0.0, 500.0, 500.0, 2)
    assert result.rounds["steps"].tolist() == [720.0, 280.0]
    assert result.rounds["end_time"].tolist() == [360.0, 500.0]
    assert result.timeline["end_time"].tolist() == [360.0, 720.0]
    assert (result.makespan, result.utilization) == (500.0, 1.0)


def test_whole_steps_shorten_the_rounds_of_gavel() -> None:
    # int(0.7 * 360) = 252 steps take exactly 252 / 0.7 s; 0.701 * 360 = 252.36 is cut to 252.
    result = simulate(make_trace([504]), ONE_GPU, SharesPolicy(), [[0.701]], preset="gavel")
    assert result.rounds["steps"].tolist() == [252.0, 252.0]
    assert result.timeline["start_time"].tolist() == [0.0, 252 / 0.701]
    assert result.jobs["jct"][0] == 252 / 0.701 + 252 / 0.701


def test_two_jobs_take_turns_on_one_gpu() -> None:
    result = simulate(make_trace([720, 720]), ONE_GPU, SharesPolicy(), [[1.0], [1.0]])
    assert result.rounds["job_id"].tolist() == [0, 1, 0, 1]
    assert result.jobs["completion_time"].tolist() == [1080.0, 1440.0]
    # Both wait for half of the time; alone in half the cluster each would have needed 1440 s, less the 360 s in which
    # the second has it all to itself once the first is gone.
    assert result.jobs["isolated_jct"].tolist() == [1260.0, 1260.0]
    assert result.jobs["preemptions"].tolist() == [1, 1]
    summary = result.summary()
    assert summary["average_jct"] == 1260.0
    assert summary["worst_rho"] == pytest.approx(1440 / 1260)
    assert summary["unfair_fraction"] == 0.5
    assert summary["average_queue"] == pytest.approx(0.75)


def test_jobs_wait_for_the_next_round_and_the_cluster_for_the_next_job() -> None:
    trace = make_trace([10, 360, 360], arrivals=[0.0, 100.0, 5000.0])
    result = simulate(trace, Cluster({"v100": 2}), SharesPolicy(), np.ones((3, 1)))
    # Rounds start at 0 and 360; then the cluster is idle until 5000.
    assert result.timeline["start_time"].tolist() == [0.0, 360.0, 5000.0]
    assert result.jobs["completion_time"].tolist() == [10.0, 720.0, 5360.0]
    assert result.jobs["start_time"].tolist() == [0.0, 360.0, 5000.0]


def test_a_new_job_waits_for_the_next_decision_of_gavel() -> None:
    policy = SharesPolicy()
    trace = make_trace([7200, 7200, 7200], arrivals=[0.0, 10.0, 400.0])
    simulate(trace, Cluster({"v100": 3}), policy, np.ones((3, 1)), preset="gavel")
    # Asked at 0, once more at once because 0 does not count, then not within 1920 s.
    assert [state.clock for state in policy.states[:3]] == [0.0, 360.0, 2520.0]
    policy = SharesPolicy()
    simulate(trace, Cluster({"v100": 3}), policy, np.ones((3, 1)))
    assert [state.clock for state in policy.states[:3]] == [0.0, 360.0, 720.0]


def test_idle_gpus_go_to_the_job_that_is_owed_most_on_its_best_type() -> None:
    cluster = Cluster({"slow": 1, "fast": 1})
    policy = SharesPolicy(lambda state: np.zeros((state.n_jobs, 2)))
    result = simulate(make_trace([360, 360]), cluster, policy, [[1.0, 2.0], [1.0, 4.0]])
    assert result.rounds["accelerator"].tolist()[:2] == ["slow", "fast"]
    assert result.rounds["job_id"].tolist()[:2] == [1, 0]


def test_jobs_that_can_never_run_are_left_out_and_reported() -> None:
    trace = make_trace([360, 360, 360], sizes=[1, 1, 4])
    policy = SharesPolicy()
    result = simulate(trace, Cluster({"v100": 2}), policy, [[1.0], [0.0], [1.0]])
    assert result.jobs["status"].tolist() == ["completed", "unserved", "unserved"]
    assert np.isnan(result.jobs["completion_time"][1:]).all()
    assert np.isnan(result.jobs["rho"][1:]).all()
    summary = result.summary()
    assert (summary["completed_jobs"], summary["unserved_jobs"], summary["jobs"]) == (1, 2, 3)
    assert all(state.throughputs.jobs == (0,) for state in policy.states)


def test_a_gang_larger_than_a_type_runs_on_another() -> None:
    cluster = Cluster({"small": 2, "large": 4})
    result = simulate(make_trace([360], sizes=[4]), cluster, SharesPolicy(), [[9.0, 1.0]])
    assert result.rounds["accelerator"].tolist() == ["large"]
    assert result.rounds["gpus"].tolist() == ["2 3 4 5"]


@pytest.mark.parametrize("name", ["default", "gavel"])
def test_empty_trace(name: str) -> None:
    result = simulate(Trace([], [], [], []), ONE_GPU, SharesPolicy(), np.empty((0, 1)), preset=name)
    assert len(result.jobs) == len(result.rounds) == len(result.timeline) == 0
    summary = result.summary()
    assert (summary["jobs"], summary["makespan"], summary["utilization"], summary["average_jct"]) == (0, 0.0, 0.0, None)


def test_a_policy_that_serves_nobody_stops_with_an_error() -> None:
    policy = SharesPolicy(lambda state: np.zeros((state.n_jobs, 1)), fills_idle_gpus=False)
    with pytest.raises(
        SimulationStalledError, match=r"policy shares: no job made progress in 7 rounds.* 2 active jobs: 0, 1"
    ):
        simulate(
            make_trace([1, 1]),
            ONE_GPU,
            policy,
            np.ones((2, 1)),
            preset=preset("default").replace(max_rounds_without_progress=7),
        )


def test_gavel_gives_up_jobs_slower_than_a_step_per_round() -> None:
    result = simulate(make_trace([10, 720]), Cluster({"v100": 2}), SharesPolicy(), [[0.001], [1.0]], preset="gavel")
    assert result.jobs["status"].tolist() == ["dropped", "completed"]
    assert result.summary()["dropped_jobs"] == 1
    # Otherwise a step may take several rounds.
    result = simulate(make_trace([10, 720]), Cluster({"v100": 2}), SharesPolicy(), [[0.001], [1.0]])
    assert result.jobs["completion_time"].tolist() == pytest.approx([10_000.0, 720.0])


def test_a_job_slower_than_a_step_per_round_is_noticed() -> None:
    slow = preset("default").replace(whole_steps=True)
    with pytest.raises(SimulationStalledError):
        simulate(make_trace([10]), ONE_GPU, SharesPolicy(), [[0.001]], preset=slow)


def test_isolated_seconds_grow_by_progress_at_the_isolated_rate() -> None:
    policy = SharesPolicy()
    trace = make_trace([7200, 7200], arrivals=[0.0, 700.0])
    simulate(trace, Cluster({"v100": 2}), policy, [[1.0], [1.0]])
    second, third = policy.states[1], policy.states[2]
    # Alone until 720 s, at the isolated rate 1: 720 steps, 720 s.
    assert second.clock == 720.0
    assert second.isolated_seconds.tolist() == [720.0, 0.0]
    assert second.steps_remaining.tolist() == [6480.0, 7200.0]
    assert second.elapsed_seconds.tolist() == [720.0, 20.0]
    # Two jobs on two GPUs: each has one GPU of its own, still rate 1.
    assert third.clock == 7200.0
    assert third.throughputs.jobs == (1,)
    assert third.isolated_seconds.tolist() == [6480.0]


def test_a_policy_without_preemption_sees_what_it_gave() -> None:
    policy = SharesPolicy(lambda state: np.eye(2)[[1] * state.n_jobs], preemptive=False)
    simulate(make_trace([3600, 100]), Cluster({"a": 2, "b": 2}), policy, np.ones((2, 2)))
    assert [state.current_accelerator.tolist() for state in policy.states] == [[-1, -1], [1]]


def test_bad_shares_are_named() -> None:
    with pytest.raises(InputError, match=r"policy shares: field 'share of job 0 on 'v100''"):
        simulate(make_trace([1]), ONE_GPU, SharesPolicy(lambda _: np.array([[np.nan]])), [[1.0]])
    with pytest.raises(InputError, match="shape"):
        simulate(make_trace([1]), ONE_GPU, SharesPolicy(lambda _: np.ones((2, 1))), [[1.0]])


def test_bad_rates_and_settings_are_named() -> None:
    with pytest.raises(InputError, match=r"shape \(1, 1\)"):
        simulate(make_trace([1]), ONE_GPU, SharesPolicy(), [[1.0, 2.0]])
    with pytest.raises(InputError, match="rate of job 0 on 'v100'"):
        simulate(make_trace([1]), ONE_GPU, SharesPolicy(), [[-1.0]])
    with pytest.raises(InputError, match="did you mean 'gavel'"):
        preset("gavle")
    with pytest.raises(InputError, match="did you mean 'round_seconds'"):
        preset("gavel").replace(round_second=1.0)
    with pytest.raises(InputError, match="round_seconds"):
        preset("gavel").replace(round_seconds=0.0)
    with pytest.raises(InputError, match="queue"):
        preset("gavel").replace(queue="both")


def test_observers_and_progress_see_the_run() -> None:
    class Watcher:
        def __init__(self) -> None:
            self.seen: list[object] = []

        def decided(self, index: int, clock: float, allocation: Allocation) -> None:
            self.seen.append((index, clock, allocation.policy))

        def round_ended(self, outcome: StretchOutcome) -> None:
            self.seen.append((outcome.index, outcome.end_time))

    watcher, calls = Watcher(), []
    trace = make_trace([720])
    simulate(trace, ONE_GPU, SharesPolicy(), [[1.0]], observers=[watcher], progress=lambda *args: calls.append(args))
    assert watcher.seen == [(0, 0.0, "shares"), (0, 360.0), (1, 720.0)]
    assert calls == [(720.0, 1, 1)]


def test_settings_are_recorded() -> None:
    result = simulate(make_trace([1]), ONE_GPU, SharesPolicy(), [[1.0]], preset="gavel", seed=3)
    recorded = result.settings
    assert (recorded["preset"], recorded["seed"], recorded["recompute_interval_seconds"]) == ("gavel", 3, 1920.0)
    assert recorded["accelerator_order"] == ["v100", "p100", "k80"]


def test_a_result_can_be_made_of_tables() -> None:
    run = simulate(make_trace([720]), ONE_GPU, SharesPolicy(), [[1.0]])
    tables = {name: getattr(run, name) for name in ("jobs", "rounds", "timeline")}
    again = SimulationResult(
        "shares", run.cluster, run.settings, **tables, makespan=run.makespan, decisions=run.decisions
    )
    assert again.summary()["average_jct"] == run.summary()["average_jct"]
    with pytest.raises(TypeError, match="record"):
        SimulationResult("shares", run.cluster, run.settings)


@settings(max_examples=150)
@given(world=worlds(), name=PRESETS, aware=st.booleans())
def test_every_run_keeps_the_rules(world: tuple[Trace, Cluster, np.ndarray], name: str, aware: bool) -> None:
    trace, cluster, rates = world
    result = simulate(trace, cluster, SharesPolicy(equal_shares, heterogeneity_aware=aware), rates, preset=name)
    jobs, rounds, timeline = result.jobs, result.rounds, result.timeline
    runnable = ((rates > 0) & (trace.scale_factor[:, None] <= cluster.capacity)).any(axis=1)

    # Every job that can run completes with exactly its steps, and never before it arrived.
    assert (jobs["status"] == np.where(runnable, "completed", "unserved")).all()
    done = rounds.groupby("job_id")["steps"].sum().reindex(np.flatnonzero(runnable), fill_value=0.0)
    assert done.to_numpy() == pytest.approx(trace.total_steps[runnable], rel=1e-9)
    assert (jobs["jct"][runnable] > 0).all()
    assert (jobs["start_time"][runnable] >= jobs["arrival_time"][runnable]).all()

    # Rounds do not overlap; no job twice in a round; GPUs are distinct, of the right type and as many as the gang.
    assert (timeline["start_time"].to_numpy()[1:] >= timeline["end_time"].to_numpy()[:-1]).all()
    assert not rounds.duplicated(["round", "job_id"]).any()
    types = rounds["accelerator"].cat.codes.to_numpy()
    gpus = rounds["gpus"].str.split().map(lambda ids: [int(gpu) for gpu in ids])
    assert (gpus.map(len).to_numpy() == trace.scale_factor[rounds["job_id"]]).all()
    for j, ids in zip(types, gpus, strict=True):
        first = int(cluster.first_gpu[j])
        assert all(first <= gpu < first + cluster.capacity[j] for gpu in ids)
    assert not pd.DataFrame({"round": rounds["round"], "gpu": gpus}).explode("gpu").duplicated().any()
    assert (rates[rounds["job_id"], types] > 0).all()
    assert (timeline["running_jobs"] + timeline["queued_jobs"] == timeline["active_jobs"]).all()
    assert 0 <= result.utilization <= 1 + 1e-9


@settings(max_examples=60)
@given(world=worlds(), aware=st.booleans())
def test_no_job_waits_beside_gpus_that_it_could_use(world: tuple[Trace, Cluster, np.ndarray], aware: bool) -> None:
    trace, cluster, rates = world
    result = simulate(trace, cluster, SharesPolicy(equal_shares, heterogeneity_aware=aware), rates)
    for start, rows in result.rounds.groupby("start_time"):
        types = rows["accelerator"].cat.codes.to_numpy()
        free = cluster.capacity - np.bincount(types, trace.scale_factor[rows["job_id"]], len(cluster.capacity))
        waiting = (trace.arrival_time <= start) & ~(result.jobs["completion_time"].to_numpy() <= start)
        waiting[rows["job_id"]] = False
        assert not ((rates > 0) & (trace.scale_factor[:, None] <= free))[waiting].any()


@settings(max_examples=30)
@given(world=worlds(), name=PRESETS, seed=st.integers(0, 3))
def test_the_same_seed_gives_the_same_run(world: tuple[Trace, Cluster, np.ndarray], name: str, seed: int) -> None:
    trace, cluster, rates = world
    first, second = (
        simulate(trace, cluster, SharesPolicy(heterogeneity_aware=False), rates, preset=name, seed=seed)
        for _ in range(2)
    )
    pd.testing.assert_frame_equal(first.rounds, second.rounds)
    pd.testing.assert_frame_equal(first.jobs, second.jobs)
