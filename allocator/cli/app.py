"""The commands, put together: a command's file is read when the command is asked for."""

from __future__ import annotations

from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

COMMANDS = {
    "solve": "Solve one allocation problem: who gets which share of time on which accelerator type.",
    "audit": "Audit the allocation of a policy, or a job log: who envies whom, what was wasted, idle or unfair.",
    "admit": "Would one more job meet its deadline, and all others theirs; with what plan?",
    "simulate": "Simulate a policy over a trace, round by round.",
    "compare": "Simulate several policies over the same jobs and compare them.",
    "whatif": "What would happen to my cluster if it had more GPUs, more work, another policy?",
    "explain": "Why did a job of a finished run wait, who ran instead, and what would have let it run?",
    "metrics": "Figures of finished runs, also of those of other simulators.",
    "policies": "List the policies: where each is from, what it means, and its program.",
    "trace": "Traces: draw a workload, import a job log, convert between formats, describe one.",
    "predict": "Predict how long jobs will run, from what is known when they are submitted.",
    "nodes": "How many nodes might have slept, by a forecast of use, and who would have waited?",
    "throughputs": "Throughput tables: how fast each job type runs on each accelerator type.",
    "data": "Public data sets by name: list, download, verify. The files are not bundled.",
    "sweep": "Sweeps: policies x seeds x loads x clusters x settings, resumable.",
    "study": "Make the runs of a study and print its table: of a paper beside the figures that it prints.",
    "serve": "Run real jobs under a policy, on this machine, a Slurm or a Ray cluster.",
    "submit": "Give a service a job: a command and the GPUs that it needs.",
    "status": "What a service and its jobs do, and why each job is where it is.",
    "queue": "The jobs that wait, and what each waits for.",
    "wait": "Wait until jobs are through.",
    "logs": "What a job has printed.",
    "cancel": "Take jobs off.",
    "history": "What has happened: events of a service, or of one job.",
    "record": "Turn what a service did into the results of a run: of one that runs, or has run.",
    "drain": "Take a node out of use: nothing starts there any more, and what runs there goes on to its end.",
    "resume": "Take a node into use again.",
    "policy": "The policy of a service: show it, or change it while jobs run.",
    "profile": "Measure how many steps per second a program makes, by accelerator type and number of GPUs.",
}
"""Commands with the first line of their help, all that ``allocator --help`` needs."""

MODULES = {
    "solve": "commands.instance",
    "audit": "commands.instance",
    "trace": "inputs.trace",
    "predict": "inputs.predict",
    "nodes": "inputs.nodes",
    "throughputs": "inputs.throughputs",
    "data": "inputs.data",
    "serve": "service.serve",
    "submit": "service.submit",
    "status": "service.watch",
    "queue": "service.watch",
    "wait": "service.watch",
    "logs": "service.jobs",
    "cancel": "service.jobs",
    "history": "service.jobs",
    "record": "service.record",
    "drain": "service.jobs",
    "resume": "service.jobs",
    "policy": "service.jobs",
    "profile": "service.profile",
}
"""Modules of commands below `allocator.cli`; a command that is not named here is in `commands`, under its own name."""

TAKE_POLICIES = {
    "solve": (),
    "audit": (),
    "simulate": (),
    "compare": (),
    "whatif": (),
    "explain": (),
    "policies": (),
    "trace": ("import", "describe", "generate"),
    "sweep": ("continuous", "static", "trace", "run"),
    "serve": (),
    "record": (),
}
"""Commands that take policies by name, with those of their commands that do where they have some."""


class Commands(TyperGroup):
    """All commands by name and help; the one that is asked for is loaded."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Name, command and further arguments."""
        name, _, further = super().resolve_command(ctx, args)
        return name, load(str(name)), further


app = typer.Typer(
    cls=Commands,
    name="allocator",
    help="Scheduling policies for GPU clusters as programs over a throughput matrix: solve, simulate, compare.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _only_named() -> None:
    pass


def _version(asked: bool) -> None:
    if asked:
        typer.echo(import_module("allocator").__version__)
        raise typer.Exit


@app.callback()
def _whole(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    """Scheduling policies for GPU clusters as programs over a throughput matrix: solve, simulate, compare."""


for _name, _help in COMMANDS.items():
    app.command(_name, help=_help)(_only_named)


def load(name: str) -> Any:
    """The command `name`: the ``app`` of its module, or the function that is named after it."""
    module = import_module(f"allocator.cli.{MODULES.get(name, f'commands.{name}')}")
    whole = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode="rich")
    whole.callback()(_only_named)
    if hasattr(module, "app"):
        whole.add_typer(module.app, name=name)
    else:
        with_options = import_module("allocator.cli.options.groups").with_options
        whole.command(name)(with_options(getattr(module, f"{name}_command")))
    group: Any = typer.main.get_command(whole)
    command = group.commands[name]
    if name in TAKE_POLICIES:
        options = import_module("allocator.cli.options.values")
        for taker in [command.commands[part] for part in TAKE_POLICIES[name]] or [command]:
            taker.params.append(options.import_option())
    outputs = import_module("allocator.cli.options.outputs")
    for part, each in getattr(command, "commands", {}).items():
        outputs.guard(each, f"{name} {part}")
    outputs.guard(command, name)
    return command
