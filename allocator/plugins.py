"""Policies of other packages, by reference: a module, a file, or a class in one of them.

A reference is ``my_policies``, ``my_policies:Mine``, ``./my_policies.py`` or ``./my_policies.py:Mine``. Modules are
looked for as Python looks for them, and in the working folder.
"""

from __future__ import annotations

import ast
import sys
import traceback
from collections.abc import Iterator
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from inspect import isabstract
from pathlib import Path
from types import ModuleType
from typing import Any

from allocator.conversion import made_of
from allocator.protocol import Policy
from allocator.simulator.rules.base import Rule
from allocator.simulator.rules.world import GENERAL
from throughputs import InputError
from throughputs.entry_points import declare, entries_of
from throughputs.errors import did_you_mean, one_of

SOURCE = "--import"
WORLD = "--world"


def declare_others(module: ModuleType) -> bool:
    """Let presets, workloads and layouts of job logs that a module defines be known by their names; whether it has any.

    Those that have the name of a known one, as what a module imports to change it, are left alone.
    """
    found = {
        (group, name): value
        for value in vars(module).values()
        for group, name in _others_of(value, module.__name__)
        if name not in entries_of(group) or entries_of(group)[name].given is value
    }
    for (group, name), value in found.items():
        declare(group, name, value)
    return bool(found)


def _others_of(value: Any, module: str) -> Iterator[tuple[str, str]]:
    """The group that its class names, and its name: of a preset or a layout, or of the class of a workload."""
    group = getattr(value, "declared_in", None)
    if isinstance(value, type):
        value = vars(value).get("generator") if value.__module__ == module else None
    name = getattr(value, "name", value)
    if group and isinstance(name, str):
        yield group, name


def policies_of(reference: str) -> tuple[ModuleType, list[type[Policy]]]:
    """The module that is named, imported, and its policies: all of its own, or the one that is named.

    A module's own are those that it, or the package that it is, defines; what it imports from elsewhere is another's.
    Classes that leave something open (base classes) are not policies, and neither are those whose names begin with an
    underscore.

    Raises
    ------
    InputError
        No such module or class, or one that cannot be imported.
    """
    place, class_name = _parts(reference)
    module = _module_of_file(Path(place)) if place.endswith(".py") else _module_by_name(place)
    own = list(_own_policies(module))
    if not class_name:
        return module, own
    found = getattr(module, class_name, None)
    if not (isinstance(found, type) and issubclass(found, Policy)):
        names = [policy.__name__ for policy in own]
        listed = f": one of {', '.join(names)}" if names else ""
        expected = f"a policy class of {place}{did_you_mean(class_name, names)}{listed}"
        raise InputError(SOURCE, found=reference, expected=expected)
    if isabstract(found):
        left = ", ".join(sorted(found.__abstractmethods__))
        raise InputError(SOURCE, found=reference, expected=f"a class that leaves nothing open; this one leaves {left}")
    return module, [found]


def rule_of_text(text: str) -> Rule:
    """The rule of a world that ``./my_rules.py:Cap(watts=9000)`` or ``my_rules:Cap`` names, with its fields.

    General rules go by their bare names: ``NodesFail(mtbf_hours=200)``.

    Raises
    ------
    InputError
        No such module or class, or a field that it does not have, or of another type.
    """
    reference, bracket, arguments = text.partition("(")
    general: dict[str, Any] = {rule.__name__: rule for rule in GENERAL}
    kind = general.get(reference) or _own_rule(reference)
    try:
        call = ast.parse(f"_({arguments}" if bracket else "_()", mode="eval").body
        assert isinstance(call, ast.Call)
        given = {str(each.arg): ast.literal_eval(each.value) for each in call.keywords}
        whole = not call.args and "None" not in given
    except (SyntaxError, ValueError, AssertionError):
        whole = False
    if not whole:
        raise InputError(WORLD, found=text, expected="FILE.py:RULE(NAME=VALUE, ...), values as Python writes them")
    made: Rule = made_of(kind, given, WORLD)
    return made


def _own_rule(reference: str) -> Any:
    """The class of a rule that ``./my_rules.py:Cap`` names."""
    place, class_name = _parts(reference, WORLD)
    if not class_name:
        general = one_of(reference, [rule.__name__ for rule in GENERAL])
        raise InputError(WORLD, found=reference, expected=f"FILE.py:RULE, or a general rule: {general}")
    module = _module_of_file(Path(place), WORLD) if place.endswith(".py") else _module_by_name(place, WORLD)
    found = {name: kind for name, kind in vars(module).items() if isinstance(kind, type) and issubclass(kind, Rule)}
    if class_name not in found:
        names = [name for name, kind in found.items() if kind.__module__ == module.__name__]
        raise InputError(WORLD, found=reference, expected=f"a rule of {place}: {one_of(class_name, names)}")
    return found[class_name]


def absolute_reference(reference: str) -> str:
    """The same from any working folder."""
    place, class_name = _parts(reference)
    if place.endswith(".py"):
        place = str(Path(place).absolute())
    return f"{place}:{class_name}" if class_name else place


def _parts(reference: str, source: str = SOURCE) -> tuple[str, str]:
    """Module or file, and class."""
    place, colon, class_name = reference.rpartition(":")
    if not colon:
        place, class_name = reference, ""
    dotted = place.endswith(".py") or all(part.isidentifier() for part in place.split("."))
    if not dotted or (colon and not class_name.isidentifier()):
        expected = "MODULE, MODULE:CLASS, ./FILE.py or ./FILE.py:CLASS"
        raise InputError(source, found=reference, expected=expected)
    return place, class_name


def _own_policies(module: ModuleType) -> Iterator[type[Policy]]:
    """Those that the module defines, and the modules below it if it is a package."""
    below = f"{module.__name__}."
    for name, found in vars(module).items():
        policy = isinstance(found, type) and issubclass(found, Policy) and not isabstract(found)
        if policy and not name.startswith("_") and f"{found.__module__}.".startswith(below):
            yield found


def _module_by_name(name: str, source: str = SOURCE) -> ModuleType:
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and f"{name}.".startswith(f"{error.name}."):
            expected = f"a module that Python finds, or that is in {here}; a file is named with its .py"
            raise InputError(source, found=name, expected=expected) from None
        raise _failed(name, error, source) from error
    except Exception as error:
        raise _failed(name, error, source) from error


def _module_of_file(path: Path, source: str = SOURCE) -> ModuleType:
    path = path.absolute()
    if not path.is_file():
        raise InputError(source, field=str(path), expected="a file that exists")
    name, known = path.stem, sys.modules.get(path.stem)
    if known is not None:
        if getattr(known, "__file__", None) == str(path):
            return known
        expected = f"a file with another name: {name} is a module that is in use"
        raise InputError(source, found=str(path), expected=expected)
    spec = spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise InputError(source, found=str(path), expected="a file of Python")
    if str(path.parent) not in sys.path:
        sys.path.insert(0, str(path.parent))
    module = sys.modules[name] = module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[name]
        raise _failed(str(path), error, source) from error
    return module


def _failed(place: str, error: Exception, source: str) -> InputError:
    """What went wrong in someone's module, and where."""
    if isinstance(error, InputError):
        return error
    if isinstance(error, SyntaxError):
        where = f"{error.filename}, line {error.lineno}"
    else:
        frames = traceback.extract_tb(error.__traceback__)
        last = next((frame for frame in reversed(frames) if frame.filename == place), frames[-1])
        where = f"{last.filename}, line {last.lineno}"
    expected = f"a module that can be imported: {type(error).__name__}: {error} ({where})"
    return InputError(source, found=place, expected=expected)
