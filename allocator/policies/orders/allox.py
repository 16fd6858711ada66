"""AlloX: the least average completion time, by matching jobs to GPUs and positions in line."""

from __future__ import annotations

from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np

from allocator.conversion import NotNegative, Part
from allocator.policies.base.ordering import in_order_of_arrival
from allocator.protocol import ClusterState, Need, SharePolicy
from allocator.protocol.allocation import Allocation
from allocator.registry import register
from formulations import TOLERANCE, assign_to_lines
from throughputs.arrays import Flags, Floats, Ints, Positions

if TYPE_CHECKING:
    from formulations import Line


@register(
    "allox",
    paper="Le et al., EuroSys 2020, sec. 4; Narayanan et al., OSDI 2020, sec. 6 (baseline)",
    program="min sum_ijk k n_i / T_ij y_ijk, one position k on one type j per job, c_j GPUs per position",
)
@dataclass(frozen=True)
class AlloX(SharePolicy):
    """Lower the average completion time: match waiting jobs to GPUs and positions in line.

        min  sum_ijk  k n_i / T_ij y_ijk          y_ijk in {0, 1}
        with sum_jk y_ijk = 1,   sum_i s_i y_ijk <= F_j    for every position k from the end of the line

    n: steps left; F: GPUs that no running job has. A job k-th from the end holds up k jobs, itself included. The jobs
    at the head of the lines start, with share 1, and stay where they are until they complete; the others are matched
    afresh at the next decision. Where several jobs of one position could start it is those that wait longest.

    Parameters
    ----------
    alpha : part of the waiting jobs that is looked at, those that wait longest, but as many as there are free GPUs.
    gangs : "whole": a gang takes all its GPUs of one position, an integer program. "one_gpu_share": a gang counts as
        one GPU and runs 1/s_i of the time, and is matched afresh each time, as in the simulator of Shockwave.
    reserve : whether the free GPUs of one type are kept for the longest waiting job when its gang fits nowhere;
        smaller jobs would otherwise take every GPU that becomes free.
    precision : relative gap to which the integer program is solved; single GPUs are matched exactly.
    """

    needs = Need.LENGTHS | Need.ISOLATED_TIME

    alpha: Part = 1.0
    gangs: Literal["whole", "one_gpu_share"] = "whole"
    reserve: bool = True
    precision: NotNegative = 1e-3

    preemptive: ClassVar[bool] = False

    def allocate(self, state: ClusterState) -> Allocation:
        """Shares of 1 (a gang under "one_gpu_share": 1 / s_i) for the jobs that run; objective in seconds."""
        started = perf_counter()
        matrix, usable = state.throughputs, state.runnable_rates
        sizes = np.ones_like(state.scale_factors) if self.gangs == "one_gpu_share" else state.scale_factors
        free, running = state.capacity.copy(), np.flatnonzero(state.current_accelerator >= 0)
        np.subtract.at(free, state.current_accelerator[running], sizes[running])
        free = np.maximum(free, 0)
        able = (usable > 0).any(axis=1) & (state.steps_remaining > 0)
        waiting = self._considered(state, able & (state.current_accelerator < 0), int(free.sum()))
        if self.reserve and len(waiting):
            free = self._reserved(usable[waiting[0]], int(sizes[waiting[0]]), free)
        line = self._line(state, waiting, usable, free, sizes)
        shares = np.zeros(usable.shape)
        shares[running, state.current_accelerator[running]] = 1.0
        starting = _heads(line, free, sizes[waiting])
        jobs = waiting[starting]
        shares[jobs, line.accelerator[starting]] = sizes[jobs] / state.scale_factors[jobs]
        return Allocation(
            policy=self.name,
            throughputs=matrix,
            shares=shares,
            status="optimal" if line.gap <= TOLERANCE else "feasible",
            objective=line.seconds,
            objective_unit="s",
            bound=line.bound,
            certified=True,
            gap=line.gap,
            unserved=tuple(matrix.jobs[i] for i in np.flatnonzero(~able)),
            solver=line.solver,
            seconds=perf_counter() - started,
        )

    def _considered(self, state: ClusterState, waiting: Flags, n_free: int) -> Positions:
        """Positions of the waiting jobs that are looked at, those that wait longest first."""
        order = in_order_of_arrival(state, np.flatnonzero(waiting))
        return order[: max(int(self.alpha * len(order)), n_free)]

    def _reserved(self, rates: Floats, need: int, free: Ints) -> Ints:
        """Free GPUs without those of the type where a gang that fits nowhere lacks fewest."""
        fits = rates > 0
        if (fits & (free >= need)).any():
            return free
        lacking = np.where(fits, need - free, np.iinfo(np.int64).max)
        nearest = np.flatnonzero(lacking == lacking.min())
        open_ = free.copy()
        open_[nearest[np.argmax(rates[nearest])]] = 0
        return open_

    def _line(
        self,
        state: ClusterState,
        waiting: Positions,
        usable: Floats,
        free: Ints,
        sizes: Ints,
    ) -> Line:
        with np.errstate(divide="ignore"):
            seconds = state.steps_remaining[waiting, None] / usable[waiting]
        return assign_to_lines(seconds, free, sizes[waiting], precision=self.precision)


def _heads(line: Line, free: Ints, sizes: Ints) -> Positions:
    """Jobs that start now: from the highest position down, as far as the GPUs of their type go."""
    left, starting = free.copy(), []
    for i in np.argsort(-line.position, kind="stable"):
        j = line.accelerator[i]
        if j >= 0 and sizes[i] <= left[j]:
            left[j] -= sizes[i]
            starting.append(i)
    return np.array(starting, dtype=np.intp)
