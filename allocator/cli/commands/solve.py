"""``allocator solve``: one decision."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

from allocator.cli.options.shared import (
    InstanceArgument,
    InstanceChoiceOption,
    PolicyNameOption,
    SolverOption,
    console,
    print_json,
    warn,
)
from allocator.cli.options.values import make_policy
from allocator.cli.options.words import option
from allocator.instance import allocation_to_json, read_instance
from allocator.report.terminal import allocation_table
from allocator.results.views.fallbacks import fallbacks_told
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
