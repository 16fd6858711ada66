"""How far jobs get between events: at a steady pace, or at one that changes as they train.

The loop asks a pace how fast the rows of a decision go, when that changes next, and how far they are at the end of a
stretch. Here is the pace of jobs whose throughput depends on where they run alone; that of jobs whose goodput changes
with batch size and epoch is in `allocator.simulator.goodput`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from allocator.protocol.assignment import Assignment
from allocator.simulator.rounds import servers_of, spread_gangs
from allocator.simulator.rules.base import Stretch, rule_of
from allocator.simulator.rules.general import SpreadGangs

if TYPE_CHECKING:
    from allocator.simulator.world import World

_Floats = NDArray[np.float64]
_Ids = NDArray[np.int64]
_Flags = NDArray[np.bool_]


class Pace(Protocol):
    """How fast the jobs of a world go; arrays are over the K rows of a decision, `at` is where their jobs are."""

    def follow(self, rows: Assignment, at: _Ids) -> _Flags:
        """Jobs run as these rows from now on; (K,) who goes on with as many GPUs on each node as before."""

    def rates(self, rows: Assignment, at: _Ids) -> _Floats:
        """(K,) steps/s."""

    def next_change(self, stretch: Stretch, done: _Floats) -> float:
        """When the pace of a row that has `done` (K,) steps changes next, seconds; inf: not by itself."""

    def train(self, stretch: Stretch, speed: _Floats, end: float, done: _Floats, left: _Floats) -> _Floats:
        """(n,) steps that n jobs at `speed` (n,) do up to `end` (seconds), of so many `left` (n,), beside those `done`.

        `Stretch.finish` (n,) is when they are through if nothing happens before; a pace that changed on the way says
        there when they were.
        """

    def lengthen(self) -> None:
        """The world has more jobs, behind those that it had."""

    def state(self) -> Any:
        """What a checkpoint keeps."""

    def restore(self, state: Any) -> None:
        """Go on from `state`."""


class SteadyPace:
    """Throughputs of types, pairs and numbers of GPUs, on one server or spread over several.

    Parameters
    ----------
    world : its truth says how fast jobs are, its core where they run.
    """

    def __init__(self, world: World) -> None:
        self._core, self._table, self._truth = world.core, world.jobs, world.truth
        self._server = (
            servers_of(world.core.cluster) if rule_of(world.rules, SpreadGangs).unconsolidated_throughputs else []
        )

    def follow(self, rows: Assignment, at: _Ids) -> _Flags:  # noqa: ARG002
        """To start anew costs what it costs, whatever the GPUs."""
        return np.zeros(len(rows), dtype=np.bool_)

    def rates(self, rows: Assignment, at: _Ids) -> _Floats:  # noqa: ARG002
        """(K,) steps/s."""
        group = self._table.colocation_group
        rates = self._truth.rates_of(rows, group)
        slower = self._truth.spread_rates_of(rows, None if group is None else rates)
        if slower is None:
            return rates
        gpus = tuple(self._core.gpus_of(job) for job in rows.jobs.tolist())
        return np.where(spread_gangs(gpus, self._server), slower, rates)

    def next_change(self, stretch: Stretch, done: _Floats) -> float:  # noqa: ARG002
        """Nothing changes by itself."""
        return np.inf

    def train(self, stretch: Stretch, speed: _Floats, end: float, done: _Floats, left: _Floats) -> _Floats:  # noqa: ARG002
        """As far as they get at their speed."""
        until = stretch.until
        trained = seconds_between(
            stretch.begin, min(until, end) if isinstance(until, float) else np.minimum(until, end)
        )
        return np.asarray(np.minimum(speed * trained, left))

    def lengthen(self) -> None:
        """The truth of the world has grown with it."""

    def state(self) -> None:
        """Nothing to keep."""

    def restore(self, state: None) -> None:
        """Nothing to go on from."""


def seconds_between(begin: _Floats | float, end: _Floats | float) -> _Floats | float:
    """From `begin` to `end`, 0 where that comes before; for all rows where the two are the same for all."""
    if isinstance(begin, float) and isinstance(end, float):
        return max(end - begin, 0.0)
    return np.maximum(end - begin, 0.0)
