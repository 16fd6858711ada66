"""``allocator audit``: what an allocation guarantees, and to whom it does least."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from allocator.audit import audit
from allocator.cli.options.shared import (
    InstanceArgument,
    InstanceChoiceOption,
    JsonOption,
    PolicyNameOption,
    SeedOption,
    SolverOption,
    console,
    print_json,
)
from allocator.cli.options.values import make_policy
from allocator.instance import read_instance
from throughputs.files import write_text


def audit_command(
    instance: InstanceArgument,
    policy: PolicyNameOption,
    solver: SolverOption = None,
    choice: InstanceChoiceOption = None,
    seed: SeedOption = 0,
    probed_jobs: Annotated[
        int, typer.Option("--probed-jobs", help="Jobs that are made to misreport; 0 for no probe.", min=0)
    ] = 8,
    misreports: Annotated[int, typer.Option("--misreports", help="Misreports of each of them.", min=0)] = 8,
    jobs: Annotated[int, typer.Option("--jobs", help="Jobs to explain in the table, the slowest first.", min=0)] = 10,
    out: Annotated[
        Path | None, typer.Option("--out", help="Also write the audit as JSON to this file.", metavar="FILE")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Audit the allocation of a policy: sharing incentive, envy, efficiency, strategy, utilisation, prices.

    Every property comes with its value and its worst job, every job with the reason why it runs where it runs.

    An instance has the cluster and its jobs, in steps/s by type (`python -m pydoc allocator.instance` has all fields):

    {"cluster": {"v100": 4}, "jobs": [{"job_id": 0, "throughputs": {"v100": 3.1}, "scale_factor": 1}]}
    """
    state, chosen = read_instance(instance), make_policy(policy, solver, choice)
    found = audit(chosen.allocate(state), state, chosen, seed=seed, probed_jobs=probed_jobs, misreports=misreports)
    if out is not None:
        write_text(out, json.dumps(found.to_json(), indent=2, allow_nan=False, default=str) + "\n")
    if as_json:
        print_json(found.to_json())
        return
    screen = console()
    for table in found.tables(jobs=jobs):
        screen.print(table)
