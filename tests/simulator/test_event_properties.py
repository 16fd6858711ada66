"""What holds for every run under a policy that decides at events."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from allocator.cluster import Cluster
from allocator.simulator import preset, simulate
from tests.simulator.event_policies import OrderPolicy
from tests.simulator.worlds import worlds
from throughputs import Trace


def plain_run(trace: Trace, cluster: Cluster, rates: np.ndarray) -> np.ndarray:
    """Completion times under shortest remaining time first, by a loop of its own."""
    left, done, clock = trace.total_steps.copy(), np.full(len(trace), np.nan), 0.0
    can_run = ((rates > 0) & (trace.scale_factor[:, None] <= cluster.capacity)).any(axis=1)
    rates = np.where(trace.scale_factor[:, None] <= cluster.capacity, rates, 0.0)
    while True:
        there = np.flatnonzero(can_run & (trace.arrival_time <= clock) & np.isnan(done))
        later = trace.arrival_time[can_run & (trace.arrival_time > clock)]
        if not len(there) and not len(later):
            return done
        free, speed = cluster.capacity.copy(), np.zeros(len(trace))
        for i in sorted(there.tolist(), key=lambda i: (left[i] / rates[i].max(), i)):
            fits = [j for j in np.argsort(-rates[i], kind="stable") if rates[i, j] > 0]
            j = next((j for j in fits if trace.scale_factor[i] <= free[j]), None)
            if j is not None:
                free[j] -= trace.scale_factor[i]
                speed[i] = rates[i, j]
        runs = np.flatnonzero(speed)
        ends = clock + left[runs] / speed[runs]
        until = min(float(ends.min(initial=np.inf)), float(later.min(initial=np.inf)))
        left[runs] -= speed[runs] * (until - clock)
        through = runs[ends <= until * (1 + 1e-12)]
        done[through], clock = until, until


@settings(max_examples=150, deadline=None)
@given(world=worlds(), placement=st.sampled_from(["consolidated", "in_order"]))
def test_every_run_keeps_the_rules(world: tuple[Trace, Cluster, np.ndarray], placement: str) -> None:
    trace, cluster, rates = world
    result = simulate(trace, cluster, OrderPolicy(), rates, preset=preset("default").replace(placement=placement))
    jobs, rows = result.jobs, result.rounds
    expected = plain_run(trace, cluster, rates)
    np.testing.assert_allclose(jobs["completion_time"], expected, rtol=1e-6)
    assert (jobs["status"] == np.where(np.isnan(expected), "unserved", "completed")).all()
    # Work is conserved.
    steps = np.bincount(rows["job_id"], rows["steps"], len(trace))
    np.testing.assert_allclose(steps, np.where(np.isnan(expected), 0.0, trace.total_steps), rtol=1e-9)
    # No GPU twice; each lease has as many as its gang, of its type.
    busy: dict[int, list[tuple[float, float]]] = {}
    types = rows["accelerator"].cat.codes.to_numpy()
    for job, j, ids, start, end in zip(
        rows["job_id"], types, rows["gpus"], rows["start_time"], rows["end_time"], strict=True
    ):
        gpus = [int(gpu) for gpu in ids.split()]
        assert len(set(gpus)) == len(gpus) == trace.scale_factor[job]
        first = int(cluster.first_gpu[j])
        assert all(first <= gpu < first + cluster.capacity[j] for gpu in gpus)
        for gpu in gpus:
            busy.setdefault(gpu, []).append((start, end))
    for spans in busy.values():
        spans.sort()
        assert all(end <= start for (_, end), (start, _) in pairwise(spans))
    assert 0 <= result.utilization <= 1 + 1e-9
    assert (result.timeline["busy_gpus"] <= cluster.total_gpus).all()
