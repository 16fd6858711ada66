"""The options of every class beside groups, and where they enter the rows that classes have in common."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from formulations.packed.program import PackedProgram

__all__ = ["Options"]

Array = NDArray[np.float64]
Index = NDArray[np.intp]


class Options:
    """The options of all classes, one class after the other, and where they enter the common rows.

    Each class has its real options, then the slacks y of its time and v of its demand, which take nothing in common.

    Attributes
    ----------
    of : (C,) class of each option. real : (C,) whether it is none of the slacks.
    type, partner : (C,) accelerator type, and group beside whose jobs the time is spent, -1 alone.
    time, rate : (C,) what enters the two rows of the class, the rate in units of the class's fastest.
    gpus : (C,) GPUs that one job takes, half a gang in a pair. n : (C,) jobs of the class.
    row, sign : (C,) balance row of the option, and 1, -1, or 0 where it is in none.
    balances : number of balance rows. starts : (K,) first option of each class.
    of_y, of_v : (K,) places of the slacks.
    blocks : for each group its options, as (classes, options), their coefficients in its common rows, and these rows.
    """

    def __init__(self, program: PackedProgram) -> None:
        G, M = program.alone.shape
        # alone comes first, then the groups: one plane of options per group
        allowed = np.concatenate([np.ones((G, 1, M), dtype=bool), program.useful], axis=1)
        owner, partner, type_ = np.nonzero(allowed)
        real_count = allowed.sum(axis=(1, 2))
        # the slacks y and v come last in each group
        after = np.repeat(np.cumsum(real_count), 2)
        slack = np.arange(2 * G) // 2
        owner, partner, type_ = (
            np.insert(values, after, slacks) for values, slacks in ((owner, slack), (partner, 0), (type_, 0))
        )
        count = real_count + 2
        is_y = np.cumsum(count) - 2
        real = np.ones(len(owner))
        real[is_y] = real[is_y + 1] = 0.0
        partner = partner - 1
        rows = np.full((G, G, M), -1, dtype=np.intp)
        upper = program.useful & (np.arange(G)[:, None] < np.arange(G)[None, :])[:, :, None]
        self.balances = int(upper.sum())
        rows[upper] = np.arange(self.balances)
        first, second = np.minimum(owner, partner), np.maximum(owner, partner)
        row = np.where(partner >= 0, rows[first, second, type_], -1)
        sign = np.where(row >= 0, np.where(owner < partner, 1.0, -1.0), 0.0)
        row = np.maximum(row, 0)
        rate = np.where(
            partner < 0, program.alone[owner, type_], program.together[owner, np.maximum(partner, 0), type_]
        )
        gpus = real * program.scale_factors[owner] * np.where(partner < 0, 1.0, 0.5)
        # from groups to classes
        start = np.cumsum(count) - count
        size = count[program.group]
        self.starts = np.cumsum(size) - size
        self.of = np.repeat(np.arange(program.n_classes), size)
        source = np.arange(len(self.of)) - self.starts[self.of] + start[program.group][self.of]
        self.type, self.partner, self.row, self.sign = type_[source], partner[source], row[source], sign[source]
        self.of_y, self.of_v = self.starts + size - 2, self.starts + size - 1
        self.rate = (real * rate)[source] / program.fastest[self.of]
        self.rate[self.of_v] = -1.0
        self.real, self.time = real[source] > 0, np.ones(len(source))
        self.time[self.of_v] = 0.0
        self.gpus = gpus[source]
        self.n = program.counts[self.of]
        self.n_gpus, self.n_sign = self.n * self.gpus, self.n * self.sign
        self.M = M
        self.blocks = self._blocks(program, start, count, type_, row, sign, gpus)

    def _blocks(
        self, program: PackedProgram, start: Index, count: Index, type_: Index, row: Index, sign: Array, gpus: Array
    ) -> list[tuple[slice, tuple[int, int], Array, Index]]:
        """See `blocks`; from the figures of each group."""
        blocks = []
        ends = np.append(program.starts, program.n_classes)
        for a in range(len(count)):
            options = slice(start[a], start[a] + count[a])
            paired = np.flatnonzero(sign[options])
            coefficients = np.zeros((self.M + len(paired), count[a]))
            coefficients[type_[options], np.arange(count[a])] = gpus[options]
            coefficients[self.M + np.arange(len(paired)), paired] = sign[options][paired]
            common = np.concatenate([np.arange(self.M), self.M + row[options][paired]])
            first = int(self.starts[ends[a]])
            shape = (int(ends[a + 1] - ends[a]), int(count[a]))
            blocks.append((slice(first, first + shape[0] * shape[1]), shape, coefficients, common))
        return blocks

    def sum(self, values: Array) -> Array:
        """(K,) sum over the options of each class."""
        sums: Array = np.add.reduceat(values, self.starts)
        return sums

    def common(self, values: Array) -> Array:
        """(M + balances,) what `values` (C,) of one job of each class come to in the common rows."""
        used: Array = np.bincount(self.type, self.n_gpus * values, minlength=self.M).astype(np.float64, copy=False)
        if not self.balances:
            return used
        return np.concatenate([used, np.bincount(self.row, self.n_sign * values, minlength=self.balances)])

    def paid(self, prices: Array) -> Array:
        """(C,) cost of each option at `prices` of the common rows."""
        cost: Array = self.gpus * prices[self.type]
        if self.balances:
            cost = cost + self.sign * prices[self.M + self.row]
        return cost
