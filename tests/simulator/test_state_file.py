"""Checkpoint files: what goes in comes out bit for bit."""

from __future__ import annotations

import hashlib
import json
import os
import random
import struct
import zipfile
from collections import OrderedDict
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from allocator.checkpoint import state_tree
from allocator.checkpoint.state_file import Part, StateFile
from allocator.checkpoint.state_tree import Member
from tests.simulator.state_files import HEADER, RECORDED, STATE, forged, members_of, same, saved, whole_file

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


def test_members_keep_their_sums() -> None:
    member = Member.of(b"123456789")
    assert member.crc32 == 0xCBF43926  # the check value of CRC-32
    assert member.sha256 == hashlib.sha256(b"123456789").hexdigest()
