"""Whole runs of Tiresias, Gandiva and Themis: nobody starves, nothing depends on chance, interrupted runs go on."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st

from allocator import Cluster, get_policy, simulate
from allocator.presets import preset
from tests.policies.time_sharing.runs import traces
from tests.simulator.test_checkpoints import CrashError, StopAt, assert_same
from tests.simulator.worlds import make_trace

NAMES = ("tiresias", "gandiva_time_slicing", "themis")


def run(name, world, *, published=False, **more):
    trace, cluster, rates = world
    made = preset("elasticflow").make_policy(name, cluster) if published else get_policy(name)
    chosen = preset("default").replace(slot_seconds=60.0 if published else 0.0)
    return simulate(trace, cluster, made, rates, preset=chosen, **more)


def ten_jobs():
    rng, n = np.random.default_rng(5), 10
    steps, sizes = rng.uniform(300, 2000, n).tolist(), rng.choice([1, 1, 2, 4], n).tolist()
    trace = make_trace(steps, sizes, np.cumsum(rng.uniform(0, 200, n)).tolist())
    return trace, Cluster({"a100": 8}, {"a100": 4}), rng.uniform(0.5, 2.0, (n, 1))


@examples(max_examples=6)
@given(world=traces(), published=st.booleans())
@pytest.mark.parametrize("name", NAMES)
def test_every_job_completes_within_the_cluster_and_twice_alike(name, world, published):
    result = run(name, world, published=published)
    assert (result.jobs["status"] == "completed").all()
    trace, cluster, rates = world
    spent = (trace.total_steps / rates[:, 0] * trace.scale_factor).sum()
    assert spent <= result.makespan * cluster.total_gpus * (1 + 1e-9)
    again = run(name, world, published=published)
    assert again.jobs["completion_time"].tolist() == result.jobs["completion_time"].tolist()
    assert again.policy_calls == result.policy_calls


@pytest.mark.parametrize("published", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_a_resumed_run_is_the_run(name, published, tmp_path):
    world, kept = ten_jobs(), {"published": published, "checkpoint": tmp_path / "run.checkpoint"}
    whole = run(name, world, published=published)
    with pytest.raises(CrashError):
        run(name, world, **kept, checkpoint_every=5, observers=[StopAt(len(whole.timeline) // 2)])
    assert kept["checkpoint"].exists()
    assert_same(run(name, world, **kept, resume=True), whole)
