"""The gallery: notebooks as they were executed, each with its finding."""

from __future__ import annotations

import base64
import json
import re
from typing import Any

from docs.site.links import ROOT, rewritten

_FINDINGS = "## Findings"


def pages() -> dict[str, str | bytes]:
    """Addresses and content of an overview, a page for each notebook, and their pictures."""
    made: dict[str, str | bytes] = {}
    cards = []
    for path in sorted((ROOT / "notebooks").glob("*.ipynb")):
        notebook = json.loads(path.read_text(encoding="utf-8"))
        text, pictures = page_of(notebook, path.stem)
        made[f"gallery/{path.stem}.md"] = text
        made |= {f"gallery/{name}": content for name, content in pictures.items()}
        cards.append(_card(path.stem, notebook, next(iter(pictures), None)))
    made["gallery/index.md"] = "\n".join([_OVERVIEW, '<div class="gallery" markdown>', *cards, "</div>", ""])
    return made


_OVERVIEW = """# Gallery

Each study below is a notebook, executed on inputs small enough to run again in a minute:
`python notebooks/run.py NAME`, or on the published setting with `--full`. What it found stands beside its picture.
"""


def title_of(notebook: dict[str, Any]) -> str:
    """The first heading."""
    return next(line[2:].strip() for text in _texts(notebook) for line in text.splitlines() if line.startswith("# "))


def caption_of(notebook: dict[str, Any]) -> str:
    """The first paragraph of its findings; without findings, the first one of the notebook."""
    texts = _texts(notebook)
    text = next((text for text in texts if text.startswith(_FINDINGS)), texts[0])
    paragraphs = [part.strip() for part in re.split(r"\n\s*\n", text.partition("\n")[2]) if part.strip()]
    return " ".join(paragraphs[0].split()) if paragraphs else ""


def page_of(notebook: dict[str, Any], name: str) -> tuple[str, dict[str, bytes]]:
    """A notebook as a page, and its pictures by file name; code is folded away."""
    parts, pictures = [], {}
    for cell in notebook["cells"]:
        source = "".join(cell["source"]).strip()
        if cell["cell_type"] == "markdown":
            parts.append(rewritten(source, f"notebooks/{name}.ipynb"))
        elif cell["cell_type"] == "code" and source:
            parts.append('??? code "Code"\n\n' + _indented(f"```python\n{source}\n```"))
        for output in cell.get("outputs", ()):
            data = output.get("data", {})
            if "image/png" in data:
                picture = f"{name}-{len(pictures) + 1}.png"
                pictures[picture] = base64.b64decode("".join(data["image/png"]))
                parts.append(f"![{title_of(notebook)}: picture {len(pictures)}]({picture}){{ .drawn }}")
            elif "text/html" in data:
                parts.append(f'<div class="made-table">{_plain_table("".join(data["text/html"]))}</div>')
            elif "text/plain" in data:
                parts.append(f"```text\n{''.join(data['text/plain'])}\n```")
    link = f"From the notebook `notebooks/{name}.ipynb`. All studies: [gallery](index.md)."
    return "\n\n".join([*parts, link, ""]), pictures


def _texts(notebook: dict[str, Any]) -> list[str]:
    return ["".join(cell["source"]).strip() for cell in notebook["cells"] if cell["cell_type"] == "markdown"]


def _card(name: str, notebook: dict[str, Any], picture: str | None) -> str:
    shown = f"[![{title_of(notebook)}]({picture}){{ .drawn }}]({name}.md)\n\n" if picture else ""
    caption = rewritten(caption_of(notebook), f"notebooks/{name}.ipynb")
    return f"<div markdown>\n\n### [{title_of(notebook)}]({name}.md)\n\n{shown}{caption}\n\n</div>\n"


def _plain_table(html: str) -> str:
    """A table without a style of its own; blank lines would end the block in Markdown."""
    without = re.sub(r"<style.*?</style>", "", html, flags=re.DOTALL)
    return "\n".join(line.strip() for line in without.splitlines() if line.strip())


def _indented(text: str) -> str:
    return "\n".join(f"    {line}" if line else "" for line in text.splitlines())
