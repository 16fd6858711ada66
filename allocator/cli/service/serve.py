"""``allocator serve``: real jobs under a policy."""

from __future__ import annotations

import asyncio
import getpass
import shutil
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

from allocator.cli.options.groups import Given
from allocator.cli.options.runs import runs_of
from allocator.cli.options.shared import console
from allocator.cli.options.values import named_value
from allocator.cli.service.options import StateOption
from allocator.cli.service.serve_options import SERVED, Told
from allocator.cluster import cluster_texts
from allocator.experiments.run import Materials, Run
from allocator.experiments.workloads import Recorded, only_table
from allocator.presets import Preset
from allocator.protocol.entities import Entities
from allocator.runtime.adapters.base import Adapter
from allocator.runtime.adapters.local import LocalAdapter, virtual_accelerators
from allocator.runtime.adapters.ray import RayAdapter
from allocator.runtime.adapters.slurm import SlurmAdapter
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
from throughputs import InputError, ThroughputTable, write_table


def serve_command(
    state: StateOption,
    given: Annotated[Given, SERVED],
    anew: bool = False,
) -> None:
    """Run real jobs under a policy, on this machine, a Slurm or a Ray cluster.

    The jobs are those that are submitted to its state folder, until it is stopped. They run as the
    user who starts the service. Stopped or killed, it leaves them running; started again on the same folder it goes on
    where it was, with the same options: those that are given again are changed, all others stay.

    Parameters
    ----------
    anew : --defaults
        What is omitted is at its default, not as at the last start.
    """
    if not state.exists():
        # who is refused leaves nothing behind
        _checked(Told.of_events(None, None).after(given))
    state = own_folder(state, make=True)
    journal = Journal(state)
    last = {kind: event.data for kind in ("options", "policy") if (event := journal.last(kind))}
    before = Told.of_events(last.get("options"), last.get("policy"), state)
    told = (Told.of_events(None, None) if anew else before).after(given)
    maker = _checked(told)
    service = Service(state, _adapter(state, told.options), ServiceSettings(**told.of(ServiceSettings)), journal)
    asyncio.run(_serve(service, maker, told, before if last else None))


def _checked(told: Told) -> _Maker:
    """What makes worlds as a service was told to; InputError where something is wrong that no cluster need tell."""
    told.check_files()
    told.check_web()
    _adapter(Path(), told.options)
    ServiceSettings(**told.of(ServiceSettings))
    return _Maker.of(told)


@dataclass(frozen=True)
class _Maker:
    """Makes worlds under a policy; InputError where there is none of that name, or it lacks a setting."""

    given: Given
    entities: Entities | None
    policy: str

    def __post_init__(self) -> None:
        self._run()

    def _run(self, hardware: Hardware | None = None) -> Run:
        """Policy, preset and throughputs on the cluster; on any, for what does not depend on it.

        Settings are those of the whole cluster, of which perhaps no node is in use now.
        """
        gpus, servers = ("v100:1", None) if hardware is None else cluster_texts(hardware.in_full.cluster)
        given = Given({name: v for name, v in {**self.given, "gpus_per_server": servers}.items() if v is not None})
        return runs_of(Given(given, cluster=gpus), [Variant(self.policy)], Recorded())[0]

    @classmethod
    def of(cls, told: Told) -> _Maker:
        """As a service was told to."""
        names = ("throughputs", "preset", "round_seconds", "slot_seconds", "solver", "choice")
        given = Given({name: told.options[name] for name in names if name in told.options}, settings=told.settings)
        entities = told.path("entities")
        return cls(given, None if entities is None else Entities.parse(entities), told.policy)

    def _in_run(self, run: Run) -> Preset:
        return run.chosen.in_run(run.make_policy().name, run.gpus)

    def __call__(self, hardware: Hardware) -> World:
        run = self._run(hardware)
        policy, mechanism = run.make_policy(), self._in_run(run).mechanism
        policy.prepare()
        if mechanism.placement == "off":
            mechanism = replace(mechanism, placement="consolidated")
        return World(hardware, policy, mechanism, self._table(run), self.entities, run.seed)

    def _table(self, run: Run) -> ThroughputTable:
        return only_table(Materials.of([run], check=False).speeds_of(run), "--throughputs", run.throughputs)

    def described(self, hardware: Hardware) -> dict[str, object]:
        """What worlds are made with, for those who read the journal later."""
        run, entities = self._run(hardware), self.entities
        policy = run.make_policy()
        return {
            "policy": policy.name,
            "policy_settings": {name: value for name, value in policy.settings().items() if _plain(value)},
            "settings": self._in_run(run).as_dict(),
            "seed": run.seed,
        } | ({} if entities is None else {"entities": entities.to_dict()})

    def keep_throughputs(self, path: Path) -> None:
        """The throughputs that are believed of job types, as a file."""
        write_table(self._table(self._run()), path)
        path.chmod(0o600)

    def rhythm(self, hardware: Hardware) -> str:
        """When it is decided, in words."""
        run = self._run(hardware)
        seconds = self._in_run(run).mechanism.round_seconds
        return f"in rounds of {seconds:g} s" if run.make_policy().in_rounds else "which decides when something happens"


def _plain(value: object) -> bool:
    return value is None or isinstance(value, bool | int | float | str)


def _adapter(state: Path, told: Mapping[str, Any]) -> Adapter:
    name = told.get("adapter", "local")
    if name not in _ADAPTERS:
        raise InputError("--adapter", found=name, expected=f"one of {', '.join(_ADAPTERS)}")
    return _ADAPTERS[name](state, told)


def _local(state: Path, told: Mapping[str, Any]) -> Adapter:
    virtual = told.get("virtual")
    return LocalAdapter(state, None if virtual is None else virtual_accelerators(virtual))


def _slurm(state: Path, told: Mapping[str, Any]) -> Adapter:
    return SlurmAdapter(state.absolute() / "jobs", told.get("partition", ""))


def _ray(state: Path, told: Mapping[str, Any]) -> Adapter:
    types = dict(named_value("--map", part) for part in told.get("map", "").split(",") if part)
    return RayAdapter(state, told.get("ray", "auto"), types)


_ADAPTERS: dict[str, Callable[[Path, Mapping[str, Any]], Adapter]] = {"local": _local, "slurm": _slurm, "ray": _ray}


async def _serve(service: Service, maker: _Maker, told: Told, before: Told | None) -> None:
    def change(name: str, settings: Mapping[str, str]) -> None:
        other = _Maker.of(replace(told, policy=name, policy_settings=dict(settings)))
        service.use_policy(other, settings)
        service.record([Event("run", data=other.described(service.hardware))])

    requests = Requests(service, change)
    server, door = Server(service.folder, requests), told.door(service, requests)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, service.close)
    await service.open(maker)
    service.deciding.check()
    service.record(_changes(told, before, service.folder))
    service.record([Event("run", data=maker.described(service.hardware))])
    maker.keep_throughputs(service.folder / THROUGHPUTS_FILE)
    await server.start()
    if door is not None:
        await door.open()
    screen = console()
    for line in (
        f"Serving {service.hardware.cluster} from {service.folder} ({service.adapter.name}) under {told.policy}, "
        f"{maker.rhythm(service.hardware)}; jobs run as {getpass.getuser()}.",
        *([f"Options, also of later starts on this state: {' '.join(words)}"] if (words := told.words()) else []),
        *([] if door is None else [f"Page, metrics and requests at {door.notice}"]),
        *_no_hook(service.settings.hook_words),
        "Ctrl-C ends the service; jobs run on.",
    ):
        screen.print(line, soft_wrap=True, markup=False)
    service.doors += [server] if door is None else [door, server]
    await service.run()


def _no_hook(words: Sequence[str]) -> list[str]:
    """A warning where the hook is no program; one that is put there later will do."""
    if not words or shutil.which(words[0]) is not None:
        return []
    return [f'Warning: nobody is told what happens, as --hook {words[0]} is no program (--hook "" removes it).']


def _changes(told: Told, before: Told | None, state: Path) -> list[Event]:
    """What the journal has to know of what a service was told."""
    events = []
    if before is None or before.options != told.options:
        events.append(Event("options", data=told.kept(state)))
    if before is None or (before.policy, before.policy_settings) != (told.policy, told.policy_settings):
        events.append(Event("policy", data={"name": told.policy, "settings": dict(told.policy_settings)}))
    return events
