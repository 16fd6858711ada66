"""``--import``, which every command has that takes policies by name."""

from __future__ import annotations

import os
from typing import Annotated, Any

import typer

from allocator.cli.options.words import option
from allocator.plugins import absolute_reference
from allocator.registry import IMPORT_VARIABLE, import_policies


def import_option() -> Any:
    """The option. What it names is imported at once, and by the processes that the command starts."""
    carrier = typer.Typer(add_completion=False)
    carrier.command()(_with_import)
    command: Any = typer.main.get_command(carrier)
    return next(parameter for parameter in command.params if "--import" in parameter.opts)


def _import(references: list[str] | None) -> None:
    for reference in references or []:
        import_policies(reference)
        known = [*filter(None, os.environ.get(IMPORT_VARIABLE, "").split(",")), absolute_reference(reference)]
        os.environ[IMPORT_VARIABLE] = ",".join(dict.fromkeys(known))


def _with_import(
    _references: Annotated[
        list[str] | None,
        option(
            "--import",
            "Policies of your own: a module, a file, or a class in one of them; may be repeated.",
            "MODULE|FILE.py[:CLASS]",
            callback=_import,
            expose_value=False,
            is_eager=True,
        ),
    ] = None,
) -> None:
    pass
