"""Options that several commands share, and how a run is put together from them."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from throughputs import InputError

if TYPE_CHECKING:
    from rich.console import Console

    from allocator.cluster import Cluster
    from allocator.protocol import Policy
    from allocator.simulator.presets import Preset

DEFAULT_CLUSTER = "v100:36,p100:36,k80:36"

ClusterOption = Annotated[str, typer.Option("--cluster", help="GPUs by accelerator type.", metavar="TYPE:COUNT,...")]
ServersOption = Annotated[
    str | None,
    typer.Option("--gpus-per-server", help="GPUs in one server of each type; 1 if omitted.", metavar="TYPE:COUNT,..."),
]
ThroughputsOption = Annotated[
    Path | None,
    typer.Option(
        "--throughputs", help="Throughput table (JSON, CSV, Parquet); the embedded one if omitted.", metavar="FILE"
    ),
]
PresetOption = Annotated[str, typer.Option("--preset", help="Settings of a published system, or the default.")]
RoundOption = Annotated[
    float | None, typer.Option("--round", help="Length of a round; the preset's if omitted.", metavar="SECONDS")
]
SeedOption = Annotated[int, typer.Option("--seed", help="Seed of everything that is drawn at random.")]
SolverOption = Annotated[
    str | None,
    typer.Option(
        "--solver",
        help="auto, or one of compiled, structured, homogeneous, highs, clarabel, ecos, scs, cvxpy_highs, cbc.",
    ),
]
ChoiceOption = Annotated[
    str | None, typer.Option("--choice", help="Which of the optima: balanced or published; the preset's if omitted.")
]
SettingOption = Annotated[
    list[str] | None,
    typer.Option("--set", help="Any other setting of the preset; may be repeated.", metavar="NAME=VALUE"),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON for scripts instead of a table.")]


def make_cluster(text: str, gpus_per_server: str | None) -> Cluster:
    """Cluster of ``--cluster`` and ``--gpus-per-server``."""
    from allocator.cluster import Cluster

    return Cluster.parse(text, gpus_per_server)


def make_preset(name: str, round_seconds: float | None, changes: list[str] | None) -> Preset:
    """Preset of ``--preset`` with ``--round`` and every ``--set``."""
    from allocator.simulator.presets import preset

    settings: dict[str, Any] = {}
    if round_seconds is not None:
        settings["round_seconds"] = round_seconds
    for change in changes or []:
        key, equals, value = change.partition("=")
        if not equals:
            raise InputError("--set", found=change, expected="NAME=VALUE, as in recompute_interval_seconds=0")
        settings[key.strip()] = _value(value.strip())
    return preset(name).replace(**settings)


def make_policy(name: str, solver: str | None, choice: str | None) -> Policy:
    """Policy by name with those of the two settings that are given and that it has."""
    from allocator.registry import get_policy, settings_of

    get_policy(name)  # an unknown name is the first thing to say
    wanted = {"solver": solver, "choice": choice}
    known = settings_of(name)
    return get_policy(name, **{key: value for key, value in wanted.items() if value is not None and key in known})


def console() -> Console:
    """Where tables go: as wide as the terminal, and wide enough for a comparison when it is a file or a pipe."""
    from rich.console import Console

    return Console() if sys.stdout.isatty() else Console(width=120)


def print_json(data: Any) -> None:
    """JSON on standard output."""
    json.dump(data, sys.stdout, indent=2, allow_nan=False, default=_plain)
    sys.stdout.write("\n")


def _plain(value: Any) -> Any:
    """NumPy's scalars and arrays as Python's."""
    return value.tolist()


def _value(text: str) -> Any:
    """A setting's value: JSON where it is JSON (numbers, true, null, lists), else the text itself."""
    try:
        value = json.loads(text)
    except json.JSONDecodeError:
        return text
    return tuple(value) if isinstance(value, list) else value
