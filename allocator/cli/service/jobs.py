"""``allocator cancel``, ``logs`` and ``history``; ``drain`` and ``resume`` of nodes; ``policy``."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from allocator.cli.options.shared import JsonOption, console, print_json
from allocator.cli.options.values import named_value
from allocator.cli.service.options import JobsArgument, StateOption, job_numbers
from allocator.cli.service.tables import service_lines
from allocator.runtime.client import Client
from throughputs import InputError


def cancel_command(jobs: JobsArgument, state: StateOption, as_json: JsonOption = False) -> None:
    """Take jobs off: those that run are told to end."""
    answer = Client(state).ask("cancel", jobs=job_numbers(jobs))
    if as_json:
        print_json(answer)
        return
    for job in answer["cancelled"]:
        print(f"job {job} cancelled")
    for job in answer["through"]:
        print(f"job {job} was through before")


def logs_command(
    job: Annotated[str, typer.Argument(help="Number of the job.", metavar="JOB")],
    state: StateOption,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on as it is written, until the job is through.")
    ] = False,
) -> None:
    """What a job has printed, of all its starts."""
    client = Client(state)
    found = client.ask("status", jobs=job_numbers([job]))["jobs"][0]
    folder = Path(found["folder"])
    for name in ("log.1", "log"):
        _copy(folder / name, 0)
    if not follow:
        return
    at = _size(folder / "log")
    while found["state"] not in ("completed", "failed", "cancelled", "rejected"):
        time.sleep(0.5)
        size = _size(folder / "log")
        at = _copy(folder / "log", at if size >= at else 0)
        found = client.ask("status", jobs=job_numbers([job]))["jobs"][0]
    _copy(folder / "log", at)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _copy(path: Path, start: int) -> int:
    """Print a file from `start` on; returns where it ended."""
    try:
        with path.open("rb") as file:
            file.seek(start)
            while chunk := file.read(1 << 16):
                sys.stdout.buffer.write(chunk)
            sys.stdout.buffer.flush()
            return file.tell()
    except FileNotFoundError:
        return start
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(0) from None


def drain_command(
    node: Annotated[str, typer.Argument(help="Name of the node.")], state: StateOption, as_json: JsonOption = False
) -> None:
    """Take a node out of use; its jobs save and go elsewhere."""
    _told(Client(state).ask("drain", node=node), as_json)


def resume_command(
    node: Annotated[str, typer.Argument(help="Name of the node.")], state: StateOption, as_json: JsonOption = False
) -> None:
    """Take a node into use again."""
    _told(Client(state).ask("resume", node=node), as_json)


def _told(answer: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print_json(answer)
    else:
        print(f"node {answer['node']} {'gets no more jobs' if answer['drained'] else 'is in use'}")


def history_command(
    state: StateOption,
    job: Annotated[str | None, typer.Argument(help="Number of a job; all if omitted.", metavar="[JOB]")] = None,
    last: Annotated[int, typer.Option("--last", help="So many events.", min=1)] = 100,
    as_json: JsonOption = False,
) -> None:
    """What has happened: the last events of the journal, or those of one job."""
    client = Client(state)
    if job is not None:
        answer = client.ask("job", job=job_numbers([job])[0])
        events = [
            {"kind": e.pop("kind"), "at": e.pop("at"), "clock": e.pop("clock"), "data": e} for e in answer["events"]
        ]
    else:
        answer = client.ask("history", last=last)
        events = answer["events"]
    if as_json:
        print_json(answer)
        return
    for event in events:
        stamp = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(event["at"]))
        whose = f" job {event['job']}" if event.get("job") is not None else ""
        print(f"{stamp} {event['kind']}{whose} {_in_words(event['data'])}".rstrip())


def _in_words(data: dict[str, Any]) -> str:
    shown = {key: value for key, value in data.items() if value not in ("", None, {}, [], False) and key not in _LONG}
    return ", ".join(f"{key} {value}" for key, value in shown.items())


_LONG = {"environment", "nodes"}


def policy_command(
    state: StateOption,
    name: Annotated[str | None, typer.Argument(help="Another policy; if omitted the one in force is shown.")] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="A setting of it; may be repeated.", metavar="NAME=VALUE")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Show the policy in force, or take another one into use: jobs run on until it says otherwise."""
    if name is None and settings:
        raise InputError("--set", found=settings[0], expected="the name of a policy before it")
    own = dict(named_value("--set", text) for text in settings or [])
    answer = Client(state).ask("policy", name=name, settings={k.removeprefix("policy."): v for k, v in own.items()})
    if as_json:
        print_json(answer)
        return
    for line in service_lines(answer):
        console().print(line)
