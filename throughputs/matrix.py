"""The throughput matrix: how fast each job runs on each accelerator type.

>>> import pandas as pd
>>> frame = pd.DataFrame({"v100": [4.0, 2.0], "k80": [1.0, 0.5]}, index=["a", "b"])
>>> matrix = ThroughputMatrix.from_frame(frame)
>>> matrix.accelerators
('v100', 'k80')
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from throughputs.arrays import Floats, Ints, read_only
from throughputs.errors import InputError, expect
from throughputs.limits import require_all, require_distinct, whole_numbers

if TYPE_CHECKING:
    import pandas as pd

_SOURCE = "throughput matrix"


@dataclass(frozen=True, eq=False)
class ThroughputMatrix:
    """Throughput of N jobs on M accelerator types, with the labels of both.

    Parameters
    ----------
    rates : (N, M) throughput of the job's whole gang in `unit`; 0 where the job cannot run.
    jobs : N distinct labels.
    accelerators : M distinct names of accelerator types.
    scale_factors : (N,) GPUs that each job's gang occupies; 1 for every job when omitted.
    unit : unit of `rates`.

    Raises
    ------
    InputError
        A shape does not fit its labels, a label is repeated, a rate is negative or not finite, or a scale
        factor is not a positive whole number.

    >>> matrix = ThroughputMatrix([[4.0, 1.0], [2.0, 1.0]], jobs=["resnet", "lstm"], accelerators=["v100", "k80"])
    >>> matrix.to_frame().loc["lstm", "v100"].item()
    2.0
    """

    rates: Floats
    jobs: tuple[Hashable, ...]
    accelerators: tuple[str, ...]
    scale_factors: Ints
    unit: str = "steps/s"

    def __init__(
        self,
        rates: ArrayLike,
        jobs: Sequence[Hashable],
        accelerators: Sequence[str],
        scale_factors: ArrayLike | None = None,
        unit: str = "steps/s",
    ) -> None:
        jobs, accelerators = tuple(jobs), tuple(accelerators)
        try:
            values = np.array(rates, dtype=float)
        except (TypeError, ValueError, OverflowError) as error:
            raise InputError(_SOURCE, field="rates", found=str(error), expected="numbers") from None
        if not values.size and not (jobs and accelerators):
            values = values.reshape(len(jobs), len(accelerators))
        given = np.ones(len(jobs)) if scale_factors is None else scale_factors
        sizes = whole_numbers(given, _SOURCE, "scale_factors")
        vars(self).update(rates=values, jobs=jobs, accelerators=accelerators, scale_factors=sizes, unit=unit)
        shape = (len(jobs), len(accelerators))
        expect(values.shape == shape, _SOURCE, "rates", values.shape, f"shape {shape} (jobs, accelerators)")
        if sizes.shape != shape[:1]:
            raise InputError(_SOURCE, field="scale_factors", found=sizes.shape, expected=f"shape {shape[:1]}")
        require_distinct(jobs, _SOURCE, "jobs")
        require_distinct(accelerators, _SOURCE, "accelerators")
        require_all(
            np.isfinite(values) & (values >= 0),
            values,
            _SOURCE,
            lambda i, m: f"job {jobs[i]!r} on {accelerators[m]!r}",
            f"a finite throughput of at least 0 {unit}",
        )
        require_all(sizes >= 1, sizes, _SOURCE, lambda i: f"scale factor of job {jobs[i]!r}", "at least 1 GPU")
        read_only(values)

    @classmethod
    def trusted(
        cls,
        rates: Floats,
        *,
        jobs: Sequence[Hashable],
        accelerators: Sequence[str],
        scale_factors: Ints,
        unit: str = "steps/s",
    ) -> ThroughputMatrix:
        """Matrix from parts of one that was validated; they are not checked, nor copied (a range stays a range)."""
        matrix = object.__new__(cls)
        labels = jobs if isinstance(jobs, range) else tuple(jobs)
        vars(matrix).update(
            rates=rates, jobs=labels, accelerators=tuple(accelerators), scale_factors=scale_factors, unit=unit
        )
        return matrix

    def with_rates(self, rates: Floats) -> ThroughputMatrix:
        """Other rates (N, M) for the same jobs and types; not checked."""
        return self.trusted(
            rates, jobs=self.jobs, accelerators=self.accelerators, scale_factors=self.scale_factors, unit=self.unit
        )

    @classmethod
    def of(cls, table: ThroughputMatrix | pd.DataFrame | Mapping[str, Any]) -> ThroughputMatrix:
        """A matrix however it is given: as it is, as a DataFrame, or as columns by type that pandas makes one of.

        Raises
        ------
        InputError
            It is something else, or not a matrix.

        >>> ThroughputMatrix.of({"v100": {"a": 4.0, "b": 2.0}, "k80": {"a": 1.0, "b": 0.5}}).jobs
        ('a', 'b')
        """
        if isinstance(table, ThroughputMatrix):
            return table
        import pandas as pd

        given: object = table
        if isinstance(given, Mapping):
            try:
                given = pd.DataFrame(dict(given))
            except ValueError as error:
                expected = "columns of one length, as in {'v100': [4.0, 2.0], 'k80': [1.0, 1.0]}"
                raise InputError("throughputs", found=str(error), expected=expected) from None
        if not isinstance(given, pd.DataFrame):
            expected = "a DataFrame or a mapping with a column for each type, or a ThroughputMatrix"
            raise InputError("throughputs", found=type(given).__name__, expected=expected)
        return cls.from_frame(given)

    def on_types(self, accelerators: Sequence[str]) -> ThroughputMatrix:
        """The same jobs on these types alone, in this order; InputError where one of them is missing."""
        names = tuple(accelerators)
        if names == self.accelerators:
            return self
        for name in names:
            expect(
                name in self.accelerators,
                "throughputs",
                "accelerators",
                self.accelerators,
                f"also a column {name!r}, as in the cluster",
            )
        columns = [self.accelerators.index(name) for name in names]
        return ThroughputMatrix(self.rates[:, columns], self.jobs, names, self.scale_factors, self.unit)

    @classmethod
    def from_frame(
        cls, frame: pd.DataFrame, scale_factors: ArrayLike | None = None, unit: str = "steps/s"
    ) -> ThroughputMatrix:
        """Matrix from a table with one row per job (index: labels) and one column per accelerator type.

        A column named ``scale_factor`` is taken as the scale factors when `scale_factors` is omitted.
        """
        if scale_factors is None and "scale_factor" in frame.columns:
            scale_factors = frame["scale_factor"].to_numpy()
        rates = frame.drop(columns="scale_factor", errors="ignore")
        for column, kind in zip(rates.columns, rates.dtypes, strict=True):
            expected = "numbers, in a column for each type; `ThroughputTable.from_frame` takes a row for each figure"
            expect(kind.kind in "iuf", "throughput table", str(column), str(kind), expected)
        return cls(
            rates.to_numpy(dtype=float),
            list(frame.index),
            [str(c) for c in rates.columns],
            scale_factors,
            unit,
        )

    def to_frame(self) -> pd.DataFrame:
        """Table with one row per job and one column per accelerator type (scale factors not included)."""
        import pandas as pd

        return pd.DataFrame(self.rates, index=list(self.jobs), columns=list(self.accelerators))

    @property
    def n_jobs(self) -> int:
        """N, the number of jobs."""
        return len(self.jobs)

    @property
    def n_accelerators(self) -> int:
        """M, the number of accelerator types."""
        return len(self.accelerators)
