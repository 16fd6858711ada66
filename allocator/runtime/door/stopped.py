"""A service that does not run, as its state folder has it: for questions that change nothing."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from allocator.mechanism.settings import MechanismSettings
from allocator.registry import get_policy
from allocator.runtime.decisions.deciding import Deciding
from allocator.runtime.decisions.hardware import Hardware
from allocator.runtime.decisions.world import World
from allocator.runtime.door.client import AbsentError
from allocator.runtime.door.requests import Requests
from allocator.runtime.recorded import THROUGHPUTS_FILE
from allocator.runtime.records.journal import ReadOnlyJournal
from allocator.runtime.service import Service
from throughputs import read_table


class StoppedService:
    """Answers for a service that does not run, from its journal and from what its trainers have last reported.

    Parameters
    ----------
    folder : of its state.

    Attributes
    ----------
    in_order : whether it was stopped, not killed. last_at : when it last wrote, seconds since 1970.

    Raises
    ------
    InputError
        There is no journal, or it is none of ours.
    AbsentError
        None has ever run there.
    """

    def __init__(self, folder: Path) -> None:
        journal = ReadOnlyJournal(folder)
        self.in_order, self.last_at = False, 0.0
        for event in journal.events(last=1):
            self.in_order, self.last_at = event.kind == "stopped", event.at
        self._service = _at_rest(folder, journal)

    def answer(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """As `Requests.answer`; what would change anything is not done."""
        return Requests(self._service).answer(asked)


def _at_rest(folder: Path, journal: ReadOnlyJournal) -> Service:
    """The service as it would be when it is started again, before it has seen anything."""
    last = journal.last("service")
    if last is None:
        raise AbsentError(f"no service has run on {folder}; start one with allocator serve --state {folder}")
    # no cluster is asked
    adapter: Any = SimpleNamespace(name=last.get("adapter", ""))
    service = Service(folder, adapter, journal=journal)
    book = service.book
    service.hardware = service.hardware_of(book.nodes.values())
    name = (book.policy or {"name": "fifo_perf"})["name"]
    known = folder / THROUGHPUTS_FILE
    table = read_table(known) if known.exists() else None

    def world(hardware: Hardware) -> World:
        # it decides nothing: what the policy and its mechanism were told does not matter
        return World(hardware, get_policy(name), MechanismSettings(), table)

    service.deciding = Deciding(world, service.hardware, service.settings, folder / "policy.state", service.clock)
    service.deciding.trouble = "no service runs"
    for job in book.active.values():
        service.deciding.arrived(job)
    for job in book.holding.values():
        service.watching.look(job, service.clock())
    return service
