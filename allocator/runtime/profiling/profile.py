"""Measures programs on every accelerator type and number of GPUs, and makes a throughput table of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from allocator.runtime.adapters.base import Adapter, Node
from allocator.runtime.profiling.measure import Window, steps_per_second
from allocator.runtime.profiling.program import Program
from throughputs import InputError, ThroughputTable
from throughputs.tables.figures import TableBuilder

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Figure:
    """What was measured in one place, once or more often.

    Attributes
    ----------
    accelerator : type of the GPUs. gpus : how many.
    job_types : of the program, and of the one beside it, if there was one.
    rates : steps/s, for each measurement those of the programs.
    """

    accelerator: str
    gpus: int
    job_types: tuple[str, ...]
    rates: list[tuple[float, ...]] = field(default_factory=list)

    def quartiles(self, program: int) -> tuple[float, float, float]:
        """Lower quartile, median and upper quartile of one of the programs, steps/s."""
        low, median, high = np.percentile([rates[program] for rates in self.rates], [25.0, 50.0, 75.0]).tolist()
        return low, median, high


async def measure(
    adapter: Adapter,
    state: Path,
    programs: Sequence[Program],
    gpus: Sequence[int],
    window: Window,
    repeats: int,
    told: Callable[[Figure], None],
) -> list[Figure]:
    """Measure each program alone, and two of them together, everywhere where they have room.

    Repetitions follow each other only when everything was measured once, so that what changes with time shows in the
    spread. `told` hears of each measurement.

    Raises
    ------
    InputError
        No accelerator type has as many GPUs.
    ProfilingError
        A program could not be measured.
    """
    await adapter.open()
    try:
        nodes = _largest(await adapter.nodes())
        places = [(node, count) for node, count in product(nodes, gpus) if count <= node.gpus]
        if not places:
            there = ", ".join(f"{node.accelerator}:{node.gpus}" for node in nodes)
            raise InputError("--gpus", found=",".join(map(str, gpus)), expected=f"GPUs that there are: {there}")
        alone = list({program.job_type: (program,) for program in programs}.values())
        together = [tuple(programs)] if len(programs) > 1 else []
        chosen = [
            (node, Figure(node.accelerator, count, tuple(p.job_type for p in some)), some)
            for node, count in places
            for some in [*alone, *together]
        ]
        for _ in range(repeats):
            for node, figure, some in chosen:
                rates = await steps_per_second(adapter, state, node, figure.gpus, some, window)
                figure.rates.append(tuple(rates))
                told(figure)
        return [figure for _, figure, _ in chosen]
    finally:
        await adapter.close()


def _largest(nodes: Sequence[Node]) -> list[Node]:
    """The largest node of each type."""
    found: dict[str, Node] = {}
    for node in nodes:
        if node.up and (node.accelerator not in found or node.gpus > found[node.accelerator].gpus):
            found[node.accelerator] = node
    return list(found.values())


def table_of(figures: Sequence[Figure], source: str) -> ThroughputTable:
    """The medians as a throughput table."""
    builder = TableBuilder()
    for figure in figures:
        medians = [figure.quartiles(program)[1] for program in range(len(figure.job_types))]
        keys = [(name, figure.gpus) for name in figure.job_types]
        if len(keys) == 1:
            builder.add_isolated(figure.accelerator, keys[0], medians[0])
        else:
            builder.add_pair(figure.accelerator, keys[0], keys[1], (medians[0], medians[1]))
    return ThroughputTable(*builder.figures(), source)


def spread_frame(figures: Sequence[Figure]) -> pd.DataFrame:
    """One row per figure: median, quartiles and number of the measurements, steps/s."""
    import pandas as pd

    rows: list[dict[str, Any]] = []
    for figure in figures:
        for program, name in enumerate(figure.job_types):
            low, median, high = figure.quartiles(program)
            other = figure.job_types[1 - program] if len(figure.job_types) > 1 else ""
            rows.append(
                {
                    "job_type": name,
                    "scale_factor": figure.gpus,
                    "accelerator": figure.accelerator,
                    "other_job_type": other,
                    "median": median,
                    "lower_quartile": low,
                    "upper_quartile": high,
                    "measurements": len(figure.rates),
                }
            )
    return pd.DataFrame(rows)
