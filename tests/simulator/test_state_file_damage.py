"""Damaged checkpoint files: nothing but a whole file is read."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

from allocator.checkpoint.state_file import StateFile
from tests.simulator.state_files import HEADER, forged, members_of, refused, whole_file
from throughputs import InputError


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
