"""The door of the command line: a command's module is read when the command is asked for, and not before."""

from __future__ import annotations

import subprocess
import sys

import typer

from allocator.cli.app import COMMANDS, app, load


def test_the_list_says_what_the_commands_say() -> None:
    assert list(typer.main.get_command(app).commands) == list(COMMANDS)  # type: ignore[attr-defined]
    for name, line in COMMANDS.items():
        command = load(name)
        assert (command.name, (command.help or "").strip().splitlines()[0]) == (name, line)


def loaded(*arguments: str) -> set[str]:
    """What a command line loads."""
    script = (
        "import sys, allocator.cli as cli\n"
        f"sys.argv = ['allocator', *{list(arguments)!r}]\n"
        "try: cli.main()\n"
        "except SystemExit: pass\n"
        "print(*sys.modules, file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return set(done.stderr.split())


def test_help_loads_no_command_and_a_command_no_other() -> None:
    """Nor do the names of the library: they are imported at first use."""
    ours = {name for name in loaded("--help") if name.startswith(("allocator", "formulations", "throughputs."))}
    assert {name for name in ours if not name.startswith("throughputs")} == {
        "allocator", "allocator.cli", "allocator.cli.app", "allocator.cli.screen",
    }  # fmt: skip
    modules = loaded("data", "list")
    assert {"allocator.cli.inputs.data", "allocator.data"} <= modules
    assert not {m for m in modules if m.startswith(("formulations", "allocator.simulator", "allocator.sweep"))}
    assert not modules & {"pandas", "scipy", "highspy", "cvxpy"}


def test_where_docstrings_are_left_out_it_says_so() -> None:
    done = subprocess.run([sys.executable, "-OO", "-m", "allocator", "--help"], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("error: options are told by docstrings")
