"""``allocator compare``: several policies side by side, and the report."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

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
from throughputs import InputError

if TYPE_CHECKING:
    from throughputs import ThroughputTable, Trace

DEFAULT_POLICIES = (
    "max_min_fairness_perf,finish_time_fairness_perf,min_total_duration_perf,max_sum_throughput_perf,"
    "max_min_fairness,finish_time_fairness,isolated,fifo_perf,fifo"
)


def compare_command(
    policies: Annotated[
        str, typer.Option("--policies", help="Names of policies.", metavar="NAME,...")
    ] = DEFAULT_POLICIES,
    trace: Annotated[
        Path | None, typer.Option("--trace", help="Jobs; drawn by the embedded generator if omitted.", metavar="FILE")
    ] = None,
    jobs: Annotated[int, typer.Option("--jobs", help="Number of jobs to draw when there is no --trace.")] = 160,
    mean_interarrival: Annotated[
        float, typer.Option("--mean-interarrival", help="Mean time between their arrivals.", metavar="SECONDS")
    ] = 600.0,
    out: Annotated[Path, typer.Option("--out", help="Folder for report.html and the results.", metavar="DIR")] = Path(
        "comparison"
    ),
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
    seed: SeedOption = 0,
    solver: SolverOption = None,
    choice: ChoiceOption = None,
    settings: SettingOption = None,
    as_json: JsonOption = False,
) -> None:
    """Simulate several policies over the same jobs and compare them.

    Ends with a table and one self-contained page, DIR/report.html: completion times, who ran where, queue, prices.
    """
    from allocator.report.html import write_report
    from allocator.report.progress import policy_progress
    from allocator.simulator.engine import simulate
    from allocator.simulator.output import save_result
    from throughputs.files import write_text

    names = [name.strip() for name in policies.split(",") if name.strip()]
    if not names or len(set(names)) != len(names):
        raise InputError("--policies", found=policies, expected="distinct names of policies, separated by commas")
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
    measured, priced = make_window(window), make_prices(prices)
    acting = [make_policy(name, solver, choice or chosen.choice) for name in names]
    gpus, table = make_cluster(cluster, gpus_per_server), make_table(throughputs, acting)
    drawn = _workload(trace, jobs, mean_interarrival, seed, table)
    workload = make_workload(drawn, gpus, slos=slos, preloaded=preload, seed=seed)
    results, summaries = [], []
    with policy_progress(names, plain_lines=not as_json) as progress:
        for name, policy in zip(names, acting, strict=True):
            result = simulate(
                workload,
                gpus,
                policy,
                table,
                preset=chosen,
                seed=seed,
                window=measured,
                prices=priced,
                progress=progress(name),
            )
            results.append(result)
            summaries.append(save_result(result, out / name))
    described = f"{len(workload)} jobs ({workload.source}) on {gpus}, preset {chosen.name}"
    report = write_report(results, out / "report.html", description=described, summaries=summaries)
    import json

    write_text(out / "comparison.json", json.dumps(summaries, indent=2, allow_nan=False) + "\n")
    if as_json:
        print_json(summaries)
        return
    from allocator.report.terminal import comparison_table

    screen = console()
    screen.print(comparison_table(summaries, title=described))
    for summary in summaries:
        for line in extra_figures(summary):
            screen.print(f"{summary['policy']}: {line}")
    screen.print(f"Report: {report}", soft_wrap=True)


def _workload(path: Path | None, jobs: int, mean_interarrival: float, seed: int, table: ThroughputTable) -> Trace:
    from throughputs import TraceGenerator, read_trace

    if path is not None:
        return read_trace(path)
    return TraceGenerator(n_jobs=jobs, mean_interarrival=mean_interarrival, seed=seed, table=table).generate()
