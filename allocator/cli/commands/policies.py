"""``allocator policies``: what there is, and the beginning of another one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from allocator.cli.options.groups import Commands, option
from allocator.cli.options.shared import JsonOption, console, print_json
from allocator.registry import list_policies, settings_of
from allocator.testing.template import KINDS, write_package

app = Commands(invoke_without_command=True, no_args_is_help=False)


@app.callback()
def policies_command(context: typer.Context, as_json: JsonOption = False) -> None:
    """List the policies: where each is from, what it means, and its program."""
    if context.invoked_subcommand is not None:
        return
    entries = list_policies()
    if as_json:
        print_json(
            [
                {
                    "name": e.name,
                    "meaning": e.meaning,
                    "program": e.program,
                    "paper": e.paper,
                    "lengths": e.lengths,
                    "settings": settings_of(e.name),
                }
                for e in entries
            ]
        )
        return
    from rich.markup import escape
    from rich.padding import Padding

    screen = console()
    for entry in entries:
        screen.print(f"[bold]{entry.name}[/bold]  {escape(entry.meaning)}")
        screen.print(Padding(escape(entry.program), (0, 0, 0, 4), expand=False), style="cyan", highlight=False)
        if entry.lengths != "unknown":
            screen.print(Padding(_LENGTHS[entry.lengths], (0, 0, 0, 4), expand=False), style="yellow")
        screen.print(Padding(escape(entry.paper), (0, 0, 1, 4), expand=False), style="dim", highlight=False)


_LENGTHS = {"true": "must know how long jobs take", "predicted": "goes by predicted lengths, or time limits"}


@app.command("new")
def new_command(
    name: str,
    /,
    kind: Annotated[
        str,
        option("What it answers with; shares are of time.", "|".join(KINDS)),
    ] = "shares",
    out: Path | None = None,
) -> None:
    """Begin a policy of your own: a package with one policy that runs, its test and its entry point.

    Parameters
    ----------
    name : NAME
        Name of the policy, in lower case.
    out : DIR
        Folder of the package; NAME if omitted.
    """
    folder = Path(name) if out is None else out
    for path in write_package(name, folder, kind):
        typer.echo(f"wrote {path}")
    typer.echo(
        f"Try it: allocator compare --import {folder / name}.py --policies {name},max_min_fairness_perf --jobs 20"
    )
