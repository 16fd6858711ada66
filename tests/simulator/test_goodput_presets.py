"""What the presets of Pollux and Sia say, one figure after the other, as their published simulators have them."""

from __future__ import annotations

import numpy as np
import pytest

import allocator
from allocator.presets import preset
from allocator.protocol import Assignment, Plan, PlanPolicy
from allocator.protocol.policy import Need
from tests.simulator.goodput_worlds import jobs, profile, trainings
from throughputs import Trace

T4 = allocator.Cluster({"t4": 64}, gpus_per_server={"t4": 4})


class Running(PlanPolicy):
    """The first job on one GPU while `when` says so of the clock, or on all it may have.

    Keeps the times at which it was asked, and the numbers of GPUs that the job could have.
    """

    name = "running"
    needs = Need.CONFIGURATIONS

    def __init__(self, when=lambda clock: True, *, on_all=False):  # noqa: ARG005
        self.when, self.on_all = when, on_all
        self.seen = []
        self.choices = set()

    def plan(self, state, memory):  # noqa: ARG002
        self.seen.append(state.clock)
        ways = state.configurations
        known = ways.gpus[ways.job == 0]
        self.choices |= set(known.tolist())
        n = int(state.n_jobs > 0 and self.when(state.clock))
        gpus = int(known.max(initial=1)) if self.on_all else 1
        return Plan.until_next_event(Assignment.of(range(n), pool=[0] * n, gpus=[gpus] * n))


def run(name, model="net", policy=None, arrival=0.0, **figures):
    """One job, of a thousand steps of 0.16 s on one GPU and of no use for larger batches, under a preset."""
    models = trainings(**{model: profile(**{"noise": (1e-9,), "t4": 1.0} | figures)})
    chosen = preset(name) if isinstance(name, str) else name
    trace = jobs(arrival, model=f"{model} (batch size 16)")
    return allocator.simulate(trace, T4, policy or Running(), models, preset=chosen)


@pytest.mark.parametrize("name", ["pollux", "sia"])
def test_both_decide_once_a_minute_on_the_clock(name):
    """An arrival waits for the end of its round, and rounds begin at multiples of 60 s from 0 on."""
    policy = Running()
    result = run(name, policy=policy, arrival=70.0)
    assert result.jobs["start_time"].tolist() == [120.0]
    assert result.jobs["jct"].tolist() == [50.0 + 30.0 + 160.0]
    assert policy.seen == [120.0, 180.0, 240.0, 300.0]


@pytest.mark.parametrize("name", ["pollux", "sia"])
def test_both_end_epochs_in_whole_seconds(name):
    """Two epochs of 0.7 s are two of one second; and two of 0.4 s none."""
    noise = (1e-9, 1e-9)
    assert run(name, noise=noise, steps=2 * 0.7 / 0.16).jobs["jct"].tolist() == [32.0]
    assert run(name, noise=noise, steps=2 * 0.4 / 0.16).jobs["jct"].tolist() == [30.0]


@pytest.mark.parametrize("keeps_shape", [True, False])
def test_who_was_stopped_starts_anew_on_the_gpus_it_had(keeps_shape):
    """Sia: to be suspended and go on is a start like any other; only who goes on without a break restarts for free.

    Nobody runs from 60 to 120 s: that nobody does is noted as well, or the job would seem to have gone on.
    """
    paused = Running(when=lambda clock: clock != 60.0)
    chosen = preset("sia").replace(restart_keeps_shape=keeps_shape)
    result = run(chosen, policy=paused)
    assert result.jobs["jct"].tolist() == [60.0 + 60.0 + 30.0 + 160.0 - 30.0]


@pytest.mark.parametrize(("name", "served"), [("pollux", 180.0), ("sia", 150.0)])
def test_starts_count_as_service_with_pollux_alone(name, served):
    """Of 190 s on one GPU, 30 s of which are a start, at the last decision."""

    class Told(Running):
        needs = Need.CONFIGURATIONS | Need.SERVICE

        def plan(self, state, memory):
            self.service = state.gpu_seconds.copy()
            return super().plan(state, memory)

    policy = Told()
    run(name, policy=policy)
    assert policy.service.tolist() == [served]


@pytest.mark.parametrize(("keeps_shape", "late"), [(True, 0.0), (False, 30.0)])
def test_other_nodes_are_no_restart_with_sia_where_the_shape_stays(keeps_shape, late):
    """Two jobs on a node each; the short one is done, and the other is placed anew, on the first node."""

    class Both(Running):
        def plan(self, state, memory):  # noqa: ARG002
            n = state.n_jobs
            return Plan.until_next_event(Assignment.of(range(n)[::-1], pool=[0] * n, gpus=[4] * n))

    trace = Trace(["net (batch size 16)", "short (batch size 16)"], [4, 4], np.ones(2), [0.0, 0.0])
    models = trainings(net=profile((1e-9,), t4=1.0), short=profile((1e-9,), steps=100.0, t4=1.0))
    chosen = preset("sia").replace(restart_keeps_shape=keeps_shape)
    assert allocator.simulate(trace, T4, Both(), models, preset=chosen).jobs["jct"].tolist() == [70.0 + late, 34.0]
