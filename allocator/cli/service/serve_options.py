"""What ``allocator serve`` is told, now or at an earlier start on the same state."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, get_type_hints

from allocator.cli.options.runs import POLICY_PREFIX, RoundOption, SlotOption
from allocator.cli.options.shared import ChoiceOption, SettingOption, SolverOption, ThroughputsOption
from allocator.cli.options.values import named_value
from allocator.cli.options.words import option
from allocator.runtime.door.requests import Requests
from allocator.runtime.service import Service
from throughputs import InputError


@dataclass(frozen=True)
class ServeOptions:
    """Cluster, policy, and how jobs are dealt with. What is None was not said."""

    adapter: Annotated[
        str | None,
        option("--adapter", "The cluster: at first local (this machine); or slurm.", "local|slurm"),
    ] = None
    virtual: Annotated[
        str | None,
        option(
            "--virtual",
            "Accelerators that need not exist, on this machine; without them its NVIDIA GPUs.",
            "TYPE:COUNT,...",
        ),
    ] = None
    partition: Annotated[
        str | None,
        option("--partition", "Of the Slurm cluster; without it its default one, and all nodes."),
    ] = None
    policy: Annotated[str | None, option("--policy", "Who runs where; at first fifo_perf.")] = None
    round_seconds: RoundOption = None
    slot_seconds: SlotOption = None
    throughputs: ThroughputsOption = None
    preset: Annotated[str | None, option("--preset", "Settings of a published system; at first default.")] = None
    solver: SolverOption = None
    choice: ChoiceOption = None
    settings: SettingOption = None
    entities: Annotated[Path | None, option("--entities", "Entities that jobs may belong to.", "FILE")] = None
    grace: Annotated[
        float | None,
        option("--grace", "What a job has to save and end before it is killed; 30.", "SECONDS"),
    ] = None
    notice: Annotated[
        float | None,
        option("--notice", "What a trainer that reads its lease has before it is sent SIGTERM; 10.", "SECONDS"),
    ] = None
    retries: Annotated[
        int | None,
        option("--retries", "Reruns of a job that ends with an error, where it does not say itself; 0.", min=0),
    ] = None
    max_fruitless: Annotated[
        int | None,
        option(
            "--max-fruitless",
            "Leases in a row without a newly saved step after which a job is given up; 20.",
            min=1,
        ),
    ] = None
    hang: Annotated[
        float | None,
        option("--hang", "A trainer that makes no step for so long has failed.", "SECONDS"),
    ] = None
    early_dispatch: Annotated[
        bool | None,
        option("--early-dispatch/--whole-rounds", "Fill GPUs that fall idle before the round ends."),
    ] = None


@dataclass(frozen=True)
class WebOptions:
    """The web door."""

    web: Annotated[
        str | None,
        option(
            "--web",
            "Serve a live page, metrics and requests there; a TCP address needs TLS.",
            "HOST:PORT|unix:PATH",
        ),
    ] = None
    tls_cert: Annotated[Path | None, option("--tls-cert", "Certificate for --web, with its chain.", "FILE")] = None
    tls_key: Annotated[Path | None, option("--tls-key", "Its private key.", "FILE")] = None
    tls_ca: Annotated[
        Path | None,
        option("--tls-ca", "What jobs check the certificate by; if omitted the certificate itself.", "FILE"),
    ] = None
    token_file: Annotated[
        Path | None,
        option("--token-file", "Token asked for over TCP; made if absent; if omitted DIR/token.", "FILE"),
    ] = None
    web_url: Annotated[str | None, option("--web-url", "By which jobs reach --web, if not as it says.", "URL")] = None
    web_api: Annotated[
        bool | None, option("--web-api/--web-reads", "Take jobs and other orders through --web, too.")
    ] = None


_GROUPS = (ServeOptions, WebOptions)

_OF_ADAPTER = {"virtual": "local", "partition": "slurm"}
"""Options of one kind of cluster."""


@dataclass(frozen=True)
class Told:
    """What a service runs with.

    Attributes
    ----------
    options : by field of `ServeOptions` and `WebOptions`, ready for JSON; what nobody has said is not among them.
        ``settings`` are those of the preset, by name.
    policy, policy_settings : who decides, and its own settings, as text.
    """

    options: Mapping[str, Any]
    policy: str
    policy_settings: Mapping[str, str]

    @classmethod
    def of_events(cls, options: Mapping[str, Any] | None, policy: Mapping[str, Any] | None) -> Told:
        """From data of the last events ``options`` and ``policy``; None: there was none."""
        said = policy or {"name": "fifo_perf", "settings": {}}
        known = dict(options or {})
        if "max_failures" in known:
            # what --retries is now was said by the failures that it takes, the first one included
            known["retries"] = known.pop("max_failures") - 1
        return cls(known, said["name"], dict(said["settings"]))

    def after(self, *groups: ServeOptions | WebOptions) -> Told:
        """The same with what was said now.

        Settings replace those of the same name, whether they have an option of their own or not; another policy begins
        with its own; another kind of cluster without the options of the one before.
        """
        said = {f.name: getattr(group, f.name) for group in groups for f in fields(group)}
        new = {name: _plain(value) for name, value in said.items() if value is not None}
        adapter = new.get("adapter", self.options.get("adapter", "local"))
        for name, kind in _OF_ADAPTER.items():
            if name in new and kind != adapter:
                raise InputError(flag(name, new[name]), found=new[name], expected=f"nothing with --adapter {adapter}")
        settings = dict(named_value("--set", text) for text in new.pop("settings", []))
        own = {n.removeprefix(POLICY_PREFIX): v for n, v in settings.items() if n.startswith(POLICY_PREFIX)}
        policy = new.pop("policy", self.policy)
        kept = {name: value for name, value in self.options.items() if _OF_ADAPTER.get(name, adapter) == adapter} | new
        of_preset = {name: value for name, value in settings.items() if not name.startswith(POLICY_PREFIX)}
        kept["settings"] = {n: v for n, v in kept.get("settings", {}).items() if n not in new} | of_preset
        of_policy = {n: v for n, v in self.policy_settings.items() if n not in new} if policy == self.policy else {}
        return Told({name: value for name, value in kept.items() if value != {}}, policy, of_policy | own)

    def check_files(self) -> None:
        """Raise InputError where a file is gone, perhaps since an earlier start."""
        for name in ("throughputs", "entities", "tls_cert", "tls_key", "tls_ca"):
            path = self.path(name)
            if path is not None and not path.exists():
                expected = (
                    "a file that exists; one of an earlier start is replaced by the option, or left by --defaults"
                )
                raise InputError(flag(name, ""), found=str(path), expected=expected)

    def under(self, policy: str, settings: Mapping[str, str]) -> Told:
        """The same under another policy."""
        return Told(self.options, policy, dict(settings))

    @property
    def settings(self) -> list[str]:
        """Settings of the preset and of the policy, as ``--set`` takes them."""
        own = {POLICY_PREFIX + name: value for name, value in self.policy_settings.items()}
        return [f"{name}={value}" for name, value in {**self.options.get("settings", {}), **own}.items()]

    def words(self) -> list[str]:
        """Each option as it would be given; the policy not among them."""
        listed = [
            flag(name, value) + ("" if isinstance(value, bool) else f" {shlex.quote(_word(value))}")
            for name, value in self.options.items()
            if name != "settings"
        ]
        return listed + [f"--set {shlex.quote(text)}" for text in self.settings]

    def _all(self) -> dict[str, object]:
        """Everything by the option that says it."""
        own = {flag(name, True): value for name, value in self.options.items() if name != "settings"}
        settings = (text.partition("=") for text in self.settings)
        return own | {"--policy": self.policy} | {f"--set {name}": value for name, _, value in settings}

    def changes(self, before: Told) -> Iterator[str]:
        """What is otherwise than `before`, in words."""
        one, other = before._all(), self._all()
        for name in dict.fromkeys([*one, *other]):
            if one.get(name) != other.get(name):
                yield f"{name} {_word(one.get(name))} -> {_word(other.get(name))}"

    def path(self, name: str) -> Path | None:
        """An option that is a path."""
        return None if name not in self.options else Path(self.options[name])

    def check_web(self) -> Any:
        """The module of the web door, None without one; InputError where its packages are not installed."""
        if self.options.get("web") is None:
            return None
        try:
            return import_module("allocator.runtime.page.door")
        except ModuleNotFoundError as error:
            expected = "the extra: pip install 'cluster-allocator[serve]'"
            raise InputError("--web", found=f"no package {error.name}", expected=expected) from None

    def door(self, service: Service, requests: Requests) -> Any:
        """The web door, closed; None without one."""
        get, module = self.options.get, self.check_web()
        if module is None:
            return None
        paths = (self.path(name) for name in ("tls_cert", "tls_key", "tls_ca", "token_file"))
        chosen = module.DoorSettings(get("web"), *paths, get("web_url"), get("web_api", False))
        return module.Door(service, requests, chosen)


def flag(name: str, value: object) -> str:
    """The option of a field; of a switch the side that stands for `value`."""
    for group in _GROUPS:
        annotation = get_type_hints(group, include_extras=True).get(name)
        if annotation is not None:
            # typer takes the first argument of an option in Annotated for its default
            option = annotation.__metadata__[0]
            on, _, off = str((option.default, *option.param_decls)[0]).partition("/")
            return off if value is False else on
    return name


def _plain(value: Any) -> Any:
    """A value for the journal: another start may be in another folder."""
    if isinstance(value, str) and value.startswith("unix:"):
        return f"unix:{Path(value.removeprefix('unix:')).absolute()}"
    return str(value.absolute()) if isinstance(value, Path) else value


def _word(value: object) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return "not given" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
