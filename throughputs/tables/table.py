"""The throughput table (the oracle): how fast a job type runs, alone or sharing GPUs with another.

>>> table = ThroughputTable([("LM", 1), ("LM", 2)], ["v100", "k80"], [[40.0, 10.0], [70.0, 15.0]])
>>> table.rates(["LM", "LM"], [2, 1], ["k80"])
array([[15.],
       [10.]])
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from throughputs.arrays import Flags, Floats, Ints, Names, Sizes
from throughputs.colocation.model import ColocationModel, modelled_pairs
from throughputs.errors import InputError, did_you_mean, expect, expect_one_of
from throughputs.limits import LARGEST_WHOLE_NUMBER, require_all, require_distinct
from throughputs.matrix import ThroughputMatrix
from throughputs.tables.figures import TableBuilder, figures_of_frame, frame_of_table

if TYPE_CHECKING:
    import pandas as pd

Key = tuple[str, int]
"""A job type and a scale factor (GPUs in the gang)."""

UNCONSOLIDATED = "_unconsolidated"
"""Behind the name of an accelerator type: its figures for gangs whose GPUs are spread over servers."""

_REFERENCE = "v100"
_FEW = 10
"""Job types that an error lists, where there are no more and none is close to the one that was asked for."""


@dataclass(frozen=True, eq=False)
class ThroughputTable:
    """Throughput in steps/s, total over the gang, by job type, scale factor and accelerator type.

    Parameters
    ----------
    keys : K distinct pairs (job type, scale factor).
    accelerators : M distinct names of accelerator types. A placement variant such as ``v100_unconsolidated``
        is an accelerator type of its own.
    isolated : (K, M) throughput of a job that has its GPUs to itself; 0 where it cannot run, nan where it was
        not profiled.
    pairs : (P, 2) positions in `keys` of two jobs that share GPUs; each unordered pair once.
    colocated : (P, M, 2) throughput of the first and the second of them; nan where not profiled.
    source : where the table came from, for messages.

    Raises
    ------
    InputError
        A shape does not fit its labels, a label is repeated, a scale factor is below 1, or a throughput is
        negative or infinite.
    """

    keys: tuple[Key, ...]
    accelerators: tuple[str, ...]
    isolated: Floats
    pairs: Ints
    colocated: Floats
    source: str

    def __init__(
        self,
        keys: Sequence[Key],
        accelerators: Sequence[str],
        isolated: ArrayLike,
        pairs: ArrayLike | None = None,
        colocated: ArrayLike | None = None,
        source: str = "throughput table",
    ) -> None:
        K, M = len(keys), len(accelerators)
        arrays = {
            "isolated": np.array(isolated, dtype=float) if K else np.zeros((0, M)),
            "pairs": np.zeros((0, 2), dtype=np.int64) if pairs is None else np.array(pairs, dtype=np.int64),
            "colocated": np.zeros((0, M, 2)) if colocated is None else np.array(colocated, dtype=float),
        }
        vars(self).update(
            keys=tuple(_checked_key(name, size, source) for name, size in keys),
            accelerators=tuple(accelerators),
            source=source,
        )
        for name, array in arrays.items():
            array.flags.writeable = False  # tables are shared, the embedded one by everybody
            vars(self)[name] = array
        self._validate()

    def _validate(self) -> None:
        K, M, P = len(self.keys), len(self.accelerators), len(self.pairs)
        shapes = {"isolated": (K, M), "pairs": (P, 2), "colocated": (P, M, 2)}
        for name, shape in shapes.items():
            found = getattr(self, name).shape
            expect(found == shape, self.source, name, found, f"shape {shape}")
        unordered = [(min(a, b), max(a, b)) for a, b in self.pairs.tolist()]
        for name, labels in (("keys", self.keys), ("accelerators", self.accelerators), ("pairs", unordered)):
            require_distinct(labels, self.source, name)
        if P and (self.pairs.min() < 0 or self.pairs.max() >= K):
            raise InputError(self.source, field="pairs", found=int(self.pairs.max()), expected=f"positions below {K}")
        expected = "a finite throughput of at least 0 steps/s"

        def pair(p: int, m: int, *side: int) -> str:
            one, other = (self.keys[k] for k in self.pairs[p][:: -1 if side == (1,) else 1])
            return f"{one} beside {other} on {self.accelerators[m]!r}"

        unknown = np.isnan(self.colocated)
        halves = unknown.any(axis=2) == unknown.all(axis=2)
        require_all(halves, unknown.sum(axis=2), self.source, pair, "two throughputs, or two nan")
        for figures, where in (
            (self.isolated, lambda k, m: f"{self.keys[k]} on {self.accelerators[m]!r}"),
            (self.colocated, pair),
        ):
            good = np.isnan(figures) | ((figures >= 0) & np.isfinite(figures))
            require_all(good, figures, self.source, where, expected)

    @cached_property
    def _sizes(self) -> dict[str, list[int]]:
        """The scale factors of each job type, ascending; job types in the order in which they first appear."""
        found: dict[str, list[int]] = {}
        for name, size in self.keys:
            found.setdefault(name, []).append(size)
        return {name: sorted(sizes) for name, sizes in found.items()}

    @cached_property
    def _row(self) -> dict[Key, int]:
        return {key: row for row, key in enumerate(self.keys)}

    @cached_property
    def _pair_row(self) -> dict[tuple[int, int], int]:
        return {(a, b): row for row, (a, b) in enumerate(self.pairs.tolist())}

    @property
    def job_types(self) -> tuple[str, ...]:
        """The job types, in the order in which they first appear."""
        return tuple(self._sizes)

    @property
    def scale_factors(self) -> tuple[int, ...]:
        """The scale factors that occur, ascending."""
        return tuple(sorted({size for _, size in self.keys}))

    @property
    def reference_accelerator(self) -> str:
        """The type on which durations are meant where nobody says so: v100 if the table has it, else its first."""
        return _REFERENCE if _REFERENCE in self.accelerators else next(iter(self.accelerators), _REFERENCE)

    @property
    def has_colocation(self) -> bool:
        """Whether any pair of jobs was profiled on shared GPUs."""
        return len(self.pairs) > 0

    def scale_factors_of(self, job_type: str) -> tuple[int, ...]:
        """The scale factors known for one job type, ascending."""
        if job_type not in self._sizes:
            raise self._unknown(job_type)
        return tuple(self._sizes[job_type])

    def has(
        self,
        job_types: Names,
        scale_factors: Sizes,
    ) -> Flags:
        """(N,) whether the table has a job type with so many GPUs."""
        wanted = zip(job_types, np.asarray(scale_factors).tolist(), strict=True)
        return np.fromiter((key in self._row for key in wanted), dtype=bool, count=len(job_types))

    def rates(
        self,
        job_types: Names,
        scale_factors: Sizes,
        accelerators: Sequence[str],
    ) -> Floats:
        """(N, M) isolated throughput of N jobs on M accelerator types, steps/s; 0 where not profiled.

        Raises
        ------
        InputError
            Names the job type, scale factor or accelerator type that the table does not know.
        """
        rows = self._rows(job_types, scale_factors)
        return _or_zero(self.isolated[rows[:, None], self._columns(accelerators)])

    def unconsolidated_rates(
        self,
        job_types: Names,
        scale_factors: Sizes,
        accelerators: Sequence[str],
    ) -> Floats:
        """(N, M) isolated throughput of gangs that are spread over servers, steps/s; arguments as in `rates`.

        Read from the accelerator types with `UNCONSOLIDATED` behind their name; where such a figure is missing, the
        consolidated one stands in.

        Raises
        ------
        InputError
            As `rates`, or the table has no such type for any of `accelerators`.
        """
        rates = self.rates(job_types, scale_factors, accelerators)
        known = [m for m, name in enumerate(accelerators) if name + UNCONSOLIDATED in self.accelerators]
        if not known:
            expected = f"figures for gangs spread over servers, as in {(*accelerators, 'v100')[0] + UNCONSOLIDATED}"
            raise InputError(self.source, field="accelerator", found=list(self.accelerators), expected=expected)
        rows = self._rows(job_types, scale_factors)
        columns = self._columns([accelerators[m] + UNCONSOLIDATED for m in known])
        spread = self.isolated[rows[:, None], columns]
        rates[:, known] = np.where(np.isnan(spread), rates[:, known], spread)
        return rates

    def matrix(
        self,
        job_ids: Sequence[Hashable],
        job_types: Names,
        scale_factors: Sizes,
        accelerators: Sequence[str],
    ) -> ThroughputMatrix:
        """`rates` with its labels; raises as it does."""
        rates = self.rates(job_types, scale_factors, accelerators)
        return ThroughputMatrix(rates, job_ids, accelerators, scale_factors)

    def colocated_rates(
        self, job_type_a: str, sf_a: int, job_type_b: str, sf_b: int, accelerators: Sequence[str]
    ) -> Floats:
        """(M, 2) throughput of a and of b on shared GPUs, steps/s; 0 where not profiled.

        Raises
        ------
        InputError
            Names the job type, scale factor or accelerator type that the table does not know.
        """
        columns = self._columns(accelerators)
        a, b = (int(k) for k in self._rows([job_type_a, job_type_b], [sf_a, sf_b]))
        if (a, b) in self._pair_row:
            return _or_zero(self.colocated[self._pair_row[a, b], columns])
        if (b, a) in self._pair_row:
            return _or_zero(self.colocated[self._pair_row[b, a], columns, ::-1])
        return np.zeros((len(columns), 2))

    def with_colocation(self, model: ColocationModel, scale_factors: Sequence[int] = (1,)) -> ThroughputTable:
        """This table with the pairs that a model of co-location adds to it; figures that there are already stay.

        Parameters
        ----------
        model : what jobs keep of their isolated throughput; `throughputs.default_colocation` fits the embedded
            table.
        scale_factors : gangs that may share. Pairs have equal scale factors. The public measurements, and with
            them the embedded model, are of single GPUs; naming larger gangs takes their slowdown for that of one
            of their GPUs.

        Raises
        ------
        InputError
            The table has no job of a scale factor, or nothing in common with the model.
        """
        builder = TableBuilder(self)
        builder.add_table(self)
        for pair in modelled_pairs(self, model, scale_factors):
            builder.add_pair(*pair)
        return ThroughputTable(*builder.figures(), self.source)

    def _rows(self, job_types: Names, scale_factors: Sizes) -> Ints:
        """(N,) rows of the keys of jobs."""
        sizes = np.asarray(scale_factors)
        if sizes.shape != (len(job_types),):
            found = f"{len(job_types)} job types, scale factors of shape {sizes.shape}"
            raise InputError(self.source, found=found, expected="a scale factor for each job type")
        wanted = zip(job_types, sizes.tolist(), strict=True)
        try:
            return np.fromiter(map(self._row.__getitem__, wanted), dtype=np.int64, count=len(sizes))
        except KeyError as error:
            raise self._unknown(*error.args[0]) from None

    def _unknown(self, name: str, size: int | None = None) -> InputError:
        """What is wrong with a job type, or with its scale factor."""
        if name in self._sizes:
            known = ", ".join(map(str, self._sizes[name]))
            return InputError(self.source, field=f"scale factor of {name!r}", found=size, expected=f"one of {known}")
        hint = did_you_mean(name, self._sizes)
        if not hint and 0 < len(self._sizes) <= _FEW:
            hint = f": {', '.join(map(repr, self._sizes))}"
        return InputError(self.source, field="job type", found=name, expected=f"a job type of the table{hint}")

    def _columns(self, accelerators: Sequence[str]) -> Ints:
        for name in accelerators:
            expect_one_of(name, self.accelerators, self.source, "accelerator")
        return np.array([self.accelerators.index(name) for name in accelerators], dtype=np.int64)

    @classmethod
    def from_frame(cls, frame: pd.DataFrame, source: str = "throughput table", first_line: int = 1) -> ThroughputTable:
        """Table from a tidy one, as `to_frame` gives it; the columns of co-location may be absent.

        `first_line` is the line of `source` that holds the first row. A pair may be given in both orders if
        the figures agree.

        Raises
        ------
        InputError
            A column is missing or unknown, a cell is not what it should be, or a figure is given twice.
        """
        return cls(*figures_of_frame(frame, source, first_line), source)

    def to_frame(self) -> pd.DataFrame:
        """Tidy table, one row per figure.

        Columns job_type, scale_factor, accelerator, throughput (steps/s); with co-location also
        other_job_type, other_scale_factor, other_throughput, which are empty in the rows of isolated figures.
        """
        return frame_of_table(self)


def _checked_key(name: object, size: object, source: str) -> Key:
    if not isinstance(name, str) or not name:
        raise InputError(source, field="keys", found=name, expected="the name of a job type")
    if not isinstance(size, int | np.integer) or not 1 <= size <= LARGEST_WHOLE_NUMBER:
        expected = "a whole number of GPUs, at least 1 GPU"
        raise InputError(source, field=f"scale factor of {name!r}", found=size, expected=expected)
    return name, int(size)


def _or_zero(values: Floats) -> Floats:
    """A copy with 0 for what was not profiled."""
    known = values.copy()
    known[np.isnan(known)] = 0.0
    return known
