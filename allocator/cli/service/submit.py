"""``allocator submit``: give a service a job."""

from __future__ import annotations

import getpass
import os
import sys
import uuid
from pathlib import Path
from typing import Annotated

from allocator.cli.options.groups import Given, option, options
from allocator.cli.options.shared import JsonOption, print_json
from allocator.cli.service.options import StateOption, duration, job_numbers
from allocator.runtime.door.client import Client
from allocator.runtime.records.book import Job
from throughputs import InputError


def submit_command(
    command: list[str],
    /,
    state: StateOption,
    given: Annotated[Given, options(Job, "gpus total_steps job_type name weight entity one_process_per_gpu retries")],
    length: str | None = None,
    limit: str | None = None,
    types: str | None = None,
    after: str | None = None,
    within: str | None = None,
    folder: Path | None = None,
    environment: list[str] | None = None,
    copies: Annotated[int, option("Submit so many; each finds its ALLOCATOR_COPY, from 0.", min=1, max=10_000)] = 1,
    as_json: JsonOption = False,
) -> None:
    """Give a service a job: a command and the GPUs that it needs.

    The command is started when the policy says so, with its lease in the environment;
    `python -m pydoc allocator.lease` says what a training script does to save and end when its lease ends.

    Parameters
    ----------
    command : -- COMMAND...
        The command and its arguments, after --. No shell reads them.
    length : --duration TIME
        How long it takes on its fastest type, if known: 90, 30m, 12h.
    limit : --time-limit TIME
        How long it may run in all: 90, 30m, 12h. It is told before.
    types : --on TYPE,...
        Accelerator types that it runs on; all if omitted.
    after : JOB,...
        Jobs that have to complete before it starts.
    within : TIME
        Its deadline, from now: 90, 30m, 12h.
    folder : --directory DIR
        Where it starts; here if omitted.
    environment : --env NAME=VALUE
        A variable; may be repeated.
    """
    directory = (folder or Path.cwd()).absolute()
    if not directory.is_dir():
        raise InputError("--directory", found=str(directory), expected="a folder that exists")
    client = Client(state)
    path = {"PATH": os.environ["PATH"]} if os.environ.get("PATH") else {}
    job = given | {
        "command": command,
        "working_directory": str(directory),
        "environment": path | dict(_variable(text) for text in environment or []),
        "user": getpass.getuser(),
    }
    if length is not None:
        job["duration"] = duration(length, "--duration")
    if limit is not None:
        job["time_limit"] = duration(limit, "--time-limit")
    if types is not None:
        job["accelerators"] = [name.strip() for name in types.split(",")]
    if after is not None:
        job["after"] = job_numbers([text.strip() for text in after.split(",")])
    # fails at once where no service runs
    now = client.ask("status", jobs=[])["service"]["clock"]
    if within is not None:
        job["deadline"] = now + duration(within, "--within")
    # a UUID of our own: a submission whose answer is lost, as the service was killed, is sent again
    variables = [job["environment"] | ({"ALLOCATOR_COPY": str(copy)} if copies > 1 else {}) for copy in range(copies)]
    jobs = [{"uuid": uuid.uuid4().hex, **job, "environment": environment} for environment in variables]
    answer = client.follow("submit", jobs=jobs)
    if as_json:
        print_json(answer)
        return
    noted: dict[str, list[int]] = {}
    for made in answer["jobs"]:
        print(f"job {made['id']}")
        for notice in made["notices"]:
            noted.setdefault(notice, []).append(made["id"])
    for notice, ids in noted.items():
        some = f"job {ids[0]}" if len(ids) == 1 else f"jobs {ids[0]} to {ids[-1]}"
        print(f"{some}: {notice}", file=sys.stderr)


def _variable(text: str) -> tuple[str, str]:
    """Name and value, which may be empty, of a variable."""
    name, equals, value = text.partition("=")
    if not (name and equals):
        raise InputError("--env", found=text, expected="NAME=VALUE")
    return name, value
