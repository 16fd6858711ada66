"""Policies by name: ``get_policy("max_min_fairness_perf")``, and how to add one.

>>> from allocator import get_policy
>>> get_policy("isolated").name
'isolated'

A policy of your own needs one decorator; in another package, an entry point in the group ``allocator.policies``
whose value is the policy class.
"""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from importlib import import_module
from typing import Any, TypeVar

from allocator.conversion import convert, kinds_of
from allocator.protocol import Policy
from throughputs import InputError
from throughputs.errors import did_you_mean

__all__ = [
    "PolicyEntry",
    "get_policy",
    "kinds_of_settings",
    "list_policies",
    "register",
    "registered_name",
    "settings_of",
]

ENTRY_POINT_GROUP = "allocator.policies"

_OWN_MODULES = (
    "gavel.max_min",
    "gavel.water_filling",
    "gavel.finish_time",
    "gavel.makespan",
    "gavel.throughput",
    "gavel.cost",
    "gavel.packed",
    "fair_sharing.closed_form",
    "fair_sharing.nash",
    "fair_sharing.oef",
    "fair_sharing.strategy_proof",
    "deadlines.gandiva.policy",
    "deadlines.themis",
    "deadlines.tiresias",
    "orders.allox",
    "orders.fifo",
    "orders.shortest_first",
    "pairing_rules",
    "shockwave.policy",
    "deadlines.elasticflow",
    "deadlines.earliest",
)


@dataclass(frozen=True)
class PolicyEntry:
    """One registered policy: its name, its class, the paper it comes from, one line of meaning, its program."""

    name: str
    factory: type
    paper: str
    meaning: str
    program: str


_ENTRIES: dict[str, PolicyEntry] = {}
_ALIASES: dict[str, str] = {}
_loaded = False

Factory = TypeVar("Factory", bound=type)


def register(name: str, *, paper: str, program: str) -> Callable[[Factory], Factory]:
    """Class decorator: make the policy available under `name`.

    Parameters
    ----------
    name : the name users write; the class attribute ``name`` is set to it.
    paper : where the policy is from.
    program : the program in symbols, on one line.

    The first line of the class's docstring is its one-line meaning. Other names by which the policy is known, such as
    that of a published program, are its class attribute ``aliases``; a name comes before an alias.
    """

    def add(factory: Factory) -> Factory:
        if not issubclass(factory, Policy):
            expected = "a subclass of SharePolicy or PlanPolicy"
            raise InputError("policy registry", field=name, found=factory.__name__, expected=expected)
        known = _ENTRIES.get(name)
        if known is not None and (known.factory.__module__, known.factory.__qualname__) != (
            factory.__module__,
            factory.__qualname__,
        ):
            raise InputError("policy registry", field="name", found=name, expected="a name that is not taken")
        setattr(factory, "name", name)  # noqa: B010
        meaning = (factory.__doc__ or name).strip().splitlines()[0]
        for alias in vars(factory).get("aliases", ()):
            if _ALIASES.setdefault(alias, name) != name:
                raise InputError("policy registry", field="aliases", found=alias, expected="an alias that is not taken")
        _ENTRIES[name] = PolicyEntry(name, factory, paper, meaning, program)
        return factory

    return add


def list_policies() -> tuple[PolicyEntry, ...]:
    """Every policy, own and of installed plugins, by name."""
    _load()
    return tuple(_ENTRIES[name] for name in sorted(_ENTRIES))


def get_policy(name: str, **settings: Any) -> Policy:
    """A policy by name, with its settings.

    Raises
    ------
    InputError
        Unknown name (with the nearest known one), a setting that the policy does not have, or a value of the wrong
        type.
    """
    known = kinds_of_settings(name)
    source = f"policy {name}"
    for setting, value in settings.items():
        if setting not in known:
            expected = f"one of {', '.join(known)}{did_you_mean(setting, known)}" if known else "no settings"
            raise InputError(source, field=setting, found=value, expected=expected)
    typed = {
        setting: convert(value, known[setting], source=source, field=setting) for setting, value in settings.items()
    }
    policy: Policy = _entry(name).factory(**typed)
    return policy


def registered_name(name: str) -> str:
    """The name under which the policy of that name or alias is registered; `InputError` for an unknown policy."""
    return _entry(name).name


def settings_of(name: str) -> tuple[str, ...]:
    """Names of the settings that a registered policy takes; raises `InputError` for an unknown policy."""
    return tuple(kinds_of_settings(name))


def kinds_of_settings(name: str) -> Mapping[str, Any]:
    """Declared types of the settings of a registered policy, by name; raises `InputError` for an unknown policy."""
    return kinds_of(_entry(name).factory)


def _entry(name: str) -> PolicyEntry:
    _load()
    if isinstance(name, str) and name not in _ENTRIES:
        name = _ALIASES.get(name, name)
    if not isinstance(name, str) or name not in _ENTRIES:
        close = get_close_matches(str(name), _ENTRIES, n=1, cutoff=0.5)
        hint = f"; did you mean {close[0]!r}?" if close else ""
        raise InputError("policy", found=name, expected=f"one of {', '.join(sorted(_ENTRIES))}{hint}")
    return _ENTRIES[name]


def _load() -> None:
    """Import our own policies, then those of plugins, once."""
    global _loaded
    if _loaded:
        return
    _loaded = True
    for module in _OWN_MODULES:
        import_module(f"allocator.policies.{module}")
    for entry in importlib.metadata.entry_points(group=ENTRY_POINT_GROUP):
        factory = entry.load()
        if entry.name not in _ENTRIES:
            register(entry.name, paper=getattr(factory, "paper", ""), program=getattr(factory, "program", ""))(factory)
