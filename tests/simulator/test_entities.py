"""Entities in a simulation: who is served when, the table of results, traces, checkpoints, longer traces."""

from __future__ import annotations

import json

import numpy as np
import pytest

from allocator import Cluster, InputError, get_policy, simulate
from allocator.presets import preset
from allocator.protocol.entities import Entities
from allocator.protocol.jobs import JobTable
from allocator.results.output import save_result
from tests.simulator.worlds import SharesPolicy
from throughputs import Trace, read_trace, write_trace

POLICY = "max_min_fairness_water_filling_perf"
QUEUE = {"queue": {"policy": "fifo"}, "team": 2, "inner": {"parent": "team"}}


def trace_of(entity, steps=None, arrivals=None):
    n = len(entity)
    return Trace(
        ["job"] * n, [1] * n, steps or [3600.0] * n, arrivals or [0.0] * n, entity=entity, source="jobs for teams"
    )


def ideal(trace, gpus, entities=None, policy=POLICY, **options):
    rates = np.ones((len(trace), 1))
    world = preset("default").replace(ideal=True)
    return simulate(
        trace, Cluster({"v100": gpus}), get_policy(policy), rates, preset=world, entities=entities, **options
    )


def test_a_queue_is_served_in_the_order_of_the_trace():
    """Two entities of equal weight, one GPU: the jobs of the queue one after the other, those of the pair together."""
    result = ideal(trace_of(["queue", "pair", "queue", "pair"]), 1, {"queue": {"policy": "fifo"}, "pair": 1})
    done = result.jobs["completion_time"].to_numpy()
    # until 7200 s one job of the queue is done, and half of each of the pair
    np.testing.assert_allclose(done, [7200, 14400, 14400, 14400], rtol=1e-6)
    assert result.jobs["entity"].tolist() == ["queue", "pair", "queue", "pair"]


def test_weights_shift_the_gpus():
    result = ideal(trace_of(["light", "heavy"], steps=[1000.0, 3000.0]), 1, {"light": 1, "heavy": 3})
    np.testing.assert_allclose(result.jobs["completion_time"], [4000, 4000], rtol=1e-6)
    table = result.entities.set_index("entity")
    np.testing.assert_allclose(table["throughput_share"], [0.25, 0.75], rtol=1e-6)
    np.testing.assert_allclose(table["gpu_share"], [0.25, 0.75], rtol=1e-6)


def test_the_table_counts_what_is_inside():
    result = ideal(trace_of(["queue", "inner", "team", "", "inner"]), 3, QUEUE)
    table = result.entities
    assert table["entity"].tolist() == ["queue", "team", "inner", ""]
    assert table["parent"].tolist() == ["", "", "team", ""]
    assert table["jobs"].tolist() == [1, 3, 2, 1]
    assert table["policy"].tolist() == ["fifo", "fairness", "fairness", ""]
    jobs = result.jobs
    of_team = jobs[jobs["entity"].isin(["team", "inner"])]
    row = table.set_index("entity").loc["team"]
    assert row["average_jct"] == pytest.approx(of_team["jct"].mean())
    assert row["gpu_share"] == pytest.approx(of_team["gpu_seconds"].sum() / jobs["gpu_seconds"].sum())
    at_top = table["parent"] == ""
    assert table[at_top & (table["entity"] != "inner")]["throughput_share"].sum() == pytest.approx(1.0)
    assert result.settings["entities"]["inner"] == {"weight": 1.0, "policy": "fairness", "parent": "team"}


def test_without_entities_there_is_no_table():
    result = ideal(trace_of(["queue", "team"]), 1)
    assert len(result.entities) == 0
    assert "entity" not in result.jobs
    assert "by_entity" not in result.summary()


def test_an_unknown_entity_is_refused():
    with pytest.raises(InputError, match=r"jobs for teams:2: field 'entity': found 'quue'.*did you mean 'queue'"):
        ideal(trace_of(["queue", "quue"]), 1, QUEUE)


def test_other_policies_run_as_if_there_were_none():
    trace = trace_of(["queue", "inner", "team", "", "inner"])
    with_entities, without = (ideal(trace, 2, e, "max_min_fairness_perf") for e in (QUEUE, None))
    np.testing.assert_array_equal(with_entities.jobs["completion_time"], without.jobs["completion_time"])
    assert len(with_entities.entities) == 4


def test_rounds_see_the_active_jobs_only():
    """What the policy is told in rounds: entity and rank of the jobs that are there, in the order of their ids."""
    told = []
    policy = SharesPolicy()
    trace = trace_of(["queue", "", "inner", "team"], steps=[300.0, 4000.0, 4000.0, 4000.0], arrivals=[0, 0, 0, 3000])
    simulate(trace, Cluster({"v100": 4}), policy, np.ones((4, 1)), entities=QUEUE)
    known = Entities.parse(QUEUE)
    for state in policy.states:
        assert state.membership.arrival_rank.tolist() == list(state.throughputs.jobs)
        names = ["" if i < 0 else known.names[i] for i in state.membership.of_job]
        told.append(names)
        assert names == [trace.entity[job] for job in state.throughputs.jobs]
    assert told[0] == ["queue", "", "inner"]
    assert ["", "inner", "team"] in told


def test_results_are_written(tmp_path):
    summary = save_result(ideal(trace_of(["queue", "inner", ""]), 2, QUEUE), tmp_path)
    text = (tmp_path / "entities.csv").read_text()
    assert text.splitlines()[0].startswith("entity,parent,weight,policy,jobs")
    stored = json.loads((tmp_path / "summary.json").read_text())
    assert [row["entity"] for row in stored["by_entity"]] == ["queue", "team", "inner", ""]
    assert stored["by_entity"][-1]["weight"] is None
    assert stored["by_entity"] == summary["by_entity"]
    save_result(ideal(trace_of(["queue", "inner", ""]), 2), tmp_path)
    assert not (tmp_path / "entities.csv").exists()


def test_a_window_measures_its_jobs():
    result = ideal(trace_of(["queue"] * 3 + ["team"] * 3), 2, QUEUE, window=(1, 4))
    assert result.entities["jobs"].tolist() == [2, 1, 0]
    assert result.entities["average_jct"].isna().tolist() == [False, False, True]


def test_a_checkpoint_of_other_entities_is_refused(tmp_path):
    class StopError(Exception):
        pass

    def stop(_clock, completed, _jobs):
        if completed >= 2:
            raise StopError

    trace = trace_of(["queue", "inner", "team", ""] * 2, arrivals=[600.0 * i for i in range(8)])
    options = {"checkpoint": tmp_path / "run", "checkpoint_every": 1}
    with pytest.raises(StopError):
        ideal(trace, 2, QUEUE, progress=stop, **options)
    with pytest.raises(InputError, match="entities"):
        ideal(trace, 2, {**QUEUE, "team": 3}, resume=True, **options)
    resumed, whole = ideal(trace, 2, QUEUE, resume=True, **options), ideal(trace, 2, QUEUE)
    np.testing.assert_array_equal(resumed.jobs["completion_time"], whole.jobs["completion_time"])
    assert resumed.entities.equals(whole.entities)


def test_a_job_table_grows_with_its_entities():
    known = Entities.parse(QUEUE)
    cluster = Cluster({"v100": 2})
    table = JobTable(trace_of(["queue", ""]), np.ones((2, 1)), cluster, entities=known)
    table.submit(JobTable(trace_of(["inner", "team"]), np.ones((2, 1)), cluster, entities=known))
    assert [known.names[i] if i >= 0 else "" for i in table.membership.of_job] == ["queue", "", "inner", "team"]
    assert table.membership.arrival_rank.tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("name", ["trace.csv", "trace.csv.gz", "trace.parquet"])
def test_traces_keep_entities(tmp_path, name):
    trace = trace_of(["queue", "", "a team"])
    write_trace(trace, tmp_path / name)
    assert read_trace(tmp_path / name).entity.tolist() == ["queue", "", "a team"]
    assert trace.head(2).entity.tolist() == ["queue", ""]


def test_text_formats_have_no_place_for_entities(tmp_path):
    trace = trace_of(["queue", ""])
    with pytest.raises(InputError, match="entity"):
        write_trace(trace, tmp_path / "jobs.trace")
    write_trace(trace, tmp_path / "jobs.trace", lossy=True)
    assert read_trace(tmp_path / "jobs.trace").entity.tolist() == ["", ""]
