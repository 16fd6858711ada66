"""The oracle: look-ups, co-location, what it refuses, every file format, and folders of figures."""

from __future__ import annotations

import gzip
import json

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from throughputs import Configurations, InputError, ThroughputTable, default_table, read_table, write_table

TABLE_FILES = ("t.json", "t.json.gz", "t.csv", "t.csv.gz", "t.parquet")


@pytest.fixture
def table():
    return ThroughputTable(
        keys=[("LM", 1), ("LM", 2), ("A3C", 1)],
        accelerators=["v100", "k80"],
        isolated=[[40.0, 10.0], [70.0, np.nan], [8.0, 0.0]],
        pairs=[[0, 2], [0, 0]],
        colocated=[[[30.0, 5.0], [np.nan, np.nan]], [[21.0, 22.0], [4.0, 4.0]]],
    )


def as_dicts(table):
    """The figures of a table without their order."""
    alone, together = {}, {}
    for m, accelerator in enumerate(table.accelerators):
        for k, key in enumerate(table.keys):
            if not np.isnan(table.isolated[k, m]):
                alone[key, accelerator] = table.isolated[k, m]
        for p, (a, b) in enumerate(table.pairs.tolist()):
            mine, its = table.colocated[p, m]
            if not np.isnan(mine):
                together[table.keys[b], table.keys[a], accelerator] = (its, mine)
                together[table.keys[a], table.keys[b], accelerator] = (mine, its)
    return alone, together


def test_figures_come_in_the_order_asked_for(table):
    rates = table.rates(["A3C", "LM", "LM"], [1, 2, 1], ["k80", "v100"])
    assert rates.tolist() == [[0.0, 8.0], [0.0, 70.0], [10.0, 40.0]]
    rates[:] = 0.0  # a copy
    assert table.rates(["LM"], [1], ["v100"])[0, 0] == 40.0
    assert table.rates([], [], ["v100", "k80"]).shape == (0, 2)
    with pytest.raises(ValueError, match="read-only"):
        table.isolated[0, 0] = 0.0
    matrix = table.matrix(["x", "y"], ["LM", "LM"], [2, 1], ["v100"])
    assert (matrix.jobs, matrix.scale_factors.tolist(), matrix.rates.tolist()) == (("x", "y"), [2, 1], [[70.0], [40.0]])
    assert table.colocated_rates("LM", 1, "A3C", 1, ["k80", "v100"]).tolist() == [[0, 0], [30, 5]]
    assert table.colocated_rates("A3C", 1, "LM", 1, ["v100"]).tolist() == [[5, 30]]
    assert table.colocated_rates("LM", 2, "A3C", 1, ["v100"]).tolist() == [[0, 0]]
    assert (table.job_types, table.scale_factors, table.scale_factors_of("A3C")) == (("LM", "A3C"), (1, 2), (1,))


@pytest.mark.parametrize(
    ("name", "size", "accelerator", "words"),
    [
        ("A3", 1, "v100", "job type|'A3'|'A3C'"),
        ("LM", 4, "v100", "'LM'|found 4|1, 2"),
        ("LM", 1, "V100", "accelerator|'V100'|v100, k80|'v100'"),
    ],
)
def test_unknown_keys_are_named(table, name, size, accelerator, words):
    with pytest.raises(InputError) as caught:
        table.rates(["LM", name], [1, size], [accelerator])
    assert [word for word in words.split("|") if word not in str(caught.value)] == []


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"isolated": [[-1.0, 1.0]]}, "('LM', 1) on 'v100'"),
        ({"isolated": [[1.0, np.inf]]}, "('LM', 1) on 'k80'"),
        ({"keys": [("LM", 0)]}, "scale factor of 'LM'"),
        ({"keys": [("LM", 1)] * 2, "isolated": [[1, 1]] * 2}, "keys"),
        ({"pairs": [[0, 1]], "colocated": [[[1, 1], [1, 1]]]}, "pairs"),
        ({"pairs": [[0, 0]] * 2, "colocated": [[[1, 1], [1, 1]]] * 2}, "pairs"),
        ({"pairs": [[0, 0]], "colocated": [[[1, -1], [1, 1]]]}, "('LM', 1) beside ('LM', 1) on 'v100'"),
        ({"pairs": [[0, 0]], "colocated": [[[1, np.nan], [1, 1]]]}, "('LM', 1) beside ('LM', 1) on 'v100'"),
    ],
)
def test_bad_arrays_are_refused(change, field):
    with pytest.raises(InputError) as caught:
        ThroughputTable(**{"keys": [("LM", 1)], "accelerators": ["v100", "k80"], "isolated": [[1.0, 2.0]]} | change)
    assert caught.value.field == field


names = st.text(st.characters(exclude_categories=["C", "Z"]), min_size=1, max_size=12)


@st.composite
def tables(draw):
    keys = draw(st.lists(st.tuples(names, st.integers(1, 64)), min_size=1, max_size=4, unique=True))
    accelerators = draw(st.lists(names, min_size=1, max_size=3, unique=True))
    position = st.integers(0, len(keys) - 1)
    pairs = draw(st.lists(st.tuples(position, position), max_size=4, unique_by=lambda p: (min(p), max(p))))

    def figures(*shape):
        n = int(np.prod(shape))
        drawn = np.reshape(draw(st.lists(st.floats(0, 1e9), min_size=n, max_size=n)), shape)
        drawn[np.reshape(draw(st.lists(st.booleans(), min_size=n, max_size=n)), shape)[..., :1].nonzero()[:2]] = np.nan
        return drawn

    isolated = figures(len(keys), len(accelerators), 1)[..., 0]
    isolated[:, 0] = 1.5  # a type or key without any figure is in no file
    isolated[0] = 2.5
    return ThroughputTable(
        keys, accelerators, isolated, np.reshape(pairs, (-1, 2)), figures(len(pairs), len(accelerators), 2)
    )


@pytest.mark.parametrize("name", TABLE_FILES)
def test_every_format_keeps_all_figures_and_what_was_not_profiled(name, tmp_path):
    @settings(max_examples=20)
    @given(tables())
    def check(table):
        write_table(table, tmp_path / name)
        for again in (read_table(tmp_path / name), ThroughputTable.from_frame(table.to_frame())):
            assert as_dicts(again) == as_dicts(table)

    check()
    assert [path.name for path in tmp_path.iterdir()] == [name]


HEADER = "job_type,scale_factor,accelerator,throughput\n"
PAIR_HEADER = HEADER.strip() + ",other_job_type,other_scale_factor,other_throughput\n"


def refusal(path, text):
    path.write_text(text)
    with pytest.raises(InputError) as caught:
        read_table(path)
    assert caught.value.source == str(path)
    return caught.value.line, caught.value.field


@pytest.mark.parametrize(
    ("text", "line", "field"),
    [
        (HEADER + "LM,1,v100,1\n\nLM,2,v100,1\n", 3, "job_type"),
        (HEADER + "LM,1,v100,1\nLM,1,v100,2\n", 3, "throughput"),
        (PAIR_HEADER + "LM,1,v100,1,A3C,1,2\nA3C,1,v100,3,LM,1,1\n", 3, "throughput"),
    ],
)
def test_rows_that_contradict_each_other_are_located(text, line, field, tmp_path):
    assert refusal(tmp_path / "bad.csv", text) == (line, field)
    (tmp_path / "t.csv").write_text(PAIR_HEADER + "LM,1,v100,1,A3C,1,2\nA3C,1,v100,2,LM,1,1\n")
    assert read_table(tmp_path / "t.csv").colocated_rates("A3C", 1, "LM", 1, ["v100"]).tolist() == [[2.0, 1.0]]


KEY = "('LM', 1)"


@pytest.mark.parametrize(
    ("content", "field"),
    [
        *(({"v100": {key: {"null": 1.0}}}, f"v100 / {key}") for key in ("LM", "('LM', 0)", "__import__('os')")),
        *(({"v100": {KEY: {"null": value}}}, f"v100 / {KEY} / null") for value in (-1.0, float("nan"), "1")),
        *(({"v100": {KEY: {KEY: value}}}, f"v100 / {KEY} / {KEY}") for value in ([1.0], [1.0, None])),
        ({"v100": {KEY: {"('A', 1)": [1, 2]}, "('A', 1)": {KEY: [1, 2]}}}, f"v100 / ('A', 1) / {KEY}"),
        ({"v100": [1]}, "v100"),
        ([1], None),
    ],
)  # fmt: skip
def test_bad_json_is_located_by_key_path(content, field, tmp_path):
    assert refusal(tmp_path / "bad.json", json.dumps(content))[1] == field


def test_a_failed_write_leaves_the_old_file(tmp_path, monkeypatch, table):
    path = tmp_path / "t.parquet"
    write_table(table, path)
    before = path.read_bytes()

    def fail(_frame, target, **_):
        target.write_bytes(b"half")
        raise OSError("disk full")

    monkeypatch.setattr(pd.DataFrame, "to_parquet", fail)
    with pytest.raises(OSError, match="disk full"):
        write_table(table, path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]
    with pytest.raises(InputError, match=r"\.json, \.json\.gz"):
        write_table(table, tmp_path / "table.xlsx")


@pytest.mark.parametrize("name", ["gavel/simulation", pytest.param("shockwave/tacc", marks=pytest.mark.exhaustive)])
def test_public_tables_are_read_in_full(name, public_data, tmp_path):
    path = public_data(f"{name}_throughputs.json.gz")
    table, content = read_table(path), json.loads(gzip.decompress(path.read_bytes()))
    assert table.accelerators == tuple(content)
    alone, together = {}, {}
    for accelerator, jobs in content.items():
        for text, entries in jobs.items():
            for other, value in entries.items():
                if other == "null":
                    alone[eval(text), accelerator] = value
                else:
                    together[eval(text), eval(other), accelerator] = tuple(value)
    assert len(alone) == 492
    assert as_dicts(table) == (alone, together)
    write_table(table, tmp_path / "copy.json")
    assert json.loads((tmp_path / "copy.json").read_text()) == content
    if name == "gavel/simulation":
        embedded = default_table()
        types, sizes = zip(*table.keys[::-1], strict=True)
        assert embedded.keys == table.keys
        assert not embedded.has_colocation
        for one in (embedded, table):
            np.testing.assert_array_equal(one.rates(types, sizes, embedded.accelerators), embedded.isolated[::-1])


DIGITS = ("0", "two", "²", "9" * 20, "1.0")
BERT = "global_batch_size,1,2,4\n64,6.0,8.5,0\n128,3.5,nan,\n"


def folder(tmp_path, name="throughputs_A100", **files):
    path = tmp_path / name
    path.mkdir(exist_ok=True)
    for model, text in files.items():
        (path / f"{model}.csv").write_bytes(text.encode())
    return path


def test_a_folder_has_keys_where_something_was_profiled(tmp_path):
    path = folder(tmp_path, bert=BERT, vgg16="global_batch_size,8,1\r\n64,2.5,1.5\r\n")
    (path / "notes.txt").write_text("not read")
    (path / "vgg16.csv").rename(path / "vgg16.CSV")
    table = read_table(path)
    assert table.accelerators == ("a100",)
    sizes = [(f"bert (batch size {batch})", gpus) for batch, gpus in ((64, 1), (64, 2), (128, 1))]
    assert table.keys == (*sizes, ("vgg16 (batch size 64)", 8), ("vgg16 (batch size 64)", 1))
    assert table.isolated[:, 0].tolist() == [6.0, 8.5, 3.5, 2.5, 1.5]
    assert Configurations.from_table(table, ["bert (batch size 64)"], ["a100"]).gpus.tolist() == [1, 2]
    other = folder(tmp_path, "profiles", bert=BERT)
    assert read_table(other, "v100").accelerators == ("v100",)
    for path, told in ((other, "throughputs_TYPE"), (folder(tmp_path, "throughputs_K80"), "MODEL")):
        with pytest.raises(InputError, match=told):
            read_table(path)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("batch,1\n64,1\n", "bert.csv:1: found 'batch'"),
        ("global_batch_size,1,1\n64,1,1\n", "bert.csv:1"),
        *((f"global_batch_size,{size}\n64,1\n", f"bert.csv:1: found '{size}'") for size in DIGITS),
        *((f"global_batch_size,1\n{size},1\n", ":2: field 'global_batch_size': found") for size in DIGITS[:-1]),
        ("global_batch_size,1\n64,1\n64,2\n", "bert.csv:3"),
        ("global_batch_size,1,16\n64,1,-2\n", "bert.csv:2: field '16': found -2"),
        ("global_batch_size,1\n64,1,2\n", "bert.csv:2: found 'more values'"),
        ("# A100\nglobal_batch_size,1\n64,1\n\n64,1\n", "bert.csv:4: field 'global_batch_size': found nothing"),
        (f"global_batch_size,1\n64,{'1' * 200_000}\n", "bert.csv"),
    ],
)  # fmt: skip
def test_bad_files_of_a_folder_are_named(text, told, tmp_path):
    with pytest.raises(InputError) as caught:
        read_table(folder(tmp_path, bert=text))
    assert told in str(caught.value)


def test_a_table_has_a_type_with_the_numbers_of_gpus_that_it_tells():
    table = ThroughputTable([("a", 1), ("a", 4), ("b", 2)], ["v100"], [[1.0], [3.0], [2.0]])
    assert table.has(["a", "a", "b", "b", "c"], [4, 2, 2, 1, 1]).tolist() == [True, False, True, False, False]
