"""``allocator solve`` and ``allocator audit``: one decision, and what it guarantees, and to whom it does least."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from allocator.audit import audit
from allocator.audit.log import LogAudit, audit_log
from allocator.cli.inputs.description import rows_table
from allocator.cli.options.shared import (
    InstanceArgument,
    InstanceChoiceOption,
    JsonOption,
    PolicyNameOption,
    SeedOption,
    SolverOption,
    console,
    print_json,
    warn,
)
from allocator.cli.options.values import make_cluster, make_policy, read_jobs
from allocator.conversion import NotNegativeWhole
from allocator.instance import allocation_to_json, read_instance
from allocator.report.breakdowns import MOST_USERS
from allocator.report.terminal import allocation_table
from allocator.results.summary import fallbacks_told
from throughputs import InputError
from throughputs.files import write_json

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text


def solve_command(
    instance: InstanceArgument,
    policy: PolicyNameOption,
    solver: SolverOption = None,
    choice: InstanceChoiceOption = None,
    out: Path | None = None,
    table: bool = False,
) -> None:
    """Solve one allocation problem: who gets which share of time on which accelerator type.

    Prints the allocation with its objective, proven gap and the price of each accelerator type.

    An instance has the cluster and its jobs, in steps/s by type (`python -m pydoc allocator.instance` has all fields):

    {"cluster": {"v100": 4}, "jobs": [{"job_id": 0, "throughputs": {"v100": 3.1}, "scale_factor": 1}]}

    Parameters
    ----------
    out : FILE
        Write the JSON here instead of to the screen.
    table
        Print a table for people instead of JSON.
    """
    acting = make_policy(policy, solver, choice)
    allocation = acting.allocate(read_instance(instance).for_needs(acting.needs))
    warn(fallbacks_told(policy, [allocation], 1))
    answer = allocation_to_json(allocation)
    if out is not None:
        write_json(out, answer)
    if table:
        console().print(allocation_table(allocation))
    elif out is None:
        print_json(answer)


def audit_command(
    instance: Path,
    /,
    policy: str | None = None,
    cluster: str | None = None,
    solver: SolverOption = None,
    choice: InstanceChoiceOption = None,
    seed: SeedOption = 0,
    probed_jobs: NotNegativeWhole = 8,
    misreports: NotNegativeWhole = 8,
    jobs: NotNegativeWhole = 10,
    out: Path | None = None,
    as_json: JsonOption = False,
) -> None:
    """Audit the allocation of a policy, or a job log: who envies whom, what was wasted, idle or unfair.

    Of a job log with starts, and the --cluster that its jobs ran on: where the GPU time went - wasted, idle though jobs
    waited, free in pieces too small for any -, and who waited and was overtaken, by account, user and size.

    Of an allocation: every property comes with its value and its worst job, every job with the reason why it runs where
    it runs.

    An instance has the cluster and its jobs, in steps/s by type (`python -m pydoc allocator.instance` has all fields):

    {"cluster": {"v100": 4}, "jobs": [{"job_id": 0, "throughputs": {"v100": 3.1}, "scale_factor": 1}]}

    Parameters
    ----------
    instance : INSTANCE.json|LOG|-
        Allocation problem in JSON, as shown above; -: standard input. With --cluster a job log, as of sacct, or as
        `allocator trace import` has made a trace of it.
    policy
        Policy whose allocation is audited; `allocator policies` lists them.
    cluster : TYPE:COUNT,...|FILE
        GPUs that the jobs of a log ran on, by accelerator type.
    probed_jobs
        Jobs that are made to misreport; 0 for no probe.
    misreports
        Misreports of each of them.
    jobs
        Jobs to explain in the table, the slowest first.
    out : FILE
        Also write the audit as JSON to this file.
    """
    if cluster is not None:
        _audit_log(instance, cluster, out, as_json)
        return
    if policy is None:
        raise InputError("--policy", found="none", expected="the policy of an instance, or --cluster for a job log")
    chosen, state = make_policy(policy, solver, choice), read_instance(instance)
    found = audit(chosen.allocate(state), state, chosen, seed=seed, probed_jobs=probed_jobs, misreports=misreports)
    if out is not None:
        write_json(out, found.to_json(), default=str)
    if as_json:
        print_json(found.to_json())
        return
    screen = console()
    for table in found.tables(jobs=jobs):
        screen.print(table)


def _audit_log(log: Path, cluster: str, out: Path | None, as_json: bool) -> None:
    """Print what an audit of a log finds, or write it."""
    found = audit_log(read_jobs(log), make_cluster(cluster, None))
    if out is not None:
        write_json(out, found.as_dict())
    if as_json:
        print_json(found.as_dict())
        return
    if found.left_out:
        warn(f"left out, so that the GPU time counts as idle: {found.left_out}")
    if found.beyond:
        warn(found.beyond)
    screen = console()
    for table in _tables(found):
        screen.print(table)


_HEADINGS = (
    "jobs",
    "GPU hours",
    "of all (%)",
    "waited (h)",
    "slowdown",
    "GPUs free (%)",
    "overtaken (%)",
    "wasted (GPU h)",
)
_MEANT = (
    "Averages of jobs. GPUs free: part of the waiting in which as many were free as the job asks for. Overtaken: jobs "
    "that waited for more than ten minutes while a later one of their size or larger started. Wasted: jobs that "
    "failed, were cancelled or ran into their limits."
)


def _tables(found: LogAudit) -> Iterator[Table | Text]:
    """For the terminal."""
    from rich.text import Text

    uses = [(use, hours, 100.0 * part) for use, hours, part in found.gpu_time.itertuples(index=False)]
    title = "Where the GPU time went, from the first submission to the last"
    yield rows_table(uses, ("", "GPU hours", "of all (%)"), title)
    for name, table in found.parts.items():
        shown = table.assign(**{part: 100.0 * table[part] for part in ("gpu_share", "could_start", "overtaken")})
        rows = [
            [str(part) or "(none)", *(None if value != value else value for value in cells)]
            for part, *cells in shown.head(MOST_USERS).itertuples(index=False)
        ]
        yield rows_table(
            rows, ("GPUs" if name == "gpus" else name, *_HEADINGS), "by size" if name == "gpus" else f"by {name}"
        )
    yield Text(_MEANT, style="dim")
