"""Runs that begin in the middle: who runs keeps GPUs and progress, and pays for no start."""

from __future__ import annotations

import dataclasses

import pytest

from allocator.cluster import Cluster
from allocator.experiments.run import Run
from allocator.presets import preset
from allocator.simulator import simulate
from allocator.simulator.rules.already import RunsAlready
from throughputs import InputError, Trace

TWO_SERVERS = Cluster({"v100": 4}, {"v100": 2})
STARTS = {"restart_penalty_seconds": 30.0, "restart_when_moved": True, "restart_delays": True}
START = "job_id,gpus,steps_done\n1,2 3,400\n2,1,\n"


def simulated(policy: str, running=((1, (2, 3), 400.0), (2, (1,), 0.0)), settings=None, cluster=TWO_SERVERS):
    trace = Trace(["a"] * 4, [1, 2, 1, 1], [1000.0] * 4, [0.0, 0.0, 0.0, 100.0])
    chosen = preset("default").replace(**(STARTS | (settings or {}))).with_rules(RunsAlready(running))
    return simulate(trace, cluster, policy, [[1.0]] * 4, preset=chosen)


@pytest.mark.parametrize("policy", ["fcfs", "srtf"])
def test_between_events_who_runs_goes_on_where_it_is(policy):
    """The first job takes the last GPU at once, after a start of 30 s; the newcomer waits for the gang."""
    result = simulated(policy)
    assert result.jobs["completion_time"].tolist() == [1030.0, 600.0, 1000.0, 600.0 + 30.0 + 1000.0]
    first = result.rounds.drop_duplicates("job_id").set_index("job_id")
    assert first.loc[[1, 2], "start_time"].tolist() == [0.0, 0.0]
    assert result.jobs["preemptions"].tolist() == [0] * 4


def test_in_rounds_too():
    result = simulated("fifo", settings={"round_seconds": 100.0})
    jobs = result.jobs
    assert len(result.timeline) == result.rounds["round"].nunique()
    assert jobs["completion_time"].tolist()[:3] == [1030.0, 600.0, 1000.0]


def test_a_policy_may_take_their_gpus_away():
    """Least attained service knows of no GPU time before the run; who is not first starts anew later."""
    running = ((0, (0,), 100.0), (2, (1,), 0.0))
    jobs = simulated("srtf", running, cluster=Cluster({"v100": 2})).jobs
    # the gang of two has as much to do as the third, whose id is behind its own
    assert jobs["completion_time"][0] == 900.0


def test_a_run_reads_them_from_a_file(tmp_path):
    path = tmp_path / "start.csv"
    path.write_text(START)
    assert RunsAlready.read(path).running == ((1, (2, 3), 400.0), (2, (1,), 0.0))
    trace = Trace(["LM (batch size 20)"] * 3, [1, 2, 1], [1e5] * 3, [0.0] * 3)
    run = Run("trace", "fcfs", "v100:4", workload=trace)
    started = dataclasses.replace(run, start=str(path))
    assert started.key != run.key
    ends, before = (each.result().jobs["completion_time"] for each in (started, run))
    assert (ends[:2] < before[:2]).tolist() == [False, True]


@pytest.mark.parametrize(
    ("running", "named"),
    [
        (((9, (0,), 0.0),), "job 9"),
        (((0, (0,), 0.0), (0, (1,), 0.0)), "each once"),
        (((3, (0,), 0.0),), "arrives at 100 s"),
        (((0, (4,), 0.0),), "below 4"),
        (((0, (), 0.0),), "no GPUs"),
        (((0, (-1,), 0.0),), "-1"),
        (((1, (3, 2), 0.0),), "ascending"),
        (((0, (1,), 0.0), (2, (1,), 0.0)), "no other job"),
        (((1, (1,), 0.0),), "gang"),
        (((0, (1,), 1000.0),), "1000"),
    ],
)
def test_what_cannot_be_is_refused(running, named):
    with pytest.raises(InputError, match="start") as refused:
        simulated("fcfs", running)
    assert named in str(refused.value)


@pytest.mark.parametrize(
    ("row", "field"), [("0,a,0", "gpus"), ("0,1 1,0", "gpus"), ("-1,0,0", "job_id"), ("0,0,-1", "steps_done")]
)
def test_files_name_what_is_wrong(tmp_path, row, field):
    path = tmp_path / "start.csv"
    path.write_text(f"job_id,gpus,steps_done\n{row}\n")
    with pytest.raises(InputError, match=f":2: field {field!r}"):
        RunsAlready.read(path)


def test_shares_of_all_gpus_are_on_none():
    with pytest.raises(InputError, match="ideal"):
        simulated("max_min_fairness", settings={"ideal": True})
