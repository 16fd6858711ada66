"""``allocator compare``: several policies side by side, and the report."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from allocator.cli.options.groups import Given
from allocator.cli.options.outputs import RUN as FOLDER
from allocator.cli.options.runs import RUN, on_usual_cluster, recorded_jobs, runs_of, say_of_jobs, warn_of_models
from allocator.cli.options.shared import JsonOption, console, print_json, say, say_unserved, warn_of_fallbacks
from allocator.cli.options.values import read_jobs
from allocator.cli.screen import rich_console
from allocator.conversion import AtLeastOne, kinds_of
from allocator.experiments.compare import compare
from allocator.experiments.run import Materials
from allocator.experiments.workloads import Draw, TrainingWorkload, workload, workloads
from allocator.presets import preset
from allocator.report.breakdowns import calibration_table
from allocator.report.html import write_report
from allocator.report.page.seeds import Policies
from allocator.report.page.tables import calibration_section
from allocator.report.progress import policy_progress
from allocator.report.terminal import shown_policies
from allocator.results.outcomes import RECORDED
from allocator.variants import Variant, folder_of, read_variants
from throughputs.files import read_json, write_json
from throughputs.goodput.trainings import Trainings
from throughputs.shown import counted


def compare_command(
    *,
    policies: str | None = None,
    trace: Path | None = None,
    jobs: int | None = None,
    mean_interarrival: float | None = None,
    repeats: AtLeastOne = 1,
    out: Path = Path("comparison"),
    given: Annotated[Given, RUN],
    as_json: JsonOption = False,
) -> None:
    """Simulate several policies over the same jobs and compare them.

    Ends with a table and one self-contained page, DIR/report.html: completion times, who ran where, queue, prices.
    Where the trace says when its jobs began and ended, as job logs do, that schedule is a row too: "recorded".
    The preset says what is compared where nothing else is said: --preset shockwave repeats the comparison of its paper.
    A policy that fails is named with its reason, the others are compared without it, and the exit code is 1.

    Parameters
    ----------
    policies : NAME[:SETTING=VALUE,...],...
        Names of policies, each with settings of its own where wanted, as in
        elasticflow,elasticflow:admission=repair; the preset's if omitted.
    trace : FILE|-
        Jobs; drawn by the generator of the preset if omitted; -: standard input.
    jobs
        Number of jobs to draw when there is no --trace (`sweep` draws others); the preset's if omitted.
    mean_interarrival : SECONDS
        Mean time between their arrivals; the preset's if omitted.
    repeats : --runs COUNT
        Runs of each policy, with seeds SEED, SEED + 1, ..., on jobs drawn with them: table and report show
        means with 95 % intervals.
    out : DIR
        Folder for report.html and the results.
    """
    chosen = preset(given.get("preset", "default"))
    usual = chosen.comparison
    variants = list(map(Variant, usual.policies)) if policies is None else read_variants(policies, "--policies")
    own_table = "throughputs" in given
    given = on_usual_cluster(given, drawn=trace is None)
    first = given.get("seed", usual.seed)
    seeds = range(first, first + repeats)
    # what is drawn for a seed is called by it
    names = {seed: str(trace) if trace is not None else f"jobs of seed {seed}" for seed in seeds}
    runs = [
        run
        for seed in seeds
        for run in runs_of(
            Given(given, seed=seed) if repeats > 1 else given, variants, recorded_jobs(given, names[seed]), "--policies"
        )
    ]
    for seed in seeds:
        for label in (*(variant.folder for variant in variants), RECORDED):
            FOLDER.check("--out", out / (f"seed-{seed}" if repeats > 1 else "") / label)
    if trace is not None:
        read = read_jobs(trace, **given.some(("time_unit_seconds", "predictions")))
        materials = Materials.of(runs, {str(trace): read}, check=False)
        warn_of_models(trace, runs, read, materials.speeds_of(runs[0]))
    else:
        settings = {"generator": "default"} | dict(usual.workload)
        if "multi_gpu" in kinds_of(workloads()[settings["generator"]]):
            settings.setdefault("multi_gpu", True)
        materials = Materials.of(runs, dict.fromkeys(names.values(), None), check=False)
        table, gap = materials.speeds_of(runs[0]), usual.mean_interarrival_seconds
        drawn = TrainingWorkload(multi_gpu=True) if isinstance(table, Trainings) else workload(settings)
        gap = gap if mean_interarrival is None else mean_interarrival
        for seed in seeds:
            draw = Draw(usual.jobs if jobs is None else jobs, gap, seed, table, runs[0].gpus, grows=False)
            materials.traces[names[seed]] = drawn.jobs(draw)
    shown = materials.jobs_of(runs[0])(materials.n_jobs(runs[0]))
    say_of_jobs(runs, materials, given)
    # what is drawn is called by its seed
    source = shown.source if repeats == 1 else shown.source.replace(f"seed={first}", f"seeds {first} to {seeds[-1]}")
    described = f"{counted(len(shown), 'job')} ({source}) on {runs[0].gpus.title}, preset {chosen.name}"
    if world := given.get("world"):
        described += f", with {', '.join(world)}"
    if repeats > 1:
        described += f"; means of {repeats} runs, seeds {first} to {seeds[-1]}"
    _forget_runs(out)
    ran = compare(
        runs,
        out=out,
        materials=materials,
        progress=lambda titles: policy_progress(titles, rich_console(stderr=True)),
        log=partial(typer.echo, err=True, nl=False),
    )
    for note in ran.notes:
        say(note)
    for result in ran.results:
        warn_of_fallbacks(result, f", seed {result.settings.get('seed')}" * (repeats > 1))
    means = Policies.of(ran.summaries)
    if trace is not None and repeats > 1 and not any("utilization" in widths for widths in means.half_widths):
        say("the runs of each policy are alike: of the jobs of a trace nothing was drawn")
    say_unserved(ran.results)
    rows = [*ran.summaries, *ran.failed]
    description = "; ".join([described, *ran.failures])
    sections = [] if ran.calibration is None else [calibration_section(ran.calibration)]
    lead = f"{ran.answer}\n{description}" if ran.answer else description
    differences = ran.differences
    report = write_report(
        ran.results, out / "report.html", description=lead, summaries=ran.summaries, sections=sections
    )
    if ran.calibration is not None:
        write_json(out / "calibration.json", ran.calibration.as_dict())
    write_json(out / "comparison.json", rows)
    if differences:
        write_json(out / "differences.json", differences)
    else:
        (out / "differences.json").unlink(missing_ok=True)
        if min(repeats, len(variants)) > 1:
            say("no differences: with no two seeds did a policy and the first of them both complete")
    if as_json:
        print_json(rows)
    else:
        screen = console()
        if ran.answer:
            screen.print(ran.answer, markup=False, highlight=False)
        if ran.calibration is not None:
            screen.print(calibration_table(ran.calibration))
        for part in shown_policies(means, differences, title=described, width=screen.width):
            screen.print(part)
        if trace is None and usual.of_embedded_throughputs and not own_table:
            screen.print(usual.of_embedded_throughputs, style="dim", soft_wrap=True)
        screen.print(f"Report: {report}", soft_wrap=True)
    for line in ran.failures:
        say(line)
    if ran.failed:
        raise typer.Exit(1)


def _forget_runs(out: Path) -> None:
    """Runs of an earlier comparison in the folder are no longer complete: they would pass for runs of this one."""
    if (out / "comparison.json").is_file():
        for row in read_json(out / "comparison.json"):
            name = folder_of(row.get("label", row["policy"]))
            for folder in (out / name, *out.glob(f"seed-*/{name}")):
                (folder / "summary.json").unlink(missing_ok=True)
