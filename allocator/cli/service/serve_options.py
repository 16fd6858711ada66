"""What ``allocator serve`` is told, now or at an earlier start on the same state."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from allocator.cli.options.groups import Given, Options, options
from allocator.cli.options.runs import POLICY_PREFIX, SETTINGS
from allocator.cli.options.shared import SHARED
from allocator.cli.options.values import named_value
from allocator.conversion import kinds_of
from allocator.runtime.door.requests import Requests
from allocator.runtime.records.book import FIRST_POLICY
from allocator.runtime.service import Service
from allocator.runtime.settings import DoorSettings, ServiceSettings
from throughputs import InputError


class _Own:
    """What a service alone is told.

    Options
    -------
    adapter : local|slurm|ray
        The cluster: at first local (this machine); or slurm, ray.
    virtual : TYPE:COUNT,...
        Accelerators that need not exist, on this machine; without them its NVIDIA GPUs.
    partition
        Of the Slurm cluster; without it its default one, and all nodes.
    ray : ADDRESS
        Run jobs on this Ray cluster: auto, or host and port of its head.
    map : NAME=TYPE,...
        Accelerator types by what Ray calls them, if not as Ray in small letters.
    policy
        Who runs where; at first fifo_perf.
    preset
        Settings of a published system; at first default.
    entities : FILE
        Entities that jobs may belong to.
    """


SERVED: Options = (
    *options(_Own),
    SETTINGS["round_seconds"],
    SETTINGS["slot_seconds"],
    *(SHARED[name] for name in ("throughputs", "solver", "choice", "settings")),
    *options(ServiceSettings),
    *options(DoorSettings),
)
"""Cluster, policy, how jobs are dealt with, and the web door."""

_FLAGS = {option.name: option.annotation.__metadata__[0] for option in SERVED}

_FILES = ("throughputs", "entities", "tls_cert", "tls_key", "tls_ca")
_PATHS = (*_FILES, "token_file")

_IN_STATE = "{state}/"
"""What paths in the state folder begin with in the journal."""

_OF_ADAPTER = {"virtual": "local", "partition": "slurm", "ray": "ray", "map": "ray"}
"""Options of one kind of cluster."""


@dataclass(frozen=True)
class Told:
    """What a service runs with.

    Attributes
    ----------
    options : by name of `SERVED`, ready for JSON; what nobody has said is not among them.
        ``settings`` are those of the preset, by name.
    policy, policy_settings : who decides, and its own settings, as text.
    """

    options: Mapping[str, Any]
    policy: str
    policy_settings: Mapping[str, str]

    @classmethod
    def of_events(
        cls, options: Mapping[str, Any] | None, policy: Mapping[str, Any] | None, state: Path = Path()
    ) -> Told:
        """From data of the last events ``options`` and ``policy``, None: there was none; of a state folder."""
        said = policy or {"name": FIRST_POLICY, "settings": {}}
        return cls(_placed(options or {}, _IN_STATE, f"{state}/"), said["name"], dict(said["settings"]))

    def kept(self, state: Path) -> dict[str, Any]:
        """The options as they are kept: paths in the state folder are relative to it, which may be moved."""
        return _placed(self.options, f"{state}/", _IN_STATE)

    def after(self, said: Given) -> Told:
        """The same with what was said now.

        Settings replace those of the same name, whether they have an option of their own or not; another policy begins
        with its own; another kind of cluster without the options of the one before.
        """
        new = {name: _plain(name, value) for name, value in said.items()}
        if "ray" in new:
            new.setdefault("adapter", "ray")
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
        for name in _FILES:
            path = self.path(name)
            if path is not None and not path.exists():
                expected = (
                    "a file that exists; one of an earlier start is replaced by the option, or left by --defaults"
                )
                raise InputError(flag(name, ""), found=str(path), expected=expected)

    @property
    def settings(self) -> list[str]:
        """Settings of the preset and of the policy, as ``--set`` takes them."""
        own = {POLICY_PREFIX + name: value for name, value in self.policy_settings.items()}
        return [f"{name}={value}" for name, value in {**self.options.get("settings", {}), **own}.items()]

    def words(self) -> list[str]:
        """Each option as it would be given; the policy not among them."""
        listed = [
            shlex.join([flag(name, value), *([] if isinstance(value, bool) else [_text(value)])])
            for name, value in self.options.items()
            if name != "settings"
        ]
        return listed + [f"--set {shlex.quote(text)}" for text in self.settings]

    def path(self, name: str) -> Path | None:
        """An option that is a path."""
        return None if name not in self.options else Path(self.options[name])

    def check_web(self) -> Any:
        """The module of the web door, None without one; InputError where its packages or options are not there."""
        if self.options.get("web") is None:
            return None
        try:
            module = import_module("allocator.runtime.page.door")
        except ModuleNotFoundError as error:
            expected = "the extra: pip install 'cluster-allocator[serve]'"
            raise InputError("--web", found=f"no package {error.name}", expected=expected) from None
        module.address_of(self._of_door())
        return module

    def door(self, service: Service, requests: Requests) -> Any:
        """The web door, closed; None without one."""
        module = self.check_web()
        return None if module is None else module.Door(service, requests, self._of_door())

    def _of_door(self) -> DoorSettings:
        own = self.of(DoorSettings)
        return DoorSettings(**own | {name: Path(value) for name, value in own.items() if name in _PATHS})

    def of(self, settings: type) -> dict[str, Any]:
        """What was said of the fields of a class of settings."""
        return {name: self.options[name] for name in kinds_of(settings) if name in self.options}


def flag(name: str, value: object) -> str:
    """The option of a name; of a switch the side that stands for `value`."""
    if name not in _FLAGS:
        return name
    # typer takes the first argument of an option in Annotated for its default
    on, _, off = str((_FLAGS[name].default, *_FLAGS[name].param_decls)[0]).partition("/")
    return off if value is False else on


def _plain(name: str, value: Any) -> Any:
    """A value for the journal: another start may be in another folder."""
    if name == "web" and value.startswith("unix:"):
        return f"unix:{Path(value.removeprefix('unix:')).absolute()}"
    return str(Path(value).absolute()) if name in _PATHS else value


def _placed(options: Mapping[str, Any], old: str, new: str) -> dict[str, Any]:
    """With what paths begin with replaced."""
    begin = re.compile(f"^(unix:)?{re.escape(old)}")
    return {
        name: begin.sub(lambda found: (found[1] or "") + new, value) if isinstance(value, str) else value
        for name, value in options.items()
    }


def _text(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
