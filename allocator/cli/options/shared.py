"""Options that several commands share, and how they print."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from allocator.cli.options.groups import argument, option, options
from allocator.cli.screen import rich_console
from allocator.conversion import NotNegative
from allocator.results.outcomes import unserved_reasons
from allocator.results.summary import fallbacks_told
from throughputs import InputError

if TYPE_CHECKING:
    from rich.console import Console

    from allocator.results.result import SimulationResult


DEFAULT_CLUSTER = "v100:36,p100:36,k80:36"

OriginOption = Annotated[
    str | None,
    option("--origin", "When second 0 of the trace was, for days of the week and hours.", "DATE"),
]
InstanceArgument = Annotated[
    Path,
    argument("Allocation problem in JSON, as shown above; -: standard input.", "INSTANCE.json|-"),
]
PolicyNameOption = Annotated[str, option("--policy", "Name of the policy; `allocator policies` lists them.")]
InstanceChoiceOption = Annotated[str | None, option("--choice", "Which of the optima: balanced or published.")]
_TABLE_HELP = "Throughput table (JSON, CSV, Parquet), or a folder of ElasticFlow's; the embedded one if omitted."
TableOption = Annotated[Path | None, option("--throughputs", _TABLE_HELP, "FILE|FOLDER")]


class Shared:
    """What is asked for by commands that make runs and by others, which need not load what runs need.

    Options
    -------
    throughputs : FILE|FOLDER
        Throughput table (JSON, CSV, Parquet), or a folder of ElasticFlow's; the embedded one if omitted. For jobs that
        choose their batch size: goodput (the embedded profiles), profiles (TOML), or a folder of models.
    gpus_per_server : TYPE:COUNT,...
        GPUs in one server of each type; 1 if omitted.
    accelerator : TYPE
        Accelerator type of a folder of throughputs and of a cluster in a CSV file; if omitted that of the folder's
        name, as in throughputs_A100.
    time_unit_seconds : --time-unit SECONDS
        One unit of the times in a trace of ElasticFlow or Chronus; inferred from the trace if omitted.
    solver
        auto, or one of closed_form, prices, structured, highs, clarabel, ecos, scs, cbc.
    choice
        Which of the optima: balanced or published; the preset's if omitted.
    settings : --set NAME=VALUE
        Any other setting of the preset, or policy.NAME of the policies that have it; values are numbers, true, false,
        none, names, or lists A,B; may be repeated.
    world : FILE.py:RULE(NAME=VALUE)
        A rule of your own for the simulated world, with its fields; may be given several times.
    """

    time_unit_seconds: NotNegative
    settings: list[str]
    world: list[str]


SHARED = {option.name: option for option in options(Shared)}
"""These options by name."""

ThroughputsOption, ServersOption, AcceleratorOption, TimeUnitOption, SolverOption = (
    SHARED[name].annotation for name in ("throughputs", "gpus_per_server", "accelerator", "time_unit_seconds", "solver")
)
SeedOption = Annotated[int, option("--seed", "Seed of everything that is drawn at random.", min=0)]
JsonOption = Annotated[bool, option("--json", "Print JSON for scripts instead of a table.")]


def say(text: str) -> None:
    """A line on standard error."""
    typer.echo(text, err=True)


def console() -> Console:
    """Where tables go: as wide as the terminal, and wide enough for a comparison when it is a file or a pipe."""
    return rich_console(width=None if sys.stdout.isatty() else 120)


def warn(text: str) -> None:
    """A warning on standard error; nothing where there is nothing to say."""
    if text:
        typer.echo(f"warning: {text}", err=True)


def warn_of_fallbacks(result: SimulationResult, which: str = "") -> None:
    """Say how many decisions of a run were left to another solver, and why; nothing where none was."""
    warn(fallbacks_told(result.label + which, [decision for _, _, decision in result.decisions], result.policy_calls))


def say_unserved(results: Sequence[SimulationResult]) -> None:
    """Say why jobs of simulated runs were never served, each reason once, of several seeds with its seed."""
    told = [(result.settings.get("seed"), line) for result in results if not result.not_told
            for line in unserved_reasons(result.record)]  # fmt: skip
    several = len({result.settings.get("seed") for result in results if not result.not_told}) > 1
    for seed, line in dict.fromkeys(told):
        typer.echo(f"seed {seed}: {line}" if several else line, err=True)


def print_json(data: Any) -> None:
    """JSON on standard output."""
    json.dump(data, sys.stdout, indent=2, allow_nan=False, default=lambda value: value.tolist())
    sys.stdout.write("\n")


def kind_of(option: str, file: Path, *known: str) -> str:
    """What the name of a file ends in; InputError where that is not one of the known kinds."""
    kind = file.suffix.lower().removeprefix(".")
    if kind not in known:
        expected = f"a name that ends in {' or '.join(f'.{each}' for each in known)}"
        raise InputError(option, found=file.name, expected=expected)
    return kind


def check_picture(option: str, file: Path) -> None:
    """Raise InputError where no picture of that name can be drawn."""
    kind_of(option, file, "pdf", "svg", "png")
    if find_spec("matplotlib") is None:
        raise InputError(option, expected="matplotlib to be installed: pip install cluster-allocator[plot]")
