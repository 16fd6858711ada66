"""``allocator status``, ``queue`` and ``wait``: what jobs do."""

from __future__ import annotations

import sys
import time
from math import inf
from typing import Any

import typer

from allocator.cli.options.shared import JsonOption, console, print_json
from allocator.cli.service.options import StateOption, asked_or_read, duration, job_numbers
from allocator.cli.service.tables import jobs_table, service_lines
from allocator.runtime.door.client import Client, NoServiceError
from allocator.runtime.records.book import FINAL


def status_command(
    state: StateOption,
    jobs: list[str] | None = None,
    /,
    follow: bool = False,
    active: bool = False,
    as_json: JsonOption = False,
) -> None:
    """What a service and its jobs do, and why each job is where it is.

    Parameters
    ----------
    follow : --follow, -f
        Keep the table up to date until Ctrl-C.
    active
        Only jobs that wait or run.
    jobs : [JOB...]
        Numbers of jobs; all if omitted.
    """
    client, wanted = Client(state), job_numbers(jobs) if jobs else None
    if follow and not as_json:
        _follow(lambda: client.follow("status", jobs=wanted, active=active))
        return
    answer = asked_or_read(state, "status", jobs=wanted, active=active)
    if as_json:
        print_json(answer)
        return
    _show(answer)


def queue_command(state: StateOption, as_json: JsonOption = False) -> None:
    """The jobs that wait, and what each waits for."""
    answer = asked_or_read(state, "status", active=True)
    answer["jobs"] = [job for job in answer["jobs"] if job["state"] == "queued"]
    if as_json:
        print_json(answer)
    else:
        _show(answer)


def wait_command(
    state: StateOption,
    jobs: list[str] | None = None,
    /,
    timeout: str | None = None,
    check: bool = False,
    as_json: JsonOption = False,
) -> None:
    """Wait until jobs are through.

    Returns 0 then, and 2 when the time is up before. A service that is stopped and started
    again meanwhile is waited for, for a minute. What cannot run meanwhile, why, and at the end how many deadlines were
    missed is said on standard error; a job that completes late has completed.

    Parameters
    ----------
    timeout : TIME
        Wait so long at most: 90, 30m, 12h.
    check
        Return 1 unless all of them completed, late or not.
    jobs : [JOB...]
        Numbers of jobs; all if omitted.
    """
    until = inf if timeout is None else time.monotonic() + duration(timeout, "--timeout")
    client = Client(state, until)
    wanted = job_numbers(jobs) if jobs else None
    pause, hindrances = 0.05, _Hindrances(client)
    while True:
        try:
            left, service, of_jobs = _left(client, wanted)
            if not left:
                break
            hindrances.tell(service, left if wanted is not None else None)
            why = f"job {', '.join(map(str, left[:10]))}{', ...' if len(left) > 10 else ''}"
        except NoServiceError as error:
            if time.monotonic() < until:
                raise
            why = str(error)
        if time.monotonic() >= until:
            print(f"not through after {timeout}: {why}", file=sys.stderr)
            raise typer.Exit(2)
        time.sleep(pause)
        pause = min(2 * pause, 1.0)
    _tell_deadlines(service["deadlines"] if wanted is None else of_jobs)
    if not (as_json or check):
        return
    answer = Client(state).follow("status", jobs=wanted)
    if as_json:
        print_json(answer)
    others = [job for job in answer["jobs"] if job["state"] != "completed"]
    if check and others:
        for job in others[:10]:
            print(f"job {job['id']} {job['state']}{f': {why}' if (why := job['reason']) else ''}", file=sys.stderr)
        raise typer.Exit(1)


def _left(client: Client, wanted: list[Any] | None) -> tuple[list[int], dict[str, Any], dict[str, int]]:
    """Numbers of the jobs that are not through, the service, and how many of the jobs met and missed deadlines."""
    # thousands of jobs are not told of one by one only to see that some are left
    answer = client.follow("status", **({"active": True, "last": 11} if wanted is None else {"jobs": wanted}))
    met = [job["met"] for job in answer["jobs"]]
    left = [job["id"] for job in answer["jobs"] if job["state"] not in FINAL]
    return left, answer["service"], {"met": met.count(True), "missed": met.count(False)}


class _Hindrances:
    """Says once on standard error what keeps jobs from running."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._told: set[int] = set()
        self._trouble = ""

    def tell(self, service: dict[str, Any], wanted: list[int] | None) -> None:
        """What is new since the last time; of `wanted` jobs, None: of all."""
        hindered = {job for job in service["cannot_run"] if wanted is None or job in wanted}
        if new := sorted(hindered - self._told):
            for job in self._client.follow("status", jobs=new)["jobs"]:
                if job["reason"]:
                    print(f"job {job['id']} cannot run: {job['reason']}", file=sys.stderr, flush=True)
        self._told = hindered
        if service["trouble"] not in ("", self._trouble):
            print(f"trouble: {service['trouble']}", file=sys.stderr, flush=True)
        self._trouble = service["trouble"]


def _tell_deadlines(deadlines: dict[str, int]) -> None:
    total = sum(deadlines.values())
    if total:
        missed = f"{deadlines['missed']} of {total} deadlines missed" if deadlines["missed"] else "all deadlines met"
        print(missed, file=sys.stderr)


def _show(answer: dict[str, Any]) -> None:
    screen = console()
    for line in service_lines(answer["service"]):
        screen.print(line)
    if answer["jobs"]:
        screen.print(jobs_table(answer["jobs"], screen.width))


def _follow(ask: Any) -> None:
    from rich.console import Group
    from rich.live import Live

    screen = console()

    def picture() -> Any:
        answer = ask()
        lines = service_lines(answer["service"])
        return Group(*lines, jobs_table(answer["jobs"], screen.width))

    try:
        with Live(picture(), console=screen, refresh_per_second=2) as live:
            while True:
                time.sleep(0.5)
                live.update(picture())
    except KeyboardInterrupt:
        return
