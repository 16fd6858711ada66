"""``allocator sweep``: many simulations, of every combination of policies, seeds, loads, clusters and settings."""

from __future__ import annotations

import json
import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from allocator.cli.options import (
    DEFAULT_CLUSTER,
    JsonOption,
    PresetOption,
    ServersOption,
    SettingOption,
    ThroughputsOption,
    console,
    print_json,
)
from throughputs import InputError

if TYPE_CHECKING:
    import pandas as pd

    from allocator.sweep import Sweep

app = typer.Typer(no_args_is_help=True, help="Sweeps: policies x seeds x loads x clusters x settings, resumable.")

SOURCE = "allocator sweep"
DEFAULT_POLICIES = "max_min_fairness_perf,max_min_fairness,fifo_perf"
SHOWN_ROWS = 60

PoliciesOption = Annotated[str, typer.Option("--policies", "-p", help="Names of policies.", metavar="NAME,...")]
SeedsOption = Annotated[str, typer.Option("--seeds", help="Seeds; 0:3 is 0, 1 and 2.", metavar="SEED,...|FIRST:END")]
ClustersOption = Annotated[
    list[str], typer.Option("--cluster", "-c", help="GPUs by accelerator type; may be repeated.", metavar="TYPE:N,...")
]
GeneratorOption = Annotated[
    str, typer.Option("--generator", help="gavel: the published one, draw for draw; default: our own.")
]
MultiOption = Annotated[bool, typer.Option("--multi-gpu", help="Gangs of 1, 2, 4 and 8 GPUs, as published.")]
PrioritiesOption = Annotated[bool, typer.Option("--priorities", help="Weight 5 for a fifth of the jobs.")]
SlosOption = Annotated[bool, typer.Option("--slos", help="A deadline for every job: 1.2, 2 or 10 durations.")]
PreloadOption = Annotated[bool, typer.Option("--preload", help="Start with a full cluster.")]
DurationOption = Annotated[
    float | None, typer.Option("--duration", help="The same duration for every job, alone.", metavar="SECONDS")
]
PricesOption = Annotated[
    str | None,
    typer.Option(
        "--prices", help="Dollars per GPU hour: a file of histories, or constants.", metavar="FILE|TYPE:PRICE,..."
    ),
]
VaryOption = Annotated[
    list[str] | None,
    typer.Option(
        "--vary",
        help="A setting with several values: of mechanism or simulator, policy.NAME, workload.NAME; may be repeated.",
        metavar="NAME=VALUE,...",
    ),
]
KeepOption = Annotated[bool, typer.Option("--keep-jobs", help="Keep the table of measured jobs of every run.")]
EveryOption = Annotated[bool, typer.Option("--every-point", help="Run points beyond saturation too.")]
OutOption = Annotated[Path, typer.Option("--out", help="Folder of the sweep; run again to continue.", metavar="DIR")]
JobsOption = Annotated[
    int | None, typer.Option("-j", "--parallel", help="Runs at a time; all cores if omitted.", metavar="N")
]
EngineOption = Annotated[str, typer.Option("--engine", help="local: processes of this machine; ray: a Ray cluster.")]
AddressOption = Annotated[
    str | None, typer.Option("--address", help="Of the Ray cluster; one of this machine alone if omitted.")
]
RetryOption = Annotated[bool, typer.Option("--retry-failed", help="Run points again that failed before.")]
PlanOption = Annotated[bool, typer.Option("--plan", help="List the points and run none.")]


@app.command("continuous")
def continuous_command(
    out: OutOption,
    rates: Annotated[str, typer.Option("--rates", help="Jobs per hour.", metavar="RATE,...|FIRST:LAST:COUNT")],
    policies: PoliciesOption = DEFAULT_POLICIES,
    seeds: SeedsOption = "0",
    clusters: ClustersOption = [DEFAULT_CLUSTER],  # noqa: B006 - typer reads it only
    gpus_per_server: ServersOption = None,
    window: Annotated[
        str, typer.Option("--window", help="Jobs FIRST to END-1 are measured.", metavar="FIRST:END")
    ] = "4000:5000",
    generator: GeneratorOption = "gavel",
    multi_gpu: MultiOption = False,
    priorities: PrioritiesOption = False,
    slos: SlosOption = False,
    preload: PreloadOption = False,
    duration: DurationOption = None,
    throughputs: ThroughputsOption = None,
    prices: PricesOption = None,
    preset: PresetOption = "default",
    settings: SettingOption = None,
    vary: VaryOption = None,
    keep_jobs: KeepOption = False,
    every_point: EveryOption = False,
    parallel: JobsOption = None,
    engine: EngineOption = "local",
    address: AddressOption = None,
    retry_failed: RetryOption = False,
    plan: PlanOption = False,
    as_json: JsonOption = False,
) -> None:
    """Jobs arrive at a rate; those of a window in the middle are measured.

    A run beyond capacity is stopped and marked as saturated, and so are larger rates without running. Writes one row
    per run into DIR/results.parquet; docs/sweeps.md describes the folder and the columns.
    """
    workload = _workload(generator, multi_gpu, priorities, slos, preload, duration, throughputs, prices)
    definition = _definition("continuous", policies, seeds, clusters, gpus_per_server, workload, preset, settings, vary)
    definition |= {"rates": _numbers("--rates", rates), "window": _window(window)}
    definition |= {"keep_jobs": keep_jobs, "skip_saturated": not every_point}
    _go(_sweep(definition), out, parallel, engine, address, retry_failed, plan, as_json)


@app.command("static")
def static_command(
    out: OutOption,
    jobs: Annotated[
        str, typer.Option("--jobs", help="Numbers of jobs, all there at time 0.", metavar="N,...|FIRST:LAST:COUNT")
    ],
    policies: PoliciesOption = DEFAULT_POLICIES,
    seeds: SeedsOption = "0",
    clusters: ClustersOption = [DEFAULT_CLUSTER],  # noqa: B006 - typer reads it only
    gpus_per_server: ServersOption = None,
    generator: GeneratorOption = "gavel",
    multi_gpu: MultiOption = False,
    priorities: PrioritiesOption = False,
    slos: SlosOption = False,
    duration: DurationOption = None,
    throughputs: ThroughputsOption = None,
    prices: PricesOption = None,
    preset: PresetOption = "default",
    settings: SettingOption = None,
    vary: VaryOption = None,
    keep_jobs: KeepOption = False,
    parallel: JobsOption = None,
    engine: EngineOption = "local",
    address: AddressOption = None,
    retry_failed: RetryOption = False,
    plan: PlanOption = False,
    as_json: JsonOption = False,
) -> None:
    """All jobs are there at the start; the makespan is what matters.

    Writes one row per run into DIR/results.parquet; docs/sweeps.md describes the folder and the columns.
    """
    workload = _workload(generator, multi_gpu, priorities, slos, False, duration, throughputs, prices)
    definition = _definition("static", policies, seeds, clusters, gpus_per_server, workload, preset, settings, vary)
    definition |= {"jobs": _numbers("--jobs", jobs), "keep_jobs": keep_jobs}
    _go(_sweep(definition), out, parallel, engine, address, retry_failed, plan, as_json)


@app.command("run")
def run_command(
    file: Annotated[Path, typer.Argument(help="Definition of a sweep (TOML).", metavar="FILE")],
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", help="Folder of the sweep; sweeps/NAME, or sweeps/NAME-small, if omitted.", metavar="DIR"
        ),
    ] = None,
    small: Annotated[bool, typer.Option("--small", help="The small variant that the file defines.")] = False,
    parallel: JobsOption = None,
    engine: EngineOption = "local",
    address: AddressOption = None,
    retry_failed: RetryOption = False,
    plan: PlanOption = False,
    as_json: JsonOption = False,
) -> None:
    """Run a sweep from a file, or what is missing of it."""
    from allocator.sweep import Sweep

    sweep = Sweep.from_toml(file, small=small)
    folder = out or Path("sweeps") / (f"{sweep.name}-small" if small else sweep.name)
    _go(sweep, folder, parallel, engine, address, retry_failed, plan, as_json)


@app.command("show")
def show_command(
    folder: Annotated[Path, typer.Argument(help="Folder of a sweep.", metavar="DIR")],
    as_json: JsonOption = False,
) -> None:
    """Show the results of a sweep as far as it has come, and bring results.parquet up to date."""
    from allocator.sweep.store import Store

    store = Store(folder)
    table = store.write_results()
    _print(table, store.contents(), as_json)


def _go(
    sweep: Sweep,
    out: Path,
    parallel: int | None,
    engine: str,
    address: str | None,
    retry_failed: bool,
    plan: bool,
    as_json: bool,
) -> None:
    """Run the sweep and print what came of it; status 1 if a run failed or was lost."""
    if plan:
        _print_plan(sweep, as_json)
        return
    from rich.console import Console

    from allocator.sweep import run
    from allocator.sweep.store import Store

    screen = Console(stderr=True)
    try:
        # Ray prints what happens to its nodes; standard output is for results.
        with redirect_stdout(sys.stderr):
            table = run(
                sweep,
                out,
                jobs=parallel,
                engine=engine,  # type: ignore[arg-type]
                address=address,
                retry_failed=retry_failed,
                console=screen,
            )
    except KeyboardInterrupt:
        _stopped(out)
    contents = Store(out).contents()
    _print(table, contents, as_json)
    lost = len(contents["points"]) - len(table)
    failed = int((table["status"] == "failed").sum()) if len(table) else 0
    if failed:
        typer.echo(f"{failed} runs failed; their logs are in {out / 'logs'}", err=True)
    if lost:
        typer.echo(f"{lost} runs were lost; run the same command again to make up for them", err=True)
    if failed or lost:
        raise typer.Exit(1)


def _stopped(out: Path) -> NoReturn:
    typer.echo(f"stopped; what had finished is in {out}, run the same command again to continue", err=True)
    raise typer.Exit(130)


def _sweep(definition: dict[str, Any]) -> Sweep:
    from allocator.sweep import Sweep

    return Sweep.from_dict(definition, source=SOURCE)


def _definition(
    kind: str,
    policies: str,
    seeds: str,
    clusters: list[str],
    gpus_per_server: str | None,
    workload: dict[str, Any],
    preset: str,
    settings: list[str] | None,
    vary: list[str] | None,
) -> dict[str, Any]:
    """A definition as a TOML file would hold it."""
    fixed = dict(_named("--set", text) for text in settings or ())
    varied = dict(_named("--vary", text) for text in vary or ())
    return {
        "kind": kind,
        "policies": [name.strip() for name in policies.split(",") if name.strip()],
        "seeds": _seeds(seeds),
        "clusters": clusters,
        **({"gpus_per_server": gpus_per_server} if gpus_per_server else {}),
        "workload": workload,
        "settings": {"preset": preset} | {name: _value(text) for name, text in fixed.items()},
        "vary": {name: _values(text) for name, text in varied.items()},
    }


def _workload(
    generator: str,
    multi_gpu: bool,
    priorities: bool,
    slos: bool,
    preload: bool,
    duration: float | None,
    throughputs: Path | None,
    prices: str | None,
) -> dict[str, Any]:
    from allocator.cli.options import make_prices

    workload: dict[str, Any] = {
        "generator": generator,
        "multi_gpu": multi_gpu,
        "priorities": priorities,
        "slos": slos,
        "preload": preload,
        "fixed_duration_seconds": duration,
        "throughputs": None if throughputs is None else str(throughputs),
    }
    if prices is not None and ":" in prices and not Path(prices).exists():
        make_prices(prices)  # says what is wrong with them
        workload["prices"] = {name.strip(): float(price) for name, _, price in
                              (part.partition(":") for part in prices.split(","))}  # fmt: skip
    elif prices is not None:
        workload["prices"] = prices
    return workload


def _numbers(option: str, text: str) -> Any:
    """Numbers of ``--rates`` and ``--jobs``: a list, or FIRST:LAST:COUNT."""
    expected = "numbers as in 0.4,0.8,1.2, or FIRST:LAST:COUNT as in 0.4:6:15"
    try:
        if ":" in text:
            first, last, count = text.split(":")
            return {"first": float(first), "last": float(last), "count": int(count)}
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise InputError(option, found=text, expected=expected) from None


def _seeds(text: str) -> list[int]:
    try:
        if ":" in text:
            first, end = map(int, text.split(":"))
            return list(range(first, end))
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise InputError("--seeds", found=text, expected="whole numbers as in 0,1,2 or 0:3") from None


def _window(text: str) -> list[int]:
    from allocator.cli.options import make_window

    return list(make_window(text) or ())


def _named(option: str, text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not (equals and name.strip() and value.strip()):
        raise InputError(option, found=text, expected="NAME=VALUE, as in round_seconds=720")
    return name.strip(), value.strip()


def _value(text: str) -> Any:
    """JSON where it is JSON (numbers, true, lists), else the text itself."""
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text


def _values(text: str) -> list[Any]:
    """Values of ``--vary``: a JSON list, or values separated by commas."""
    value = _value(text)
    return value if isinstance(value, list) else [_value(part.strip()) for part in text.split(",")]


def _print_plan(sweep: Sweep, as_json: bool) -> None:
    points = sweep.points()
    if as_json:
        print_json([point.specification() | {"point": point.key} for point in points])
        return
    screen = console()
    for point in points:
        screen.print(f"{point.key}  {point.label} on {point.cluster}", markup=False, highlight=False, soft_wrap=True)
    screen.print(f"{len(points)} points")


def _print(table: pd.DataFrame, contents: dict[str, Any], as_json: bool) -> None:
    if as_json:
        rows = json.loads(table.to_json(orient="records")) if len(table) else []
        print_json({"name": contents["name"], "points": len(contents["points"]), "results": rows})
        return
    from allocator.sweep.summary import summary_table

    screen = console()
    if len(table):
        screen.print(summary_table(table, title=contents["name"], rows=SHOWN_ROWS))
    screen.print(f"{len(table)} of {len(contents['points'])} points have results")
