"""``allocator simulate``: one policy over one trace."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from allocator.cli.options import (
    DEFAULT_CLUSTER,
    ChoiceOption,
    ClusterOption,
    JsonOption,
    PresetOption,
    RoundOption,
    SeedOption,
    ServersOption,
    SettingOption,
    SolverOption,
    ThroughputsOption,
    console,
    make_cluster,
    make_policy,
    make_preset,
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
    seed: SeedOption = 0,
    solver: SolverOption = None,
    choice: ChoiceOption = None,
    settings: SettingOption = None,
    as_json: JsonOption = False,
) -> None:
    """Simulate a policy over a trace, round by round.

    Writes summary.json, jobs.csv, rounds.parquet and timeline.parquet into DIR; docs/formats.md describes them.
    """
    from allocator.api import load_throughputs
    from allocator.report.progress import policy_progress
    from allocator.simulator.engine import simulate
    from allocator.simulator.output import save_result
    from throughputs import read_trace

    chosen = make_preset(preset, round_seconds, settings)
    acting = make_policy(policy, solver, choice or chosen.choice)
    gpus = make_cluster(cluster, gpus_per_server)
    jobs, table = read_trace(trace), load_throughputs(throughputs)
    with policy_progress([policy]) as progress:
        result = simulate(jobs, gpus, acting, table, preset=chosen, seed=seed, progress=progress(policy))
    summary = save_result(result, out)
    if as_json:
        print_json(summary)
        return
    from allocator.report.terminal import comparison_table

    screen = console()
    screen.print(comparison_table([summary], title=f"{trace.name} on {gpus}"))
    screen.print(f"Results in {out}/: summary.json, jobs.csv, rounds.parquet, timeline.parquet")
