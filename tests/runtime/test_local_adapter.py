"""Jobs on this machine: started, seen, ended, and what they are told."""

from __future__ import annotations

import asyncio
import json
import marshal
import os
import signal
import stat
import subprocess
import sys
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from allocator.lease.files import LEASE_FILE, Grant, write_file
from allocator.runtime.adapters.base import AdapterError, CommandError, Node, Seen
from allocator.runtime.adapters.local.adapter import SHIM_SCRIPT, shim_code
from allocator.runtime.adapters.local.folder import EXIT_FILE, LOCK_FILE, RUN_FILE
from allocator.runtime.adapters.local.output import LOG_FILES, Log, RankOutput
from tests.runtime.worlds import (
    PYTHON,
    ended,
    lines,
    new_job,
    opened,
    order,
    processes_of,
    records_of,
    seen_of,
    shim_of,
    until,
)


def test_a_job_runs_and_its_end_is_told(tmp_path: Path) -> None:
    async def main() -> None:
        adapter, job = await opened(tmp_path), new_job(tmp_path)
        assert await adapter.observe() == []
        gate = tmp_path / "gate"
        await adapter.start(
            order(tmp_path, job, "sh", "-c", f"until [ -e {gate} ]; do sleep 0.01; done; echo out; exit 3")
        )
        assert await seen_of(adapter, job) == Seen(job, 1, "running")
        before = time.time()
        gate.touch()
        seen = await ended(adapter, job)
        assert (seen.epoch, seen.code, seen.signal, seen.reason) == (1, 3, 0, "exit status 3")
        assert before - 1 <= seen.ended_at <= time.time() + 1
        assert lines(tmp_path / "jobs" / job / "log") == ["out"]
        await adapter.forget(job)
        assert await adapter.observe() == []
        assert await (await opened(tmp_path)).observe() == []
        await adapter.close()

    asyncio.run(main())


def test_nodes_are_the_types_of_accelerators(tmp_path: Path) -> None:
    async def main() -> None:
        nodes = await (await opened(tmp_path)).nodes()
        assert nodes == [Node("local-v100", "v100", 4), Node("local-k80", "k80", 2)]

    asyncio.run(main())


def test_arguments_are_taken_as_they_are(tmp_path: Path) -> None:
    arguments = ["a b", "$HOME", "; touch broken", "`id`", "*", "'\"\\", "", "-c", "\n", "ü€", os.fsdecode(b"\xff")]

    async def main() -> None:
        adapter, job = await opened(tmp_path), new_job(tmp_path)
        program = "import os, sys; sys.stdout.buffer.write(b'\\0'.join(map(os.fsencode, sys.argv[1:])))"
        await adapter.start(order(tmp_path, job, *PYTHON, program, *arguments))
        assert (await ended(adapter, job)).code == 0
        said = (tmp_path / "jobs" / job / "log").read_bytes()
        assert said.split(b"\0") == [os.fsencode(argument) for argument in arguments]

    asyncio.run(main())


def test_the_environment_of_a_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OF_THE_SERVICE", "service")
    monkeypatch.setenv("OF_BOTH", "service")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "7")
    program = (
        "import json, os, signal, sys; json.dump({**os.environ, 'cwd': os.getcwd(), 'input': sys.stdin.read(),"
        " 'ignored': signal.getsignal(signal.SIGTERM) != signal.SIG_DFL, 'blocked': len(signal.pthread_sigmask(0, ())),"
        " 'files': len(os.listdir('/proc/self/fd')) - 1, 'session': os.getsid(0) == os.getpid()}, sys.stdout)"
    )

    async def told(visible: bool) -> dict[str, object]:
        adapter, job = await opened(tmp_path, visible_devices=visible), new_job(tmp_path)
        plain = order(
            tmp_path,
            job,
            *PYTHON,
            program,
            epoch=5,
            environment={"OF_THE_JOB": "job", "OF_BOTH": "job", "ALLOCATOR_JOB_ID": "false"},
            working_directory=tmp_path / "jobs",
        )
        await adapter.start(replace(plain, gpus={"local-k80": (1, 0)}, accelerator="k80"))
        assert (await ended(adapter, job)).code == 0
        found = json.loads((tmp_path / "jobs" / job / "log").read_text())
        assert found["ALLOCATOR_JOB_ID"] == job
        assert found["ALLOCATOR_CHECKPOINT_DIR"] == str(tmp_path / "jobs" / job / "checkpoint")
        return found

    found = asyncio.run(told(True))
    assert [found[f"OF_{whose}"] for whose in ("THE_SERVICE", "THE_JOB", "BOTH")] == ["service", "job", "job"]
    assert found["ALLOCATOR_LEASE_EPOCH"] == "5"
    # The four v100 come before the two k80.
    assert (found["CUDA_VISIBLE_DEVICES"], found["CUDA_DEVICE_ORDER"]) == ("5,4", "PCI_BUS_ID")
    assert found["cwd"] == str(tmp_path / "jobs")
    assert (found["input"], found["ignored"], found["blocked"], found["files"]) == ("", False, 0, 3)
    assert "RANK" not in found
    found = asyncio.run(told(False))
    assert found["CUDA_VISIBLE_DEVICES"] == "7"


def test_one_process_for_each_gpu(tmp_path: Path) -> None:
    names = (
        "RANK",
        "LOCAL_RANK",
        "WORLD_SIZE",
        "LOCAL_WORLD_SIZE",
        "CUDA_VISIBLE_DEVICES",
        "MASTER_ADDR",
        "MASTER_PORT",
    )

    async def main() -> None:
        adapter, job = await opened(tmp_path), new_job(tmp_path)
        program = f"import os; print(*(os.environ[name] for name in {names}), flush=True)"
        await adapter.start(order(tmp_path, job, *PYTHON, program, gpus=3, one_process_per_gpu=True))
        assert (await ended(adapter, job)).code == 0
        labelled = sorted(line.split(": ") for line in lines(tmp_path / "jobs" / job / "log"))
        assert [label for label, _ in labelled] == ["rank 0", "rank 1", "rank 2"]
        told = [line.split() for _, line in labelled]
        assert [line[:6] for line in told] == [[str(i), str(i), "3", "3", "0,1,2", "127.0.0.1"] for i in range(3)]
        assert len({line[6] for line in told}) == 1

    asyncio.run(main())


def test_output_of_ranks_is_whole_lines_however_it_comes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    log = Log(1 << 20)
    ranks = [RankOutput(log, rank) for rank in range(2)]
    said = (b"one\ntw", b"10%\r20%\r", b"o\n\nthr", b"30%\r", b"\nend")
    for number, data in enumerate(said):
        ranks[number % 2 if number < 4 else 1].write(data)
    for rank in ranks:
        rank.close()
    told = (tmp_path / "log").read_bytes()
    assert told == (
        b"rank 0: one\nrank 1: 10%\rrank 0: two\nrank 0: \nrank 1: 20%\rrank 1: 30%\r\nrank 0: thr\nrank 1: end\n"
    )
    ranks[0].write(b"x" * 200_000)
    ranks[0].close()
    assert (tmp_path / "log").read_bytes()[len(told) :] == b"rank 0: " + b"x" * 200_000 + b"\n"


def test_one_process_that_fails_ends_the_others(tmp_path: Path) -> None:
    program = "import os, sys, time; rank = int(os.environ['RANK']); sys.exit(9) if rank == 1 else time.sleep(600)"

    async def main() -> None:
        adapter, job = await opened(tmp_path), new_job(tmp_path)
        await adapter.start(order(tmp_path, job, *PYTHON, program, gpus=4, one_process_per_gpu=True))
        seen = await ended(adapter, job)
        assert (seen.code, seen.signal, seen.reason) == (9, 0, "rank 1: exit status 9")
        assert not processes_of(job)

    asyncio.run(main())


@pytest.mark.parametrize(
    ("command", "said", "code"),
    [
        (("no-such-command", "x"), r"not found: the command no-such-command, in PATH=.+", 127),
        (("/no/such/command",), r"not found: the command /no/such/command, or the interpreter that it names", 127),
        (("./plain",), r"the command cannot be used: ./plain: .*Permission denied", 126),
        (("./odd",), r"the command cannot be used: ./odd: .*Exec format error", 126),
        (("",), r"the command cannot be used: : ", 126),
    ],
)
def test_a_command_that_cannot_be_run_is_named(tmp_path: Path, command: tuple[str, ...], said: str, code: int) -> None:
    (tmp_path / "plain").write_text("echo")
    (tmp_path / "odd").write_text("echo")
    (tmp_path / "odd").chmod(0o700)

    async def main() -> None:
        adapter, job = await opened(tmp_path), new_job(tmp_path)
        with pytest.raises(CommandError, match=said) as refusal:
            await adapter.start(order(tmp_path, job, *command))
        assert refusal.value.code == code
        seen = await ended(adapter, job)
        assert (seen.code, seen.signal) == (code, 0)
        # The next start is a fresh one.
        await adapter.start(order(tmp_path, job, "true", epoch=2))
        assert (await ended(adapter, job)).code == 0

    asyncio.run(main())


def test_what_else_is_refused(tmp_path: Path) -> None:
    async def main() -> None:
        adapter, job = await opened(tmp_path), new_job(tmp_path)
        with pytest.raises(AdapterError, match=r"not found: the working directory .*/nowhere"):
            await adapter.start(order(tmp_path, job, "true", working_directory=tmp_path / "nowhere"))
        with pytest.raises(AdapterError, match="no such GPUs"):
            await adapter.start(order(tmp_path, job, "true", gpus=5))
        strange = order(tmp_path, job, "true", epoch=2)
        with pytest.raises(AdapterError, match="not the name of a folder"):
            await adapter.start(replace(strange, job="../../x"))
        with pytest.raises(AdapterError, match="there is no command"):
            await adapter.start(replace(strange, command=()))
        with pytest.raises(AdapterError, match="surrogates not allowed"):
            await adapter.start(replace(strange, command=("true", "\ud800")))
        with pytest.raises(AdapterError, match="No such file"):
            await adapter.start(replace(strange, folder=tmp_path / "jobs" / "none"))

    asyncio.run(main())


def test_a_signal_ends_a_job(tmp_path: Path) -> None:
    async def main() -> None:
        adapter, job = await opened(tmp_path), new_job(tmp_path)
        await adapter.start(order(tmp_path, job, "sh", "-c", "kill -SEGV $$"))
        seen = await ended(adapter, job)
        assert (seen.code, seen.signal, seen.reason) == (128 + signal.SIGSEGV, signal.SIGSEGV, "ended by signal 11")

    asyncio.run(main())


def test_stop_asks_once_and_kill_does_not_ask(tmp_path: Path) -> None:
    program = (
        "import os, signal, time\n"
        "def note(*_):\n    os.write(1, b'asked\\n')\n"
        "signal.signal(signal.SIGTERM, note)\nos.write(1, b'ready\\n')\n"
        "while True: time.sleep(600)"
    )

    async def main() -> None:
        adapter, job = await opened(tmp_path), new_job(tmp_path)
        log = tmp_path / "jobs" / job / "log"
        await adapter.start(order(tmp_path, job, *PYTHON, program))
        await until(lambda: lines(log) == ["ready"])
        await adapter.stop(job, 2)
        await adapter.kill(job, 2)
        await adapter.stop("unknown", 1)
        await adapter.kill("unknown", 1)
        for _ in range(3):
            await adapter.stop(job, 1)
            await until(lambda: "asked" in lines(log))
        seen = await seen_of(adapter, job)
        assert seen
        assert seen.phase == "running"
        await adapter.kill(job, 1)
        seen = await ended(adapter, job)
        assert (seen.code, seen.signal) == (137, signal.SIGKILL)
        assert lines(log) == ["ready", "asked"]
        await adapter.stop(job, 1)
        await adapter.kill(job, 1)

    asyncio.run(main())


def test_a_stop_lets_every_process_take_its_time(tmp_path: Path) -> None:
    """The first to go must not hurry the others, who may be writing a checkpoint."""
    program = (
        "import os, signal, time\n"
        "def end(*_):\n    time.sleep(0.5 * int(os.environ['RANK']))\n    os.write(1, b'saved\\n')\n    os._exit(0)\n"
        "signal.signal(signal.SIGTERM, end)\nos.write(1, b'ready\\n')\n"
        "while True: time.sleep(600)"
    )

    async def main() -> None:
        adapter, job = await opened(tmp_path), new_job(tmp_path)
        log = tmp_path / "jobs" / job / "log"
        await adapter.start(order(tmp_path, job, *PYTHON, program, gpus=2, one_process_per_gpu=True))
        await until(lambda: len(lines(log)) == 2)
        await adapter.stop(job, 1)
        assert (await ended(adapter, job)).code == 0
        assert sorted(lines(log)[2:]) == ["rank 0: saved", "rank 1: saved"]

    asyncio.run(main())


def test_a_stopped_shim_does_not_keep_a_job_alive(tmp_path: Path) -> None:
    async def main() -> None:
        adapter, job = await opened(tmp_path), new_job(tmp_path)
        await adapter.start(order(tmp_path, job))
        os.kill(shim_of(tmp_path, job), signal.SIGSTOP)
        await adapter.kill(job, 1)
        assert (await ended(adapter, job)).signal == signal.SIGKILL

    asyncio.run(main())


GRANDCHILDREN = (
    "import os, sys, time\n"
    "for way in (os.setsid, os.setpgrp, lambda: None):\n"
    "    if not os.fork():\n"
    "        way()\n"
    "        if os.fork(): os._exit(0)\n"
    "        os.closerange(0, 3)\n"
    "        time.sleep(600)\n"
    "        os._exit(0)\n"
    "print('ready', flush=True)\n"
)


@pytest.mark.parametrize("how", ["ends", "killed"])
def test_nothing_outlives_a_job(tmp_path: Path, how: str) -> None:
    async def main() -> None:
        adapter, job = await opened(tmp_path), new_job(tmp_path)
        program = GRANDCHILDREN + ("time.sleep(600)" if how == "killed" else "sys.exit(4)")
        await adapter.start(order(tmp_path, job, *PYTHON, program))
        if how == "killed":
            await until(lambda: lines(tmp_path / "jobs" / job / "log") == ["ready"])
            await until(lambda: len(processes_of(job)) == 4)
            await adapter.kill(job, 1)
        assert (await ended(adapter, job)).code == (137 if how == "killed" else 4)
        assert not processes_of(job)

    asyncio.run(main())


def test_output_has_a_limit(tmp_path: Path) -> None:
    limit, written = 50_000, 400_000

    async def main() -> None:
        adapter, job = await opened(tmp_path), new_job(tmp_path)
        folder = tmp_path / "jobs" / job
        program = f"import sys\nfor i in range({written // 10}): sys.stdout.write(f'{{i:9d}}\\n')"
        await adapter.start(order(tmp_path, job, *PYTHON, program, log_bytes=limit))
        assert (await ended(adapter, job)).code == 0
        newest, older = (folder / name for name in LOG_FILES)
        assert newest.stat().st_size + older.stat().st_size <= limit
        kept = (older.read_text() + newest.read_text()).split()
        assert [int(line) for line in kept[1:]] == list(range(written // 10 - len(kept) + 1, written // 10))
        assert len(kept) * 10 > limit // 2
        # What an earlier start has said counts.
        await adapter.start(order(tmp_path, job, *PYTHON, program, epoch=2, log_bytes=limit))
        assert (await ended(adapter, job)).code == 0
        assert newest.stat().st_size + older.stat().st_size <= limit
        kept_of_it = (records_of(tmp_path, job) / name for name in (RUN_FILE, EXIT_FILE, LOCK_FILE))
        for path in (newest, older, *kept_of_it):
            assert stat.S_IMODE(path.stat().st_mode) == 0o600

    asyncio.run(main())


def test_an_epoch_is_started_once(tmp_path: Path) -> None:
    async def main() -> None:
        adapter, job = await opened(tmp_path), new_job(tmp_path)
        gate = tmp_path / "gate"
        command = ("sh", "-c", f"echo ran; until [ -e {gate} ]; do sleep 0.01; done")
        first = order(tmp_path, job, *command)
        await asyncio.gather(*(adapter.start(first) for _ in range(5)))
        other = await opened(tmp_path)
        await other.start(first)
        gate.touch()
        assert (await ended(adapter, job)).code == 0
        await adapter.start(first)
        assert (await ended(other, job)).code == 0
        assert lines(tmp_path / "jobs" / job / "log") == ["ran"]

    asyncio.run(main())


def test_two_starts_never_run_at_once(tmp_path: Path) -> None:
    async def main() -> None:
        adapter, job = await opened(tmp_path), new_job(tmp_path)
        await adapter.start(order(tmp_path, job))
        with pytest.raises(AdapterError, match="another start of the job runs: epoch 1"):
            await adapter.start(order(tmp_path, job, epoch=2))
        assert await seen_of(adapter, job) == Seen(job, 1, "running")
        await adapter.kill(job, 1)
        await ended(adapter, job)
        # Right after the end, the process that watched may still hold the lock.
        await adapter.start(order(tmp_path, job, "true", epoch=2))
        assert (await ended(adapter, job)).epoch == 2

    asyncio.run(main())


def test_a_stale_epoch_is_refused(tmp_path: Path) -> None:
    async def main() -> None:
        adapter, job = await opened(tmp_path), new_job(tmp_path)
        late = order(tmp_path, job, "sh", "-c", "echo late", epoch=1)
        write_file(late.folder / LEASE_FILE, Grant(job, 2))
        with pytest.raises(AdapterError, match="epoch 1 is stale: the lease is of epoch 2"):
            await adapter.start(late)
        assert await adapter.observe() == []
        await adapter.start(order(tmp_path, job, "true", epoch=2))
        assert (await ended(adapter, job)).epoch == 2
        write_file(late.folder / LEASE_FILE, Grant(job, 1))
        with pytest.raises(AdapterError, match="epoch 1 is stale: the lease is of epoch 1, the last start of 2"):
            await adapter.start(late)
        assert not lines(late.folder / "log")

    asyncio.run(main())


def test_a_shim_loads_little() -> None:
    """It is started for every job, and stays beside it."""
    program = SHIM_SCRIPT.replace("module.main()", "print(*sys.modules)")
    code = marshal.dumps(shim_code())
    said = subprocess.run([*PYTHON, program], input=code, capture_output=True, check=True).stdout.decode().split()
    assert not {"collections", "contextlib", "enum", "json", "re", "signal", "subprocess", "typing"}.intersection(said)
    assert sum(name.startswith("allocator") for name in said) == 4


def test_a_hundred_starts(tmp_path: Path, record_property: pytest.RecordProperty) -> None:
    async def main() -> None:
        adapter = await opened(tmp_path)
        jobs = [new_job(tmp_path) for _ in range(100)]
        orders = [order(tmp_path, job) for job in jobs]
        began = time.perf_counter()
        await asyncio.gather(*(adapter.start(each) for each in orders))
        started = time.perf_counter()
        seen = await adapter.observe()
        looked = time.perf_counter()
        assert Counter(each.phase for each in seen) == {"running": 100}
        await asyncio.gather(*(adapter.kill(job, 1) for job in jobs))
        assert {(await ended(adapter, job)).signal for job in jobs} == {signal.SIGKILL}
        record_property("seconds of 100 starts", started - began)
        record_property("seconds of a look at 100 jobs", looked - started)
        print(f"100 starts: {started - began:.3f} s; a look: {looked - started:.4f} s", file=sys.stderr)

    asyncio.run(main())
