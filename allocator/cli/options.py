"""Options that several commands share, and how a run is put together from them."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from throughputs import InputError

if TYPE_CHECKING:
    from rich.console import Console

    from allocator.cluster import Cluster
    from allocator.protocol import Policy
    from allocator.simulator.presets import Preset
    from throughputs import ThroughputTable, Trace
    from throughputs.prices import PriceTable

SLO_STREAM = 6

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
        help="auto, or one of compiled, prices, structured, homogeneous, highs, clarabel, ecos, scs, cvxpy_highs, cbc.",
    ),
]
ChoiceOption = Annotated[
    str | None, typer.Option("--choice", help="Which of the optima: balanced or published; the preset's if omitted.")
]
SettingOption = Annotated[
    list[str] | None,
    typer.Option("--set", help="Any other setting of the preset; may be repeated.", metavar="NAME=VALUE"),
]
QueueOption = Annotated[
    str | None,
    typer.Option("--queue", help="per_type: types choose one after the other; global: one queue of all types."),
]
RecomputeOption = Annotated[
    float | None,
    typer.Option("--recompute-interval", help="Least time between two decisions of the policy.", metavar="SECONDS"),
]
IdealOption = Annotated[
    bool, typer.Option("--ideal", help="No rounds: every job gets exactly its shares at every moment.")
]
UnconsolidatedOption = Annotated[
    bool,
    typer.Option(
        "--unconsolidated", help="Gangs spread over servers go at the throughput that the table has for that."
    ),
]
WindowOption = Annotated[
    str | None,
    typer.Option(
        "--window",
        help="Measure the jobs FIRST to END-1 only and stop when they have completed; later ones load the cluster.",
        metavar="FIRST:END",
    ),
]
PreloadOption = Annotated[
    bool, typer.Option("--preload", help="Start with a full cluster: the first jobs of the trace arrive at once.")
]
SlosOption = Annotated[
    bool, typer.Option("--slos", help="Draw a deadline for jobs without one: 1.2, 2 or 10 times the duration.")
]
PricesOption = Annotated[
    str | None,
    typer.Option(
        "--prices",
        help="Dollars per GPU hour: a file of price histories (CSV, Parquet), or constants.",
        metavar="FILE|TYPE:PRICE,...",
    ),
]
MaxWaitingOption = Annotated[
    int | None,
    typer.Option("--max-waiting", help="Stop as saturated when more jobs wait than that.", metavar="JOBS"),
]
MaxClockOption = Annotated[
    float | None,
    typer.Option("--max-clock", help="Stop as saturated when the simulated clock passes this.", metavar="SECONDS"),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON for scripts instead of a table.")]


def make_cluster(text: str, gpus_per_server: str | None) -> Cluster:
    """Cluster of ``--cluster`` and ``--gpus-per-server``."""
    from allocator.cluster import Cluster

    return Cluster.parse(text, gpus_per_server)


def make_preset(name: str, changes: list[str] | None = None, **options: Any) -> Preset:
    """Preset of ``--preset`` with the settings that have options of their own (None, False: as it is) and ``--set``."""
    from allocator.simulator.presets import preset

    settings = {key: value for key, value in options.items() if value is not None and value is not False}
    for change in changes or []:
        key, equals, value = change.partition("=")
        if not equals:
            raise InputError("--set", found=change, expected="NAME=VALUE, as in recompute_interval_seconds=0")
        settings[key.strip()] = _value(value.strip())
    return preset(name).replace(**settings)


def make_window(text: str | None) -> tuple[int, int] | None:
    """Ids of jobs of ``--window``."""
    if text is None:
        return None
    first, colon, end = text.partition(":")
    if not (colon and first.strip().isdigit() and end.strip().isdigit()):
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


def make_workload(trace: Trace, cluster: Cluster, *, slos: bool, preloaded: bool, seed: int) -> Trace:
    """The trace with what ``--slos`` and ``--preload`` ask for."""
    import numpy as np

    from allocator.simulator.arrivals import preload
    from allocator.simulator.deadlines import assign_slos

    if slos:
        # A stream of its own, so that nothing else changes with the draw.
        trace = assign_slos(trace, np.random.default_rng([seed, SLO_STREAM]))
    return preload(trace, cluster) if preloaded else trace


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

    return load_throughputs(path, colocated=any(getattr(policy, "packs", False) for policy in policies))


def extra_figures(summary: dict[str, Any]) -> list[str]:
    """Lines for what only some runs have: a limit that was met, cost, deadlines, weights."""
    lines = []
    if summary["status"] != "completed":
        lines.append(f"{summary['status']}: {summary['status_detail']}; {summary['unfinished_jobs']} jobs unfinished")
    if summary["cost"] is not None:
        lines.append(f"cost ${summary['cost']:,.2f}")
    if summary["slo_jobs"]:
        lines.append(f"{summary['slo_attainment']:.1%} of {summary['slo_jobs']} jobs with a deadline kept it")
    for row in summary.get("by_priority", []):
        jct = "-" if row["average_jct"] is None else f"{row['average_jct'] / 3600:.2f} h"
        lines.append(f"weight {row['priority_weight']:g}: {row['jobs']} jobs, average JCT {jct}")
    return lines


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
