"""Jobs on this machine: what they are given, how they end, and files of theirs that are old, spoilt, or no files."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from allocator.lease.files import LEASE_FILE, Grant, write_file
from allocator.runtime.adapters.base import AdapterError, CommandError, LogReader, Placed, Seen
from allocator.runtime.adapters.node import EXIT_FILE, LOCK_FILE, LOG_FILES, RUN_FILE, Log, RankOutput, boot_identity
from tests.runtime.worlds import PYTHON, processes_of, until


async def test_arguments_are_taken_as_they_are(local):
    arguments = ["a b", "$HOME", "; touch broken", "`id`", "*", "'\"\\", "", "-c", "\n", "ü€", os.fsdecode(b"\xff")]
    program = "import os, sys; sys.stdout.buffer.write(b'\\0'.join(map(os.fsencode, sys.argv[1:])))"
    job = await local.start(*PYTHON, program, *arguments)
    assert (await local.ended(job)).code == 0
    assert (local.folder(job) / "log").read_bytes().split(b"\0") == [os.fsencode(argument) for argument in arguments]


async def test_the_environment_of_a_job(local, monkeypatch):
    for name, value in {"OF_THE_SERVICE": "service", "OF_BOTH": "service", "CUDA_VISIBLE_DEVICES": "7"}.items():
        monkeypatch.setenv(name, value)
    program = (
        "import json, os, signal, sys; json.dump({**os.environ, 'cwd': os.getcwd(), 'input': sys.stdin.read(),"
        " 'ignored': signal.getsignal(signal.SIGTERM) != signal.SIG_DFL, 'blocked': len(signal.pthread_sigmask(0, ())),"
        " 'files': len(os.listdir('/proc/self/fd')) - 1, 'session': os.getsid(0) == os.getpid()}, sys.stdout)"
    )
    adapter, job = await local.open(), local.new_job()
    given = {"OF_THE_JOB": "job", "OF_BOTH": "job", "ALLOCATOR_JOB_ID": "false"}
    order = local.order(job, *PYTHON, program, epoch=5, environment=given, working_directory=local.state / "jobs")
    await adapter.start(replace(order, placed=Placed("k80", {"local-k80": (1, 0)})))
    assert (await local.ended(job)).code == 0
    found = json.loads((local.folder(job) / "log").read_text())
    expected = {
        "ALLOCATOR_JOB_ID": job,
        "ALLOCATOR_CHECKPOINT_DIR": str(local.folder(job) / "checkpoint"),
        "ALLOCATOR_LEASE_EPOCH": "5",
        "OF_THE_SERVICE": "service",
        "OF_THE_JOB": "job",
        "OF_BOTH": "job",
        # the four v100 come before the two k80
        "CUDA_VISIBLE_DEVICES": "5,4",
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "cwd": str(local.state / "jobs"),
        "input": "",
        "ignored": False,
        "blocked": 0,
        "files": 3,
        "RANK": None,
    }
    assert {name: found.get(name) for name in expected} == expected


async def test_one_process_for_each_gpu(local):
    names = (
        "RANK",
        "LOCAL_RANK",
        "WORLD_SIZE",
        "LOCAL_WORLD_SIZE",
        "CUDA_VISIBLE_DEVICES",
        "MASTER_ADDR",
        "MASTER_PORT",
    )
    program = f"import os; print(*(os.environ[name] for name in {names}), flush=True)"
    job = await local.start(*PYTHON, program, gpus=3, one_process_per_gpu=True)
    assert (await local.ended(job)).code == 0
    labels, told = zip(*sorted(line.split(": ") for line in local.log(job)), strict=True)
    assert labels == ("rank 0", "rank 1", "rank 2")
    rows = [line.split() for line in told]
    assert [row[:6] for row in rows] == [[str(i), str(i), "3", "3", "0,1,2", "127.0.0.1"] for i in range(3)]
    assert len({row[6] for row in rows}) == 1


async def test_one_process_that_fails_ends_the_others_even_against_their_will(local):
    program = "import os, signal, sys, time; signal.signal(15, signal.SIG_IGN); open(f\"{os.environ['RANK']}\", 'w')\n"
    program += "while not (os.path.exists('0') and os.path.exists('1')): time.sleep(0.02)\n"
    program += "sys.exit(9) if os.environ['RANK'] == '1' else time.sleep(600)"
    job = await local.start(*PYTHON, program, gpus=2, one_process_per_gpu=True)
    seen = await local.ended(job)
    assert (seen.code, seen.signal, seen.reason) == (9, 0, "rank 1: exit status 9")
    assert not processes_of(job)


async def test_a_stop_asks_each_process_once_and_lets_it_take_its_time(local):
    """The first to go must not hurry the others, who may be writing a checkpoint."""
    program = (
        "import os, signal, time\n"
        "def end(*_):\n    os.write(1, b'asked\\n')\n"
        "    time.sleep(0.5 * int(os.environ['RANK']))\n    os.write(1, b'saved\\n')\n    os._exit(0)\n"
        "signal.signal(signal.SIGTERM, end)\nos.write(1, b'ready\\n')\n"
        "while True: time.sleep(600)"
    )
    job = await local.start(*PYTHON, program, gpus=2, one_process_per_gpu=True)
    await until(lambda: len(local.log(job)) == 2)
    for _ in range(3):
        await local.adapter.stop(job, 1)
        await until(lambda: "rank 1: asked" in local.log(job))
    assert (await local.ended(job)).code == 0
    said = Counter(local.log(job))
    assert said == {f"rank {rank}: {word}": 1 for rank in range(2) for word in ("ready", "asked", "saved")}


def test_output_of_ranks_is_whole_lines_however_it_comes(tmp_path, monkeypatch):
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


def test_output_is_read_on_where_files_change_places(tmp_path):
    log, reader = tmp_path / "log", LogReader(tmp_path)
    assert list(reader.news()) == []
    with log.open("wb", 0) as file:
        file.write(b"one")
        assert [*reader.news(), *reader.news()] == [b"one"]
        file.write(b"two")
        log.replace(tmp_path / "log.1")
        file.write(b"three")
        log.write_bytes(b"four")
    for one, told in ((reader, [b"twothree", b"four"]), (LogReader(tmp_path), [b"onetwothree", b"four"])):
        assert [*one.news(), *one.news()] == told


async def test_a_command_that_cannot_be_run_is_named(local):
    for name in ("plain", "odd"):
        (local.state / name).write_text("echo")
    (local.state / "odd").chmod(0o700)
    for command, said, code in [
        (("no-such-command", "x"), r"not found: the command no-such-command, in PATH=.+", 127),
        (("/no/such/command",), r"not found: the command /no/such/command", 127),
        (("./plain",), r"\./plain: .*Permission denied", 126),
        (("./odd",), r"\./odd: .*Exec format error", 126),
        (("",), r"the command cannot be used: : ", 126),
    ]:
        job = local.new_job()
        with pytest.raises(CommandError, match=said) as refusal:
            await local.start(*command, job=job)
        seen = await local.ended(job)
        assert (refusal.value.code, seen.code, seen.signal) == (code, code, 0)
    # the next start is a fresh one
    await local.start("true", job=job, epoch=2)
    assert (await local.ended(job, 2)).code == 0


async def test_what_else_is_refused(local):
    adapter, job = await local.open(), local.new_job()
    plain = local.order(job, "true", epoch=2)
    for changes, said in [
        ({"working_directory": local.state / "nowhere"}, r"not found: the working directory .*/nowhere"),
        ({"placed": Placed("v100", {"local-v100": (4,)})}, "no such GPUs"),
        ({"job": "../../x"}, "not the name of a folder"),
        ({"command": ("true", "\ud800")}, "surrogates not allowed"),
        ({"folder": local.state / "jobs" / "none"}, "No such file"),
    ]:
        with pytest.raises(AdapterError, match=said):
            await adapter.start(replace(plain, **changes))
    # output is not written through a link
    job = local.new_job()
    (local.folder(job) / "log").symlink_to(local.state / "elsewhere")
    with pytest.raises(AdapterError, match="log"):
        await local.start("echo", "secret", job=job)
    assert not (local.state / "elsewhere").exists()


async def test_signals_end_a_job_and_a_stopped_shim_does_not_keep_it_alive(local):
    job = await local.start("sh", "-c", "kill -SEGV $$")
    seen = await local.ended(job)
    assert (seen.code, seen.signal, seen.reason) == (128 + signal.SIGSEGV, signal.SIGSEGV, "ended by signal 11")
    job = await local.start()
    os.kill(local.shim(job), signal.SIGSTOP)
    await local.adapter.kill(job, 1)
    seen = await local.ended(job)
    assert (seen.code, seen.signal) == (137, signal.SIGKILL)


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


@pytest.mark.parametrize(("then", "code"), [("sys.exit(4)", 4), ("time.sleep(600)", 137)])
async def test_nothing_outlives_a_job(local, then, code):
    job = await local.start(*PYTHON, GRANDCHILDREN + then)
    if code == 137:
        await until(lambda: local.log(job) == ["ready"] and len(processes_of(job)) == 4)
        await local.adapter.kill(job, 1)
    assert (await local.ended(job)).code == code
    assert not processes_of(job)


async def test_output_has_a_limit(local):
    limit, written = 50_000, 40_000
    program = f"import sys\nfor i in range({written}): sys.stdout.write(f'{{i:9d}}\\n')"
    job = local.new_job()
    newest, older = (local.folder(job) / name for name in LOG_FILES)
    # what an earlier start has said counts
    for epoch in (1, 2):
        await local.start(*PYTHON, program, job=job, epoch=epoch, log_bytes=limit)
        assert (await local.ended(job, epoch)).code == 0
        assert limit // 2 < newest.stat().st_size + older.stat().st_size <= limit
    kept = [int(line) for line in (older.read_text() + newest.read_text()).split()[1:]]
    assert kept == list(range(written - len(kept), written))
    for path in (newest, older, *(local.records(job) / name for name in (RUN_FILE, EXIT_FILE, LOCK_FILE))):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


async def test_two_starts_never_run_at_once_and_a_stale_epoch_is_refused(local):
    job = await local.start()
    with pytest.raises(AdapterError, match="another start of the job runs: epoch 1"):
        await local.start(job=job, epoch=2)
    assert await local.seen(job) == Seen(job, 1, "running")
    await local.adapter.kill(job, 1)
    await local.ended(job)
    late = local.order(job, "sh", "-c", "echo late")
    write_file(late.folder / LEASE_FILE, Grant(job, 2))
    with pytest.raises(AdapterError, match="epoch 1 is stale: the lease is of epoch 2"):
        await local.adapter.start(replace(late, job=local.new_job()))
    # right after the end, the process that watched may still hold the lock
    await local.start("true", job=job, epoch=2)
    assert (await local.ended(job, 2)).epoch == 2
    write_file(late.folder / LEASE_FILE, Grant(job, 1))
    with pytest.raises(AdapterError, match="epoch 1 is stale: the lease is of epoch 1, the last start of 2"):
        await local.adapter.start(late)
    assert not local.log(job)


def run_file(epoch=1, pid=1, start_time=1, boot=""):
    return f'{{"epoch": {epoch}, "pid": {pid}, "start_time": {start_time}, "boot": "{boot}"}}'


async def through(local):
    """A job that has ended, and where it is kept what is known of it."""
    job = await local.start("true")
    await local.ended(job)
    return job, local.records(job)


async def test_numbers_and_start_times_of_processes_come_again(local):
    """On a machine that was started anew, or for another process than the shim."""
    job, folder = await through(local)
    own = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
    with subprocess.Popen(["sleep", "600"]) as innocent:
        for file, reason in (
            (run_file(1, os.getpid(), own, "an earlier one"), "the machine was started anew"),
            (run_file(1, innocent.pid, 1, boot_identity()), "the process that watched it was killed"),
        ):
            (folder / EXIT_FILE).unlink()
            (folder / RUN_FILE).write_text(file)
            for _ in range(2):
                adapter = await local.open()
                await adapter.stop(job, 1)
                await adapter.kill(job, 1)
                seen = await local.seen(job)
                assert (seen.phase, seen.code, seen.reason) == ("ended", None, reason)
        assert innocent.poll() is None
        innocent.kill()


ODD = (
    *("", "{", "[]", "null", '{"epoch": null}', '{"epoch": "x", "pid": []}', "\0" * 100, "[" * 50_000),
    *(run_file("1e400"), run_file(1, "1e400"), run_file(1, 10**30), run_file(1, -1)),
    '{"epoch": 1, "code": 1e400, "signal": 0, "ended_at": 1, "reason": ""}',
)


async def test_files_that_make_no_sense_do_no_harm(local):
    job, folder = await through(local)
    for number in ("NaN", "1e400", "-1e400"):
        told = f'{{"epoch": 1, "code": 0, "signal": 0, "ended_at": {number}, "reason": ""}}'
        (folder / EXIT_FILE).write_text(told)
        await local.open()
        assert await local.seen(job) == Seen(job, 1, "ended", 0, 0, "ended, nobody knows how")
    for name in (RUN_FILE, EXIT_FILE):
        for text in ODD:
            (folder / name).write_text(text)
            adapter = await local.open()
            await adapter.observe()
            await adapter.stop(job, 1)
            await adapter.kill(job, 1)
