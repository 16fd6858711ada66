"""Co-location: what a job keeps of its throughput beside another on the same GPUs.

The *retained fraction* ``R[a, b, m]`` is the throughput of job type a beside job type b on accelerator type m,
over the throughput of a alone there; 0 means that the two may not share.

>>> model = default_colocation()
>>> model.retained(["CycleGAN", "LM (batch size 80)"], ["p100"])[:, :, 0].round(2)
array([[0.47, 0.56],
       [0.45, 0.55]])
>>> from throughputs import default_table
>>> table = default_table().with_colocation(model)
>>> table.colocated_rates("CycleGAN", 1, "LM (batch size 80)", 1, ["p100"]).round(2)
array([[1.35, 9.58]])
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import as_file, files
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import ArrayLike

from throughputs.arrays import Floats, Ints
from throughputs.errors import InputError, expect
from throughputs.files import read_frame
from throughputs.frames import NOT_NEGATIVE, Column, FrameReader
from throughputs.limits import require_all, require_distinct

if TYPE_CHECKING:
    import pandas as pd

    from throughputs.tables.table import Key, ThroughputTable

_NUMBER = Column("number", None, NOT_NEGATIVE, "a finite number of at least 0")


class ColocationModel(Protocol):
    """Anything that says what jobs keep of their throughput when they share GPUs."""

    def retained(self, job_types: Sequence[str], accelerators: Sequence[str]) -> Floats:
        """(G, G, M) retained fraction of row beside column; 0: may not share; nan: the model does not know."""
        ...


@dataclass(frozen=True, eq=False)
class RetainedFractions:
    """Retained fractions as they were measured or estimated, under their labels.

    Attributes
    ----------
    job_types : G names.
    accelerators : M names.
    values : (G, G, M) retained fraction of row beside column, nan where not known.
    """

    job_types: tuple[str, ...]
    accelerators: tuple[str, ...]
    values: Floats

    def retained(self, job_types: Sequence[str], accelerators: Sequence[str]) -> Floats:
        """(G, G, M) `values` in the order asked for, nan for what has no entry."""
        rows, columns = _positions(job_types, self.job_types), _positions(accelerators, self.accelerators)
        known = (rows[:, None, None] >= 0) & (rows[:, None] >= 0) & (columns >= 0)
        return np.where(known, self.values[np.ix_(rows, rows, columns)], np.nan)


@dataclass(frozen=True, eq=False)
class InterferenceModel:
    """A compact model of interference: a few numbers for each job type on each accelerator type.

    With K shared resources (whatever they are: compute, memory bandwidth, the host), a job of type a beside one
    of type b on accelerator type m keeps

        R[a, b, m] = 1 / (1 + sum_k sensitivity[a, m, k] * pressure[b, m, k])
                                                           if memory_share[a, m] + memory_share[b, m] <= 1,
        R[a, b, m] = 0                                     otherwise.

    Two jobs that fit into memory therefore always both make progress, and none goes faster than alone.

    Attributes
    ----------
    job_types : G names.
    accelerators : M names.
    sensitivity : (G, M, K) at least 0, how much the job suffers from pressure on each resource.
    pressure : (G, M, K) at least 0, how much pressure the job puts on each resource.
    memory_share : (G, M) at least 0, part of the accelerator's memory that the job needs.
    source : where the numbers came from, for messages.

    Entries are nan, in all three arrays together, where the model does not know the job type on the accelerator.

    Raises
    ------
    InputError
        A shape does not fit its labels, a label is repeated, or a number is negative or infinite.
    """

    job_types: tuple[str, ...]
    accelerators: tuple[str, ...]
    sensitivity: Floats
    pressure: Floats
    memory_share: Floats
    source: str

    def __init__(
        self,
        job_types: Sequence[str],
        accelerators: Sequence[str],
        sensitivity: ArrayLike,
        pressure: ArrayLike,
        memory_share: ArrayLike,
        source: str = "interference model",
    ) -> None:
        vars(self).update(job_types=tuple(job_types), accelerators=tuple(accelerators), source=source)
        for name in ("job_types", "accelerators"):
            require_distinct(getattr(self, name), source, name)
        G, M, K = len(self.job_types), len(self.accelerators), np.shape(sensitivity)[-1] if np.ndim(sensitivity) else 1
        for name, values, shape in (
            ("sensitivity", sensitivity, (G, M, K)),
            ("pressure", pressure, (G, M, K)),
            ("memory_share", memory_share, (G, M)),
        ):
            array = np.array(values, dtype=float)
            array.flags.writeable = False  # models are shared, the embedded one by everybody
            vars(self)[name] = array
            expect(array.shape == shape, source, name, array.shape, f"shape {shape}")
            good = np.isnan(array) | ((array >= 0) & np.isfinite(array))
            require_all(good, array, source, lambda *_, name=name: name, "a finite number of at least 0")
        unknown = np.isnan(self.memory_share)
        for name in ("sensitivity", "pressure"):
            expect(
                not (np.isnan(getattr(self, name)) != unknown[:, :, None]).any(),
                source,
                name,
                "nan",
                "numbers wherever memory_share has one, and nan elsewhere",
            )

    @property
    def fractions(self) -> Floats:
        """(G, G, M) retained fraction of row beside column, in the model's own order."""
        slowdown = 1.0 + np.einsum("amk,bmk->abm", self.sensitivity, self.pressure)
        together = self.memory_share[:, None] + self.memory_share
        return np.where(together > 1.0, 0.0, 1.0 / slowdown)

    def retained(self, job_types: Sequence[str], accelerators: Sequence[str]) -> Floats:
        """(G, G, M) retained fraction of row beside column, nan where the model does not know one of them."""
        return RetainedFractions(self.job_types, self.accelerators, self.fractions).retained(job_types, accelerators)

    @classmethod
    def from_frame(
        cls, frame: pd.DataFrame, source: str = "interference model", first_line: int = 1
    ) -> InterferenceModel:
        """Model from a table with one row per job type and accelerator type, as `to_frame` gives it.

        Columns: ``job_type``, ``accelerator``, ``sensitivity_1`` and ``pressure_1`` up to as many resources as
        there are, ``memory_share``.

        Raises
        ------
        InputError
            A column is missing or unknown, a number is missing or negative, or a row is given twice.
        """
        import pandas as pd

        reader = FrameReader(frame, source, first_line)
        K = max(1, sum(str(name).startswith("sensitivity_") for name in frame.columns))
        numbers = [f"{kind}_{k + 1}" for kind in ("sensitivity", "pressure") for k in range(K)] + ["memory_share"]
        columns = {"job_type": Column("text"), "accelerator": Column("text")} | dict.fromkeys(numbers, _NUMBER)
        table = reader.read(columns)
        (rows, job_types), (places, accelerators) = (pd.factorize(table[name]) for name in ("job_type", "accelerator"))
        expected = "one row for each job type on each accelerator type"
        reader.require_once(rows * len(accelerators) + places, table["job_type"], "job_type", expected)
        values = np.full((len(job_types), len(accelerators), len(numbers)), np.nan)
        values[rows, places] = np.column_stack([table[name] for name in numbers])
        return cls(list(job_types), list(accelerators), values[..., :K], values[..., K:-1], values[..., -1], source)

    def to_frame(self) -> pd.DataFrame:
        """Table with one row per job type and accelerator type that the model knows."""
        import pandas as pd

        m, g = np.nonzero(~np.isnan(self.memory_share.T))
        columns: dict[str, object] = {
            "job_type": np.array(self.job_types, dtype=object)[g],
            "accelerator": np.array(self.accelerators, dtype=object)[m],
        }
        for kind in ("sensitivity", "pressure"):
            columns |= {f"{kind}_{k}": figures for k, figures in enumerate(getattr(self, kind)[g, m].T, start=1)}
        return pd.DataFrame(columns | {"memory_share": self.memory_share[g, m]})


@cache
def default_colocation() -> InterferenceModel:
    """The model that comes with the package: the 26 job types of the default table on v100, p100 and k80.

    Two resources, five numbers per job type and accelerator type, fitted to the single-GPU pairs of the public
    table of D. Narayanan et al., OSDI 2020; its error against that table is in ``docs/colocation.md``.
    """
    with as_file(files("throughputs") / "data" / "default_interference.csv") as path:
        frame, first_line = read_frame(path)
    return InterferenceModel.from_frame(frame, "default interference model", first_line)


def retained_fractions(
    table: ThroughputTable, job_types: Sequence[str], accelerators: Sequence[str], scale_factor: int = 1
) -> Floats:
    """(G, G, M) retained fraction of row beside column, as a table gives it, for gangs of one size.

    nan where the table has no figure for the pair, 0 where a job cannot run even alone. The two figures of a job
    type beside itself are averaged.

    Raises
    ------
    InputError
        The table does not know a job type, the scale factor or an accelerator type.
    """
    alone = table.rates(job_types, [scale_factor] * len(job_types), accelerators)
    columns = _positions(accelerators, table.accelerators)
    local = np.full(len(table.keys), -1)
    local[_positions([(name, scale_factor) for name in job_types], table.keys)] = np.arange(len(job_types))
    a, b = local[table.pairs].T
    inside = (a >= 0) & (b >= 0)
    a, b = a[inside], b[inside]
    figures = table.colocated[inside][:, columns]
    together = np.full((len(job_types), len(job_types), len(accelerators)), np.nan)
    mine, its = figures[..., 0], figures[..., 1]
    same = (a == b)[:, None]
    together[b, a] = np.where(same, (mine + its) / 2, its)
    together[a, b] = np.where(same, (mine + its) / 2, mine)
    possible = alone[:, None] > 0
    ratio = together / np.where(possible, alone[:, None], 1.0)
    return np.where(np.isnan(together) | possible, ratio, 0.0)


def modelled_pairs(
    table: ThroughputTable, model: ColocationModel, scale_factors: Sequence[int]
) -> list[tuple[str, Key, Key, tuple[float, float]]]:
    """What a model says of pairs of the jobs of a table with these scale factors: accelerator type, both jobs, and
    their throughputs, steps/s. Raises as `ThroughputTable.with_colocation` does.
    """
    found = []
    for size in dict.fromkeys(scale_factors):
        rows = [row for row, (_, s) in enumerate(table.keys) if s == size]
        if not rows:
            known = ", ".join(map(str, table.scale_factors))
            raise InputError(table.source, field="scale factor", found=size, expected=f"one of {known}")
        keys = [table.keys[row] for row in rows]
        # what the row does beside the column
        rates = table.isolated[rows][:, None] * model.retained([name for name, _ in keys], table.accelerators)
        for a, b, m in np.argwhere(~np.isnan(rates + rates.swapaxes(0, 1))).tolist():
            if a <= b:
                both = float(rates[a, b, m]), float(rates[b, a, m])
                found.append((table.accelerators[m], keys[a], keys[b], both))
    if not found:
        told = f"job types {', '.join(table.job_types[:3])}, ... on {', '.join(table.accelerators)}"
        raise InputError(table.source, found=told, expected="job types and accelerators that the model knows")
    return found


def _positions(wanted: Sequence[object], known: Sequence[object]) -> Ints:
    """Position of each wanted label among the known ones, -1 where it is not among them."""
    position = {label: i for i, label in enumerate(known)}
    return np.array([position.get(label, -1) for label in wanted], dtype=np.int64)
