"""Runs that cannot be: what is told names the field, the value, and the jobs that stand still."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
import pytest

from allocator.cluster import Cluster
from allocator.presets import Preset
from allocator.registry import get_policy
from allocator.simulator import SimulationStalledError, simulate
from tests.simulator.cases import rows, run, world_of
from tests.simulator.worlds import make_trace
from throughputs import InputError, PackedColumns, ThroughputTable, Trace, default_table, gavel_trace, write_table

STALLS = """
nobody has a share | 1 1 | | shares! 0/0 | max_rounds_without_progress=7 |
    policy shares.* 7 rounds .* 2 active jobs: 0, 1
nobody has a share without rounds | 1 | | shares 0 | ideal=true | no job made progress
slower than a step | 10/0.001 | | | whole_steps=true | 1 active jobs: 0
nobody is asked again | 100 10 10 40:500 | v100:2 | line_at_arrivals | | 1 active jobs: 3
starts of 20 s in turns of 10 s | 30 30 | | turns 0 5 0 5 1 5 1 5 | restart_penalty_seconds=20 | 990 s;
    2 active jobs: 0, 1
starts that take all of a round | 3600 3600 | | | preset=usual restart_penalty_seconds=400 | 35640 s, .*round_seconds.*;
    2 active jobs: 0, 1
"""

REFUSED = """
a share that is none | 1 | | shares nan | | share of job 0 on 'v100'
rates of another shape | 1/1,2 | | | | shape
a rate below 0 | 1/-1 | | | | rate of job 0 on 'v100'
an empty window | 1 1 | | | window=1:1 | window
a window before the first | 1 1 | | | window=-1:2 | window
a window beyond the last | 1 1 | | | window=0:3 | window
a start that no round has room for | 300 300 | | | round_seconds=100 restart_penalty_seconds=100 |
    restart_penalty_seconds.*100.0.*round_seconds
due beyond all time | 1@slo=1000000000000@duration=9 | | | | slo of job 0
no duration | 1x2 | v100:8 | | gang_rates=duration | duration of job 0
"""

SETTINGS = """
round_seconds=0 | max_waiting_jobs=-1 | max_clock_seconds=-1 | ideal=yes | restart_penalty_seconds=-1
batch_size_adaptation=sometimes | overtime_factor=-.5 | finished_jobs_linger_rounds=-1 | deadline_measure=loosest
hysteresis_rounds=-1 | share_decimals=0 discipline=sia | max_overdraft_rounds=-1 | decide_every_seconds=0
placement=worst | preemption_penalty_by_gpus=2:1,1:1 | preemption_penalty_by_gpus=1:-1
restart_penalty_by_gpus=4:1,4:2 | slot_seconds=.5 ends=slot | slot_seconds=.5 overhead_restart_decisions=slot
max_zero_step_rounds=0 | goodput_columns=some | goodput_in_rounds=some | goodput_slowdown=net:0
goodput_slowdown=net:1,net:2 | goodput_most_gpus_of_model=net:0 | restart_penalty_by_job_type=net:-1
goodput_batch_size_of_model=net:0 | recompute_interval_seconds=-1 | round_seconds=1e20
"""


@pytest.mark.parametrize(("jobs", "cluster", "policy", "settings", "told"), rows(STALLS))
def test_a_standstill_is_told(jobs, cluster, policy, settings, told):
    with pytest.raises(SimulationStalledError, match=told):
        run(jobs, cluster, policy, settings)


def test_rates_by_job_type_are_those_of_the_types_of_the_jobs(tmp_path):
    """Whatever their order, as a frame and in a file; rows that are numbered are those of the jobs in order."""
    trace, types = Trace(["bert", "resnet"], [1, 1], [100.0, 100.0], [0.0, 0.0]), ["resnet", "bert"]
    frame = pd.DataFrame({"v100": [4.0, 1.0]}, index=types)
    tidy = pd.DataFrame({"job_type": types, "scale_factor": 1, "accelerator": "v100", "throughput": [4.0, 1.0]})
    write_table(ThroughputTable.from_frame(tidy), tmp_path / "speeds.csv")
    chosen = Preset().replace(restart_penalty_seconds=0.0)
    for given, ends in (
        (frame, [100.0, 25.0]),
        (tmp_path / "speeds.csv", [100.0, 25.0]),
        ({"v100": [4, 1]}, [25, 100]),
    ):
        jobs = simulate(trace, "v100:2", "srtf", given, preset=chosen).jobs
        assert jobs["completion_time"].tolist() == ends
    for given, told in ((frame[:1], "index.*bert"), (tidy, "job_type.*from_frame")):
        with pytest.raises(InputError, match=told):
            simulate(trace, "v100:2", "srtf", given)


@pytest.mark.parametrize(("jobs", "cluster", "policy", "settings", "told"), rows(REFUSED))
def test_what_cannot_be_is_refused(jobs, cluster, policy, settings, told):
    with pytest.raises(InputError, match=told):
        run(jobs, cluster, policy, settings)


@pytest.mark.parametrize("settings", re.split(r" \| |\n", SETTINGS.strip()))
def test_a_setting_out_of_its_range_is_named(settings):
    with pytest.raises(InputError, match=settings.partition("=")[0]):
        world_of(settings)


TWO = PackedColumns([0, 1], [[1.0], [2.0]], [[[0.0], [0.8]], [[1.2], [0.0]]], accelerators=["v100"])


@pytest.mark.parametrize(
    ("trace", "throughputs", "options", "told"),
    [
        (gavel_trace(3, 0.0), default_table(), {"policy": "max_min_fairness_packed"}, "with_colocation"),
        (make_trace([1.0] * 3), TWO, {"policy": "max_min_fairness_packed"}, "the 3 jobs of the trace"),
        (make_trace([1.0] * 2), TWO, {"policy": "max_min_fairness_packed", "cluster": "k80:1"}, "types of the cluster"),
        (make_trace([1]), [[1.0]], {"prices": {"k80": 1.0}}, "v100"),
        (make_trace([1]), [[1.0]], {"prices": {"v100": np.nan}}, "v100"),
        (make_trace([1]), [[1.0]], {"prices": [3.0]}, "a price by accelerator type"),
        (make_trace([1, 1]), default_table(), {"extend": lambda n: make_trace([2] * n)}, "never end"),
        (make_trace([1]), [[1.0]], {"window": (0, 9), "extend": lambda n: make_trace([2] * n)}, "a throughput table"),
        (
            gavel_trace(3, 60.0),
            default_table(),
            {"window": (0, 9), "extend": lambda n: gavel_trace(n, 60.0, seed=1)},
            "the same jobs as before",
        ),
        (
            gavel_trace(3, 60.0),
            default_table(),
            {"window": (0, 9), "extend": lambda _: gavel_trace(3, 60.0)},
            "16 jobs",
        ),
    ],
)
def test_what_runs_are_made_of(trace, throughputs, options, told):
    given = {"cluster": "v100:1", "policy": "isolated"} | options
    with pytest.raises(InputError, match=told):
        simulate(trace, throughputs=throughputs, **(given | {"policy": get_policy(given["policy"])}))


def test_settings_of_the_world_go_with_policy_and_cluster():
    chosen = Preset(
        world_settings={"edf": {"slot_grid": True}},
        world_settings_by_gpus={1: {"slot_seconds": 1.0}, 8: {"slot_seconds": 2.0}},
    )
    small, large = Cluster({"a100": 4}), Cluster({"a100": 9})
    assert chosen.in_run("other", small).as_dict()["slot_seconds"] == 1.0
    other = chosen.in_run("edf", large).as_dict()
    assert (other["slot_seconds"], other["slot_grid"]) == (2.0, True)
    mine = chosen.replace(slot_seconds=5.0, slot_grid=False).in_run("edf", large).as_dict()
    assert (mine["slot_seconds"], mine["slot_grid"]) == (5.0, False)


def test_a_setting_of_another_world_is_refused_with_the_presets_that_have_it():
    with pytest.raises(InputError, match="preset default: late_jobs_wait is one of elasticflow"):
        Preset().replace(late_jobs_wait=True)
    with pytest.raises(InputError, match="did you mean 'slot_seconds'"):
        Preset().replace(slot_second=1.0)
