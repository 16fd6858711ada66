"""A package with one policy, as ``allocator policies new`` writes it: what its author changes is one method."""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path

from allocator.registry import list_policies
from throughputs import InputError
from throughputs.files import write_text

_PYPROJECT = """\
[build-system]
requires = ["setuptools>=61"]
build-backend = "setuptools.build_meta"

[project]
name = "{package}"
version = "0.1.0"
description = "A scheduling policy for GPU clusters."
requires-python = ">=3.11"
dependencies = ["cluster-allocator"]

# The name that users write, and the class behind it.
[project.entry-points."allocator.policies"]
{name} = "{name}:{policy}"

[tool.setuptools]
py-modules = ["{name}"]
"""

_POLICY = '''\
"""A scheduling policy, stated in cvxpy."""

from dataclasses import dataclass

from allocator import ConvexPolicy


@dataclass(frozen=True)
class {policy}(ConvexPolicy):
    """Proportional fairness in which no job has more than a part of the cluster.

        max_x  sum_i w_i log(T_i.x_i)        s_i sum_j x_ij <= q sum_j c_j for every job i

    Parameters
    ----------
    largest_part : q, the part of all GPUs that one job may have, 0 to 1; `--set policy.largest_part=0.3` changes it.
    """

    largest_part: float = 0.5

    paper = "where it is from"
    program = "max_x sum_i w_i log(T_i.x_i), s_i sum_j x_ij <= q sum_j c_j"

    def statement(self, cp, shares, state):
        """Objective and constraints; shares of time and `state.rates` have a row for each job, a column for each type.

        That a job has one life and a type so many GPUs need not be said.
        """
        throughput = cp.sum(cp.multiply(state.rates, shares), axis=1)
        gpus = cp.multiply(state.scale_factors, cp.sum(shares, axis=1))
        welfare = state.priority_weights @ cp.log(throughput)
        return cp.Maximize(welfare), [gpus <= self.largest_part * state.capacity.sum()]
'''

_TEST = '''\
"""What every policy does, and what this one does."""

import pandas as pd
from allocator import solve
from allocator.testing import check_policy

from {name} import {policy}


def test_it_does_what_every_policy_does():
    check_policy({policy})


def test_no_job_has_more_than_its_part():
    speeds = pd.DataFrame({{"v100": [4.0, 2.0], "k80": [1.0, 1.0]}}, index=["resnet", "lstm"])
    answer = solve({policy}(largest_part=0.25), speeds, "v100:1,k80:1")
    assert answer.status == "optimal"
    assert (answer.shares.sum(axis=1) <= 0.5 + 1e-6).all()
'''

_README = """\
# {name}

A scheduling policy: `statement` in [{name}.py]({name}.py) says what it maximises, and under which constraints.
Try it: `allocator compare --import ./{name}.py --policies {name},max_min_fairness_perf --jobs 20`; test it:
`pip install pytest`, then `pytest`.
Installed (`pip install .`) it is known to every command without `--import`, by the entry point in `pyproject.toml`.
"""


def write_package(name: str, folder: Path) -> tuple[Path, ...]:
    """Write the package of a policy `name` into a new folder; the files that were written.

    Raises
    ------
    InputError
        A name that is none, or that a policy or module has, or a folder that is there and not empty.
    """
    if not re.fullmatch(r"[a-z][a-z0-9]*(_[a-z0-9]+)*", name):
        expected = "a name in lower case, letters, digits and single underscores, as in least_slack"
        raise InputError("allocator policies new", field="NAME", found=name, expected=expected)
    if name in {entry.name for entry in list_policies()} or find_spec(name) is not None:
        expected = "a name that no policy and no module has"
        raise InputError("allocator policies new", field="NAME", found=name, expected=expected)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError("allocator policies new", field="--out", found=str(folder), expected="a new or empty folder")
    policy = "".join(part.capitalize() for part in name.split("_"))
    fields = {"name": name, "policy": policy, "package": name.replace("_", "-")}
    texts = {"pyproject.toml": _PYPROJECT, "README.md": _README, f"{name}.py": _POLICY, f"test_{name}.py": _TEST}
    folder.mkdir(parents=True, exist_ok=True)
    for file, text in texts.items():
        write_text(folder / file, text.format(**fields))
    return tuple(folder / file for file in texts)
