"""Checkpoint files that were made to harm: one error, no code that runs, no memory."""

from __future__ import annotations

import copy
import hashlib
import json
import os
import pickle
import random
import struct
import tracemalloc
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from allocator.checkpoint import state_file
from allocator.checkpoint.state_file import FORMAT
from tests.simulator.state_files import HEADER, RECORDED, STATE, archive, forged, members_of, put, refused, same, saved
from throughputs import InputError


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
