"""``allocator cancel``, ``logs`` and ``history``; ``drain`` and ``resume`` of nodes; ``policy``."""

from __future__ import annotations

import os
import re
import sys
import time
from pathlib import Path
from typing import Any

import typer

from allocator.cli.options.shared import JsonOption, console, print_json
from allocator.cli.options.values import named_value
from allocator.cli.service.options import JobsArgument, StateOption, asked_or_read, job_numbers
from allocator.cli.service.tables import service_lines
from allocator.conversion import AtLeastOne
from allocator.runtime.adapters.base import LogReader
from allocator.runtime.adapters.node import LOG_FILES
from allocator.runtime.door.client import Client
from allocator.runtime.door.words import details, event_line, span
from allocator.runtime.records.book import FINAL
from throughputs import InputError
from throughputs.shown import visible


def cancel_command(jobs: JobsArgument, state: StateOption, as_json: JsonOption = False) -> None:
    """Take jobs off.

    Those that run are told to end.
    """
    answer = Client(state).ask("cancel", jobs=job_numbers(jobs))
    if as_json:
        print_json(answer)
        return
    for job in answer["cancelled"]:
        print(f"job {job} cancelled")
    for job in answer["through"]:
        print(f"job {job} was through before")


def logs_command(
    state: StateOption,
    job: str | None = None,
    /,
    follow: bool = False,
) -> None:
    """What a job has printed.

    Of all its starts the last output is kept.

    Parameters
    ----------
    job : [JOB]
        Number of the job; the last one if omitted.
    follow : --follow, -f
        Go on as it is written, until the job is through.
    """
    client = Client(state)
    asked = {"jobs": [_last_job(state)] if job is None else job_numbers([job])}

    def ask() -> dict[str, Any]:
        answer = client.follow("status", **asked) if follow else asked_or_read(state, "status", **asked)
        found: dict[str, Any] = answer["jobs"][0]
        return found

    found = ask()
    # where the service finds it by its own working folder, or on its own machine, does not matter
    folder = state / "jobs" / found["uuid"]
    log, printed = LogReader(folder), False
    try:
        while True:
            for chunk in log.news():
                sys.stdout.buffer.write(_harmless(chunk) if sys.stdout.isatty() else chunk)
                printed = True
            sys.stdout.buffer.flush()
            if not follow or found["state"] in FINAL:
                break
            time.sleep(0.5)
            found = ask()
    except KeyboardInterrupt:
        return
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(0) from None
    if not printed:
        there = any((folder / name).exists() for name in LOG_FILES)
        none = "has printed nothing so far" if there else f"has no log in {folder}"
        what = none if found["epoch"] else "was not started so far"
        why = f": {found['reason']}" * bool(found["reason"])
        print(f"job {found['id']} {what} ({found['state']}{why})", file=sys.stderr)


def _harmless(printed: bytes) -> bytes:
    """What a job has printed for a terminal: but for colours and returns nothing that steers it."""
    parts = re.split("(\x1b\\[[0-9;]*m|\r)", printed.decode(errors="surrogateescape"))
    shown = (part if place % 2 else visible(part) for place, part in enumerate(parts))
    return "".join(shown).encode(errors="surrogateescape")


def _last_job(state: Path) -> int:
    """The number of the last job, which is said on standard error."""
    jobs = asked_or_read(state, "status", last=1)["jobs"]
    if not jobs:
        raise InputError("logs", found="no job", expected="a job that was submitted")
    print(f"job {jobs[0]['id']}, {jobs[0]['name']}, {jobs[0]['state']}:", file=sys.stderr)
    return int(jobs[0]["id"])


def drain_command(
    node: str,
    /,
    state: StateOption,
    now: bool = False,
    yes: bool = False,
    as_json: JsonOption = False,
) -> None:
    """Take a node out of use: nothing starts there any more, and what runs there goes on to its end.

    With --now it says whose jobs are evicted, and asks.

    Parameters
    ----------
    node
        Name of the node.
    now
        Evict the jobs that run there: they save and go elsewhere.
    yes
        With --now: do not ask.
    """
    client = Client(state)
    there = client.ask("status", active=True)["jobs"] if now else []
    evict = [job for job in there if node in job["places"] and job["state"] != "stopping"]
    if evict and not yes:
        for job in evict:
            owner = f" of {job['user']}" if job["user"] else ""
            print(f"job {job['id']}, {job['name']}{owner}: {span(job['run_seconds'])} run", file=sys.stderr)
        typer.confirm(f"Evict {len(evict)} job{'s' * (len(evict) != 1)} from node {node}?", abort=True, err=True)
    _told(client.ask("drain", node=node, evict=[job["id"] for job in evict]), as_json)


def resume_command(node: str, /, state: StateOption, as_json: JsonOption = False) -> None:
    """Take a node into use again.

    Parameters
    ----------
    node
        Name of the node.
    """
    _told(Client(state).ask("resume", node=node), as_json)


def _told(answer: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print_json(answer)
        return
    left = ", ".join(map(str, answer["jobs"]))
    still = f"; job {left} runs there to the end" if left else ""
    print(f"node {answer['node']} {f'gets no more jobs{still}' if answer['drained'] else 'is in use'}")


def history_command(
    state: StateOption,
    job: str | None = None,
    /,
    last: AtLeastOne = 100,
    with_details: bool = False,
    as_json: JsonOption = False,
) -> None:
    """What has happened: events of a service, or of one job.

    Parameters
    ----------
    job : [JOB]
        Number of a job; all if omitted.
    last
        So many events.
    with_details : --details
        All that each event says, in long lines.
    """
    answer = asked_or_read(state, "history", last=last, job=None if job is None else job_numbers([job])[0])
    if as_json:
        print_json(answer)
        return
    whole = {} if sys.stdout.isatty() else {"width": sys.maxsize}
    for event in answer["events"]:
        print(event_line(event, **whole))
        if with_details and (told := details(event["data"])):
            print(f"    {told}")


def policy_command(
    state: StateOption,
    name: str | None = None,
    /,
    settings: list[str] | None = None,
    as_json: JsonOption = False,
) -> None:
    """The policy of a service: show it, or change it while jobs run.

    Parameters
    ----------
    name
        Another policy; if omitted the one in force is shown.
    settings : --set NAME=VALUE
        A setting of it; may be repeated.
    """
    if name is None and settings:
        raise InputError("--set", found=settings[0], expected="the name of a policy before it")
    own = dict(named_value("--set", text) for text in settings or [])
    answer = Client(state).ask("policy", name=name, settings={k.removeprefix("policy."): v for k, v in own.items()})
    if as_json:
        print_json(answer)
        return
    for line in service_lines(answer):
        console().print(line)
