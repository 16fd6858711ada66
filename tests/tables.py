"""Tables in README and docs that are made from runs, and the picture of the README: ``python -m tests.tables``.

    python -m tests.tables [NAME ...] [--check]

Writes the tables between their marks, or says with ``--check``, which writes nothing, which of them differ and ends
with exit code 1; tables of recorded studies are then made from their records, which otherwise are made anew. All but
those of the demo need public data and recorded runs, where the tests look for them (ALLOCATOR_DATA,
ALLOCATOR_REFERENCE).
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

from allocator.studies.study import Options
from allocator.studies.tables import markdown
from benchmarks.failures import STUDY
from docs.site.demo_picture import picture
from tests import house_tokens
from tests.reference import (
    deadline_studies,
    elasticflow_speed,
    gavel_replays,
    goodput_studies,
    goodput_tables,
    helios_philly,
    runtime_runs,
    shockwave_replays,
    sia_headline,
    sia_loads,
)

ROOT = Path(__file__).resolve().parent.parent

_WIDTH = "120"
"""Columns of the terminal on which the comparison is printed."""


@dataclass(frozen=True)
class DocTable:
    """A table of a document.

    Attributes
    ----------
    document : path from the root of the repository.
    make : its text; from new runs, or from those that are recorded.
    record : runs anew what `make` reads and keeps it, before a table is written; None where it reads no such runs.
    """

    document: str
    make: Callable[[], str]
    record: Callable[[], None] | None = None

    def printed(self, name: str) -> str:
        """The table as the document has it."""
        found = _pattern(name).search((ROOT / self.document).read_text())
        if found is None:
            raise LookupError(f"{self.document} has no marks of the table {name!r}")
        return found[2].strip("\n")

    def write(self, name: str, new: str) -> None:
        """Put a new table in the place of the one in the document."""
        path = ROOT / self.document
        path.write_text(_pattern(name).sub(lambda found: found[1] + new + found[3], path.read_text()))


@dataclass(frozen=True)
class DocPicture(DocTable):
    """A picture: a document of its own."""

    def printed(self, name: str) -> str:  # noqa: ARG002
        """The picture as it is stored."""
        return (ROOT / self.document).read_text()

    def write(self, name: str, new: str) -> None:  # noqa: ARG002
        """Store a new one."""
        (ROOT / self.document).write_text(new)


@cache
def _demo() -> tuple[str, str]:
    """What ``make demo`` prints on a terminal too narrow for the times of this machine, and the picture of its runs."""
    from typer.testing import CliRunner

    from allocator.cli.app import app

    with tempfile.TemporaryDirectory() as folder:
        ran = CliRunner().invoke(app, ["compare", "--out", folder], env={"COLUMNS": _WIDTH})
        if ran.exit_code != 0:
            raise RuntimeError(ran.output)
        return ran.output, picture(Path(folder))


def demo_picture() -> str:
    """The picture of the README."""
    return _demo()[1]


def demo() -> str:
    """The table of the demo as a block of code."""
    lines = [line.rstrip() for line in _demo()[0].splitlines()]
    rule = next(i for i, line in enumerate(lines) if line and not line.strip(" ─"))
    first = max(i for i in range(rule) if not lines[i]) + 1
    end = next(i for i in range(rule, len(lines)) if not lines[i])
    table = [line for line in lines[first:end] if line.strip(" ─")]
    indent = min(len(line) - len(line.lstrip()) for line in table) - 1
    table = [line[indent:] for line in table]
    table.insert(rule - first, " " + "─" * (max(map(len, table)) - 1))
    return "\n".join(["```", *table, "```"])


def failures() -> str:
    """The study of failures, in full."""
    with tempfile.TemporaryDirectory() as folder:
        return markdown(STUDY.table(STUDY.results(Options(folder=Path(folder), processes=1))))


TABLES = {
    "demo": DocTable("README.md", demo),
    "demo-picture": DocPicture("docs/demo.svg", demo_picture),
    **{
        f"deadlines-{study.replace('_', '-')}": DocTable(
            "docs/deadlines.md", partial(deadline_studies.table_of, study), partial(deadline_studies.record, study)
        )
        for study in deadline_studies.OF_RECORDED
    },
    "capabilities": DocTable("docs/architecture.md", house_tokens.capabilities),
    "deadlines-cluster-seconds": DocTable("docs/deadlines.md", deadline_studies.table_of_cluster_seconds),
    "deadlines-speed": DocTable("docs/deadlines.md", elasticflow_speed.table),
    "failures": DocTable("docs/simulator.md", failures),
    "gavel": DocTable("docs/fidelity.md", partial(gavel_replays.table, gavel_replays.runs_of())),
    "gavel-filling": DocTable("docs/fidelity.md", partial(gavel_replays.table, gavel_replays.FILLING)),
    "gavel-pairs": DocTable("docs/fidelity.md", partial(gavel_replays.table, gavel_replays.PAIRS)),
    "goodput-fits": DocTable("docs/goodput.md", goodput_tables.table_of_fits),
    "goodput-profiles": DocTable("docs/goodput.md", goodput_tables.table_of_profiles),
    "goodput-studies": DocTable("docs/goodput.md", goodput_studies.table),
    "goodput-studies-full": DocTable("docs/goodput.md", partial(goodput_studies.table, small=False)),
    "goodput-searches": DocTable("docs/goodput.md", goodput_tables.table_of_searches),
    "helios-philly": DocTable("docs/fidelity.md", helios_philly.table),
    "sia-headline": DocTable("docs/fidelity.md", sia_headline.table),
    "sia-rates": DocTable("docs/fidelity.md", sia_loads.rates_table),
    "sia-sizes": DocTable("docs/fidelity.md", sia_loads.sizes_table),
    "ray": DocTable("docs/ray.md", runtime_runs.ray_table),
    "ray-picture": DocPicture("docs/ray_study.svg", runtime_runs.ray_picture),
    "runtime": DocTable("docs/fidelity.md", runtime_runs.table),
    "shockwave-runs": DocTable("docs/fidelity.md", shockwave_replays.table_of_runs),
    "shockwave-policies": DocTable("docs/fidelity.md", shockwave_replays.table_of_policies),
    "shockwave-machines": DocTable("docs/fidelity.md", shockwave_replays.table_of_machines),
    "shockwave-weights": DocTable("docs/fidelity.md", shockwave_replays.table_of_weights),
    "shockwave-seeds": DocTable("docs/fidelity.md", shockwave_replays.table_of_seeds),
}


def printed(name: str) -> str:
    """The table as the document has it."""
    return TABLES[name].printed(name)


def printed_rows(name: str) -> list[list[str]]:
    """Cells of a table in Markdown as the document has it, without its head."""
    return list(_rows(printed(name)))[1:]


def _rows(text: str) -> Iterator[list[str]]:
    for line in text.splitlines():
        if not re.fullmatch(r"[| -]*", line):
            yield [cell.strip() for cell in line.strip("|").split("|")]


def _pattern(name: str) -> re.Pattern[str]:
    return re.compile(rf"(<!-- python -m tests\.tables {name} -->\n)(.*?)(\n<!-- end -->)", re.DOTALL)


def main() -> int:
    """Exit code of the command."""
    parser = argparse.ArgumentParser(prog="python -m tests.tables", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of: {', '.join(TABLES)} (default: all)")
    parser.add_argument("--check", action="store_true", help="compare, write nothing")
    chosen = parser.parse_args()
    unknown = [name for name in chosen.names if name not in TABLES]
    if unknown:
        parser.error(f"no table {unknown[0]!r}; there are {', '.join(TABLES)}")
    stale = False
    for name in chosen.names or TABLES:
        entry = TABLES[name]
        if entry.record is not None and not chosen.check:
            entry.record()
        new = entry.make()
        same = entry.printed(name) == new
        stale |= not same
        if not same and not chosen.check:
            entry.write(name, new)
        print(f"{name}: {'as printed' if same else 'differs' if chosen.check else f'written to {entry.document}'}")
    return int(stale and chosen.check)


if __name__ == "__main__":
    sys.exit(main())
