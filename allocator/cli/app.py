"""The commands, put together: a command's file is read when the command is asked for."""

from __future__ import annotations

import tomllib
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

DECLARED: dict[str, dict[str, Any]] = tomllib.loads(
    (Path(__file__).parent / "commands.toml").read_text(encoding="utf-8")
)

FOLDERS = DECLARED.pop("folders")
"""Folders that several commands write, as they stand there."""

COMMANDS = {name: declared["about"] for name, declared in DECLARED.items()}
"""Commands with the first line of their help, all that ``allocator --help`` needs."""


class Commands(TyperGroup):
    """All commands by name and help; the one that is asked for is loaded."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Name, command and further arguments."""
        name, _, further = super().resolve_command(ctx, args)
        return name, load(str(name)), further


app = typer.Typer(
    cls=Commands,
    name="allocator",
    help="Scheduling policies for GPU clusters as programs over a throughput matrix: solve, simulate, compare.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)


def only_named() -> None:
    """What a command does that has others below it: nothing."""


def _version(asked: bool) -> None:
    if asked:
        typer.echo(import_module("allocator").__version__)
        raise typer.Exit


@app.callback()
def _whole(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    """Scheduling policies for GPU clusters as programs over a throughput matrix: solve, simulate, compare."""


for _name, _help in COMMANDS.items():
    app.command(_name, help=_help)(only_named)


def load(name: str) -> Any:
    """The command `name`: the ``app`` of its module, or the function that is named after it."""
    declared = DECLARED[name]
    module = import_module(f"allocator.cli.{declared['module']}")
    whole = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode="rich")
    whole.callback()(only_named)
    if hasattr(module, "app"):
        whole.add_typer(module.app, name=name, help=declared["about"])
    else:
        with_options = import_module("allocator.cli.options.groups").with_options
        whole.command(name)(with_options(getattr(module, f"{name}_command")))
    group: Any = typer.main.get_command(whole)
    command = group.commands[name]
    guard = import_module("allocator.cli.options.outputs").guard
    for part, each in {"": command, **getattr(command, "commands", {})}.items():
        own = declared if each is command else declared.get("commands", {}).get(part, {})
        if own.get("policies"):
            each.params.append(import_module("allocator.cli.options.values").import_option())
        guard(each, own)
    return command
