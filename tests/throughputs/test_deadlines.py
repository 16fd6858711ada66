"""Deadlines of a trace: on the clock, several with values, and as ragged arrays."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from throughputs import InputError, Trace
from throughputs.deadlines import DeadlineOptions

SOFT = (((100.0, 10.0), (200.0, 8.0), (300.0, 2.0)), (), ((50.0, 3.0),))


def trace(**columns):
    return Trace(["a", "b", "a"], [1, 2, 1], [10.0, 20.0, 30.0], [0.0, 5.0, 7.0], **columns)


@st.composite
def option_rows(draw):
    rows = []
    for _ in range(draw(st.integers(0, 5))):
        times = draw(st.lists(st.floats(1, 1e9), max_size=4, unique=True))
        values = draw(st.lists(st.floats(1e-6, 1e6), min_size=len(times), max_size=len(times)))
        rows.append(tuple(zip(sorted(times), sorted(values, reverse=True), strict=True)))
    return rows


@settings(max_examples=30)
@given(option_rows(), option_rows(), st.randoms())
def test_ragged_arrays_are_the_rows(rows, later, rng):
    options = DeadlineOptions.of_rows(rows)
    assert len(options) == len(rows)

    def back(some):
        ends = zip(some.offsets[:-1].tolist(), some.offsets[1:].tolist(), strict=True)
        return [tuple(zip(some.seconds[a:b].tolist(), some.value[a:b].tolist(), strict=True)) for a, b in ends]

    assert back(options) == rows
    assert back(options.joined(DeadlineOptions.of_rows(later))) == rows + later
    picked = [rng.randrange(len(rows)) for _ in range(6)] if rows else []
    assert back(options.take(np.array(picked, dtype=np.int64))) == [rows[i] for i in picked]
    assert options.best_value.tolist() == [row[0][1] if row else 0.0 for row in rows]
    done = [rng.choice([time for time, _ in row] + [rng.uniform(0, 1e9), np.nan]) for row in rows]
    kept = [next((v for t, v in row if now <= t), 0.0) for row, now in zip(rows, done, strict=True)]
    assert options.value_at(done).tolist() == kept


def test_deadlines_by_hand():
    options = DeadlineOptions.of_rows([*SOFT, SOFT[0], SOFT[0], SOFT[0]])
    assert options.value_at([100.0, 1.0, 51.0, 100.5, 301.0, np.nan]).tolist() == [10.0, 0.0, 0.0, 8.0, 0.0, 0.0]
    assert options.job.tolist() == [0, 0, 0, 2, 3, 3, 3, 4, 4, 4, 5, 5, 5]
    alone = DeadlineOptions.of_deadlines([5.0, np.nan, np.inf, 7.0], value=2.0)
    assert alone.offsets.tolist() == [0, 1, 1, 1, 2]
    assert (alone.seconds.tolist(), alone.value.tolist()) == ([5.0, 7.0], [2.0, 2.0])
    made = trace(deadline=[np.nan, 9.0, np.nan], deadline_options=SOFT)
    assert made.deadline.tolist() == [100.0, 9.0, 50.0]
    sooner = made.at_load(2.0)
    assert (sooner.arrival_time.tolist(), sooner.deadline.tolist()) == ([0.0, 2.5, 3.5], [100.0, 6.5, 46.5])
    # rows of equal length are no matrix
    assert trace(deadline_options=[SOFT[2]] * 3).deadline_options.shape == (3,)


@pytest.mark.parametrize(
    ("columns", "line", "field"),
    [
        ({"deadline": [1.0, 2.0, 3.0]}, 2, "deadline"),
        ({"deadline": [9.0] * 3, "slo": [np.nan, np.nan, 2.0]}, 3, "deadline"),
        ({"deadline": [99.0] * 3, "deadline_options": SOFT}, 1, "deadline"),
        ({"deadline_options": SOFT[:2]}, None, "deadline_options"),
        ({"deadline_options": [(), 3.0, ()]}, 2, "deadline_options"),
        ({"deadline_options": [((9.0, 0.0),), (), ()]}, 1, "deadline_options"),
        ({"deadline_options": [((9.0, 1.0), (9.0, 1.0)), (), ()]}, 1, "deadline_options"),
        ({"deadline_options": [((9.0, 1.0), (10.0, 2.0)), (), ()]}, 1, "deadline_options"),
    ],
)
def test_bad_deadlines_are_named(columns, line, field):
    with pytest.raises(InputError) as caught:
        trace(**columns)
    assert (caught.value.line, caught.value.field) == (line, field)
