"""A column program with its objectives, written out in matrices.

Whole columns keep rows that shares of them need not: capacity in units of several GPUs, rounded down. Where a pool has
767 GPUs and nearly all columns take multiples of 4, the relaxation puts the last 3 GPUs to use as well and whole
columns cannot. Divided by d and rounded down on both sides,

    sum_c floor(gpus_c / d) x_c  <=  floor(capacity / d),

a row of capacity holds for every whole x and cuts that off, so that the bound of the relaxation comes close to the
optimum.

Source: V. Chvatal, "Edmonds polytopes and a hierarchy of combinatorial problems", Discrete Mathematics 4 (1973).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from formulations.columns.objectives import Objective, Terms
from formulations.columns.program import ColumnProgram
from formulations.reference.mixed_integer import MixedProgram
from throughputs.arrays import Floats, Positions


@dataclass(frozen=True, eq=False, kw_only=True)
class Written(MixedProgram):
    """A mixed program with the costs of each objective; `cost` is that which is asked for at the time.

    Variables z: V shares of columns, slot after slot, then those of the objectives. Rows: time (N S), capacity (M S),
    floors (those above 0), coupling rows, those of the objectives. Every z is bounded, so there is always an optimum
    or no point at all.

    Attributes
    ----------
    costs : for each objective (V,), to be made as large as possible; of a ratio the numerator.
    denominators : for each objective what it is divided by (V,), None for nothing.
    capacity_rows : positions of the rows of pools, slot after slot.
    floor_rows, floor_jobs : positions of the rows of floors, and the job of each.
    coupling_rows : positions of the coupling rows.
    """

    costs: tuple[Floats, ...]
    denominators: tuple[Floats | None, ...]
    capacity_rows: Positions
    floor_rows: Positions
    floor_jobs: Positions
    coupling_rows: Positions

    def of_columns(self, some: Positions) -> Written:
        """The same over some of the variables, in the order given."""
        taken = super().of_columns(some)
        taken.matrix.sort_indices()
        return replace(
            taken,
            costs=tuple(cost[some] for cost in self.costs),
            denominators=tuple(None if each is None else each[some] for each in self.denominators),
        )

    def of_rows(self, order: Positions) -> Written:
        """The same with its rows in another order."""
        place = np.argsort(order)
        positions = {name: place[getattr(self, name)] for name in ("capacity_rows", "floor_rows", "coupling_rows")}
        limits = {name: getattr(self, name)[order] for name in ("row_lower", "row_upper")}
        return replace(self, matrix=self.matrix[order], **limits, **positions)

    def counts(self, cost: Floats) -> bool:
        """Whether `cost` z is a whole number at every point."""
        return not (cost[~self.whole].any() or (cost != np.rint(cost)).any())

    def violation(self, point: Floats) -> float:
        """Largest violation of a row or a bound, relative to its limit where that is above 1."""
        values = np.concatenate([self.matrix @ point, point])
        limits = np.concatenate([self.row_upper, self.upper, -self.row_lower, -self.lower])
        over = np.concatenate([values, -values]) - limits
        size = np.maximum(np.abs(np.where(np.isfinite(limits), limits, 0.0)), 1.0)
        return float((over / size).max(initial=0.0))

    def dual(self, cost: Floats, multipliers: Floats) -> tuple[float, Floats]:
        """A bound that no z exceeds by weak duality, whatever the multipliers y (rows,), and the reduced costs d (V,)::

            c z  =  y (A z) + (c - A' y) z
                 <=  sum_r max(y_r row_lower_r, y_r row_upper_r) + sum_k max(d_k lower_k, d_k upper_k)

        A multiplier that a missing limit would make infinite is taken for 0.
        """
        y = np.nan_to_num(multipliers, posinf=0.0, neginf=0.0)
        limit = np.where(y > 0, self.row_upper, self.row_lower)
        y, limit = (np.where(np.isfinite(limit), each, 0.0) for each in (y, limit))
        left = cost - self.matrix.T @ y
        best = np.where(left > 0, self.upper, self.lower)
        return float(np.add.reduce(y * limit)) + float(np.add.reduce(left * best)), left


def write_out(program: ColumnProgram, objectives: Sequence[Objective]) -> Written:
    """The program and its objectives as matrices, in the order in which columns, jobs and rows are given."""
    from scipy.sparse import block_diag, csr_array, diags_array, hstack, vstack

    columns, S, M = program.columns, program.n_slots, len(program.columns.pools)
    N, C = columns.n_jobs, program.n_variables
    terms = [objective.terms(program) for objective in objectives]
    extras = [len(each.extra_cost) for each in terms]
    V = C + sum(extras)
    loads = columns.usage @ diags_array(program.counts[columns.job])
    held = np.flatnonzero(program.floors > 0)
    floors = diags_array(1.0 / program.floors[held]) @ columns.rates.tocsr()[held]
    blocks: list[tuple[Any, Any, Any]] = [
        (_in_slots(block_diag, columns.time, S), np.tile(np.where(program.exactly, 1.0, -np.inf), S), np.ones(N * S)),
        (_in_slots(block_diag, loads, S), np.full(M * S, -np.inf), np.ravel(np.reshape(program.capacity, (M, S)).T)),
        (_in_slots(hstack, floors, S), np.ones(len(held)), np.full(len(held), np.inf)),
    ]
    if program.rows is not None:
        blocks.append((program.rows.matrix, program.rows.lower, program.rows.upper))
    padded = blocks
    if V > C:
        padded = [(hstack([rows, csr_array((rows.shape[0], V - C))]), low, high) for rows, low, high in blocks]
    at, own = C, list(zip(terms, extras, strict=True))
    for each, E in own:
        if E:
            R = each.rows.shape[0]
            after = csr_array((R, V - at - E))
            rows = hstack([each.rows, csr_array((R, at - C)), each.extra_rows, after])
            padded.append((rows, np.zeros(R), np.full(R, np.inf)))
        at += E
    return Written(
        cost=np.zeros(V),
        matrix=csr_array(vstack([rows for rows, _, _ in padded], format="csr")),
        row_lower=np.concatenate([low for _, low, _ in padded]),
        row_upper=np.concatenate([high for _, _, high in padded]),
        lower=np.concatenate([np.zeros(C), *(np.broadcast_to(each.least, E) for each, E in own)]),
        upper=np.concatenate([np.tile(program.most, S), *(np.broadcast_to(each.most, E) for each, E in own)]),
        whole=np.concatenate([np.tile(program.whole, S), *(np.broadcast_to(each.whole, E) for each, E in own)]),
        costs=tuple(_cost(objectives, terms, extras, C, k) for k in range(len(terms))),
        denominators=tuple(
            None if each.denominator is None else np.concatenate([each.denominator, np.zeros(V - C)]) for each in terms
        ),
        capacity_rows=N * S + np.arange(M * S),
        floor_rows=(N + M) * S + np.arange(len(held)),
        floor_jobs=held,
        coupling_rows=(N + M) * S + len(held) + np.arange(0 if program.rows is None else len(program.rows.lower)),
    )


def _in_slots(together: Callable[[list[Any]], Any], rows: Any, slots: int) -> Any:
    """The rows of one slot put together for all of them."""
    return rows if slots == 1 else together([rows] * slots)


def _cost(objectives: Sequence[Objective], terms: list[Terms], extras: list[int], n_shares: int, k: int) -> Floats:
    """(V,) of objective k, its sign such that more is better."""
    own = [terms[k].extra_cost if j == k else np.zeros(E) for j, E in enumerate(extras)]
    cost = np.concatenate([np.broadcast_to(terms[k].cost, n_shares), *own])
    return cost if objectives[k].maximise else -cost


_MOST = 0.75
"""A divisor is tried where at least this share of the numbers of GPUs from it on, two at least, are multiples of it."""


def rounded_rows(written: Written) -> tuple[Any, Floats, Floats] | None:
    """Rows (R, V) and their limits (R,), by pool and divisor ascending; None where there are none to add.

    Rows of capacity count whose variables are all whole, and divisors that leave something of the limit.
    """
    from scipy.sparse import csr_array, vstack

    rows, limits = [], []
    for at in written.capacity_rows.tolist():
        row, limit = written.matrix[[at]].tocsr(), float(written.row_upper[at])
        gpus = row.data
        if not written.whole[row.indices].all() or (gpus != np.rint(gpus)).any():
            continue
        numbers = np.unique(gpus[gpus > 1])
        for k, divisor in enumerate(numbers[:-1].tolist()):
            if limit % divisor and (numbers[k:] % divisor == 0).mean() >= _MOST:
                rows.append(csr_array((np.floor(gpus / divisor), row.indices, row.indptr), shape=row.shape))
                limits.append(np.floor(limit / divisor))
    return (csr_array(vstack(rows, format="csr")), np.full(len(rows), -np.inf), np.array(limits)) if rows else None
