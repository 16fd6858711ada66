"""Rounds of jobs in training: the time to start, batch sizes that change, jobs that run on past their profile."""

from __future__ import annotations

import numpy as np
import pytest

from allocator import Cluster, get_policy
from allocator.presets import Preset
from allocator.protocol import Need
from allocator.simulator import preset, simulate
from tests.simulator.worlds import SharesPolicy, make_trace
from throughputs import InputError, Trace, default_colocation, default_table

ROUNDS = Preset().replace(round_seconds=100.0)


def test_a_gang_that_starts_anew_trains_less():
    settings = ROUNDS.replace(restart_penalty_seconds=20.0, idle_fill="off")
    trace = make_trace([1000.0, 1000.0])
    result = simulate(trace, Cluster({"v100": 1}), SharesPolicy(), np.ones((2, 1)), preset=settings)
    steps = result.rounds.sort_values("round")["steps"].tolist()
    assert steps[0] == 100.0  # nothing is taken in the very first round
    order = result.rounds.sort_values("round")["job_id"].to_numpy()
    anew = np.append(False, order[1:] != order[:-1])
    assert anew.sum() > 2
    assert {round(s, 9) for s, new in zip(steps, anew, strict=True) if new and s > 50} == {80.0}


def test_a_gang_that_is_done_well_before_the_end_is_spared():
    settings = ROUNDS.replace(restart_penalty_seconds=20.0, restart_penalty_slack_seconds=5.0)
    trace = make_trace([100.0, 90.0, 97.0], arrivals=[0.0, 150.0, 350.0])
    result = simulate(trace, Cluster({"v100": 1}), SharesPolicy(), np.ones((3, 1)), preset=settings)
    completed = result.jobs["completion_time"].tolist()
    assert completed[1] == 240.0  # 90 s of a round of 100 s
    assert completed[2] > 447.0  # 97 s are too near its end


@pytest.mark.parametrize(("steps", "lost"), [(95.0, False), (95.25, True)])
def test_who_is_spared_ends_by_the_slack_to_the_second(steps, lost):
    """Rounds of 100 s and a slack of 5 s: the second job, in a round that begins at 150 s, ends at 245 s or later."""
    settings = ROUNDS.replace(restart_penalty_seconds=20.0, restart_penalty_slack_seconds=5.0)
    trace = make_trace([100.0, steps], arrivals=[0.0, 150.0])
    jobs = simulate(trace, Cluster({"v100": 1}), SharesPolicy(), np.ones((2, 1)), preset=settings).jobs
    assert (jobs["completion_time"][1] > 150.0 + steps) == lost
    assert jobs["restart_gpu_seconds"].tolist() == [0.0, 20.0 * lost]


def test_what_was_measured_is_of_all_rounds_so_far():
    """One job at 2 steps a second, of one sample each, when another is seen after three rounds of 100 s."""

    class Watching(SharesPolicy):
        needs = Need.TRAINING

    policy = Watching()
    trace = make_trace([1000.0, 10.0], arrivals=[0.0, 250.0])
    simulate(trace, Cluster({"v100": 1}), policy, np.full((2, 1), 2.0), preset=ROUNDS)
    first, second, *_ = (state.training for state in policy.states)
    assert (first.measured_samples.tolist(), first.measured_seconds.tolist()) == ([0.0], [0.0])
    assert (second.measured_samples[0], second.measured_seconds[0]) == (600.0, 300.0)


def test_penalty_is_not_busy_time():
    free, charged = (
        simulate(
            make_trace([1000.0, 1000.0]),
            Cluster({"v100": 1}),
            SharesPolicy(),
            np.ones((2, 1)),
            preset=ROUNDS.replace(restart_penalty_seconds=seconds),
        )
        for seconds in (0.0, 20.0)
    )
    assert free.jobs["gpu_seconds"].sum() == pytest.approx(2000.0)
    assert charged.jobs["gpu_seconds"].sum() == pytest.approx(2000.0)
    assert charged.makespan > free.makespan
    assert charged.utilization < free.utilization


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        # 20 s, then 50 steps
        ([50.0], [70.0]),
        # 100 s of the first round, and 30 steps of the next without a start
        ([130.0], [150.0]),
        # the second starts with the round after: one that ends early is charged too
        ([130.0, 10.0], [150.0, 270.0]),
    ],
)
def test_starts_may_come_before_training(steps, expected):
    jobs = simulate(
        make_trace(steps),
        Cluster({"v100": 1}),
        get_policy("fifo_perf"),
        np.ones((len(steps), 1)),
        preset=ROUNDS.replace(restart_penalty_seconds=20.0, restart_delays=True, round_seconds=120.0),
    ).jobs
    assert jobs["completion_time"].tolist() == expected
    assert jobs["gpu_seconds"].tolist() == [one + 20.0 for one in steps]


def accordion(mode="accordion"):
    return Trace(["LM (batch size 10)"], [1], [300_000.0], [0.0], mode=[mode])


@pytest.mark.parametrize("mode", ["accordion", "gns"])
def test_batch_sizes_change_and_the_job_ends_sooner(mode):
    table, cluster = default_table(), Cluster({"v100": 1})
    static = simulate(accordion("static"), cluster, get_policy("fifo"), table)
    changing = simulate(accordion(mode), cluster, get_policy("fifo"), table)
    assert changing.makespan < static.makespan
    steps = changing.rounds["steps"].to_numpy()
    assert steps[1] > steps[-2]  # larger batches are fewer per round
    assert (changing.jobs["status"] == "completed").all()


def test_taken_for_static_on_request_and_with_an_array_of_rates():
    table, cluster = default_table(), Cluster({"v100": 1})
    static = simulate(accordion("static"), cluster, get_policy("fifo"), table)
    off = preset("default").replace(batch_size_adaptation="off")
    for run in (
        simulate(accordion(), cluster, get_policy("fifo"), table, preset=off),
        simulate(accordion(), cluster, get_policy("fifo"), table.rates(["LM (batch size 10)"], [1], ["v100"])),
    ):
        assert run.makespan == static.makespan


def test_the_trace_itself_is_left_alone():
    trace = accordion()
    simulate(trace, Cluster({"v100": 1}), get_policy("fifo"), default_table())
    assert trace.total_steps.tolist() == [300_000.0]


@pytest.mark.parametrize("changes", [{"ideal": True}, {"unconsolidated_throughputs": True}])
def test_worlds_that_cannot_have_changing_batch_sizes_say_so(changes):
    settings = preset("default").replace(**changes)
    with pytest.raises(InputError, match="batch_size_adaptation=off"):
        simulate(accordion(), Cluster({"v100": 1}), get_policy("fifo"), default_table(), preset=settings)


def test_policies_that_pack_neither():
    table = default_table().with_colocation(default_colocation())
    with pytest.raises(InputError, match="share GPUs"):
        simulate(accordion(), Cluster({"v100": 1}), get_policy("max_min_fairness_packed"), table)


def test_a_job_far_beyond_its_profile_is_cut_off():
    trace = make_trace([1000.0])
    settings = ROUNDS.replace(restart_penalty_seconds=0.0, overtime_factor=0.45)
    result = simulate(trace, Cluster({"v100": 1}), SharesPolicy(), np.ones((1, 1)), preset=settings)
    assert result.jobs["completion_time"].tolist() == [500.0]
    assert result.jobs["status"].tolist() == ["cut_off"]
    assert result.jobs["steps_done"].tolist() == [500.0]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("restart_penalty_seconds", -1.0),
        ("batch_size_adaptation", "sometimes"),
        ("overtime_factor", -0.5),
        ("finished_jobs_linger_rounds", -1),
    ],
)
def test_settings_out_of_range(name, value):
    with pytest.raises(InputError, match=name):
        preset("default").replace(**{name: value})


@pytest.mark.parametrize("name", ["shockwave", "shockwave_published"])
def test_a_trace_that_grows_is_the_same_as_a_long_one(name):
    n = 192
    modes = ["gns", "accordion", "static"] * (n // 3)
    whole = Trace(["LM (batch size 10)"] * n, [1] * n, [80_000.0] * n, np.arange(n) * 200.0, mode=modes)

    def first(jobs):
        columns = {column: getattr(whole, column)[:jobs] for column in Trace.column_names()}
        return Trace(**columns)

    cluster, policy = Cluster({"v100": 4}), get_policy("gandiva_fair")
    long = simulate(whole, cluster, policy, default_table(), preset=name, window=(0, 15))
    grown = simulate(
        first(16),
        cluster,
        policy,
        default_table(),
        preset=name,
        window=(0, 15),
        extend=lambda jobs: first(jobs),
    )
    ours, theirs = (run.jobs["completion_time"].to_numpy()[:15] for run in (grown, long))
    np.testing.assert_array_equal(ours, theirs)
