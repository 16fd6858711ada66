"""``allocator whatif``: the jobs of a trace on other clusters, at other loads, under other policies."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from allocator.api import load_speeds
from allocator.cli.options.groups import Given, options
from allocator.cli.options.runs import said_of_lengths
from allocator.cli.options.shared import (
    SHARED,
    JsonOption,
    console,
    print_json,
    say,
    warn,
)
from allocator.cli.options.sweep import (
    VARY,
    settings_given,
    stopped,
    varied,
    workload_given,
)
from allocator.cli.options.values import (
    distinct_numbers,
    make_accelerator,
    make_cluster,
    read_jobs,
    told_of_throughputs,
    unused_columns,
)
from allocator.cli.screen import rich_console
from allocator.cluster import Cluster
from allocator.conversion import AtLeastOne, NotNegativeWhole, Positive
from allocator.experiments.run import Run
from allocator.experiments.runner import cores
from allocator.experiments.whatif import whatif
from allocator.experiments.whatif.page import PAGE
from allocator.experiments.whatif.rows import next_gpus_table, rows_table
from allocator.experiments.workloads import Recorded
from allocator.presets import preset
from allocator.protocol.policy import Need
from allocator.report.breakdowns import calibration_table
from allocator.variants import Variant, read_variants
from throughputs import InputError, Trace

USUAL_POLICY = "slurm"


def whatif_command(
    *,
    trace: Path,
    clusters: list[str],
    policies: str = USUAL_POLICY,
    load: str = "1",
    next_gpus: NotNegativeWhole | None = None,
    given: Annotated[
        Given,
        (SHARED["throughputs"], SHARED["gpus_per_server"], SHARED["accelerator"]),
        options(Run, "prices preset seed"),
        options(Recorded, "slos whole_gpus entities_by default_limit_hours"),
        (SHARED["settings"], *VARY),
    ],
    parallel: AtLeastOne | None = None,
    out: Path = Path("whatif"),
    as_json: JsonOption = False,
) -> None:
    """What would happen to my cluster if it had more GPUs, more work, another policy?

    The rows are all combinations of clusters, loads, settings and policies; the others are compared
    with the first. Ends with a table and one self-contained page, DIR/whatif.html. Rows that DIR holds already are not
    run again. A row that fails is named with its reason, and the exit code is 1.

    Parameters
    ----------
    trace : FILE
        Jobs as they were submitted.
    clusters : --cluster, -c TYPE:COUNT,...|FILE
        GPUs by accelerator type, or a CSV file that describes the cluster; may be repeated.
    policies : --policies, -p NAME[:SETTING=VALUE,...],...
        Names of policies, each with settings of its own where wanted.
    parallel : -j, --parallel N
        Runs at a time; all cores if omitted.
    out : DIR
        Folder for table, page and runs; run again to continue.
    load : FACTOR,...
        How many times as often jobs arrive: times of submission are divided by it. A deadline moves with the
        arrival of its job.
    next_gpus : COUNT
        Simulate each row also with so many more GPUs of each type, to see what they are worth; 0: not. If
        omitted 1 where that takes at most 8 further runs.
    """
    variants = read_variants(policies, "--policies")
    made, jobs = _clusters(clusters, given), read_jobs(trace)
    _say_what_is_not_used(trace, jobs, made, variants, given)
    screen = rich_console(stderr=True)
    try:
        result = whatif(
            trace,
            made,
            policies,
            loads=distinct_numbers("--load", load, Positive),
            vary=varied(given, variants),
            settings=settings_given(given, variants),
            out=out,
            jobs=cores() if parallel is None else parallel,
            console=None if as_json and not screen.is_terminal else screen,
            next_gpus=next_gpus,
            seed=given.get("seed", 0),
            **workload_given(given),
        )
    except KeyboardInterrupt:
        stopped(out)
    if as_json:
        print_json(result.as_dict())
    else:
        shown = console()
        if result.answer:
            shown.print(result.answer, markup=False, highlight=False)
        if result.calibration is not None:
            shown.print(calibration_table(result.calibration))
        title = f"{result.counted} ({trace}), preset {given.get('preset', 'default')}"
        shown.print(rows_table(result, title=title, width=shown.width))
        if result.more_gpus:
            shown.print(next_gpus_table(result, width=shown.width))
        shown.print(f"Page: {out / PAGE}", soft_wrap=True)
    for line in result.notes:
        warn(line)
    for line in result.failed:
        say(line)
    if result.failed:
        raise typer.Exit(1)


def _clusters(texts: Sequence[str], given: Given) -> tuple[Cluster, ...]:
    """Clusters of ``--cluster``, each with those of ``--gpus-per-server`` that it has."""
    accelerator = make_accelerator(given.get("accelerator"), given.get("throughputs"), texts)
    plain = [make_cluster(text, None, accelerator) for text in texts]
    stated = Cluster.parse(given["gpus_per_server"]).gpus if "gpus_per_server" in given else {}
    known = {name for cluster in plain for name in cluster.accelerators}
    for name in stated:
        if name not in known:
            raise InputError("--gpus-per-server", found=name, expected=f"one of {', '.join(sorted(known))}")
    return tuple(
        Cluster(cluster.gpus, {**cluster.gpus_per_server, **{n: s for n, s in stated.items() if n in cluster.gpus}})
        for cluster in plain
    )


def _say_what_is_not_used(
    path: Path, trace: Trace, clusters: Sequence[Cluster], variants: Sequence[Variant], given: Given
) -> None:
    """Lines on standard error on columns and models that the runs make nothing of, and lengths that nobody predicts."""
    throughputs, owners = given.get("throughputs"), given.get("entities_by")
    chosen = preset(given.get("preset", "default"))
    policies = [
        chosen.make_policy(variant.name, clusters[0], **variant.typed_settings("--policies", chosen))
        for variant in variants
    ]
    elastic = any(Need.CONFIGURATIONS in policy.needs for policy in policies)
    table = load_speeds(throughputs, accelerator=given.get("accelerator"))
    known = throughputs is not None
    said = (told_of_throughputs(path, trace, table, each, given=known, elastic=elastic) for each in clusters)
    for line in dict.fromkeys(said):
        warn(line)
    lines = [line for each in clusters for line in unused_columns(trace, each, owners, by_name=owners is not None)]
    if "default_limit_hours" not in given:
        lines += said_of_lengths(policies, trace)
    for line in dict.fromkeys(lines):
        say(line)
