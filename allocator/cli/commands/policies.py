"""``allocator policies``: what there is."""

from __future__ import annotations

from allocator.cli.options.shared import JsonOption, console, print_json
from allocator.registry import list_policies, settings_of


def policies_command(as_json: JsonOption = False) -> None:
    """List the policies: where each is from, what it means, and its program."""
    entries = list_policies()
    if as_json:
        print_json(
            [
                {
                    "name": e.name,
                    "meaning": e.meaning,
                    "program": e.program,
                    "paper": e.paper,
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
        screen.print(Padding(escape(entry.paper), (0, 0, 1, 4), expand=False), style="dim", highlight=False)
