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
    """Equal in value, type and bits."""
    if type(one) is not type(other):
        return False
    if isinstance(one, float):
        return struct.pack("<d", one) == struct.pack("<d", other)
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


def members_of(tree, group="state"):
    return {f"{group}/{name}": bytes(member.data) for name, member in Part.of(tree).members.items()}


def forged(members, /, **changes):
    """A file whose check sums are right, whatever its members hold."""
    described = {name: [len(data), hashlib.sha256(data).hexdigest()] for name, data in members.items()}
    text = json.dumps({"header": {}, "members": described} | changes, ensure_ascii=False).encode() + b"\n"
    return whole(text, members)


def whole(manifest, members):
    head = f"{FORMAT} {hashlib.sha256(manifest).hexdigest()}\n".encode()
    return b"".join([head, manifest, *members.values()])


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
    | st.integers(-(2**128) + 1, 2**128 - 1)
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
        | st.dictionaries(st.integers(-(2**63), 2**64 - 1) | st.text(max_size=3), inner, max_size=4)
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
    values = [struct.unpack("<d", struct.pack("<Q", each))[0] for each in bits]
    assert same(Part.of([*values, np.array(values)]).tree(), [*values, np.array(values)])
    scalars = [np.float64(0.1), np.int32(-3), np.bool_(True), np.str_("v100"), np.uint64(2**64 - 1)]
    assert same(Part.of(scalars).tree(), [0.1, -3, True, "v100", 2**64 - 1])
    assert same(Part.of({np.int64(4): 1, np.str_("a"): 2}).tree(), {4: 1, "a": 2})
    records = [(np.full(3, i), np.full((2, 2), i / 7)) for i in range(200)]
    assert set((part := Part.of(records)).members) == {"tree.json", "int64", "float64"}  # all share a few
    assert same(part.tree(), records)


CYCLE = []
CYCLE.append(CYCLE)


@pytest.mark.parametrize(
    ("value", "word"),
    [
        ({1, 2}, "builtins.set"),
        (object(), "builtins.object"),
        (b"bytes", "builtins.bytes"),
        (OrderedDict(a=1), "OrderedDict"),
        (2**128, "128 bits"),
        ({True: 1}, "key True"),
        ({1.5: 1}, "key 1.5"),
        (np.array(["a", None], dtype=object), "array of object"),
        (np.zeros(2, "M8[s]"), "datetime64"),
        (np.zeros(2, ">f8"), "array of >f8"),
        (np.zeros(2, [("a", "f8")]), "array of"),
        (np.ma.zeros(2), "MaskedArray"),
        (CYCLE, "at most 100 containers deep"),
    ],
)
def test_what_is_not_plain_data_is_named_with_its_place(value, word, tmp_path):
    with pytest.raises(TypeError, match=rf"world\.core\[1\]\.ledger.*{word}"):
        StateFile(tmp_path / "a").write({}, {"world": {"core": [0, {"ledger": value}]}})
    assert not list(tmp_path.iterdir())


def test_object_arrays_of_text_are_lists_where_the_caller_says_so():
    names = np.array(["ResNet-50", "", "ü"], dtype=object)
    tree = {"names": names, "none": np.array([], dtype=object)}
    assert same(Part.of(tree, text_arrays=True).tree(), {"names": ["ResNet-50", "", "ü"], "none": []})
    for wrong in (["ends in NUL\0"], ["a", 1], [None]):
        with pytest.raises(TypeError, match="array of object"):
            Part.of(np.array(wrong, dtype=object), text_arrays=True)


def test_the_same_contents_are_the_same_bytes(tmp_path):
    assert whole_file(tmp_path) == whole_file(tmp_path)
    members = members_of(STATE) | {k: v for i, s in enumerate(RECORDED) for k, v in members_of(s, f"part{i}").items()}
    assert whole_file(tmp_path) == forged(members, header=HEADER)  # so that forgeries below differ in one thing only


def test_every_byte_counts(tmp_path):
    whole, path, rng = whole_file(tmp_path), tmp_path / "damaged", random.Random(1)
    for at in range(0, len(whole), 9):
        damaged = bytearray(whole)
        damaged[at] ^= rng.randrange(1, 256)
        refused(path, bytes(damaged))


def array_node(at=0, shape=(3,), dtype="float64", tag="array"):
    return {tag: dtype, "at": at, "shape": shape}


def of_tree(tree, **members):
    """A file of one tree, and the arrays that it speaks of."""
    text = tree if isinstance(tree, bytes) else json.dumps(tree).encode()
    return forged({"state/tree.json": text} | {f"state/{name}": data for name, data in members.items()})


NULL = {"state/tree.json": b"null"}
SUM = hashlib.sha256(b"null").hexdigest()
LINE = [4, SUM]

TREES = [
    b"", b"\xff", b"[" * 102 + b"]" * 102, b"[" * 10**6, b"1" * 5000, b"18446744073709551616", b"{}", b'{"set": [1]}',
    b'{"tuple": {"a": 1}}', b'{"tuple": [], "dict": {}}', b'{"dict": [1]}', b'{"items": [[1, 2, 3]]}',
    b'{"items": [[1, 2], [1, 3]]}', b'{"items": [[[1], 2]]}', b'{"items": [[true, 2]]}', b'{"int": "1e9"}',
    b'{"int": 5}', b'{"float": "nan"}', b'{"float": "7ff8"}', json.dumps(array_node()).encode(),
]  # fmt: skip

SHAPES = [[2], [4], [2**60], [-3], [-1, -3], [3.0], [True, 3], 3]
DTYPES_OF_OTHERS = ["float32", "object", "../tree", ["float64"], "U99999999"]
ARRAYS = [
    *(array_node(shape=shape) for shape in SHAPES),
    *(array_node(at=at) for at in (1, -1, None)),
    *(array_node(dtype=dtype) for dtype in DTYPES_OF_OTHERS),
    array_node(tag="texts"), array_node() | {"more": 1}, [array_node(shape=[0, 10**30]), array_node()],
    [array_node(), array_node()], [array_node(shape=[2]), array_node(shape=[1], at=1)], [],
]  # fmt: skip

LINES = [LINE[:1], [4.0, SUM], [-4, SUM], [2**64, SUM], [True, SUM], [4, SUM[:-1]], [4, 0]]

# of manifests whose file has the one member state/tree.json
NAMES = [
    "part0/tree.json", "../state/tree.json", "/etc/passwd", "state/tree.json\n", "state/tree.json state/more.json",
]  # fmt: skip

MEMBERS = [
    "state/tree.json state/int8", "state/tree.json part1/tree.json", "part0/tree.json state/tree.json",
    "state/other.json", "state/tree.json part0/../x.json",
]  # fmt: skip


def forgeries():
    for tree in TREES:
        yield of_tree(tree)
        yield forged(NULL | {"part0/tree.json": tree})
    yield from (of_tree(tree, float64=bytes(24)) for tree in ARRAYS)
    yield from (of_tree(array_node(), float64=bytes(size)) for size in (0, 16, 23, 25, 32))
    for array, raw in ((np.zeros(2, bool), b"\0\2"), (np.array(["a", "b"]), struct.pack("<II", 97, 0x110000))):
        tree, (name, _) = members_of(array).items()
        yield forged(dict([tree, (name, raw)]))
    changes = [{"header": other} for other in (None, {"jobs": 3}, ["a"])]
    changes += [{"members": {"state/tree.json": line}} for line in LINES] + [{"members": None}, {"members": {}}]
    changes += [{"members": dict.fromkeys(names.split(" "), LINE)} for names in NAMES]
    yield from (forged(NULL, **change) for change in changes)
    yield from (forged(dict.fromkeys(names.split(), b"null")) for names in MEMBERS)
    manifests = (b"", b"3", b"[]", b"[" * 10**5, b"1" * 5000, b"\xff", b'{"header": NaN}')
    yield from (whole(text + b"\n", NULL) for text in manifests)
    good = forged(NULL)
    yield from (good.replace(b"point 3", b"point 2"), good[:-1], good + b"l", good.replace(b"\n", b" \n", 1))
    yield from (b"", b"PK\3\4" * 40, FORMAT.encode(), FORMAT.encode() + b" ", bytes(200), b"\xff" * 200)


def test_forgeries_are_refused(tmp_path):
    for good in (of_tree(array_node(), float64=bytes(24)), forged(NULL)):
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
    objects = of_tree({"array": "O", "at": 0, "shape": [1]}, O=payload)
    for data in (payload, (tmp_path / "a.npz").read_bytes(), objects):
        refused(tmp_path / "a", data)
    assert not (tmp_path / "harm").exists()


def test_stated_sizes_take_no_memory(tmp_path):
    size = 2**40
    texts = b'{"texts": "U1", "at": 0, "shape": [99999999, 0]}'
    files = [
        forged(NULL, members={"state/tree.json": LINE, "state/float64": [size, SUM]}),
        of_tree(array_node(shape=[2**37]), float64=bytes(8)),
        forged(members_of(np.zeros(0, "U1")) | {"state/tree.json": texts}),
    ]
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
    members = members_of(STATE) | members_of(RECORDED, "part0")
    lines = {n: [len(d), hashlib.sha256(d).hexdigest()] for n, d in members.items()}
    manifest = json.dumps({"header": HEADER, "members": lines}).encode()
    outcomes = {"read": 0, "refused": 0}
    for _ in range(250):
        if rng.random() < 0.25:
            data = whole(of_json(manifest, rng) + b"\n", members)
        else:
            name = rng.choice([name for name in members if name.endswith("json")])
            data = forged(members | {name: of_json(members[name], rng)})
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
    for action in (file.read, file.read_header, file.remove, lambda: file.write({}, 1)):
        for name in stale | kept:
            (tmp_path / name).touch()
        action()
        assert set(os.listdir(tmp_path)) - {"a"} == kept
