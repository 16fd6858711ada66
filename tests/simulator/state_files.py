"""Checkpoint files to write, to damage and to read."""

from __future__ import annotations

import hashlib
import json
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from allocator.checkpoint import state_file
from allocator.checkpoint.state_file import FORMAT, Part, StateFile
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
