"""Checkpoint files: what goes in comes out bit for bit; what is damaged, made to harm or cut short is refused."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import pickle
import random
import struct
import subprocess
import sys
import tracemalloc
from collections import OrderedDict
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from allocator.checkpoint.state_file import FORMAT, Part, StateFile
from tests.fuzz.mutations import of_json
from throughputs import InputError
from throughputs.files import write_text

HEADER = {"policy": "max_min_fairness", "trace": "120 jobs, 0123456789abcdef"}
STATE = {
    "clock": 720.5,
    "jobs": (1, 2**70, "ü", None, True),
    "leases": {3: [0, 1], 7: []},
    "rates": np.arange(6.0).reshape(2, 3),
    "done": np.array([True, False]),
    "types": np.array(["v100", "k80"]),
    "never": float("inf"),
}
RECORDED = [{"index": i, "shares": np.full((2, 2), i / 3)} for i in range(3)]


def same(one, other):
    """Equal in value, type and bits, those of arrays all."""
    if type(one) is not type(other):
        return False
    if isinstance(one, float):  # of those that are no number there is one
        return struct.pack("<d", one) == struct.pack("<d", other) or (one != one and other != other)
    if isinstance(one, np.ndarray):
        return (one.dtype, one.shape, one.tobytes()) == (other.dtype, other.shape, other.tobytes())
    if isinstance(one, dict):
        return same(list(one.items()), list(other.items()))
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)


def saved(path):
    """State and parts of a file that is there."""
    found = StateFile(path).read()
    return found.state, [part.tree() for part in found.parts]


def whole_file(folder):
    path = folder / "whole.checkpoint"
    StateFile(path).write(HEADER, STATE, [Part.of(stretch) for stretch in RECORDED])
    return path.read_bytes()


def forged(*parts, **changes):
    """A file whose check sums are right, whatever its parts hold."""
    described = [[len(data), hashlib.sha256(data).hexdigest()] for data in parts]
    text = json.dumps({"header": {}, "parts": described} | changes, separators=(",", ":")).encode() + b"\n"
    return whole(text, *parts)


def whole(manifest, *parts):
    head = f"{FORMAT} {hashlib.sha256(manifest).hexdigest()}\n".encode()
    return b"".join([head, manifest, *parts])


def put(path, data):
    path.unlink(missing_ok=True)  # some file systems flush a file that is emptied and written again
    path.write_bytes(data)


def refused(path, data):
    put(path, data)
    with pytest.raises(InputError) as caught:
        saved(path)
    assert str(path) in str(caught.value)
    return caught.value


DTYPES = ["bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float32", "float64"]
scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**200), 2**200)
    | st.floats()
    | st.text(st.characters(exclude_categories=[]), max_size=8)  # surrogates included
)
arrays = st.sampled_from([*DTYPES, "<U1", "<U7"]).flatmap(
    lambda dtype: hnp.arrays(dtype, hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4))
)
trees = st.recursive(
    scalars | arrays,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.dictionaries(st.text(max_size=5), inner, max_size=4)
        | st.dictionaries(st.integers() | st.text(max_size=3) | st.tuples(st.integers()), inner, max_size=4)
        | st.sets(st.integers() | st.text(max_size=3), max_size=4)
    ),
    max_leaves=12,
)


@given(trees, st.lists(trees, max_size=2))
@settings(max_examples=20)
def test_any_tree_comes_back_bit_for_bit(tmp_path_factory, state, recorded):
    path = tmp_path_factory.getbasetemp() / "any.checkpoint"
    with mock.patch.object(os, "fsync"):  # for speed
        StateFile(path).write(HEADER, state, [Part.of(tree) for tree in recorded])
    assert same(saved(path), (state, recorded))
    assert StateFile(path).read_header() == HEADER


def test_what_is_special_comes_back():
    bits = [0x7FF8000000000123, 0xFFF8000000000000, 0x8000000000000000, 1]
    values = np.array([struct.unpack("<d", struct.pack("<Q", each))[0] for each in bits])
    assert same(Part.of(values).tree(), values)
    scalars = [np.float64(0.1), np.int32(-3), np.bool_(True), np.str_("v100"), np.uint64(2**64 - 1)]
    assert same(Part.of(scalars).tree(), [0.1, -3, True, "v100", 2**64 - 1])
    assert same(Part.of({np.int64(4): 1, np.str_("a"): 2}).tree(), {4: 1, "a": 2})
    records = [(np.full(3, i), np.full((2, 2), i / 7)) for i in range(200)]
    assert same(Part.of(records).tree(), records)


@pytest.mark.parametrize(
    ("value", "word"),
    [
        (object(), "builtins.object"),
        (b"bytes", "builtins.bytes"),
        (OrderedDict(a=1), "OrderedDict"),
        (np.array(["a", None], dtype=object), "array of object"),
        (np.zeros(2, "M8[s]"), "datetime64"),
        (np.zeros(2, ">f8"), "array of >f8"),
        (np.zeros(2, [("a", "f8")]), "array of"),
        (np.ma.zeros(2), "MaskedArray"),
    ],
)
def test_what_is_not_plain_data_is_named_with_its_place(value, word, tmp_path):
    with pytest.raises(TypeError, match=rf"world\.core\[1\]\.ledger.*{word}"):
        StateFile(tmp_path / "a").write({}, {"world": {"core": [0, {"ledger": value}]}})
    assert not list(tmp_path.iterdir())


def test_the_same_contents_are_the_same_bytes(tmp_path):
    assert whole_file(tmp_path) == whole_file(tmp_path)
    parts = [Part.of(tree).data for tree in (STATE, *RECORDED)]
    assert whole_file(tmp_path) == forged(*parts, header=HEADER)  # so that forgeries below differ in one thing only


def test_every_byte_counts(tmp_path):
    whole, path, rng = whole_file(tmp_path), tmp_path / "damaged", random.Random(1)
    for at in range(0, len(whole), 9):
        damaged = bytearray(whole)
        damaged[at] ^= rng.randrange(1, 256)
        refused(path, bytes(damaged))


def array_node(at=0, shape=(3,), dtype="<f8"):
    return {"array": [dtype, at, shape]}


def of_tree(tree, arrays=b""):
    """A file of one tree, and the bytes of the arrays that it speaks of."""
    return forged((tree if isinstance(tree, bytes) else json.dumps(tree).encode()) + b"\n" + arrays)


NULL = b"null\n"
SUM = hashlib.sha256(NULL).hexdigest()
LINE = [5, SUM]

TREES = [
    b"", b"\xff", b"[" * 10**6, b"1" * 5000, b"{}", b'{"bytes": [1]}', b'{"set": [[]]}', b'{"tuple": [], "dict": []}',
    b'{"dict": [1]}', b'{"dict": [[1], []]}', b'{"dict": [[[1]], [2]]}', b'{"array": []}',
    json.dumps(array_node()).encode(),
]  # fmt: skip

ARRAYS = [
    *(array_node(shape=shape) for shape in ([4], [2**60], [-3], [-1, -3], [3.0], 4, [0, 10**30])),
    *(array_node(at=at) for at in (1, None)),
    *(array_node(dtype=dtype) for dtype in ("object", "../tree", ["<f8"], "U99999999", "f8,O")),
]  # fmt: skip


def forgeries():
    for tree in TREES:
        yield of_tree(tree)
        yield forged(NULL, tree)
    yield from (of_tree(tree, bytes(24)) for tree in ARRAYS)
    yield from (of_tree(array_node(), bytes(size)) for size in (0, 16, 23))
    changes = [{"header": 3}, {"header": ["a"]}, {"parts": None}, {"parts": []}, {"parts": [LINE, LINE]}]
    changes += [{"parts": [line]} for line in (LINE[:1], [-5, SUM], [2**64, SUM], [5, SUM[:-1]], [5, 0])]
    yield from (forged(NULL, **change) for change in changes)
    yield from (whole(text + b"\n", NULL) for text in (b"", b"3", b"[]", b"[" * 10**5, b"1" * 5000, b"\xff"))
    good = forged(NULL)
    yield from (good.replace(b"point 4", b"point 3"), good[:-1], good + b"l", good.replace(b"\n", b" \n", 1))
    yield from (b"", b"PK\3\4" * 40, FORMAT.encode(), FORMAT.encode() + b" ", bytes(200), b"\xff" * 200)


def test_forgeries_are_refused(tmp_path):
    for good in (of_tree(array_node(), bytes(24)), forged(NULL)):
        put(tmp_path / "a", good)
        saved(tmp_path / "a")
    for data in forgeries():
        refused(tmp_path / "a", data)


class Harmful:
    def __reduce__(self):
        return os.mkdir, ("harm",)


def test_pickles_are_refused_and_never_read(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    payload = pickle.dumps(Harmful())
    line = json.dumps({"format": "allocator checkpoint 1", "run": {}, "parts": [(len(payload), "0" * 64)]}).encode()
    assert "pickles are not read" in str(refused(tmp_path / "a", line + b"\n" + payload))
    np.savez(tmp_path / "a.npz", x=np.array([Harmful()]))
    objects = of_tree(array_node(dtype="O", shape=[1]), payload)
    for data in (payload, (tmp_path / "a.npz").read_bytes(), objects):
        refused(tmp_path / "a", data)
    assert not (tmp_path / "harm").exists()


def test_stated_sizes_take_no_memory(tmp_path):
    size = 2**40
    files = [forged(NULL, parts=[LINE, [size, SUM]]), of_tree(array_node(shape=[2**37]), bytes(8))]
    tracemalloc.start()
    try:
        for data in files:
            refused(tmp_path / "a", data)
        assert tracemalloc.get_traced_memory()[1] < 2_000_000
    finally:
        tracemalloc.stop()


def test_edited_trees_and_manifests_give_a_tree_or_the_one_error(tmp_path):
    """Check sums are right for what was edited. What is then a tree is read; the rest raises nothing but InputError."""
    rng, path = random.Random(3), tmp_path / "edited"
    parts = [Part.of(STATE).data, Part.of(RECORDED).data]
    manifest = forged(*parts, header=HEADER).split(b"\n")[1]
    outcomes = {"read": 0, "refused": 0}
    for _ in range(250):
        if rng.random() < 0.25:
            data = whole(of_json(manifest, rng) + b"\n", *parts)
        else:
            tree, arrays = rng.choice(parts).split(b"\n", 1)
            data = forged(of_json(tree, rng) + b"\n" + arrays, parts[1])
        put(path, data)
        try:
            saved(path)
        except InputError:
            outcomes["refused"] += 1
        else:
            outcomes["read"] += 1
    assert min(outcomes.values()) > 12, outcomes


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_failed_write_leaves_the_earlier_file(call, tmp_path, monkeypatch):
    file = StateFile(tmp_path / "a.checkpoint")
    file.write(HEADER, 1)

    def fail(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, call, fail)
    with pytest.raises(InputError, match=r"a\.checkpoint: found 'No space left on device'"):
        file.write(HEADER, 2)
    assert os.listdir(tmp_path) == ["a.checkpoint"]
    assert saved(file.path) == (1, [])


def test_temporaries_of_processes_that_ended_are_removed(tmp_path):
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    stale = {f".a.{ended.pid}.tmp", f".a.{os.getpid()}.tmp", f".a.{10**30}.tmp"}
    kept = {f".a.{os.getppid()}.tmp", f".b.{ended.pid}.tmp", ".a.tmp", ".a.x.tmp", f".a.{ended.pid}.tmp.txt", "a.1.tmp"}
    file = StateFile(tmp_path / "a")
    writes = (lambda: file.write({}, 1), lambda: write_text(file.path, ""))
    for action in (file.read, file.read_header, file.remove, *writes):
        for name in stale | kept:
            (tmp_path / name).touch()
        action()
        assert set(os.listdir(tmp_path)) - {"a"} == kept
