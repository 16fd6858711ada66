"""A service that does not run, as its state folder has it: for questions that change nothing."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from allocator.mechanism.settings import MechanismSettings
from allocator.registry import get_policy
from allocator.runtime.decisions.deciding import Deciding
from allocator.runtime.decisions.hardware import Hardware
from allocator.runtime.decisions.world import World
from allocator.runtime.door.client import AbsentError
from allocator.runtime.recorded import THROUGHPUTS_FILE
from allocator.runtime.records.journal import ReadOnlyJournal
from allocator.runtime.service import Service
from throughputs import read_table


def at_rest(folder: Path) -> Service:
    """The service of a state folder as it would be when it is started again, before it has seen anything.

    It is made from its journal and from what its trainers have last reported; what would change anything is not done.

    Raises
    ------
    InputError
        There is no journal, or it is none of ours.
    AbsentError
        None has ever run there.
    """
    journal = ReadOnlyJournal(folder)
    last = journal.last("service")
    if last is None:
        raise AbsentError(f"no service has run on {folder}; start one with allocator serve --state {folder}")
    # no cluster is asked
    adapter: Any = SimpleNamespace(name=last.get("adapter", ""))
    service = Service(folder, adapter, journal=journal)
    book = service.book
    service.hardware = service.hardware_of(book.nodes.values())
    known = folder / THROUGHPUTS_FILE
    table = read_table(known) if known.exists() else None

    def world(hardware: Hardware) -> World:
        # it decides nothing: what the policy and its mechanism were told does not matter
        return World(hardware, get_policy(book.policy), MechanismSettings(), table)

    service.deciding = Deciding(world, service.hardware, service.settings, folder / "policy.state", service.clock)
    service.deciding.trouble = "no service runs"
    for job in book.active.values():
        service.deciding.arrived(job)
    for job in book.holding.values():
        service.watching.look(job, service.clock())
    return service
