"""Downloads that break off and go on."""

from __future__ import annotations

import pytest

from allocator.data import (
    DataError,
)
from tests.data.local_server import CONTENT, get, one_file


def test_an_interrupted_download_goes_on_where_it_was(server, tmp_path):
    server.behaviour.cut_after = [300_000, 0, 200_000]
    get(one_file(server), tmp_path)
    assert (tmp_path / "set" / "file.bin").read_bytes() == CONTENT
    asked = [request.get("range") for request in server.behaviour.requests]
    assert asked == [None, "bytes=300000-", "bytes=300000-", "bytes=500000-"]


def test_a_second_call_continues_the_first(server, tmp_path):
    server.behaviour.cut_after = [400_000] + [0] * 3
    with pytest.raises(DataError, match=r"after 400,000 bytes.*run the same command again"):
        get(one_file(server), tmp_path, attempts=3)
    assert not (tmp_path / "set" / "file.bin").exists()
    assert (tmp_path / "set" / "file.bin.part").stat().st_size == 400_000
    server.behaviour.cut_after = []
    server.behaviour.requests.clear()
    get(one_file(server), tmp_path)
    assert server.behaviour.requests[0]["range"] == "bytes=400000-"
    assert (tmp_path / "set" / "file.bin").read_bytes() == CONTENT


def test_a_server_without_ranges_starts_again(server, tmp_path):
    server.behaviour.ranges = False
    server.behaviour.cut_after = [300_000, 100_000]
    get(one_file(server), tmp_path)
    assert (tmp_path / "set" / "file.bin").read_bytes() == CONTENT


def test_halves_of_two_versions_are_not_joined(server, tmp_path):
    """The file changes on the server between two calls, and no hash would tell."""
    dataset = one_file(server, size=None, sha256=None)
    server.behaviour.cut_after = [300_000, 0]
    with pytest.raises(DataError):
        get(dataset, tmp_path, attempts=1)
    server.behaviour.cut_after = []
    server.behaviour.files["/set/file.bin"] = CONTENT[::-1]
    get(dataset, tmp_path)
    assert (tmp_path / "set" / "file.bin").read_bytes() == CONTENT[::-1]


def test_a_part_that_is_whole_or_too_long(server, tmp_path):
    folder = tmp_path / "set"
    folder.mkdir()
    (folder / "file.bin.part").write_bytes(CONTENT)
    get(one_file(server, size=None), tmp_path)  # the server says: nothing after it
    (folder / "file.bin").unlink()
    (folder / "file.bin.part").write_bytes(CONTENT + b"more")
    with pytest.raises(DataError, match="SHA-256"):
        get(one_file(server, size=None), tmp_path)
    get(one_file(server, size=None), tmp_path)
    assert (folder / "file.bin").read_bytes() == CONTENT
    (folder / "file.bin").unlink()
    (folder / "file.bin.part").write_bytes(CONTENT)
    server.behaviour.requests.clear()
    get(one_file(server), tmp_path)
    assert server.behaviour.requests == []  # its length is known: only the hash is looked at


def test_a_busy_server_is_asked_again(server, tmp_path):
    server.behaviour.statuses = [503, 429]
    get(one_file(server), tmp_path)
    assert len(server.behaviour.requests) == 3
