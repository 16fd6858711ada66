"""The oracle: look-ups, co-location, messages, the tidy form and the files."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from throughputs import InputError, ThroughputTable, default_table, read_table, write_table

TABLE_FILES = ("t.json", "t.json.gz", "t.csv", "t.csv.gz", "t.parquet")


@pytest.fixture
def table() -> ThroughputTable:
    return ThroughputTable(
        keys=[("LM", 1), ("LM", 2), ("A3C", 1)],
        accelerators=["v100", "k80"],
        isolated=[[40.0, 10.0], [70.0, np.nan], [8.0, 0.0]],
        pairs=[[0, 2], [0, 0]],
        colocated=[[[30.0, 5.0], [np.nan, np.nan]], [[21.0, 22.0], [4.0, 4.0]]],
    )


def as_dicts(table: ThroughputTable) -> tuple[dict, dict]:
    """The figures of a table without their order."""
    alone = {
        (key, accelerator): table.isolated[k, m]
        for k, key in enumerate(table.keys)
        for m, accelerator in enumerate(table.accelerators)
        if not np.isnan(table.isolated[k, m])
    }
    together = {}
    for p, (a, b) in enumerate(table.pairs.tolist()):
        for m, accelerator in enumerate(table.accelerators):
            mine, its = table.colocated[p, m]
            if not np.isnan(mine):
                together[table.keys[b], table.keys[a], accelerator] = (its, mine)
                together[table.keys[a], table.keys[b], accelerator] = (mine, its)
    return alone, together


def test_rates_follow_the_order_asked_for(table: ThroughputTable) -> None:
    rates = table.rates(["A3C", "LM", "LM"], [1, 2, 1], ["k80", "v100"])
    assert rates.tolist() == [[0.0, 8.0], [0.0, 70.0], [10.0, 40.0]]


def test_rates_of_no_jobs_have_a_shape(table: ThroughputTable) -> None:
    assert table.rates([], [], ["v100", "k80"]).shape == (0, 2)


def test_rates_are_a_copy(table: ThroughputTable) -> None:
    table.rates(["LM"], [1], ["v100"])[0, 0] = 0.0
    assert table.rates(["LM"], [1], ["v100"])[0, 0] == 40.0
    with pytest.raises(ValueError, match="read-only"):
        table.isolated[0, 0] = 0.0


def test_rates_of_many_jobs_agree_with_rates_one_by_one() -> None:
    table = default_table()
    picks = np.random.default_rng(0).integers(0, len(table.keys), 500)
    names = [table.keys[k][0] for k in picks]
    sizes = [table.keys[k][1] for k in picks]
    together = table.rates(names, sizes, table.accelerators)
    alone = [table.rates([n], [s], table.accelerators)[0] for n, s in zip(names, sizes, strict=True)]
    np.testing.assert_array_equal(together, alone)


def test_matrix_carries_labels(table: ThroughputTable) -> None:
    matrix = table.matrix(["x", "y"], ["LM", "LM"], [2, 1], ["v100"])
    assert matrix.jobs == ("x", "y")
    assert matrix.accelerators == ("v100",)
    assert matrix.scale_factors.tolist() == [2, 1]
    assert matrix.rates.tolist() == [[70.0], [40.0]]


def test_colocated_rates_in_either_order(table: ThroughputTable) -> None:
    assert table.colocated_rates("LM", 1, "A3C", 1, ["k80", "v100"]).tolist() == [[0, 0], [30, 5]]
    assert table.colocated_rates("A3C", 1, "LM", 1, ["v100"]).tolist() == [[5, 30]]
    assert table.colocated_rates("LM", 2, "A3C", 1, ["v100"]).tolist() == [[0, 0]]
    assert table.has_colocation


def test_properties(table: ThroughputTable) -> None:
    assert table.job_types == ("LM", "A3C")
    assert table.scale_factors == (1, 2)
    assert table.scale_factors_of("A3C") == (1,)


@pytest.mark.parametrize(
    ("name", "size", "accelerator", "words"),
    [
        ("A3", 1, "v100", ["job type", "'A3'", "did you mean 'A3C'"]),
        ("LM", 4, "v100", ["scale factor of 'LM'", "found 4", "one of 1, 2"]),
        ("LM", 1, "V100", ["accelerator", "'V100'", "one of v100, k80", "did you mean 'v100'"]),
    ],
)
def test_unknown_keys_are_named(
    table: ThroughputTable, name: str, size: int, accelerator: str, words: list[str]
) -> None:
    with pytest.raises(InputError) as caught:
        table.rates(["LM", name], [1, size], [accelerator])
    assert [word for word in words if word not in str(caught.value)] == []


def test_lengths_must_agree(table: ThroughputTable) -> None:
    with pytest.raises(InputError, match="a scale factor for each job type"):
        table.rates(["LM", "LM"], [1], ["v100"])


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"isolated": [[-1.0, 1.0]]}, "('LM', 1) on 'v100'"),
        ({"isolated": [[1.0, np.inf]]}, "('LM', 1) on 'k80'"),
        ({"isolated": [[1.0]]}, "isolated"),
        ({"keys": [("LM", 0)]}, "scale factor of 'LM'"),
        ({"keys": [("LM", 1.5)]}, "scale factor of 'LM'"),
        ({"keys": [("", 1)]}, "keys"),
        ({"keys": [("LM", 1), ("LM", 1)], "isolated": [[1, 1], [1, 1]]}, "keys"),
        ({"accelerators": ["v100", "v100"]}, "accelerators"),
        ({"pairs": [[0, 1]], "colocated": [[[1, 1], [1, 1]]]}, "pairs"),
        ({"pairs": [[0, 0], [0, 0]], "colocated": [[[1, 1], [1, 1]]] * 2}, "pairs"),
        ({"pairs": [[0, 0]], "colocated": [[[1, 1]]]}, "colocated"),
        ({"pairs": [[0, 0]], "colocated": [[[1, -1], [1, 1]]]}, "('LM', 1) beside ('LM', 1) on 'v100'"),
        ({"pairs": [[0, 0]], "colocated": [[[1, np.nan], [1, 1]]]}, "pair (0, 0) on 'v100'"),
    ],
)
def test_bad_arrays_are_refused(change: dict, field: str) -> None:
    good = {"keys": [("LM", 1)], "accelerators": ["v100", "k80"], "isolated": [[1.0, 2.0]]}
    with pytest.raises(InputError) as caught:
        ThroughputTable(**{**good, **change})
    assert caught.value.field == field


def test_frame_of_isolated_figures_has_four_columns() -> None:
    frame = default_table().to_frame()
    assert list(frame.columns) == ["job_type", "scale_factor", "accelerator", "throughput"]
    assert len(frame) == 249


names = st.text(st.characters(exclude_categories=["C", "Z"]), min_size=1, max_size=12)
figures = st.floats(0, 1e9, allow_nan=False)


@st.composite
def tables(draw: st.DrawFn) -> ThroughputTable:
    keys = draw(st.lists(st.tuples(names, st.integers(1, 64)), min_size=1, max_size=4, unique=True))
    accelerators = draw(st.lists(names, min_size=1, max_size=3, unique=True))
    shape = (len(keys), len(accelerators))
    isolated = draw(st.lists(figures, min_size=shape[0] * shape[1], max_size=shape[0] * shape[1]))
    position = st.integers(0, len(keys) - 1)
    pairs = draw(st.lists(st.tuples(position, position), max_size=4, unique_by=lambda p: (min(p), max(p))))
    n_pairs = (len(pairs), len(accelerators), 2)
    colocated = draw(st.lists(figures, min_size=int(np.prod(n_pairs)), max_size=int(np.prod(n_pairs))))
    return ThroughputTable(
        keys,
        accelerators,
        np.reshape(isolated, shape),
        np.reshape(pairs, (-1, 2)),
        np.reshape(colocated, n_pairs),
    )


@given(tables())
def test_frame_round_trip(table: ThroughputTable) -> None:
    assert as_dicts(ThroughputTable.from_frame(table.to_frame())) == as_dicts(table)


@pytest.mark.parametrize("name", TABLE_FILES)
def test_file_round_trip(name: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("tables")

    @given(tables())
    def check(table: ThroughputTable) -> None:
        write_table(table, folder / name)
        assert as_dicts(read_table(folder / name)) == as_dicts(table)

    check()
    assert [path.name for path in folder.iterdir()] == [name]  # no temporary file stays behind


@pytest.mark.parametrize("name", TABLE_FILES)
def test_unprofiled_figures_stay_unprofiled(table: ThroughputTable, name: str, tmp_path: Path) -> None:
    write_table(table, tmp_path / name)
    back = read_table(tmp_path / name)
    assert as_dicts(back) == as_dicts(table)
    assert back.colocated_rates("LM", 1, "LM", 1, ["v100"]).tolist() == [[21.0, 22.0]]


HEADER = "job_type,scale_factor,accelerator,throughput\n"
PAIR_HEADER = HEADER.strip() + ",other_job_type,other_scale_factor,other_throughput\n"


@pytest.mark.parametrize(
    ("text", "line", "field", "found"),
    [
        (HEADER + "LM,1,v100,1\nLM,2,v100,fast\n", 3, "throughput", "fast"),
        ("# a\n# b\n" + HEADER + "LM,1,v100,-2\n", 4, "throughput", -2.0),
        (HEADER + "LM,1,v100,nan\n", 2, "throughput", "nan"),
        (HEADER + "LM,1,v100,inf\n", 2, "throughput", float("inf")),
        (HEADER + "LM,1,v100,\n", 2, "throughput", None),
        (HEADER + "LM,1.5,v100,1\n", 2, "scale_factor", 1.5),
        (HEADER + "LM,0,v100,1\n", 2, "scale_factor", 0),
        (HEADER + ",1,v100,1\n", 2, "job_type", None),
        (HEADER + "LM,1,v100,1\n\nLM,2,v100,1\n", 3, "job_type", None),
        (HEADER + "LM,1,v100,1\nLM,1,v100,2\n", 3, "throughput", 2.0),
        ("job_type,scale_factor,accelerator,troughput\n", None, "troughput", "troughput"),
        ("job_type,scale_factor,accelerator\n", None, "throughput", None),
        (HEADER + "LM,1,v100,1,7\n", 2, None, "5 values"),
        (PAIR_HEADER + "LM,1,v100,1,LM,1,\n", 2, "other_throughput", None),
        (PAIR_HEADER + "LM,1,v100,1,,1,\n", 2, "other_scale_factor", 1.0),
        (PAIR_HEADER + "LM,1,v100,1,LM,1.5,1\n", 2, "other_scale_factor", 1.5),
        (PAIR_HEADER + "LM,1,v100,1,A3C,1,2\nA3C,1,v100,3,LM,1,1\n", 3, "throughput", (3.0, 1.0)),
        (HEADER + "LM,1,v100,1\nLM,2,v100,1,7,8\n", 3, None, "6 values"),
        (HEADER.replace("job_type", "throughput"), None, "throughput", "2 columns"),
        ("", 1, None, None),
        ("# only a comment\n", 2, None, None),
    ],
)
def test_bad_csv_is_located(text: str, line: int | None, field: str | None, found: object, tmp_path: Path) -> None:
    path = tmp_path / "bad.csv"
    path.write_text(text)
    with pytest.raises(InputError) as caught:
        read_table(path)
    error = caught.value
    assert (error.source, error.line, error.field) == (str(path), line, field)
    if not isinstance(error.found, list):
        assert error.found == found


def test_windows_line_ends_and_byte_order_mark(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("\ufeff# note\n" + HEADER + "LM,1,v100,1.5\n\n", encoding="utf-8", newline="\r\n")
    assert read_table(path).rates(["LM"], [1], ["v100"]).tolist() == [[1.5]]


def test_both_orders_of_a_pair_may_be_given(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text(PAIR_HEADER + "LM,1,v100,1,A3C,1,2\nA3C,1,v100,2,LM,1,1\n")
    assert read_table(path).colocated_rates("A3C", 1, "LM", 1, ["v100"]).tolist() == [[2.0, 1.0]]


KEY = "('LM', 1)"


@pytest.mark.parametrize(
    ("content", "field"),
    [
        ({"v100": {"LM": {"null": 1.0}}}, "v100 / LM"),
        ({"v100": {"('LM', 1": {"null": 1.0}}}, "v100 / ('LM', 1"),
        ({"v100": {"('LM', 0)": {"null": 1.0}}}, "v100 / ('LM', 0)"),
        ({"v100": {"('LM', True)": {"null": 1.0}}}, "v100 / ('LM', True)"),
        ({"v100": {"__import__('os')": {"null": 1.0}}}, "v100 / __import__('os')"),
        ({"v100": {KEY: {"null": -1.0}}}, f"v100 / {KEY} / null"),
        ({"v100": {KEY: {"null": float("nan")}}}, f"v100 / {KEY} / null"),
        ({"v100": {KEY: {"null": "1"}}}, f"v100 / {KEY} / null"),
        ({"v100": {KEY: {KEY: [1.0]}}}, f"v100 / {KEY} / {KEY}"),
        ({"v100": {KEY: {KEY: [1.0, None]}}}, f"v100 / {KEY} / {KEY}"),
        ({"v100": {KEY: {"(1, 1)": [1.0, 1.0]}}}, f"v100 / {KEY} / (1, 1)"),
        ({"v100": {KEY: {"('A', 1)": [1, 2]}, "('A', 1)": {KEY: [1, 2]}}}, f"v100 / ('A', 1) / {KEY}"),
        ({"v100": [1]}, "v100"),
        ([1], None),
    ],
)
def test_bad_json_is_located_by_key_path(content: object, field: str | None, tmp_path: Path) -> None:
    path = tmp_path / "bad.json"
    path.write_text(json.dumps(content))
    with pytest.raises(InputError) as caught:
        read_table(path)
    assert (caught.value.source, caught.value.field) == (str(path), field)
    assert str(path) in str(caught.value)


def test_broken_json_is_located_by_line(tmp_path: Path) -> None:
    path = tmp_path / "bad.json"
    path.write_text('{"v100":\n {,}}')
    with pytest.raises(InputError) as caught:
        read_table(path)
    assert caught.value.line == 2


def test_repeated_json_key_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "bad.json"
    path.write_text('{"v100": {}, "v100": {}}')
    with pytest.raises(InputError, match="each key once"):
        read_table(path)


@pytest.mark.parametrize("name", ["table.xlsx", "table", ".csvx"])
def test_unknown_extension_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"\.json, \.json\.gz"):
        read_table(tmp_path / name)
    with pytest.raises(InputError, match=r"\.json, \.json\.gz"):
        write_table(default_table(), tmp_path / name)


def test_files_that_are_not_what_their_name_says(tmp_path: Path) -> None:
    for name in ("t.json.gz", "t.csv.gz", "t.parquet"):
        (tmp_path / name).write_bytes(b"plain text")
        with pytest.raises(InputError, match=name):
            read_table(tmp_path / name)
    (tmp_path / "t.csv").write_bytes(HEADER.encode() + b"caf\xe9,1,v100,1\n")
    with pytest.raises(InputError) as caught:
        read_table(tmp_path / "t.csv")
    assert caught.value.line == 2


def test_missing_file_is_an_os_error(tmp_path: Path) -> None:
    for name in TABLE_FILES:
        with pytest.raises(FileNotFoundError, match=name):
            read_table(tmp_path / name)


def test_failed_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "t.parquet"
    write_table(default_table(), path)
    before = path.read_bytes()

    def fail(_: pd.DataFrame, target: Path, **__: object) -> None:
        Path(target).write_bytes(b"half")
        raise OSError("disk full")

    monkeypatch.setattr(pd.DataFrame, "to_parquet", fail)
    with pytest.raises(OSError, match="disk full"):
        write_table(default_table(), path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_frame_with_numbers_as_text_and_a_missing_column() -> None:
    frame = pd.DataFrame({"job_type": ["LM"], "scale_factor": ["1"], "accelerator": ["v100"]})
    with pytest.raises(InputError, match="field 'throughput'"):
        ThroughputTable.from_frame(frame)
    assert ThroughputTable.from_frame(frame.assign(throughput="2.5")).isolated.tolist() == [[2.5]]


@pytest.mark.parametrize(
    "name",
    [
        "gavel/simulation_throughputs.json.gz",
        "gavel/physical_cluster_throughputs.json.gz",
        "shockwave/tacc_throughputs.json.gz",
        "shockwave/wisr_throughputs.json.gz",
        "shockwave/actual_throughputs.json.gz",
    ],
)
def test_public_tables_are_read_in_full(name: str, public_data, tmp_path: Path) -> None:
    path = public_data(name)
    table = read_table(path)
    content = json.loads(gzip.decompress(path.read_bytes()))
    assert table.accelerators == tuple(content)
    assert "v100_unconsolidated" in table.accelerators
    alone, together = as_dicts(table)
    expected_alone, expected_together = {}, {}
    for accelerator, jobs in content.items():
        for text, entries in jobs.items():
            key = eval(text)
            for other, value in entries.items():
                if other == "null":
                    expected_alone[key, accelerator] = value
                else:
                    expected_together[key, eval(other), accelerator] = tuple(value)
    assert len(expected_alone) == 492
    assert alone == expected_alone
    assert together == expected_together
    write_table(table, tmp_path / "copy.json")
    assert json.loads((tmp_path / "copy.json").read_text()) == content


def test_default_table_is_the_public_one(public_data) -> None:
    public = read_table(public_data("gavel/simulation_throughputs.json.gz"))
    table = default_table()
    names = [name for name, _ in public.keys]
    sizes = [size for _, size in public.keys]
    assert table.keys == public.keys
    assert table.accelerators == ("v100", "p100", "k80")
    accelerators = table.accelerators
    np.testing.assert_array_equal(table.rates(names, sizes, accelerators), public.rates(names, sizes, accelerators))


def test_default_table_in_figures() -> None:
    table = default_table()
    assert len(table.keys) == 83
    assert len(table.job_types) == 26
    assert table.scale_factors == (1, 2, 4, 8)
    assert not table.has_colocation
    assert table is default_table()
    lone = [name for name in table.job_types if table.scale_factors_of(name) == (1,)]
    assert len(lone) == 7
    cannot_run = {table.keys[k] for k, m in np.argwhere(table.isolated == 0)}
    assert cannot_run == {("ResNet-50 (batch size 128)", size) for size in (2, 4, 8)}


@pytest.mark.parametrize("size", ["inf", "1e300", "1.5", "0", "9007199254740993e3"])
def test_a_partner_has_whole_gpus(tmp_path, size):
    path = tmp_path / "table.csv"
    columns = "job_type,scale_factor,accelerator,throughput,other_job_type,other_scale_factor,other_throughput"
    path.write_text(f"{columns}\na,1,v100,1,,,\nb,1,v100,1,,,\na,1,v100,0.5,b,{size},0.5\n")
    with pytest.raises(
        InputError, match=r"table\.csv:4: field 'other_scale_factor': .*whole number of GPUs, at least 1"
    ):
        read_table(path)
