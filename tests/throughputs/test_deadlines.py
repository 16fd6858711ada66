"""Deadlines of a trace: on the clock, several with values, and as ragged arrays."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from throughputs import InputError, ThroughputTable, Trace, describe_trace, read_trace, write_trace
from throughputs.deadlines import DeadlineOptions, OptionRow

SOFT: tuple[OptionRow, ...] = (((100.0, 10.0), (200.0, 8.0), (300.0, 2.0)), (), ((50.0, 3.0),))


def trace(**columns: Any) -> Trace:
    return Trace(["a", "b", "a"], [1, 2, 1], [10.0, 20.0, 30.0], [0.0, 5.0, 7.0], **columns)


@st.composite
def option_rows(draw: st.DrawFn) -> list[OptionRow]:
    rows = []
    for _ in range(draw(st.integers(0, 5))):
        times = draw(st.lists(st.floats(1, 1e9), max_size=4, unique=True))
        values = draw(st.lists(st.floats(1e-6, 1e6), min_size=len(times), max_size=len(times)))
        rows.append(tuple(zip(sorted(times), sorted(values, reverse=True), strict=True)))
    return rows


@given(option_rows(), option_rows(), st.randoms())
def test_ragged_arrays_are_the_rows(rows: list[OptionRow], later: list[OptionRow], rng: Any) -> None:
    options = DeadlineOptions.of_rows(rows)
    assert len(options) == len(rows)

    def back(some: DeadlineOptions) -> list[OptionRow]:
        ends = zip(some.offsets[:-1].tolist(), some.offsets[1:].tolist(), strict=True)
        return [tuple(zip(some.seconds[a:b].tolist(), some.value[a:b].tolist(), strict=True)) for a, b in ends]

    assert back(options) == rows
    assert back(options.joined(DeadlineOptions.of_rows(later))) == rows + later
    picked = [rng.randrange(len(rows)) for _ in range(6)] if rows else []
    assert back(options.take(np.array(picked, dtype=np.int64))) == [rows[i] for i in picked]
    first = [row[0][0] if row else np.nan for row in rows]
    assert np.array_equal(options.tightest, first, equal_nan=True)
    assert options.best_value.tolist() == [row[0][1] if row else 0.0 for row in rows]


def test_the_value_is_that_of_the_first_deadline_that_was_kept() -> None:
    options = DeadlineOptions.of_rows([*SOFT, SOFT[0], SOFT[0], SOFT[0]])
    assert options.value_at([100.0, 1.0, 51.0, 100.5, 301.0, np.nan]).tolist() == [10.0, 0.0, 0.0, 8.0, 0.0, 0.0]
    assert options.job.tolist() == [0, 0, 0, 2, 3, 3, 3, 4, 4, 4, 5, 5, 5]


def test_a_deadline_alone_is_one_option() -> None:
    options = DeadlineOptions.of_deadlines([5.0, np.nan, np.inf, 7.0], value=2.0)
    assert options.offsets.tolist() == [0, 1, 1, 1, 2]
    assert (options.seconds.tolist(), options.value.tolist()) == ([5.0, 7.0], [2.0, 2.0])


def test_the_deadline_is_the_first_of_several() -> None:
    made = trace(deadline=[np.nan, 9.0, np.nan], deadline_options=SOFT)
    assert made.deadline.tolist() == [100.0, 9.0, 50.0]
    assert made.deadline_options.tolist() == list(SOFT)
    assert made.head(1).deadline_options.tolist() == [SOFT[0]]
    # rows of equal length are no matrix
    equal = trace(deadline_options=[SOFT[2]] * 3)
    assert equal.deadline_options.shape == (3,)
    assert np.isnan(trace().deadline).all()


@pytest.mark.parametrize("name", ["t.csv", "t.csv.gz", "t.parquet"])
def test_round_trips_are_exact(name: str, tmp_path: Path) -> None:
    made = trace(deadline=[np.nan, 1e6 / 3, np.nan], deadline_options=(((1e9 / 7, 0.1), (2e9, 0.1)), (), ()))
    write_trace(made, tmp_path / name)
    read = read_trace(tmp_path / name)
    pd.testing.assert_frame_equal(read.to_frame(), made.to_frame(), check_exact=True)
    assert read.deadline_options.tolist() == made.deadline_options.tolist()
    exact = trace(deadline=[2.0**53 - 1, np.nan, 7.0])
    write_trace(exact, tmp_path / name)
    assert read_trace(tmp_path / name).deadline[0] == 2**53 - 1


@pytest.mark.parametrize(
    ("columns", "told"),
    [
        ({"deadline": [1.0, 2.0, 3.0]}, "trace:2: field 'deadline': found 2.0, expected seconds, not before"),
        ({"deadline": [1.0, np.inf, 3.0]}, "trace:2: field 'deadline'"),
        ({"deadline": [9.0] * 3, "slo": [np.nan, np.nan, 2.0]}, "trace:3: field 'deadline': .* as the job has an slo"),
        ({"deadline": [99.0] * 3, "deadline_options": SOFT}, "trace:1: .* expected the first of its deadline_options"),
        ({"deadline_options": SOFT[:2]}, "found '2 cells', expected one for each of 3 jobs"),
        ({"deadline_options": [(), 3.0, ()]}, "trace:2: field 'deadline_options': found 3.0"),
        ({"deadline_options": [(), ((1.0,),), ()]}, "trace:2: field 'deadline_options'"),
        ({"deadline_options": [((9.0, 0.0),), (), ()]}, "trace:1: field 'deadline_options'"),
        ({"deadline_options": [((-9.0, 1.0),), (), ()]}, "trace:1: field 'deadline_options'"),
        ({"deadline_options": [((9.0, np.inf),), (), ()]}, "trace:1: field 'deadline_options'"),
        ({"deadline_options": [((9.0, 1.0), (9.0, 1.0)), (), ()]}, "trace:1: .* times ascending"),
        ({"deadline_options": [((9.0, 1.0), (10.0, 2.0)), (), ()]}, "trace:1: .* not ascending"),
    ],
)
def test_bad_deadlines_are_named(columns: dict[str, Any], told: str) -> None:
    with pytest.raises(InputError, match=told):
        trace(**columns)


@pytest.mark.parametrize("text", ["9", "9:", ":9", "9:x", "9:8:7", "9:1 8:1", "9:nan", "nan:1", "9:-1", "9-8"])
def test_bad_cells_are_named_with_their_line(text: str, tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text(f"job_type,scale_factor,total_steps,arrival_time,deadline_options\nLM,1,1,0,9:1\nLM,1,1,0,{text}\n")
    with pytest.raises(InputError, match=r"t\.csv:3: field 'deadline_options'"):
        read_trace(path)


def test_text_formats_refuse_what_they_cannot_hold(tmp_path: Path) -> None:
    for name, columns in (("deadline", {"deadline": [9.0] * 3}), ("deadline", {"deadline_options": SOFT})):
        with pytest.raises(InputError, match=f"field '{name}'"):
            write_trace(trace(**columns), tmp_path / "t.trace", "gavel")
        write_trace(trace(**columns), tmp_path / "t.trace", "gavel", lossy=True)
        assert np.isnan(read_trace(tmp_path / "t.trace").deadline).all()


def test_described() -> None:
    table = ThroughputTable([("a", 1)], ["a100"], [[2.0]])
    made = trace(deadline=[20.0, np.nan, np.nan], deadline_options=[(), *SOFT[1:]], duration=[7.0, 8.0, 9.0])
    found = describe_trace(made)
    assert (found["n_jobs_with_deadline"], found["n_jobs_with_deadline_options"], found["n_jobs_not_profiled"]) == (
        2,
        0,
        0,
    )
    assert found["deadline_quantiles"][0.0] == pytest.approx(20 / 7)
    assert found["deadline_quantiles"][1.0] == pytest.approx(43 / 9)
    found = describe_trace(made, table)
    # b is not in the table: its duration is that of the trace
    assert (found["n_jobs_not_profiled"], found["duration_quantiles_s"][0.0]) == (1, 5.0)
    assert found["deadline_quantiles"][0.0] == pytest.approx(43 / 15)
    assert describe_trace(trace())["deadline_quantiles"] is None
    with pytest.raises(InputError, match="'b'"):
        describe_trace(trace(), table)
