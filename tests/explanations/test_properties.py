"""On small random runs: lives without gaps, GPUs that add up, states as they were, changes that do let a job run."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allocator import Cluster, ClusterState, explain, get_policy
from allocator.explanations.explain import _Asker
from allocator.explanations.life import life_of
from allocator.explanations.occupancy import free_at, free_times
from allocator.explanations.redecide import comes_out_the_same, decided
from allocator.explanations.run import FinishedRun
from allocator.results.output import save_result
from tests.explanations.worlds import run_of, trace_of

PROGRAMS = ("max_min_fairness_perf", "finish_time_fairness_perf")
POLICIES = (*PROGRAMS, "isolated", "fifo", "fifo_perf", "srtf", "quotas")


@st.composite
def runs(draw: Any) -> Any:
    n = draw(st.integers(1, 5))
    types = draw(st.sampled_from([("v100",), ("v100", "k80")]))
    gpus = {name: draw(st.integers(1, 4)) for name in types}
    arrivals = np.cumsum([draw(st.sampled_from([0.0, 0.0, 50.0, 100.0, 333.0])) for _ in range(n)])
    trace = trace_of(
        [float(draw(st.integers(20, 900))) for _ in range(n)],
        [draw(st.sampled_from([1, 1, 2, 3])) for _ in range(n)],
        arrivals.tolist(),
        priority_weight=[draw(st.sampled_from([1.0, 2.0])) for _ in range(n)],
        entity=[draw(st.sampled_from(["a", "b"])) for _ in range(n)],
    )
    rates = np.array([[draw(st.sampled_from([0.0, 0.5, 1.0, 2.0])) for _ in types] for _ in range(n)])
    policy = draw(st.sampled_from(POLICIES))
    penalty = draw(st.sampled_from([0.0, 20.0]))
    return run_of(
        trace,
        Cluster(gpus, dict.fromkeys(types, 2)),
        policy,
        rates,
        entities={"a": 1, "b": 2},
        restart_penalty_seconds=penalty,
        hysteresis_rounds=draw(st.sampled_from([0.0, 4.0])),
    )


@settings(max_examples=18)
@given(runs())
def test_lives_waits_and_changes(result: Any) -> None:
    run, table = FinishedRun.of(result), result.jobs
    for job in range(len(table)):
        if table["status"][job] == "completed":
            check_life(run, table, job)
        for wait in explain(result, job, since=float(run.jobs.arrival_time[job])).waits:
            check_wait(run, wait)
            if wait.moment is not None and (run.jobs.rates[job] > 0).any():
                check_changes(run, job, wait)


def check_life(run: FinishedRun, table: Any, job: int) -> None:
    """Without gaps, and as in the table of jobs."""
    life = life_of(run, job)
    assert life[0].start == table["arrival_time"][job]
    assert life[-1].end == table["completion_time"][job]
    assert all(one.end == other.start for one, other in pairwise(life))
    spent = {kind: sum(p.seconds for p in life if p.kind == kind) for kind in ("waiting", "starting", "running")}
    assert spent["waiting"] == pytest.approx(table["queueing_time"][job], abs=1e-6)
    assert spent["starting"] + spent["running"] == pytest.approx(table["running_time"][job])
    # a start that is broken off at an event has cost all of it, and did not take it
    took, cost = spent["starting"] * run.jobs.scale_factor[job], table["restart_gpu_seconds"][job]
    assert took == pytest.approx(cost) if run.in_rounds else took <= cost * (1 + 1e-9)


def check_wait(run: FinishedRun, wait: Any) -> None:
    """Its time is divided among reasons, and GPUs among jobs."""
    bounds = [wait.start, *(stretch.end for stretch in wait.stretches)]
    assert [stretch.start for stretch in wait.stretches] == bounds[:-1]
    assert bounds[-1] == wait.end
    assert sum(wait.reasons.values()) == pytest.approx(wait.seconds)
    held = sum(holder.total_gpu_hours for holder in wait.holders)
    assert held + wait.free_gpu_hours == pytest.approx(wait.usable_gpu_hours, abs=1e-9)
    times = free_times(run, wait.start, wait.end)
    for k, start in enumerate(times.start.tolist()):
        free = free_at(run, start)
        there = [free[name].gpus for name in run.cluster.accelerators]
        assert times.free[k].tolist() == there
        # counted once more, GPU by GPU
        rows = run.rows.take((run.rows.start_time <= start) & (run.rows.until > start))
        ids = [gpu for places in rows.gpus for gpu in places]
        assert len(ids) == len(set(ids)) == run.cluster.total_gpus - sum(there)


def check_changes(run: FinishedRun, job: int, wait: Any) -> None:
    """The decision comes out the same, and otherwise with what is said to let the job run."""
    moment = wait.moment
    if moment.redecided is not True:
        # a program that is solved anew, without the prices of the decision before, may end elsewhere within
        # its tolerance, and what was written down is rounded; nothing is said of changes then
        assert (moment.redecided, moment.changes) == (False, ())
        return
    asker = _Asker(run)
    asker.look({job: (wait.start, wait.end)}, [moment.time])
    instant = asker.instant(moment.time)
    assert instant is not None
    for change in moment.changes:
        if change.kind == "gpus":
            tried = {gpus: _larger(run, change.accelerator, gpus) for gpus in (change.gpus, *change.tried)}
            runs = [gpus for gpus, cluster in tried.items() if job in decided(run, instant, cluster=cluster).jobs]
            assert runs == [change.gpus]
        elif change.kind == "job":
            assert job in decided(run, instant, without=change.job).jobs
    assert comes_out_the_same(run, instant)


def _larger(run: FinishedRun, name: str, gpus: int) -> Cluster:
    return Cluster(dict(run.cluster.gpus) | {name: run.cluster.gpus[name] + gpus}, run.cluster.gpus_per_server)


SEEN = ("steps_remaining", "elapsed_seconds", "priority_weights", "scale_factors", "rates", "isolated_seconds")


@pytest.mark.parametrize("name", ["srtf", "finish_time_fairness_perf"])
def test_what_the_policy_knew_is_what_it_had_been_told(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """States that are put together from the written run beside those that the policy was asked with."""
    policy = get_policy(name)
    asked: dict[float, dict[str, Any]] = {}
    method = "plan" if policy.answers == "plan" else "allocate"
    seen = SEEN if policy.answers == "shares" else SEEN[:-1]  # which a policy may read
    original = getattr(type(policy), method)

    def watching(self: Any, state: ClusterState, *more: Any) -> Any:
        asked[state.clock] = {column: np.array(getattr(state, column)) for column in seen}
        asked[state.clock]["jobs"] = np.array(state.throughputs.jobs)
        asked[state.clock]["current"] = np.array(state.current_accelerator)
        return original(self, state, *more)

    monkeypatch.setattr(type(policy), method, watching)
    trace = trace_of([400, 900, 300, 700, 200], [1, 2, 1, 2, 1], [0, 0, 130, 220, 450])
    rates = np.array([[1.0, 0.5], [2.0, 1.0], [1.0, 0.0], [1.5, 1.5], [0.0, 1.0]])
    result = run_of(trace, "v100:2,k80:1", policy, rates, restart_penalty_seconds=20.0, hysteresis_rounds=4.0)
    monkeypatch.undo()
    run = FinishedRun.of(result)
    compared = 0
    for clock, told in asked.items():
        asker = _Asker(run)
        asker.look({}, [clock])
        instant = asker.instant(clock)
        assert instant is not None
        running = instant.running.among(instant.active)
        state = instant.table.snapshot(instant.active, clock, run.cluster, policy.needs, running)
        assert state.throughputs.jobs == tuple(told["jobs"].tolist())
        assert state.current_accelerator.tolist() == told["current"].tolist()
        for column in seen:
            assert getattr(state, column) == pytest.approx(told[column], abs=1e-6), (clock, column)
        compared += 1
    assert compared >= 5


def test_a_folder_says_what_the_result_says(tmp_path: Any) -> None:
    trace = trace_of([400, 900, 300, 700, 200], [1, 2, 1, 2, 1], [0, 0, 130, 220, 450])
    result = run_of(trace, "v100:2,k80:1", "finish_time_fairness_perf", restart_penalty_seconds=20.0)
    save_result(result, tmp_path)
    for job in range(len(trace)):
        one, other = (explain(source, job).as_dict() for source in (result, tmp_path))
        assert (one.pop("run"), other.pop("run")) == ("finish_time_fairness_perf", str(tmp_path))
        assert one == other
