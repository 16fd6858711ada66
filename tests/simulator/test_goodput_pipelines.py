"""Jobs that train in pipelines, side by side, in the simulator: replicas of several GPUs, by accelerator type."""

from __future__ import annotations

import numpy as np
import pytest

import allocator
from allocator.presets import preset
from allocator.simulator.goodput.ledger import GoodputLedger
from allocator.simulator.goodput.rule import Goodput
from throughputs import Trace
from throughputs.goodput.profiles import read_profiles
from throughputs.goodput.trainings import trainings_of

# Eight stages on the slow type and two on the fast one, 48 micro-batches of one sample, batches of at most 384.
PROFILE = """
source = "a test"

[models.lm]
initial_batch_size = 48
largest_batch_size = 384
least_local_batch_size = 48
micro_batches = 48
initial_steps = 200
noise_scale = [1e9, 1e9]

[models.lm.types.slow]
stages = 8
largest_local_batch_size = 48
alpha_grad = 0.05
beta_grad = 0.05
alpha_node = 0.5
beta_node = 0.0
alpha_local = 0.3
beta_local = 0.0
gamma = 1.0

[models.lm.types.fast]
stages = 2
largest_local_batch_size = 48
alpha_grad = 0.1
beta_grad = 0.05
alpha_node = 0.02
beta_node = 0.001
alpha_local = 0.01
beta_local = 0.001
gamma = 1.0
"""

CLUSTER = allocator.Cluster({"slow": 24, "fast": 16}, gpus_per_server={"slow": 8, "fast": 8})
FREE = preset("default").replace(restart_penalty_seconds=0.0)


@pytest.fixture
def models(tmp_path):
    path = tmp_path / "models.toml"
    path.write_text(PROFILE)
    return trainings_of(read_profiles(path))


def trace(n, gpus=8):
    return Trace(["lm (batch size 48)"] * n, [gpus] * n, np.ones(n), np.zeros(n), category=["adaptive"] * n)


def test_columns_are_whole_replicas_up_to_the_largest_batch(models):
    """One copy on each type at first, worth its GPUs; twice as many as it has run with on any type afterwards."""
    training = models.find("lm")
    rules = Goodput(goodput_columns="powers")
    ledger = GoodputLedger([training], np.array([48.0]), np.array([8]), np.array([""], dtype=object), CLUSTER, rules)

    def columns():
        ways = ledger.configurations(np.array([0]), [0])
        return dict(zip(zip(ways.pool.tolist(), ways.gpus.tolist(), strict=True), ways.rate.tolist(), strict=True))

    assert columns() == {(0, 8): 8.0, (1, 2): 2.0}
    one = np.zeros(1, dtype=np.int64)
    assert [each.tolist() for each in ledger.batch_sizes(one, one, one + 2, one + 16)] == [[48.0], [0.0]]
    step, sync = training.step_time("slow", (8,), 48.0)
    ledger.observe(0, 0, 1, 8, 48.0, step, sync)
    ledger.observe_gradients(0, *training.statistics(48.0, 0))
    known = columns()
    assert set(known) == {(0, 8), (0, 16), (1, 2), (1, 4)}
    assert known[0, 8] == pytest.approx(1 / step, rel=0.01)
    fast = training.step_time("fast", (2,), 48.0)[0]
    assert known[1, 2] == pytest.approx(1 / fast, rel=0.01)
    for copies in (2, 4, 8):
        step, sync = training.step_time("fast", (2 * copies,), 48.0)
        ledger.observe(0, 1, 1, 2 * copies, 48.0, step, sync)
    known = columns()
    # eight copies are the largest batch
    assert max(gpus for pool, gpus in known if pool == 1) == 16
    assert known[1, 8] == pytest.approx(4 / training.step_time("fast", (8,), 48.0)[0], rel=0.02)


def test_one_copy_alone_takes_its_time(models):
    """Under Pollux on one type: the job grows from one copy to two as soon as it has run."""
    one = allocator.Cluster({"slow": 8}, gpus_per_server={"slow": 8})
    for name in ("pollux", "sia", "optimus"):
        result = allocator.simulate(trace(1), one, allocator.get_policy(name), models, preset=FREE)
        assert result.jobs["jct"][0] == pytest.approx(200 * 3 * 55 * 0.1, rel=1e-6)
    three = allocator.Cluster({"slow": 24}, gpus_per_server={"slow": 8})
    faster = allocator.simulate(trace(1), three, allocator.get_policy("pollux"), models, preset=FREE)
    # a hundred steps with one copy, and from the second epoch on two of them
    assert faster.jobs["jct"][0] == pytest.approx(100 * 3 * 55 * 0.1 + 50 * (3 * 55 * 0.1 + 0.5), rel=1e-6)
