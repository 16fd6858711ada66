"""Public data sets: the registry, and downloads from a server on this machine that misbehaves on demand."""

from __future__ import annotations

import errno
import gzip
import hashlib
import json
import os
import re
import subprocess
import sys
import threading
from collections import Counter
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from allocator.data import (
    CACHE_VARIABLE,
    DataError,
    DataFile,
    Dataset,
    FileState,
    cache_directory,
    datasets,
    fetch,
    find,
    path_of,
    verify,
)
from allocator.data.listing import markdown_table
from allocator.data.registry import HASH_ORIGINS, read_sets
from throughputs import InputError

DOCS = Path(__file__).resolve().parents[2] / "docs" / "data.md"
CONTENT = bytes(range(256)) * 4096  # 1 MiB
SHA256 = hashlib.sha256(CONTENT).hexdigest()


@dataclass
class Behaviour:
    """What the server has and how it serves it."""

    files: dict[str, bytes] = field(default_factory=lambda: {"/set/file.bin": CONTENT})
    ranges: bool = True
    tag: str | None = '"one"'
    cut_after: list[int] = field(default_factory=list)  # bytes sent before the connection breaks, request by request
    content_type: str = "application/octet-stream"
    statuses: list[int] = field(default_factory=list)  # answered before anything else
    wrong_start: bool = False
    pause: threading.Event | None = None
    requests: list[dict[str, str]] = field(default_factory=list)


class Handler(BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def do_GET(self):
        server: Behaviour = self.server.behaviour
        server.requests.append({"path": self.path, **{k.lower(): v for k, v in self.headers.items()}})
        if server.statuses:
            return self.send_error(server.statuses.pop(0))
        body = server.files.get(unquote(urlsplit(self.path).path))
        if body is None:
            return self.send_error(404)
        start = 0
        asked = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
        same = self.headers.get("If-Range") in (None, server.tag)
        if asked and server.ranges and same:
            start = int(asked.group(1))
            if start >= len(body):
                self.send_response(416)
                self.send_header("Content-Range", f"bytes */{len(body)}")
                self.send_header("Content-Length", "0")
                return self.end_headers()
            self.send_response(206)
            start += server.wrong_start
            self.send_header("Content-Range", f"bytes {start}-{len(body) - 1}/{len(body)}")
        else:
            self.send_response(200)
        self.send_header("Content-Type", server.content_type)
        self.send_header("Content-Length", str(len(body) - start))
        if server.tag:
            self.send_header("ETag", server.tag)
        self.end_headers()
        sent = body[start:]
        if server.pause is not None:
            self.wfile.write(sent[:1000])
            self.wfile.flush()
            server.pause.wait(20)
            sent = sent[1000:]
        if server.cut_after:
            sent = sent[: server.cut_after.pop(0)]
        self.wfile.write(sent)
        self.close_connection = True
        return None


@pytest.fixture
def server():
    """A server on this machine: its `behaviour` says what it does, `url` where it is."""
    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    http.daemon_threads = True
    http.behaviour = Behaviour()
    http.url = f"http://127.0.0.1:{http.server_port}"
    thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    yield http
    http.shutdown()
    http.server_close()


def one_file(server, **changes) -> Dataset:
    """A data set of one file on the server, with known length and hash unless `changes` say otherwise."""
    known = {"size": len(CONTENT), "sha256": SHA256} | changes
    return Dataset(
        "set", "A test", "MIT", "https://example.org", (DataFile("file.bin", f"{server.url}/set/file.bin", **known),)
    )


def get(dataset, cache, **settings):
    return fetch(dataset, cache=cache, **{"pause_seconds": 0.0, "timeout_seconds": 5.0} | settings)


# The registry


def test_every_set_is_complete_and_says_unknown_where_it_is():
    names = [dataset.name for dataset in datasets()]
    assert names == sorted(set(names))
    assert {"gavel-throughputs", "shockwave-traces", "elasticflow-itp", "philly", "lucid-colocation"} <= set(names)
    for dataset in datasets():
        assert re.fullmatch(r"[a-z0-9-]+", dataset.name)
        assert dataset.title
        assert dataset.licence
        assert dataset.page.startswith("https://")
        paths = [file.path for file in dataset.files]
        assert len(paths) == len(set(paths)), dataset.name
        for file in dataset.files:
            assert file.url.startswith("https://")
            assert " " not in file.url
            assert unquote(file.url).endswith(file.path.rpartition("/")[2])
            assert file.sha256 is None or re.fullmatch(r"[0-9a-f]{64}", file.sha256)
            assert (file.sha256 is not None) == bool(dataset.hash_from), file
    assert "non-commercial" in find("lucid-colocation").licence


def test_addresses_of_copied_hashes_name_a_commit():
    """A branch moves; a hash of our own is only worth something beside an address that does not."""
    for dataset in datasets():
        if dataset.hash_from == "copy":
            assert all(re.search(r"/[0-9a-f]{40}/", file.url) for file in dataset.files), dataset.name


@pytest.mark.parametrize(
    ("name", "path", "local"),
    [
        ("shockwave-throughputs", "tacc_throughputs.json", "shockwave/tacc_throughputs.json.gz"),
        ("shockwave-configurations", "tacc_32gpus.json", "shockwave/configurations/tacc_32gpus.json"),
        ("elasticflow-itp", "raw-traces.tar.gz", "elasticflow/traces/raw-traces.tar.gz"),
        ("elasticflow-throughputs", "throughputs_T4/bert.csv", "elasticflow/throughputs_T4/bert.csv"),
        ("lucid-colocation", "data/colocate_info.csv", "lucid/colocate_info.csv.gz"),
    ],
)
def test_hashes_are_those_of_the_copies(public_data, name, path, local):
    raw = public_data(local).read_bytes()
    if local.endswith(".gz") and not path.endswith(".gz"):
        raw = gzip.decompress(raw)
    file = find(name).file(path)
    assert (len(raw), hashlib.sha256(raw).hexdigest()) == (file.size, file.sha256)


def test_unknown_names_are_met_with_a_suggestion():
    with pytest.raises(InputError, match="did you mean 'philly'"):
        find("phily")
    with pytest.raises(InputError, match=r"did you mean 'trace-data\.tar\.gz'"):
        path_of("philly/trace-data.tar")
    with pytest.raises(InputError, match=r"did you mean 'tacc_throughputs\.json'"):
        fetch("shockwave-throughputs", files=["tac_throughputs.json"])


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ('[{ path = "../x" }]', "inside the folder"),
        ('[{ path = "/etc/x" }]', "inside the folder"),
        ('[{ path = ".state/x" }, { path = ".hidden" }]', "inside the folder"),
    ],
)
def test_a_registry_cannot_leave_its_folder(files, message):
    text = f'[[dataset]]\nname = "a"\ntitle = "t"\nlicence = "MIT"\npage = "p"\nbase = "http://h/"\nfiles = {files}'
    with pytest.raises(InputError, match=message):
        read_sets(text, "test.toml")


def test_a_registry_entry_needs_its_fields_and_an_address():
    with pytest.raises(InputError, match="licence"):
        read_sets('[[dataset]]\nname = "a"\ntitle = "t"\npage = "p"', "test.toml")
    with pytest.raises(InputError, match="address"):
        read_sets('[[dataset]]\nname = "a"\nfiles = [{ path = "x" }]', "test.toml")
    with pytest.raises(InputError, match="hash_from"):
        read_sets('[[dataset]]\nname = "a"\ntitle = "t"\nlicence = "l"\npage = "p"\nhash_from = "hearsay"', "test.toml")


def test_the_page_for_people_says_the_same():
    """To renew it, put the output of `allocator data list --markdown` in place of the table."""
    text = DOCS.read_text()
    assert markdown_table(datasets()) in text
    assert CACHE_VARIABLE in text
    assert all(f"**{origin}**" in text for origin in HASH_ORIGINS.values())


# Where the files are


def test_the_cache_directory(monkeypatch, tmp_path):
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "by variable"))
    assert cache_directory() == tmp_path / "by variable"
    assert cache_directory(tmp_path / "by option") == tmp_path / "by option"
    monkeypatch.delenv(CACHE_VARIABLE)
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_directory() == tmp_path / "xdg" / "cluster-allocator" / "data"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert cache_directory() == Path.home() / ".cache" / "cluster-allocator" / "data"
    monkeypatch.setattr(sys, "platform", "darwin")
    assert cache_directory() == Path.home() / "Library" / "Caches" / "cluster-allocator" / "data"


def test_path_of_a_set_a_file_and_a_single_file(tmp_path):
    with pytest.raises(DataError, match="run `allocator data fetch gavel-throughputs`"):
        path_of("gavel-throughputs", cache=tmp_path)
    folder = tmp_path / "gavel-throughputs"
    folder.mkdir()
    (folder / "simulation_throughputs.json").touch()
    assert (
        path_of("gavel-throughputs/simulation_throughputs.json", cache=tmp_path).name == "simulation_throughputs.json"
    )
    with pytest.raises(DataError, match="physical_cluster"):
        path_of("gavel-throughputs", cache=tmp_path)
    (folder / "physical_cluster_throughputs.json").touch()
    assert path_of("gavel-throughputs", cache=tmp_path) == folder
    (tmp_path / "philly").mkdir()
    (tmp_path / "philly" / "trace-data.tar.gz").touch()
    assert path_of("philly", cache=tmp_path) == tmp_path / "philly" / "trace-data.tar.gz"


# Downloads that go well


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


def test_files_put_there_by_hand(tmp_path, server):
    path = tmp_path / "set" / "file.bin"
    path.parent.mkdir()
    path.write_bytes(CONTENT)
    assert verify(one_file(server), cache=tmp_path)[0].state is FileState.VERIFIED
    assert verify(one_file(server, size=None, sha256=None), cache=tmp_path)[0].state is FileState.UNVERIFIED
    get(one_file(server), tmp_path)
    assert server.behaviour.requests == []


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


# Interruptions


@pytest.mark.parametrize("known", [True, False])
def test_an_interrupted_download_goes_on_where_it_was(server, tmp_path, known):
    server.behaviour.cut_after = [300_000, 0, 200_000]
    dataset = one_file(server) if known else one_file(server, size=None, sha256=None)
    get(dataset, tmp_path)
    assert (tmp_path / "set" / "file.bin").read_bytes() == CONTENT
    asked = [request.get("range") for request in server.behaviour.requests]
    assert asked == [None, "bytes=300000-", "bytes=300000-", "bytes=500000-"]
    assert all(request.get("if-range") == '"one"' for request in server.behaviour.requests[1:])


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
    server.behaviour.cut_after = [300_000] * 9  # never gets further: no progress, no end
    with pytest.raises(DataError, match="broke off"):
        get(one_file(server), tmp_path / "other", attempts=4)


def test_halves_of_two_versions_are_not_joined(server, tmp_path):
    """The file changes on the server between two calls, and no hash would tell."""
    dataset = one_file(server, size=None, sha256=None)
    server.behaviour.cut_after = [300_000, 0]
    with pytest.raises(DataError):
        get(dataset, tmp_path, attempts=1)
    server.behaviour.cut_after = []
    server.behaviour.files["/set/file.bin"] = CONTENT[::-1]
    server.behaviour.tag = '"two"'
    get(dataset, tmp_path)
    assert (tmp_path / "set" / "file.bin").read_bytes() == CONTENT[::-1]


def test_without_tag_and_hash_nothing_is_joined(server, tmp_path):
    server.behaviour.tag = None
    server.behaviour.cut_after = [300_000]
    get(one_file(server, size=None, sha256=None), tmp_path)
    assert [request.get("range") for request in server.behaviour.requests] == [None, None]


def test_a_part_that_is_whole_or_too_long(server, tmp_path):
    folder = tmp_path / "set"
    folder.mkdir()
    (folder / "file.bin.part").write_bytes(CONTENT)
    get(one_file(server, size=None), tmp_path)  # the server says: nothing after it
    assert (folder / "file.bin").read_bytes() == CONTENT
    (folder / "file.bin").unlink()
    (folder / "file.bin.part").write_bytes(CONTENT + b"more")
    get(one_file(server, size=None), tmp_path)
    assert (folder / "file.bin").read_bytes() == CONTENT
    (folder / "file.bin").unlink()
    (folder / "file.bin.part").write_bytes(CONTENT)
    server.behaviour.requests.clear()
    get(one_file(server), tmp_path)
    assert server.behaviour.requests == []  # its length is known: only the hash is looked at


def test_another_part_than_asked_for_is_not_joined(server, tmp_path):
    server.behaviour.wrong_start = True
    server.behaviour.cut_after = [300_000]
    get(one_file(server, size=None, sha256=None), tmp_path)
    assert (tmp_path / "set" / "file.bin").read_bytes() == CONTENT


def test_a_busy_server_is_asked_again(server, tmp_path):
    server.behaviour.statuses = [503, 429]
    get(one_file(server), tmp_path)
    assert len(server.behaviour.requests) == 3


# What cannot be had


def test_wrong_hash_is_set_aside(server, tmp_path):
    server.behaviour.files["/set/file.bin"] = damaged = b"x" + CONTENT[1:]
    with pytest.raises(DataError, match=f"SHA-256 is .*, not {SHA256}.*kept as") as caught:
        get(one_file(server), tmp_path)
    assert "\n" not in str(caught.value)
    assert [p.name for p in (tmp_path / "set").iterdir()] == ["file.bin.rejected"]
    assert (tmp_path / "set" / "file.bin.rejected").read_bytes() == damaged
    server.behaviour.files["/set/file.bin"] = CONTENT
    assert get(one_file(server), tmp_path)[0].state is FileState.VERIFIED


def test_truncated_file(server, tmp_path):
    """The server believes it has sent everything."""
    server.behaviour.files["/set/file.bin"] = CONTENT[:-5]
    with pytest.raises(DataError, match=r"1,048,571 bytes came where 1,048,576"):
        get(one_file(server, sha256=None), tmp_path)
    assert not (tmp_path / "set" / "file.bin").exists()


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


def test_unreachable(server, tmp_path):
    dataset = one_file(server)
    server.shutdown()
    server.server_close()
    with pytest.raises(DataError, match=r"cannot reach 127\.0\.0\.1.*Connection refused.*--url-base.*file\.bin"):
        get(dataset, tmp_path)


def test_full_disk(server, tmp_path, monkeypatch):
    import shutil

    real = shutil.disk_usage
    monkeypatch.setattr(shutil, "disk_usage", lambda path: real(path)._replace(free=1000))
    with pytest.raises(DataError, match=r"disk is full.*--cache"):
        get(one_file(server), tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", real)

    def full(_descriptor):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(DataError, match="disk is full"):
            get(one_file(server), tmp_path)
    assert (tmp_path / "set" / "file.bin.part").stat().st_size == len(CONTENT)
    assert get(one_file(server), tmp_path)[0].state is FileState.VERIFIED


def test_sets_without_address(tmp_path):
    for use in (fetch, verify):
        with pytest.raises(DataError, match=r"no public address .* get them from https://"):
            use("mit-supercloud", cache=tmp_path)
    with pytest.raises(DataError, match="get them from"):
        path_of("mit-supercloud", cache=tmp_path)


# The command


def run(*arguments, cache, check=True, wait=True):
    command = [sys.executable, "-m", "allocator", "data", *map(str, arguments)]
    environment = os.environ | {CACHE_VARIABLE: str(cache)}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
    if not wait:
        return process
    out, err = process.communicate(timeout=60)
    assert not check or process.returncode == 0, err
    return subprocess.CompletedProcess(command, process.returncode, out, err)


def test_two_processes_fetch_at_once(server, tmp_path):
    name = "simulation_throughputs.json"  # its right hash is unknown, so anything will do
    server.behaviour.files = {f"/gavel-throughputs/{name}": CONTENT}
    server.behaviour.pause = threading.Event()
    arguments = ("fetch", "gavel-throughputs", "--file", name, "--url-base", server.url)
    first, second = (run(*arguments, cache=tmp_path, wait=False) for _ in range(2))
    told = threading.Event()
    lines: list[str] = []

    def listen(process):
        for line in process.stderr:
            lines.append(line)
            told.set()

    listeners = [threading.Thread(target=listen, args=(process,), daemon=True) for process in (first, second)]
    for listener in listeners:
        listener.start()
    assert told.wait(20)  # one of them found the other at it
    server.behaviour.pause.set()
    for process in (first, second):
        assert f"it has {SHA256}" in process.stdout.read()
        assert process.wait(20) == 0
    assert [line for line in lines if "another process" in line] == lines
    assert len(server.behaviour.requests) == 1
    assert path_of(f"gavel-throughputs/{name}", cache=tmp_path).read_bytes() == CONTENT


def test_a_killed_process_leaves_no_lock(server, tmp_path):
    server.behaviour.files = {"/gavel-throughputs/simulation_throughputs.json": CONTENT}
    server.behaviour.pause = threading.Event()
    arguments = ("fetch", "gavel-throughputs", "--file", "simul*", "--url-base", server.url)
    process = run(*arguments, cache=tmp_path, wait=False)
    part = tmp_path / "gavel-throughputs" / "simulation_throughputs.json.part"
    for _ in range(400):
        if part.exists():
            break
        threading.Event().wait(0.05)
    process.kill()
    process.communicate(timeout=20)
    assert part.exists()
    server.behaviour.pause.set()
    assert SHA256 in run(*arguments, cache=tmp_path).stdout
    assert not part.exists()


def test_commands(server, tmp_path):
    assert "shockwave-traces" in run("list", cache=tmp_path).stdout
    listed = {entry["name"]: entry for entry in json.loads(run("list", "--json", cache=tmp_path).stdout)}
    assert len(listed) == len(datasets())
    assert listed["philly"]["files"][0]["sha256"] == find("philly").files[0].sha256
    shown = run("list", "gavel-throughputs", cache=tmp_path).stdout
    assert "SHA-256 unknown" in shown
    assert find("gavel-throughputs").files[0].url in shown

    server.behaviour.files = {
        "/gavel-throughputs/simulation_throughputs.json": b"{}",
        "/gavel-throughputs/physical_cluster_throughputs.json": b"{ }",
    }
    done = run("fetch", "gavel-throughputs", "--url-base", server.url, cache=tmp_path)
    assert "licence: MIT" in done.stdout
    assert hashlib.sha256(b"{ }").hexdigest() in done.stdout  # nobody knows the right one: say the one it has
    assert done.stderr == ""
    reports = json.loads(run("verify", "--json", cache=tmp_path).stdout)
    assert [report["state"] for report in reports] == ["unchanged", "unchanged"]
    (tmp_path / "gavel-throughputs" / "simulation_throughputs.json").write_bytes(b"[]")
    wrong = run("verify", cache=tmp_path, check=False)
    assert wrong.returncode == 1
    assert "run `allocator data fetch gavel-throughputs`" in wrong.stdout


def test_errors_are_one_line(server, tmp_path):
    done = run("fetch", "philly", "--url-base", server.url, cache=tmp_path, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1
    assert "404" in done.stderr
    done = run("fetch", "phily", cache=tmp_path, check=False)
    assert done.returncode == 2
    assert "did you mean 'philly'" in done.stderr
    done = run("fetch", "mit-supercloud", cache=tmp_path, check=False)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)


def test_the_registry_is_read_without_heavy_imports():
    script = (
        "import sys, allocator.cli.data; early = 'allocator.data' in sys.modules; import allocator.data\n"
        "allocator.data.datasets()\n"
        "print(early, [m for m in ('pandas', 'scipy', 'highspy', 'cvxpy', 'rich.progress') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False []"
