"""Options that several commands share, and what is made of their values."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from allocator.protocol.policy import Need
from throughputs import InputError

if TYPE_CHECKING:
    from rich.console import Console

    from allocator.cluster import Cluster
    from allocator.protocol import Policy
    from throughputs import ThroughputTable
    from throughputs.prices import PriceTable

MOST_DIGITS = 16
DEFAULT_CLUSTER = "v100:36,p100:36,k80:36"

ClusterOption = Annotated[
    str | None,
    typer.Option(
        "--cluster",
        help="GPUs by accelerator type; if omitted the preset's, usually v100:36,p100:36,k80:36.",
        metavar="TYPE:COUNT,...",
    ),
]
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
SeedOption = Annotated[int, typer.Option("--seed", help="Seed of everything that is drawn at random.", min=0)]
SolverOption = Annotated[
    str | None,
    typer.Option(
        "--solver",
        help="auto, or one of compiled, as_stated, prices, structured, homogeneous, highs, clarabel, ecos, scs, "
        "cvxpy_highs, cbc.",
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


def make_cluster(text: str, gpus_per_server: str | None) -> Cluster:
    """Cluster of ``--cluster`` and ``--gpus-per-server``; it has at least one GPU."""
    from allocator.cluster import Cluster

    cluster = Cluster.parse(text, gpus_per_server)
    if cluster.total_gpus == 0:
        raise InputError("--cluster", found=text, expected="at least one GPU")
    return cluster


def make_window(text: str | None) -> tuple[int, int] | None:
    """Ids of jobs of ``--window``."""
    if text is None:
        return None
    first, colon, end = text.partition(":")
    ends = first.strip(), end.strip()
    if not colon or not all(number.isdecimal() and len(number) <= MOST_DIGITS for number in ends):
        raise InputError("--window", found=text, expected="FIRST:END, as in 4000:5000")
    return int(first), int(end)


def make_prices(text: str | None) -> PriceTable | None:
    """Prices of ``--prices``: a file if there is one of that name, else constants."""
    from throughputs.prices import PriceTable, read_prices

    if text is None:
        return None
    if ":" not in text or Path(text).exists():
        return read_prices(text)
    constants: dict[str, float] = {}
    for part in text.split(","):
        name, _, price = part.strip().partition(":")
        try:
            constants[name] = float(price)
        except ValueError:
            expected = "TYPE:PRICE pairs, as in v100:0.74,k80:0.135, or a file"
            raise InputError("--prices", found=part, expected=expected) from None
    return PriceTable.constant(constants, "--prices")


def make_policy(name: str, solver: str | None, choice: str | None) -> Policy:
    """Policy by name with those of the two settings that are given and that it has."""
    from allocator.registry import get_policy, settings_of

    get_policy(name)  # an unknown name is the first thing to say
    wanted = {"solver": solver, "choice": choice}
    known = settings_of(name)
    return get_policy(name, **{key: value for key, value in wanted.items() if value is not None and key in known})


def make_table(path: Path | None, policies: Sequence[Policy]) -> ThroughputTable:
    """Table of ``--throughputs``; the embedded one has co-location where a policy packs jobs."""
    from allocator.api import load_throughputs

    return load_throughputs(path, colocated=any(Need.COLOCATION in policy.needs for policy in policies))


def named_value(option: str, text: str) -> tuple[str, str]:
    """Name and value of ``NAME=VALUE``."""
    name, equals, value = text.partition("=")
    if not (equals and name.strip() and value.strip()):
        raise InputError(option, found=text, expected="NAME=VALUE, as in round_seconds=720")
    return name.strip(), value.strip()


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
