"""``allocator trace``: workloads."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Annotated

import typer

from allocator.api import load_speeds, load_throughputs
from allocator.cli.inputs.description import print_description
from allocator.cli.inputs.job_logs import DemandOption, example_command, import_command, print_account
from allocator.cli.options.groups import Commands, Given, option, options
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
from allocator.cli.options.values import make_cluster, named_values, read_jobs
from allocator.experiments.workloads import (
    Draw,
    Lengths,
    OwnWorkload,
    Recorded,
    TrainingWorkload,
    workload,
    workloads,
)
from throughputs import InputError, describe_trace, read_trace, write_trace
from throughputs.entry_points import load
from throughputs.errors import one_of
from throughputs.goodput.trainings import Trainings
from throughputs.traces.formats import TRACE_FORMATS, read_formats, read_job_log

app = Commands()
app.command("import")(import_command)
app.command("example-log")(example_command)

FormatHelp = f"{', '.join(TRACE_FORMATS[:-1])} or {TRACE_FORMATS[-1]}; inferred from the name if omitted, never pollux."
*_OTHERS, _LAST = read_formats()
SourceFormatHelp = f"{', '.join(_OTHERS)} or {_LAST}; told by what the file holds if omitted."


@app.command("generate")
def generate_command(
    out: Path,
    given: Annotated[Given, options(Lengths, "priorities fixed_duration_seconds")],
    jobs: int = 100,
    mean_interarrival: float = 600.0,
    single_gpu: bool = False,
    generator: str | None = None,
    format: Annotated[str, option(FormatHelp)] = "auto",
    throughputs: ThroughputsOption = None,
    cluster: str | None = None,
    gpus_per_server: ServersOption = None,
    seed: SeedOption = 0,
) -> None:
    """Draw a workload from the published distributions of durations, scale factors and priorities.

    With throughputs of jobs that choose their batch size: trainings of those models, as many of each as in Pollux'
    evaluation.

    Parameters
    ----------
    out : FILE
        File to write: .csv, .parquet, or a text format.
    jobs
        Number of jobs.
    mean_interarrival : SECONDS
        Mean time between Poisson arrivals; 0: all at once.
    single_gpu
        Only jobs of one GPU.
    generator : NAME
        default; deadlines: jobs with deadlines; gavel, shockwave: published generators, draw for draw; or one
        of another package.
    cluster : TYPE:COUNT,...|FILE
        For jobs that choose their batch size: they ask for GPUs of its first type, as it has them.
    """
    speeds, servers = load_speeds(throughputs), None
    if isinstance(speeds, Trainings):
        _refuse("jobs that choose their batch size", {"--generator": generator})
        servers = None if cluster is None else make_cluster(cluster, gpus_per_server)
        _refuse("no --cluster", {"--gpus-per-server": gpus_per_server if servers is None else None})
        generator = TrainingWorkload.generator
    else:
        _refuse(
            "a throughput table, but with jobs that choose their batch size",
            {"--cluster": cluster, "--gpus-per-server": gpus_per_server},
        )
        known = [name for name, kind in workloads().items() if not kind.trains and kind is not Recorded]
        generator = OwnWorkload.generator if generator is None else generator
        if generator not in known:
            raise InputError("--generator", found=generator, expected=one_of(generator, known))
    owned = {field.name for field in fields(workloads()[generator])}
    said = {"priorities": "--priorities", "fixed_duration_seconds": "--duration"}
    _refuse(f"jobs of the generator {generator}", {said[name]: given[name] for name in given if name not in owned})
    gangs = {"multi_gpu": not single_gpu} if "multi_gpu" in owned else {}
    drawn = workload({"generator": generator, **gangs, **given})
    trace = drawn.jobs(Draw(jobs, mean_interarrival, seed, speeds, servers, grows=False))
    write_trace(trace, out, format=format)
    typer.echo(f"{out}: {len(trace)} jobs, the last arrives after {trace.arrival_time[-1] if len(trace) else 0:.0f} s")


def _refuse(what: str, options: Mapping[str, object]) -> None:
    """InputError for the first option that is given; none of them means anything with `what`."""
    for name, given in options.items():
        if given is not None:
            raise InputError(name, found=given, expected=f"nothing with {what}")


@app.command("convert")
def convert_command(
    source: Path,
    target: Path,
    /,
    source_format: Annotated[str, option("--from", SourceFormatHelp)] = "auto",
    target_format: Annotated[str, option("--to", FormatHelp)] = "auto",
    lossy: bool = False,
    start: str = "0",
    rename: list[str] | None = None,
    time_unit: TimeUnitOption = None,
) -> None:
    """Convert a trace between formats; refuses to lose anything unless told to.

    --to pollux makes the workload that the simulators of Pollux and ElasticFlow read, deadlines included.

    Parameters
    ----------
    source : FROM|-
        Trace to read; -: standard input.
    target : TO
        Trace to write.
    lossy
        Drop what the target format cannot hold.
    start : SECONDS|first
        With --to pollux: the time that becomes second 0; first: the first arrival.
    rename : MODEL=NAME
        With --to pollux: what the application of a model is called: inception3=inceptionv3; repeatable.
    """
    trace = read_jobs(source, source_format, time_unit)
    begin = float(trace.arrival_time[0]) if start == "first" and len(trace) else _seconds(start)
    names = named_values("--rename", rename or [])
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


@app.command("describe")
def describe_command(
    trace: Path,
    /,
    format: Annotated[str, option(SourceFormatHelp)] = "auto",
    throughputs: TableOption = None,
    accelerator: AcceleratorOption = None,
    cluster: DemandOption = None,
    time_unit: TimeUnitOption = None,
    as_json: JsonOption = False,
) -> None:
    """Describe a trace: arrivals, job types, scale factors, priorities, deadlines, durations, GPU hours.

    Jobs and GPU hours also by size and by partition, and the demand over time. With --cluster against its GPUs, and the
    jobs that are too large for it. Of a job log first what was made of it: what was left out and why, clock, zone.

    Parameters
    ----------
    trace : FILE|-
        Trace to read; -: standard input.
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
