"""What Slurm's commands tell in JSON, whose form differs between its versions."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from allocator.runtime.adapters.base import Node
from allocator.runtime.adapters.slurm.runner import PREFIX

_FINISHED = {
    "BOOT_FAIL",
    "CANCELLED",
    "COMPLETED",
    "DEADLINE",
    "FAILED",
    "NODE_FAIL",
    "OUT_OF_MEMORY",
    "PREEMPTED",
    "REVOKED",
    "TIMEOUT",
}
_TAKEN = {"BOOT_FAIL", "NODE_FAIL", "PREEMPTED", "REVOKED"}
_DRAINED = {"DRAIN", "DRAINED", "DRAINING"}
_NOT_UP = {
    "DOWN",
    "ERROR",
    "FAIL",
    "FAILING",
    "FUTURE",
    "INVAL",
    "INVALID",
    "INVALID_REG",
}
_NOT_UP |= {"MAINT", "MAINTENANCE", "NO_RESPOND", "NOT_RESPONDING", "POWERED_DOWN", "POWERING_DOWN", "POWER_DOWN"}
_NOT_UP |= {"REBOOT", "REBOOT_ISSUED", "REBOOT_REQUESTED"}


@dataclass(frozen=True)
class SlurmJob:
    """A job of ours as Slurm sees it.

    Attributes
    ----------
    number : that Slurm gave it; unique only until slurmctld crashes.
    name : see `Start`.
    states : one base state, and flags such as COMPLETING.
    reason : why it does not run.
    """

    number: int
    name: str
    states: frozenset[str]
    reason: str = ""

    @property
    def finished(self) -> bool:
        """Whether it is through, and holds nothing."""
        return bool(self.states & _FINISHED) and not self.completing

    @property
    def completing(self) -> bool:
        """Whether its processes are being ended."""
        return "COMPLETING" in self.states

    @property
    def pending(self) -> bool:
        """Whether it waits in the queue, and holds nothing."""
        return "PENDING" in self.states and not self.completing

    @property
    def taken(self) -> bool:
        """Whether Slurm has ended it for reasons that are not the job's."""
        return bool(self.states & _TAKEN)

    @property
    def state(self) -> str:
        """In words."""
        return " ".join(sorted(self.states))


@dataclass(frozen=True)
class Server:
    """A node, and what Slurm divides among its jobs; memory in MiB.

    A slurmctld that was just started has not yet heard of its nodes. It takes what runs there for ended as soon as it
    is to end it, without telling the node.
    """

    node: Node
    cpus: int
    memory: int
    heard_of: bool = True


def read_jobs(told: Mapping[str, Any], user: int) -> list[SlurmJob]:
    """Jobs of a user that have names of ours; anybody may name a job of his own so."""
    return [
        SlurmJob(
            int(row["job_id"]),
            row["name"],
            _states(row["job_state"]),
            (row.get("state_reason") or "").removeprefix("None"),
        )
        for row in told["jobs"]
        if _text(row.get("name")).startswith(PREFIX) and row.get("user_id") == user
    ]


def read_servers(told: Mapping[str, Any], partition: str) -> list[Server]:
    """Nodes with GPUs, of one partition where it is named."""
    servers = []
    for row in told["nodes"]:
        gpus = list(_gpus(_text(row.get("gres"))))
        if not gpus or (partition and partition not in _words(row.get("partitions"))):
            continue
        states = _states(row["state"]) | _states(row.get("state_flags") or ())
        why, up = " ".join(sorted(states & (_NOT_UP | _DRAINED))).lower(), not states & _NOT_UP
        said = _text(row.get("reason"))
        if len({kind for kind, _ in gpus}) > 1:
            why, up, said = "GPUs of several types on one node", False, _text(row.get("gres"))
        node = Node(
            row["name"],
            gpus[0][0],
            sum(count for _, count in gpus),
            up=up,
            reason=f"{why}: {said}" if why and said else why,
            drained=bool(states & _DRAINED),
        )
        heard_of = "UNKNOWN" not in states
        servers.append(Server(node, int(row.get("cpus") or 0), int(row.get("real_memory") or 0), heard_of))
    return sorted(servers, key=lambda server: server.node.name)


def _gpus(gres: str) -> Iterable[tuple[str, int]]:
    """(Type, number) of the GPUs in "gpu:v100:4(S:0-1),shard:8"; the type of untyped ones is "gpu"."""
    for entry in re.split(r",(?![^(]*\))", gres):
        parts = entry.partition("(")[0].split(":")
        if parts[0] == "gpu" and parts[-1].isdecimal() and int(parts[-1]):
            yield parts[1] if len(parts) == 3 else "gpu", int(parts[-1])


def _states(value: str | Sequence[str]) -> frozenset[str]:
    """Words, in one string or a list of them, in capitals."""
    return frozenset(word.upper().rstrip("*~#!%$@^-") for word in _words(value))


def _words(value: object) -> list[str]:
    if isinstance(value, str):
        return [word for word in re.split(r"[+,\s]+", value) if word]
    return [str(word) for word in value] if isinstance(value, list | tuple) else []


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
