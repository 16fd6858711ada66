"""The 26 job types of the published workload, and how each is started on a real cluster.

The order matters: the published generator picks by position. Source: D. Narayanan et al.,
"Heterogeneity-Aware Cluster Scheduling Policies for Deep Learning Workloads", OSDI 2020, public artifact
stanford-futuredata/gavel (MIT).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from throughputs.errors import InputError, did_you_mean
from throughputs.files import parse_toml


@dataclass(frozen=True)
class JobType:
    """A kind of training job.

    Attributes
    ----------
    name : key into a throughput table, for example ``"LM (batch size 20)"``.
    command : shell command; ``%s`` stands for the data directory.
    working_directory : where the command runs.
    num_steps_arg : flag of the command that takes the number of steps.
    distributed : whether a gang of several GPUs can train it.
    needs_data_dir : whether `command` takes a data directory.
    """

    name: str
    command: str
    working_directory: str
    num_steps_arg: str
    distributed: bool = True
    needs_data_dir: bool = True


def _published() -> Iterator[JobType]:
    """Those of ``data/job_types.toml``: of each model one for each of its batch sizes."""
    resource = files("throughputs") / "data" / "job_types.toml"
    for model, told in parse_toml(resource.read_text(encoding="utf-8"), resource.name).items():
        sizes, command = told.pop("batch_sizes", None), told.pop("command")
        for size in sizes or (None,):
            name = model if size is None else f"{model} (batch size {size})"
            yield JobType(name=name, command=command.format(size), **told)


JOB_TYPES = tuple(_published())
"""The published job types, in the published order."""

_BY_NAME = {job.name: job for job in JOB_TYPES}


def job_type(name: str) -> JobType:
    """The published job type of that name; raises `InputError` for any other."""
    if name not in _BY_NAME:
        hint = did_you_mean(name, _BY_NAME)
        raise InputError("job types", found=name, expected=f"one of the {len(JOB_TYPES)} published ones{hint}")
    return _BY_NAME[name]


def launch_columns(kinds: Sequence[JobType]) -> dict[str, Any]:
    """Columns of a trace that say how each job is started."""
    return {
        name: [getattr(kind, name) for kind in kinds]
        for name in ("command", "working_directory", "num_steps_arg", "needs_data_dir")
    }
