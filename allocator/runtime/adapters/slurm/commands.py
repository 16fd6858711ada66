"""Slurm's commands: as processes with a time limit, their arguments as lists, their answers as JSON."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from allocator.runtime.adapters.base import AdapterError, NoAnswerError
from allocator.runtime.adapters.slurm.records import Server, SlurmJob, read_jobs, read_servers

Answer = TypeVar("Answer")

# Others, as SBATCH_PARTITION or SQUEUE_STATES, would act as options that nobody has given.
PASSED_ON = ("HOME", "LANG", "LD_LIBRARY_PATH", "LOGNAME", "PATH", "SLURM_CONF", "SLURM_JWT", "TZ", "USER")

RETRIES, RETRY_SECONDS = 20, 0.25
"""For answers that pass by themselves."""

PASSING = ("try again", "temporarily unable to accept job")

SILENT = ("unable to contact", "connection refused", "communication", "timed out", "not responding")
"""Complaints that say that slurmctld does not answer."""

AT_ONCE = 8
"""Commands that run beside each other: slurmctld asks its clients not to come in hundreds."""


@dataclass(frozen=True)
class SlurmSettings:
    """How a Slurm cluster is used.

    Attributes
    ----------
    partition : jobs go there, and its nodes count; "": the default partition, and all nodes that have GPUs.
    python : interpreter on the nodes that runs our batch script: 3.11 or newer, nothing else need be installed there.
    cpus_per_gpu, memory_per_gpu : that a job gets with each GPU, memory in MiB; None: what each GPU has on the node
        where it is least, so that all GPUs of every node can be in use.
    options : further ones of sbatch, such as "--account=vision" or "--time=7-0".
    accelerators : our name of an accelerator type by that in Slurm's GRES, where they differ.
    configuration : path of slurm.conf, if it is neither in its usual place nor in the environment.
    command_seconds : limit for each of Slurm's commands.
    patience_seconds : how long is waited for nodes of which a slurmctld that was just started has not heard.
    lock_seconds : how long a started job waits for a copy on a node that was cut off.
    """

    partition: str = ""
    python: str = sys.executable
    cpus_per_gpu: int | None = None
    memory_per_gpu: int | None = None
    options: tuple[str, ...] = ()
    accelerators: dict[str, str] = field(default_factory=dict)
    configuration: str = ""
    command_seconds: float = 30.0
    patience_seconds: float = 20.0
    lock_seconds: float = 60.0


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

    Attributes
    ----------
    jobs : jobs of ours.
    servers : nodes that have GPUs.
    """

    def __init__(self, settings: SlurmSettings) -> None:
        self._settings = settings
        self._environment = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
        if settings.configuration:
            self._environment["SLURM_CONF"] = settings.configuration
        self._places = asyncio.Semaphore(AT_ONCE)
        self.jobs = SharedLook(self._read_jobs)
        self.servers = SharedLook(self._read_servers)

    async def _read_jobs(self) -> list[SlurmJob]:
        told = await self.ask("squeue", "--json")
        return _understand(lambda: read_jobs(told, os.getuid()), "squeue --json")

    async def _read_servers(self) -> list[Server]:
        told = await self.ask(*self._nodes_command)
        settings = self._settings
        return _understand(
            lambda: read_servers(told, settings.partition, settings.accelerators), " ".join(self._nodes_command)
        )

    _nodes_command: tuple[str, ...] = ("sinfo", "--json")

    async def choose_commands(self) -> None:
        """Find out how this version tells of its nodes: sinfo's JSON is of nodes only before 23.02."""
        told = await self.ask("sinfo", "--json")
        if "nodes" not in told:
            self._nodes_command = ("scontrol", "show", "node", "--json")

    async def submit(self, script: str, options: Sequence[str]) -> None:
        """A new Slurm job."""
        settings = self._settings
        partition = [f"--partition={settings.partition}"] if settings.partition else []
        await self.run("sbatch", *options, *partition, *settings.options, script)

    async def cancel(self, number: int) -> None:
        """End a job: SIGTERM, and SIGKILL when KillWait is over."""
        await self.run("scancel", str(number))

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
        limit = self._settings.command_seconds
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
                output, complaint = await asyncio.wait_for(process.communicate(), limit)
            except TimeoutError:
                raise NoAnswerError(f"{command[0]} has not answered within {limit:g} s") from None
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
