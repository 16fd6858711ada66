"""``allocator throughputs``: what is known about speed."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from allocator.api import load_throughputs
from allocator.cli.options.shared import AcceleratorOption, JsonOption, console, print_json

app = typer.Typer(no_args_is_help=True, help="Throughput tables: how fast each job type runs on each accelerator type.")


@app.callback()
def _group() -> None:
    """Throughput tables: how fast each job type runs on each accelerator type."""


@app.command("describe")
def describe_command(
    table: Annotated[
        Path | None,
        typer.Argument(
            help="Table (JSON, CSV, Parquet, or a folder); the embedded one if omitted.", metavar="FILE|FOLDER"
        ),
    ] = None,
    accelerator: AcceleratorOption = None,
    as_json: JsonOption = False,
) -> None:
    """Describe a throughput table: accelerator types, job types, scale factors, speeds."""
    known = load_throughputs(table, accelerator=accelerator)
    accelerators = list(known.accelerators)
    rows: list[dict[str, Any]] = []
    for job_type in known.job_types:
        for scale_factor in known.scale_factors_of(job_type):
            rates = known.rates([job_type], [scale_factor], accelerators)[0]
            rows.append(
                {"job_type": job_type, "scale_factor": scale_factor}
                | dict(zip(accelerators, rates.tolist(), strict=True))
            )
    if as_json:
        print_json(
            {
                "source": str(table) if table else "embedded",
                "accelerators": accelerators,
                "job_types": len(known.job_types),
                "scale_factors": list(known.scale_factors),
                "colocated": known.has_colocation,
                "unit": "steps/s",
                "throughputs": rows,
            }
        )
        return
    from rich.table import Table

    title = f"{table or 'Embedded table'}: {len(known.job_types)} job types, steps/s of the whole gang"
    shown = Table(title=title, caption="with co-located pairs" if known.has_colocation else "isolated throughputs only")
    shown.add_column("job type")
    shown.add_column("GPUs", justify="right")
    for name in accelerators:
        shown.add_column(name, justify="right")
    for row in rows:
        shown.add_row(row["job_type"], str(row["scale_factor"]), *(f"{row[name]:.4g}" for name in accelerators))
    console().print(shown)
