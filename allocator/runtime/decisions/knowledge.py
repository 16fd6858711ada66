"""What is believed of the speed of real jobs: what was measured, else what the table says, else that types are alike.

A job that has run on one type at another speed than the table has is taken to be off by that factor everywhere. What
jobs of a type did is what later jobs of it are expected to do.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from throughputs import ThroughputTable
from throughputs.configurations import Configurations

Ways = dict[tuple[str, int], float]
"""Steps/s by (accelerator type, GPUs)."""

_WEIGHT_OF_NEW = 0.5
"""Of the last measurement in the moving average (Gavel, OSDI'20, public artifact)."""

_BATCH_SIZE = re.compile(r"\(batch size \d+\)")
"""How job types of throughput tables end, those of Gavel among them."""

_USUAL_SECONDS = 3600.0
"""What a job is expected to run that says neither steps nor duration."""


def moving_average(before: float | None, measured: float) -> float:
    """The average with a new measurement."""
    return measured if before is None else (1 - _WEIGHT_OF_NEW) * before + _WEIGHT_OF_NEW * measured


class Knowledge:
    """Speeds by job.

    Parameters
    ----------
    accelerators : the types of the cluster.
    table : of job types; None: nothing is known before jobs have run.
    """

    def __init__(self, accelerators: Sequence[str], table: ThroughputTable | None) -> None:
        self._accelerators, self._table = tuple(accelerators), table
        self._of_type: dict[tuple[str, int], Ways] = {}
        self._measured_of_type: dict[tuple[str, int], set[tuple[str, int]]] = {}
        self._rows: dict[str, Ways] = {}

    @property
    def job_types(self) -> tuple[str, ...]:
        """Those of the table."""
        return () if self._table is None else tuple(self._table.job_types)

    def sizes(self, job_type: str) -> list[int]:
        """Numbers of GPUs with which the table has a job type on types of the cluster."""
        return sorted({gpus for _, gpus in self._in_table(job_type)})

    def knows(self, job_type: str, gpus: int) -> bool:
        """Whether the table has a job type, or a job of it has been measured."""
        in_table = self._table is not None and job_type in self._table.job_types
        return in_table or (job_type, gpus) in self._of_type

    def type_at(self, job_type: str, batch_size: int | None) -> str:
        """The row of the table for a type with another batch size; the type itself where the table has none."""
        other = job_type if batch_size is None else _BATCH_SIZE.sub(f"(batch size {batch_size})", job_type)
        return other if other in self.job_types else job_type

    def believed(self, job_type: str, gpus: int, measured: Mapping[tuple[str, int], float]) -> Ways:
        """All ways in which a job can run, its own number of GPUs among them, and how fast each is."""
        ways = self._expected(job_type, gpus)
        factor = 1.0
        for way, rate in measured.items():
            if ways.get(way):
                factor = rate / ways[way]
        return {way: measured.get(way, rate * factor) for way, rate in ways.items()}

    def known(self, job_type: str, gpus: int, measured: Mapping[tuple[str, int], float]) -> Ways:
        """Of what is `believed`, that which rests on a measurement or on the table.

        Of the other ways no more is known than of types in general: they are taken to be as fast as each other.
        """
        founded = {*measured, *self._measured_of_type.get((job_type, gpus), ()), *self._in_table(job_type)}
        return {way: rate for way, rate in self.believed(job_type, gpus, measured).items() if way in founded}

    def learn(self, job_type: str, gpus: int, measured: Mapping[tuple[str, int], float]) -> None:
        """Later jobs of a type are expected to do what one of it did."""
        if job_type and measured:
            self._of_type[job_type, gpus] = dict(self.believed(job_type, gpus, measured))
            self._measured_of_type.setdefault((job_type, gpus), set()).update(measured)

    def _expected(self, job_type: str, gpus: int) -> Ways:
        known = self._of_type.get((job_type, gpus))
        if known is not None:
            return dict(known)
        ways = self._in_table(job_type)
        own = {(name, gpus): 1.0 for name in self._accelerators if (name, gpus) not in ways}
        # a number of GPUs, or types, that the table lacks: as fast as nothing is known of
        return ways if any(size == gpus for _, size in ways) else ways | own

    def _in_table(self, job_type: str) -> Ways:
        """What the table says of a job type on the types of the cluster, looked up once."""
        table = self._table
        if table is None or job_type not in table.job_types:
            return {}
        if job_type not in self._rows:
            self._rows[job_type] = self._looked_up(table, job_type)
        return self._rows[job_type]

    def _looked_up(self, table: ThroughputTable, job_type: str) -> Ways:
        there = [name for name in self._accelerators if name in table.accelerators]
        sizes = table.scale_factors_of(job_type)
        rates = table.rates([job_type] * len(sizes), list(sizes), there)
        return {
            (name, int(size)): float(rates[row, column])
            for row, size in enumerate(sizes)
            for column, name in enumerate(there)
            if rates[row, column] > 0
        }

    def expected_steps(self, total_steps: float, duration: float, ways: Ways, gpus: int) -> float:
        """Steps of a job, of one that does not say how many those of `duration` seconds on its fastest type."""
        if total_steps > 0:
            return total_steps
        fastest = max((rate for (_, size), rate in ways.items() if size == gpus), default=1.0)
        return (duration or _USUAL_SECONDS) * fastest

    def rates(self, ways: Sequence[Ways], gpus: Sequence[int]) -> NDArray[np.float64]:
        """(N, M) steps/s of N jobs with their own numbers of GPUs."""
        rows = [[of.get((name, size), 0.0) for name in self._accelerators] for of, size in zip(ways, gpus, strict=True)]
        return np.array(rows, dtype=np.float64).reshape(len(rows), len(self._accelerators))

    def configurations(self, ways: Sequence[Ways]) -> Configurations:
        """The same by number of GPUs."""
        position = {name: k for k, name in enumerate(self._accelerators)}
        columns = [(i, position[name], gpus, rate) for i, of in enumerate(ways) for (name, gpus), rate in of.items()]
        job, pool, gpus, rate = zip(*columns, strict=True) if columns else ((), (), (), ())
        return Configurations(job, pool, gpus, rate, jobs=range(len(ways)), pools=self._accelerators)
