"""What MkDocs calls while it builds the site: pages that are not written by hand, links, navigation, checks."""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import Abort
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from docs.site import checks, formulas, gallery, links, navigation, policy_pages, python_pages

_HIDDEN = ("source/",)

_NAMED_BLOCK = re.compile(r"^```(\w+) ([\w./-]+)$", re.MULTILINE)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are made here, and put the navigation together."""
    made: dict[str, str | bytes] = {"index.md": (links.ROOT / "README.md").read_text()}
    made |= policy_pages.pages() | gallery.pages() | python_pages.pages()
    written = {f"docs/{file.src_uri}": file.content_string for file in files.documentation_pages()}
    wanted = [
        path
        for page, text in ({"README.md": made["index.md"]} | written).items()
        for path in links.link_targets(text, page)
    ]
    wanted += ["THIRD_PARTY.md"]
    wanted += links.link_targets((links.ROOT / "THIRD_PARTY.md").read_text(), "THIRD_PARTY.md")
    for path in sorted(set(wanted)):
        made[links.uri_of(path)] = links.source_page(path)
        if (links.ROOT / path).is_dir():
            made |= {links.uri_of(name): links.source_page(name) for name in _below(path)}
    for uri, content in made.items():
        files.append(File.generated(config, uri, content=content))
    pages = sorted(file.src_uri for file in files.documentation_pages())
    config.nav = navigation.navigation(config.nav, pages, _HIDDEN)
    return files


def _below(folder: str) -> list[str]:
    return [posixpath.join(folder, name) for name in links.files_below(folder)]


def on_page_markdown(markdown: str, *, page: Page, **_: Any) -> str:
    """Let links of pages that are written by hand lead to pages of the site."""
    uri = page.file.src_uri
    # the name behind the language of a block is that of a file, for the tests that read it
    markdown = _NAMED_BLOCK.sub(r'```\1 title="\2"', markdown)
    if uri == "index.md":
        page.meta["hide"] = ["navigation", "toc"]
        return links.rewritten(markdown, "README.md")
    if uri == "theory.md":
        markdown = formulas.in_text(markdown)
    return links.rewritten(markdown, f"docs/{uri}") if page.file.abs_src_path else markdown


def on_post_build(*, config: MkDocsConfig) -> None:
    """End with an error where a page would fetch anything from elsewhere."""
    found = checks.fetched_from_elsewhere(Path(config.site_dir))
    if found:
        raise Abort("pages would fetch from elsewhere:\n" + "\n".join(found))
