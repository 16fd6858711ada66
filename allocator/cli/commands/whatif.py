"""``allocator whatif``: the jobs of a trace on other clusters, at other loads, under other policies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from allocator.cli.options.groups import option_groups
from allocator.cli.options.shared import (
    AcceleratorOption,
    JsonOption,
    PresetOption,
    PricesOption,
    SeedOption,
    ServersOption,
    SettingOption,
    ThroughputsOption,
    WholeGpusOption,
    console,
    print_json,
    warn,
)
from allocator.cli.options.sweep import (
    JobsOption,
    PoliciesOption,
    SlosOption,
    TraceOption,
    VaryOption,
    prices_of_text,
    stopped,
    values_of_text,
)
from allocator.cli.options.unused import unused_columns
from allocator.cli.options.values import (
    make_accelerator,
    make_cluster,
    make_table,
    named_values,
    read_jobs,
    told_of_throughputs,
)
from allocator.cli.screen import rich_console
from allocator.cluster import Cluster
from allocator.presets import preset
from allocator.protocol.policy import Need
from allocator.scenarios import Scenarios, run_scenarios, write_scenarios
from allocator.scenarios.terminal import next_gpus_table, rows_table
from allocator.sweep.definition.settings import setting_of_text
from allocator.sweep.runner import cores
from allocator.variants import Variant, read_variants
from throughputs import InputError, Trace

USUAL_POLICY = "fifo"

ClustersOption = Annotated[
    list[str],
    typer.Option(
        "--cluster",
        "-c",
        help="GPUs by accelerator type, or a CSV file that describes the cluster; may be repeated.",
        metavar="TYPE:COUNT,...|FILE",
    ),
]
LoadsOption = Annotated[
    str,
    typer.Option(
        "--load",
        help="How many times as often jobs arrive: times of submission are divided by it. A deadline moves with the "
        "arrival of its job.",
        metavar="FACTOR,...",
    ),
]
PenaltiesOption = Annotated[
    str | None,
    typer.Option(
        "--restart-penalty",
        help="What it costs a gang to start, whatever its size; the preset's if omitted.",
        metavar="SECONDS,...",
    ),
]
EntitiesByOption = Annotated[
    str | None,
    typer.Option(
        "--entities-by",
        help="Users or partitions of the trace become entities, of equal weight.",
        metavar="user|partition",
    ),
]
NextOption = Annotated[
    int | None,
    typer.Option(
        "--next-gpus",
        help="Simulate each row also with so many more GPUs of each type, to see what they are worth; 0: not. If "
        "omitted 1 where that takes at most 8 further runs.",
        metavar="COUNT",
        min=0,
    ),
]
OutOption = Annotated[
    Path, typer.Option("--out", help="Folder for table, page and runs; run again to continue.", metavar="DIR")
]


@dataclass(frozen=True)
class WorldOptions:
    """What is the same in all rows."""

    throughputs: ThroughputsOption = None
    gpus_per_server: ServersOption = None
    accelerator: AcceleratorOption = None
    prices: PricesOption = None
    slos: SlosOption = False
    whole_gpus: WholeGpusOption = False
    entities_by: EntitiesByOption = None
    preset: PresetOption = "default"
    settings: SettingOption = None
    seed: SeedOption = 0


@option_groups
def whatif_command(
    *,
    trace: TraceOption,
    clusters: ClustersOption,
    policies: PoliciesOption = USUAL_POLICY,
    load: LoadsOption = "1",
    restart_penalty: PenaltiesOption = None,
    vary: VaryOption = None,
    next_gpus: NextOption = None,
    world: WorldOptions,
    parallel: JobsOption = None,
    out: OutOption = Path("whatif"),
    as_json: JsonOption = False,
) -> None:
    """What would happen to my cluster if it had more GPUs, more work, another policy?

    The rows are all combinations of clusters, loads, restart penalties, settings and policies; the others are compared
    with the first. Ends with a table and one self-contained page, DIR/whatif.html. Rows that DIR holds already are not
    run again. A row that fails is named with its reason, and the exit code is 1.
    """
    variants = read_variants(policies, "--policies")
    made, jobs = _clusters(clusters, world), read_jobs(trace)
    scenarios = Scenarios(
        trace=str(trace),
        clusters=made,
        policies=tuple(variants),
        loads=_numbers("--load", load, above=True),
        restart_penalties=() if restart_penalty is None else _numbers("--restart-penalty", restart_penalty),
        vary=_varied(vary or [], _kinds(world, variants)),
        workload=_workload(world),
        settings=_settings(world, _kinds(world, variants)),
        seed=world.seed,
        next_gpus=next_gpus,
    )
    _say_what_is_not_used(trace, jobs, made, variants, world)
    screen = rich_console(stderr=True)
    told = None if as_json and not screen.is_terminal else screen
    try:
        result = run_scenarios(scenarios, out, jobs=cores() if parallel is None else parallel, console=told)
    except KeyboardInterrupt:
        stopped(out)
    page = write_scenarios(result, out)
    if as_json:
        print_json(result.as_dict())
    else:
        shown = console()
        title = f"{result.n_jobs} jobs ({trace}), preset {world.preset}"
        shown.print(rows_table(result, title=title, width=shown.width))
        if result.more_gpus:
            shown.print(next_gpus_table(result))
        shown.print(f"Page: {page}", soft_wrap=True)
    for line in result.notes:
        warn(line)
    for line in result.failed:
        typer.echo(line, err=True)
    if result.failed:
        raise typer.Exit(1)


def _clusters(texts: Sequence[str], world: WorldOptions) -> tuple[Cluster, ...]:
    """Clusters of ``--cluster``, each with those of ``--gpus-per-server`` that it has."""
    accelerator = make_accelerator(world.accelerator, world.throughputs)
    plain = [make_cluster(text, None, accelerator) for text in texts]
    if world.gpus_per_server is None:
        return tuple(plain)
    stated = Cluster.parse(world.gpus_per_server).gpus
    known = {name for cluster in plain for name in cluster.accelerators}
    for name in stated:
        if name not in known:
            raise InputError("--gpus-per-server", found=name, expected=f"one of {', '.join(sorted(known))}")
    return tuple(
        Cluster(cluster.gpus, {**cluster.gpus_per_server, **{n: s for n, s in stated.items() if n in cluster.gpus}})
        for cluster in plain
    )


def _say_what_is_not_used(
    path: Path, trace: Trace, clusters: Sequence[Cluster], variants: Sequence[Variant], world: WorldOptions
) -> None:
    """Lines on standard error on columns and models that the runs make nothing of."""
    given = world.throughputs is not None
    chosen = preset(world.preset)
    elastic = any(Need.CONFIGURATIONS in chosen.class_of_policy(variant.name).needs for variant in variants)
    table = make_table(world.throughputs, [], make_accelerator(world.accelerator, world.throughputs))
    said = (told_of_throughputs(path, trace, table, each, given=given, elastic=elastic) for each in clusters)
    for line in dict.fromkeys(said):
        warn(line)
    owners = world.entities_by
    lines = (line for each in clusters for line in unused_columns(trace, each, owners, by_name=owners is not None))
    for line in dict.fromkeys(lines):
        typer.echo(line, err=True)


def _numbers(option: str, text: str, *, above: bool = False) -> tuple[float, ...]:
    expected = f"numbers {'above' if above else 'of at least'} 0, as in 1,1.2,1.5"
    try:
        found = tuple(float(part) for part in text.split(","))
    except ValueError:
        raise InputError(option, found=text, expected=expected) from None
    if not all(0 <= number < float("inf") for number in found) or (above and 0 in found):
        raise InputError(option, found=text, expected=expected)
    if len(set(found)) < len(found):
        raise InputError(option, found=text, expected="each number once")
    return found


def _varied(texts: Sequence[str], kinds: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    return {name: values_of_text(name, text, kinds) for name, text in named_values("--vary", texts).items()}


def _settings(world: WorldOptions, kinds: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    named = named_values("--set", world.settings or ())
    typed = {name: setting_of_text(name, text, kinds, "--set") for name, text in named.items()}
    return {"preset": world.preset} | typed


def _kinds(world: WorldOptions, variants: Sequence[Variant]) -> list[Mapping[str, Any]]:
    chosen = preset(world.preset)
    return [chosen.kinds_of_policy(variant.name) for variant in variants]


def _workload(world: WorldOptions) -> dict[str, Any]:
    return {
        "slos": world.slos,
        **({"whole_gpus": True} if world.whole_gpus else {}),
        **({} if world.entities_by is None else {"entities_by": world.entities_by}),
        **({} if world.throughputs is None else {"throughputs": str(world.throughputs)}),
        **({} if world.prices is None else {"prices": prices_of_text(world.prices)}),
    }
