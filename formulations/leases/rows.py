"""Lease programs as rows and columns, for solvers of mixed-integer programs.

The columns u that choose among options are cumulative: 1 for an option where it or an earlier one of its job is chosen.
So what an option asks beyond the next later one is a coefficient, and which slots it allows is a row of three entries.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from formulations.leases.program import LeaseProgram
from formulations.reference.mixed_integer import MixedProgram, RowBuilder
from throughputs.arrays import Flags, Floats, Ints


class LeaseRows:
    """The choice of options that are possible, with what it asks of slots in the small or with all schedules.

    Attributes
    ----------
    program : what is stated.
    options : (P,) options that have a column u; those of a job by ascending deadline. of, due : (P,) their jobs, and
        the slots before their deadlines.
    last : position of the last option of each job that has one. follows : (F,) those of all others.
    keep : what keeping a job counts on top of its value, where jobs may be dropped; else 0, and all have one that can.
    job, slot : (X,) of the columns x of schedules: slots up to the last possible deadline of each job.
    widths : (W,) numbers of GPUs, ascending.
    """

    def __init__(self, program: LeaseProgram, *, may_drop: bool = False) -> None:
        self.program, J, T = program, program.n_jobs, program.n_slots
        options = np.flatnonzero(program.possible)
        self.options = options[np.lexsort((program.deadline[options], program.job[options]))]
        self.of, self.due = program.job[self.options], np.clip(program.deadline[self.options], 0, T)
        self.P, is_last = len(options), np.append(self.of[1:] != self.of[:-1], True)
        self.last, self.follows = np.flatnonzero(is_last), np.flatnonzero(~is_last)
        self.keep = program.keep_bonus if may_drop else 0.0
        until = np.zeros(J, dtype=np.int64)
        until[self.of[self.last]] = self.due[self.last]
        self.job, self.slot = np.nonzero(np.arange(T) < until[:, None])
        self.widths, self.width_of = np.unique(program.gpus, return_inverse=True)

    def read(self, columns: Floats) -> Ints:
        """(J,) the options that are chosen, -1 for none."""
        option = np.full(self.program.n_jobs, -1, dtype=np.int64)
        # the first of a job's cumulative columns that is 1: written last, it stays
        chosen = self.options[columns[: self.P] > 0.5][::-1]
        option[self.program.job[chosen]] = chosen
        return option

    def read_first(self, columns: Floats, option: Ints) -> Flags:
        """(J,) who runs in slot 0: the most urgent, as far as the GPUs go that an answer to `demands` uses there."""
        first, gpus = np.zeros(self.program.n_jobs, dtype=np.bool_), self.program.gpus
        left = int((self.widths * np.rint(columns[self.P :])).sum())
        for job in self.program.by_urgency(option).tolist():
            if option[job] >= 0 and gpus[job] <= left:
                first[job] = True
                left -= int(gpus[job])
        return first

    def read_schedule(self, columns: Floats) -> Flags:
        """(J, T) the schedule of an answer to `stated`."""
        schedule = np.zeros((self.program.n_jobs, self.program.n_slots), dtype=np.bool_)
        schedule[self.job, self.slot] = columns[self.P :] > 0.5
        return schedule

    def _steps(self, figures: Any) -> Any:
        """(P, ...) what each u adds: the figure of its option less that of the next later one of the job."""
        steps = figures.copy()
        steps[self.follows] -= figures[self.follows + 1]
        return steps

    def _program(self, rows: RowBuilder, first_gpus: Ints, most: ArrayLike, whole: Flags | bool = True) -> MixedProgram:
        """The program of rows; columns behind u take so many GPUs of slot 0 and are at most so large."""
        within = np.arange(len(self.follows))
        rows.add(len(within), [(within, self.follows, 1.0), (within, self.follows + 1, -1.0)], -np.inf, 0.0)
        worth = self.program.option_values[self.options] + self.keep
        cost = np.concatenate([-self._steps(worth), -self.program.weight * first_gpus])
        lower, upper, flags = np.zeros(len(cost)), np.ones(len(cost)), np.ones(len(cost), dtype=np.bool_)
        lower[self.last] = self.keep == 0
        upper[self.P :], flags[self.P :] = most, whole
        return rows.program(cost, lower, upper, flags)

    def demands(self) -> MixedProgram:
        """What options ask of the first slots, and how many jobs of each width run in slot 0: columns u, then (W,).

        An option with deadline D leaves ``max(D - a, 0)`` slots after the first a, so that ``n - max(D - a, 0)`` of the
        job's leases, if that is positive, are among these. Over all jobs they cannot be more than the GPUs there,
        without those of slot 0 that stay idle; nor can, for any w, the whole w-fold gangs that jobs of at least w GPUs
        hold be more than fit. Where slots have equal numbers of GPUs and jobs one GPU, these rows are all there is to
        feasibility (the windows of all jobs begin at slot 0, so the tightest set of slots is a prefix). In general they
        are a relaxation.
        """
        program, widths, (W, T) = self.program, self.widths, (len(self.widths), self.program.n_slots)
        rows, in_first = RowBuilder(self.P + W), self.P + np.arange(W)
        rows.add(1, [(0, in_first, widths)], -np.inf, program.capacity[:1])
        rows.add(W, [(np.arange(W), in_first, 1.0), (self.width_of[self.of[self.last]], self.last, -1.0)], -np.inf, 0.0)
        slots, gpus = np.arange(1, T + 1), program.gpus[self.of]
        asked = np.clip(program.needed[self.of][:, None] - np.maximum(self.due[:, None] - slots, 0), 0, slots)
        for width in widths:
            more = self._steps(asked * (gpus // width)[:, None])
            row, slot = np.nonzero(more)
            in_slot_0 = (np.arange(T)[:, None], in_first, -(widths // width))
            later = np.cumsum(program.capacity // width) - program.capacity[0] // width
            rows.add(T, [(slot, row, more[row, slot]), in_slot_0], -np.inf, later)
        return self._program(rows, widths, np.bincount(self.width_of))

    def stated(self, near: Ints | None = None) -> MixedProgram:
        """The rows of `LeaseProgram`, with at most one option of a job if jobs may be dropped: columns u, then (X,).

        Jobs of one GPU are left continuous in the slots: once options and wider jobs are settled, what remains is a
        transportation problem, all of whose vertices are whole. With `near`, options (J,), those of a job that are due
        before the one chosen there have no column.
        """
        program, J, T = self.program, self.program.n_jobs, self.program.n_slots
        job, slot, X = self.job, self.slot, self.P + np.arange(len(self.job))
        rows = RowBuilder(self.P + len(job))
        rows.add(T, [(slot, X, program.gpus[job])], -np.inf, program.capacity)
        kept = np.zeros(J, dtype=np.int64)
        kept[self.of[self.last]] = self.last
        leases = (self.of[self.last], self.last, -program.needed[self.of[self.last]])
        rows.add(J, [(job, X, 1.0), leases], 0.0, 0.0)
        # none of the options that are due by then
        due = np.searchsorted(self.of * (T + 1) + self.due, job * (T + 1) + slot, side="right") - 1
        late = np.flatnonzero((due >= 0) & (self.of[due] == job))
        within = np.arange(len(late))
        links = [(within, X[late], 1.0), (within, due[late], 1.0), (within, kept[job[late]], -1.0)]
        rows.add(len(late), links, -np.inf, 0.0)
        mixed = self._program(rows, program.gpus[job] * (slot == 0), 1.0, program.gpus[job] > 1)
        if near is not None:
            mixed.upper[: self.P] = (near >= 0)[self.of] & (self.due >= program.deadline[near][self.of])
        return mixed
