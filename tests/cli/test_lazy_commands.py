"""The door of the command line: a command's module is read when the command is asked for, and not before."""

from __future__ import annotations

import subprocess
import sys

import pytest
import typer

from allocator.cli.app import COMMANDS, app, load


@pytest.mark.parametrize("name", COMMANDS)
def test_the_list_says_what_the_command_says(name: str) -> None:
    command = load(name)
    assert command.name == name
    assert (command.help or "").strip().splitlines()[0] == COMMANDS[name]


def test_all_are_listed() -> None:
    assert list(typer.main.get_command(app).commands) == list(COMMANDS)


def loaded(*arguments: str) -> set[str]:
    """Modules of ours that a command line loads."""
    script = (
        "import sys, allocator.cli as cli\n"
        f"sys.argv = ['allocator', *{list(arguments)!r}]\n"
        "try: cli.main()\n"
        "except SystemExit: pass\n"
        "print(*(m for m in sys.modules if m.startswith(('allocator', 'formulations'))), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return set(done.stderr.split())


def test_help_loads_no_command() -> None:
    assert loaded("--help") == {"allocator", "allocator.cli", "allocator.cli.app", "allocator.cli.screen"}


def test_a_command_loads_no_other() -> None:
    modules = loaded("data", "list")
    assert {"allocator.cli.inputs.data", "allocator.data"} <= modules
    assert not {m for m in modules if m.startswith(("formulations", "allocator.simulator", "allocator.sweep"))}


def test_a_misspelt_command_is_told() -> None:
    done = subprocess.run([sys.executable, "-m", "allocator", "solv"], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "Did you mean 'solve'" in done.stderr
