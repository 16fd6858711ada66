"""Prices: histories, files, and cost as an exact integral."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from throughputs import InputError, PriceTable, read_prices, write_prices


@pytest.fixture
def prices():
    return PriceTable({"v100": ([0, 3600, 7200], [1.0, 2.0, 0.5]), "k80": ([100], [0.25])})


def test_price_holds_from_one_change_to_the_next(prices):
    seen = [prices.price_at(t, ["v100"]).item() for t in (-5, 0, 3599.9, 3600, 7199, 7200, 1e9)]
    assert seen == [1, 1, 1, 2, 2, 0.5, 0.5]
    assert prices.price_at(0.0, ["k80", "v100", "k80"]).tolist() == [0.25, 1.0, 0.25]


def test_cost_over_changes(prices):
    assert prices.cost(1800, 9000, ["v100", "k80"]).tolist() == [0.5 + 2.0 + 0.25, 0.5]
    runs = prices.cost([0, 0, 3600], [3600, 7200, 3600], ["v100", "k80", "v100"])
    assert runs.tolist() == [1.0, 0.5, 0.0]
    assert prices.cost(-3600, 0, ["v100"]).tolist() == [1.0], "the first price holds before it"


def test_next_change(prices):
    assert [prices.next_change(t, ["v100", "k80"]) for t in (-1, 0, 3600, 7200)] == [3600, 3600, 7200, np.inf]
    assert prices.next_change(0, ["k80"]) == np.inf, "a first price is no change"
    assert PriceTable({"v100": ([0, 10, 20], [1, 1, 2])}).next_change(0, ["v100"]) == 20


@given(
    st.lists(st.tuples(st.integers(1, 50), st.integers(0, 9)), min_size=1, max_size=6),
    st.integers(-20, 320),
    st.integers(0, 320),
)
def test_cost_is_the_integral(history, start, length):
    times = np.cumsum([gap for gap, _ in history])
    price = [p for _, p in history]
    table = PriceTable({"x": (times, price)})
    exact = Fraction(0)
    for second in range(start, start + length):
        exact += Fraction(price[max(int((times <= second).sum()) - 1, 0)], 3600)
    assert table.cost(start, start + length, ["x"])[0] == pytest.approx(float(exact), rel=1e-12, abs=1e-15)


@pytest.mark.parametrize(
    "history",
    [([], []), ([0, 1], [1]), ([0, 0], [1, 1]), ([0], [-1]), ([np.inf], [1])],
)
def test_bad_histories_are_refused(history):
    with pytest.raises(InputError) as caught:
        PriceTable({"v100": history})
    assert caught.value.field == "v100"


def test_rows_in_any_order_and_time_stamps(tmp_path):
    path = tmp_path / "spot.csv"
    path.write_text(
        "# spot prices\ntimestamp,accelerator,price\n"
        "2020-01-01T02:00:00Z,v100,2.0\n"
        "2020-01-01T00:00:00,v100,1.0\n"
        "2020-01-01 01:30:00+01:00,k80,0.3\n"
    )
    write_prices(read_prices(path), tmp_path / "again.parquet")
    table = read_prices(tmp_path / "again.parquet")
    assert table.to_frame().to_numpy().tolist() == [[0, "v100", 1], [7200, "v100", 2], [1800, "k80", 0.3]]
    path.write_text("time_seconds,accelerator,price\n0,v100,1\n0,v100,1\n")
    assert repr(read_prices(path)) == "PriceTable(v100: 1.0)"


def test_zones_offer_the_least_price():
    frame = pd.DataFrame(
        [(0, "v100", 3.0, "a"), (10, "v100", 2.0, "b"), (20, "v100", 1.0, "a"), (30, "v100", 5.0, "a")],
        columns=["time_seconds", "accelerator", "price", "zone"],
    )
    table = PriceTable.from_frame(frame)
    assert [table.price_at(t, ["v100"]).item() for t in (-1, 0, 9, 10, 20, 30, 99)] == [3, 3, 3, 2, 1, 2, 2]
