"""Dollars of a run."""

from __future__ import annotations

import numpy as np
import pytest

from allocator.cluster import Cluster
from allocator.protocol import Trigger
from allocator.registry import get_policy
from allocator.simulator import preset, simulate
from tests.simulator.worlds import SharesPolicy, make_trace
from throughputs import InputError, default_table, gavel_trace
from throughputs.prices import PriceTable

ONE_GPU = Cluster({"v100": 1})


def test_a_gang_pays_for_the_seconds_it_is_busy() -> None:
    trace = make_trace([720, 400], sizes=[2, 1])
    result = simulate(trace, Cluster({"v100": 3}), SharesPolicy(), np.ones((2, 1)), prices={"v100": 3.6})
    assert result.jobs["cost"].tolist() == pytest.approx([1.44, 0.4])
    assert result.summary()["cost"] == pytest.approx(1.84)


@pytest.mark.parametrize("ideal", [False, True])
def test_a_price_may_change_within_a_round(ideal: bool) -> None:
    prices = PriceTable({"v100": ([0.0, 100.0], [3.6, 36.0])})
    result = simulate(
        make_trace([200]),
        ONE_GPU,
        SharesPolicy(),
        [[1.0]],
        prices=prices,
        preset=preset("default").replace(ideal=ideal),
    )
    assert result.summary()["cost"] == pytest.approx(0.1 + 1.0)


@pytest.mark.parametrize("ideal", [False, True])
def test_cost_is_gpu_hours_times_price(ideal: bool) -> None:
    prices = {"v100": 0.74, "p100": 0.43, "k80": 0.135}
    trace, cluster = gavel_trace(20, 900.0, seed=2, multi_gpu=True), Cluster({"v100": 8, "p100": 8, "k80": 8})
    result = simulate(
        trace,
        cluster,
        get_policy("max_min_fairness_perf"),
        default_table(),
        preset=preset("default").replace(ideal=ideal),
        prices=prices,
    )
    rounds = result.rounds
    gpus = trace.scale_factor[rounds["job_id"]] * (rounds["share"] if ideal else 1.0)
    hours = gpus * (rounds["end_time"] - rounds["start_time"]) / 3600
    dollars = hours * rounds["accelerator"].astype(str).map(prices)
    assert result.summary()["cost"] == pytest.approx(dollars.sum())
    assert result.jobs["cost"].to_numpy() == pytest.approx(
        dollars.groupby(rounds["job_id"]).sum().reindex(range(20), fill_value=0.0).to_numpy()
    )


class PriceReader(SharesPolicy):
    """Wants to be asked when prices change."""

    triggers = Trigger.USUAL | Trigger.PRICES


@pytest.mark.parametrize("ideal", [False, True])
def test_a_policy_that_reads_prices_is_asked_when_they_change(ideal: bool) -> None:
    prices = PriceTable({"v100": ([0.0, 720.0, 900.0], [1.0, 2.0, 2.0])})
    chosen = preset("default").replace(ideal=ideal)
    reader = PriceReader()
    simulate(make_trace([2000]), ONE_GPU, reader, [[1.0]], prices=prices, preset=chosen)
    assert [(s.clock, s.gpu_prices.tolist()) for s in reader.states] == [(0.0, [1.0]), (720.0, [2.0])]
    other = SharesPolicy()
    with_prices = simulate(make_trace([2000]), ONE_GPU, other, [[1.0]], prices=prices, preset=chosen)
    assert [s.clock for s in other.states] == [0.0]
    without = simulate(make_trace([2000]), ONE_GPU, SharesPolicy(), [[1.0]], preset=chosen)
    assert with_prices.rounds.equals(without.rounds)


def test_without_prices_nothing_is_said_of_cost() -> None:
    result = simulate(make_trace([1]), ONE_GPU, SharesPolicy(), [[1.0]])
    assert "cost" not in result.jobs
    assert result.summary()["cost"] is None


def test_bad_prices_are_named() -> None:
    for prices in ({"k80": 1.0}, {"v100": -1.0}, {"v100": np.nan}):
        with pytest.raises(InputError, match="v100"):
            simulate(make_trace([1]), ONE_GPU, SharesPolicy(), [[1.0]], prices=prices)
