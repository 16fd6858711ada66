"""``allocator compare``: several policies side by side, and the report."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

from allocator.cli.failures import EXPECTED
from allocator.cli.options.groups import option_groups
from allocator.cli.options.outputs import RUN
from allocator.cli.options.runs import RunOptions, Runs
from allocator.cli.options.shared import JsonOption, console, print_json, say_unserved, warn_of_fallbacks
from allocator.cli.screen import rich_console
from allocator.presets import preset
from allocator.protocol.faults import told
from allocator.recorded import RECORDED
from allocator.registry import policies_of_others
from allocator.report.bar_charts import terminal_bars
from allocator.report.breakdowns import BREAKDOWNS, parts_table
from allocator.report.html import write_report
from allocator.report.page.seeds import Policies
from allocator.report.presentation import Presentation
from allocator.report.progress import policy_progress
from allocator.report.terminal import comparison_table, entities_table, extra_figures
from allocator.results.fairness import isolated_rho
from allocator.results.output import save_result
from allocator.sweep.jobs import trainings_for
from allocator.variants import Variant, read_variants
from throughputs import InputError, TraceGenerator, deadline_trace
from throughputs.files import write_text
from throughputs.goodput.trainings import Trainings
from throughputs.traces.drawing import published_trace

if TYPE_CHECKING:
    from allocator.presets import Comparison
    from allocator.results.result import SimulationResult
    from throughputs import Trace

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
        str | None,
        typer.Option(
            "--policies",
            help="Names of policies, each with settings of its own where wanted, as in "
            "elasticflow,elasticflow:admission=repair; the preset's if omitted.",
            metavar="NAME[:SETTING=VALUE,...],...",
        ),
    ] = None,
    trace: Annotated[
        Path | None,
        typer.Option(
            "--trace",
            help="Jobs; drawn by the generator of the preset if omitted; -: standard input.",
            metavar="FILE|-",
        ),
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
    repeats: Annotated[
        int,
        typer.Option(
            "--runs",
            help="Runs of each policy, with seeds SEED, SEED + 1, ..., on jobs drawn with them: table and report show "
            "means, the report with 95 % intervals.",
            metavar="COUNT",
            min=1,
        ),
    ] = 1,
    out: Annotated[Path, typer.Option("--out", help="Folder for report.html and the results.", metavar="DIR")] = Path(
        "comparison"
    ),
    run: RunOptions,
    as_json: JsonOption = False,
) -> None:
    """Simulate several policies over the same jobs and compare them.

    Ends with a table and one self-contained page, DIR/report.html: completion times, who ran where, queue, prices.
    Where the trace says when its jobs began and ended, as job logs do, that schedule is a row too: "recorded".
    The preset says what is compared where nothing else is said: --preset shockwave repeats the comparison of its paper.
    A policy that fails is named with its reason, the others are compared without it, and the exit code is 1.
    """
    variants = _variants(policies, run.preset)
    run = run.on_cluster_of_drawn_jobs() if trace is None else run
    runs = run.runs(variants, "--policies")
    usual = runs.preset.comparison
    mean_seconds = usual.mean_interarrival_seconds if mean_interarrival is None else mean_interarrival
    first_seed = usual.seed if run.seed is None else run.seed
    for seed in range(first_seed, first_seed + repeats):
        for label in (*(variant.folder for variant in variants), RECORDED):
            RUN.check("--out", _folder(out, seed, repeats) / label)
    ran, described = _Ran(), ""
    for seed in range(first_seed, first_seed + repeats):
        if repeats > 1:
            runs = replace(run, seed=seed).runs(variants, "--policies")
        drawn = replace(
            usual,
            jobs=usual.jobs if jobs is None else jobs,
            mean_interarrival_seconds=mean_seconds,
            seed=seed,
        )
        workload = runs.workload(_drawn(drawn, runs) if trace is None else runs.read(trace))
        described = (
            described or f"{len(workload)} jobs ({workload.source}) on {runs.cluster.title}, preset {runs.preset.name}"
        )
        made = _simulated(variants, runs, workload, _folder(out, seed, repeats))
        for result in made.results:
            warn_of_fallbacks(result)
        say_unserved(made.results)
        ran.add(made, told=f", seed {seed}" if repeats > 1 else "")
    if repeats > 1:
        described += f"; means of {repeats} runs, seeds {first_seed} to {seed}"
    summaries = ran.summaries
    report = write_report(
        ran.results, out / "report.html", description="; ".join([described, *ran.failures]), summaries=summaries
    )
    write_text(out / "comparison.json", json.dumps([*summaries, *ran.failed], indent=2, allow_nan=False) + "\n")
    if as_json:
        print_json([*summaries, *ran.failed])
    else:
        _show(Policies.of(summaries).summaries, described)
        if trace is None and usual.generator == "shockwave" and run.throughputs is None:
            console().print(STEPS_OF_THE_PAPER, style="dim", soft_wrap=True)
        console().print(f"Report: {report}", soft_wrap=True)
    for line in ran.failures:
        typer.echo(line, err=True)
    if ran.failed:
        raise typer.Exit(1)


def _folder(out: Path, seed: int, repeats: int) -> Path:
    """Where the runs with a seed are saved: a folder of its own where there are several."""
    return out if repeats == 1 else out / f"seed-{seed}"


@dataclass
class _Ran:
    """What came of the policies, in their order.

    Attributes
    ----------
    results, summaries : of those that came through; what was written is complete.
    failed : of each of the others policy, label where it has one, status "failed", and the reason in status_detail.
    failures : the same as lines.
    """

    results: list[SimulationResult] = field(default_factory=list)
    summaries: list[dict[str, Any]] = field(default_factory=list)
    failed: list[dict[str, Any]] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    def add(self, more: _Ran, told: str) -> None:
        """What came of further runs; `told` tells their failures apart."""
        self.results += more.results
        self.summaries += more.summaries
        self.failed += more.failed
        self.failures += [
            f"{row.get('label', row['policy'])}{told} failed: {row['status_detail']}" for row in more.failed
        ]


def _simulated(variants: Sequence[Variant], runs: Runs, workload: Trace, out: Path) -> _Ran:
    """Run all policies; each result is saved when it is there, and what one policy raises is its result.

    Where none comes through, the first error is that of the comparison.
    """
    results: dict[str, SimulationResult] = {}
    saved: dict[str, dict[str, Any]] = {}
    errors: dict[str, Exception] = {}
    recorded = runs.recorded(workload)
    made = {variant.label: (variant, policy) for variant, policy in zip(variants, runs.policies, strict=True)}
    with policy_progress(list(made), rich_console(stderr=True)) as progress:
        # The run that others are measured by comes first.
        for label in sorted(made, key=lambda label: label != FAIR_SHARE_RUN):
            variant, policy = made[label]
            try:
                result = runs.simulate(workload, policy, progress(label), label=variant.run_label)
                _relate(result, results.get(FAIR_SHARE_RUN, result if label == FAIR_SHARE_RUN else None))
                saved[label] = save_result(result, out / variant.folder)
                results[label] = result
            except Exception as error:  # whatever a policy or a solver raises
                errors[label] = error
                # a summary stands where a run is complete
                (out / variant.folder / "summary.json").unlink(missing_ok=True)
                if not isinstance(error, (InputError, OSError, *EXPECTED)):
                    typer.echo(told(error, policies_of_others()), err=True, nl=False)
    if not results:
        raise next(iter(errors.values()))
    ran = _Ran()
    if recorded is not None:
        _relate(recorded, results.get(FAIR_SHARE_RUN))
        ran.results.append(recorded)
        ran.summaries.append(save_result(recorded, out / RECORDED))
    for label, (variant, policy) in made.items():
        if label in errors:
            reason = {"status": "failed", "status_detail": _told(errors[label])}
            own = {} if variant.run_label is None else {"label": label}
            ran.failed.append({"policy": policy.name, **own, **reason})
        else:
            ran.results.append(results[label])
            ran.summaries.append(saved[label])
    for summary, shown in zip(ran.summaries, Presentation.of(ran.summaries).labels, strict=True):
        if shown != summary.get("label", summary["policy"]):
            summary["paper_label"] = shown
    return ran


def _relate(result: SimulationResult, fair: SimulationResult | None) -> None:
    """Relate the completion times of a run to those of the run on fair shares, where there is one."""
    if fair is not None:
        times = result.jobs["jct"].to_numpy(), fair.jobs["jct"].to_numpy()
        result.jobs["rho_isolated"] = isolated_rho(*times)


def _told(error: Exception) -> str:
    """The reason in one line; with the kind of error where it is none that is meant for users."""
    said = " ".join(str(error).split())
    return said if isinstance(error, (InputError, *EXPECTED)) else f"{type(error).__name__}: {said}"


def _show(summaries: Sequence[Mapping[str, Any]], title: str) -> None:
    """Print the comparison."""
    screen = console()
    screen.print(comparison_table(summaries, title=title, width=screen.width))
    for part in terminal_bars(summaries):
        screen.print(part)
    for summary in summaries:
        for line in extra_figures(summary):
            screen.print(f"{summary.get('label', summary['policy'])}: {line}", markup=False)
    if any(summary.get("by_partition") for summary in summaries):
        screen.print(parts_table(summaries, BREAKDOWNS["by_partition"]))
    if any(summary.get("by_entity") for summary in summaries):
        screen.print(entities_table(summaries))


def _variants(policies: str | None, preset_name: str) -> list[Variant]:
    """Policies of ``--policies``, or those of the preset."""
    if policies is None:
        return [Variant(name) for name in preset(preset_name).comparison.policies]
    return read_variants(policies, "--policies")


def _drawn(what: Comparison, runs: Runs) -> Trace:
    """The jobs of a generator."""
    jobs, gap = what.jobs, what.mean_interarrival_seconds
    if isinstance(runs.table, Trainings):
        return trainings_for(runs.cluster, jobs, gap, np.random.default_rng(what.seed), runs.table)
    if what.generator == "deadlines":
        return deadline_trace(
            jobs,
            gap,
            rng=np.random.default_rng(what.seed),
            factors=what.deadline_factors,
            table=runs.table,
            reference_accelerator=runs.cluster.accelerators[0],
        )
    if what.generator == "shockwave":
        return published_trace("shockwave", jobs, gap, seed=what.seed, table=runs.table)
    reference = runs.table.reference_accelerator
    return TraceGenerator(
        n_jobs=jobs, mean_interarrival=gap, seed=what.seed, table=runs.table, reference_accelerator=reference
    ).generate()
