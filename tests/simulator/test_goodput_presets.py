"""What the presets of Pollux and Sia say, one figure after the other, as their published simulators have them."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import allocator
from allocator.presets import Preset, preset
from allocator.protocol import Assignment, Plan, PlanPolicy
from allocator.protocol.policy import Need
from tests.simulator.goodput_worlds import jobs, profile, trainings
from throughputs import Trace

T4 = allocator.Cluster({"t4": 64}, gpus_per_server={"t4": 4})

MODELS = ("bert", "cifar10", "deepspeech2", "imagenet", "ncf", "yolov3", "net")


class Running(PlanPolicy):
    """The first job on one GPU while `when` says so of the clock, or on all it may have.

    Keeps the times at which it was asked, and the numbers of GPUs that the job could have.
    """

    name = "running"
    needs = Need.CONFIGURATIONS

    def __init__(self, when=lambda clock: True, *, on_all: bool = False) -> None:  # noqa: ARG005
        self.when, self.on_all = when, on_all
        self.seen: list[float] = []
        self.choices: set[int] = set()

    def plan(self, state, memory):  # noqa: ARG002
        self.seen.append(state.clock)
        ways = state.configurations
        known = ways.gpus[ways.job == 0]
        self.choices |= set(known.tolist())
        n = int(state.n_jobs > 0 and self.when(state.clock))
        gpus = int(known.max(initial=1)) if self.on_all else 1
        return Plan.until_next_event(Assignment.of(range(n), pool=[0] * n, gpus=[gpus] * n))


def run(name: str | Preset, model: str = "net", policy: PlanPolicy | None = None, arrival: float = 0.0, **figures):
    """One job, of a thousand steps of 0.16 s on one GPU and of no use for larger batches, under a preset."""
    models = trainings(**{model: profile(**{"noise": (1e-9,), "t4": 1.0} | figures)})
    chosen = preset(name) if isinstance(name, str) else name
    trace = jobs(arrival, model=f"{model} (batch size 16)")
    return allocator.simulate(trace, T4, policy or Running(), models, preset=chosen)


@pytest.mark.parametrize("model", MODELS)
def test_pollux_delays_every_start_by_half_a_minute(model: str) -> None:
    """OSDI'21 simulator: a start takes 30 s, whatever trains; steps take as long as measured."""
    assert run("pollux", model).jobs["jct"].tolist() == [30.0 + 160.0]


@pytest.mark.parametrize(
    ("model", "delay", "slowdown"),
    [
        ("bert", 120.0, 1.2),
        ("cifar10", 50.0, 1.8),
        ("deepspeech2", 25.0, 1.2),
        ("imagenet", 250.0, 1.2),
        ("ncf", 15.0, 1.5),
        ("yolov3", 80.0, 1.2),
        ("net", 30.0, 1.0),
    ],
)
def test_sia_delays_starts_and_slows_steps_by_model(model: str, delay: float, slowdown: float) -> None:
    """SOSP'23 simulator: seconds of a start, and the calibration that goodput is divided by."""
    assert run("sia", model).jobs["jct"].tolist() == [delay + 160.0 * slowdown]


@pytest.mark.parametrize("name", ["pollux", "sia"])
def test_both_decide_once_a_minute_on_the_clock(name: str) -> None:
    """An arrival waits for the end of its round, and rounds begin at multiples of 60 s from 0 on."""
    policy = Running()
    result = run(name, policy=policy, arrival=70.0)
    assert result.jobs["start_time"].tolist() == [120.0]
    assert result.jobs["jct"].tolist() == [50.0 + 30.0 + 160.0]
    assert policy.seen == [120.0, 180.0, 240.0, 300.0]


@pytest.mark.parametrize("name", ["pollux", "sia"])
def test_both_end_epochs_in_whole_seconds(name: str) -> None:
    """Two epochs of 0.7 s are two of one second; and two of 0.4 s none."""
    noise = (1e-9, 1e-9)
    assert run(name, noise=noise, steps=2 * 0.7 / 0.16).jobs["jct"].tolist() == [32.0]
    assert run(name, noise=noise, steps=2 * 0.4 / 0.16).jobs["jct"].tolist() == [30.0]


@pytest.mark.parametrize(
    ("name", "model", "most"), [("pollux", "net", 64), ("pollux", "ncf", 1), ("sia", "net", 64), ("sia", "ncf", 64)]
)
def test_jobs_have_64_gpus_at_most_and_one_of_ncf_under_pollux(name: str, model: str, most: int) -> None:
    """min(2 x profiled, 64, largest batch / least micro-batch); Pollux forces ncf to one GPU."""
    cluster = allocator.Cluster({"t4": 256}, gpus_per_server={"t4": 4})
    policy = Running(on_all=True)
    model_of_many = dataclasses.replace(profile(noise=(1e9,) * 50, steps=1e6, t4=1.0), largest_batch_size=1024)
    models = trainings(**{model: model_of_many})
    trace = jobs(0.0, model=f"{model} (batch size 16)")
    allocator.simulate(trace, cluster, policy, models, preset=preset(name))
    assert max(policy.choices) == most


def test_jobs_of_ncf_keep_their_largest_batch_under_pollux() -> None:
    """32,768 samples, on the one GPU that they have; whatever is asked for, and whatever noise says."""
    model = dataclasses.replace(profile(noise=(1e-9,), steps=10.0, t4=1.0), largest_batch_size=32768)
    seconds = {}
    for policy in ("pollux", "optimus"):
        trace = jobs(0.0, model="ncf (batch size 16)")
        chosen = preset("pollux")
        found = allocator.simulate(trace, T4, allocator.get_policy(policy), trainings(ncf=model), preset=chosen)
        seconds[policy] = found.jobs["jct"][0]
    # without noise samples beyond the first 16 are worth nothing: ten steps of 327.68 s, and a start of 30 s
    assert seconds["pollux"] == 30.0 + 3277.0
    assert seconds["optimus"] == 30.0 + 2.0


def test_pollux_offers_every_number_of_gpus_to_optimus_and_powers_to_pollux() -> None:
    for policy, columns in (("optimus", "all"), ("tiresias", "all"), ("pollux", "powers")):
        assert preset("pollux").in_run(policy, T4).simulator.goodput_columns == columns
    assert preset("sia").in_run("sia", T4).simulator.goodput_columns == "powers"


def test_optimus_knows_step_times_and_counts_iterations() -> None:
    rules = preset("pollux").in_run("optimus", T4).simulator.goodput_rules
    assert (rules.knowledge, rules.batch_size, rules.counts) == ("true", "submitted", "iterations")
    tiresias = preset("pollux").in_run("tiresias", T4).simulator.goodput_rules
    assert (tiresias.knowledge, tiresias.batch_size, tiresias.counts) == ("grown", "submitted", "progress")


def test_tiresias_demotes_after_sixteen_gpu_hours_and_never_promotes() -> None:
    """3,600 * 16 GPU seconds; starvation is off."""
    settings = preset("pollux").settings_of_policy("tiresias", T4)
    assert settings == {"queue_limits": (57600.0,), "promote_after": None, "line": "entered"}


def test_policies_reckon_with_starts_of_their_own() -> None:
    """The restart factor of Pollux has 30 s; that of Sia a table which differs from the delays of its simulator."""
    assert preset("pollux").settings_of_policy("pollux", T4) == {"restart_seconds": 30.0}
    sia = preset("sia").settings_of_policy("sia", T4)
    assert dict(sia["restart_seconds_of_type"]) == {
        "bert": 120.0,
        "cifar10": 30.0,
        "deepspeech2": 25.0,
        "imagenet": 250.0,
        "yolov3": 45.0,
    }
    assert (sia["restart_seconds"], sia["rounded"]) == (30.0, True)


def test_gavel_has_rounds_of_six_minutes_beside_sia() -> None:
    for policy in ("max_sum_throughput_perf", "finish_time_fairness_perf"):
        chosen = preset("sia").in_run(policy, T4)
        assert chosen.mechanism.round_seconds == 360.0
        assert chosen.simulator.restart_delays
        assert chosen.simulator.goodput_in_rounds == "trained"
        assert (chosen.simulator.slot_seconds, chosen.mechanism.decide_every_seconds) == (360.0, 360.0)
        assert (chosen.mechanism.time_counted, chosen.mechanism.share_decimals) == ("since_arrival", 5)


def test_starts_count_as_service_with_pollux_alone() -> None:
    """The delay of a start counts as attained service in the simulator of OSDI'21: 190 s on one GPU, not 160."""

    class Told(Running):
        needs = Need.CONFIGURATIONS | Need.SERVICE

        def plan(self, state, memory):
            self.service = state.gpu_seconds.copy()
            return super().plan(state, memory)

    served = {}
    for name in ("pollux", "sia"):
        policy = Told()
        run(name, policy=policy)
        served[name] = policy.service.tolist()
    assert served == {"pollux": [180.0], "sia": [150.0]}


@pytest.mark.parametrize("keeps_shape", [True, False])
def test_who_was_stopped_starts_anew_on_the_gpus_it_had(keeps_shape: bool) -> None:
    """Sia: to be suspended and go on is a start like any other; only who goes on without a break restarts for free.

    Nobody runs from 60 to 120 s: that nobody does is noted as well, or the job would seem to have gone on.
    """
    paused = Running(when=lambda clock: clock != 60.0)
    chosen = preset("sia").replace(restart_keeps_shape=keeps_shape)
    result = run(chosen, policy=paused)
    assert result.jobs["jct"].tolist() == [60.0 + 60.0 + 30.0 + 160.0 - 30.0]


def test_other_nodes_are_no_restart_with_sia_where_the_shape_stays() -> None:
    """Two jobs of two GPUs each on nodes of four; the smaller one is done, and the other is placed anew, for free."""

    class Both(Running):
        def plan(self, state, memory):  # noqa: ARG002
            n = state.n_jobs
            # the last one first, so that who is left moves to the first node
            order = list(range(n))[::-1]
            return Plan.until_next_event(Assignment.of(order, pool=[0] * n, gpus=[4] * n))

    model = profile(noise=(1e-9,), t4=1.0)
    trace = Trace(["net (batch size 16)", "short (batch size 16)"], [4, 4], np.ones(2), [0.0, 0.0])
    models = trainings(net=model, short=profile(noise=(1e-9,), steps=100.0, t4=1.0))
    ends = {}
    for keeps_shape in (True, False):
        chosen = preset("sia").replace(restart_keeps_shape=keeps_shape)
        result = allocator.simulate(trace, T4, Both(), models, preset=chosen)
        ends[keeps_shape] = result.jobs["jct"].tolist()
    assert ends[False][0] == ends[True][0] + 30.0
    assert ends[False][1] == ends[True][1]
