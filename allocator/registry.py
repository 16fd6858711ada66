"""Policies by name: ``get_policy("max_min_fairness_perf")``, and how to add one.

>>> from allocator import get_policy
>>> get_policy("isolated").name
'isolated'

A policy of your own needs one decorator; in another package, an entry point in the group ``allocator.policies``
whose value is the policy class. `import_policies` makes those of a module or file known that are not installed, and so
does the environment variable ``ALLOCATOR_IMPORT``, references separated by commas.
"""

from __future__ import annotations

import ast
import importlib.metadata
import os
import re
import sys
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages
from typing import Any, TypeVar

from allocator.conversion import kinds_of, made_of
from allocator.plugins import declare_others, policies_of
from allocator.protocol import Need, Policy
from allocator.protocol.policy import is_ours
from throughputs import InputError
from throughputs.errors import did_you_mean, expect

ENTRY_POINT_GROUP = "allocator.policies"

IMPORT_VARIABLE = "ALLOCATOR_IMPORT"
"""Environment variable with references to policies of other packages, separated by commas."""


@dataclass(frozen=True)
class PolicyEntry:
    """One registered policy: its name, its class, the paper it comes from, one line of meaning, its program."""

    name: str
    factory: type[Policy]
    paper: str
    meaning: str
    program: str

    @property
    def lengths(self) -> str:
        """What it knows of how long jobs take: "true" lengths, "predicted" ones, or "unknown"."""
        needs = self.factory.needs
        return "true" if Need.LENGTHS in needs else "predicted" if Need.PREDICTIONS in needs else "unknown"


_ENTRIES: dict[str, PolicyEntry] = {}
_BY_MODULES: dict[str, set[str]] = {}
"""Names of policies that modules, by name, registered themselves when `import_policies` first imported them."""

_FAILED: dict[str, str] = {}
"""Plugins that could not be imported, by the name that their policy would have, and why."""

_loaded = False

Factory = TypeVar("Factory", bound=type)


def register(name: str, *, paper: str, program: str) -> Callable[[Factory], Factory]:
    """Class decorator: make the policy available under `name`.

    Parameters
    ----------
    name : the name users write; the class attribute ``name`` is set to it.
    paper : where the policy is from.
    program : the program in symbols, on one line.

    The first line of the class's docstring is its one-line meaning.

    >>> import allocator
    >>> @register("first_come", paper="an example", program="in order of arrival")
    ... class FirstCome(allocator.OrderPolicy):
    ...     \"\"\"First come, first served.\"\"\"
    ...     def key(self, state):
    ...         return -state.elapsed_seconds
    >>> allocator.get_policy("first_come").name
    'first_come'
    """

    def add(factory: Factory) -> Factory:
        given: Any = factory
        expected = "a subclass of SharePolicy or PlanPolicy"
        expect(isinstance(given, type) and issubclass(given, Policy), "policy registry", name, given, expected)
        word = isinstance(name, str) and re.fullmatch(r"[\w.+-]+", name)
        expect(word, "policy registry", "name", name, "letters, digits, and _ . + -, as lists of policies are written")
        known = _ENTRIES.get(name)
        if known is not None and (known.factory.__module__, known.factory.__qualname__) != (
            factory.__module__,
            factory.__qualname__,
        ):
            raise InputError("policy registry", field="name", found=name, expected="a name that is not taken")
        setattr(factory, "name", name)  # noqa: B010
        meaning = (factory.__doc__ or name).strip().splitlines()[0]
        _ENTRIES[name] = PolicyEntry(name, factory, paper, meaning, program)
        return factory

    return add


def list_policies() -> tuple[PolicyEntry, ...]:
    """Every policy, own and of installed plugins, by name.

    >>> "max_min_fairness_perf" in [entry.name for entry in list_policies()]
    True
    """
    _load()
    return tuple(_ENTRIES[name] for name in sorted(_ENTRIES))


def sources_of(kind: type) -> list[Path]:
    """The file in which somebody else's class is written, and those that this imports of its folder or package.

    Empty for our own, and for a class without a file. Of what is installed, those of the same package.
    """
    name, file = kind.__module__, getattr(sys.modules.get(kind.__module__), "__file__", None)
    if is_ours(kind) or not file or not Path(file).is_file():
        return []
    top, found, waiting = name.partition(".")[0], set(), [(name, Path(file))]
    root = waiting[0][1].parents[name.count(".") + (Path(file).stem == "__init__")]
    installed = root.name in ("site-packages", "dist-packages")
    while waiting:
        name, path = waiting.pop()
        if path in found:
            continue
        found.add(path)
        for parts in _imported(name, path, path.stat().st_mtime_ns):
            if is_ours(parts[0]) or (installed and parts[0] != top):
                continue
            for many in range(1, len(parts) + 1):
                at = root.joinpath(*parts[:many])
                files = (at.with_suffix(".py"), at / "__init__.py")
                waiting += [(".".join(parts[:many]), each) for each in files if each.is_file()]
    return sorted(found)


@cache
def _imported(name: str, file: Path, _changed: int) -> list[list[str]]:
    """The parts of the names that a module imports, what it imports from others among them."""
    package = name.split(".")[: None if file.stem == "__init__" else -1]
    found = []
    for node in ast.walk(ast.parse(file.read_bytes())):
        if isinstance(node, ast.Import):
            found += [alias.name.split(".") for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) + 1 - node.level] if node.level else []
            module = node.module.split(".") if node.module else []
            found += [[*above, *module, alias.name] for alias in node.names]
    return found


def policies_of_others() -> tuple[type, ...]:
    """The classes of the policies that are not ours, as far as they are known by now."""
    return tuple(entry.factory for entry in _ENTRIES.values() if not is_ours(entry.factory))


def get_policy(name: str, **settings: Any) -> Policy:
    """A policy by name, with its settings.

    Raises
    ------
    InputError
        Unknown name (with the nearest known one), a setting that the policy does not have, or a value of the wrong
        type.

    >>> get_policy("max_min_fairness_perf", solver="highs").settings()["solver"]
    'highs'
    """
    return made(_entry(name).factory, name, settings)


def made(factory: type, name: str, settings: Mapping[str, Any]) -> Policy:
    """The policy of a class that is called `name`, with its settings; raises `InputError` as `get_policy` does."""
    policy: Policy = made_of(factory, settings, f"policy {name}")
    return policy


def import_policies(reference: str) -> tuple[str, ...]:
    """Make the policies of a module, a file or a class known, and return their names.

    Parameters
    ----------
    reference : ``my_policies``, ``my_policies:Mine``, ``./my_policies.py`` or ``./my_policies.py:Mine``
        (`allocator.plugins.policies_of`). A class that has not registered itself gets the name that it gives itself, or
        its own in lower case.

    Raises
    ------
    InputError
        Nothing of that name, a module that cannot be imported or that has no policies, or a name that is taken.
    """
    _load()
    before = set(_ENTRIES)
    module, found = policies_of(reference)
    themselves = _BY_MODULES.setdefault(module.__name__, _ENTRIES.keys() - before)
    for factory in found:
        if not _is_registered(factory):
            _add(factory.name, factory)
    names = {name for name, entry in _ENTRIES.items() if entry.factory in found} | (themselves & _ENTRIES.keys())
    if not declare_others(module) and not names:
        expected = "a module that defines policies, or the class of one, as in MODULE:CLASS"
        raise InputError("import", found=reference, expected=expected)
    return tuple(sorted(names))


def settings_of(name: str) -> tuple[str, ...]:
    """Names of the settings that a registered policy takes; raises `InputError` for an unknown policy."""
    return tuple(kinds_of_settings(name))


def class_of(name: str) -> type[Policy]:
    """The class of a registered policy; raises `InputError` for an unknown policy."""
    return _entry(name).factory


def kinds_of_settings(name: str) -> Mapping[str, Any]:
    """Declared types of the settings of a registered policy, by name; raises `InputError` for an unknown policy."""
    return kinds_of(_entry(name).factory)


def _entry(name: str) -> PolicyEntry:
    _load()
    if not isinstance(name, str) or name not in _ENTRIES:
        if name in _FAILED:
            raise InputError("policy", found=name, expected=f"a plugin that can be imported: {_FAILED[name]}")
        hint = did_you_mean(name, _ENTRIES) or ", or your own: --import FILE.py (allocator.registry.import_policies)"
        raise InputError("policy", found=name, expected=f"a known policy{hint}: one of {', '.join(sorted(_ENTRIES))}")
    return _ENTRIES[name]


def _load() -> None:
    """Import our own policies, then those of plugins and of the environment variable, once."""
    global _loaded
    if _loaded:
        return
    _loaded = True
    for module in walk_packages(import_module("allocator.policies").__path__, "allocator.policies."):
        import_module(module.name)
    for entry in importlib.metadata.entry_points(group=ENTRY_POINT_GROUP):
        _load_plugin(entry)
    for reference in filter(None, os.environ.get(IMPORT_VARIABLE, "").split(",")):
        import_policies(reference)


def _load_plugin(entry: importlib.metadata.EntryPoint) -> None:
    """Register one plugin; a warning where that cannot be done, and then its policy alone is missing."""
    try:
        factory = entry.load()
        if not _is_registered(factory):
            _add(entry.name, factory)
    except Exception as error:
        _FAILED[entry.name] = f"{type(error).__name__}: {error}"
        package = getattr(getattr(entry, "dist", None), "name", "")
        of = f" of {package}" if package else ""
        warnings.warn(f"policy plugin {entry.name!r}{of} is left out: {_FAILED[entry.name]}", stacklevel=2)


def _is_registered(factory: object) -> bool:
    return any(entry.factory is factory for entry in _ENTRIES.values())


def _add(name: str, factory: Any) -> None:
    register(name, paper=getattr(factory, "paper", ""), program=getattr(factory, "program", ""))(factory)
