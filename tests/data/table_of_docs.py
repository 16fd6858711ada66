"""The table of docs/data.md; `python -m tests.data.table_of_docs` prints it."""

from __future__ import annotations

from collections.abc import Sequence

from allocator.data import Dataset, datasets
from allocator.data.listing import hash_text, size_text


def markdown_table(sets: Sequence[Dataset]) -> str:
    """The data sets as a table in Markdown."""
    rows = [
        "| data set | contents | source | licence | size | SHA-256 | read by |",
        "|---|---|---|---|---|---|---|",
    ]
    for dataset in sets:
        contents = f"{dataset.title}. {dataset.note}".rstrip() if dataset.note else dataset.title
        source = f"[{dataset.source or 'page'}]({dataset.page})"
        readers = ", ".join(f"`{reader}`" for reader in dataset.read_by) or "nothing yet"
        readers += " (by its schema)" * dataset.by_schema
        cells = (
            f"`{dataset.name}`",
            contents,
            source,
            dataset.licence,
            size_text(dataset) if dataset.files else f"{size_text(dataset)}; by hand",
            hash_text(dataset),
            readers,
        )
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows) + "\n"


if __name__ == "__main__":
    print(markdown_table(datasets()), end="")
