"""What is made of the values of shared options: cluster, prices, policy, table; and policies of one's own."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from allocator.cli.options.groups import option
from allocator.cluster import Cluster
from allocator.cluster_spec import read_cluster
from allocator.conversion import convert_text
from allocator.plugins import absolute_reference
from allocator.protocol import Policy
from allocator.registry import IMPORT_VARIABLE, get_policy, import_policies, settings_of
from throughputs import InputError, PriceTable, ThroughputTable, Trace, read_trace
from throughputs.goodput.trainings import Trainings
from throughputs.goodput.trainings.profiled import EMBEDDED
from throughputs.tables.files import accelerator_of_folder
from throughputs.trace import allowed_types, named_types
from throughputs.traces.formats import named_format, read_job_log

MOST_DIGITS = 16
MOST_NAMED = 3


def make_cluster(text: str, gpus_per_server: str | None, accelerator: str | None = None) -> Cluster:
    """Cluster of ``--cluster`` and ``--gpus-per-server``; it has at least one GPU.

    `accelerator` is the type of a cluster that a file describes; behind its name ``@DAY`` may follow, where it has the
    GPUs of several days.
    """
    path, at, day = text.partition("@") if _names_table(text.partition("@")[0]) else (text, "", "")
    if _names_table(path):
        if at and not day:
            raise InputError("--cluster", found=text, expected="FILE@DAY, as in FILE@2020-09-01, or FILE alone")
        if gpus_per_server is not None:
            raise InputError("--gpus-per-server", found=gpus_per_server, expected=f"nothing, as {path} says it")
        return read_cluster(path, accelerator, day=day if at else None)
    cluster = Cluster.parse(text, gpus_per_server)
    if cluster.total_gpus == 0:
        raise InputError("--cluster", found=text, expected="at least one GPU")
    return cluster


def _names_table(text: str) -> bool:
    return ":" not in text and text.lower().removesuffix(".gz").endswith(".csv")


def read_jobs(
    path: Path, format: str = "auto", time_unit_seconds: float | None = None, predictions: str | None = None
) -> Trace:
    """The trace in a file; of a job log it is said on standard error what was left out of it and what was assumed."""
    log = read_job_log(path, format)
    if log is None or predictions is not None:
        return read_trace(path, format, time_unit_seconds=time_unit_seconds, predictions=predictions)
    notes = [*filter(None, [log.left_out]), *log.notes]
    if any("--" in note for note in log.notes):
        notes.append(f"these options are those of allocator trace import {log.source} --out FILE.csv")
    for line in notes:
        typer.echo(f"{log.source}: {line}", err=True)
    return log.trace


def make_window(text: str | None) -> tuple[int, int] | None:
    """Ids of jobs of ``--window``."""
    if text is None:
        return None
    first, colon, end = text.partition(":")
    ends = first.strip(), end.strip()
    if not colon or not all(number.isdecimal() and len(number) <= MOST_DIGITS for number in ends):
        raise InputError("--window", found=text, expected="FIRST:END, as in 4000:5000")
    return int(first), int(end)


def distinct_numbers(option: str, text: str, kind: Any) -> tuple[Any, ...]:
    """Numbers of one type with commas between, each once."""
    found: tuple[Any, ...] = convert_text(text, tuple[kind, ...], source=option, field=option.strip("-"))
    if len(set(found)) < len(found):
        raise InputError(option, found=text, expected="each number once")
    return found


def prices_of_text(text: str | None) -> str | dict[str, float] | None:
    """Prices of ``--prices``: the name of a file if there is one of that name, else dollars by accelerator type."""
    if text is None or ":" not in text or Path(text).exists():
        return text
    constants: dict[str, float] = {}
    for part in text.split(","):
        name, _, price = part.strip().partition(":")
        try:
            constants[name] = float(price)
        except ValueError:
            expected = "TYPE:PRICE pairs, as in v100:0.74,k80:0.135, or a file"
            raise InputError("--prices", found=part, expected=expected) from None
    PriceTable.constant(constants, "--prices")  # says what is wrong with them
    return constants


def make_policy(name: str, solver: str | None, choice: str | None) -> Policy:
    """Policy by name with those of the two settings that are given.

    Raises
    ------
    InputError
        There is no such policy, or it has no such setting.
    """
    wanted = {key: value for key, value in (("solver", solver), ("choice", choice)) if value is not None}
    for key, value in wanted.items():
        if key not in settings_of(name):
            raise without_setting(key, value, [name])
    return get_policy(name, **wanted)


def without_setting(setting: str, value: str, policies: Sequence[str]) -> InputError:
    """What is wrong with ``--solver`` or ``--choice`` where none of the `policies` has that setting."""
    named = f"policy {policies[0]}, which" if len(policies) == 1 else f"{', '.join(policies)}, which"
    why = {"solver": "asks no solver", "choice": "does not choose among optima"}[setting]
    plural = why if len(policies) == 1 else why.replace("asks", "ask").replace("does", "do")
    return InputError(f"--{setting}", found=value, expected=f"nothing under {named} {plural}")


def make_accelerator(given: str | None, throughputs: str | Path | None, clusters: Iterable[str]) -> str | None:
    """The type of ``--accelerator``, or that in the name of a folder of throughputs; None where nothing says it.

    Raises
    ------
    InputError
        It is given, and neither the throughputs nor one of the `clusters` (``--cluster``) lack it.
    """
    lacking = any(_names_table(text.partition("@")[0]) for text in clusters) or Path(throughputs or "FILE").is_dir()
    if given is not None and not lacking:
        raise InputError("--accelerator", found=given, expected="nothing: all GPUs have types")
    return accelerator_of_folder(Path(throughputs)) if given is None and throughputs is not None else given


def told_of_throughputs(
    path: Path,
    trace: Trace,
    table: ThroughputTable | Trainings,
    cluster: Cluster,
    *,
    given: bool,
    elastic: bool,
) -> str:
    """What is to be said of the models of a trace of another system; empty where there is nothing.

    Its models are those of that system. One that the table lacks runs on the GPUs that its job asks for, as fast as
    its duration says; one that the embedded table has is another program of the same name.

    Parameters
    ----------
    path, trace, cluster : the file, its jobs, and where they run.
    table : throughputs or trainings of the models.
    given : whether they are those of ``--throughputs``, not the embedded ones.
    elastic : whether a policy chooses the number of GPUs.

    Raises
    ------
    InputError
        Models that the embedded table lacks, where a job may run on several types: a duration says nothing of the
        others.
    """
    system = named_format(path)
    if isinstance(table, Trainings) or not system:
        return ""
    named = sorted(set(map(str, trace.job_type)))
    known, lacking = ([n for n in named if (n in table.job_types) == there] for there in (True, False))
    as_recorded = f"jobs of {_some(lacking)} run on the GPUs that they ask for only, as fast as their durations say"
    if given:
        return f"{path}: {as_recorded}: {table.source} has no throughputs of theirs" if lacking and elastic else ""
    give = "give the throughputs of its models with --throughputs"
    if system == "elasticflow":
        give += " throughputs_A100 (allocator data fetch elasticflow-throughputs)"
    allowed = allowed_types(trace.gpu_type, trace.partition, cluster.accelerators)
    several = len(cluster.accelerators) > 1 if allowed is None else bool((allowed.sum(axis=1) > 1).any())
    if lacking and several:
        expected = f"throughputs of {_some(lacking)} on {', '.join(cluster.accelerators)}; {give}"
        raise InputError(path, field="job type", found=f"models that the {table.source} lacks", expected=expected)
    if system == "pollux":
        give += f", or --throughputs {EMBEDDED} for the embedded profiles of its models on t4"
    said = [f"the {table.source} has {_some(known)} under the same name, from other programs"] if known else []
    said += [as_recorded] if lacking and (elastic or system == "elasticflow") else []
    return f"{path}: {'; '.join(said)}; {give}" if said else ""


def _some(names: Sequence[str]) -> str:
    """The first names, and how many more there are."""
    shown = ", ".join(names[:MOST_NAMED])
    return shown if len(names) <= MOST_NAMED else f"{shown} and {len(names) - MOST_NAMED} more"


_NAMED = {"--map": "'NVIDIA H100 80GB HBM3=h100'", "--env": "OMP_NUM_THREADS=8", "--vary": "round_seconds=360,720",
          "--rename": "inception3=inceptionv3"}  # fmt: skip


def named_value(option: str, text: str) -> tuple[str, str]:
    """Name and value of ``NAME=VALUE``."""
    name, equals, value = text.partition("=")
    if not (equals and name.strip() and value.strip()):
        raise InputError(option, found=text, expected=f"NAME=VALUE, as in {_NAMED.get(option, 'round_seconds=720')}")
    return name.strip(), value.strip()


def named_values(option: str, texts: Iterable[str]) -> dict[str, str]:
    """Values by name of an option ``NAME=VALUE`` that may be repeated, each name once."""
    named: dict[str, str] = {}
    for text in texts:
        name, value = named_value(option, text)
        if name in named:
            raise InputError(option, field=name, found=f"{named[name]}, and {value}", expected="each name once")
        named[name] = value
    return named


def unused_columns(
    trace: Trace, cluster: Cluster, entities_by: str | None, *, by_name: bool, of_accounts: bool = False
) -> list[str]:
    """A line on the columns that are ignored, and one on GPU types and partitions that are no type of the cluster where
    others are.

    `entities_by` is the column whose names are entities; `by_name`: whether the run has entities at all;
    `of_accounts`: whether a policy goes by the names themselves.
    """
    unused = []
    if (trace.user != "").any() and entities_by != "user" and not of_accounts:
        unused.append("user (--entities-by user shares the cluster among users)")
    if (trace.entity != "").any() and not by_name and not of_accounts:
        unused.append("entity (--entities FILE, or --entities-by account)")
    anywhere, types = run_anywhere(trace, cluster)
    if anywhere and not types:
        columns = {"gpu_type": trace.gpu_type, "partition": trace.partition}
        unused += [
            f"{name} (none is the name of an accelerator type of the cluster)"
            for name, column in columns.items()
            if (column != "").any() and entities_by != name
        ]
    lines = [f"{trace.source}: not used: {', '.join(unused)}"] if unused else []
    return lines + [f"{trace.source}: {anywhere}"] * bool(anywhere and types)


def run_anywhere(trace: Trace, cluster: Cluster) -> tuple[str, bool]:
    """How many jobs name a GPU type or partition that is no type of the cluster, and whether others name one."""
    places = np.where(trace.gpu_type == "", trace.partition, trace.gpu_type)
    named = named_types(trace.gpu_type, trace.partition, cluster.accelerators).any(axis=1)
    elsewhere = (places != "") & ~named
    names = ", ".join(map(repr, dict.fromkeys(places[elsewhere].tolist())))
    which = f"{elsewhere.sum()} jobs run anywhere, as the cluster has no type named {names}"
    told = f"{which} (allocator trace import --map NAME=TYPE renames them)" if elsewhere.any() else ""
    return told, bool(named.any())


def import_option() -> Any:
    """The option. What it names is imported at once, and by the processes that the command starts."""
    carrier = typer.Typer(add_completion=False)
    carrier.command()(_with_import)
    command: Any = typer.main.get_command(carrier)
    return next(parameter for parameter in command.params if "--import" in parameter.opts)


def _import(references: list[str] | None) -> None:
    for reference in references or []:
        import_policies(reference)
        known = [*filter(None, os.environ.get(IMPORT_VARIABLE, "").split(",")), absolute_reference(reference)]
        os.environ[IMPORT_VARIABLE] = ",".join(dict.fromkeys(known))


def _with_import(
    _references: Annotated[
        list[str] | None,
        option(
            "--import",
            "Policies, presets, workloads, layouts of logs of your own: a module, a file, or a policy in one.",
            "MODULE|FILE.py[:CLASS]",
            callback=_import,
            expose_value=False,
            is_eager=True,
        ),
    ] = None,
) -> None:
    pass
