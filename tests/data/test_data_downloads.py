"""Downloads that go well, and files that cannot be had."""

from __future__ import annotations

import errno
import hashlib
import os
from collections import Counter
from dataclasses import replace

import pytest

from allocator.data import (
    DataError,
    DataFile,
    Dataset,
    FileState,
    find,
    verify,
)
from tests.data.local_server import CONTENT, SHA256, get, one_file
from throughputs import InputError


def test_fetch_and_verify(server, tmp_path):
    seen = []
    reports = get(one_file(server), tmp_path, progress=lambda file, done, total: seen.append((file.path, done, total)))
    assert [report.state for report in reports] == [FileState.VERIFIED]
    assert (tmp_path / "set" / "file.bin").read_bytes() == CONTENT
    assert seen[-1] == ("file.bin", len(CONTENT), len(CONTENT))
    assert [done for _, done, _ in seen] == sorted(done for _, done, _ in seen)
    assert sorted(p.name for p in (tmp_path / "set").iterdir()) == ["file.bin"]
    assert verify(one_file(server), cache=tmp_path)[0].state is FileState.VERIFIED
    get(one_file(server), tmp_path)
    assert len(server.behaviour.requests) == 1  # what is right is not fetched again


def test_files_put_there_by_hand_and_cut_off_ones(tmp_path, server):
    path = tmp_path / "set" / "file.bin"
    path.parent.mkdir()
    path.write_bytes(CONTENT)
    assert verify(one_file(server, size=None, sha256=None), cache=tmp_path)[0].state is FileState.UNVERIFIED
    path.write_bytes(CONTENT + b"more")
    assert verify(one_file(server, sha256=None), cache=tmp_path)[0].state is FileState.WRONG
    path.write_bytes(CONTENT)
    get(one_file(server), tmp_path)
    assert server.behaviour.requests == []
    path.unlink()
    server.behaviour.files["/set/file.bin"] = CONTENT[:-5]  # the server believes it has sent everything
    with pytest.raises(DataError, match=r"1,048,571 bytes came where 1,048,576"):
        get(one_file(server, sha256=None), tmp_path)
    assert not path.exists()


def test_unknown_hash_is_said_and_later_changes_are_found(server, tmp_path):
    dataset = one_file(server, size=None, sha256=None)
    report = get(dataset, tmp_path)[0]
    assert (report.state, report.sha256) == (FileState.UNCHANGED, SHA256)
    assert "unknown" in report.state.value
    path = tmp_path / "set" / "file.bin"
    path.write_bytes(b"x" + CONTENT[1:])
    assert verify(dataset, cache=tmp_path)[0].state is FileState.WRONG
    get(dataset, tmp_path)
    assert path.read_bytes() == CONTENT
    assert (tmp_path / "set" / "file.bin.rejected").read_bytes()[:1] == b"x"


def test_a_mirror_has_the_files_by_set_and_path(server, tmp_path):
    server.behaviour.files = {"/mirror/shockwave-configurations/tacc_32gpus.json": b"{}"}
    dataset = replace(
        find("shockwave-configurations"),
        files=(DataFile("tacc_32gpus.json", "https://192.0.2.1/nowhere", 2, hashlib.sha256(b"{}").hexdigest()),),
    )
    assert get(dataset, tmp_path, url_base=f"{server.url}/mirror/")[0].state is FileState.VERIFIED
    with pytest.raises(InputError, match="--url-base"):
        get(dataset, tmp_path / "other", url_base="file:///etc")


def test_several_files_and_patterns(server, tmp_path):
    server.behaviour.files = {f"/set/{name}": name.encode() for name in ("a/x.csv", "a/y,z.csv", "b/x.csv")}
    files = tuple(DataFile(name[5:], f"{server.url}{name}") for name in server.behaviour.files)
    dataset = Dataset("set", "t", "MIT", "p", files)
    assert [report.file.path for report in get(dataset, tmp_path, files=["a/*"])] == ["a/x.csv", "a/y,z.csv"]
    assert Counter(report.state for report in verify(dataset, cache=tmp_path)) == {
        FileState.UNCHANGED: 2,
        FileState.MISSING: 1,
    }


def test_wrong_hash_is_set_aside(server, tmp_path):
    server.behaviour.files["/set/file.bin"] = damaged = b"x" + CONTENT[1:]
    with pytest.raises(DataError, match=f"SHA-256 is .*, not {SHA256}.*kept as") as caught:
        get(one_file(server), tmp_path)
    assert "\n" not in str(caught.value)
    assert [p.name for p in (tmp_path / "set").iterdir()] == ["file.bin.rejected"]
    assert (tmp_path / "set" / "file.bin.rejected").read_bytes() == damaged
    server.behaviour.files["/set/file.bin"] = CONTENT
    assert get(one_file(server), tmp_path)[0].state is FileState.VERIFIED


@pytest.mark.parametrize("status", [403, 404, 410])
def test_refused(server, tmp_path, status):
    server.behaviour.statuses = [status]
    with pytest.raises(DataError, match=f"answers {status} .*--url-base"):
        get(one_file(server), tmp_path)
    assert len(server.behaviour.requests) == 1
    assert list((tmp_path / "set").iterdir()) == []


def test_pointer_and_login_page_are_no_data(server, tmp_path):
    dataset = one_file(server, size=None, sha256=None)
    server.behaviour.files["/set/file.bin"] = b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n"
    with pytest.raises(DataError, match="Git LFS"):
        get(dataset, tmp_path)
    server.behaviour.content_type = "text/html; charset=utf-8"
    with pytest.raises(DataError, match="web page"):
        get(dataset, tmp_path)
    assert not (tmp_path / "set" / "file.bin").exists()


def test_full_disk(server, tmp_path, monkeypatch):
    def full(_descriptor):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(DataError, match="disk is full"):
            get(one_file(server), tmp_path)
    assert (tmp_path / "set" / "file.bin.part").stat().st_size == len(CONTENT)
    assert get(one_file(server), tmp_path)[0].state is FileState.VERIFIED
