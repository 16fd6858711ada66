"""``allocator study``: a question and the runs that answer it, such as the main table of a paper."""

from __future__ import annotations

import runpy
from pathlib import Path

import typer

from allocator.cli.options.shared import JsonOption, console, print_json
from allocator.cli.screen import rich_console
from allocator.studies import headline, tables
from allocator.studies.study import Options, Study
from throughputs import InputError


def study_command(
    name: str | None = None,
    /,
    out: Path = Path("studies"),
    quick: bool = False,
    processes: int | None = None,
    as_json: JsonOption = False,
) -> None:
    """Make the runs of a study and print its table: of a paper beside the figures that it prints.

    Its data come from `allocator data fetch`; what is missing is named. Writes DIR/NAME.csv and .tex, and DIR/NAME.svg
    and .pdf where matplotlib is installed. Runs that are over are kept in DIR, so a study that was stopped goes on.

    Parameters
    ----------
    name : NAME|FILE.py
        The study; all are listed if omitted.
    out : DIR
        Folder for the table and the picture.
    quick
        A part of it: fewer runs, the same figures.
    processes : --parallel N
        Runs of a sweep at a time.
    """
    if name is None:
        for each in headline.studies():
            typer.echo(f"{each:<14}{headline.study(each).title}")
        return
    study = _of_file(Path(name)) if name.endswith(".py") else headline.study(name)
    screen = rich_console(stderr=True)
    results = study.results(Options(quick, out, processes, screen))
    cells = study.table(results)
    written = study.write(results, out / Path(name).stem)
    if as_json:
        print_json(study.numbers(results).to_dict("records"))
        return
    console().print(tables.on_screen(study.title, cells, tables.never_served(results)))
    console().print(f"wrote {', '.join(map(str, written))}", soft_wrap=True)


def _of_file(path: Path) -> Study:
    found = runpy.run_path(str(path)).get("STUDY")
    if not isinstance(found, Study):
        raise InputError(path, field="STUDY", found=type(found).__name__, expected="an allocator.studies.study.Study")
    return found
