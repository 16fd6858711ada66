"""Options that several commands take, stated once: a dataclass that stands for them among a command's parameters.

    @dataclass(frozen=True)
    class RunOptions:
        seed: SeedOption = 0
        slos: SlosOption = False

    @option_groups
    def simulate_command(trace: TraceArgument, run: RunOptions) -> None: ...

The command line then has ``--seed`` and ``--slos``, and the command is given ``RunOptions(seed=..., slos=...)``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, Field, fields, is_dataclass
from functools import wraps
from inspect import Parameter, Signature, signature
from typing import Any, get_type_hints


def option_groups(command: Callable[..., None]) -> Callable[..., None]:
    """The command with the fields of each dataclass among its parameters in the place of that parameter."""
    hints = get_type_hints(command, include_extras=True)
    groups: dict[str, Any] = {name: kind for name, kind in hints.items() if is_dataclass(kind)}
    parameters: list[Parameter] = []
    for name, parameter in signature(command).parameters.items():
        if name in groups:
            own = get_type_hints(groups[name], include_extras=True)
            parameters += [_option(field.name, _default(field), own[field.name]) for field in fields(groups[name])]
        else:
            parameters.append(_option(name, parameter.default, hints[name]))

    @wraps(command)
    def run(**given: Any) -> None:
        for name, group in groups.items():
            given[name] = group(**{field.name: given.pop(field.name) for field in fields(group)})
        command(**given)

    run.__dict__["__signature__"] = Signature(parameters, return_annotation=None)
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters} | {"return": None}
    return run


def _option(name: str, default: Any, annotation: Any) -> Parameter:
    return Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _default(field: Field[Any]) -> Any:
    if field.default_factory is not MISSING:
        return field.default_factory()
    return Parameter.empty if field.default is MISSING else field.default
