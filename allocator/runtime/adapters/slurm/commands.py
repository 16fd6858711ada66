"""Slurm's commands: as processes with a time limit, their arguments as lists, their answers as JSON."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Generic, TypeVar

from allocator.runtime.adapters.base import AdapterError, NoAnswerError
from allocator.runtime.adapters.slurm.records import Server, SlurmJob, read_jobs, read_servers

Answer = TypeVar("Answer")

# Others, as SQUEUE_STATES, would act as options that nobody has given. Those of sbatch are passed on, too.
PASSED_ON = ("HOME", "LANG", "LD_LIBRARY_PATH", "LOGNAME", "PATH", "SLURM_CONF", "SLURM_JWT", "TZ", "USER")

RETRIES, RETRY_SECONDS = 20, 0.25
"""For answers that pass by themselves."""

PASSING = ("try again", "temporarily unable to accept job")

SILENT = ("unable to contact", "connection refused", "communication", "timed out", "not responding")
"""Complaints that say that slurmctld does not answer."""

COMMAND_SECONDS = 30.0
"""That each command may take."""

AT_ONCE = 8
"""Commands that run beside each other: slurmctld asks its clients not to come in hundreds."""


class SharedLook(Generic[Answer]):
    """A look at the cluster that begins after it was asked for; those who ask at once share one."""

    def __init__(self, look: Callable[[], Awaitable[Answer]]) -> None:
        self._look = look
        self._looking = asyncio.Lock()
        self._next: asyncio.Task[Answer] | None = None

    async def __call__(self) -> Answer:
        """The answer that the present call waits for, or a new one."""
        if self._next is None:
            self._next = asyncio.create_task(self._begin())
        return await asyncio.shield(self._next)

    async def _begin(self) -> Answer:
        async with self._looking:
            self._next = None
            return await self._look()


class Slurm:
    """A cluster by its commands.

    Parameters
    ----------
    partition : jobs go there, and its nodes count; "": the default partition, and all nodes that have GPUs.

    Attributes
    ----------
    jobs : jobs of ours.
    servers : nodes that have GPUs.
    """

    def __init__(self, partition: str) -> None:
        self._partition = partition
        passed_on = (name for name in os.environ if name in PASSED_ON or name.startswith("SBATCH_"))
        self._environment = {name: os.environ[name] for name in passed_on}
        self._places = asyncio.Semaphore(AT_ONCE)
        self.jobs = SharedLook(self._read_jobs)
        self.servers = SharedLook(self._read_servers)

    async def _read_jobs(self) -> list[SlurmJob]:
        told = await self.ask("squeue", "--json")
        return _understand(lambda: read_jobs(told, os.getuid()), "squeue --json")

    async def _read_servers(self) -> list[Server]:
        told = await self.ask("sinfo", "--json")
        if "nodes" not in told:
            # from 23.02 on sinfo tells of partitions
            told = await self.ask("scontrol", "show", "node", "--json")
        return _understand(lambda: read_servers(told, self._partition), "sinfo, or scontrol show node")

    async def submit(self, script: str, options: Sequence[str]) -> None:
        """A new Slurm job."""
        partition = [f"--partition={self._partition}"] if self._partition else []
        await self.run("sbatch", *options, *partition, script)

    async def cancel(self, name: str) -> None:
        """End what has a name of ours: SIGTERM, and SIGKILL when KillWait is over."""
        await self.run("scancel", f"--name={name}", f"--user={os.getuid()}")

    async def ask(self, *command: str) -> dict[str, Any]:
        """What a command answers in JSON."""
        text = await self.run(*command)
        told = _understand(lambda: json.loads(text), command[0])
        if not isinstance(told, dict):
            raise AdapterError(f"{command[0]} does not answer with an object: {text[:200]}")
        return told

    async def run(self, *command: str) -> str:
        """What a command prints.

        Raises
        ------
        AdapterError
            It failed, or did not answer in time.
        """
        for _ in range(RETRIES):
            status, output, complaint = await self._run_once(command)
            if status == 0:
                return output
            if not any(words in complaint.lower() for words in PASSING):
                break
            await asyncio.sleep(RETRY_SECONDS)
        kind = NoAnswerError if any(words in complaint.lower() for words in SILENT) else AdapterError
        raise kind(f"{' '.join(command[:3])}: {complaint.strip() or f'exit status {status}'}")

    async def _run_once(self, command: Sequence[str]) -> tuple[int, str, str]:
        async with self._places:
            try:
                process = await asyncio.create_subprocess_exec(
                    *command,
                    env=self._environment,
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=asyncio.subprocess.PIPE,
                    stderr=asyncio.subprocess.PIPE,
                )
            except OSError as error:
                message = f"{command[0]} cannot be run ({error.strerror}); are Slurm's commands installed here?"
                raise AdapterError(message) from error
            try:
                output, complaint = await asyncio.wait_for(process.communicate(), COMMAND_SECONDS)
            except TimeoutError:
                raise NoAnswerError(f"{command[0]} has not answered within {COMMAND_SECONDS:g} s") from None
            finally:
                if process.returncode is None:
                    process.kill()
                    await process.wait()
        return process.returncode or 0, output.decode(errors="replace"), complaint.decode(errors="replace")


def _understand(read: Callable[[], Answer], source: str) -> Answer:
    try:
        return read()
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise AdapterError(f"the answer of {source} is not understood: {error!r}") from error
