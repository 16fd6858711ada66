"""``allocator simulate``: one policy over one trace."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from allocator.cli.options.groups import Given
from allocator.cli.options.profiler import ProfilerOption, profile_first, told
from allocator.cli.options.runs import RUN, on_usual_cluster, recorded_jobs, runs_of, say_of_jobs, warn_of_models
from allocator.cli.options.shared import JsonOption, console, print_json, say_unserved, warn_of_fallbacks
from allocator.cli.options.values import read_jobs
from allocator.cli.screen import rich_console
from allocator.conversion import AtLeastOne
from allocator.experiments.run import Materials
from allocator.report.page.seeds import Policies
from allocator.report.progress import policy_progress
from allocator.report.terminal import shown_policies
from allocator.results.output import save_result
from allocator.variants import read_variants
from throughputs import InputError
from throughputs.files import source_of


def simulate_command(
    trace: Path,
    policy: str,
    out: Path,
    given: Annotated[Given, RUN],
    checkpoint: Path | None = None,
    checkpoint_every: AtLeastOne = 2000,
    resume: bool = False,
    profiler: ProfilerOption = None,
    as_json: JsonOption = False,
) -> None:
    """Simulate a policy over a trace, round by round.

    Writes summary.json, jobs.csv, rounds.parquet and timeline.parquet into DIR; `python -m pydoc allocator.Summary`
    describes the figures and `python -m pydoc allocator.SimulationResult` the columns.

    Parameters
    ----------
    trace : FILE|-
        Jobs: our own format, Gavel, Shockwave, ElasticFlow, Chronus, Pollux or Lucid; -: standard input.
    policy : NAME[:SETTING=VALUE,...]
        Name of the policy, which `allocator policies` lists; settings of its own may follow.
    out : DIR
        Folder for the results.
    checkpoint : FILE
        File into which the run is saved as it goes.
    checkpoint_every
        Rounds between checkpoints.
    resume
        Go on from the checkpoint, if there is one.
    """
    variants = read_variants(policy, "--policy")
    if len(variants) > 1:
        raise InputError("--policy", found=policy, expected="one policy; `allocator compare` takes several")
    given = on_usual_cluster(given)
    (run,) = runs_of(given, variants, recorded_jobs(given, str(trace)))
    jobs = read_jobs(trace, **given.some(("time_unit_seconds", "predictions")))
    materials = Materials.of([run], {str(trace): jobs}, check=False)
    warn_of_models(trace, [run], jobs, materials.speeds_of(run))
    say_of_jobs([run], materials, given)
    jobs, cluster = materials.jobs_of(run)(len(jobs)), run.gpus
    profiled = None if profiler is None else profile_first(profiler, jobs, cluster, run.make_policy())
    if profiled is not None:
        jobs, cluster = profiled.left, profiled.cluster
    kept = {"checkpoint": checkpoint, "checkpoint_every": checkpoint_every, "resume": resume}
    with policy_progress([run.title], rich_console(stderr=True)) as progress:
        result = materials.simulate(run, jobs, cluster, progress=progress(run.title), **kept)
    summary = save_result(result, out)
    (out / "profiler.csv").unlink(missing_ok=True)  # that of a run which was here before
    of_profiler = None if profiled is None else profiled.save(result, out)
    warn_of_fallbacks(result)
    say_unserved([result])
    if as_json:
        print_json(summary if of_profiler is None else summary | {"profiler": of_profiler})
        return
    screen = console()
    title = f"{Path(source_of(trace)).name} on {cluster.title}"
    for part in shown_policies(Policies.of([summary]), title=title, width=screen.width):
        screen.print(part)
    if of_profiler is not None:
        screen.print(told(of_profiler))
    screen.print(f"Results in {out}/: summary.json, jobs.csv, rounds.parquet, timeline.parquet")
