"""Dominated columns, and the one order in which programs are solved, however jobs, columns and rows are listed."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from formulations.columns.objectives import Objective
from formulations.columns.program import ColumnProgram
from formulations.columns.written import Written
from throughputs.arrays import Flags, Floats, Positions
from throughputs.numerics import tie_order

# Of 2^64, without its whole part.
_GOLDEN_RATIO = 0x9E3779B97F4A7C15


def undominated(program: ColumnProgram, objectives: Sequence[Objective]) -> Flags:
    """(C,) columns that are needed: another of the same job and pool is never better than these.

    A column is dominated by one with no more GPUs and at least its value under every objective, and at least its
    throughput where that counts (floors, or an objective in throughput). Both run one job alone, have no upper bound
    and are in no coupling row; a whole column cannot take the place of shares. Of equal columns the first is kept.
    """
    columns, S = program.columns, program.n_slots
    C = columns.n_columns
    compared = [objective.compares(program) for objective in objectives]
    kept = np.ones(C, dtype=bool)
    if any(each is None for each in compared) or not C:
        return kept
    figures = [np.reshape(figure, (S, C)) for each in compared if each is not None for figure in each[0]]
    if (program.floors > 0).any() or any(each is not None and each[1] for each in compared):
        figures.append(columns.rate[None])
    worth = np.vstack([*figures, -columns.gpus.astype(np.float64)[None]])
    plain = (columns.partner < 0) & (program.most >= 1)
    if program.rows is not None:
        touched = np.zeros(C, dtype=bool)
        touched[program.rows.matrix.indices % C] = True
        plain &= ~touched
    kind = columns.job * len(columns.pools) + columns.pool
    lag = 1
    while True:
        near = np.flatnonzero(kind[lag:] == kind[:-lag]) if lag < C else np.zeros(0, dtype=np.intp)
        if not len(near):
            return kept
        first, second = near, near + lag
        both = plain[first] & plain[second]
        ahead = (worth[:, first] >= worth[:, second]).all(axis=0) & both
        behind = (worth[:, second] >= worth[:, first]).all(axis=0) & both
        ahead &= ~program.whole[first] | program.whole[second]
        behind &= ~program.whole[second] | program.whole[first]
        kept[second[ahead]] = False
        kept[first[behind & ~ahead]] = False
        lag += 1


def canonical_variables(program: ColumnProgram, written: Written) -> Positions:
    """(V,) the variables in an order that does not depend on how jobs, pools and columns are listed: jobs by label.

    Columns of a job are ordered by name of the pool, GPUs, batch size and partner, then by slot.
    """
    columns = program.columns
    C = program.n_variables
    slot, variable = np.divmod(np.arange(C), max(columns.n_columns, 1))
    pool, rank = _rank(columns.pools)[columns.pool], _rank(columns.jobs)
    # a pair stands at the earlier of its jobs in this order
    own, partner = rank[columns.job], np.where(columns.partner < 0, -1, rank[columns.partner])
    low, high = np.where(partner < 0, own, np.minimum(own, partner)), np.maximum(own, partner)
    order = np.lexsort(
        (slot, columns.batch_size[variable], columns.gpus[variable], pool[variable], high[variable], low[variable])
    )
    return np.append(order, C + _extras_order(written, order, len(written.lower) - C))


def _extras_order(written: Written, order: Positions, extras: int) -> Positions:
    """(E,) the variables of the objectives, by the first column they share a row with."""
    C = len(order)
    place = np.argsort(order)
    entries = written.matrix.tocoo()
    row, variable = entries.coords
    first = np.full(written.matrix.shape[0], C)
    of_columns = variable < C
    np.minimum.at(first, row[of_columns], place[variable[of_columns]])
    key = np.full(extras, C)
    np.minimum.at(key, variable[~of_columns] - C, first[row[~of_columns]])
    return np.argsort(key, kind="stable")


def canonical_rows(written: Written) -> Positions:
    """(rows,) the rows in an order that depends on their content alone, once the variables are in theirs."""
    matrix = written.matrix
    R = matrix.shape[0]
    row = np.repeat(np.arange(R), np.diff(matrix.indptr))
    first = np.full(R, matrix.shape[1])
    np.minimum.at(first, row, matrix.indices)
    content = np.bincount(row, matrix.data * _weights(matrix.indices), minlength=R)
    limits = [np.nan_to_num(limit, posinf=1e300, neginf=-1e300) for limit in (written.row_upper, written.row_lower)]
    return np.lexsort((*limits, content, np.diff(matrix.indptr), first))


def _weights(numbers: NDArray[np.integer[Any]]) -> Floats:
    """One weight for each whole number, from 0.5 to 1.5: fractional parts of multiples of the golden ratio."""
    mixed = (numbers.astype(np.uint64) + np.uint64(1)) * np.uint64(_GOLDEN_RATIO)
    return np.asarray(0.5 + (mixed >> np.uint64(11)).astype(np.float64) * 2.0**-53)


def _rank(labels: Sequence[Hashable]) -> Positions:
    """(N,) rank of each label in the order of ties."""
    return np.argsort(tie_order(labels))
