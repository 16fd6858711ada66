"""``allocator serve``: real jobs under a policy."""

from __future__ import annotations

import asyncio
import getpass
import signal
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from allocator.cli.options.groups import option_groups
from allocator.cli.options.runs import RunOptions, Runs
from allocator.cli.options.shared import console
from allocator.cli.service.options import StateOption
from allocator.cli.service.serve_options import ServeOptions, Told, WebOptions
from allocator.protocol.entities import Entities
from allocator.runtime.adapters.base import Adapter
from allocator.runtime.adapters.local import LocalAdapter, virtual_accelerators
from allocator.runtime.adapters.slurm import SlurmAdapter, SlurmSettings
from allocator.runtime.decisions.hardware import Hardware
from allocator.runtime.decisions.world import World
from allocator.runtime.door.requests import Requests
from allocator.runtime.door.server import Server
from allocator.runtime.recorded import THROUGHPUTS_FILE
from allocator.runtime.records.journal import Event, Journal
from allocator.runtime.records.ownership import own_folder
from allocator.runtime.service import Service
from allocator.runtime.settings import ServiceSettings
from allocator.variants import Variant
from throughputs import InputError, write_table


@option_groups
def serve_command(
    state: StateOption,
    options: ServeOptions,
    web: WebOptions,
    anew: Annotated[
        bool, typer.Option("--defaults", help="What is omitted is at its default, not as at the last start.")
    ] = False,
) -> None:
    """Run real jobs under a policy, on this machine or a Slurm cluster.

    The jobs are those that are submitted to its state folder, until it is stopped. They run as the
    user who starts the service. Stopped or killed, it leaves them running; started again on the same folder it goes on
    where it was, with the same options: those that are given again are changed, all others stay.
    """
    if not state.exists():
        # who is refused leaves nothing behind
        _checked(Told.of_events(None, None).after(options, web))
    state = own_folder(state, make=True)
    journal = Journal(state)
    last = {kind: event.data for kind in ("options", "policy") if (event := journal.last(kind))}
    before = Told.of_events(last.get("options"), last.get("policy"))
    told = (Told.of_events(None, None) if anew else before).after(options, web)
    maker = _checked(told)
    service = Service(state, _adapter(state, told.options), _settings(told.options), journal)
    asyncio.run(_serve(service, maker, told, before if last else None))


def _checked(told: Told) -> _Maker:
    """What makes worlds as a service was told to; InputError where something is wrong that no cluster need tell."""
    told.check_files()
    told.check_web()
    _adapter(Path(), told.options)
    _settings(told.options)
    return _Maker.of(told)


@dataclass(frozen=True)
class _Maker:
    """Makes worlds under a policy; InputError where there is none of that name, or it lacks a setting."""

    options: RunOptions
    entities: Entities | None
    policy: str

    def __post_init__(self) -> None:
        self._runs()

    def _runs(self, cluster: str = "v100:1", gpus_per_server: str | None = None) -> Runs:
        """Policy, preset and throughputs on a cluster; on any, for what does not depend on it."""
        options = replace(self.options, cluster=cluster, gpus_per_server=gpus_per_server)
        return options.runs([Variant(self.policy)])

    @classmethod
    def of(cls, told: Told) -> _Maker:
        """As a service was told to."""
        options = RunOptions(
            throughputs=told.path("throughputs"),
            preset=told.options.get("preset", "default"),
            round_seconds=told.options.get("round_seconds"),
            slot_seconds=told.options.get("slot_seconds"),
            solver=told.options.get("solver"),
            choice=told.options.get("choice"),
            settings=told.settings,
        )
        entities = told.path("entities")
        return cls(options, None if entities is None else Entities.parse(entities), told.policy)

    def __call__(self, hardware: Hardware) -> World:
        # settings are those of the whole cluster, of which perhaps no node is in use now
        whole = hardware.in_full.cluster
        servers = ",".join(f"{name}:{size}" for name, size in whole.gpus_per_server.items())
        runs = self._runs(str(whole), servers)
        policy = runs.policies[0]
        policy.prepare()
        mechanism = runs.preset.in_run(policy.name, whole).mechanism
        if mechanism.placement == "off":
            mechanism = replace(mechanism, placement="consolidated")
        return World(hardware, policy, mechanism, runs.throughput_table, self.entities, runs.seed)

    def described(self, hardware: Hardware) -> dict[str, object]:
        """What worlds are made with, for those who read the journal later."""
        whole = hardware.in_full.cluster
        runs = self._runs(str(whole))
        policy, entities = runs.policies[0], self.entities
        return {
            "policy": policy.name,
            "policy_settings": {name: value for name, value in policy.settings().items() if _plain(value)},
            "settings": runs.preset.in_run(policy.name, whole).as_dict(),
            "seed": runs.seed,
        } | ({} if entities is None else {"entities": entities.to_dict()})

    def keep_throughputs(self, path: Path) -> None:
        """The throughputs that are believed of job types, as a file."""
        write_table(self._runs().throughput_table, path)
        path.chmod(0o600)

    def rhythm(self, hardware: Hardware) -> str:
        """When it is decided, in words."""
        whole = hardware.in_full.cluster
        runs = self._runs(str(whole))
        policy = runs.policies[0]
        seconds = runs.preset.in_run(policy.name, whole).mechanism.round_seconds
        return f"in rounds of {seconds:g} s" if policy.in_rounds else "which decides when something happens"


def _plain(value: object) -> bool:
    return value is None or isinstance(value, bool | int | float | str)


def _adapter(state: Path, told: Mapping[str, Any]) -> Adapter:
    known: Mapping[str, Literal["local", "slurm"]] = {"local": "local", "slurm": "slurm"}
    name = told.get("adapter", "local")
    if name not in known:
        raise InputError("--adapter", found=name, expected=f"one of {', '.join(known)}")
    if name == "slurm":
        return SlurmAdapter(state.absolute() / "jobs", SlurmSettings(partition=told.get("partition", "")))
    virtual = told.get("virtual")
    return LocalAdapter(state, None if virtual is None else virtual_accelerators(virtual))


def _settings(told: Mapping[str, Any]) -> ServiceSettings:
    usual = ServiceSettings()
    grace = told.get("grace", usual.grace_seconds)
    return ServiceSettings(
        grace_seconds=grace,
        notice_seconds=min(told.get("notice", usual.notice_seconds), grace),
        retries=told.get("retries", usual.retries),
        max_fruitless=told.get("max_fruitless", usual.max_fruitless),
        hang_seconds=told.get("hang", usual.hang_seconds),
        early_dispatch=told.get("early_dispatch", usual.early_dispatch),
    )


async def _serve(service: Service, maker: _Maker, told: Told, before: Told | None) -> None:
    def change(name: str, settings: Mapping[str, str]) -> None:
        other = _Maker.of(told.under(name, settings))
        service.use_policy(other, settings)
        service.record([Event("run", data=other.described(service.hardware))])

    requests = Requests(service, change)
    server, door = Server(service.folder, requests), told.door(service, requests)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, service.close)
    await service.open(maker)
    service.deciding.check()
    service.record(_changes(told, before))
    service.record([Event("run", data=maker.described(service.hardware))])
    maker.keep_throughputs(service.folder / THROUGHPUTS_FILE)
    await server.start()
    if door is not None:
        await door.open()
    screen = console()
    screen.print(
        f"Serving {service.hardware.cluster} from {service.folder} ({service.adapter.name}) under {told.policy}, "
        f"{maker.rhythm(service.hardware)}; jobs run as {getpass.getuser()}.",
        soft_wrap=True,
    )
    for line in _told_again(told, before):
        screen.print(line, soft_wrap=True, markup=False)
    if door is not None:
        screen.print(f"Page, metrics and requests at {door.notice}", soft_wrap=True)
    screen.print("Ctrl-C ends the service; jobs run on.")
    service.doors = [server] if door is None else [door, server]
    await service.run()


def _changes(told: Told, before: Told | None) -> list[Event]:
    """What the journal has to know of what a service was told."""
    events = []
    if before is None or before.options != told.options:
        events.append(Event("options", data=told.options))
    if before is None or (before.policy, before.policy_settings) != (told.policy, told.policy_settings):
        events.append(Event("policy", data={"name": told.policy, "settings": dict(told.policy_settings)}))
    return events


def _told_again(told: Told, before: Told | None) -> list[str]:
    """All options, and which of them are not as at the last start, in words."""
    words = " ".join(told.words())
    lines = [f"Options, also of later starts on this state: {words}"] if words else []
    changed = [] if before is None else list(told.changes(before))
    return [*lines, f"Changed since the last start: {'; '.join(changed)}"] if changed else lines
