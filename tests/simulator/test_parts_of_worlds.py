"""Parts of a simulated world, each by hand: what no run shows at once."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from allocator.cluster import Cluster
from allocator.presets import Preset
from allocator.protocol import Assignment, Need
from allocator.protocol.jobs import JobTable
from allocator.published.gavel.world import IdleTime
from allocator.registry import get_policy
from allocator.simulator import simulate
from allocator.simulator.rounds import rounds_ahead
from allocator.simulator.truth import Truth
from tests.simulator.goodput_worlds import jobs, profile, trainings
from tests.simulator.worlds import make_trace
from throughputs import PackedColumns


def test_equal_rounds_are_taken_up_to_the_first_sum_that_passes_a_power_of_two() -> None:
    # 64 additions of 1/64 take 1 to 2, and 16 take 3.75 to 4; one less stays below
    assert rounds_ahead([np.array([1.0, 3.75])], [np.full(2, 1 / 64)]) == 15
    assert rounds_ahead([np.array([1.0]), np.array([3.75])], [np.full(1, 1 / 64), np.zeros(1)]) == 63


def test_rounds_without_a_step_count_in_a_row_only() -> None:
    columns: dict[str, np.ndarray] = {}
    table = SimpleNamespace(
        columns=columns,
        rows=lambda jobs: jobs,
        register=lambda name, value: columns.update({name: np.full(2, value)}),
    )
    gone = []
    world = SimpleNamespace(jobs=table, give_up=lambda jobs: gone.append(jobs.tolist()))
    (count,) = IdleTime(max_zero_step_rounds=2).start(world)
    for idle in (True, False, True, True):
        count.after(SimpleNamespace(jobs=np.array([0, 1]), idle=np.array([idle, False]), done=np.zeros(2, dtype=bool)))
    assert gone == [[], [], [], [0]]


def test_a_spread_gang_beside_another_job_loses_what_it_loses_alone() -> None:
    truth = Truth(np.array([[4.0]]), np.array([2]), np.array([[3.0]]))
    rows = Assignment.of([0], [0], [2])
    assert truth.spread_rates_of(rows, None).tolist() == [3.0]
    assert truth.spread_rates_of(rows, np.array([2.0])).tolist() == [1.5]


def test_two_of_whom_one_would_stand_still_do_not_share() -> None:
    together = np.zeros((2, 2, 1))
    together[0, 1] = 0.8
    columns = PackedColumns([0, 1], [[1.0], [2.0]], together, accelerators=["v100"])
    cluster = Cluster({"v100": 1})
    table = JobTable.from_trace(make_trace([100.0, 100.0]), columns, cluster, needs=Need.COLOCATION)
    pairs = table.known_pairs(np.array([0, 1]))
    assert pairs is not None
    assert not pairs.together.any()


def test_gradients_that_are_accumulated_are_exchanged_once() -> None:
    # a sample takes 10 ms, 64 fit on a GPU: a batch of 256 on two takes 0.64 s twice, and the exchange of 0.1 s once
    models = trainings(net=profile(sync=0.1))
    trace = jobs(0.0, model="net (batch size 256)", gpus=2, category="rigid")
    one = simulate(trace, Cluster({"gpu": 2}, {"gpu": 2}), get_policy("sia_fixed"), models, preset=Preset())
    # each step of 256 is worth 16 of the 1,000 steps of 16, as good as exactly
    assert one.jobs["jct"].tolist() == pytest.approx([1000 / 16 * (2 * 0.64 + 0.1)], rel=1e-4)
