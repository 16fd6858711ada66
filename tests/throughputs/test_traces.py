"""Traces in files: every format there and back, what it cannot hold, and what is said of bad lines."""

from __future__ import annotations

from datetime import datetime

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from throughputs import InputError, Trace, read_trace, write_trace

GAVEL = "LM\tpython main.py\tlm\t--steps\t1\t500\t2\t1\t-1.000000\t0.500000"
GAVEL7 = "LM\tcd lm && python main.py \t--steps\t1\t500\t7.000000\t2"
SHOCKWAVE = "LM\tpython main.py\tlm\t--steps\t1\t500\t2\tgns\t1\t1.200000\t90\t7"
SEVEN = {"job_type", "command", "num_steps_arg", "needs_data_dir", "total_steps", "arrival_time", "scale_factor"}
HELD = {
    "gavel": SEVEN | {"working_directory", "priority_weight", "slo"},
    "gavel7": SEVEN,
    "shockwave": SEVEN | {"working_directory", "priority_weight", "slo", "mode", "duration"},
    "swf": {"job_type", "scale_factor", "arrival_time", "total_steps", "duration", "user", "partition", "trace_id",
            "recorded_start_seconds", "recorded_end_seconds"},
    "pollux": {"job_type", "scale_factor", "arrival_time", "total_steps", "deadline", "category"},
    "table": set(Trace.column_names()),
}  # fmt: skip
ALONE = {"deadline", "deadline_options", "slo", "recorded_start_seconds", "recorded_end_seconds"}

nothing = st.just(np.nan)
text = st.text(st.characters(exclude_categories=["C", "Zl", "Zp"]), max_size=12)
words = st.text(st.characters(categories=["L", "N"], include_characters="()-_."), min_size=1, max_size=12)
names = st.sampled_from(["", "ada", "ben b", "lm, large", "Zoë", "12"])
micro = st.integers(1, 10**9).map(lambda i: i / 1e6)  # survives 6 decimals


@st.composite
def traces(draw, format):
    n, exact = draw(st.integers(1, 5)), format == "table"
    whole = st.integers(1, 10**9).map(float)
    number = st.floats(1e-6, 1e12) if exact else whole
    values = {
        "job_type": words,
        "scale_factor": st.integers(1, 512),
        "total_steps": number,
        "arrival_time": st.floats(0, 1e11) if exact else st.integers(0, 10**9).map(float),
        "priority_weight": number,
        "duration": st.one_of(number, nothing) if exact else whole,
        "mode": st.sampled_from(["static", "accordion", "gns"]),
        "needs_data_dir": st.booleans(),
        "predicted_seconds": st.one_of(number, nothing),
        "category": st.sampled_from(["adaptive", "scale-gpus", "rigid"]),
        "recorded_status": st.sampled_from(["", "completed", "failed", "cancelled", "timed_out"]),
        "gpu_fraction": st.floats(0.01, 1),
        "gpu_utilization": st.one_of(st.floats(0, 1), nothing),
        "arrival_date": st.one_of(st.datetimes(datetime(1970, 1, 1), datetime(2100, 1, 1)), st.just(None)),
        **dict.fromkeys(("entity", "user", "partition", "gpu_type", "trace_id"), names),
    }
    made = {
        name: draw(st.lists(values.get(name, text), min_size=n, max_size=n)) for name in sorted(HELD[format] - ALONE)
    }
    arrival = made["arrival_time"] = np.sort(made["arrival_time"])
    later = np.array(draw(st.lists(st.integers(1, 10**6), min_size=n, max_size=n)))
    if format == "swf":
        made |= {"job_type": draw(st.permutations(["a", "lm, large", "b c", "d", "e"]))[:n]}
        made |= {"arrival_time": arrival - arrival[0], "total_steps": made["duration"], "trace_id": list("79412"[:n])}
    if format == "pollux":
        made["job_type"] = [f"model{size} (batch size {size})" for size in later]
    kind = np.array(draw(st.lists(st.integers(0, 3), min_size=n, max_size=n)))
    if "slo" in HELD[format]:
        made["slo"] = np.where(kind == 0, draw(st.lists(micro, min_size=n, max_size=n)), np.nan)
    if "deadline" in HELD[format]:
        made["deadline"] = np.where(kind == 1, made["arrival_time"] + later, np.nan)
    if "deadline_options" in HELD[format]:
        options = [((a + s, 0.3), (a + 3 * s, 0.3), (a + 4 * s, 0.1)) for a, s in zip(arrival, later, strict=True)]
        made["deadline_options"] = [option if k == 2 else () for option, k in zip(options, kind, strict=True)]
    if "recorded_start_seconds" in HELD[format]:
        start = made["recorded_start_seconds"] = np.where(kind == 1, made["arrival_time"] + later, np.nan)
        made["recorded_end_seconds"] = start + (later if exact else made["duration"])
    return Trace(**made)


@pytest.mark.parametrize(
    ("name", "format"),
    [("t.csv", "table"), ("t.csv.gz", "table"), ("t.parquet", "table"), ("t.swf", "swf"), ("t.swf.gz", "swf"),
     ("t.trace", "gavel"), ("t.trace", "gavel7"), ("t.trace.gz", "shockwave"), ("t.csv", "pollux")],
)  # fmt: skip
def test_what_a_format_holds_comes_back_exactly(tmp_path, name, format):
    path, held = tmp_path / name, sorted(HELD[format])

    @settings(max_examples=6)
    @given(traces(format))
    def check(trace):
        write_trace(trace, path, format)
        for asked in ("auto", format):
            again = read_trace(path, asked)
            pd.testing.assert_frame_equal(again.to_frame()[held], trace.to_frame()[held], check_exact=True)
        if format == "table":
            pd.testing.assert_frame_equal(Trace.from_frame(trace.to_frame()).to_frame(), trace.to_frame())
            assert again.deadline_options.tolist() == trace.deadline_options.tolist()

    check()
    assert [each.name for each in tmp_path.iterdir()] == [name]


LOST = {
    "working_directory": "lm", "priority_weight": 5.0, "slo": 2.0, "deadline": 99.0, "predicted_seconds": 5.0,
    "deadline_options": "99:2 100:1", "mode": "gns", "entity": "e", "user": "ann", "partition": "p",
    "gpu_type": "v", "category": "rigid", "gpu_fraction": 0.5, "gpu_utilization": 0.5, "recorded_start_seconds": 50.0,
}  # fmt: skip


def two_jobs(**second):
    """Two jobs of which the second has other columns."""
    good = {"job_type": "LM (batch size 4)", "scale_factor": 1, "total_steps": 9.0, "arrival_time": 0.0}
    rows = [good | {"duration": 9.0}, good | {"duration": 9.0} | second]
    return Trace.from_frame(pd.DataFrame(rows))


def refused(trace, path, format, **options):
    """The second job is refused and nothing is written."""
    with pytest.raises(InputError) as caught:
        write_trace(trace, path, format, **options)
    assert caught.value.line == 2
    assert not path.exists()
    return caught.value.field


@pytest.mark.parametrize("format", HELD)
def test_what_a_format_has_no_column_for_is_refused_unless_asked_for(tmp_path, format):
    path = tmp_path / ("t.csv" if format == "pollux" else "t.trace")
    kept = HELD[format] | ({"slo", "working_directory"} if format == "pollux" else set())
    for column, value in LOST.items():
        if column in kept:
            continue
        trace = two_jobs(**{column: value})
        assert refused(trace, path, format) in (column, "deadline")
        write_trace(trace, path, format, lossy=True)
        again = read_trace(path, "auto" if format == "pollux" else format)
        default = getattr(two_jobs(), column)[1]
        if column != "deadline_options" and (format, column) != ("pollux", "category"):
            np.testing.assert_array_equal(getattr(again, column)[1], default)
        path.unlink()


@pytest.mark.parametrize(
    ("format", "column", "value"),
    [
        ("gavel", "priority_weight", 1.5),
        ("gavel", "total_steps", 5.5),
        ("shockwave", "arrival_time", 0.5),
        ("shockwave", "duration", 9.5),
        ("shockwave", "duration", None),
        ("swf", "total_steps", 50.0),
        ("swf", "arrival_time", 9.5),
    ],
)
def test_numbers_that_a_format_would_cut_are_refused_unless_asked_for(tmp_path, format, column, value):
    trace, path = two_jobs(**{column: value}), tmp_path / "t.trace"
    assert refused(trace, path, format) == column
    write_trace(trace, path, format, lossy=True)
    assert read_trace(path, "auto" if format == "swf" else format).job_type.tolist()[0] == "LM (batch size 4)"


def test_the_end_of_a_schedule_in_swf_is_start_and_duration(tmp_path):
    trace = two_jobs(recorded_start_seconds=50.0, recorded_end_seconds=60.0)
    assert refused(trace, tmp_path / "t.swf", "swf") == "recorded_end_seconds"


@pytest.mark.parametrize(
    ("column", "value"),
    [("job_type", "L\tM"), ("command", "a\nb"), ("total_steps", 0.5), ("priority_weight", 0.5), ("slo", 1e-9)],
)
def test_what_could_not_be_read_back_is_never_written(tmp_path, column, value):
    assert refused(two_jobs(**{column: value}), tmp_path / "t.trace", "gavel", lossy=True) == column
    assert refused(two_jobs(user="x\ny"), tmp_path / "t.swf", "swf", lossy=True) == "user"


@pytest.mark.parametrize(
    ("line", "name", "format", "expected"),
    [
        (GAVEL, "t.trace", "gavel", {"arrival_time": 0.5, "scale_factor": 2, "mode": "static"}),
        (GAVEL7, "t.txt", "gavel7", {"arrival_time": 7, "scale_factor": 2, "command": "cd lm && python main.py "}),
        (SHOCKWAVE, "trace", "shockwave", {"arrival_time": 7, "mode": "gns", "slo": 1.2, "duration": 90}),
    ],
)
def test_lines_of_text_formats_are_told_apart_and_written_as_they_were(tmp_path, line, name, format, expected):
    path = tmp_path / name
    for ending in ("", "\n", "\n\n", "\r\n"):
        path.write_text(line + ending, newline="")
        trace = read_trace(path)
        assert {key: getattr(trace, key)[0] for key in expected} == expected
        assert trace.source == str(path)
    write_trace(trace, tmp_path / "copy.trace", format)
    assert (tmp_path / "copy.trace").read_text() == line + "\n"
    if format != "gavel7":
        write_trace(trace, tmp_path / "auto.trace")
        assert (tmp_path / "auto.trace").read_text() == line + "\n"


BAD_CELLS = [
    (GAVEL, 4, "needs_data_dir", ["perhaps"]),
    (GAVEL, 5, "total_steps", ["many", "1.5", "0", "1e300"]),
    (GAVEL, 6, "scale_factor", ["0"]),
    (GAVEL, 8, "slo", ["none"]),
    (GAVEL, 9, "arrival_time", ["inf", "-1", "0.25"]),
    (SHOCKWAVE, 7, "mode", ["Static"]),
    (SHOCKWAVE, 10, "duration", ["long"]),
    (SHOCKWAVE, 11, "arrival_time", ["6"]),
    (GAVEL7, 5, "arrival_time", ["late", "6"]),
]


@pytest.mark.parametrize(
    ("good", "place", "field", "cell"), [(*row, cell) for *row, cells in BAD_CELLS for cell in cells]
)
def test_a_bad_cell_of_text_is_located(tmp_path, good, place, field, cell):
    cells = good.split("\t")
    cells[place] = cell
    path = tmp_path / "bad.trace"
    path.write_text("\n".join([good, "\t".join(cells), ""]))
    with pytest.raises(InputError) as caught:
        read_trace(path)
    error = caught.value
    assert (error.source, error.line, error.field) == (str(path), 2, field)
    assert error.found == cell or error.found == float(cell)
    path.write_text(f"{good}\n{good}\t7")
    with pytest.raises(InputError, match=r"bad\.trace:2: found '\d+ fields'"):
        read_trace(path)
