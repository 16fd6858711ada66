"""Commands as functions: options follow from parameters and their docstrings, and from fields of dataclasses.

    def nodes_command(trace: Path, /, settings: list[str] | None = None, watts: NotNegative | None = None) -> None:
        \"\"\"How many nodes might have slept?

        Parameters
        ----------
        trace : FILE|-
            The jobs, with their durations.
        settings : --set NAME=VALUE
            One of the settings of the rule; may be repeated.
        watts
            What an idle node draws more than one that sleeps.
        \"\"\"

A parameter that comes by position alone is an argument, any other an option. Behind its name stand what the option is
called, where the name does not say it, and what stands for its value; below, its help.

An option of several commands is an `option` in `Annotated`, or a field of a dataclass. A parameter may stand for many:

    def simulate_command(trace: Path, run: Annotated[Given, options(Run, "seed prices"), ...]) -> None: ...

The command line then has ``--seed`` and ``--prices``, as the docstring of `Run` tells them (``Options``), and the
command is handed ``{"seed": 3}`` where that was given.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import is_dataclass
from functools import wraps
from inspect import Parameter, Signature, cleandoc, signature
from math import isfinite
from types import NoneType, UnionType
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin, get_type_hints

import typer

from allocator.cli.app import only_named
from allocator.conversion import convert, declared_kinds
from throughputs import InputError
from throughputs.limits import Range


def option(*words: str, **more: Any) -> Any:
    """An option: its names, what it does and what stands for its value; `more` as for `typer.Option`."""
    names = [word for word in words if word.startswith("-")]
    made: Any = typer.Option
    return made(*names, **_about(*words[len(names) :]), **more)


def argument(*words: str, **more: Any) -> Any:
    """The same of an argument, which has no name."""
    return typer.Argument(**_about(*words), **more)


def _about(about: str, word: str | None = None) -> dict[str, Any]:
    return {"help": about, "metavar": word}


class Given(dict[str, Any]):
    """What was given of options, by field; what was not given is not there."""

    def some(self, names: Iterable[str]) -> dict[str, Any]:
        """Those of these fields that were given."""
        return {name: self[name] for name in names if name in self}


Options = tuple[Parameter, ...]


def options(owner: type, names: str = "", kinds: Mapping[str, Any] | None = None) -> Options:
    """Options that a section of the docstring of a class tells: of these names, or all of them.

    They are of the types of its fields, or of `kinds`; text where neither says it. Those of a dataclass are not given
    where nothing is said, those of another class have its values.
    """
    told = {name: words for each in owner.__mro__ for name, words in _told(each.__doc__, "Options")[1].items()}
    if kinds is None:
        kinds = declared_kinds(owner) if is_dataclass(owner) else get_type_hints(owner, include_extras=True)
    usual: Mapping[str, Any] = {} if is_dataclass(owner) else vars(owner)
    every = names.split() or told
    return tuple(_option(name, kinds.get(name, str), usual.get(name), *told[name]) for name in every)


def _told(doc: str | None, section: str) -> tuple[str, dict[str, list[str]]]:
    """What stands ahead of a section of a docstring; and by name the option, what stands for a value, and the help."""
    about, _, entries = cleandoc(doc or "").partition(f"\n\n{section}\n{'-' * len(section)}\n")
    return about, {name: words for name, *words in _ENTRY.findall(f"{entries}\n")}


_FLAG = re.compile(r"--?[a-z][\w/-]*")
_ENTRY = re.compile(r"^(\w+)(?: : ((?:--?[a-z][\w/-]*,? ?)*)(.*))?\n((?:    .*\n)+)", re.MULTILINE)


def _option(name: str, kind: Any, usual: Any, words: str, word: str, about: str) -> Parameter:
    """An option; a switch is off where nothing is said, unless it has two sides."""
    flags, plain = _FLAG.findall(words) or [f"--{name.replace('_', '-')}"], _plain(kind)
    two_sides = "/" in flags[0]
    how: dict[str, Any] = {"help": " ".join(about.split()), "metavar": word or None}
    made = typer.Option(*flags, **how, callback=_checked(max(flags, key=len), kind))
    usual = False if plain is bool and not two_sides else usual
    return parameter_of(name, Annotated[bool | None if two_sides else plain, made], usual)


def _number(kind: Any) -> Any:
    """The type of the number that is asked for, with its range; nothing where that is no number."""
    parts = get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)
    numbers = [each for each in parts if _leaves(each)[0] in (int, float)]
    return numbers[0] if len(numbers) == 1 else None


def _checked(flag: str, kind: Any) -> Callable[[Any], Any] | None:
    """Refuses numbers that are not finite, or not in the range of a type."""
    number = _number(kind)

    def check(value: Any) -> Any:
        if value is not None:
            try:
                convert(value, number, source=flag, field="")
            except InputError as error:
                raise InputError(flag, found=error.found, expected=error.expected) from None
        return value

    return None if number is None else check


def _bounds(kind: Any, word: str) -> dict[str, Any]:
    """What typer tells in the help of a number, and looks at: bounds that are included."""
    number = _number(kind)
    limits = next((each for each in getattr(number, "__metadata__", ()) if isinstance(each, Range)), None)
    if limits is None or limits.above:
        return {}
    plain = _leaves(number)[0]
    bounds = {"min": limits.least, "max": limits.most}
    told = {name: plain(bound) for name, bound in bounds.items() if isfinite(bound)}
    return told | {"metavar": word or f"<{plain.__name__}>"}


def _plain(kind: Any) -> Any:
    """Flag, number, text or texts; nothing where it is not given."""
    if get_origin(kind) is list:
        return kind | None
    inner = [each for each in _leaves(kind) if each is not NoneType]
    return bool if bool in inner else inner[0] | None if inner[0] in (int, float) else str | None


def _leaves(kind: Any) -> list[Any]:
    origin, parts = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return _leaves(parts[0])
    if origin in (Union, UnionType):
        return [leaf for part in parts for leaf in _leaves(part)]
    return [kind if kind in (bool, int, float, NoneType) else str]


Command = TypeVar("Command", bound=Callable[..., None])


class Commands(typer.Typer):
    """The commands below a command."""

    def __init__(self, **about: Any) -> None:
        super().__init__(**{"no_args_is_help": True, **about})
        self.callback()(only_named)

    def command(self, name: str | None = None, **more: Any) -> Callable[[Command], Command]:
        """Registers a function under a name."""
        register = super().command(name, **more)

        def add(command: Command) -> Command:
            register(with_options(command))
            return command

        return add


def with_options(command: Callable[..., None]) -> Callable[..., None]:
    """The command as typer takes it: with what its docstring says of its parameters, and what groups of options are."""
    hints, plain = get_type_hints(command, include_extras=True), get_type_hints(command)
    about, told = _told(command.__doc__, "Parameters")
    known = signature(command).parameters
    given: dict[str, Options] = {
        name: sum(kind.__metadata__, ()) for name, kind in hints.items() if getattr(kind, "__origin__", None) is Given
    }
    parameters: list[Parameter] = []
    for name, parameter in known.items():
        kind = hints[name]
        if name in told:
            names, word, text = told[name]
            made = typer.Argument if parameter.kind is Parameter.POSITIONAL_ONLY else typer.Option
            usual = f"--{name.replace('_', '-')}"
            flags = _FLAG.findall(names) or ([usual] if plain[name] is bool else [])
            said: dict[str, Any] = {"help": " ".join(text.split()), "metavar": word or None}
            said |= _bounds(kind, word) | {"callback": _checked(max(flags or [usual], key=len), kind)}
            kind = Annotated[plain[name], made(*flags, **said)]
        parameters += given.get(name) or (parameter_of(name, kind, parameter.default),)
    by_position = [name for name, parameter in known.items() if parameter.kind is Parameter.POSITIONAL_ONLY]

    @wraps(command)
    def run(**values: Any) -> None:
        for name, asked in given.items():
            taken = {one.name: (values.pop(one.name), one.default) for one in asked}
            values[name] = Given(
                {f: v for f, (v, usual) in taken.items() if v is not None and (v or usual is not False)}
            )
        arguments = [values.pop(name) for name in by_position]
        command(*arguments, **values)

    run.__doc__ = about
    run.__dict__["__signature__"] = Signature(parameters, return_annotation=None)
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters} | {"return": None}
    return run


def parameter_of(name: str, annotation: Any, default: Any) -> Parameter:
    """An option as a parameter of a command."""
    return Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
