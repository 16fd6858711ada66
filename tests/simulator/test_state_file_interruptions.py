"""Writes of checkpoint files that fail or are killed: the earlier file stays."""

from __future__ import annotations

import errno
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from allocator.checkpoint.state_file import Part, StateFile
from tests.simulator.state_files import HEADER, saved
from throughputs import InputError


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
        deadline, kills, wait = time.monotonic() + 120, 0, 0.06
        while kills < 20 or not (interrupted and latest):
            assert time.monotonic() < deadline
            kills += 1
            nursery.stdin.write(f"{latest + 1}\n")
            nursery.stdin.flush()
            child = int(nursery.stdout.readline())
            time.sleep(rng.uniform(0.005, wait))
            os.kill(child, signal.SIGKILL)
            assert nursery.stdout.readline() == "ended\n"
            interrupted += len(temporaries(tmp_path))
            found = StateFile(path).read()
            assert found is not None
            assert latest <= int(found.header["n"])
            latest = int(found.header["n"])
            # on a slow machine none is written in so short a time
            wait *= 1.0 if latest else 1.2
            assert (found.state == latest).all()
            assert [part.tree() for part in found.parts] == [latest]
            assert os.listdir(tmp_path) == ["a.checkpoint"]
        nursery.stdin.close()
