"""The program over configurations: what shares of time, or which columns, are allowed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from formulations.arguments import figures
from throughputs import Configurations, InputError
from throughputs.arrays import Flags, Floats

_SOURCE, _AT_LEAST_0 = "column program", "numbers of at least 0"


@dataclass(frozen=True, eq=False)
class Rows:
    """Coupling rows ``lower <= A x <= upper``.

    Parameters
    ----------
    matrix : A (R, C S), sparse or dense; of a program with S slots its columns are slot after slot.
    lower, upper : (R,) limits, -inf and inf for none; one number stands for all.

    Raises
    ------
    InputError
        Shapes do not fit, a coefficient is not finite, or a limit is nan or below the other.
    """

    matrix: Any
    lower: Floats
    upper: Floats

    def __init__(self, matrix: Any, lower: ArrayLike = -np.inf, upper: ArrayLike = np.inf) -> None:
        from scipy.sparse import csr_array

        rows = csr_array(matrix, dtype=np.float64)
        limits = [np.broadcast_to(np.asarray(limit, dtype=np.float64), rows.shape[0]) for limit in (lower, upper)]
        if not np.isfinite(rows.data).all():
            raise InputError(_SOURCE, field="rows", found="a coefficient that is not finite", expected="finite ones")
        if np.isnan(limits).any() or (limits[0] > limits[1]).any():
            found = f"{limits[0].tolist()} to {limits[1].tolist()}"
            raise InputError(_SOURCE, field="limits of rows", found=found, expected="lower <= upper")
        object.__setattr__(self, "matrix", rows)
        object.__setattr__(self, "lower", limits[0])
        object.__setattr__(self, "upper", limits[1])


@dataclass(frozen=True, eq=False)
class ColumnProgram:
    """Allowed shares ``x`` (C,) of time of the columns of N jobs on M pools, or (C, S) in S slots of time::

        time x_s  <= 1                  a job has one life          (== 1 for jobs that must run: `exactly`)
        usage x_s <= capacity_s         a pool has so many GPUs
        rate sum_s x_s >= floors        throughput that a job must keep
        lower <= A x <= upper           coupling rows
        0 <= x <= most,                 x_c whole where asked: then a column is chosen or not, at most one per job

    Parameters
    ----------
    columns : the C configurations.
    capacity : (M,) GPUs of each pool, or (M, S) in each slot.
    floors : (N,) steps/s, summed over slots; 0 for none.
    rows : coupling rows.
    whole : which columns are whole, (C,) or one for all.
    most : (C,) upper bounds of the shares, at most 1.
    exactly : which jobs must use all of their time, or have one column, (N,) or one for all.
    counts : (N,) identical jobs that each one stands for; shares are those of one of them, capacity is for all. Only
        without pairs.

    Raises
    ------
    InputError
        A shape does not fit, or a number is out of its range.
    """

    columns: Configurations
    capacity: Floats
    floors: Floats
    rows: Rows | None
    whole: Flags
    most: Floats
    exactly: Flags
    counts: Floats

    def __init__(
        self,
        columns: Configurations,
        capacity: ArrayLike,
        *,
        floors: ArrayLike | None = None,
        rows: Rows | None = None,
        whole: ArrayLike = False,
        most: ArrayLike = 1.0,
        exactly: ArrayLike = False,
        counts: ArrayLike = 1.0,
    ) -> None:
        N, M, C = columns.n_jobs, len(columns.pools), columns.n_columns
        shape = (M,) if np.ndim(capacity) < 2 else (M, None)
        arrays: dict[str, Any] = {"capacity": figures(_SOURCE, "capacity", capacity, shape, _AT_LEAST_0)}
        of_jobs = {"floors": 0.0 if floors is None else floors, "counts": counts, "exactly": exactly}
        arrays |= {name: _each(name, values, N) for name, values in of_jobs.items()}
        arrays |= {name: _each(name, values, C) for name, values in (("most", most), ("whole", whole))}
        if (arrays["most"] > 1).any():
            found = float(arrays["most"].max())
            raise InputError(_SOURCE, field="most", found=found, expected="between 0 and 1")
        for name in ("whole", "exactly"):
            if not np.isin(arrays[name], (0, 1)).all():
                raise InputError(_SOURCE, field=name, found=arrays[name].tolist(), expected="true or false")
            arrays[name] = arrays[name].astype(bool)
        for name, value in {**arrays, "columns": columns, "rows": rows}.items():
            object.__setattr__(self, name, value)
        if rows is not None and rows.matrix.shape[1] != C * self.n_slots:
            found, wanted = rows.matrix.shape, f"{C * self.n_slots} columns"
            raise InputError(_SOURCE, field="rows", found=found, expected=wanted)
        if columns.has_pairs and (self.counts != 1).any():
            raise InputError(_SOURCE, field="counts", found="pairs", expected="counts of 1 where jobs share GPUs")

    @property
    def n_slots(self) -> int:
        """S, the number of slots of time; 1 where capacity is (M,)."""
        return 1 if self.capacity.ndim == 1 else self.capacity.shape[1]

    @property
    def n_variables(self) -> int:
        """C S."""
        return self.columns.n_columns * self.n_slots

    def by_slot(self, figures: Floats) -> Floats:
        """(K,), or (K, S) where capacity is given by slot, of figures (K S,) slot after slot."""
        table = figures.reshape(self.n_slots, -1)
        return table[0] if self.capacity.ndim == 1 else table.T.copy()

    def spread(self, name: str, values: ArrayLike) -> Floats:
        """(C S,) figures of the variables from those of the columns (C,), or of columns and slots (C, S).

        Raises
        ------
        InputError
            The shape is neither, or a figure is not finite.
        """
        C, S = self.columns.n_columns, self.n_slots
        array = figures(_SOURCE, name, values, (C, S) if np.ndim(values) == 2 else (C,), "numbers")
        return np.tile(array, S) if array.ndim == 1 else np.ravel(array.T)


def _each(name: str, values: ArrayLike, length: int) -> Floats:
    """(length,) figures, of which one may stand for all."""
    return np.full(length, figures(_SOURCE, name, values, (length,) if np.ndim(values) else (), _AT_LEAST_0))
