"""The world without rounds."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allocator.cluster import Cluster
from allocator.presets import Preset
from allocator.registry import get_policy
from allocator.simulator import SimulationStalledError, preset, simulate
from tests.simulator.worlds import SharesPolicy, equal_shares, make_trace, worlds
from throughputs import Trace, gavel_trace

ONE_GPU = Cluster({"v100": 1})
IDEAL = Preset().replace(ideal=True)


def test_two_jobs_share_one_gpu_until_the_first_is_through() -> None:
    result = simulate(make_trace([100, 300]), ONE_GPU, SharesPolicy(), [[1.0], [2.0]], preset=IDEAL)
    # Half speed each: 100 steps at 0.5/s take 200 s; by then the other has done 200 of 300, the rest takes 50 s.
    assert result.jobs["completion_time"].tolist() == [200.0, 250.0]
    assert result.jobs["gpu_seconds"].tolist() == [100.0, 150.0]
    assert result.timeline["busy_gpus"].tolist() == [1.0, 1.0]
    assert result.rounds["share"].tolist() == [0.5, 0.5, 1.0]
    assert result.utilization == 1.0
    assert result.jobs["rounds_run"].tolist() == [1, 2]


def test_the_policy_decides_at_every_arrival_and_completion() -> None:
    policy = SharesPolicy()
    trace = make_trace([100, 100, 40], arrivals=[0.0, 50.0, 1000.0])
    simulate(trace, ONE_GPU, policy, np.ones((3, 1)), preset=preset("gavel").replace(ideal=True))
    # 50 steps alone, then half speed: the first completes at 150, the second, alone again, at 200.
    assert [state.clock for state in policy.states] == [0.0, 50.0, 150.0, 1000.0]
    assert policy.states[1].steps_remaining.tolist() == [50.0, 100.0]
    # 50 steps on half of the cluster.
    assert policy.states[2].isolated_seconds.tolist() == [100.0]


def test_shares_beyond_the_gpus_are_cut() -> None:
    greedy = SharesPolicy(lambda state: np.ones((state.n_jobs, 1)))
    result = simulate(make_trace([100, 100], sizes=[1, 3]), Cluster({"v100": 3}), greedy, np.ones((2, 1)), preset=IDEAL)
    assert result.jobs["completion_time"].tolist() == pytest.approx([400 / 3, 400 / 3])
    assert (result.timeline["busy_gpus"] <= 3 + 1e-9).all()


def test_a_policy_that_serves_nobody_stops_with_an_error() -> None:
    idle = SharesPolicy(lambda state: np.zeros((state.n_jobs, 1)))
    with pytest.raises(SimulationStalledError, match="no job made progress"):
        simulate(make_trace([1]), ONE_GPU, idle, [[1.0]], preset=IDEAL)


@settings(max_examples=100)
@given(world=worlds())
def test_isolated_shares_give_isolated_times(world: tuple[Trace, Cluster, np.ndarray]) -> None:
    trace, cluster, rates = world
    result = simulate(trace, cluster, get_policy("isolated"), rates, preset=IDEAL)
    served = result.jobs[result.jobs["status"] == "completed"]
    # Where a gang fits every type, the closed form of finish-time fairness knows the run beforehand.
    if len(served) and (trace.scale_factor[:, None] <= cluster.capacity).all():
        assert served["jct"].to_numpy() == pytest.approx(served["isolated_jct"].to_numpy(), rel=1e-6)


@settings(max_examples=100)
@given(world=worlds(), aware=st.booleans())
def test_every_job_gets_its_steps_and_no_type_more_than_its_gpus(
    world: tuple[Trace, Cluster, np.ndarray], aware: bool
) -> None:
    trace, cluster, rates = world
    result = simulate(trace, cluster, SharesPolicy(equal_shares, heterogeneity_aware=aware), rates, preset=IDEAL)
    jobs, rounds = result.jobs, result.rounds
    served = ((rates > 0) & (trace.scale_factor[:, None] <= cluster.capacity)).any(axis=1)
    assert (jobs["status"] == np.where(served, "completed", "unserved")).all()
    done = rounds.groupby("job_id")["steps"].sum().reindex(np.flatnonzero(served), fill_value=0.0)
    assert done.to_numpy() == pytest.approx(trace.total_steps[served], rel=1e-9)
    rounds["gpus_busy"] = rounds["share"] * trace.scale_factor[rounds["job_id"]]
    busy = rounds.groupby(["round", "accelerator"], observed=True)["gpus_busy"].sum()
    for (_, name), used in busy.items():
        assert used <= cluster.gpus[name] + 1e-9
    time_of_job = rounds.groupby(["round", "job_id"])["share"].sum()
    assert (time_of_job <= 1 + 1e-9).all()
    assert 0 <= result.utilization <= 1 + 1e-9


def test_short_rounds_come_close_to_it() -> None:
    trace, cluster = gavel_trace(20, 1800.0, seed=4), Cluster({"v100": 4, "p100": 4, "k80": 8})
    from throughputs import default_table

    def average_jct(chosen: Preset) -> float:
        result = simulate(trace, cluster, get_policy("max_min_fairness_perf"), default_table(), preset=chosen)
        return result.summary()["average_jct"]

    ideal = average_jct(IDEAL)
    errors = [abs(average_jct(IDEAL.replace(ideal=False, round_seconds=s, idle_fill="off")) - ideal) for s in (720, 90)]
    assert errors[1] < errors[0]
    assert errors[1] < 0.01 * ideal
