"""What goes wrong on one machine: whoever is killed when, nothing is lost and nothing runs twice."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from allocator.runtime.adapters.base import AdapterError, Seen
from allocator.runtime.adapters.local.folder import (
    EXIT_FILE,
    RUN_FILE,
    number_in,
    reserve_exit,
    take_lock,
    write_exit,
)
from allocator.runtime.adapters.local.output import LOG_FILES
from allocator.runtime.adapters.local.processes import is_alive, start_time_of
from tests.runtime.small_disks import small_disk_at
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

KILL_POINTS = 60

# To import everything anew for each would take most of the time.
SCHEDULERS = """
import asyncio, os, sys
from pathlib import Path
from tests.runtime.worlds import opened, order

async def main(state, jobs):
    adapter = await opened(state)
    for job in jobs:
        await adapter.start(order(state, job, "sh", "-c", f"echo {job} >> {state}/ran"))
        with open(state / "told", "a") as file:
            print(job, file=file)

for line in sys.stdin:
    scheduler = os.fork()
    if not scheduler:
        asyncio.run(main(Path(sys.argv[1]), line.split()))
        os._exit(0)
    print(scheduler, flush=True)
    os.waitpid(scheduler, 0)
    print("gone", flush=True)
"""


def test_a_scheduler_killed_at_any_moment_of_a_start(tmp_path: Path) -> None:
    """Each job ran once at most, is told of truly, and runs once in all when it is ordered again."""
    draw = random.Random(0)
    phases: Counter[str] = Counter()

    async def check(jobs: list[str], told: list[str]) -> None:
        adapter = await opened(tmp_path)
        seen = {each.job: each for each in await adapter.observe()}
        ran = Counter(lines(tmp_path / "ran"))
        assert all(seen[job].epoch == 1 for job in told)
        for job in jobs:
            phases[seen[job].phase if job in seen else "not started"] += 1
            # What is over has run; a job that is not seen may be about to start, but never has run before.
            if job in seen and seen[job].phase == "ended":
                assert ran[job] == 1
        await asyncio.gather(
            *(adapter.start(order(tmp_path, job, "sh", "-c", f"echo {job} >> {tmp_path}/ran")) for job in jobs)
        )
        for job in jobs:
            assert (await ended(adapter, job)).code == 0
            await adapter.forget(job)
        ran = Counter(lines(tmp_path / "ran"))
        assert {job: ran[job] for job in jobs} == dict.fromkeys(jobs, 1)

    with subprocess.Popen(
        [sys.executable, "-c", SCHEDULERS, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=Path(__file__).parents[2],
        text=True,
    ) as schedulers:
        assert schedulers.stdin
        assert schedulers.stdout
        seconds = float("inf")
        for point in range(KILL_POINTS + 3):
            jobs = [new_job(tmp_path) for _ in range(2)]
            print(*jobs, file=schedulers.stdin, flush=True)
            scheduler = int(schedulers.stdout.readline())
            if point >= 3:
                time.sleep(draw.uniform(0.0, 1.1 * seconds))
                with suppress(ProcessLookupError):
                    os.kill(scheduler, signal.SIGKILL)
            else:
                # The first ones are left alone, to see how long one takes.
                began = time.perf_counter()
                asyncio.run(until(lambda jobs=jobs: {*jobs} <= {*lines(tmp_path / "told")}))
                seconds = min(seconds, time.perf_counter() - began)
            assert schedulers.stdout.readline() == "gone\n"
            asyncio.run(check(jobs, [job for job in lines(tmp_path / "told") if job in jobs]))
    print(f"when the scheduler was killed: {dict(phases)}", file=sys.stderr)
    assert len(phases) > 1


TREE = (
    "import os, time\n"
    "for way in (os.setsid, os.setpgrp, lambda: None):\n"
    "    if not os.fork():\n"
    "        way()\n"
    "        if os.fork(): os._exit(0)\n"
    "        os.closerange(0, 3)\n"
    "        time.sleep(600)\n"
    "        os._exit(0)\n"
    "with open({ran!r}, 'a') as file: print({job!r}, {epoch}, file=file)\n"
    "time.sleep(600)\n"
)
"""Leaves grandchildren in a session, a group and nothing of their own."""


def test_a_shim_killed_at_any_moment_takes_everything_with_it(tmp_path: Path) -> None:
    draw = random.Random(1)
    ran = tmp_path / "ran"

    def tree(job: str, epoch: int) -> str:
        return TREE.format(ran=str(ran), job=job, epoch=epoch)

    async def main() -> None:
        adapter = await opened(tmp_path)
        refused = 0
        for _ in range(40):
            job = new_job(tmp_path)
            starting = asyncio.create_task(adapter.start(order(tmp_path, job, *PYTHON, tree(job, 1))))
            pid = await until(lambda job=job: shim_of(tmp_path, job))
            await asyncio.sleep(draw.uniform(0.0, 0.03))
            os.kill(pid, signal.SIGKILL)
            try:
                await starting
            except AdapterError:
                refused += 1
            if draw.random() < 0.5:
                seen = await ended(adapter, job)
                assert seen == Seen(job, 1, "ended", None, 0, "the process that watched it was killed", seen.ended_at)
                assert not processes_of(job)
            await adapter.start(order(tmp_path, job, *PYTHON, tree(job, 2), epoch=2))
            assert await seen_of(adapter, job) == Seen(job, 2, "running")
            await until(lambda job=job: f"{job} 2" in lines(ran))
            # Those between are gone in a moment; of the first start nothing is left.
            await until(lambda job=job: len(processes_of(job)) == 4)
            await adapter.kill(job, 2)
            assert (await ended(adapter, job)).signal == signal.SIGKILL
            assert not processes_of(job)
            await adapter.forget(job)
        assert max(Counter(lines(ran)).values()) == 1
        print(f"{refused} of 40 starts were cut short", file=sys.stderr)

    asyncio.run(main())


def test_the_process_that_takes_orders_may_be_killed(tmp_path: Path) -> None:
    async def main() -> None:
        adapter = await opened(tmp_path)
        jobs = [new_job(tmp_path) for _ in range(3)]
        for job in jobs:
            before = set(children_of(os.getpid()))
            await adapter.start(order(tmp_path, job))
            for launcher in set(children_of(os.getpid())) - before:
                os.kill(launcher, signal.SIGKILL)
                await until(lambda launcher=launcher: not is_alive(launcher, start_time_of(launcher)))
        assert {seen.phase for seen in await adapter.observe()} == {"running"}
        assert len(await adapter.observe()) == 3
        for job in jobs:
            await adapter.kill(job, 1)
            await ended(adapter, job)
        await adapter.close()

    asyncio.run(main())


def test_a_start_that_nobody_waits_for_any_more_does_not_begin(tmp_path: Path) -> None:
    async def main() -> None:
        adapter, jobs = await opened(tmp_path), [new_job(tmp_path) for _ in range(3)]
        before = set(children_of(os.getpid()))
        await adapter.start(order(tmp_path, jobs[0], "true"))
        (launcher,) = set(children_of(os.getpid())) - before
        os.kill(launcher, signal.SIGSTOP)
        late = asyncio.ensure_future(adapter.start(order(tmp_path, jobs[1], "true")))
        await asyncio.sleep(0.1)
        late.cancel()
        with suppress(asyncio.CancelledError):
            await late
        os.kill(launcher, signal.SIGCONT)
        await adapter.start(order(tmp_path, jobs[2], "true"))
        await ended(adapter, jobs[2])
        folder, records = tmp_path / "jobs" / jobs[1], records_of(tmp_path, jobs[1])
        # its shim has looked, and left
        await until(
            lambda: (records / "run.lock").exists() and (lock := take_lock(str(records))) and not os.close(lock)
        )
        assert not (records / RUN_FILE).exists()
        assert not (folder / "log").exists() or not lines(folder / "log")
        await adapter.close()

    asyncio.run(main())


def test_the_kernel_and_then_the_next_look_end_what_a_killed_shim_leaves(tmp_path: Path) -> None:
    async def main() -> None:
        adapter, job = await opened(tmp_path), new_job(tmp_path)
        program = "setsid sleep 600 & echo $! > daemon; exec sleep 601"
        folder = tmp_path / "jobs" / job
        await adapter.start(order(tmp_path, job, "sh", "-c", program, working_directory=folder))
        daemon = int((await until(lambda: lines(folder / "daemon")))[0])
        await until(lambda: len(processes_of(job)) == 2)
        os.kill(shim_of(tmp_path, job), signal.SIGKILL)
        await until(lambda: processes_of(job) == [daemon])
        assert (await ended(adapter, job)).code is None
        assert not processes_of(job)

    asyncio.run(main())


def test_processes_that_do_not_end_when_another_has_failed_are_killed(tmp_path: Path) -> None:
    program = "import os, signal, sys, time; signal.signal(15, signal.SIG_IGN); open(f\"{os.environ['RANK']}\", 'w')\n"
    program += "while not (os.path.exists('0') and os.path.exists('1')): time.sleep(0.01)\n"
    program += "sys.exit(9) if os.environ['RANK'] == '1' else time.sleep(600)"

    async def main() -> None:
        adapter, job = await opened(tmp_path), new_job(tmp_path)
        ranks = {"gpus": 2, "one_process_per_gpu": True, "working_directory": tmp_path}
        await adapter.start(order(tmp_path, job, *PYTHON, program, **ranks))
        assert (await ended(adapter, job)).reason == "rank 1: exit status 9"

    asyncio.run(main())


def test_reasons_of_any_kind_are_told_as_they_are(tmp_path: Path) -> None:
    for reason in ("plain", 'a "quoted" \\ path', '"epoch": 7, "code": 0}', "two\nlines\t\x00", "Größe \ud800"):
        reserved = reserve_exit(str(tmp_path))
        write_exit(str(tmp_path), reserved, 3, None, 0, reason, 5)
        os.close(reserved)
        told = json.loads((tmp_path / EXIT_FILE).read_bytes())
        assert (told["epoch"], told["code"], told["lost_output"]) == (3, None, 5)
        assert told["reason"] == reason.encode("ascii", "backslashreplace").decode()
        assert number_in(str(tmp_path / EXIT_FILE), "epoch") == 3


def test_output_is_not_written_through_a_link(tmp_path: Path) -> None:
    async def main() -> None:
        adapter, job = await opened(tmp_path), new_job(tmp_path)
        (tmp_path / "jobs" / job / "log").symlink_to(tmp_path / "elsewhere")
        with pytest.raises(AdapterError, match="log"):
            await adapter.start(order(tmp_path, job, "echo", "secret"))
        assert not (tmp_path / "elsewhere").exists()

    asyncio.run(main())


def children_of(pid: int) -> list[int]:
    return [
        child for path in Path(f"/proc/{pid}/task").glob("*/children") for child in map(int, path.read_text().split())
    ]


def test_another_scheduler_adopts_what_runs(tmp_path: Path) -> None:
    async def first() -> list[str]:
        adapter = await opened(tmp_path)
        jobs = [new_job(tmp_path) for _ in range(3)]
        for job, command in zip(jobs, (("sleep", "600"), ("false",), ("sleep", "600")), strict=True):
            await adapter.start(order(tmp_path, job, *command))
        await ended(adapter, jobs[1])
        await adapter.close()
        return jobs

    async def second(jobs: list[str]) -> None:
        adapter = await opened(tmp_path)
        seen = {each.job: each for each in await adapter.observe()}
        assert [seen[job].phase for job in jobs] == ["running", "ended", "running"]
        assert seen[jobs[1]].code == 1
        await adapter.stop(jobs[0], 1)
        assert (await ended(adapter, jobs[0])).signal == signal.SIGTERM
        await adapter.kill(jobs[2], 1)
        assert (await ended(adapter, jobs[2])).signal == signal.SIGKILL

    asyncio.run(second(asyncio.run(first())))


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of half a mebibyte."""
    with small_disk_at(tmp_path / "disk", "512k") as disk:
        yield disk


def fill(disk: Path) -> None:
    with open(disk / "filling", "ab", buffering=0) as file:
        for size in (65536, 4096, 1):
            try:
                while True:
                    file.write(b"x" * size)
            except OSError:
                continue


def test_a_full_disk_costs_output_and_nothing_else(small_disk: Path, tmp_path: Path) -> None:
    gates = [tmp_path / f"gate{i}" for i in range(3)]
    waits = [f"until [ -e {gate} ]; do sleep 0.01; done" for gate in gates]
    # more than a pipe holds: when it is written, the full disk has been met
    written = tmp_path / "written"
    command = f"echo first; {waits[0]}; seq 50000; : > {written}; {waits[1]}; echo last; {waits[2]}; exit 5"

    async def main() -> None:
        adapter, job = await opened(small_disk), new_job(small_disk)
        log = small_disk / "jobs" / job / "log"
        await adapter.start(order(small_disk, job, "sh", "-c", command))
        await until(lambda: lines(log) == ["first"])
        fill(small_disk)
        gates[0].touch()
        await until(written.exists)
        (small_disk / "filling").unlink()
        gates[1].touch()
        await until(lambda: lines(log)[-1] == "last")
        said = [line for line in lines(log) if "were lost: the disk was full" in line]
        assert len(said) == 1
        fill(small_disk)
        gates[2].touch()
        assert (await ended(adapter, job)).code == 5
        told = number_in(str(records_of(small_disk, job) / EXIT_FILE), "lost_output")
        assert said == [f"[{told} bytes of output were lost: the disk was full]"]
        seen = await seen_of(await opened(small_disk), job)
        assert seen
        assert seen.code == 5
        (small_disk / "filling").unlink()
        later = order(small_disk, job, "true", epoch=2)
        fill(small_disk)
        with pytest.raises(AdapterError, match="No space left on device"):
            await adapter.start(later)
        (small_disk / "filling").unlink()
        await adapter.start(later)
        assert (await ended(adapter, job)).epoch == 2

    asyncio.run(main())


def test_a_flood_of_output_and_processes(tmp_path: Path) -> None:
    """A job that writes and forks as fast as it can ends when it is killed."""
    program = (
        "import os\n"
        "for _ in range(20):\n"
        "    if not os.fork(): break\n"
        "os.setsid() if os.getpgrp() != os.getpid() else None\n"
        "while True: os.write(1, b'x' * 4095 + b'\\n')\n"
    )

    async def main() -> None:
        adapter, job = await opened(tmp_path), new_job(tmp_path)
        folder = tmp_path / "jobs" / job
        await adapter.start(order(tmp_path, job, *PYTHON, program, log_bytes=1 << 20))
        try:
            await until((folder / "log.1").exists)
            for _ in range(20):
                await asyncio.sleep(0.005)
                assert sum(_size(folder / name) for name in LOG_FILES) <= 1 << 20
        finally:
            await adapter.kill(job, 1)
        assert (await ended(adapter, job)).signal == signal.SIGKILL
        assert not processes_of(job)

    asyncio.run(main())


def _size(path: Path) -> int:
    """Bytes; 0 for a file that was just moved away."""
    with suppress(FileNotFoundError):
        return path.stat().st_size
    return 0


def test_a_look_at_many_jobs(tmp_path: Path, record_property: pytest.RecordProperty) -> None:
    """What has ended is read once."""

    async def main() -> None:
        adapter, model = await opened(tmp_path), new_job(tmp_path)
        await adapter.start(order(tmp_path, model, "true"))
        await ended(adapter, model)
        for _ in range(2000):
            job = new_job(tmp_path)
            records_of(tmp_path, job).mkdir()
            for name in (RUN_FILE, EXIT_FILE):
                (records_of(tmp_path, job) / name).write_bytes((records_of(tmp_path, model) / name).read_bytes())
        adapter = await opened(tmp_path)
        times = []
        for _ in range(2):
            began = time.perf_counter()
            seen = await adapter.observe()
            times.append(time.perf_counter() - began)
            assert len(seen) == 2001
        record_property("seconds of a look at 2,000 jobs that have ended", times)

    asyncio.run(main())
