"""Traces: reading, writing, messages, and what a format cannot hold."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from throughputs import InputError, Trace, read_trace, write_trace

GAVEL_TRACES = (
    "n100_lam0_multi1_prio0_seed0",
    "n100_lam1200_multi1_prio0_seed0",
    "n100_lam1200_multi1_prio1_seed0",
    "n120_lam600_multi0_prio0_seed0",
    "n120_lam600_multi0_prio1_seed0",
    "n150_lam600_multi1_prio0_seed0",
    "n200_lam300_multi0_prio0_seed0",
    "n40_lam1800_multi1_prio0_seed0",
    "n40_lam900_multi0_prio0_seed0",
)
SHOCKWAVE_TRACES = (
    "120_0.2_5_100_40_25",
    "220_0.2_5_100_25_4",
    "460_0.2_5_100_10_1",
    "900_0.2_5_1000_5_15",
    "900_0.2_5_100_5_15",
)
PUBLIC_TRACES = (
    *(f"gavel/traces/{name}.trace" for name in GAVEL_TRACES),
    *(f"shockwave/traces/{name}_0,0.5,0.5_0.6,0.3,0.09,0.01_multigpu_dynamic.trace" for name in SHOCKWAVE_TRACES),
)

GAVEL = "LM\tpython main.py\tlm\t--steps\t1\t500\t2\t1\t-1.000000\t0.500000"
GAVEL7 = "LM\tcd lm && python main.py \t--steps\t1\t500\t7.000000\t2"
SHOCKWAVE = "LM\tpython main.py\tlm\t--steps\t1\t500\t2\tgns\t1\t1.200000\t90\t7"
TABLE = "job_type,scale_factor,total_steps,arrival_time"

plain_text = st.text(st.characters(exclude_categories=["C", "Zl", "Zp"]), max_size=12)
words = st.text(st.characters(exclude_categories=["C", "Z"]), min_size=1, max_size=12)


@st.composite
def traces(draw: st.DrawFn, *, whole: bool, static: bool = False) -> Trace:
    n = draw(st.integers(1, 5))

    def column(values: st.SearchStrategy) -> list:
        return draw(st.lists(values, min_size=n, max_size=n))

    number = st.integers(1, 10**12).map(float) if whole else st.floats(1e-6, 1e12)
    micro = st.integers(1, 10**9).map(lambda i: i / 1e6)  # survives 6 decimals
    return Trace(
        column(words),
        column(st.integers(1, 512)),
        column(number),
        sorted(column(st.integers(0, 10**9).map(float) if whole else st.floats(0, 1e12))),
        priority_weight=column(number),
        slo=column(st.one_of(micro, st.just(np.nan))),
        duration=column(number if whole else st.one_of(number, st.just(np.nan))),
        mode=None if static else column(st.sampled_from(["static", "accordion", "gns"])),
        command=column(plain_text),
        working_directory=column(plain_text),
        num_steps_arg=column(plain_text),
        needs_data_dir=column(st.booleans()),
    )


def check_round_trip(trace: Trace, path: Path, format: str, without: tuple[str, ...] = ()) -> None:
    write_trace(trace, path, format)
    expected = trace.to_frame().drop(columns=list(without))
    found = read_trace(path, format).to_frame().drop(columns=list(without))
    pd.testing.assert_frame_equal(found, expected, check_exact=True)


@pytest.mark.parametrize("name", ["t.csv", "t.csv.gz", "t.parquet"])
def test_table_round_trip_is_exact(name: str, tmp_path: Path) -> None:
    @given(traces(whole=False))
    def check(trace: Trace) -> None:
        check_round_trip(trace, tmp_path / name, "table")

    check()
    assert [path.name for path in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize("name", ["t.trace", "t.trace.gz"])
def test_text_round_trips(name: str, tmp_path: Path) -> None:
    @given(traces(whole=True), traces(whole=True, static=True))
    def check(dynamic: Trace, static: Trace) -> None:
        check_round_trip(dynamic, tmp_path / name, "shockwave")
        check_round_trip(static, tmp_path / name, "gavel", without=("duration",))

    check()
    assert [path.name for path in tmp_path.iterdir()] == [name]


@given(traces(whole=False))
def test_frame_round_trip(trace: Trace) -> None:
    pd.testing.assert_frame_equal(Trace.from_frame(trace.to_frame()).to_frame(), trace.to_frame())


@pytest.mark.parametrize("relative", PUBLIC_TRACES)
def test_public_traces_come_back_byte_for_byte(relative: str, public_data, tmp_path: Path) -> None:
    original = public_data(relative)
    trace = read_trace(original)
    assert len(trace) == int(original.name.split("_")[0].removeprefix("n"))
    write_trace(trace, tmp_path / "copy.trace")
    assert (tmp_path / "copy.trace").read_bytes() == original.read_bytes()


def test_canonical_shockwave_trace_in_figures(public_data) -> None:
    trace = read_trace(public_data(PUBLIC_TRACES[9]))
    assert {mode: int((trace.mode == mode).sum()) for mode in set(trace.mode)} == {
        "static": 4,
        "accordion": 59,
        "gns": 57,
    }
    assert np.unique(trace.scale_factor, return_counts=True)[1].tolist() == [92, 20, 8]
    assert (trace.duration.min(), trace.duration.max()) == (720, 18000)
    assert trace.arrival_time[-1] == 5011
    assert np.isnan(trace.slo).all()


@pytest.mark.parametrize(
    ("text", "name", "expected"),
    [
        (GAVEL, "t.trace", {"arrival_time": 0.5, "scale_factor": 2, "mode": "static"}),
        (GAVEL7, "t.txt", {"arrival_time": 7, "scale_factor": 2, "command": "cd lm && python main.py "}),
        (SHOCKWAVE, "trace", {"arrival_time": 7, "mode": "gns", "slo": 1.2, "duration": 90}),
        (TABLE + "\nLM,2,500.5,3", "t.csv", {"total_steps": 500.5, "priority_weight": 1, "mode": "static"}),
    ],
)
def test_auto_tells_the_formats_apart(text: str, name: str, expected: dict, tmp_path: Path) -> None:
    path = tmp_path / name
    for ending in ("", "\n", "\n\n", "\r\n"):
        path.write_text(text + ending, newline="")
        trace = read_trace(path)
        assert {key: getattr(trace, key)[0] for key in expected} == expected
        assert trace.source == str(path)


def test_gavel7_is_written_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "old.trace"
    path.write_text(GAVEL7 + "\n")
    write_trace(read_trace(path), tmp_path / "copy.trace", "gavel7")
    assert (tmp_path / "copy.trace").read_text() == GAVEL7 + "\n"


def test_packed_files_are_equal_for_equal_traces(tmp_path: Path) -> None:
    trace = Trace(["LM"], [1], [5], [0])
    write_trace(trace, tmp_path / "a.trace.gz")
    write_trace(trace, tmp_path / "b.trace.gz")
    assert (tmp_path / "a.trace.gz").read_bytes() == (tmp_path / "b.trace.gz").read_bytes()
    assert gzip.decompress((tmp_path / "a.trace.gz").read_bytes()).startswith(b"LM\t")


def test_empty_traces(tmp_path: Path) -> None:
    empty = Trace([], [], [], [])
    for name in ("t.trace", "t.csv", "t.parquet"):
        write_trace(empty, tmp_path / name)
        assert len(read_trace(tmp_path / name)) == 0


def change(line: str, position: int, value: str) -> str:
    cells = line.split("\t")
    cells[position] = value
    return "\t".join(cells)


@pytest.mark.parametrize(
    ("text", "line", "field", "found"),
    [
        (f"{GAVEL}\n{change(GAVEL, 5, 'many')}", 2, "total_steps", "many"),
        (f"{GAVEL}\n{change(GAVEL, 5, '1.5')}", 2, "total_steps", "1.5"),
        (change(GAVEL, 5, "0"), 1, "total_steps", 0.0),
        (change(GAVEL, 5, "nan"), 1, "total_steps", "nan"),
        (change(GAVEL, 5, "1e300"), 1, "total_steps", "1e300"),
        (change(GAVEL, 6, "0"), 1, "scale_factor", 0),
        (change(GAVEL, 4, "yes"), 1, "needs_data_dir", "yes"),
        (change(GAVEL, 7, "0"), 1, "priority_weight", 0.0),
        (change(GAVEL, 8, "none"), 1, "slo", "none"),
        (change(GAVEL, 8, "0"), 1, "slo", 0.0),
        (change(GAVEL, 9, "inf"), 1, "arrival_time", "inf"),
        (change(GAVEL, 9, "-1"), 1, "arrival_time", -1.0),
        (change(GAVEL, 0, ""), 1, "job_type", ""),
        (f"{GAVEL}\n{GAVEL}\n{change(GAVEL, 9, '0.25')}", 3, "arrival_time", 0.25),
        (f"{GAVEL}\n{GAVEL}\t7", 2, None, "11 fields"),
        (f"{GAVEL}\n\n{GAVEL}", 2, None, ""),
        ("one field", 1, None, "1 fields"),
        (change(SHOCKWAVE, 7, "Static"), 1, "mode", "Static"),
        (change(SHOCKWAVE, 10, "long"), 1, "duration", "long"),
        (change(GAVEL7, 5, "late"), 1, "arrival_time", "late"),
    ],
)
def test_bad_text_is_located(text: str, line: int, field: str | None, found: object, tmp_path: Path) -> None:
    path = tmp_path / "bad.trace"
    path.write_text(text + "\n")
    with pytest.raises(InputError) as caught:
        read_trace(path)
    error = caught.value
    assert (error.source, error.line, error.field, error.found) == (str(path), line, field, found)
    assert str(error).startswith(f"{path}:{line}:")


def test_message_says_everything(tmp_path: Path) -> None:
    path = tmp_path / "bad.trace"
    path.write_text(change(GAVEL, 5, "many"))
    with pytest.raises(InputError) as caught:
        read_trace(path)
    assert str(caught.value) == f"{path}:1: field 'total_steps': found 'many', expected a whole number"


@pytest.mark.parametrize(
    ("text", "line", "field", "found"),
    [
        (f"{TABLE}\nLM,1,5,0\nLM,1,5,soon", 3, "arrival_time", "soon"),
        (f"# note\n{TABLE}\nLM,1,5,0\nLM,1,-5,0", 4, "total_steps", -5.0),
        (f"{TABLE}\nLM,1,5,9\nLM,1,5,8", 3, "arrival_time", 8.0),
        (f"{TABLE}\nLM,1,5,0\nLM,1,5,1e300", 3, "arrival_time", 1e300),
        (f"{TABLE}\nLM,1,1e300,0", 2, "total_steps", 1e300),
        (f"{TABLE},duration\nLM,1,5,0,1e300", 2, "duration", 1e300),
        (f"{TABLE}\nLM,1.5,5,0", 2, "scale_factor", 1.5),
        (f"{TABLE}\nLM,,5,0", 2, "scale_factor", None),
        (f"{TABLE}\nLM,1,5", 2, "arrival_time", None),
        (f"{TABLE},needs_data_dir\nLM,1,5,0,maybe", 2, "needs_data_dir", "maybe"),
        (f"{TABLE},mode\nLM,1,5,0,gsn", 2, "mode", "gsn"),
        (f"{TABLE},slo\nLM,1,5,0,nan", 2, "slo", "nan"),
        (f"{TABLE},job_id\nLM,1,5,0,1", 2, "job_id", 1),
        (f"{TABLE},priority\nLM,1,5,0,1", None, "priority", "priority"),
    ],
)
def test_bad_tables_are_located(text: str, line: int | None, field: str, found: object, tmp_path: Path) -> None:
    path = tmp_path / "bad.csv"
    path.write_text(text + "\n")
    with pytest.raises(InputError) as caught:
        read_trace(path)
    error = caught.value
    assert (error.source, error.line, error.field, error.found) == (str(path), line, field, found)


def test_misspelt_names_get_a_hint(tmp_path: Path) -> None:
    frame = pd.DataFrame({"job_type": ["LM"], "scale_factor": [1], "total_steps": [5], "arival_time": [0]})
    with pytest.raises(InputError, match="did you mean 'arrival_time'"):
        Trace.from_frame(frame)
    with pytest.raises(InputError, match="did you mean 'gavel'"):
        read_trace(tmp_path / "t.trace", "gavell")
    with pytest.raises(InputError, match="did you mean 'gns'"):
        Trace(["LM"], [1], [5], [0], mode=["gnss"])


def test_frame_with_index_of_job_ids_and_gaps() -> None:
    frame = pd.DataFrame(
        {
            "job_id": [0, 1],
            "job_type": ["LM", "A3C"],
            "scale_factor": [1, 2],
            "total_steps": [5, 6],
            "arrival_time": [0, 1],
            "slo": [None, 1.5],
            "mode": [None, "gns"],
            "needs_data_dir": [True, False],
        }
    )
    trace = Trace.from_frame(frame)
    assert np.isnan(trace.slo[0])
    assert trace.slo[1] == 1.5
    assert trace.mode.tolist() == ["static", "gns"]
    assert trace.needs_data_dir.tolist() == [True, False]
    assert trace.head(1).job_type.tolist() == ["LM"]


@pytest.mark.parametrize(
    ("columns", "format", "field"),
    [
        ({"mode": ["gns"]}, "gavel", "mode"),
        ({"priority_weight": [1.5]}, "gavel", "priority_weight"),
        ({"total_steps": [5.5]}, "gavel", "total_steps"),
        ({"slo": [2.0]}, "gavel7", "slo"),
        ({"priority_weight": [5.0]}, "gavel7", "priority_weight"),
        ({"working_directory": ["lm"]}, "gavel7", "working_directory"),
        ({"arrival_time": [0.5], "duration": [9]}, "shockwave", "arrival_time"),
        ({"duration": [9.5]}, "shockwave", "duration"),
        ({}, "shockwave", "duration"),
    ],
)
def test_losses_are_refused_unless_asked_for(columns: dict, format: str, field: str, tmp_path: Path) -> None:
    path = tmp_path / "t.trace"
    job = {"job_type": ["LM"], "scale_factor": [1], "total_steps": [5.0], "arrival_time": [0.0]}
    trace = Trace(**{**job, **columns})
    with pytest.raises(InputError) as caught:
        write_trace(trace, path, format)
    assert (caught.value.line, caught.value.field) == (1, field)
    assert not path.exists()
    write_trace(trace, path, format, lossy=True)
    assert read_trace(path).job_type.tolist() == ["LM"]


@pytest.mark.parametrize(
    "columns",
    [
        {"job_type": ["L\tM"]},
        {"command": ["a\nb"]},
        {"total_steps": [0.5]},
        {"priority_weight": [0.5]},
        {"slo": [1e-9]},
    ],
)
def test_what_could_not_be_read_back_is_never_written(columns: dict, tmp_path: Path) -> None:
    job = {"job_type": ["LM"], "scale_factor": [1], "total_steps": [5.0], "arrival_time": [0.0]}
    with pytest.raises(InputError) as caught:
        write_trace(Trace(**{**job, **columns}), tmp_path / "t.trace", "gavel", lossy=True)
    assert caught.value.field in columns


def test_table_format_needs_its_extension(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"\.parquet"):
        write_trace(Trace([], [], [], []), tmp_path / "t.trace", "table")


def test_auto_writes_shockwave_for_dynamic_jobs(tmp_path: Path) -> None:
    write_trace(Trace(["LM"], [1], [5], [0], mode=["gns"], duration=[9]), tmp_path / "t.trace")
    assert (tmp_path / "t.trace").read_text().count("\t") == 11


def test_predicted_durations_are_kept_in_tables_and_refused_elsewhere(tmp_path: Path) -> None:
    trace = Trace(["A3C"] * 2, [1, 1], [10, 10], [0, 5], duration=[10, 20], predicted_seconds=[np.nan, 12.5])
    for name in ("t.csv", "t.parquet"):
        check_round_trip(trace, tmp_path / name, "table")
    with pytest.raises(InputError, match="predicted_seconds"):
        write_trace(trace, tmp_path / "t.trace", "gavel")
    write_trace(trace, tmp_path / "t.trace", "gavel", lossy=True)
    assert np.isnan(read_trace(tmp_path / "t.trace").predicted_seconds).all()
    for wrong in (0.0, -3.0, np.inf):
        with pytest.raises(InputError, match=r"field 'predicted_seconds': found .*, expected positive seconds"):
            Trace(["A3C"], [1], [10], [0], predicted_seconds=[wrong])
