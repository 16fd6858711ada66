"""Checkpoint files: what goes in comes out bit for bit, and nothing but a whole file is read."""

from __future__ import annotations

import copy
import errno
import hashlib
import json
import os
import pickle
import random
import signal
import struct
import subprocess
import sys
import time
import tracemalloc
import zipfile
import zlib
from collections import OrderedDict
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from allocator.checkpoint import state_file, state_tree
from allocator.checkpoint.state_file import FORMAT, Part, StateFile
from allocator.checkpoint.state_tree import Member
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


def same(one: Any, other: Any) -> bool:
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


def saved(path: Path) -> tuple[Any, list[Any]]:
    """State and parts of a file that is there."""
    found = StateFile(path).read()
    assert found is not None
    return found.state, [part.tree() for part in found.parts]


def whole_file(folder: Path) -> bytes:
    path = folder / "whole.checkpoint"
    StateFile(path).write(HEADER, STATE, [Part.of(stretch) for stretch in RECORDED])
    return path.read_bytes()


def members_of(tree: Any, group: str = "state") -> dict[str, bytes]:
    return {f"{group}/{name}": bytes(member.data) for name, member in Part.of(tree).members.items()}


def forged(members: dict[str, bytes], /, **changes: Any) -> bytes:
    """A file whose check sums and archive are right, whatever its members hold."""
    described = {
        name: [len(data), zlib.crc32(data), hashlib.sha256(data).hexdigest()] for name, data in members.items()
    }
    text = json.dumps({"format": FORMAT, "header": {}, "members": described} | changes, ensure_ascii=False).encode()
    return archive({"manifest.json": text} | members)


def archive(members: dict[str, bytes]) -> bytes:
    entries = [state_file._Entry(name, len(data), zlib.crc32(data)) for name, data in members.items()]
    body = b"".join(e.local_header() + data for e, data in zip(entries, members.values(), strict=True))
    return body + state_file._directory(entries, hashlib.sha256(members["manifest.json"]).hexdigest())


def put(path: Path, data: bytes) -> None:
    path.unlink(missing_ok=True)  # some file systems flush a file that is emptied and written again
    path.write_bytes(data)


def refused(path: Path, data: bytes) -> InputError:
    put(path, data)
    with pytest.raises(InputError) as caught:
        saved(path)
    assert str(path) in str(caught.value)
    return caught.value


# --- what goes in comes out

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
@settings(max_examples=300)
def test_any_tree_comes_back_bit_for_bit(tmp_path_factory: pytest.TempPathFactory, state: Any, recorded: Any) -> None:
    path = tmp_path_factory.getbasetemp() / "any.checkpoint"
    with mock.patch.object(os, "fsync"):  # for speed
        StateFile(path).write(HEADER, state, [Part.of(tree) for tree in recorded])
    assert same(saved(path), (state, recorded))
    assert StateFile(path).read_header() == HEADER


def test_floats_keep_every_bit() -> None:
    nans = [struct.unpack("<Q", struct.pack("<d", x))[0] for x in (float("nan"), -float("nan"))] + [0x7FF8000000000123]
    values = [struct.unpack("<d", struct.pack("<Q", bits))[0] for bits in nans] + [-0.0, 5e-324, 0.1 + 0.2, -np.inf]
    values = list(map(float, values))
    assert same(Part.of([*values, np.array(values)]).tree(), [*values, np.array(values)])


def test_halves_of_a_surrogate_pair_stay_two_characters() -> None:
    texts = ["\ud83d\ude00", "\U0001f600", "\udfff", "NUL\0"]
    assert same(Part.of([texts, dict.fromkeys(texts, 1)]).tree(), [texts, dict.fromkeys(texts, 1)])


@pytest.mark.parametrize("kind", [np.random.PCG64, np.random.MT19937, np.random.Philox, np.random.SFC64])
def test_random_states_go_on_as_they_were(kind: Any) -> None:
    generator, other = np.random.Generator(kind(5)), np.random.Generator(kind(6))
    python, other_python = random.Random(5), random.Random(6)
    generator.integers(0, 9, 3, dtype=np.int32)
    python.gauss(0, 1)
    numbers, state = Part.of((generator.bit_generator.state, python.getstate())).tree()
    other.bit_generator.state = numbers
    other_python.setstate(state)
    assert generator.random(9).tolist() == other.random(9).tolist()
    assert [python.gauss(0, 1), python.random()] == [other_python.gauss(0, 1), other_python.random()]


def test_arrays_in_any_order_of_memory() -> None:
    grid = np.arange(24.0).reshape(2, 3, 4)
    views = [grid.T, grid[:, ::-1], np.asfortranarray(grid[0]), grid[1, 1:, ::2], np.broadcast_to(np.int32(4), (3, 2))]
    for view, found in zip(views, Part.of(views).tree(), strict=True):
        assert np.array_equal(view, found)
        assert found.dtype == view.dtype
        assert found.flags.c_contiguous
        assert found.flags.writeable
        assert found.base is None


def test_numpy_scalars_become_those_of_python() -> None:
    scalars = [np.float64(0.1), np.int32(-3), np.bool_(True), np.str_("v100"), np.uint64(2**64 - 1)]
    assert same(Part.of(scalars).tree(), [0.1, -3, True, "v100", 2**64 - 1])
    assert same(Part.of({np.int64(4): 1, np.str_("a"): 2}).tree(), {4: 1, "a": 2})


class Share(float):
    pass


CYCLE: list[Any] = []
CYCLE.append(CYCLE)


@pytest.mark.parametrize(
    ("value", "word"),
    [
        ({1, 2}, "builtins.set"),
        (object(), "builtins.object"),
        (b"bytes", "builtins.bytes"),
        (1j, "builtins.complex"),
        (Share(1.0), "Share"),
        (OrderedDict(a=1), "OrderedDict"),
        (2**128, "128 bits"),
        ({True: 1}, "key True"),
        ({1.5: 1}, "key 1.5"),
        ({(1, 2): 1}, r"key \(1, 2\)"),
        (np.array(["a", None], dtype=object), "array of object"),
        (np.array(["a", "b"], dtype=object), "array of object"),
        (np.zeros(2, "M8[s]"), "datetime64"),
        (np.datetime64(5, "ns"), "numpy.datetime64"),
        (np.zeros(2, ">f8"), "array of >f8"),
        (np.zeros(2, complex), "complex128"),
        (np.zeros(2, [("a", "f8")]), "array of"),
        (np.ma.zeros(2), "MaskedArray"),
        (np.longdouble(1), "longdouble"),
        (CYCLE, "at most 100 containers deep"),
    ],
)
def test_what_is_not_plain_data_is_named_with_its_place(value: Any, word: str, tmp_path: Path) -> None:
    with pytest.raises(TypeError, match=rf"world\.core\[1\]\.ledger.*{word}"):
        StateFile(tmp_path / "a").write({}, {"world": {"core": [0, {"ledger": value}]}})
    assert not list(tmp_path.iterdir())


def test_object_arrays_of_text_are_lists_where_the_caller_says_so() -> None:
    names = np.array(["ResNet-50", "", "ü"], dtype=object)
    tree = {"names": names, "none": np.array([], dtype=object)}
    assert same(Part.of(tree, text_arrays=True).tree(), {"names": ["ResNet-50", "", "ü"], "none": []})
    for wrong in (["ends in NUL\0"], ["a", 1], [None]):
        with pytest.raises(TypeError, match="array of object"):
            Part.of(np.array(wrong, dtype=object), text_arrays=True)


def test_header_is_text_by_text(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="str by str"):
        StateFile(tmp_path / "a").write({"jobs": 3}, None)  # type: ignore[dict-item]


# --- the file


def test_ordinary_tools_open_it(tmp_path: Path) -> None:
    whole_file(tmp_path)
    with zipfile.ZipFile(tmp_path / "whole.checkpoint") as opened:
        assert opened.testzip() is None
        assert opened.namelist()[:2] == ["manifest.json", "state/tree.json"]
        assert json.loads(opened.read("manifest.json"))["header"] == HEADER
        assert opened.comment.decode() == hashlib.sha256(opened.read("manifest.json")).hexdigest()
    with np.load(tmp_path / "whole.checkpoint", allow_pickle=False) as loaded:
        assert loaded["state/float64"].tolist() == [0, 1, 2, 3, 4, 5]
        assert loaded["state/bool"].tolist() == [True, False]
        assert loaded["state/U4"].tolist() == ["v100", "k80"]
        assert loaded["part2/float64"].tolist() == [2 / 3] * 4


def test_parts_are_encoded_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    encoded = []
    encode = state_tree._Encoder.encode
    monkeypatch.setattr(state_tree._Encoder, "encode", lambda self, *a: encoded.append(a[0]) or encode(self, *a))
    file = StateFile(tmp_path / "a")
    shares = np.full(3, 0.5)
    part = Part.of(shares)
    shares[:] = 0.0  # what was recorded stays what it was
    encoded.clear()
    file.write({}, 1, [part])
    found = file.read()
    assert found is not None
    file.write({}, 2, [*found.parts, Part.of(3)])  # after a restart, too
    assert encoded == [1, 3, 2]
    assert same(saved(file.path), (2, [np.full(3, 0.5), 3]))


def test_thousands_of_small_arrays_share_a_few_members() -> None:
    records = [(np.full(3, i), np.full((2, 2), i / 7)) for i in range(2500)]
    part = Part.of(records)
    assert set(part.members) == {"tree.json", "int64.npy", "float64.npy"}
    assert same(part.tree(), records)


def test_the_same_contents_are_the_same_bytes(tmp_path: Path) -> None:
    assert whole_file(tmp_path) == whole_file(tmp_path)
    members = members_of(STATE) | {k: v for i, s in enumerate(RECORDED) for k, v in members_of(s, f"part{i}").items()}
    assert whole_file(tmp_path) == forged(members, header=HEADER)  # so that forgeries below differ in one thing only


def test_no_file_is_none(tmp_path: Path) -> None:
    file = StateFile(tmp_path / "absent")
    assert file.read() is None
    assert file.read_header() is None
    file.remove()


# --- damage


def test_every_byte_counts(tmp_path: Path) -> None:
    whole, path, rng = whole_file(tmp_path), tmp_path / "damaged", random.Random(1)
    for at in range(len(whole)):
        damaged = bytearray(whole)
        damaged[at] ^= rng.randrange(1, 256)
        refused(path, bytes(damaged))


def test_nothing_may_be_missing_added_or_moved(tmp_path: Path) -> None:
    whole, path, rng = whole_file(tmp_path), tmp_path / "damaged", random.Random(2)
    for length in range(0, len(whole), 7):
        refused(path, whole[:length])
    for _ in range(1500):
        start, middle, end = sorted(rng.sample(range(len(whole) + 1), 3))
        change = rng.randrange(4)
        damaged = {
            0: whole[:start] + whole[middle:],
            1: whole[:middle] + whole[start:],
            2: whole[:start] + rng.randbytes(end - start) + whole[end:],
            3: whole[:start] + whole[middle:end] + whole[start:middle] + whole[end:],
        }[change]
        if damaged != whole:
            refused(path, damaged)


def test_a_damaged_rest_leaves_the_header_readable(tmp_path: Path) -> None:
    damaged = bytearray(whole_file(tmp_path))
    damaged[damaged.index(b"\x93NUMPY")] ^= 1
    (tmp_path / "damaged").write_bytes(damaged)
    assert StateFile(tmp_path / "damaged").read_header() == HEADER


def test_members_of_another_save_are_refused(tmp_path: Path) -> None:
    manifest = forged(members_of([np.zeros(3)]))
    other = forged(members_of([np.ones(3)]))
    at = manifest.index(b"\x93NUMPY")
    assert len(manifest) == len(other)
    error = refused(tmp_path / "a", manifest[:at] + other[at : at + 152] + manifest[at + 152 :])
    assert "state/float64.npy" in str(error)


def test_a_damaged_manifest_is_no_header(tmp_path: Path) -> None:
    damaged = bytearray(whole_file(tmp_path))
    damaged[damaged.index(b"max_min_fairness")] ^= 1
    (tmp_path / "damaged").write_bytes(damaged)
    with pytest.raises(InputError, match="a manifest that does not match its check sum"):
        StateFile(tmp_path / "damaged").read_header()


@pytest.mark.parametrize("noise", [b"", b"PK", b"PK\3\4", b"PK\3\4" * 40, bytes(200), b"\xff" * 200])
def test_what_is_no_archive(noise: bytes, tmp_path: Path) -> None:
    refused(tmp_path / "a", noise)


def test_a_folder_is_no_checkpoint(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"directory.*a file that can be read"):
        StateFile(tmp_path).read()


# --- files made to harm


class Harmful:
    def __reduce__(self) -> Any:
        return os.mkdir, ("harm",)


def test_pickles_are_refused_and_never_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    payload = pickle.dumps(Harmful())
    line = json.dumps({"format": "allocator checkpoint 1", "run": {}, "parts": [(len(payload), "0" * 64)]}).encode()
    error = refused(tmp_path / "a", line + b"\n" + payload)
    assert "found 'allocator checkpoint 1', expected allocator checkpoint 2 (pickles are not read)" in str(error)
    refused(tmp_path / "a", payload)
    np.savez(tmp_path / "a.npz", x=np.array([Harmful()]))
    refused(tmp_path / "a", (tmp_path / "a.npz").read_bytes())
    objects = npy("|O", "(1,)") + payload
    refused(
        tmp_path / "a", forged({"state/tree.json": b'{"array": "O", "at": 0, "shape": [1]}', "state/O.npy": objects})
    )
    assert not (tmp_path / "harm").exists()


def npy(descr: str, shape: str) -> bytes:
    text = f"{{'descr': {descr!r}, 'fortran_order': False, 'shape': {shape}, }}".ljust(117)
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", 118) + text.encode() + b"\n"


@pytest.mark.parametrize(
    "header",
    [
        npy("|O", "(3,)"),
        npy("<f8", "(4,)"),
        npy("<f8", f"({2**60},)"),
        npy("<f8", "(3, 1)"),
        npy("<f8", "(-1,)"),
        npy(">f8", "(3,)"),
        npy("<i8", "(3,)"),
        npy("|V8", "(3,)"),
        npy("<f8", "(3,)").replace(b"False", b"True "),
        npy("<f8", "(3,)").replace(b"NUMPY\1", b"NUMPY\3"),
        npy("<f8", "__import__('os').mkdir('harm')"),
        b"",
        b"\x93NUMPY\x01\x00\xff\xff",
    ],
)
def test_headers_of_arrays_are_not_trusted(header: bytes, tmp_path: Path) -> None:
    tree = b'{"array": "float64", "at": 0, "shape": [3]}'
    path = tmp_path / "a"
    path.write_bytes(forged({"state/tree.json": tree, "state/float64.npy": npy("<f8", "(3,)") + bytes(24)}))
    assert same(saved(path)[0], np.zeros(3))
    refused(path, forged({"state/tree.json": tree, "state/float64.npy": header + bytes(24)}))


def array_node(at: Any = 0, shape: Any = (3,), dtype: Any = "float64", tag: str = "array") -> dict[str, Any]:
    return {tag: dtype, "at": at, "shape": shape}


@pytest.mark.parametrize(
    "tree",
    [
        array_node(shape=[2]),
        array_node(shape=[4]),
        array_node(shape=[2**60]),
        array_node(shape=[10**40]),
        array_node(shape=[-3]),
        array_node(shape=[-1, -3]),
        array_node(shape=[3.0]),
        array_node(shape=[True, 3]),
        array_node(shape=3),
        array_node(shape=[1] * 100 + [3]),
        [array_node(shape=[0, 10**30]), array_node()],
        array_node(at=1),
        array_node(at=-1),
        array_node(at=None),
        array_node(dtype="float32"),
        array_node(dtype="object"),
        array_node(dtype="../tree"),
        array_node(dtype=["float64"]),
        array_node(dtype="U99999999"),
        array_node(tag="texts"),
        array_node() | {"more": 1},
        [array_node(), array_node()],
        [array_node(shape=[2]), array_node(shape=[1], at=1)],
        [],
    ],
)
def test_arrays_lie_in_their_member(tree: Any, tmp_path: Path) -> None:
    values = members_of(np.zeros(3))["state/float64.npy"]
    refused(tmp_path / "a", forged({"state/tree.json": json.dumps(tree).encode(), "state/float64.npy": values}))


@pytest.mark.parametrize(
    "tree",
    [
        b"",
        b"nothing",
        b"\xff",
        b"[" * 5000 + b"]" * 5000,
        b"[" * 102 + b"]" * 102,
        b"[" * 10**6,
        b'{"tuple": [' * 102 + b"]}" * 102,
        b"1" * 5000,
        b"18446744073709551616",
        b"{}",
        b'{"set": [1]}',
        b'{"tuple": 3}',
        b'{"tuple": {"a": 1}}',
        b'{"tuple": [], "dict": {}}',
        b'{"dict": [1]}',
        b'{"items": {"a": 1}}',
        b'{"items": [1]}',
        b'{"items": [[1]]}',
        b'{"items": [[1, 2, 3]]}',
        b'{"items": [[1, 2], [1, 3]]}',
        b'{"items": [[[1], 2]]}',
        b'{"items": [[true, 2]]}',
        b'{"items": [[1.5, 2]]}',
        b'{"int": "1e9"}',
        b'{"int": 5}',
        b'{"int": "' + b"1" * 5000 + b'"}',
        '{"int": "٣"}'.encode(),
        b'{"float": "nan"}',
        b'{"float": "7ff8"}',
        b'{"float": 1.5}',
        array_text := json.dumps(array_node()).encode(),
    ],
)
def test_trees_of_another_form(tree: bytes, tmp_path: Path) -> None:
    refused(tmp_path / "a", forged({"state/tree.json": tree}))
    part = {"part0/tree.json": tree}
    refused(tmp_path / "a", forged(members_of(None) | part))


def test_booleans_and_characters_exist(tmp_path: Path) -> None:
    for array, raw in ((np.zeros(2, bool), b"\0\2"), (np.array(["a", "b"]), struct.pack("<II", 97, 0x110000))):
        members = members_of(array)
        name = next(name for name in members if name.endswith(".npy"))
        refused(tmp_path / "a", forged(members | {name: members[name][:128] + raw}))


SUM = hashlib.sha256(b"null").hexdigest()
LINE = [4, zlib.crc32(b"null"), SUM]


@pytest.mark.parametrize(
    "changes",
    [
        {"format": "allocator checkpoint 3"},
        {"format": None},
        {"format": [[[]]]},
        {"header": None},
        {"header": {"jobs": 3}},
        {"header": ["a"]},
        {"members": None},
        {"members": {}},
        {"members": {"state/tree.json": LINE, "state/more.json": LINE}},
        {"members": {"part0/tree.json": LINE}},
        {"members": {"state/tree.json": LINE[:2]}},
        {"members": {"state/tree.json": [4.0, *LINE[1:]]}},
        {"members": {"state/tree.json": [-4, *LINE[1:]]}},
        {"members": {"state/tree.json": [2**47, *LINE[1:]]}},
        {"members": {"state/tree.json": [2**64, *LINE[1:]]}},
        {"members": {"state/tree.json": [10**400, *LINE[1:]]}},
        {"members": {"state/tree.json": [4, -1, SUM]}},
        {"members": {"state/tree.json": [4, 2**32, SUM]}},
        {"members": {"state/tree.json": [4, LINE[1], SUM[:-1]]}},
        {"members": {"state/tree.json": [4, LINE[1], None]}},
        {"members": {"state/treE.json": LINE}},
        {"members": {"../state/tree.json": LINE}},
        {"members": {"/etc/passwd": LINE}},
        {"members": {"state/tree.jsoñ": LINE}},
        {"members": {"state/tree.json\n": LINE}},
        {"members": {f"part{10**400}/tree.json": LINE}},
    ],
)
def test_manifests_of_another_form(changes: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(forged({"state/tree.json": b"null"}))
    assert saved(tmp_path / "a") == (None, [])
    refused(tmp_path / "a", forged({"state/tree.json": b"null"}, **changes))


@pytest.mark.parametrize(
    "names",
    [
        ["state/tree.json", "state/int8.npy"],
        ["state/tree.json", "part1/tree.json"],
        ["part0/tree.json", "state/tree.json"],
        ["state/tree.json", "part0/trees.json"],
        ["part0/tree.json"],
        ["state/other.json"],
        ["state/tree.json", "state/" + "a" * 17 + ".json"],
        ["state/tree.json", "part0/../x.json"],
    ],
)
def test_members_are_those_of_state_and_parts(names: list[str], tmp_path: Path) -> None:
    refused(tmp_path / "a", forged(dict.fromkeys(names, b"null")))


@pytest.mark.parametrize("text", [b"", b"3", b"[]", b"[" * 10**5, b"1" * 5000, b"\xff", b'{"format": NaN}'])
def test_manifests_that_are_none(text: bytes, tmp_path: Path) -> None:
    refused(tmp_path / "a", archive({"manifest.json": text}))


def test_members_that_the_manifest_does_not_list(tmp_path: Path) -> None:
    honest = {"manifest.json": b"", "state/tree.json": b"null"}
    honest["manifest.json"] = json.dumps(
        {"format": FORMAT, "header": {}, "members": {"state/tree.json": LINE}}
    ).encode()
    assert archive(honest) == forged({"state/tree.json": b"null"})
    refused(tmp_path / "a", archive(honest | {"more.npy": b"null"}))
    for compression in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        with zipfile.ZipFile(tmp_path / "a", "w", compression) as rewritten:
            for name, data in honest.items():
                rewritten.writestr(name, data)
            with pytest.warns(UserWarning, match="Duplicate"):
                rewritten.writestr("state/tree.json", b"null")
            rewritten.comment = hashlib.sha256(honest["manifest.json"]).hexdigest().encode()
        refused(tmp_path / "a", (tmp_path / "a").read_bytes())


def test_stated_sizes_take_no_memory(tmp_path: Path) -> None:
    size, text = 2**40, b'{"array": "float64", "at": 0, "shape": [137438953456]}'
    bomb = {"members": {"state/tree.json": LINE, "state/float64.npy": [size, 0, SUM]}}
    files = [
        forged({"state/tree.json": b"null"}, **bomb),
        forged({"state/tree.json": text, "state/float64.npy": npy("<f8", f"({2**37 - 16},)")}),
        forged(
            members_of(np.zeros(0, "U1")) | {"state/tree.json": b'{"texts": "U1", "at": 0, "shape": [99999999, 0]}'}
        ),
        state_file._Entry("manifest.json", size, 0).local_header() + bytes(1000),
    ]
    tracemalloc.start()
    try:
        for data in files:
            refused(tmp_path / "a", data)
        assert tracemalloc.get_traced_memory()[1] < 2_000_000
    finally:
        tracemalloc.stop()


NODES: list[Any] = [
    None, True, -1, 0, 3, 2**63, 2**64, 10**50, 1.5, 1e400, "", "float64", "U3", "object", "nan", "7" * 16, "\ud800",
    [], [3], [2, 3], {}, {"tuple": []}, {"dict": {"a": []}}, {"items": [[1, 2]]}, {"int": "5"},
    array_node(), array_node(6, [0]),
]  # fmt: skip


def mutated(node: Any, rng: random.Random) -> Any:
    """A copy with a few places replaced, dropped, doubled, renamed or swapped."""
    tree = [copy.deepcopy(node)]
    for _ in range(rng.randrange(1, 4)):
        inside: list[Any] = [tree]
        for place in inside:
            inside += [x for x in (place.values() if type(place) is dict else place) if type(x) in (dict, list) and x]
        place = rng.choice(inside)
        keys = list(place) if type(place) is dict else range(len(place))
        one, other, change = rng.choice(keys), rng.choice(keys), rng.randrange(5)
        if change == 0 and place is not tree:
            del place[one]
        elif change == 1:
            place[one], place[other] = place[other], place[one]
        elif change == 2 and type(place) is list and place is not tree:
            place.insert(one, copy.deepcopy(place[other]))
        elif change == 3 and type(place) is dict:
            place[rng.choice(["tuple", "dict", "items", "array", "texts", "at", "shape", "int", "float", "format"])] = (
                place.pop(one)
            )
        else:
            place[one] = copy.deepcopy(rng.choice(NODES))
        if not tree[0]:
            break
    return tree[0]


def test_edited_trees_and_manifests_give_a_tree_or_the_one_error(tmp_path: Path) -> None:
    """Check sums are right for what was edited. What is then a tree is read; the rest raises nothing but InputError."""
    rng, path = random.Random(3), tmp_path / "edited"
    members = members_of(STATE) | members_of(RECORDED, "part0")
    outcomes = {"read": 0, "refused": 0}
    for _ in range(4000):
        edited, changes = dict(members), {}
        if rng.random() < 0.25:
            lines = {n: [len(d), zlib.crc32(d), hashlib.sha256(d).hexdigest()] for n, d in members.items()}
            changes = mutated({"format": FORMAT, "header": HEADER, "members": lines}, rng)
            data = archive({"manifest.json": json.dumps(changes).encode()} | members)
        else:
            name = rng.choice([name for name in members if name.endswith("json")])
            edited[name] = json.dumps(mutated(json.loads(members[name]), rng)).encode()
            data = forged(edited)
        put(path, data)
        try:
            saved(path)
        except InputError:
            outcomes["refused"] += 1
        else:
            outcomes["read"] += 1
    assert min(outcomes.values()) > 200, outcomes


def test_edited_bytes_of_members_give_a_tree_or_the_one_error(tmp_path: Path) -> None:
    rng, path = random.Random(4), tmp_path / "edited"
    members = members_of(STATE)
    for _ in range(3000):
        name = rng.choice(list(members))
        data = bytearray(members[name])
        for _ in range(rng.randrange(1, 4)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        if rng.random() < 0.2:
            del data[rng.randrange(len(data)) :]
        put(path, forged(members | {name: bytes(data)}))
        try:
            state, _ = saved(path)
            repr(state)  # every element can be looked at
        except InputError:
            pass


# --- interrupted writes


def temporaries(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir() if path.name.endswith(".tmp")]


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_failed_write_leaves_the_earlier_file(call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = StateFile(tmp_path / "a.checkpoint")
    file.write(HEADER, 1)

    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, call, fail)
    with pytest.raises(InputError, match=r"a\.checkpoint: found 'No space left on device'"):
        file.write(HEADER, 2)
    assert os.listdir(tmp_path) == ["a.checkpoint"]
    assert saved(file.path) == (1, [])


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a limit on the size of files is one of POSIX")
def test_a_full_disk_leaves_the_earlier_file(tmp_path: Path) -> None:
    """A write that fails half way: the system refuses files of more than 100,000 bytes."""
    script = (
        "import resource, signal, sys, numpy as np\n"
        "from allocator.checkpoint.state_file import StateFile\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "file = StateFile(sys.argv[1])\n"
        "file.write({}, 'first')\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))\n"
        "file.write({}, np.zeros(50_000))\n"
    )
    path = tmp_path / "a.checkpoint"
    done = subprocess.run([sys.executable, "-c", script, str(path)], capture_output=True, text=True, check=False)
    assert f"InputError: {path}: found 'File too large'" in done.stderr
    assert os.listdir(tmp_path) == ["a.checkpoint"]
    assert saved(path) == ("first", [])


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="No such file or directory"):
        StateFile(tmp_path / "absent" / "a").write({}, 1)


def test_temporaries_of_processes_that_ended_are_removed(tmp_path: Path) -> None:
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


NURSERY = """
import os, sys
import numpy as np
from allocator.checkpoint.state_file import Part, StateFile

file = StateFile(sys.argv[1])
for line in sys.stdin:
    child = os.fork()
    n = int(line)
    while not child:
        file.write({"n": str(n)}, np.full(400_000, n), [Part.of(n)])
        n += 1
    print(child, flush=True)
    os.waitpid(child, 0)
    print("ended", flush=True)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are forked and killed")
def test_a_killed_writer_leaves_a_whole_file_and_in_the_end_nothing_else(tmp_path: Path) -> None:
    path, rng = tmp_path / "a.checkpoint", random.Random(5)
    StateFile(path).write({"n": "0"}, np.zeros(400_000, np.int64), [Part.of(0)])
    interrupted, latest = 0, 0
    with subprocess.Popen(
        [sys.executable, "-c", NURSERY, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as nursery:
        assert nursery.stdin is not None
        assert nursery.stdout is not None
        for _ in range(20):
            nursery.stdin.write(f"{latest + 1}\n")
            nursery.stdin.flush()
            child = int(nursery.stdout.readline())
            time.sleep(rng.uniform(0.005, 0.06))
            os.kill(child, signal.SIGKILL)
            assert nursery.stdout.readline() == "ended\n"
            interrupted += len(temporaries(tmp_path))
            found = StateFile(path).read()
            assert found is not None
            assert latest <= int(found.header["n"])
            latest = int(found.header["n"])
            assert (found.state == latest).all()
            assert [part.tree() for part in found.parts] == [latest]
            assert os.listdir(tmp_path) == ["a.checkpoint"]
        nursery.stdin.close()
    assert interrupted > 0
    assert latest > 0


def test_members_keep_their_sums() -> None:
    member = Member.of(b"123456789")
    assert member.crc32 == 0xCBF43926  # the check value of CRC-32
    assert member.sha256 == hashlib.sha256(b"123456789").hexdigest()
