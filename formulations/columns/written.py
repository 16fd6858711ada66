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
from throughputs.arrays import Flags, Floats, Positions


@dataclass(frozen=True, eq=False)
class Written:
    """``lower <= A z <= upper``, ``least <= z <= most``, some z whole, with the costs of each objective.

    z: V shares of columns, slot after slot, then the variables of the objectives. Rows: time (N S), capacity (M S),
    floors (those above 0), those of the objectives, coupling rows. Every z is bounded, so there is always an optimum
    or no point at all.

    Attributes
    ----------
    matrix : A (rows, V), compressed by rows.
    lower, upper : limits of the rows; least, most : limits of the variables.
    whole : (V,) variables that are whole.
    costs : for each objective (V,), to be made as large as possible; of a ratio the numerator.
    denominators : for each objective what it is divided by (V,), None for nothing.
    capacity_rows : positions of the rows of pools, slot after slot.
    floor_rows, floor_jobs : positions of the rows of floors, and the job of each.
    coupling_rows : positions of the coupling rows.
    """

    matrix: Any
    lower: Floats
    upper: Floats
    least: Floats
    most: Floats
    whole: Flags
    costs: tuple[Floats, ...]
    denominators: tuple[Floats | None, ...]
    capacity_rows: Positions
    floor_rows: Positions
    floor_jobs: Positions
    coupling_rows: Positions

    def with_rows(self, matrix: Any, lower: Floats, upper: Floats) -> Written:
        """The same with more rows at the end."""
        from scipy.sparse import csr_array, vstack

        return replace(
            self,
            matrix=csr_array(vstack([self.matrix, matrix], format="csr")),
            lower=np.concatenate([self.lower, lower]),
            upper=np.concatenate([self.upper, upper]),
        )

    def of_variables(self, kept: Positions) -> Written:
        """The same over some of the variables, in the order given."""
        matrix = self.matrix[:, kept].tocsr()
        matrix.sort_indices()
        return replace(
            self,
            matrix=matrix,
            least=self.least[kept],
            most=self.most[kept],
            whole=self.whole[kept],
            costs=tuple(cost[kept] for cost in self.costs),
            denominators=tuple(None if each is None else each[kept] for each in self.denominators),
        )

    def with_row_order(self, order: Positions) -> Written:
        """The same with its rows in another order."""
        place = np.empty_like(order)
        place[order] = np.arange(len(order))
        return replace(
            self,
            matrix=self.matrix[order],
            lower=self.lower[order],
            upper=self.upper[order],
            capacity_rows=place[self.capacity_rows],
            floor_rows=place[self.floor_rows],
            coupling_rows=place[self.coupling_rows],
        )

    def counts(self, cost: Floats) -> bool:
        """Whether `cost` z is a whole number at every point."""
        return not (cost[~self.whole].any() or (cost != np.rint(cost)).any())

    def violation(self, z: Floats) -> float:
        """Largest violation of a row or a bound, relative to its limit where that is above 1."""
        rows = self.matrix @ z
        worst = 0.0
        for over, limit in (
            (rows - self.upper, self.upper),
            (self.lower - rows, self.lower),
            (z - self.most, self.most),
            (self.least - z, self.least),
        ):
            if len(over):
                worst = max(
                    worst,
                    float(
                        (over / np.maximum(np.abs(limit), 1.0, where=np.isfinite(limit), out=np.ones(len(limit)))).max()
                    ),
                )
        return worst

    def dual_bound(self, cost: Floats, multipliers: Floats) -> float:
        """No z allowed has more than this of `cost` z, whatever the multipliers (rows,); see `dual`."""
        return self.dual(cost, multipliers)[0]

    def dual(self, cost: Floats, multipliers: Floats) -> tuple[float, Floats]:
        """A bound on `cost` z by weak duality, whatever the multipliers y (rows,), and the reduced costs d (V,)::

            c z  =  y (A z) + (c - A' y) z  <=  sum_r max(y_r lower_r, y_r upper_r) + sum_k max(d_k least_k, d_k most_k)

        A multiplier that a missing limit would make infinite is taken for 0.
        """
        y = np.nan_to_num(multipliers, posinf=0.0, neginf=0.0)
        y = np.where((y > 0) & np.isinf(self.upper), 0.0, y)
        y = np.where((y < 0) & np.isinf(self.lower), 0.0, y)
        limit = np.where(y > 0, self.upper, np.where(y < 0, self.lower, 0.0))
        left = cost - self.matrix.T @ y
        best = np.where(left > 0, self.most, self.least)
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
    at = C
    for each, E in zip(terms, extras, strict=True):
        R = len(each.lower)
        after = csr_array((R, V - at - E))
        rows = hstack([each.rows, csr_array((R, at - C)), each.extra_rows, after])
        padded.append((rows, each.lower, each.upper))
        at += E
    return Written(
        matrix=csr_array(vstack([rows for rows, _, _ in padded], format="csr")),
        lower=np.concatenate([low for _, low, _ in padded]),
        upper=np.concatenate([high for _, _, high in padded]),
        least=np.concatenate([np.zeros(C), *(each.least for each in terms)]),
        most=np.concatenate([np.tile(program.most, S), *(each.most for each in terms)]),
        whole=np.concatenate([np.tile(program.whole, S), *(each.whole for each in terms)]),
        costs=tuple(_cost(objectives, terms, extras, k) for k in range(len(terms))),
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


def _cost(objectives: Sequence[Objective], terms: list[Terms], extras: list[int], k: int) -> Floats:
    """(V,) of objective k, its sign such that more is better."""
    own = [terms[k].extra_cost if j == k else np.zeros(E) for j, E in enumerate(extras)]
    cost = np.concatenate([terms[k].cost, *own])
    return cost if objectives[k].maximise else -cost


_MOST = 0.75
"""A divisor is tried where at least this share of the numbers of GPUs from it on, two at least, are multiples of it."""


def rounded_rows(written: Written) -> tuple[Any, Floats] | None:
    """Rows (R, V) and their upper limits (R,), by pool and divisor ascending; None where there are none to add.

    Rows of capacity count whose variables are all whole and at least 0, and divisors that leave something of the limit.
    """
    from scipy.sparse import csr_array, vstack

    rows, limits = [], []
    for at in written.capacity_rows.tolist():
        row, limit = written.matrix[[at]].tocsr(), float(written.upper[at])
        if not np.isfinite(limit) or not written.whole[row.indices].all() or (written.least[row.indices] < 0).any():
            continue
        gpus = row.data
        if (gpus <= 0).any() or (gpus != np.rint(gpus)).any():
            continue
        numbers = np.unique(gpus[gpus > 1])
        for k, divisor in enumerate(numbers[:-1].tolist()):
            if limit % divisor and (numbers[k:] % divisor == 0).mean() >= _MOST:
                rows.append(csr_array((np.floor(gpus / divisor), row.indices, row.indptr), shape=row.shape))
                limits.append(np.floor(limit / divisor))
    return (csr_array(vstack(rows, format="csr")), np.array(limits)) if rows else None
