"""``allocator simulate``: one policy over one trace."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from allocator.cli.options import (
    DEFAULT_CLUSTER,
    ChoiceOption,
    ClusterOption,
    IdealOption,
    JsonOption,
    MaxClockOption,
    MaxWaitingOption,
    PreloadOption,
    PresetOption,
    PricesOption,
    QueueOption,
    RecomputeOption,
    RoundOption,
    SeedOption,
    ServersOption,
    SettingOption,
    SlosOption,
    SolverOption,
    ThroughputsOption,
    UnconsolidatedOption,
    WindowOption,
    console,
    extra_figures,
    make_cluster,
    make_policy,
    make_preset,
    make_prices,
    make_table,
    make_window,
    make_workload,
    print_json,
)


def simulate_command(
    trace: Annotated[Path, typer.Option("--trace", help="Jobs: Gavel, Shockwave or our own format.", metavar="FILE")],
    policy: Annotated[str, typer.Option("--policy", help="Name of the policy; `allocator policies` lists them.")],
    out: Annotated[Path, typer.Option("--out", help="Folder for the results.", metavar="DIR")],
    throughputs: ThroughputsOption = None,
    cluster: ClusterOption = DEFAULT_CLUSTER,
    gpus_per_server: ServersOption = None,
    preset: PresetOption = "default",
    round_seconds: RoundOption = None,
    queue: QueueOption = None,
    recompute_interval: RecomputeOption = None,
    ideal: IdealOption = False,
    unconsolidated: UnconsolidatedOption = False,
    window: WindowOption = None,
    preload: PreloadOption = False,
    slos: SlosOption = False,
    prices: PricesOption = None,
    max_waiting: MaxWaitingOption = None,
    max_clock: MaxClockOption = None,
    checkpoint: Annotated[
        Path | None,
        typer.Option("--checkpoint", help="File into which the run is put away as it goes.", metavar="FILE"),
    ] = None,
    checkpoint_every: Annotated[int, typer.Option("--checkpoint-every", help="Rounds between checkpoints.")] = 2000,
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the checkpoint, if there is one.")] = False,
    seed: SeedOption = 0,
    solver: SolverOption = None,
    choice: ChoiceOption = None,
    settings: SettingOption = None,
    as_json: JsonOption = False,
) -> None:
    """Simulate a policy over a trace, round by round.

    Writes summary.json, jobs.csv, rounds.parquet and timeline.parquet into DIR, and priorities.csv if jobs differ in
    weight; docs/formats.md and docs/simulator.md describe them.
    """
    from allocator.report.progress import policy_progress
    from allocator.simulator.engine import simulate
    from allocator.simulator.output import save_result
    from throughputs import read_trace

    chosen = make_preset(
        preset,
        settings,
        round_seconds=round_seconds,
        queue=queue,
        recompute_interval_seconds=recompute_interval,
        ideal=ideal,
        unconsolidated_throughputs=unconsolidated,
        max_waiting_jobs=max_waiting,
        max_clock_seconds=max_clock,
    )
    acting = make_policy(policy, solver, choice or chosen.choice)
    gpus, table = make_cluster(cluster, gpus_per_server), make_table(throughputs, [acting])
    jobs = make_workload(read_trace(trace), gpus, slos=slos, preloaded=preload, seed=seed)
    with policy_progress([policy]) as progress:
        result = simulate(
            jobs,
            gpus,
            acting,
            table,
            preset=chosen,
            seed=seed,
            window=make_window(window),
            prices=make_prices(prices),
            checkpoint=checkpoint,
            checkpoint_every=checkpoint_every,
            resume=resume,
            progress=progress(policy),
        )
    summary = save_result(result, out)
    if as_json:
        print_json(summary)
        return
    from allocator.report.terminal import comparison_table

    screen = console()
    screen.print(comparison_table([summary], title=f"{trace.name} on {gpus}"))
    for line in extra_figures(summary):
        screen.print(line)
    screen.print(f"Results in {out}/: summary.json, jobs.csv, rounds.parquet, timeline.parquet")
