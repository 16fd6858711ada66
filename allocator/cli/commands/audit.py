"""``allocator audit``: what an allocation guarantees, and to whom it does least."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

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
from allocator.cli.options.words import option
from allocator.instance import read_instance
from throughputs.files import write_text


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
