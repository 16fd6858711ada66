"""Links that leave docs/: to pages of the site where there is one, otherwise to a page that shows the file.

Pages link to files of the repository, as readers of the sources expect. On the site such a link leads to a page made of
that file, so that every link can be checked and works without a network.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

_LINK = re.compile(r"(?<=\]\()(?!\w+:|#|//)([^)\s#]+)(#[^)\s]*)?(?=[)\s])")
_FENCE = re.compile(r"^(```|~~~).*?^\1\s*?$", re.MULTILINE | re.DOTALL)
_LANGUAGES = {".py": "python", ".toml": "toml", ".json": "json", ".sh": "sh"}


def uri_of(path: str) -> str:
    """Address within the site of the page made of a file or folder of the repository.

    Parameters
    ----------
    path : from the root of the repository, with ``/``.
    """
    if path == "README.md":
        return "index.md"
    if path.startswith("notebooks/") and path.endswith(".ipynb"):
        return f"gallery/{Path(path).stem}.md"
    if path == "notebooks":
        return "gallery/index.md"
    inside = path.removeprefix("docs/")
    if inside != path and not inside.startswith(("examples", "site")):
        return inside
    return f"source/{path}" if path.endswith(".md") else f"source/{path}.md"


def link_targets(markdown: str, page: str) -> Iterator[str]:
    """Files and folders of the repository, outside docs/, to which a page links; paths from the root.

    Parameters
    ----------
    markdown : text of the page.
    page : its path in the repository.
    """
    for match in _LINK.finditer(_FENCE.sub("", markdown)):
        path = _resolved(match[1], page)
        if path is not None and uri_of(path).startswith("source/"):
            yield path


def rewritten(markdown: str, page: str) -> str:
    """The text of a page with links as the site has them, which are relative to the address of the page."""
    folder = posixpath.dirname(uri_of(page))

    def link(match: re.Match[str]) -> str:
        path = _resolved(match[1], page)
        if path is None:
            return match[0]
        return posixpath.relpath(uri_of(path), folder or ".") + (match[2] or "")

    pieces, last = [], 0
    for fence in _FENCE.finditer(markdown):
        pieces += [_LINK.sub(link, markdown[last : fence.start()]), fence[0]]
        last = fence.end()
    return "".join([*pieces, _LINK.sub(link, markdown[last:])])


def _resolved(target: str, page: str) -> str | None:
    """Path from the root of what a link leads to; None where nothing is there, which MkDocs will report."""
    path = posixpath.normpath(posixpath.join(posixpath.dirname(page), target))
    return path if not path.startswith("..") and (ROOT / path).exists() else None


def source_page(path: str) -> str:
    """A page that shows a file as it is, or the files of a folder, each with a link to its own page."""
    place = ROOT / path
    if place.is_dir():
        listed = "\n".join(f"- [{entry}]({posixpath.basename(path)}/{entry}.md)" for entry in files_below(path))
        return f"# {path}\n\n{listed}\n"
    if path.endswith(".md"):
        return rewritten(place.read_text(), path)
    text = place.read_text()
    fence = "`" * max(3, 1 + max((len(run) for run in re.findall(r"`+", text)), default=0))
    return f"# {posixpath.basename(path)}\n\n`{path}`\n\n{fence}{_LANGUAGES.get(place.suffix, 'text')}\n{text}{fence}\n"


def files_below(folder: str) -> list[str]:
    """Files of text of a folder of the repository, relative to it."""
    place = ROOT / folder
    files = (path for path in sorted(place.rglob("*")) if path.suffix in (".py", ".toml", ".md", ".sh"))
    return [path.relative_to(place).as_posix() for path in files if "__pycache__" not in path.parts]
