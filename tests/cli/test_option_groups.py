"""Options stated once for several commands."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

import typer
from typer.testing import CliRunner

from allocator.cli.options.groups import option_groups

Size = Annotated[int, typer.Option("--size", help="How many.")]
Names = Annotated[list[str], typer.Option("--name", help="Of whom.")]


@dataclass(frozen=True)
class Group:
    size: Size = 3
    names: Names = field(default_factory=lambda: ["somebody"])


@dataclass(frozen=True)
class Needed:
    place: Annotated[str, typer.Option("--place")]


def app_of(seen):
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

    return app


def test_fields_are_options_of_every_command():
    seen = []
    app, runner = app_of(seen), CliRunner()
    assert runner.invoke(app, ["first", "here", "--size", "5", "--name", "a", "--name", "b", "--fast"]).exit_code == 0
    assert runner.invoke(app, ["second", "--place", "there"]).exit_code == 0
    assert seen == [("here", Group(5, ["a", "b"]), True), (Group(3, ["somebody"]), Needed("there"))]


def test_defaults_are_made_anew():
    assert Group().names is not Group().names


def test_a_field_without_default_is_required():
    result = CliRunner().invoke(app_of([]), ["second"])
    assert result.exit_code == 2
    assert "place" in result.output


def test_docstrings_stay():
    assert "The first." in CliRunner().invoke(app_of([]), ["first", "--help"]).output
