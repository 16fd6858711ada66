"""Options that several commands share, and how they print."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from allocator.cli.screen import rich_console
from allocator.results.measures.unserved import unserved_reasons
from allocator.results.views.fallbacks import fallbacks_told

if TYPE_CHECKING:
    from rich.console import Console

    from allocator.results.result import SimulationResult


DEFAULT_CLUSTER = "v100:36,p100:36,k80:36"

ClusterOption = Annotated[
    str | None,
    typer.Option(
        "--cluster",
        help="GPUs by accelerator type, or a CSV file that describes the cluster, of Helios with @DAY behind its name; "
        "if omitted the preset's, usually v100:36,p100:36,k80:36.",
        metavar="TYPE:COUNT,...|FILE[@DAY]",
    ),
]
ServersOption = Annotated[
    str | None,
    typer.Option("--gpus-per-server", help="GPUs in one server of each type; 1 if omitted.", metavar="TYPE:COUNT,..."),
]
OriginOption = Annotated[
    str | None,
    typer.Option("--origin", help="When second 0 of the trace was, for days of the week and hours.", metavar="DATE"),
]
InstanceArgument = Annotated[
    Path,
    typer.Argument(help="Allocation problem in JSON, as shown above; -: standard input.", metavar="INSTANCE.json|-"),
]
PolicyNameOption = Annotated[str, typer.Option("--policy", help="Name of the policy; `allocator policies` lists them.")]
InstanceChoiceOption = Annotated[
    str | None, typer.Option("--choice", help="Which of the optima: balanced or published.")
]
WholeGpusOption = Annotated[
    bool,
    typer.Option("--whole-gpus", help="Jobs that ask for a fraction of a GPU have it whole, under any policy."),
]
_TABLE_HELP = "Throughput table (JSON, CSV, Parquet), or a folder of ElasticFlow's; the embedded one if omitted."
ThroughputsOption = Annotated[
    Path | None,
    typer.Option(
        "--throughputs",
        help=f"{_TABLE_HELP} For jobs that choose their batch size: goodput (the embedded profiles), profiles (TOML), "
        "or a folder of models.",
        metavar="FILE|FOLDER",
    ),
]
TableOption = Annotated[Path | None, typer.Option("--throughputs", help=_TABLE_HELP, metavar="FILE|FOLDER")]
AcceleratorOption = Annotated[
    str | None,
    typer.Option(
        "--accelerator",
        help="Accelerator type of a folder of throughputs and of a cluster in a CSV file; if omitted that of the "
        "folder's name, as in throughputs_A100.",
        metavar="TYPE",
    ),
]
TimeUnitOption = Annotated[
    float | None,
    typer.Option(
        "--time-unit",
        help="One unit of the times in a trace of ElasticFlow or Chronus; told from the trace if omitted.",
        metavar="SECONDS",
    ),
]
PredictionsOption = Annotated[
    Path | None,
    typer.Option(
        "--predictions",
        help="Predicted lengths of the jobs (columns job_id and predicted_seconds, or priority), where the trace has "
        "none of its own.",
        metavar="FILE",
    ),
]
PresetOption = Annotated[str, typer.Option("--preset", help="Settings of a published system, or the default.")]
SeedOption = Annotated[int, typer.Option("--seed", help="Seed of everything that is drawn at random.", min=0)]
SolverOption = Annotated[
    str | None,
    typer.Option(
        "--solver",
        help="auto, or one of prices, structured, highs, clarabel, ecos, scs, cbc.",
    ),
]
ChoiceOption = Annotated[
    str | None, typer.Option("--choice", help="Which of the optima: balanced or published; the preset's if omitted.")
]
SettingOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        help="Any other setting of the preset, or policy.NAME of the policies that have it; values are numbers, true, "
        "false, none, names, or lists A,B; may be repeated.",
        metavar="NAME=VALUE",
    ),
]
PricesOption = Annotated[
    str | None,
    typer.Option(
        "--prices",
        help="Dollars per GPU hour: a file of price histories (CSV, Parquet), or constants.",
        metavar="FILE|TYPE:PRICE,...",
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON for scripts instead of a table.")]


def console() -> Console:
    """Where tables go: as wide as the terminal, and wide enough for a comparison when it is a file or a pipe."""
    return rich_console(width=None if sys.stdout.isatty() else 120)


def warn(text: str) -> None:
    """A warning on standard error; nothing where there is nothing to say."""
    if text:
        typer.echo(f"warning: {text}", err=True)


def warn_of_fallbacks(result: SimulationResult) -> None:
    """Say how many decisions of a run were left to another solver, and why; nothing where none was."""
    warn(fallbacks_told(result.label, [decision for _, _, decision in result.decisions], result.policy_calls))


def say_unserved(results: Iterable[SimulationResult]) -> None:
    """Say why jobs of simulated runs were never served, each reason once; nothing where all were."""
    told = (line for result in results if not result.not_told for line in unserved_reasons(result.record))
    for line in dict.fromkeys(told):
        typer.echo(line, err=True)


def print_json(data: Any) -> None:
    """JSON on standard output."""
    json.dump(data, sys.stdout, indent=2, allow_nan=False, default=_plain)
    sys.stdout.write("\n")


def _plain(value: Any) -> Any:
    """NumPy's scalars and arrays as Python's."""
    return value.tolist()
