"""Peak memory of one decision, in a process of its own.

``python -m benchmarks.solvers.memory`` is what that process runs: it draws the problem, warms up, notes how much is
resident, takes the decision and prints by how much the peak was higher, as JSON. Where the system does not tell
(anything but Linux), NumPy's and Python's own allocations are counted instead.
"""

from __future__ import annotations

import gc
import json
import subprocess
import sys
import tracemalloc
from dataclasses import fields, is_dataclass
from pathlib import Path as FilePath
from typing import Any

import numpy as np

from benchmarks.solvers.registry import DECISIONS, FAMILIES, PATHS, Path, Problem, Program

_STATUS = FilePath("/proc/self/status")
_RESET = FilePath("/proc/self/clear_refs")


def peak_memory(problem: Problem, path: Path) -> dict[str, Any]:
    """``memory_bytes`` above the input, and ``memory_factor``: input and these together, as a multiple of the input."""
    asked = [problem.decision.name, problem.family.name, problem.n_jobs, problem.n_types, path.name, problem.seed]
    command = [sys.executable, "-m", "benchmarks.solvers.memory", *map(str, asked)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        return {"memory_bytes": None, "memory_factor": None}
    figures = json.loads(done.stdout)
    extra, given = figures["extra_bytes"], figures["input_bytes"]
    return {"memory_bytes": extra, "memory_factor": (given + extra) / given}


def main(decision: str, family: str, n_jobs: str, n_types: str, path: str, seed: str) -> None:
    """Take one decision and print what it took."""
    wanted, registered = DECISIONS[decision], FAMILIES[family]
    small = Problem(wanted, registered, 200, int(n_types), int(seed))
    PATHS[path].prepare(small)(small.pose())
    problem = Problem(wanted, registered, int(n_jobs), int(n_types), int(seed))
    program, solve = problem.pose(), PATHS[path].prepare(problem)
    gc.collect()
    if _RESET.exists():
        _RESET.write_text("5")  # the high-water mark starts anew
        before = _kilobytes("VmRSS")
        solve(program)
        extra = max(0, _kilobytes("VmHWM") - before) * 1024
    else:
        tracemalloc.start()
        solve(program)
        extra = tracemalloc.get_traced_memory()[1]
    print(json.dumps({"extra_bytes": extra, "input_bytes": _input_bytes(program)}))


def _input_bytes(program: Program) -> int:
    """Rates, gang sizes, capacity and the objective's figures."""
    polytope, objective = program.polytope, program.objective
    own = [getattr(objective, field.name) for field in fields(objective)] if is_dataclass(objective) else []
    arrays = [polytope.rates, polytope.scale_factors, polytope.capacity, *own]
    return sum(array.nbytes for array in arrays if isinstance(array, np.ndarray))


def _kilobytes(name: str) -> int:
    return next(int(line.split()[1]) for line in _STATUS.read_text().splitlines() if line.startswith(f"{name}:"))


if __name__ == "__main__":
    import benchmarks.solvers  # noqa: F401  registers everything

    main(*sys.argv[1:])
