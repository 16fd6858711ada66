"""Slots, ends and overheads of published simulators that decide at events, by hand."""

from dataclasses import dataclass

import numpy as np

from allocator import (
    Assignment,
    Cluster,
    Need,
    Plan,
    PlanPolicy,
    PlanStep,
    simulate,
)
from allocator.presets import preset
from allocator.presets.preset import Preset
from throughputs import Trace

CLUSTER = Cluster({"a100": 8}, gpus_per_server={"a100": 8})


@dataclass(frozen=True)
class Everybody(PlanPolicy):
    """Jobs in the order of their arrival as long as there are GPUs; asked once more after `step_seconds`."""

    name = "everybody"
    needs = Need.SERVICE
    step_seconds: float = np.inf

    def new_memory(self):
        return Seen()

    def plan(self, state, memory):
        memory.seen.append((state.clock, state.more_arrivals, state.run_seconds.tolist(), state.gpu_seconds.tolist()))
        fits = np.cumsum(state.scale_factors) <= state.capacity[0]
        rows = np.flatnonzero(fits)
        assignment = Assignment.of(rows, np.zeros(len(rows), dtype=int), state.scale_factors[rows])
        LAST.append(memory.seen)
        return Plan((PlanStep(assignment, self.step_seconds),))


class Seen:
    def __init__(self):
        self.seen = []

    def state(self):
        return self.seen

    def restore(self, state):
        self.seen = state


LAST = []


def run(trace, policy=None, **settings):
    LAST.clear()
    rates = np.ones((len(trace), 1))
    result = simulate(trace, CLUSTER, policy or Everybody(), rates, preset=preset("default").replace(**settings))
    return result, LAST[-1]


def jobs(arrivals, gpus, steps, **columns):
    return Trace(["job"] * len(arrivals), gpus, steps, arrivals, **columns)


def ends(result):
    return result.jobs["completion_time"].tolist()


COSTS = {"overhead_base_seconds": 2.0, "overhead_doubling_seconds": 3.0}


def test_attained_service_is_what_was_trained():
    trace = jobs([0.0, 100.0], [4, 1], [200.0, 10.0])
    _, seen = run(trace, overhead="starts", **COSTS)
    assert seen[1] == (100.0, False, [89.0, 0.0], [356.0, 0.0])


def test_attained_service_in_rounds():
    class InRounds(Everybody):
        in_rounds = True

    trace = jobs([0.0, 100.0], [4, 1], [2000.0, 10.0])
    _, seen = run(trace, InRounds(), round_seconds=60.0)
    assert seen[2] == (120.0, False, [120.0, 0.0], [480.0, 0.0])


def test_settings_of_the_world_go_with_policy_and_cluster():
    chosen = Preset(
        world_settings={"edf": {"ends": "second"}},
        world_settings_by_gpus={1: {"slot_seconds": 1.0}, 8: {"slot_seconds": 2.0}},
    )
    small, large = Cluster({"a100": 4}), Cluster({"a100": 9})
    assert chosen.in_run("other", small).simulator.slot_seconds == 1.0
    assert chosen.in_run("edf", large).simulator.slot_seconds == 2.0
    assert chosen.in_run("edf", large).simulator.ends == "second"
    mine = chosen.replace(slot_seconds=5.0, ends="exact").in_run("edf", large)
    assert (mine.simulator.slot_seconds, mine.simulator.ends) == (5.0, "exact")
