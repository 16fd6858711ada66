"""Execute the notebooks, and keep what is stored of them small.

    python notebooks/run.py                          # all of them on the small setting; pictures in notebooks/results
    python notebooks/run.py las_single_gpu --full    # the published cluster, rates, window and seeds: hours
    python notebooks/run.py --store                  # the same, and the notebooks keep the pictures and tables
    python notebooks/run.py --strip                  # nothing is executed; stored outputs are removed
    python notebooks/run.py --table                  # nothing is executed; docs/notebooks.md lists the notebooks

The notebooks are the source: edit them in Jupyter. What is stored are pictures and tables, no progress, no times of
execution, no names of kernels or machines. Sweeps are resumable, so a second call draws without simulating.
"""

from __future__ import annotations

import argparse
import base64
import copy
import io
import os
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from throughputs import InputError
from throughputs.files import write_text

if TYPE_CHECKING:
    from nbformat import NotebookNode

FOLDER = Path(__file__).resolve().parent
STORED_BYTES = 100_000
"""A stored notebook is at most this large, pictures included."""

TABLE = FOLDER.parent / "docs" / "notebooks.md"
"""The page that lists all notebooks."""

HEADING = "## Findings"
"""How the last cell of a notebook starts, on a line of its own."""

_KERNEL = {"display_name": "Python 3", "language": "python", "name": "python3"}
_BEGIN, _END = "<!-- python notebooks/run.py --table -->", "<!-- end -->"
_PALETTE = 64
_STORED_TYPES = ("image/png", "text/html", "text/plain")
_FULL_SECONDS, _SMALL_SECONDS = 7 * 24 * 3600, 1200


def notebooks(names: list[str] | None = None) -> list[Path]:
    """Paths of the notebooks with these names; without names, of all.

    Raises
    ------
    InputError
        There is no such notebook.
    """
    known = {path.stem: path for path in sorted(FOLDER.glob("*.ipynb"))}
    for name in names or ():
        if name not in known:
            raise InputError("notebooks", found=name, expected=f"one of {', '.join(known)}")
    return [known[name] for name in names or known]


def read(path: Path) -> NotebookNode:
    """A notebook, checked against the format."""
    nbformat = _nbformat()
    notebook: NotebookNode = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    return notebook


def write(path: Path, notebook: NotebookNode) -> None:
    """Replace the file in one step."""
    nbformat = _nbformat()
    nbformat.validate(notebook)
    write_text(path, nbformat.writes(notebook) + "\n")


def execute(path: Path, *, small: bool, out: Path) -> NotebookNode:
    """The notebook with its outputs, run in its own folder by a kernel of this interpreter.

    Parameters
    ----------
    path : of the notebook; the file stays as it is.
    small : the small setting, or the published one.
    out : folder for sweeps and measurements.

    Raises
    ------
    nbclient.exceptions.CellExecutionError
        A cell failed.
    """
    from nbclient import NotebookClient

    client = NotebookClient(
        read(path),
        timeout=_SMALL_SECONDS if small else _FULL_SECONDS,
        kernel_name="python3",
        extra_arguments=["--log-level=ERROR"],
        resources={"metadata": {"path": str(path.parent)}},
    )
    settings = {"NOTEBOOK_SMALL": "1" if small else "0", "NOTEBOOK_OUT": str(out.resolve())}
    return client.execute(env=os.environ | settings)


def cleaned(executed: NotebookNode, *, outputs: bool) -> NotebookNode:
    """A copy as it is stored: no counts, no metadata of a run; of the outputs pictures and tables, or nothing."""
    nbformat = _nbformat()
    notebook: NotebookNode = nbformat.from_dict(copy.deepcopy(executed))
    notebook.metadata = nbformat.from_dict({"kernelspec": _KERNEL, "language_info": {"name": "python"}})
    for cell in notebook.cells:
        tags = cell.metadata.get("tags")
        cell.metadata = nbformat.from_dict({"tags": tags} if tags else {})
        if cell.cell_type == "code":
            cell.execution_count = None
            cell.outputs = [kept for output in cell.outputs if outputs and (kept := _stored(output)) is not None]
    return notebook


def _nbformat() -> Any:
    """The package, whose functions have no types."""
    return import_module("nbformat")


def _stored(output: Any) -> Any:
    """What is kept of an output; None: nothing."""
    if output.output_type not in ("display_data", "execute_result"):
        return None
    # Text beside a picture or a table says nothing that these do not.
    kept = next((kind for kind in _STORED_TYPES if kind in output.data), None)
    if kept is None:
        return None
    content = output.data[kept]
    output.data = {kept: _smaller(content) if kept == "image/png" else content}
    output.metadata = {}
    if output.output_type == "execute_result":
        output.execution_count = None
    return output


def _smaller(picture: str) -> str:
    """A PNG picture in base64 with a palette of its own, if that is smaller: drawings have few colours."""
    from PIL import Image

    target = io.BytesIO()
    with Image.open(io.BytesIO(base64.b64decode(picture))) as image:
        reduced = image.convert("RGB").quantize(_PALETTE, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
    reduced.save(target, "PNG", optimize=True)
    smaller = base64.b64encode(target.getvalue()).decode()
    return smaller if image.mode != "P" and len(smaller) < len(picture) else picture


def pictures(notebook: NotebookNode) -> Iterator[bytes]:
    """The PNG pictures among the outputs, in order."""
    for cell in notebook.cells:
        for output in cell.get("outputs", ()):
            picture = output.get("data", {}).get("image/png")
            if picture is not None:
                yield base64.b64decode(picture)


def findings(notebook: NotebookNode) -> str:
    """The text of its last cell without the heading, its first paragraph saying the most; empty where there is none."""
    text = str(notebook.cells[-1].source)
    return text.removeprefix(HEADING).strip() if text.startswith(HEADING) else ""


def question(notebook: NotebookNode) -> tuple[str, str, str]:
    """Title, question, and what to compare with, from the first cell.

    Raises
    ------
    InputError
        The cell has no line ``*Question:* ... *Compare:* ...``.
    """
    source = notebook.cells[0].source
    found = re.search(r"^\*Question:\* (.+?) \*Compare:\* (.+?)\.$", source, re.MULTILINE)
    if found is None:
        raise InputError("notebooks", field="first cell", found=source[:60], expected="a line *Question:* *Compare:*")
    return source.splitlines()[0].removeprefix("# "), found[1], found[2]


def table() -> str:
    """All notebooks: question, what to compare with, and what was found."""
    lines = ["| notebook | question | compare | finding |", "|---|---|---|---|"]
    for path in notebooks():
        notebook = read(path)
        title, asked, compare = question(notebook)
        finding = findings(notebook).partition("\n")[0]
        lines.append(f"| [{title}](../notebooks/{path.name}) | {asked} | {compare} | {finding} |")
    return "\n".join(lines)


def with_table(page: str) -> str:
    """The page of notebooks with its table as it is to be."""
    before, _, rest = page.partition(_BEGIN)
    return f"{before}{_BEGIN}\n{table()}\n{_END}{rest.partition(_END)[2]}"


def main() -> None:
    """The command line."""
    from rich.console import Console

    parser = argparse.ArgumentParser(prog="python notebooks/run.py", description="Execute the notebooks.")
    parser.add_argument("names", nargs="*", metavar="NOTEBOOK", help="names without .ipynb (default: all)")
    parser.add_argument("--full", action="store_true", help="the published setting instead of the small one")
    parser.add_argument("--store", action="store_true", help="keep pictures and tables in the notebooks")
    parser.add_argument("--strip", action="store_true", help="execute nothing, remove stored outputs")
    parser.add_argument("--table", action="store_true", help="execute nothing, write the table of docs/notebooks.md")
    parser.add_argument("--out", type=Path, default=FOLDER / "results", help="folder for results and pictures")
    chosen = parser.parse_args()
    console = Console()
    try:
        paths = notebooks(chosen.names)
    except InputError as error:
        parser.error(str(error))
    if chosen.table:
        write_text(TABLE, with_table(TABLE.read_text(encoding="utf-8")))
        return
    for path in paths:
        if chosen.strip:
            write(path, cleaned(read(path), outputs=False))
            continue
        with console.status(path.stem):
            executed = execute(path, small=not chosen.full, out=chosen.out)
        for number, picture in enumerate(pictures(executed), start=1):
            chosen.out.mkdir(parents=True, exist_ok=True)
            target = chosen.out / f"{path.stem}-{number}.png"
            target.write_bytes(picture)
            console.print(target, soft_wrap=True)
        if chosen.store:
            write(path, cleaned(executed, outputs=True))


if __name__ == "__main__":
    main()
