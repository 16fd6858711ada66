"""A column program as a file that other solvers read."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from formulations.columns.objectives import Objective
from formulations.columns.program import ColumnProgram
from formulations.columns.written import write_out
from formulations.reference.mixed_integer import Highs
from throughputs import InputError

_SUFFIXES = (".mps", ".lp")


def write_model(program: ColumnProgram, objective: Objective, path: Path | str, row_names: Sequence[str]) -> None:
    """Write a program with one linear objective as free MPS or, by the name of the file, in LP format.

    Shares are called `x[job,pool]`, variables of the objective `y[0]` and so on. Rows are `time[job]`,
    `capacity[pool]`, coupling rows by their names, and `objective[0]` and so on. LP format has round brackets.

    Parameters
    ----------
    program : one column for each job and pool, no floors, one slot.
    row_names : of the coupling rows.

    Raises
    ------
    InputError
        The name ends in neither `.mps` nor `.lp`, the folder does not exist, or the objective is a ratio.
    """
    path = Path(path)
    if path.suffix not in _SUFFIXES:
        raise InputError("program", field="file", found=str(path), expected=f"a name in {' or '.join(_SUFFIXES)}")
    if not path.parent.is_dir():
        raise InputError("program", field="file", found=str(path), expected="a folder that exists")
    written = write_out(program, [objective])
    if written.denominators[0] is not None:
        raise InputError("program", field="objective", found="a ratio", expected="a linear objective")
    cost = written.costs[0] * (1.0 if objective.maximise else -1.0)
    model = Highs(replace(written, cost=cost, maximise=objective.maximise)).solver
    # brackets are not allowed in LP format
    brackets = str.maketrans("[]", "()") if path.suffix == ".lp" else {}
    ways = program.columns
    shares = [f"x[{ways.jobs[i]},{ways.pools[m]}]" for i, m in zip(ways.job.tolist(), ways.pool.tolist(), strict=True)]
    rows = [*(f"time[{job}]" for job in ways.jobs), *(f"capacity[{pool}]" for pool in ways.pools), *row_names]
    R, V = written.matrix.shape
    for k, name in enumerate(_distinct(shares + [f"y[{k}]" for k in range(V - len(shares))])):
        model.passColName(k, name.translate(brackets))
    for k, name in enumerate(_distinct(rows + [f"objective[{k}]" for k in range(R - len(rows))])):
        model.passRowName(k, name.translate(brackets))
    model.writeModel(str(path))


def _distinct(names: Sequence[str]) -> list[str]:
    """The names without blanks, which the formats do not allow; where two became equal each has its position too."""
    plain = [re.sub(r"[^\w\[\],.\-]", "_", name) for name in names]
    return plain if len(set(plain)) == len(plain) else [f"{name}#{k}" for k, name in enumerate(plain)]
