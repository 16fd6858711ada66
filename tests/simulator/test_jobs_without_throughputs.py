"""Jobs that no throughput table names: they go at the rate that their trace states, on types that are all alike."""

from __future__ import annotations

import pytest

import allocator
from allocator import Cluster, get_policy
from allocator.presets import preset
from throughputs import InputError, ThroughputTable, Trace, default_table
from throughputs.trace import allowed_types

SECONDS = [600.0, 1200.0, 300.0, 900.0]


def logged(partition=None, job_type="job"):
    """Four jobs as an imported log has them: steps are seconds."""
    return Trace([job_type] * 4, [1, 2, 4, 1], SECONDS, [0.0] * 4, duration=SECONDS, partition=partition)


def completion_times(trace, cluster, policy="fifo", throughputs=None, **more):
    result = allocator.simulate(trace, Cluster.parse(cluster), get_policy(policy), throughputs, **more)
    return result.jobs["jct"].to_numpy()


def test_types_of_known_speeds_need_a_job_type_that_is_known():
    with pytest.raises(InputError, match=r"trace: field 'job_type of job 0': found 'job', .*gang_rates=duration"):
        completion_times(logged(), "v100:8,k80:8")
    with pytest.raises(InputError, match=r"trace: field 'job_type of job 1': found 'zzz', expected a job type of the"):
        completion_times(Trace(["A3C", "zzz"], [1, 1], [9.0, 9.0], [0.0, 0.0]), "v100:8")
    alike = preset("default").replace(gang_rates="duration")
    assert (completion_times(logged(), "v100:8,k80:8", preset=alike) > 0).all()
    with pytest.raises(InputError, match=r"found 'a100', expected .*one of v100, p100, k80"):
        completion_times(logged(job_type="A3C").take(slice(1)), "a100:8")


def test_known_jobs_beside_them_keep_their_rates():
    table = default_table()
    both = Trace(["A3C", "job"], [1, 1], [7000.0, 600.0], [0.0, 0.0], duration=[1.0, 600.0])
    found = completion_times(both, "v100:2", "shockwave", preset=preset("default").replace(round_seconds=60))
    rate = table.rates(["A3C"], [1], ["v100"])[0, 0]
    assert found.tolist() == pytest.approx([7000.0 / rate, 600.0])
    with pytest.raises(InputError, match=r"trace: field 'job_type of job 1': found 'job', .*for a policy that packs"):
        completion_times(both, "v100:2", "max_min_fairness_packed")


def test_partitions_hold_in_known_tables_and_under_packing():
    table = ThroughputTable([("m", 1)], ["fast", "slow"], [[2.0, 1.0]])
    trace = Trace(["m", "m"], [1, 1], [100.0, 100.0], [0.0, 0.0], partition=["slow", "fast"])
    ideal = preset("default").replace(ideal=True)
    assert completion_times(trace, "fast:2,slow:2", "fifo_perf", table, preset=ideal).tolist() == [100.0, 50.0]
    three = Trace(["A3C"] * 3, [1] * 3, [50_000.0] * 3, [0.0] * 3, partition=["k80", "v100", "v100"])
    for policy in ("max_min_fairness_packed", "gandiva", "lucid"):
        result = allocator.simulate(three, Cluster.parse("v100:1,k80:1"), get_policy(policy))
        assert (result.jobs["status"] == "completed").all()
        ran = result.rounds.groupby("job_id", observed=True)["accelerator"].agg(set)
        assert ran.tolist() == [{"k80"}, {"v100"}, {"v100"}]


def test_a_job_that_names_several_types_runs_on_any_of_them():
    trace = Trace(
        ["job"] * 4,
        scale_factor=[1] * 4,
        total_steps=[3600.0] * 4,
        arrival_time=[0.0] * 4,
        duration=[3600.0] * 4,
        partition=["a|b", "c", "", "elsewhere|b"],
    )
    allowed = allowed_types(trace.gpu_type, trace.partition, ("a", "b", "c"))
    assert allowed.tolist() == [
        [True, True, False],
        [False, False, True],
        [True, True, True],
        [False, True, False],
    ]
    result = allocator.simulate(trace, "a:1,b:1,c:1", get_policy("max_min_fairness"))
    ran = result.rounds.groupby("job_id")["accelerator"].agg(set)
    assert ran[0] <= {"a", "b"}
    assert (ran[1], ran[3]) == ({"c"}, {"b"})
    assert allowed_types(trace.gpu_type, trace.partition, ("x", "y")) is None
