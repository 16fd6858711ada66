"""Slots, ends and overheads of published simulators that decide at events, by hand."""

from dataclasses import dataclass

import numpy as np
import pytest

from allocator import (
    Assignment,
    Cluster,
    InputError,
    Need,
    Plan,
    PlanPolicy,
    PlanStep,
    get_policy,
    simulate,
)
from allocator.mechanism.placement.anew import PlacementAnew
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


LAST: list = []


def run(trace, policy=None, **settings):
    LAST.clear()
    rates = np.ones((len(trace), 1))
    result = simulate(trace, CLUSTER, policy or Everybody(), rates, preset=preset("default").replace(**settings))
    return result, LAST[-1]


def jobs(arrivals, gpus, steps, **columns):
    return Trace(["job"] * len(arrivals), gpus, steps, arrivals, **columns)


def ends(result):
    return result.jobs["completion_time"].tolist()


def test_without_rules_everything_is_seen_at_once():
    result, seen = run(jobs([0.0, 10.0], [1, 1], [25.5, 5.0]))
    assert ends(result) == [25.5, 15.0]
    assert [clock for clock, *_ in seen] == [0.0, 10.0, 15.0]


def test_a_slot_holds_back_arrivals_and_gpus():
    trace = jobs([5.0, 6.0, 200.0], [8, 8, 8], [30.0, 10.0, 5.0])
    result, seen = run(trace, slot_seconds=60.0)
    # The second arrival waits to 65, when the GPUs of the first job, done at 35, are free too.
    assert ends(result) == [35.0, 75.0, 205.0]
    assert [clock for clock, *_ in seen] == [5.0, 65.0, 200.0]


def test_the_last_arrival_may_be_spared():
    trace = jobs([0.0, 10.0], [1, 1], [500.0, 10.0])
    waits, _ = run(trace, slot_seconds=60.0)
    spared, _ = run(trace, slot_seconds=60.0, slot_spares_last_arrival=True)
    assert ends(waits)[1] == 70.0
    assert ends(spared)[1] == 20.0


def test_slots_on_a_grid_begin_with_the_first_arrival():
    trace = jobs([7.0, 150.0], [1, 1], [10.0, 10.0])
    result, seen = run(trace, slot_seconds=60.0, slot_grid=True, ends="slot")
    assert [clock for clock, *_ in seen] == [7.0, 187.0]
    assert ends(result) == [67.0, 247.0]


def test_who_comes_as_a_slot_begins_is_seen_then():
    """(0.1 + 37 * 60.1 - 0.1) / 60.1 is above 37 by rounding, so that the job would be seen a slot later."""
    second = 0.1 + 37 * 60.1
    result, _ = run(jobs([0.1, second], [1, 1], [5000.0, 10.0]), slot_seconds=60.1, slot_grid=True)
    assert result.jobs["start_time"].tolist() == [0.1, second]


@pytest.mark.parametrize(("kind", "expected"), [("exact", 12.25), ("second", 13.0), ("slot", 60.0)])
def test_when_a_job_is_through(kind, expected):
    result, _ = run(jobs([0.0], [1], [12.25]), slot_seconds=60.0, ends=kind)
    assert ends(result) == [expected]


def test_deadlines_may_be_judged_by_the_training():
    trace = jobs([0.0], [1], [12.25], slo=[2.0], duration=[7.0])
    late, _ = run(trace, slot_seconds=60.0, ends="slot")
    met, _ = run(trace, slot_seconds=60.0, ends="slot", deadlines_judged_by="training")
    assert ends(late) == ends(met) == [60.0]
    assert late.jobs["met"].tolist() == [False]
    assert met.jobs["met"].tolist() == [True]


def test_training_is_judged_by_whole_seconds():
    """Through after 12.25 s, which are 13: a deadline at 12.5 s is missed, one at 13 s is met."""
    for slo, met in ((1.25, False), (1.3, True)):
        trace = jobs([0.0], [1], [12.25], slo=[slo], duration=[10.0])
        result, _ = run(trace, slot_seconds=60.0, ends="slot", deadlines_judged_by="training")
        assert result.jobs["met"].tolist() == [met]


COSTS = {"overhead_base_seconds": 2.0, "overhead_doubling_seconds": 3.0}


def test_who_is_charged():
    trace = jobs([0.0, 100.0], [4, 1], [200.0, 10.0])
    # Of 4 GPUs: 2 + 3 (1 + 2) = 11 s; of one: 5 s.
    assert ends(run(trace, overhead="starts", **COSTS)[0]) == [211.0, 115.0]
    # At 0, at the arrival at 100 and at the end of the other at 115.
    assert ends(run(trace, overhead="running", **COSTS)[0]) == [233.0, 115.0]
    assert ends(run(trace, overhead="running", overhead_while_arrivals=True, **COSTS)[0]) == [211.0, 110.0]


def test_a_known_set_of_gpus_costs_the_base_only():
    trace = jobs([0.0, 100.0], [4, 1], [200.0, 10.0])
    known, _ = run(trace, overhead="running", overhead_reuses_groups=True, **COSTS)
    assert ends(known) == [11.0 + 200.0 + 2.0 + 2.0, 115.0]


def test_those_who_wait_are_charged_when_they_run():
    trace = jobs([0.0, 20.0, 30.0], [8, 1, 1], [50.0, 10.0, 10.0])
    result, _ = run(trace, overhead="active", overhead_while_arrivals=True, **COSTS)
    # 8 GPUs lose 14 s at 0, and at 20 the 10 s up to the next decision; the second job is charged with 5 s at 20.
    # Nothing is lost by the last arrival.
    assert ends(result) == [74.0, 89.0, 84.0]


def test_everything_starts_anew_at_every_so_many_decisions():
    trace = jobs([0.0, 100.0], [4, 1], [200.0, 10.0])
    restarts = {"overhead_restart_decisions": 1, "overhead_restart_seconds": 100.0}
    result, _ = run(trace, overhead="running", overhead_reuses_groups=True, **COSTS, **restarts)
    # Decisions at 0, which is no restart, 100 and 213. At 100 the GPUs of the first job are known, so that it pays the
    # base; then nothing is known, and the second job, which was ready at 205, starts once more.
    assert ends(result) == [11.0 + 200.0 + 2.0, 213.0 + 105.0 + 2.0]


def test_time_lost_may_leave_an_end_alone():
    trace = jobs([0.0], [4], [50.0])
    assert ends(run(trace, overhead="starts", overhead_delays_end="restarts", **COSTS)[0]) == [50.0]


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


def test_gangs_at_the_speed_of_their_durations():
    trace = jobs([0.0], [2], [100.0], duration=[40.0])
    assert ends(run(trace, gang_rates="duration")[0]) == [40.0]
    with pytest.raises(InputError, match="duration of job 0"):
        run(jobs([0.0], [2], [100.0]), gang_rates="duration")


@pytest.mark.parametrize("settings", [{"ends": "slot"}, {"overhead_restart_decisions": "slot"}])
def test_what_goes_by_the_slot_needs_one(settings):
    with pytest.raises(InputError, match="slot_seconds"):
        preset("default").replace(**settings)


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


def assignment(**gpus):
    names = [int(name[1:]) for name in gpus]
    return Assignment.of(names, [0] * len(gpus), list(gpus.values()))


def test_placement_anew_in_the_order_of_the_rows():
    placement = PlacementAnew(Cluster({"a100": 16}, gpus_per_server={"a100": 4}))
    assert placement.place(assignment(j2=8, j1=4)) == (tuple(range(8)), tuple(range(8, 12)))
    assert placement.place(assignment(j1=4, j2=8)) == (tuple(range(4)), tuple(range(4, 12)))
    assert placement.migrated.tolist() == [1, 2]
    # One free GPU is not a server for two, three are not either: their number is odd.
    assert placement.place(assignment(j1=1, j2=2, j3=1)) == ((0,), (4, 5), (1,))
    # Beside a gang smaller than a server, where exactly as many GPUs are free.
    assert placement.place(assignment(j1=2, j2=1, j4=1, j3=2)) == ((0, 1), (2,), (3,), (4, 5))
    assert placement.place(assignment(j1=4, j2=1, j3=4, j5=4, j4=2)) == (
        tuple(range(4)),
        (4,),
        tuple(range(8, 12)),
        tuple(range(12, 16)),
        (5, 6),
    )


def stretch_to_the_end(steps: float, deadline: float, **settings):
    """Completion time of one job of one GPU, at one step a second, with slots of 10 s."""
    trace = Trace(["job"], [1], [steps], [0.0], deadline=[deadline])
    chosen = preset("default").replace(slot_seconds=10.0, ends="slot", **settings)
    return float(simulate(trace, CLUSTER, Everybody(), [[1.0]], preset=chosen).jobs["completion_time"].iloc[0])


def test_late_jobs_wait_for_the_end_of_the_slot_of_their_deadline():
    assert stretch_to_the_end(25.0, 24.0) == 30.0
    # 24 steps by the deadline, then nothing until 30 s
    assert stretch_to_the_end(25.0, 24.0, late_jobs_wait=True) == 40.0
    assert stretch_to_the_end(25.0, 25.0, late_jobs_wait=True) == 30.0


@pytest.mark.parametrize(("spared", "ends"), [(False, [12.0, 25.0]), (True, [12.0, 17.0])])
def test_an_end_keeps_its_own_time_where_nobody_else_has_run(spared, ends):
    # the second job is seen at 10 s and has GPUs when the end of the first one is seen
    trace = Trace(["job", "job"], [8, 8], [12.0, 5.0], [0.0, 3.0])
    chosen = preset("default").replace(slot_seconds=10.0, slot_spares_last_end=spared)
    result = simulate(trace, CLUSTER, Everybody(), [[1.0]] * 2, preset=chosen)
    assert result.jobs["completion_time"].tolist() == ends


def test_placement_anew_refuses_what_it_cannot_do():
    placement = PlacementAnew(CLUSTER)
    with pytest.raises(InputError, match="another rule than anew"):
        placement.place(Assignment.of([0, 1], [0, 0], [2, 2], [1, 0]))
    with pytest.raises(InputError, match="at most"):
        placement.place(assignment(j0=9))


def test_a_run_goes_on_from_a_checkpoint(tmp_path):
    class StopError(Exception):
        pass

    def stop_late(clock, completed, jobs):  # noqa: ARG001
        if completed == 6:
            raise StopError

    rng = np.random.default_rng(0)
    trace = jobs(np.cumsum(rng.integers(1, 90, 12)).astype(float), rng.choice([1, 2, 4], 12), rng.integers(20, 400, 12))
    chosen = preset("default").replace(
        placement="anew",
        slot_seconds=30.0,
        ends="slot",
        overhead="running",
        overhead_reuses_groups=True,
        overhead_restart_decisions=5,
        **COSTS,
    )
    rates = np.ones((12, 1))
    whole = simulate(trace, CLUSTER, Everybody(), rates, preset=chosen)
    kept = {"checkpoint": tmp_path / "run.ckpt", "checkpoint_every": 1, "resume": True}
    with pytest.raises(StopError):
        simulate(trace, CLUSTER, Everybody(), rates, preset=chosen, progress=stop_late, **kept)
    rest = simulate(trace, CLUSTER, Everybody(), rates, preset=chosen, **kept)
    assert ends(rest) == ends(whole)


def test_a_stopped_job_has_more_to_do() -> None:
    # The first job has 20 s done of 60 when the second comes; with 8 GPUs it loses 40 s, with fewer 30 s.
    second = Trace(["job"] * 2, [8, 8], [60.0, 10.0], [0.0, 20.0])
    settings = {"preemption_penalty_by_gpus": ((1, 30.0), (8, 40.0)), "restart_penalty_seconds": 0.0}
    run_on = preset("default").replace(**settings)
    rates = np.ones((2, 1))
    found = simulate(second, CLUSTER, get_policy("srtf"), rates, preset=run_on).jobs
    assert found["completion_time"].tolist() == [30.0 + 40.0 + 40.0, 30.0]
    assert found["preemptions"].tolist() == [1, 0]
    smaller = Trace(["job"] * 2, [7, 8], [60.0, 10.0], [0.0, 20.0])
    found = simulate(smaller, CLUSTER, get_policy("srtf"), rates, preset=run_on).jobs
    assert found["completion_time"].tolist() == [30.0 + 40.0 + 30.0, 30.0]


def test_an_end_may_be_seen_late() -> None:
    result, _ = run(jobs([0.0, 5.0], [8, 8], [10.0, 10.0]), end_delay_seconds=1.0)
    assert result.jobs["completion_time"].tolist() == [11.0, 22.0]
    assert result.jobs["jct"].tolist() == [11.0, 17.0]


@pytest.mark.parametrize("pairs", [((2, 1.0), (1, 1.0)), ((1, -1.0),)])
def test_preemption_penalties_are_checked(pairs) -> None:
    with pytest.raises(InputError, match="preemption_penalty_by_gpus"):
        preset("default").replace(preemption_penalty_by_gpus=pairs)
