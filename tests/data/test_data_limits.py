"""What servers may not do: send more than there is, lead elsewhere, or talk nonsense."""

from __future__ import annotations

from dataclasses import replace

import pytest

from allocator.data import DataError, DataFile, Dataset, FileState, download
from tests.data.local_server import CONTENT, get, one_file
from throughputs import InputError

SOCKET_BUFFERS = 16 << 20
"""What may be on its way when a reader stops reading."""


@pytest.fixture
def small_maximum(monkeypatch):
    """Half of the file that the server has, as the maximum where no length is known."""
    monkeypatch.setattr(download, "MOST_BYTES", len(CONTENT) // 2)
    return len(CONTENT) // 2


def kept(folder):
    return {path.name: path.stat().st_size for path in (folder / "set").iterdir()}


def test_a_known_length_ends_the_download(server, tmp_path):
    """No Content-Length, and no end: what is written is the file's own length."""
    server.behaviour.says_length = False
    server.behaviour.more = 4 * SOCKET_BUFFERS
    with pytest.raises(DataError, match=r"more bytes came than there should be, expected 1,048,576.*kept as") as caught:
        get(one_file(server), tmp_path)
    assert "\n" not in str(caught.value)
    assert kept(tmp_path) == {"file.bin.rejected": len(CONTENT)}
    assert server.behaviour.sent < len(CONTENT) + 3 * SOCKET_BUFFERS
    assert len(server.behaviour.requests) == 1


def test_a_length_that_is_announced_and_too_large(server, tmp_path):
    server.behaviour.files["/set/file.bin"] = CONTENT + b"!"
    with pytest.raises(DataError, match=r"announces 1,048,577 bytes, expected 1,048,576"):
        get(one_file(server), tmp_path)
    assert kept(tmp_path).get("file.bin.part", 0) == 0
    assert not (tmp_path / "set" / "file.bin").exists()


def test_without_any_length_there_is_a_maximum(server, tmp_path, small_maximum):
    dataset = one_file(server, size=None, sha256=None)
    with pytest.raises(DataError, match=r"announces 1,048,576 bytes, expected at most 524,288, as its right length"):
        get(dataset, tmp_path)
    server.behaviour.says_length = False
    server.behaviour.more = 4 * SOCKET_BUFFERS
    with pytest.raises(DataError, match=r"more bytes came than there should be, expected at most 524,288"):
        get(dataset, tmp_path / "other")
    assert kept(tmp_path / "other")["file.bin.rejected"] <= small_maximum


@pytest.mark.parametrize(
    "location",
    [
        "file:///etc/passwd",
        "http://[::1",
        "http://127.0.0.1:99999/",
        "ftp://127.0.0.1/file.bin",
    ],
)
def test_redirects_lead_to_http_only(server, tmp_path, location):
    server.behaviour.locations = [location]
    with pytest.raises(DataError, match=r"(?i)(redirect|invalid).*--url-base") as caught:
        get(one_file(server), tmp_path)
    assert "\n" not in str(caught.value)
    assert len(server.behaviour.requests) == 1
    assert kept(tmp_path) == {}


def test_good_redirects_are_followed(server, tmp_path):
    server.behaviour.files["/else where.bin"] = CONTENT
    server.behaviour.locations = ["/again", f"{server.url}/else where.bin"]
    assert get(one_file(server), tmp_path)[0].state is FileState.VERIFIED
    assert [request["path"] for request in server.behaviour.requests][1:] == ["/again", "/else%20where.bin"]


@pytest.mark.parametrize("base", ["ftp://127.0.0.1", "http://", "http://a:b/"])
def test_mirrors_are_addresses(server, tmp_path, base):
    with pytest.raises(InputError, match=r"--url-base: found .*an address that begins with http"):
        get(one_file(server), tmp_path, url_base=base)


def test_the_addresses_of_sets_are_checked_too(server, tmp_path):
    dataset = one_file(server)
    for url in ("file:///etc/passwd", "ftp://127.0.0.1/file.bin"):
        with pytest.raises(InputError, match=r"set: file\.bin: found .*an address that begins with http"):
            get(replace(dataset, files=(replace(dataset.files[0], url=url),)), tmp_path)


@pytest.mark.parametrize("name", ["../up", "/tmp/x", "..", "", ".hidden", "a\n"])
def test_names_of_sets_are_plain(name):
    with pytest.raises(InputError, match="a plain name"):
        Dataset(name, "t", "MIT", "p")


@pytest.mark.parametrize("path", ["../up", "/etc/passwd", "a/../../b", "", ".part", "a\\..\\b", "a\0b"])
def test_paths_of_files_stay_inside(path):
    with pytest.raises(InputError, match="a path inside the folder of the set"):
        DataFile(path, "https://example.org/x")
