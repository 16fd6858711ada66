"""``allocator trace``: workloads."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

from allocator.api import load_throughputs
from allocator.cli.inputs.description import print_description
from allocator.cli.inputs.job_logs import DemandOption, example_command, import_command, print_account
from allocator.cli.options.shared import (
    AcceleratorOption,
    JsonOption,
    SeedOption,
    ServersOption,
    TableOption,
    ThroughputsOption,
    TimeUnitOption,
    print_json,
    warn,
)
from allocator.cli.options.values import make_cluster, read_jobs
from allocator.sweep.jobs import trainings_for
from throughputs import (
    FixedDuration,
    InputError,
    LogUniformDurations,
    TraceGenerator,
    deadline_trace,
    describe_trace,
    read_trace,
    write_trace,
)
from throughputs.entry_points import load
from throughputs.errors import one_of
from throughputs.goodput.trainings import find_trainings, training_trace
from throughputs.traces.deadline_generator import DEADLINE_SCALE_FACTORS
from throughputs.traces.drawing import published_trace
from throughputs.traces.formats import READ_FORMATS, TRACE_FORMATS, read_job_log
from throughputs.traces.generator import PUBLISHED_PRIORITIES

if TYPE_CHECKING:
    from throughputs import ThroughputTable, Trace

app = typer.Typer(
    no_args_is_help=True, help="Traces: draw a workload, import a job log, convert between formats, describe one."
)
app.command("import")(import_command)
app.command("example-log")(example_command)

FormatHelp = f"{', '.join(TRACE_FORMATS[:-1])} or {TRACE_FORMATS[-1]}; told from the name if omitted, never pollux."
SourceFormatHelp = f"{', '.join(READ_FORMATS[:-1])} or {READ_FORMATS[-1]}; told by what the file holds if omitted."


@app.command("generate")
def generate_command(
    out: Annotated[
        Path, typer.Option("--out", help="File to write: .csv, .parquet, or a text format.", metavar="FILE")
    ],
    jobs: Annotated[int, typer.Option("--jobs", help="Number of jobs.")] = 100,
    mean_interarrival: Annotated[
        float,
        typer.Option(
            "--mean-interarrival", help="Mean time between Poisson arrivals; 0: all at once.", metavar="SECONDS"
        ),
    ] = 600.0,
    single_gpu: Annotated[bool, typer.Option("--single-gpu", help="Only jobs of one GPU.")] = False,
    priorities: Annotated[bool, typer.Option("--priorities", help="Weight 5 for a fifth of the jobs.")] = False,
    fixed_duration: Annotated[
        float | None, typer.Option("--duration", help="The same duration for every job, alone.", metavar="SECONDS")
    ] = None,
    preset: Annotated[
        str,
        typer.Option(
            "--preset",
            help="default; gavel or shockwave: published generators, draw for draw; elasticflow: jobs with deadlines, "
            "by the rules of its generator.",
        ),
    ] = "default",
    format: Annotated[str, typer.Option("--format", help=FormatHelp)] = "auto",
    throughputs: ThroughputsOption = None,
    cluster: Annotated[
        str | None,
        typer.Option(
            "--cluster",
            help="For jobs that choose their batch size: they ask for GPUs of its first type, as it has them.",
            metavar="TYPE:COUNT,...|FILE",
        ),
    ] = None,
    gpus_per_server: ServersOption = None,
    seed: SeedOption = 0,
) -> None:
    """Draw a workload from the published distributions of durations, scale factors and priorities.

    With throughputs of jobs that choose their batch size: trainings of those models, as many of each as in Pollux'
    evaluation.
    """
    trainings = None if throughputs is None else find_trainings(throughputs)
    if trainings is None:
        _refuse("throughputs that are a table", {"--cluster": cluster, "--gpus-per-server": gpus_per_server})
        drawing = _Drawing(jobs, mean_interarrival, single_gpu, priorities, fixed_duration, seed)
        trace = drawing.of_table(preset, load_throughputs(throughputs))
    else:
        given = None if preset == "default" else preset
        refused = {"--preset": given, "--priorities": priorities or None, "--duration": fixed_duration}
        _refuse("jobs that choose their batch size", refused)
        servers = None if cluster is None else make_cluster(cluster, gpus_per_server)
        _refuse("no --cluster", {"--gpus-per-server": gpus_per_server if servers is None else None})
        rng = np.random.default_rng(seed)
        if servers is not None:
            trace = trainings_for(servers, jobs, mean_interarrival, rng, trainings, multi_gpu=not single_gpu)
        else:
            draw = partial(training_trace, jobs, mean_interarrival, rng=rng, trainings=trainings)
            trace = draw(most_gpus=1) if single_gpu else draw()
    write_trace(trace, out, format=format)
    typer.echo(f"{out}: {len(trace)} jobs, the last arrives after {trace.arrival_time[-1] if len(trace) else 0:.0f} s")


def _refuse(what: str, options: Mapping[str, object]) -> None:
    """InputError for the first option that is given; none of them means anything with `what`."""
    for option, given in options.items():
        if given is not None:
            raise InputError(option, found=given, expected=f"nothing with {what}")


@dataclass(frozen=True)
class _Drawing:
    """What jobs of a throughput table are drawn by, as the options say."""

    jobs: int
    mean_interarrival: float
    single_gpu: bool
    priorities: bool
    fixed_duration: float | None
    seed: int

    def of_table(self, preset: str, table: ThroughputTable) -> Trace:
        """The jobs of the generator that a preset names."""
        makers = {
            "default": self._own,
            "gavel": self._gavel,
            "shockwave": self._shockwave,
            "elasticflow": self._with_deadlines,
        }
        if preset not in makers:
            raise InputError("--preset", found=preset, expected=one_of(preset, makers))
        if preset in ("shockwave", "elasticflow"):
            refused = {"--priorities": self.priorities or None, "--duration": self.fixed_duration}
            _refuse(f"--preset {preset}", refused)
        return makers[preset](table)

    def _own(self, table: ThroughputTable) -> Trace:
        settings: dict[str, Any] = {"scale_factors": {1: 1.0}} if self.single_gpu else {}
        duration = self.fixed_duration
        return TraceGenerator(
            n_jobs=self.jobs,
            arrivals="poisson" if self.mean_interarrival > 0 else "static",
            mean_interarrival=self.mean_interarrival,
            durations=LogUniformDurations() if duration is None else FixedDuration(duration),
            priorities=PUBLISHED_PRIORITIES if self.priorities else None,
            seed=self.seed,
            table=table,
            reference_accelerator=table.reference_accelerator,
            **settings,
        ).generate()

    def _gavel(self, table: ThroughputTable) -> Trace:
        return published_trace(
            "gavel",
            self.jobs,
            self.mean_interarrival,
            multi_gpu=not self.single_gpu,
            priorities=self.priorities,
            seed=self.seed,
            fixed_duration=self.fixed_duration,
            table=table,
        )

    def _shockwave(self, table: ThroughputTable) -> Trace:
        settings = {"scale_factors": {1: 1.0}} if self.single_gpu else {}
        return published_trace("shockwave", self.jobs, self.mean_interarrival, seed=self.seed, table=table, **settings)

    def _with_deadlines(self, table: ThroughputTable) -> Trace:
        return deadline_trace(
            self.jobs,
            self.mean_interarrival,
            rng=np.random.default_rng(self.seed),
            scale_factors={1: 1.0} if self.single_gpu else DEADLINE_SCALE_FACTORS,
            table=table,
            reference_accelerator=table.reference_accelerator,
        )


@app.command("convert")
def convert_command(
    source: Annotated[Path, typer.Argument(help="Trace to read; -: standard input.", metavar="FROM|-")],
    target: Annotated[Path, typer.Argument(help="Trace to write.", metavar="TO")],
    source_format: Annotated[str, typer.Option("--from", help=SourceFormatHelp)] = "auto",
    target_format: Annotated[str, typer.Option("--to", help=FormatHelp)] = "auto",
    lossy: Annotated[bool, typer.Option("--lossy", help="Drop what the target format cannot hold.")] = False,
    start: Annotated[
        str,
        typer.Option(
            "--start",
            help="With --to pollux: the time that becomes second 0; first: the first arrival.",
            metavar="SECONDS|first",
        ),
    ] = "0",
    rename: Annotated[
        list[str] | None,
        typer.Option(
            "--rename",
            help="With --to pollux: what the application of a model is called: inception3=inceptionv3; repeatable.",
            metavar="MODEL=NAME",
        ),
    ] = None,
    time_unit: TimeUnitOption = None,
) -> None:
    """Convert a trace between formats; refuses to lose anything unless told to.

    --to pollux makes the workload that the simulators of Pollux and ElasticFlow read, deadlines included.
    """
    trace = read_jobs(source, source_format, time_unit)
    begin = float(trace.arrival_time[0]) if start == "first" and len(trace) else _seconds(start)
    names = _names(rename or [])
    write_trace(trace, target, format=target_format, lossy=lossy, start=begin, rename=names)
    typer.echo(f"{target}: {len(trace)} jobs")
    for application, models in load("writers", "pollux-merged")(trace, names).items() if names else ():
        warn(f"{target}: the models {', '.join(models)} are one application there, {application}")


def _seconds(text: str) -> float:
    try:
        seconds = 0.0 if text == "first" else float(text)
    except ValueError:
        seconds = math.nan
    if not 0 <= seconds < math.inf:
        raise InputError("--start", found=text, expected="seconds, at least 0, or first")
    return seconds


def _names(pairs: list[str]) -> dict[str, str]:
    names: dict[str, str] = {}
    for pair in pairs:
        model, equals, name = pair.partition("=")
        if not (model and equals and name):
            raise InputError("--rename", found=pair, expected="MODEL=NAME, as in inception3=inceptionv3")
        if model in names:
            raise InputError("--rename", field=model, found=f"{names[model]}, and {name}", expected="each model once")
        names[model] = name
    return names


@app.command("describe")
def describe_command(
    trace: Annotated[Path, typer.Argument(help="Trace to read; -: standard input.", metavar="FILE|-")],
    format: Annotated[str, typer.Option("--format", help=SourceFormatHelp)] = "auto",
    throughputs: TableOption = None,
    accelerator: AcceleratorOption = None,
    cluster: DemandOption = None,
    time_unit: TimeUnitOption = None,
    as_json: JsonOption = False,
) -> None:
    """Describe a trace: arrivals, job types, scale factors, priorities, deadlines, durations, GPU hours.

    Jobs and GPU hours also by size and by partition, and the demand over time. With --cluster against its GPUs, and the
    jobs that are too large for it. Of a job log first what was made of it: what was left out and why, clock, zone.
    """
    capacity = None if cluster is None else make_cluster(cluster, None).gpus
    log = read_job_log(trace, format)
    jobs = read_trace(trace, format=format, time_unit_seconds=time_unit) if log is None else log.trace
    described = describe_trace(jobs, load_throughputs(throughputs, accelerator=accelerator), accelerator, capacity)
    if as_json:
        print_json(described if log is None else described | {"log": log.as_dict()})
        return
    if log is not None:
        print_account(log)
    print_description(described, title=jobs.source)
