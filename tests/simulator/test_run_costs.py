"""Dollars of a run."""

from __future__ import annotations

import numpy as np
import pytest

from allocator.cluster import Cluster
from allocator.registry import get_policy
from allocator.simulator import preset, simulate
from tests.simulator.worlds import SharesPolicy, make_trace
from throughputs import InputError, default_table, gavel_trace

ONE_GPU = Cluster({"v100": 1})


@pytest.mark.parametrize("ideal", [False, True])
def test_cost_is_gpu_hours_times_price(ideal):
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


def test_bad_prices_are_named():
    for prices in ({"k80": 1.0}, {"v100": -1.0}, {"v100": np.nan}):
        with pytest.raises(InputError, match="v100"):
            simulate(make_trace([1]), ONE_GPU, SharesPolicy(), [[1.0]], prices=prices)
