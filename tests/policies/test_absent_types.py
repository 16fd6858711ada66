"""Prices of accelerator types without GPUs, as users see them."""

from __future__ import annotations

import json
import warnings

import numpy as np
import pandas as pd
import pytest

import allocator
from allocator.instance import allocation_to_json

RATES = pd.DataFrame({"a": [1.0, 1.0], "b": [10.0, 10.0]}, index=["x", "y"])
PROGRAMS = (
    "max_min_fairness_perf",
    "min_total_duration_perf",
    "finish_time_fairness_perf",
    "max_sum_throughput_perf",
    "nash_welfare",
    "max_min_fairness_water_filling_perf",
    "max_sum_throughput_normalized_by_cost_perf",
    "max_min_fairness_packed",
    "min_total_duration_packed",
    "finish_time_fairness_packed",
    "max_min_fairness_water_filling_packed",
)


@pytest.mark.parametrize(
    ("policy", "price"), [("max_sum_throughput_perf", 10.0), ("max_sum_throughput_normalized_by_cost_perf", 10.0)]
)
def test_what_the_first_gpu_would_bring(policy, price):
    allocation = allocator.solve(policy, RATES, "a:1,b:0")
    assert allocation.price_series()["b"] == pytest.approx(price, rel=1e-9)
    assert allocation_to_json(allocation)["prices"]["b"] == pytest.approx(price, rel=1e-9)


@pytest.mark.parametrize("policy", PROGRAMS)
def test_where_it_is_known_and_where_not(policy):
    """A gang of two has no use for the first GPU; a job that runs on nothing else would join the others."""
    rates = pd.DataFrame({"a": [1.0, 1.0], "b": [10.0, 40.0]}, index=["x", "y"])
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        known = allocator.solve(policy, rates.assign(scale_factor=[1, 2]), "a:2,b:0")
        unknown = allocator.solve(policy, rates.assign(a=[1.0, 0.0]), "a:1,b:0")
    assert np.isfinite(known.prices).all()
    assert (known.prices >= 0).all()
    assert np.isnan(unknown.prices[1])
    assert allocation_to_json(unknown)["prices"]["b"] is None
    json.dumps(allocation_to_json(unknown), allow_nan=False)
    json.dumps(unknown.audit(probed_jobs=0).to_json(), allow_nan=False)


def test_policies_without_a_program_know_no_prices():
    allocation = allocator.solve("isolated", RATES, "a:1,b:1")
    assert allocation.price_series().isna().all()
    assert set(allocation_to_json(allocation)["prices"].values()) == {None}
