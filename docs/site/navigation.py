"""The navigation: what mkdocs.yml says, without pages that are absent, and with those that it does not name."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from fnmatch import fnmatch
from typing import Any

_LAST = "More"


def navigation(nav: Sequence[Any], pages: Sequence[str], hidden: Collection[str] = ()) -> list[Any]:
    """The entries of the navigation for the pages that there are.

    Parameters
    ----------
    nav : as in mkdocs.yml; a name such as ``policies/*`` stands for all pages that match and are not named elsewhere.
    pages : addresses of all pages, in order.
    hidden : beginnings of addresses of pages that are reached by links only.

    Pages that no entry names come last, in a section of their own.
    """
    named = {name for name in _names(nav) if "*" not in name}
    kept = [entry for entry in (_kept(entry, pages, named) for entry in nav) if entry is not None]
    patterns = [name for name in _names(nav) if "*" in name]
    more = [
        page
        for page in pages
        if page not in named
        and not any(fnmatch(page, pattern) for pattern in patterns)
        and not page.startswith(tuple(hidden))
    ]
    return [*kept, {_LAST: more}] if more else kept


def _names(entry: Any) -> list[str]:
    if isinstance(entry, str):
        return [entry]
    parts = entry.values() if isinstance(entry, dict) else entry
    return [name for part in parts for name in _names(part)]


def _kept(entry: Any, pages: Sequence[str], named: Collection[str]) -> Any:
    """The entry for these pages; None: nothing is left of it."""
    if isinstance(entry, str):
        return entry if entry in pages else None
    if isinstance(entry, dict):
        ((title, inside),) = entry.items()
        left = _kept(inside, pages, named)
        return None if left is None else {title: left}
    left = []
    for part in entry:
        if isinstance(part, str) and "*" in part:
            matching = [page for page in pages if fnmatch(page, part) and page not in named]
            left += sorted(matching, key=lambda page: not page.endswith("index.md"))
        elif (kept := _kept(part, pages, named)) is not None:
            left.append(kept)
    return left or None
