"""What holds for every run on random traces, whatever carries it out."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allocator.presets import Preset, preset
from allocator.registry import get_policy
from allocator.simulator import simulate
from tests.simulator.event_policies import order
from tests.simulator.packed_worlds import PairPolicy, packed_worlds, random_shares
from tests.simulator.worlds import SharesPolicy, equal_shares, worlds

IDEAL = Preset().replace(ideal=True)
KINDS = {
    "default": Preset(),
    "gavel": preset("gavel"),
    "ideal": IDEAL,
    "order": Preset(),
    "order, by id": Preset().replace(placement="in_order"),
}


def shortest_first(trace, cluster, rates):
    """Completion times under shortest remaining time first, by a loop of its own."""
    left, done, clock = trace.total_steps.copy(), np.full(len(trace), np.nan), 0.0
    rates = np.where(trace.scale_factor[:, None] <= cluster.capacity, rates, 0.0)
    can_run = (rates > 0).any(axis=1)
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
        done[runs[ends <= until * (1 + 1e-12)]], clock = until, until


def check_gpus(rows, cluster, sizes):
    """As many as the gang has, of its type, and none has two jobs at a time."""
    busy = {}
    columns = (rows["job_id"], rows["accelerator"].cat.codes, rows["gpus"], rows["start_time"], rows["end_time"])
    for job, j, ids, start, end in zip(*columns, strict=True):
        gpus = [gpu - int(cluster.first_gpu[j]) for gpu in ids]
        assert len(set(gpus)) == len(gpus) == sizes[job]
        assert 0 <= min(gpus) <= max(gpus) < cluster.capacity[j]
        for gpu in gpus:
            busy.setdefault((j, gpu), []).append((start, end))
    for spans in busy.values():
        assert all(end <= start for (_, end), (start, _) in pairwise(sorted(spans)))


@settings(max_examples=25)
@given(world=worlds(), kind=st.sampled_from(sorted(KINDS)), aware=st.booleans())
def test_every_run_keeps_the_rules(world, kind, aware):
    trace, cluster, rates = world
    at_events = kind.startswith("order")
    policy = order() if at_events else SharesPolicy(equal_shares, heterogeneity_aware=aware)
    result = simulate(trace, cluster, policy, rates, preset=KINDS[kind])
    jobs, rows, timeline = result.jobs, result.rounds, result.timeline
    can_run = (rates > 0) & (trace.scale_factor[:, None] <= cluster.capacity)
    runs = can_run.any(axis=1)

    # who can run completes with exactly its steps, no sooner than at full speed from its arrival on
    assert (jobs["status"] == np.where(runs, "completed", "unserved")).all()
    assert np.bincount(rows["job_id"], rows["steps"], len(trace)) == pytest.approx(trace.total_steps * runs, rel=1e-9)
    least = trace.total_steps[runs] / np.where(can_run, rates, 0.0).max(axis=1, initial=0)[runs]
    assert (jobs["jct"][runs] >= least * (1 - 1e-9)).all()
    assert (jobs["start_time"][runs] >= jobs["arrival_time"][runs]).all()
    assert (rates[rows["job_id"], rows["accelerator"].cat.codes] > 0).all()

    assert (timeline["start_time"].to_numpy()[1:] >= timeline["end_time"].to_numpy()[:-1]).all()
    assert (timeline["running_jobs"] + timeline["queued_jobs"] == timeline["active_jobs"]).all()
    assert (timeline["busy_gpus"] <= cluster.total_gpus * (1 + 1e-9)).all()
    assert 0 <= result.utilization <= 1 + 1e-9
    taken = trace.scale_factor[rows["job_id"]] * (rows["share"] if kind == "ideal" else 1.0)
    assert jobs["gpu_seconds"].sum() == pytest.approx((taken * (rows["end_time"] - rows["start_time"])).sum())
    np.testing.assert_allclose((jobs["running_time"] + jobs["queueing_time"])[runs], jobs["jct"][runs], rtol=1e-9)

    if kind == "ideal":
        used = taken.groupby([rows["round"], rows["accelerator"]], observed=True).sum()
        assert (used <= cluster.capacity[used.index.get_level_values(1).codes] + 1e-9).all()
        assert (rows.groupby(["round", "job_id"])["share"].sum() <= 1 + 1e-9).all()
        return
    check_gpus(rows, cluster, trace.scale_factor)
    if at_events:
        np.testing.assert_allclose(jobs["completion_time"], shortest_first(trace, cluster, rates), rtol=1e-6)
    if kind == "default":
        nobody_waits_beside_gpus(result, trace, cluster, rates)
        assert lease_counts(result) == (result.summary()["lease_extensions"], result.summary()["lease_opportunities"])


def nobody_waits_beside_gpus(result, trace, cluster, rates):
    for start, rows in result.rounds.groupby("start_time"):
        types = rows["accelerator"].cat.codes
        free = cluster.capacity - np.bincount(types, trace.scale_factor[rows["job_id"]], len(cluster.capacity))
        waits = (trace.arrival_time <= start) & ~(result.jobs["completion_time"].to_numpy() <= start)
        waits[rows["job_id"]] = False
        assert not ((rates > 0) & (trace.scale_factor[:, None] <= free))[waits].any()


def lease_counts(result):
    """How often a job that was there before had the same GPUs again, and how often it might have had."""
    held, kept, chances = {}, 0, 0
    completed = result.jobs["completion_time"]
    for _, rows in result.rounds.groupby("round"):
        now = dict(zip(rows["job_id"], rows["gpus"], strict=True))
        chances += len(held)
        kept += sum(now.get(job) == gpus for job, gpus in held.items())
        ends = zip(rows["job_id"], rows["end_time"], strict=True)
        held = {job: now[job] for job, end in ends if completed[job] != end}
    return kept, chances


@settings(max_examples=15)
@given(world=worlds())
def test_isolated_shares_give_isolated_times(world):
    trace, cluster, rates = world
    jobs = simulate(trace, cluster, get_policy("isolated"), rates, preset=IDEAL).jobs
    served = jobs[jobs["status"] == "completed"]
    # where a gang fits every type, the closed form of finish-time fairness knows the run beforehand
    if len(served) and (trace.scale_factor[:, None] <= cluster.capacity).all():
        assert served["jct"].to_numpy() == pytest.approx(served["isolated_jct"].to_numpy(), rel=1e-6)


@settings(max_examples=15)
@given(world=packed_worlds(), seed=st.integers(0, 1000), kind=st.sampled_from(["default", "gavel", "ideal"]))
def test_every_run_of_pairs_keeps_the_rules(world, seed, kind):
    trace, cluster, columns = world

    def decide(state):
        shares, pairs = random_shares(seed)(state)
        if kind == "ideal":  # without rounds a job needs a share to get on
            shares = shares / 2 + 1 / (2 * state.n_jobs * state.scale_factors[:, None]) * (state.rates > 0) / 4
            pairs = {key: share / 4 for key, share in pairs.items()}
        return shares, pairs

    result = simulate(trace, cluster, PairPolicy(decide), columns, preset=KINDS[kind], seed=seed)
    jobs, rows, record = result.jobs, result.rounds, result.record
    runs = ((columns.rates > 0) & (columns.scale_factors[:, None] <= cluster.capacity)).any(axis=1)
    assert (jobs["status"] == np.where(runs, "completed", "unserved")).all()
    assert np.bincount(rows["job_id"], rows["steps"], len(trace)) == pytest.approx(trace.total_steps * runs, rel=1e-9)
    busy = np.zeros((len(record.outcomes), len(cluster.capacity)))
    np.add.at(busy, (record.row_round, record.row_accelerator), record.row_gpus)
    assert (busy <= cluster.capacity + 1e-9).all()
    assert 0 <= result.utilization <= 1 + 1e-9
    assert jobs["gpu_seconds"].sum() == pytest.approx(record.row_gpu_seconds.sum())
    if not record.packed:
        return
    alone, shared = rows[rows["partner"].isna()], rows[rows["partner"].notna()]
    names = ["round", "job_id", "partner", "accelerator"] + ([] if record.fluid else ["gpus"])
    mirrored = set(zip(*(shared[name] for name in names), strict=True))
    assert {(rnd, partner, job, *more) for rnd, job, partner, *more in mirrored} == mirrored
    if kind == "default":
        one_row = pd.concat([alone, shared[shared["job_id"] < shared["partner"]]])
        check_gpus(one_row.assign(end_time=one_row["start_time"]), cluster, trace.scale_factor)
        assert not one_row.assign(gpu=one_row["gpus"]).explode("gpu").duplicated(["round", "gpu"]).any()
