"""A structured program written out as a sparse one, for solvers that know nothing of its structure.

Solvers meet rows to an absolute tolerance and take what is tiny for nothing, while capacities, rates and weights may
span many orders of magnitude. So every figure is brought near 1: a column is in units of the most that its job could
make use of, a type's row in units of its capacity, a demand's row in units of the demand.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from formulations.interior_point.method import StructuredProgram
from throughputs.numerics import dot, matmul

Array = NDArray[np.float64]


class WrittenOut:
    """The program ``max c.y - y.Q.y / 2`` subject to ``A y <= b``, ``y >= 0`` (the level may be free).

    Columns are the K M shares class by class, then the level where there is one. Rows are time (K), capacity (M), then
    demands (K) where there are any, and with `bounds` ``-y <= 0`` for each share.

    Parameters
    ----------
    program : without budgets.
    level : about where the level will be, to tell how large demands are; found from even shares when omitted.
    bounds : whether shares are bounded by rows.
    scaled : whether figures are brought near 1; otherwise they are those of the program.

    Attributes
    ----------
    starts, rows, values : A by columns.
    limit, cost, curvature : b, c and the diagonal of Q.
    """

    def __init__(
        self,
        program: StructuredProgram,
        *,
        level: float | None = None,
        bounds: bool = False,
        scaled: bool = True,
    ) -> None:
        rates, load = program.rates, program.counts * program.scale_factors
        M, K = rates.shape
        self.program = program
        self.scaled = scaled
        self.room, unit, self.size = self._units(level, load)
        self.unit, self.unit_of_level = unit, 1.0
        class_, type_, share = np.repeat(np.arange(K), M), np.tile(np.arange(M), K), np.arange(K * M)
        rows = [class_, K + type_]
        values = [unit.T.ravel(), (unit * load / self.room[:, None]).T.ravel()]
        limits = [np.ones(K), program.capacity / self.room]
        if self.size is not None:
            rows.append(K + M + class_)
            values.append((-rates * unit / self.size).T.ravel())
            limits.append(np.zeros(K) if program.floors is None else -program.floors / self.size)
        if bounds:
            rows.append(sum(len(limit) for limit in limits) + share)
            values.append(np.full(K * M, -1.0))
            limits.append(np.zeros(K * M))
        self.starts = np.arange(K * M + 1) * len(rows)
        self.rows, self.values = np.stack(rows, axis=1).ravel(), np.stack(values, axis=1).ravel()
        self.cost = np.zeros(K * M) if program.gains is None else (program.gains * program.counts * unit).T.ravel()
        self.curvature = np.zeros(K * M)
        if program.curvature is not None:
            self.curvature = (program.curvature * program.counts * unit**2).T.ravel()
        if program.slopes is not None:
            self._add_level(program.slopes, program.drift)
        self.limit = np.concatenate(limits)
        self.unit_of_cost = (float(max(self.cost.max(), self.curvature.max())) or 1.0) if scaled else 1.0
        self.cost, self.curvature = self.cost / self.unit_of_cost, self.curvature / self.unit_of_cost

    def _units(self, level: float | None, load: Array) -> tuple[Array, Array, Array | None]:
        """Units of the M capacity rows, of the (M, K) columns, and of the K demand rows where there are any."""
        program = self.program
        rates, slopes = program.rates, program.slopes
        demanding = slopes is not None or program.floors is not None
        if not self.scaled:
            M, K = rates.shape
            return np.ones(M), np.ones((M, K)), np.ones(K) if demanding else None
        room = np.abs(program.capacity) + (0.0 if program.drift is None else np.abs(program.drift))
        room[room == 0] = 1.0
        unit = np.minimum(1.0, room[:, None] / load)
        if slopes is None or program.gains is not None:
            # jobs may have use for far more than is demanded for them
            return room, unit, (rates * unit).max(axis=0) if demanding else None
        size = _sizes_of_demands(program, slopes, level)
        with np.errstate(divide="ignore"):
            unit = np.minimum(unit, size / rates)
        return room, unit, size

    def _add_level(self, slopes: Array, drift: Array | None) -> None:
        assert self.size is not None
        M, K = self.program.rates.shape
        self.unit_of_level = 1.0 / float((slopes / self.size).max()) if self.scaled else 1.0
        rows, values = [K + M + np.arange(K)], [slopes / self.size * self.unit_of_level]
        if drift is not None:
            rows, values = [K + np.arange(M), *rows], [drift / self.room * self.unit_of_level, *values]
        self.rows, self.values = np.concatenate([self.rows, *rows]), np.concatenate([self.values, *values])
        self.starts = np.append(self.starts, len(self.values))
        self.cost, self.curvature = np.append(self.cost, self.unit_of_level), np.append(self.curvature, 0.0)

    @property
    def matrix(self) -> Any:
        """A as a sparse matrix by columns."""
        from scipy.sparse import csc_matrix

        return csc_matrix((self.values, self.rows, self.starts), shape=(len(self.limit), len(self.cost)))

    def read(self, y: Array, dual: Array) -> tuple[Array, Array, Array]:
        """Shares (M, K), multipliers of demands (K,) per job, and prices (M,), from columns and row multipliers."""
        program, dual = self.program, dual * self.unit_of_cost
        M, K = program.rates.shape
        shares = np.maximum(y[: K * M].reshape(K, M).T, 0.0) * self.unit
        multipliers = np.zeros(K)
        if self.size is not None:
            multipliers = dual[K + M : K + M + K] / (self.size * program.counts)
        prices = dual[K : K + M] / self.room
        neglected = self.unit < _NEGLECTED
        if neglected.any():
            prices = self._with_neglected(neglected, multipliers, prices)
        return shares, multipliers, prices

    def _with_neglected(self, neglected: NDArray[np.bool_], multipliers: Array, prices: Array) -> Array:
        """Prices at which no job would rather have the columns that a solver may have taken for nothing."""
        program = self.program
        worth = multipliers * program.rates + (0.0 if program.gains is None else program.gains)
        profit = np.where(neglected, 0.0, worth - program.scale_factors * prices[:, None]).max(axis=0)
        wanted = np.where(neglected, (worth - np.maximum(profit, 0.0)) / program.scale_factors, 0.0)
        return np.asarray(np.maximum(prices, wanted.max(axis=1)))


_NEGLECTED = 1e-11
"""Unit of a column below which its coefficients may be as good as nothing to a solver."""


def _sizes_of_demands(program: StructuredProgram, slopes: Array, level: float | None) -> Array:
    """(K,) about what each demand is."""
    fastest: Array = program.rates.max(axis=0)
    floors = np.zeros(len(fastest)) if program.floors is None else program.floors
    if level is None:
        total = dot(program.counts, program.scale_factors)
        even = matmul(np.minimum(1.0 / len(program.rates), program.capacity / total), program.rates)
        rising = slopes > 0
        level = float(((even - floors)[rising] / slopes[rising]).min(initial=np.inf))
    demand = floors + slopes * max(level, 0.0)
    return np.where((demand > 0) & (demand < fastest), demand, fastest)
