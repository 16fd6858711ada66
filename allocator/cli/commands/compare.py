"""``allocator compare``: several policies side by side, and the report."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from allocator.cli.options.groups import option_groups
from allocator.cli.options.runs import RunOptions, Runs
from allocator.cli.options.shared import JsonOption, console, print_json
from allocator.presets import preset
from allocator.report.bar_charts import terminal_bars
from allocator.report.html import write_report
from allocator.report.presentation import Presentation
from allocator.report.progress import policy_progress
from allocator.report.terminal import comparison_table, entities_table, extra_figures
from allocator.results.fairness import isolated_rho
from allocator.results.output import save_result
from throughputs import InputError, TraceGenerator
from throughputs.files import write_text
from throughputs.traces.shockwave_generator import shockwave_trace

if TYPE_CHECKING:
    from allocator.presets import Comparison
    from allocator.results.result import SimulationResult
    from throughputs import ThroughputTable, Trace

FAIR_SHARE_RUN = "isolated_plus"
"""Policy under which every job has its fair share; completion times of the others are also related to its run."""

STEPS_OF_THE_PAPER = (
    "The steps of the jobs fit the embedded throughputs. The paper has others: "
    "`allocator data fetch shockwave-throughputs`, then --throughputs with its file tacc_throughputs.json."
)


@option_groups
def compare_command(
    *,
    policies: Annotated[
        str | None, typer.Option("--policies", help="Names of policies; the preset's if omitted.", metavar="NAME,...")
    ] = None,
    trace: Annotated[
        Path | None,
        typer.Option("--trace", help="Jobs; drawn by the generator of the preset if omitted.", metavar="FILE"),
    ] = None,
    jobs: Annotated[
        int | None,
        typer.Option("--jobs", help="Number of jobs to draw when there is no --trace; the preset's if omitted."),
    ] = None,
    mean_interarrival: Annotated[
        float | None,
        typer.Option(
            "--mean-interarrival",
            help="Mean time between their arrivals; the preset's if omitted.",
            metavar="SECONDS",
        ),
    ] = None,
    out: Annotated[Path, typer.Option("--out", help="Folder for report.html and the results.", metavar="DIR")] = Path(
        "comparison"
    ),
    run: RunOptions,
    as_json: JsonOption = False,
) -> None:
    """Simulate several policies over the same jobs and compare them.

    Ends with a table and one self-contained page, DIR/report.html: completion times, who ran where, queue, prices.
    The preset says what is compared where nothing else is said: --preset shockwave repeats the comparison of its paper.
    """
    names = _names(policies, run.preset)
    runs = run.runs(names)
    usual = runs.preset.comparison
    drawn = replace(
        usual,
        jobs=usual.jobs if jobs is None else jobs,
        mean_interarrival_seconds=usual.mean_interarrival_seconds if mean_interarrival is None else mean_interarrival,
        seed=usual.seed if run.seed is None else run.seed,
    )
    workload = runs.workload(_drawn(drawn, runs.table) if trace is None else runs.read(trace))
    results, summaries = _simulated(names, runs, workload, out, plain_lines=not as_json)
    described = f"{len(workload)} jobs ({workload.source}) on {runs.cluster}, preset {runs.preset.name}"
    report = write_report(results, out / "report.html", description=described, summaries=summaries)
    write_text(out / "comparison.json", json.dumps(summaries, indent=2, allow_nan=False) + "\n")
    if as_json:
        print_json(summaries)
        return
    _show(summaries, described)
    if trace is None and usual.generator == "shockwave" and run.throughputs is None:
        console().print(STEPS_OF_THE_PAPER, style="dim", soft_wrap=True)
    console().print(f"Report: {report}", soft_wrap=True)


def _simulated(
    names: Sequence[str], runs: Runs, workload: Trace, out: Path, *, plain_lines: bool
) -> tuple[list[SimulationResult], list[dict[str, Any]]]:
    """Results and summaries of all policies, in the order of their names; each is saved when it is there."""
    results: dict[str, SimulationResult] = {}
    saved: dict[str, dict[str, Any]] = {}
    policies = dict(zip(names, runs.policies, strict=True))
    with policy_progress(names, plain_lines=plain_lines) as progress:
        # The run that others are measured by comes first.
        for name in sorted(names, key=lambda name: name != FAIR_SHARE_RUN):
            results[name] = runs.simulate(workload, policies[name], progress(name))
            jobs, fair = results[name].jobs, results.get(FAIR_SHARE_RUN)
            if fair is not None:
                jobs["rho_isolated"] = isolated_rho(jobs["jct"].to_numpy(), fair.jobs["jct"].to_numpy())
            saved[name] = save_result(results[name], out / name)
    summaries = [saved[name] for name in names]
    for summary, label in zip(summaries, Presentation.of(summaries).labels, strict=True):
        if label != summary["policy"]:
            summary["paper_label"] = label
    return [results[name] for name in names], summaries


def _show(summaries: Sequence[dict[str, Any]], title: str) -> None:
    """Print the comparison."""
    screen = console()
    screen.print(comparison_table(summaries, title=title, width=screen.width))
    for part in terminal_bars(summaries):
        screen.print(part)
    for summary in summaries:
        for line in extra_figures(summary):
            screen.print(f"{summary['policy']}: {line}")
    if any(summary.get("by_entity") for summary in summaries):
        screen.print(entities_table(summaries))


def _names(policies: str | None, preset_name: str) -> list[str]:
    """Policies of ``--policies``, or those of the preset."""
    if policies is None:
        return list(preset(preset_name).comparison.policies)
    names = [name.strip() for name in policies.split(",") if name.strip()]
    if not names or len(set(names)) != len(names):
        raise InputError("--policies", found=policies, expected="distinct names of policies, separated by commas")
    return names


def _drawn(what: Comparison, table: ThroughputTable) -> Trace:
    """The jobs of a generator."""
    if what.generator == "shockwave":
        return shockwave_trace(what.jobs, what.mean_interarrival_seconds, seed=what.seed, table=table)
    return TraceGenerator(
        n_jobs=what.jobs, mean_interarrival=what.mean_interarrival_seconds, seed=what.seed, table=table
    ).generate()
