"""``allocator data``: public data sets by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from allocator.cli.options.groups import Commands, option
from allocator.cli.options.shared import JsonOption, console, print_json, say
from allocator.cli.screen import rich_console
from allocator.data import cache_directory, datasets, fetch, find, verify
from allocator.data.listing import bytes_text, hash_text, reader_text, size_text
from allocator.results.shown import text_table

if TYPE_CHECKING:
    from allocator.data import DataFile, Dataset, FileReport

app = Commands()

CacheOption = Annotated[
    Path | None,
    option(
        "--cache",
        "Directory of the downloaded files; else that of ALLOCATOR_DATA_CACHE, else the platform's cache.",
        "DIR",
    ),
]
FileOption = Annotated[
    list[str] | None,
    option("--file", "Only files whose path matches; may be repeated.", "PATTERN"),
]


@app.command("list")
def list_command(
    name: str | None = None,
    /,
    cache: CacheOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the data sets, or the files of one: licence, size, SHA-256, address, what reads it.

    Parameters
    ----------
    name : [NAME]
        A data set, to see its files.
    """
    directory = cache_directory(cache)
    if as_json:
        found = [
            asdict(dataset) | {"size": dataset.size, "folder": str(directory / dataset.name)}
            for dataset in ([find(name)] if name else datasets())
        ]
        print_json(found[0] if name else found)
    elif name:
        _print_files(find(name), directory)
    else:
        _print_sets(list(datasets()), directory)


@app.command("fetch")
def fetch_command(
    names: list[str],
    /,
    files: FileOption = None,
    cache: CacheOption = None,
    url_base: str | None = None,
    as_json: JsonOption = False,
) -> None:
    """Download data sets into the cache, verified; a download that was cut off is continued.

    Parameters
    ----------
    names : NAME...
        Data sets.
    url_base : URL
        A mirror with the files under <data set>/<path>.
    """
    sets = [find(name) for name in names]
    found: list[dict[str, Any]] = []
    for dataset in sets:
        _say(as_json, f"{dataset.name}: {size_text(dataset)}, licence: {dataset.licence}")
        if dataset.note:
            _say(as_json, f"  {dataset.note}")
        try:
            with _progress() as progress:
                reports = fetch(
                    dataset,
                    files=files or (),
                    cache=cache,
                    url_base=url_base,
                    progress=progress,
                    waiting=lambda: say("another process is fetching this data set; waiting for it"),
                )
        except KeyboardInterrupt:
            say("stopped; what came is kept, run the same command again to continue")
            raise typer.Exit(130) from None
        found += _told(dataset, reports, as_json)
    if as_json:
        print_json(found)


@app.command("verify")
def verify_command(
    names: list[str] | None = None,
    /,
    files: FileOption = None,
    cache: CacheOption = None,
    as_json: JsonOption = False,
) -> None:
    """Compare the files in the cache with the known lengths and SHA-256; status 1 if one is missing or wrong.

    Parameters
    ----------
    names : [NAME...]
        Data sets; all that are in the cache if omitted.
    """
    directory = cache_directory(cache)
    here = [dataset for dataset in datasets() if dataset.files and (directory / dataset.name).is_dir()]
    sets = [find(name) for name in names] if names else here
    found: list[dict[str, Any]] = []
    for dataset in sets:
        _say(as_json, f"{dataset.name}:")
        found += _told(dataset, verify(dataset, files=files or (), cache=directory), as_json)
    if as_json:
        print_json(found)
    elif not sets:
        typer.echo(f"no data set in {directory}")
    if any(each["state"] in ("missing", "wrong") for each in found):
        raise typer.Exit(1)


@contextmanager
def _progress() -> Iterator[Callable[[DataFile, int, int | None], None] | None]:
    """A bar per file on a terminal; nothing elsewhere."""
    screen = rich_console(stderr=True)
    if not screen.is_terminal:
        yield None
        return
    from rich.markup import escape
    from rich.progress import BarColumn, DownloadColumn, Progress, TimeRemainingColumn, TransferSpeedColumn

    shown = (
        "{task.description}",
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*shown, console=screen, transient=True) as bars:
        task = bars.add_task("")

        def advance(file: DataFile, done: int, total: int | None) -> None:
            bars.update(task, description=escape(file.path), completed=done, total=total)

        yield advance


def _say(as_json: bool, line: str) -> None:
    if not as_json:
        typer.echo(line)


def _told(dataset: Dataset, reports: list[FileReport], as_json: bool) -> list[dict[str, Any]]:
    """Reports for JSON; else told, a line for each, where no SHA-256 is known with the one that was found."""
    for report in reports:
        known = report.file.sha256 is not None or report.sha256 is None
        more = report.detail or ("" if known else f"it has {report.sha256}")
        _say(as_json, f"  {report.path}: {report.state.value}{'; ' * bool(more)}{more}")
    return [
        {
            "data_set": dataset.name,
            "file": report.file.path,
            "path": str(report.path),
            "state": report.state.name.lower(),
            "sha256": report.sha256,
            "known_sha256": report.file.sha256,
            "detail": report.detail,
        }
        for report in reports
    ]


def _print_sets(sets: list[Dataset], directory: Path) -> None:
    rows = []
    for dataset in sets:
        here = sum((directory / dataset.name / file.path).is_file() for file in dataset.files)
        cells = (dataset.name, dataset.title, dataset.licence, size_text(dataset), hash_text(dataset))
        rows.append((*cells, f"{here} of {len(dataset.files)}" if dataset.files else "by hand"))
    headings = ("data set", "contents", "licence", "size", "SHA-256", "fetched")
    console().print(text_table(headings, rows, words=(0, 1, 2), caption=f"cache: {directory}"))


def _print_files(dataset: Dataset, directory: Path) -> None:
    lines = [
        f"{dataset.name}: {dataset.title}",
        f"  source    {dataset.source or dataset.page}",
        f"  licence   {dataset.licence}",
        f"  size      {size_text(dataset)}",
        f"  SHA-256   {hash_text(dataset)}",
        f"  read by   {reader_text(dataset)}",
        f"  page      {dataset.page}",
        f"  folder    {directory / dataset.name}",
    ]
    lines += [f"  note      {dataset.note}"] if dataset.note else []
    for file in dataset.files:
        lines += [f"  {file.path}", f"    {file.url}", f"    {bytes_text(file)}, {file.sha256 or 'SHA-256 unknown'}"]
    typer.echo("\n".join(lines))
