"""A column program as a file that other solvers read."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from formulations.columns.objectives import Objective
from formulations.columns.program import ColumnProgram
from formulations.columns.written import write_out
from formulations.reference.mixed_integer import Highs
from throughputs import InputError

_SUFFIXES = (".mps", ".lp")


def write_model(
    program: ColumnProgram, objective: Objective, path: Path | str, row_names: Sequence[str] | None = None
) -> None:
    """Write a program with one linear objective as free MPS or, by the name of the file, in LP format.

    Shares are called `x[job,pool]`, with GPUs, batch size and partner where columns differ in them and the slot where
    there are several; variables of the objective `y[0]` and so on. Rows are `time[job]`, `capacity[pool]`,
    `floor[job]`, coupling rows by their names, and `objective[0]` and so on. LP format has round brackets.

    Parameters
    ----------
    row_names : of the coupling rows; `row[0]` and so on when omitted.

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
    for k, name in enumerate(_distinct(_variables(program, len(written.lower)))):
        model.passColName(k, name.translate(brackets))
    for k, name in enumerate(_distinct(_rows(program, len(written.row_lower), row_names))):
        model.passRowName(k, name.translate(brackets))
    model.writeModel(str(path))


def _variables(program: ColumnProgram, count: int) -> list[str]:
    ways, slots = program.columns, range(program.n_slots)
    told = [f"{ways.jobs[i]},{ways.pools[m]}" for i, m in zip(ways.job.tolist(), ways.pool.tolist(), strict=True)]
    if len(set(told)) < len(told):
        further = np.stack([ways.gpus, ways.batch_size], axis=1).tolist()
        partners = [f",{ways.jobs[k]}" if k >= 0 else "" for k in ways.partner.tolist()]
        told = [f"{name},{g},{b}{k}" for name, (g, b), k in zip(told, further, partners, strict=True)]
    shares = [f"x[{name}{f',{slot}' if len(slots) > 1 else ''}]" for slot in slots for name in told]
    return shares + [f"y[{k}]" for k in range(count - len(shares))]


def _rows(program: ColumnProgram, count: int, given: Sequence[str] | None) -> list[str]:
    ways, slots = program.columns, range(program.n_slots)
    at = [f",{slot}" if len(slots) > 1 else "" for slot in slots]
    names = [f"time[{job}{slot}]" for slot in at for job in ways.jobs]
    names += [f"capacity[{pool}{slot}]" for slot in at for pool in ways.pools]
    names += [f"floor[{ways.jobs[i]}]" for i in np.flatnonzero(program.floors > 0).tolist()]
    coupling = 0 if program.rows is None else len(program.rows.lower)
    names += list(given or [f"row[{k}]" for k in range(coupling)])
    return names + [f"objective[{k}]" for k in range(count - len(names))]


def _distinct(names: Sequence[str]) -> list[str]:
    """The names without blanks, which the formats do not allow; where two became equal each has its position too."""
    plain = [re.sub(r"[^\w\[\],.\-]", "_", name) for name in names]
    return plain if len(set(plain)) == len(plain) else [f"{name}#{k}" for k, name in enumerate(plain)]
