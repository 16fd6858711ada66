"""Plain data and arrays as bytes: the contents of checkpoints, without pickle.

A *tree* is plain data: None, bool, int (up to 128 bits), float, str, list, tuple, dict with str or int keys, and NumPy
arrays of numbers, booleans or fixed-width text. It is encoded as one text of JSON and, for each dtype, one of the
numbers of all arrays of that dtype, flattened, end to end. Decoding trusts nothing in them: every array must lie within
its member, and all of that must be in arrays.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import struct
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from throughputs import InputError

_NUMBERS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float32", "float64"]
_DTYPES = {name: np.dtype(name).newbyteorder("<") for name in ["bool", *_NUMBERS]}
_NAMES = {dtype: name for name, dtype in _DTYPES.items()}
_TEXT = re.compile(r"U[1-9][0-9]{0,7}")  # dtype of text of a fixed width, as U12
_LAST_CODE_POINT = 0x10FFFF
_JSON_INTS = range(-(2**63), 2**64)  # others are written as text
_BIG_INT_BITS, _BIG_INT = 128, re.compile(r"-?[0-9]{1,39}")
_DEEPEST = 100  # containers around anything: more than any state has, and far below Python's limit of recursion
_MOST_DIMENSIONS = 64

_TREE = "tree.json"
# What JSON has no form for is an object with one of these sets of keys.
_FORMS = {("array", "at", "shape"), ("texts", "at", "shape"), ("tuple",), ("dict",), ("items",), ("int",), ("float",)}


class Member(NamedTuple):
    """Contents of one member of the file."""

    data: memoryview
    sha256: str

    @classmethod
    def of(cls, contents: bytes | memoryview) -> Member:
        """The member, with its check sum."""
        data = memoryview(contents)
        return cls(data, hashlib.sha256(data).hexdigest())


@dataclass(frozen=True, eq=False)
class Part:
    """An encoded tree; it shares no memory with the tree that it was made of."""

    members: dict[str, Member]
    source: str = "checkpoint"

    @classmethod
    def of(cls, tree: object, *, text_arrays: bool = False) -> Part:
        """Encode a tree.

        With `text_arrays`, flat object arrays of str are accepted: they are stored as arrays of fixed width and come
        back as lists of str. NumPy scalars come back as Python's. All else comes back with its type and bits.

        Raises
        ------
        TypeError
            Something in the tree is not plain data; the message names its place.
        """
        encoder = _Encoder(text_arrays)
        root = Member.of(to_json(encoder.encode(tree, "", 0)))
        return cls({_TREE: root} | {name: encoder.member(name) for name in encoder.arrays})

    def tree(self) -> Any:
        """The tree, newly made at each call. Raises InputError where a file holds something else."""
        try:
            return _Decoder(self.members).tree()
        except (ValueError, OverflowError) as error:
            raise InputError(self.source, found=str(error), expected="a whole file") from error


class _Encoder:
    """Turns a tree into nodes of JSON, and gathers its arrays by dtype."""

    def __init__(self, text_arrays: bool) -> None:
        self.text_arrays = text_arrays
        self.arrays: dict[str, list[npt.NDArray[Any]]] = {}
        self.sizes: dict[str, int] = {}

    def encode(self, value: Any, path: str, depth: int) -> Any:
        kind = type(value)
        if depth > _DEEPEST:
            raise TypeError(f"{path[:80]}...: a checkpoint holds things at most {_DEEPEST} containers deep")
        if value is None or kind is bool or kind is str or (kind is int and value in _JSON_INTS):
            return value
        if kind is int and value.bit_length() <= _BIG_INT_BITS:
            return {"int": str(value)}
        if kind is float:
            return value if math.isfinite(value) else {"float": struct.pack(">d", value).hex()}
        if kind is list or kind is tuple:
            nodes = [self.encode(item, f"{path}[{i}]", depth + 1) for i, item in enumerate(value)]
            return nodes if kind is list else {"tuple": nodes}
        if kind is dict:
            keys = [_key(key, path) for key in value]
            pairs = [[k, self.encode(v, f"{path}.{k}", depth + 1)] for k, v in zip(keys, value.values(), strict=True)]
            return {"dict": dict(pairs)} if all(type(key) is str for key in keys) else {"items": pairs}
        if isinstance(value, np.generic) and value.dtype.kind in "biufU" and kind is not np.longdouble:
            return self.encode(value.item(), path, depth)
        if kind is np.ndarray:
            return self._array(value, path)
        raise _not_plain(path, f"{kind.__module__}.{kind.__qualname__}" if kind is not int else "int beyond 128 bits")

    def _array(self, array: npt.NDArray[Any], path: str) -> dict[str, Any]:
        tag = "array"
        if self.text_arrays and array.dtype == object and array.ndim == 1 and set(map(type, array.flat)) <= {str}:
            tag, texts = "texts", array.astype(str)
            array = texts if texts.tolist() == array.tolist() else array  # text that ends in NUL would lose it
        name = _NAMES.get(array.dtype) or array.dtype.str[1:]
        if array.dtype != _dtype(name):
            raise _not_plain(path, f"array of {array.dtype}")
        node = {tag: name, "at": self.sizes.get(name, 0), "shape": list(array.shape)}
        self.arrays.setdefault(name, []).append(array)
        self.sizes[name] = self.sizes.get(name, 0) + array.size
        return node

    def member(self, name: str) -> Member:
        """The member that holds all arrays of a dtype."""
        flat = np.concatenate([array.ravel() for array in self.arrays[name]])
        return Member.of(flat.view(np.uint8).data)


class _Decoder:
    """Makes a tree of members that may hold anything. ValueError or OverflowError where they hold no tree."""

    def __init__(self, members: dict[str, Member]) -> None:
        self.members = members
        self.arrays: dict[str, npt.NDArray[Any]] = {}
        self.used: dict[str, int] = {}

    def tree(self) -> Any:
        if _TREE not in self.members:
            raise ValueError("no tree")
        tree = self.decode(from_json(self.members[_TREE].data), 0)
        if {_TREE, *self.arrays} != set(self.members):
            raise ValueError("members that are no part of the tree")
        if any(len(array) != self.used[name] for name, array in self.arrays.items()):
            raise ValueError("numbers that are no part of the tree")
        return tree

    def decode(self, node: Any, depth: int) -> Any:
        if depth > _DEEPEST:
            raise ValueError(f"something more than {_DEEPEST} containers deep")
        if type(node) is list:
            return [self.decode(item, depth + 1) for item in node]
        if type(node) is not dict:
            if type(node) is int and node not in _JSON_INTS:
                raise ValueError("an int beyond 64 bits")
            return node
        if tuple(node) not in _FORMS:
            raise ValueError("an unknown kind of data")
        match node:
            case {"array": str(name), "at": at, "shape": list(shape)}:
                return self._array(name, at, shape)
            case {"texts": str(name), "at": at, "shape": list(shape)} if _TEXT.fullmatch(name) and len(shape) == 1:
                return self._array(name, at, shape).tolist()
            case {"tuple": list(nodes)}:
                return tuple(self.decode(item, depth + 1) for item in nodes)
            case {"dict": dict(nodes)}:
                return {key: self.decode(item, depth + 1) for key, item in nodes.items()}
            case {"items": list(pairs)}:
                return self._items(pairs, depth)
            case {"int": str(digits)} if _BIG_INT.fullmatch(digits):
                return int(digits)
            case {"float": str(bits)} if re.fullmatch("[0-9a-f]{16}", bits):
                return struct.unpack(">d", bytes.fromhex(bits))[0]
        raise ValueError("data of another form than its kind has")

    def _items(self, pairs: list[Any], depth: int) -> dict[Any, Any]:
        items = {}
        for pair in pairs:
            if type(pair) is not list or len(pair) != 2 or type(pair[0]) not in (str, int) or pair[0] in items:
                raise ValueError("a dict of another form")
            items[pair[0]] = self.decode(pair[1], depth + 1)
        return items

    def _array(self, name: str, at: Any, shape: list[Any]) -> npt.NDArray[Any]:
        if name not in self.arrays:
            self.arrays[name], self.used[name] = self._flat(name), 0
        if len(shape) > _MOST_DIMENSIONS or any(type(n) is not int or n < 0 for n in shape):
            raise ValueError("an array without a shape")
        flat, end = self.arrays[name], self.used[name] + math.prod(shape)
        if type(at) is not int or at != self.used[name] or end > len(flat):
            raise ValueError("an array outside its member")
        self.used[name] = end
        return flat[at:end].reshape(shape).copy()

    def _flat(self, name: str) -> npt.NDArray[Any]:
        """All arrays of a dtype, end to end, as a view of their member."""
        dtype, member = _dtype(name), self.members.get(name)
        if dtype is None or member is None:
            raise ValueError("an array without a member")
        if len(member.data) % dtype.itemsize:
            raise ValueError("an array of another dtype than its member has")
        raw = np.frombuffer(member.data, np.uint8)
        if (dtype.kind == "b" and np.any(raw > 1)) or (
            dtype.kind == "U" and np.any(raw.view("<u4") > _LAST_CODE_POINT)
        ):
            raise ValueError("booleans or characters that do not exist")
        return raw.view(dtype)


def _dtype(name: str) -> np.dtype[Any] | None:
    return np.dtype(f"<{name}") if _TEXT.fullmatch(name) else _DTYPES.get(name)


def _key(key: Any, path: str) -> str | int:
    if isinstance(key, np.generic) and key.dtype.kind in "iuU":
        key = key.item()
    if type(key) is str or (type(key) is int and key in _JSON_INTS):
        return key
    raise _not_plain(path, f"key {key!r:.80}")


def _not_plain(path: str, what: str) -> TypeError:
    return TypeError(f"{path.lstrip('.') or 'the tree'}: a checkpoint holds plain data and no {what}")


def to_json(node: Any) -> bytes:
    """Nodes of JSON as bytes."""
    # Not escaped, as two escaped halves of a surrogate pair would come back as one character.
    return json.dumps(node, ensure_ascii=False, allow_nan=False).encode("utf-8", "surrogatepass")


def from_json(data: bytes | memoryview) -> Any:
    """What `to_json` wrote. Raises ValueError for anything that is no JSON."""
    try:
        return json.loads(str(data, "utf-8", "surrogatepass"))
    except RecursionError:
        raise ValueError("JSON of great depth") from None
