"""A package with one policy, as ``allocator policies new`` writes it: what its author changes is one method."""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path

from allocator.registry import list_policies
from throughputs import InputError
from throughputs.errors import expect, expect_one_of
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

_SHARES = '''\
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

_CHECK = '''\
"""What every policy does, and what this one does."""

{imports}
from allocator.testing import check_policy

from {name} import {policy}


def test_it_does_what_every_policy_does():
    check_policy({policy})

'''

_SHARES_TEST = """
def test_no_job_has_more_than_its_part():
    speeds = pd.DataFrame({{"v100": [4.0, 2.0], "k80": [1.0, 1.0]}}, index=["resnet", "lstm"])
    answer = solve({policy}(largest_part=0.25), speeds, "v100:1,k80:1")
    assert answer.status == "optimal"
    assert (answer.shares.sum(axis=1) <= 0.5 + 1e-6).all()
"""

_ORDER = '''\
"""A scheduling policy that is an order: jobs in line by a key, each takes its gang where there is room."""

from dataclasses import dataclass

import numpy as np
from allocator import Need, OrderPolicy


@dataclass(frozen=True)
class {policy}(OrderPolicy):
    """Jobs with the least GPU time go first; who runs gives way only to one that has clearly had less.

    Parameters
    ----------
    margin : GPU seconds that tell the two apart; `--set policy.margin=0` lets jobs take turns at every event.
    """

    margin: float = 3600.0

    needs = Need.FRACTIONS | Need.SERVICE  # what `key` reads of the state
    in_order_of_rows = True  # of equals, who came first
    paper = "where it is from"
    program = "in order of G_i, less the margin for those that run"

    def key(self, state):
        """(N,) the smallest first."""
        runs = np.isin(np.arange(state.n_jobs), state.running.jobs)
        return state.gpu_seconds - self.margin * runs
'''

_ORDER_TEST = """
def test_who_comes_later_goes_first_once_the_other_has_had_more():
    trace = Trace(["job"] * 2, [1, 1], [7200.0, 600.0], [0.0, 4000.0], duration=[7200.0, 600.0])
    jobs = simulate(trace, "gpu:1", {policy}(margin=1000.0)).jobs
    assert jobs["preemptions"].tolist() == [1, 0]
    assert simulate(trace, "gpu:1", {policy}(margin=1e6)).jobs["preemptions"].sum() == 0
"""

_PLAN = '''\
"""A planner with a memory: jobs take turns, and who runs keeps its GPUs until its turn is over."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from allocator import Assignment, Need, Plan, PlanPolicy, PlanStep
from allocator.policies.base.ordering import fill_state
from allocator.protocol.plan import JobMemory, of_each_job


@dataclass(eq=False)
class Began(JobMemory):
    """When the turn of each job began, seconds."""

    clock: Any = of_each_job(-np.inf)


@dataclass(frozen=True)
class {policy}(PlanPolicy):
    """Turns of `seconds`; those that have had the least GPU time go next."""

    seconds: float = 3600.0

    needs = Need.SERVICE
    in_order_of_rows = True  # of equals, who came first
    paper = "where it is from"
    program = "in order of G_i, those first whose turn is not over"

    def new_memory(self):
        """What `plan` brings up to date; checkpoints keep it."""
        return Began()

    def plan(self, state, memory):
        """Who runs until the first turn is over, or until something happens."""
        memory.align(state.throughputs.jobs)
        runs = np.isin(np.arange(state.n_jobs), state.running.jobs)
        over = ~runs | (state.clock >= memory.clock + self.seconds)
        chosen, pool = fill_state(state, np.lexsort([state.gpu_seconds, over]))
        memory.clock[chosen[over[chosen]]] = state.clock
        left = (memory.clock[chosen] + self.seconds - state.clock).min(initial=np.inf)
        return Plan((PlanStep(Assignment.of(chosen, pool, state.scale_factors[chosen]), left),))
'''

_PLAN_TEST = """
def test_a_turn_is_not_cut_short():
    trace = Trace(["job"] * 2, [1, 1], [3000.0, 600.0], [0.0, 10.0], duration=[3000.0, 600.0])
    jobs = simulate(trace, "gpu:1", {policy}(seconds=2000.0)).jobs
    assert jobs["completion_time"].tolist() == [3690.0, 2630.0]  # each start takes 30 s
"""

_SELECTION = '''\
"""A selection: the policy chooses the number of GPUs, one column per job, by a program over configurations."""

from dataclasses import dataclass

import numpy as np
from allocator import Assignment, Need, Plan, PlanPolicy
from formulations.columns import ColumnProgram, Total, solve_columns


@dataclass(frozen=True)
class {policy}(PlanPolicy):
    """Run every job with the number of GPUs that makes the sum of speed-ups largest, and change it for a gain only.

    Parameters
    ----------
    gain : what a job that goes on as it runs counts more, as a part of its speed-up.
    """

    gain: float = 0.1

    needs = Need.CONFIGURATIONS
    paper = "where it is from"
    program = "max sum_c T_c / min_c' T_c' y_c, y_c in {{0, 1}}, one column per job, sum_c g_c y_c <= c_j"

    def plan(self, state, memory):
        """Who runs on how many GPUs until the next arrival or completion."""
        ways, now = state.configurations, state.running
        slowest = np.full(ways.n_jobs, np.inf)
        np.minimum.at(slowest, ways.job, ways.rate)
        worth = ways.rate / slowest[ways.job]
        for job, pool, gpus in zip(now.jobs, now.pool, now.gpus, strict=True):
            worth[(ways.job == job) & (ways.pool == pool) & (ways.gpus == gpus)] *= 1 + self.gain
        program = ColumnProgram(ways, state.capacity, whole=True)
        chosen = solve_columns(program, [Total(worth), Total(ways.gpus, maximise=False)]).x > 0.5
        return Plan.until_next_event(Assignment.of(ways.job[chosen], ways.pool[chosen], ways.gpus[chosen]))
'''

_SELECTION_TEST = """
def test_a_job_that_is_alone_has_more_gpus_than_it_asked_for():
    trace = Trace(["LM (batch size 20)"], [1], [1e5], [0.0])
    assert simulate(trace, "v100:4", {policy}()).rounds["gpu_count"].tolist() == [2]
"""

_SIMULATES = "from allocator import Trace, simulate"
KINDS = {
    "shares": (_SHARES, "import pandas as pd\nfrom allocator import solve", _SHARES_TEST),
    "order": (_ORDER, _SIMULATES, _ORDER_TEST),
    "plan": (_PLAN, _SIMULATES, _PLAN_TEST),
    "selection": (_SELECTION, _SIMULATES, _SELECTION_TEST),
}
"""By what a policy answers with: the policy, what its test imports, and the test."""

_README = """\
# {name}

A scheduling policy: [{name}.py]({name}.py) says what it decides.
Try it: `allocator compare --import ./{name}.py --policies {name},max_min_fairness_perf --jobs 20`; test it:
`pip install pytest`, then `pytest`.
Installed (`pip install .`) it is known to every command without `--import`, by the entry point in `pyproject.toml`.
"""


def write_package(name: str, folder: Path, kind: str = "shares") -> tuple[Path, ...]:
    """Write the package of a policy `name` of one of the `KINDS` into a new folder; the files that were written.

    Raises
    ------
    InputError
        A name that is none, or that a policy or module has, another kind, or a folder that is there and not empty.
    """
    expect_one_of(kind, KINDS, "allocator policies new", "--kind")
    expect(
        re.fullmatch(r"[a-z][a-z0-9]*(_[a-z0-9]+)*", name),
        "allocator policies new",
        "NAME",
        name,
        "a name in lower case, letters, digits and single underscores, as in least_slack",
    )
    if name in {entry.name for entry in list_policies()} or find_spec(name) is not None:
        expected = "a name that no policy and no module has"
        raise InputError("allocator policies new", field="NAME", found=name, expected=expected)
    expect(
        not folder.exists() or (folder.is_dir() and not any(folder.iterdir())),
        "allocator policies new",
        "--out",
        str(folder),
        "a new or empty folder",
    )
    policy = "".join(part.capitalize() for part in name.split("_"))
    code, imports, test = KINDS[kind]
    fields = {"name": name, "policy": policy, "package": name.replace("_", "-"), "imports": imports}
    texts = {"pyproject.toml": _PYPROJECT, "README.md": _README, f"{name}.py": code, f"test_{name}.py": _CHECK + test}
    folder.mkdir(parents=True, exist_ok=True)
    for file, text in texts.items():
        write_text(folder / file, text.format(**fields))
    return tuple(folder / file for file in texts)
