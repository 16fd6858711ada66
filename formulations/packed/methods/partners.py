"""The program over times beside groups, for many different jobs: the engine around `partner_prices`.

Where jobs differ in what they want (steps left, time elapsed) every job is a class of its own and pairs of classes are
pairs of jobs. Times beside groups are N (1 + G) M instead, with G M (G - 1)/2 rows to keep them in balance.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from formulations.core.solution import NotAcceptedError
from formulations.packed.certificate import repaired
from formulations.packed.methods.partner_options import Options
from formulations.packed.methods.partner_prices import PartnerPoint, solve_partner_prices
from formulations.packed.program import Goal, PackedPoint, PackedProgram

__all__ = ["Partners", "split", "without_negligible"]

Array = NDArray[np.float64]
Index = NDArray[np.intp]

_MOST_ROWS = 6_000
"""Common rows up to which this path is taken; its dense system has one for each pair of groups and type."""

_BESIDE_ITSELF = 1e-10
"""Part of a job's throughput from time beside itself above which it becomes a group of its own."""

_NEGLIGIBLE_SHARES = (1e-5, 1e-6, 1e-7, 1e-8, 1e-9, 1e-10, 1e-11)
"""Shares of time below which an option is taken for unused, tried in turn."""

_ACCEPTED_LOSS = 3e-10
"""Relative loss of a job's throughput up to which options are dropped as negligible."""

_MOST_ROUNDS = 20


class Partners:
    """Solves one goal after the other; jobs that would be their own partner leave their group, and stay out."""

    def __init__(self, program: PackedProgram) -> None:
        self.program = program
        self.loners = np.zeros(program.n_classes, dtype=bool)
        self._regroup()

    def _regroup(self) -> None:
        self.parts, self.order, self.origin = split(self.program, self.loners)
        upper = np.triu(np.ones((len(self.origin),) * 2, dtype=bool), 1)
        rows = int((self.parts.useful & upper[:, :, None]).sum())
        if rows > _MOST_ROWS:
            raise NotAcceptedError(f"{rows} pairs of groups are more than {_MOST_ROWS}")
        self.options = Options(self.parts)

    def __call__(self, goal: Goal, precision: float) -> PackedPoint:
        """Solve for a goal; RuntimeError when the method breaks down."""
        iterations = 0
        for _ in range(_MOST_ROUNDS):
            point = self._solve(goal, precision)
            iterations += point.iterations
            beside_itself = self._beside_itself(point)
            if not beside_itself.any():
                break
            self.loners |= beside_itself
            self._regroup()
        return replace(without_negligible(self.program, point), iterations=iterations)

    def _solve(self, goal: Goal, precision: float) -> PackedPoint:
        parts, order = self.parts, self.order
        fastest = parts.fastest
        slopes = None if goal.slopes is None else goal.slopes[order] / fastest
        top = 1.0 if slopes is None else float(slopes.max())
        gains = None if goal.gains is None else goal.gains_by_type(self.program)[order] * fastest[:, None]
        most = 1.0 if gains is None else max(float(gains.max()), 1e-300)
        scaled = Goal(
            None if slopes is None else slopes / top,
            None if goal.floors is None else goal.floors[order] / fastest,
            None if gains is None else gains / most,
            None if goal.gpu_cost is None else goal.gpu_cost / most,
        )
        found = solve_partner_prices(parts, self.options, scaled, precision)
        if not np.isfinite(found.times).all():
            raise RuntimeError("the interior point method broke down")
        return self._original(found, most)

    def _original(self, found: PartnerPoint, scale: float) -> PackedPoint:
        """Back to the classes and groups of the program."""
        program, options = self.program, self.options
        K, M = program.rates.shape
        alone, shared = np.zeros((K, M)), np.zeros((K, len(program.alone), M))
        klass = self.order[options.of]
        lonely = options.real & (options.partner < 0)
        alone[klass[lonely], options.type[lonely]] = found.times[lonely]
        paired = options.real & (options.partner >= 0)
        where = klass[paired], self.origin[options.partner[paired]], options.type[paired]
        np.add.at(shared, where, found.times[paired])
        of_demand, of_time = np.empty(K), np.empty(K)
        of_demand[self.order] = found.demand_multipliers / self.parts.fastest
        of_time[self.order] = found.time_multipliers
        return PackedPoint(alone, shared, of_demand * scale, of_time * scale, found.prices * scale, found.iterations)

    def _beside_itself(self, point: PackedPoint) -> NDArray[np.bool_]:
        """(K,) jobs that would lose throughput if they spent no time beside themselves."""
        program, k = self.program, np.arange(self.program.n_classes)
        inside = point.shared[k, program.group]
        excess = np.maximum(inside - program.total(inside)[program.group] / 2.0, 0.0)
        lost = (excess * program.partner_rates[k, program.group]).sum(axis=1)
        single = (program.counts == 1) & ~self.loners
        return np.asarray(single & (lost > _BESIDE_ITSELF * program.throughput(point)))


def split(program: PackedProgram, loners: NDArray[np.bool_]) -> tuple[PackedProgram, Index, Index]:
    """The same program with some classes of one job each in groups of their own, which no job shares with itself.

    Returns it with the class (K,) of the old program at each place, and the old group (G',) of each group.
    """
    G = len(program.alone)
    group = program.group.copy()
    group[loners] = G + np.arange(int(loners.sum()))
    _, group = np.unique(group, return_inverse=True)
    order = np.argsort(group, kind="stable")
    group = group.ravel()[order]
    first = np.searchsorted(group, np.arange(int(group[-1]) + 1))
    origin = program.group[order][first]
    counts = program.counts[order]
    useful = program.useful[np.ix_(origin, origin)]
    jobs = np.add.reduceat(counts, first)
    own = np.arange(len(origin))
    useful[own, own] &= (jobs > 1)[:, None]
    parts = PackedProgram(
        group,
        counts,
        program.alone[origin],
        program.together[np.ix_(origin, origin)],
        program.scale_factors[origin],
        program.capacity,
        useful,
    )
    return parts, order, origin


def without_negligible(program: PackedProgram, point: PackedPoint) -> PackedPoint:
    """The point without the traces of unused options that an interior point leaves, where they carry nothing."""
    before = program.throughput(repaired(program, point))
    for share in _NEGLIGIBLE_SHARES:
        alone = np.where(point.alone < share, 0.0, point.alone)
        shared = np.where(point.shared < share, 0.0, point.shared)
        clean = repaired(program, replace(point, alone=alone, shared=shared))
        if (program.throughput(clean) >= before * (1.0 - _ACCEPTED_LOSS)).all():
            return clean
    return point
