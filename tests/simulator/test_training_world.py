"""Rounds of jobs in training: the time to start, batch sizes that change, jobs that run on past their profile."""

from __future__ import annotations

import pytest

from allocator import Cluster, get_policy
from allocator.presets import Preset
from allocator.protocol import Need
from allocator.simulator import preset, simulate
from tests.simulator.worlds import SharesPolicy
from throughputs import InputError, ThroughputTable, Trace, default_table

ROUNDS = Preset().replace(round_seconds=100.0)


def test_what_was_measured_is_of_all_rounds_so_far():
    """One job at 2 steps a second, of ten samples each, when another is seen after three rounds of 100 s."""

    class Watching(SharesPolicy):
        needs = Need.TRAINING

    policy = Watching()
    trace = Trace(["LM (batch size 10)"] * 2, [1, 1], [1000.0, 10.0], [0.0, 250.0])
    table = ThroughputTable([("LM (batch size 10)", 1)], ["v100"], [[2.0]])
    simulate(trace, Cluster({"v100": 1}), policy, table, preset=ROUNDS)
    first, second, *_ = (state.training for state in policy.states)
    assert (first.measured_samples.tolist(), first.measured_seconds.tolist()) == ([0.0], [0.0])
    assert (second.measured_samples[0], second.measured_seconds[0]) == (6000.0, 300.0)


def accordion(mode="accordion"):
    return Trace(["LM (batch size 10)"], [1], [300_000.0], [0.0], mode=[mode])


def test_taken_for_static_on_request_and_with_an_array_of_rates():
    table, cluster = default_table(), Cluster({"v100": 1})
    static = simulate(accordion("static"), cluster, get_policy("fifo"), table)
    for mode in ("accordion", "gns"):
        changing = simulate(accordion(mode), cluster, get_policy("fifo"), table)
        steps = changing.rounds["steps"].to_numpy()
        assert steps[1] > steps[-2]  # larger batches are fewer per round
        assert changing.makespan < static.makespan
    off = preset("default").replace(batch_size_adaptation="off")
    for run in (
        simulate(accordion(), cluster, get_policy("fifo"), table, preset=off),
        simulate(accordion(), cluster, get_policy("fifo"), table.rates(["LM (batch size 10)"], [1], ["v100"])),
    ):
        assert run.makespan == static.makespan


@pytest.mark.parametrize("changes", [{"ideal": True}, {"unconsolidated_throughputs": True}])
def test_worlds_that_cannot_have_changing_batch_sizes_say_so(changes):
    settings = preset("default").replace(**changes)
    with pytest.raises(InputError, match="batch_size_adaptation=off"):
        simulate(accordion(), Cluster({"v100": 1}), get_policy("fifo"), default_table(), preset=settings)


def test_isolated_time_of_a_job_that_is_alone_is_the_time_since_it_came_whatever_its_batch_size():
    def ran(mode, *later):
        n = 1 + len(later)
        trace = Trace(["LM (batch size 10)"] * n, [1] * n, [300_000.0] * n, [0.0, *later], mode=[mode] * n)
        policy = SharesPolicy(needs=Need.ISOLATED_TIME)
        exact = preset("default").replace(batch_size_adaptation="exact")
        return simulate(trace, Cluster({"v100": 1}), policy, default_table(), preset=exact), policy.states

    until = 360.0 * (ran("accordion")[0].makespan // 360.0)
    # it changes on the way, and the policy is asked then
    _, changed, state, *_ = ran("accordion", until)[1]
    assert (changed.n_jobs, state.n_jobs, state.clock) == (1, 2, until)
    assert state.isolated_seconds.tolist() == pytest.approx([until, 0.0], rel=1e-6)
