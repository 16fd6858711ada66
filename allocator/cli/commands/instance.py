"""``allocator solve`` and ``allocator audit``: one decision, and what it guarantees, and to whom it does least."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

from allocator.audit import audit
from allocator.cli.options.groups import option
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
from allocator.cli.options.values import make_policy
from allocator.instance import allocation_to_json, read_instance
from allocator.report.terminal import allocation_table
from allocator.results.summary import fallbacks_told
from throughputs.files import write_text


def solve_command(
    instance: InstanceArgument,
    policy: PolicyNameOption,
    solver: SolverOption = None,
    choice: InstanceChoiceOption = None,
    out: Annotated[Path | None, option("--out", "Write the JSON here instead of to the screen.", "FILE")] = None,
    table: Annotated[bool, option("--table", "Print a table for people instead of JSON.")] = False,
) -> None:
    """Solve one allocation problem: who gets which share of time on which accelerator type.

    Prints the allocation with its objective, proven gap and the price of each accelerator type.

    An instance has the cluster and its jobs, in steps/s by type (`python -m pydoc allocator.instance` has all fields):

    {"cluster": {"v100": 4}, "jobs": [{"job_id": 0, "throughputs": {"v100": 3.1}, "scale_factor": 1}]}
    """
    acting = make_policy(policy, solver, choice)
    allocation = acting.allocate(read_instance(instance).declared(acting.needs))
    warn(fallbacks_told(policy, [allocation], 1))
    answer = allocation_to_json(allocation)
    if out is not None:
        write_text(out, json.dumps(answer, indent=2, allow_nan=False) + "\n")
    if table:
        console().print(allocation_table(allocation))
    elif out is None:
        print_json(answer)


def audit_command(
    instance: InstanceArgument,
    policy: PolicyNameOption,
    solver: SolverOption = None,
    choice: InstanceChoiceOption = None,
    seed: SeedOption = 0,
    probed_jobs: Annotated[int, option("--probed-jobs", "Jobs that are made to misreport; 0 for no probe.", min=0)] = 8,
    misreports: Annotated[int, option("--misreports", "Misreports of each of them.", min=0)] = 8,
    jobs: Annotated[int, option("--jobs", "Jobs to explain in the table, the slowest first.", min=0)] = 10,
    out: Annotated[Path | None, option("--out", "Also write the audit as JSON to this file.", "FILE")] = None,
    as_json: JsonOption = False,
) -> None:
    """Audit the allocation of a policy: sharing incentive, envy, efficiency, strategy, utilisation, prices.

    Every property comes with its value and its worst job, every job with the reason why it runs where it runs.

    An instance has the cluster and its jobs, in steps/s by type (`python -m pydoc allocator.instance` has all fields):

    {"cluster": {"v100": 4}, "jobs": [{"job_id": 0, "throughputs": {"v100": 3.1}, "scale_factor": 1}]}
    """
    chosen, state = make_policy(policy, solver, choice), read_instance(instance)
    found = audit(chosen.allocate(state), state, chosen, seed=seed, probed_jobs=probed_jobs, misreports=misreports)
    if out is not None:
        write_text(out, json.dumps(found.to_json(), indent=2, allow_nan=False, default=str) + "\n")
    if as_json:
        print_json(found.to_json())
        return
    screen = console()
    for table in found.tables(jobs=jobs):
        screen.print(table)
