"""``allocator serve``: real jobs under a policy."""

from __future__ import annotations

import asyncio
import getpass
import signal
from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from allocator.cli.options.groups import option_groups
from allocator.cli.options.runs import RoundOption, RunOptions, SlotOption
from allocator.cli.options.shared import (
    ChoiceOption,
    PresetOption,
    SettingOption,
    SolverOption,
    ThroughputsOption,
    console,
)
from allocator.cli.service.options import StateOption
from allocator.protocol.entities import Entities
from allocator.runtime.adapters.base import Adapter
from allocator.runtime.adapters.local import LocalAdapter, virtual_accelerators
from allocator.runtime.adapters.slurm import SlurmAdapter, SlurmSettings
from allocator.runtime.decisions.hardware import Hardware
from allocator.runtime.decisions.world import World
from allocator.runtime.door.requests import Requests
from allocator.runtime.door.server import Server
from allocator.runtime.recorded.run import THROUGHPUTS_FILE
from allocator.runtime.records.journal import Event
from allocator.runtime.service import Service
from allocator.runtime.settings import ServiceSettings
from throughputs import InputError, write_table

EntitiesOption = Annotated[
    Path | None, typer.Option("--entities", help="Entities that jobs may belong to.", metavar="FILE")
]


@dataclass(frozen=True)
class WebOptions:
    """The web door."""

    web: Annotated[
        str | None,
        typer.Option(
            "--web",
            help="Serve a live page, metrics and requests there; a TCP address needs TLS.",
            metavar="HOST:PORT|unix:PATH",
        ),
    ] = None
    tls_cert: Annotated[
        Path | None, typer.Option("--tls-cert", help="Certificate for --web, with its chain.", metavar="FILE")
    ] = None
    tls_key: Annotated[Path | None, typer.Option("--tls-key", help="Its private key.", metavar="FILE")] = None
    tls_ca: Annotated[
        Path | None,
        typer.Option(
            "--tls-ca", help="What jobs check the certificate by; if omitted the certificate itself.", metavar="FILE"
        ),
    ] = None
    token_file: Annotated[
        Path | None,
        typer.Option(
            "--token-file", help="Token asked for over TCP; made if absent; if omitted DIR/token.", metavar="FILE"
        ),
    ] = None
    web_url: Annotated[
        str | None, typer.Option("--web-url", help="By which jobs reach --web, if not as it says.", metavar="URL")
    ] = None
    web_api: Annotated[
        bool, typer.Option("--web-api/--web-reads", help="Take jobs and other orders through --web, too.")
    ] = False

    def door(self, service: Service, requests: Requests) -> Any:
        """The door, closed; None without one."""
        if self.web is None:
            return None
        try:
            module = import_module("allocator.runtime.page.door")
        except ModuleNotFoundError as error:
            expected = "the extra: pip install 'cluster-allocator[serve]'"
            raise InputError("--web", found=f"no package {error.name}", expected=expected) from None
        chosen = module.DoorSettings(
            self.web, self.tls_cert, self.tls_key, self.tls_ca, self.token_file, self.web_url, self.web_api
        )
        return module.Door(service, requests, chosen)


@option_groups
def serve_command(
    state: StateOption,
    web: WebOptions,
    adapter: Annotated[
        str, typer.Option("--adapter", help="The cluster: local (this machine) or slurm.", metavar="local|slurm")
    ] = "local",
    virtual: Annotated[
        str | None,
        typer.Option(
            "--virtual",
            help="Accelerators that need not exist, on this machine; if omitted its NVIDIA GPUs.",
            metavar="TYPE:COUNT,...",
        ),
    ] = None,
    partition: Annotated[
        str | None,
        typer.Option("--partition", help="Of the Slurm cluster; its default one, and all nodes, if omitted."),
    ] = None,
    policy: Annotated[
        str | None,
        typer.Option("--policy", help="Who runs where; if omitted the last one of this state, at first fifo_perf."),
    ] = None,
    round_seconds: RoundOption = None,
    slot_seconds: SlotOption = None,
    throughputs: ThroughputsOption = None,
    preset: PresetOption = "default",
    solver: SolverOption = None,
    choice: ChoiceOption = None,
    settings: SettingOption = None,
    entities: EntitiesOption = None,
    grace: Annotated[
        float, typer.Option("--grace", help="What a job has to save and end before it is killed.", metavar="SECONDS")
    ] = 30.0,
    notice: Annotated[
        float,
        typer.Option(
            "--notice", help="What a trainer that reads its lease has before it is sent SIGTERM.", metavar="SECONDS"
        ),
    ] = 10.0,
    max_failures: Annotated[
        int, typer.Option("--max-failures", help="Failures without progress after which a job is given up.", min=1)
    ] = 5,
    max_fruitless: Annotated[
        int,
        typer.Option("--max-fruitless", help="Leases in a row without a newly saved step, likewise.", min=1),
    ] = 20,
    hang: Annotated[
        float | None,
        typer.Option("--hang", help="A trainer that makes no step for so long has failed.", metavar="SECONDS"),
    ] = None,
    early_dispatch: Annotated[
        bool, typer.Option("--early-dispatch/--whole-rounds", help="Fill GPUs that fall idle before the round ends.")
    ] = True,
) -> None:
    """Run real jobs under a policy, on this machine or a Slurm cluster.

    The jobs are those that are submitted to its state folder, until it is stopped. They run as the
    user who starts the service. Stopped or killed, it leaves them running; started again on the same folder it goes on
    where it was.
    """
    options = RunOptions(
        throughputs=throughputs,
        preset=preset,
        round_seconds=round_seconds,
        slot_seconds=slot_seconds,
        solver=solver,
        choice=choice,
        settings=settings,
    )
    chosen = ServiceSettings(
        grace_seconds=grace,
        notice_seconds=min(notice, grace),
        max_failures=max_failures,
        max_fruitless=max_fruitless,
        hang_seconds=hang,
        early_dispatch=early_dispatch,
    )
    maker = _Maker(options, None if entities is None else Entities.parse(entities), policy or "fifo_perf")
    service = Service(state, _adapter(adapter, state, virtual, partition), chosen)
    last = service.book.policy
    if policy is None and last is not None:
        maker = maker.under(last["name"], last["settings"])
    asyncio.run(_serve(service, maker, web))


@dataclass(frozen=True)
class _Maker:
    """Makes worlds under a policy; InputError where there is none of that name, or it lacks a setting."""

    options: RunOptions
    entities: Entities | None
    policy: str

    def __post_init__(self) -> None:
        replace(self.options, cluster="v100:1").runs([self.policy])

    def __call__(self, hardware: Hardware) -> World:
        cluster = hardware.cluster
        servers = ",".join(f"{name}:{size}" for name, size in cluster.gpus_per_server.items())
        runs = replace(self.options, cluster=str(cluster), gpus_per_server=servers).runs([self.policy])
        policy = runs.policies[0]
        policy.prepare()
        mechanism = runs.preset.in_run(policy.name, cluster).mechanism
        if mechanism.placement == "off":
            mechanism = replace(mechanism, placement="consolidated")
        return World(cluster, policy, mechanism, runs.table, self.entities, runs.seed)

    def described(self, hardware: Hardware) -> dict[str, object]:
        """What worlds are made with, for those who read the journal later."""
        runs = replace(self.options, cluster=str(hardware.cluster)).runs([self.policy])
        policy, entities = runs.policies[0], self.entities
        return {
            "policy": policy.name,
            "policy_settings": {name: value for name, value in policy.settings().items() if _plain(value)},
            "settings": runs.preset.in_run(policy.name, hardware.cluster).as_dict(),
            "seed": runs.seed,
        } | ({} if entities is None else {"entities": entities.to_dict()})

    def keep_throughputs(self, path: Path) -> None:
        """The throughputs that are believed of job types, as a file."""
        write_table(replace(self.options, cluster="v100:1").runs([self.policy]).table, path)
        path.chmod(0o600)

    def under(self, policy: str, settings: Mapping[str, str]) -> _Maker:
        """The same under another policy with settings of its own."""
        own = [f"policy.{name}={value}" for name, value in settings.items()]
        kept = [text for text in self.options.settings or [] if not text.startswith("policy.")]
        return replace(self, policy=policy, options=replace(self.options, settings=kept + own))


def _plain(value: object) -> bool:
    return value is None or isinstance(value, bool | int | float | str)


def _adapter(name: str, state: Path, virtual: str | None, partition: str | None) -> Adapter:
    known: Mapping[str, Literal["local", "slurm"]] = {"local": "local", "slurm": "slurm"}
    if name not in known:
        raise InputError("--adapter", found=name, expected=f"one of {', '.join(known)}")
    if name == "slurm":
        if virtual is not None:
            raise InputError("--virtual", found=virtual, expected="nothing with --adapter slurm")
        settings = SlurmSettings(partition=partition or "")
        return SlurmAdapter(state.absolute() / "jobs", settings)
    return LocalAdapter(state, None if virtual is None else virtual_accelerators(virtual))


async def _serve(service: Service, maker: _Maker, web: WebOptions) -> None:
    def change(name: str, settings: Mapping[str, str]) -> None:
        other = maker.under(name, settings)
        service.use_policy(other, settings)
        service.record([Event("run", data=other.described(service.hardware))])

    requests = Requests(service, change)
    server, door = Server(service.folder, requests), web.door(service, requests)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, service.close)
    await service.open(maker)
    service.deciding.check()
    if (service.book.policy or {}).get("name") != maker.policy:
        service.record([Event("policy", data={"name": maker.policy, "settings": {}})])
    service.record([Event("run", data=maker.described(service.hardware))])
    maker.keep_throughputs(service.folder / THROUGHPUTS_FILE)
    await server.start()
    if door is not None:
        await door.open()
    screen = console()
    screen.print(
        f"Serving {service.hardware.cluster} under {maker.policy} from {service.folder}; "
        f"jobs run as {getpass.getuser()}."
    )
    if door is not None:
        screen.print(f"Page, metrics and requests at {door.notice}")
    screen.print("Ctrl-C ends the service; jobs run on.")
    service.doors = [server] if door is None else [door, server]
    await service.run()
