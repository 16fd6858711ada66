"""What a page of the site would fetch from elsewhere when it opens: nothing."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

_FETCHED = {
    "script": ("src",),
    "link": ("href",),
    "img": ("src", "srcset"),
    "iframe": ("src",),
    "source": ("src", "srcset"),
    "video": ("src", "poster"),
    "audio": ("src",),
    "object": ("data",),
    "embed": ("src",),
    "use": ("href", "xlink:href"),
    "image": ("href", "xlink:href"),
}
_NOT_FETCHED = ("canonical", "alternate", "prev", "next", "author", "license")
_IN_STYLES = re.compile(r"(?:url\(|@import)\s*['\"]?\s*((?:https?:)?//[^'\")\s]+)")
_ELSEWHERE = re.compile(r"\s*(?:https?:)?//")

# The script of the theme would fetch this for a diagram, and only then.
_DIAGRAM = "mermaid"


class _Page(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        if tag == "link" and set((values.get("rel") or "").split()) & set(_NOT_FETCHED):
            return
        for name in _FETCHED.get(tag, ()):
            if _ELSEWHERE.match(values.get(name) or ""):
                self.found.append(f"<{tag} {name}={values[name]}>")
        self.found += _IN_STYLES.findall(values.get("style") or "")
        if _DIAGRAM in (values.get("class") or "").split():
            self.found.append(f"<{tag} class={_DIAGRAM}>, whose script would be fetched")


def fetched_from_elsewhere(site: Path) -> list[str]:
    """Addresses outside of the site that its pages and styles name for scripts, styles, fonts and pictures.

    Parameters
    ----------
    site : folder of the built site.

    Returns one line for each, with the file that names it. Links that a reader may follow are not among them.
    """
    return [f"{path.relative_to(site)}: {address}" for path in sorted(site.rglob("*")) for address in _named(path)]


def _named(path: Path) -> Iterator[str]:
    if path.suffix == ".html":
        page = _Page()
        text = path.read_text(encoding="utf-8")
        page.feed(text)
        yield from page.found
        for style in re.findall(r"<style.*?</style>", text, re.DOTALL):
            yield from _IN_STYLES.findall(style)
    elif path.suffix in (".css", ".svg"):
        yield from _IN_STYLES.findall(path.read_text(encoding="utf-8"))
