"""Options stated once for several commands."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

import typer
from typer.testing import CliRunner

from allocator.cli.options.groups import option_groups


@dataclass(frozen=True)
class Group:
    size: Annotated[int, typer.Option("--size", help="How many.")] = 3
    names: Annotated[list[str], typer.Option("--name", help="Of whom.")] = field(default_factory=lambda: ["somebody"])


@dataclass(frozen=True)
class Needed:
    place: Annotated[str, typer.Option("--place")]


def test_fields_are_options_of_every_command():
    seen = []
    app = typer.Typer()

    @app.command()
    @option_groups
    def first(where: Annotated[str, typer.Argument()], group: Group, fast: bool = False) -> None:
        """The first."""
        seen.append((where, group, fast))

    @app.command()
    @option_groups
    def second(group: Group, needed: Needed) -> None:
        """The second."""
        seen.append((group, needed))

    def run(line):
        return CliRunner().invoke(app, line.split())

    assert run("first here --size 5 --name a --name b --fast").exit_code == 0
    assert run("second --place there").exit_code == 0
    assert seen == [("here", Group(5, ["a", "b"]), True), (Group(3, ["somebody"]), Needed("there"))]
    assert Group().names is not Group().names
    missing = run("second")
    assert (missing.exit_code, "place" in missing.output) == (2, True)
    assert "The first." in run("first --help").output
