"""What options ask of the first slots: a small program that says which to choose and who runs in slot 0.

An option with deadline D leaves ``max(D - a, 0)`` slots after the first a, so that ``n - max(D - a, 0)`` of the job's
leases, if that is positive, are among these. Over all jobs they cannot be more than the GPUs there; nor can, for any
w, the whole w-fold gangs that jobs of at least w GPUs hold be more than fit. Where slots have equal numbers of GPUs
and jobs one GPU, these rows are all there is to feasibility (the windows of all jobs begin at slot 0, so the tightest
set of slots is a prefix). In general they are a relaxation, in which no schedule is made.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from formulations.leases.program import LeaseProgram
from formulations.leases.written import keep_bonus
from formulations.reference.mixed_integer import MixedProgram, RowBuilder
from throughputs.arrays import Floats, Ints


@dataclass(frozen=True, eq=False)
class Demands:
    """The choice of options, and the number of jobs of each width in slot 0.

    The columns u are cumulative: 1 for an option where it or an earlier one of its job is chosen. What an option asks
    of the first slots beyond the next later one is little, and only near its deadline, so the rows are sparse. The
    number of jobs of a width in slot 0 follows, for every width.

    Attributes
    ----------
    program : what is asked.
    mixed : to be minimised.
    options : (P,) options that have a column; those of a job by ascending deadline.
    widths : (W,) numbers of GPUs, ascending.
    keep : what keeping a job counts on top of its value, where jobs may be dropped; else 0.
    """

    program: LeaseProgram
    mixed: MixedProgram
    options: Ints
    widths: Ints
    keep: float

    def read(self, columns: Floats) -> tuple[Ints, int]:
        """Options (J,) and GPUs of slot 0 of an answer."""
        P = len(self.options)
        option = np.full(self.program.n_jobs, -1, dtype=np.int64)
        # the first of a job's cumulative columns that is 1: written last, it stays
        chosen = self.options[columns[:P] > 0.5][::-1]
        option[self.program.job[chosen]] = chosen
        return option, int((self.widths * np.rint(columns[P:]).astype(np.int64)).sum())

    def fewest_early_gangs(self, columns: Floats) -> MixedProgram:
        """The program of fewest gangs before the last deadline of their jobs, of answers as good as `columns`.

        What demands do not see is how gangs fit beside each other: the later they may run, the easier that is.
        """
        P, cost = len(self.options), self.mixed.cost
        of = self.program.job[self.options]
        early = np.flatnonzero((self.program.gpus[of[:-1]] > 1) & (of[1:] == of[:-1]))
        counted = np.flatnonzero(cost)
        rows = RowBuilder(len(cost))
        worth = [(np.zeros(len(counted), dtype=np.intp), counted, cost[counted])]
        rows.add(1, worth, -np.inf, float((cost * np.rint(columns)).sum()))
        gangs = np.zeros(len(cost))
        gangs[:P][early] = 1.0
        return replace(self.mixed, cost=gangs).with_rows(*rows.collected)


def demands(program: LeaseProgram, *, may_drop: bool = False) -> Demands:
    """The rows of `Demands`, with the objective of the lease program; without `may_drop` all jobs have an option."""
    T = program.n_slots
    options = np.flatnonzero(program.possible)
    options = options[np.lexsort((program.deadline[options], program.job[options]))]
    of, due = program.job[options], np.clip(program.deadline[options], 0, T)
    asked = _asked(program.needed[of], due, T)
    worth = program.option_values[options] + (keep_bonus(program) if may_drop else 0.0)
    P = len(options)
    last = np.append(of[1:] != of[:-1], True)
    more, step = asked.copy(), worth.copy()
    follows = np.flatnonzero(~last)
    more[follows] -= asked[follows + 1]
    step[follows] -= worth[follows + 1]
    widths, width_of = np.unique(program.gpus, return_inverse=True)
    W = len(widths)
    rows = RowBuilder(P + W)
    within = np.arange(len(follows))
    rows.add(len(follows), [(within, follows, 1.0), (within, follows + 1, -1.0)], -np.inf, 0.0)
    in_first = P + np.arange(W)
    rows.add(1, [(np.zeros(W, dtype=np.intp), in_first, widths)], -np.inf, program.capacity[:1])
    if may_drop:
        kept = np.flatnonzero(last)
        rows.add(W, [(np.arange(W), in_first, 1.0), (width_of[of[kept]], kept, -1.0)], -np.inf, 0.0)
    for width, gangs in _gangs(program, of):
        row, slot = np.nonzero(more * gangs[:, None])
        block = (slot, row, (more * gangs[:, None])[row, slot])
        room = np.cumsum(program.capacity // width)
        rows.add(T, [block], -np.inf, room)
        if width == 1:
            # without the GPUs of slot 0 that stay idle
            slots = np.arange(T)[:, None]
            rows.add(T, [block, (slots, in_first, -widths)], -np.inf, room - program.capacity[0])
    lower, upper = np.zeros(P + W), np.ones(P + W)
    upper[P:] = np.bincount(width_of, minlength=W)
    if not may_drop:
        lower[:P] = last
    cost = np.concatenate([-step, -program.weight * widths])
    mixed = rows.program(cost, lower, upper, np.ones(P + W, dtype=np.bool_))
    return Demands(program, mixed, options, widths, keep_bonus(program) if may_drop else 0.0)


def first_slot(program: LeaseProgram, option: Ints, first_gpus: int) -> MixedProgram | None:
    """The program of least ranks in slot 0 with options (J,) and the GPUs of slot 0 held: columns (J,), who runs there.

    What a job has not done in slot 0 is asked of the slots that follow. None where it cannot be done.
    """
    J, T = program.n_jobs, program.n_slots
    taken = option >= 0
    jobs = np.flatnonzero(taken)
    asked = _asked(program.needed[jobs], np.clip(program.deadline[option[jobs]], 0, T), T)
    rows = RowBuilder(J)
    if program.weight:
        rows.add(1, [(np.zeros(J, dtype=np.intp), np.arange(J), program.gpus)], first_gpus, first_gpus)
    else:
        rows.add(1, [(np.zeros(J, dtype=np.intp), np.arange(J), program.gpus)], -np.inf, program.capacity[:1])
    for width, gangs in _gangs(program, jobs):
        fits = program.capacity // width
        short = (gangs[:, None] * asked).sum(axis=0) - (np.cumsum(fits) - fits[0])
        binding = np.flatnonzero(short > 0)
        slot, row = np.nonzero((asked[:, binding] > 0).T & (gangs > 0))
        rows.add(len(binding), [(slot, jobs[row], gangs[row])], short[binding], np.inf)
    lower = np.zeros(J)
    lower[jobs] = asked[:, 0] > 0
    upper = (taken & (program.gpus <= program.capacity[0])).astype(np.float64)
    if (lower > upper).any():
        return None
    return rows.program(program.ranks(option).astype(np.float64), lower, upper, np.ones(J, dtype=np.bool_))


def _asked(needed: Ints, due: Ints, n_slots: int) -> Ints:
    """(R, T) leases that are among the first 1 to T slots in any case."""
    slots = np.arange(1, n_slots + 1)
    asked: Ints = np.clip(needed[:, None] - np.maximum(due[:, None] - slots, 0), 0, slots)
    return asked


def _gangs(program: LeaseProgram, jobs: Ints) -> Iterator[tuple[int, Ints]]:
    """For each width w, the whole w-fold gangs in a gang of some jobs; 0 for those that are narrower."""
    for width in np.unique(program.gpus).tolist():
        yield width, program.gpus[jobs] // width
