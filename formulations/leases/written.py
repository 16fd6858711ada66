"""The lease program as rows and columns, for solvers of mixed-integer programs."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from formulations.leases.program import LeaseProgram
from formulations.reference.mixed_integer import MixedProgram, RowBuilder
from throughputs.arrays import Flags, Floats, Ints


@dataclass(frozen=True, eq=False)
class Statement:
    """The rows and columns of a lease program: x of jobs in slots before their last deadline, then S of options.

    Options that are impossible by length, and slots after a job's last possible deadline, have no columns. Jobs of one
    GPU are left continuous in the slots: once options and wider jobs are settled, what remains is a transportation
    problem, all of whose vertices are whole.

    Attributes
    ----------
    program : what is stated.
    mixed : the statement, to be minimised.
    job, slot : (X,) of the columns x.
    options : (P,) options that have a column.
    keep : what keeping a job counts on top of its value, where jobs may be dropped; else 0.
    """

    program: LeaseProgram
    mixed: MixedProgram
    job: Ints
    slot: Ints
    options: Ints
    keep: float

    @property
    def in_binaries(self) -> MixedProgram:
        """The same with all columns whole."""
        return replace(self.mixed, whole=np.ones(len(self.mixed.cost), dtype=np.bool_))

    def read(self, columns: Floats) -> tuple[Ints, Flags]:
        """Options (J,) and schedule (J, T) of an answer."""
        program, X = self.program, len(self.job)
        option = np.full(program.n_jobs, -1, dtype=np.int64)
        chosen = self.options[columns[X:] > 0.5]
        option[program.job[chosen]] = chosen
        schedule = np.zeros((program.n_jobs, program.n_slots), dtype=np.bool_)
        runs = columns[:X] > 0.5
        schedule[self.job[runs], self.slot[runs]] = True
        return option, schedule

    def near(self, option: Ints) -> Statement:
        """The same with two options of each job at most: the one of `option` (J,), and the next one."""
        chosen = option[self.program.job[self.options]]
        upper = self.mixed.upper.copy()
        upper[len(self.job) :] = (self.options >= chosen) & (self.options <= chosen + 1)
        return replace(self, mixed=replace(self.mixed, upper=upper))

    def ranked(self, option: Ints, first_gpus: int) -> Statement:
        """The program of least ranks in slot 0, with options (J,) and the GPUs of slot 0 held."""
        program, X = self.program, len(self.job)
        first = np.flatnonzero(self.slot == 0)
        cost = np.zeros(len(self.mixed.cost))
        cost[first] = program.ranks(option)[self.job[first]]
        rows = RowBuilder(len(cost))
        if program.weight:
            zero = np.zeros(1, dtype=np.intp)
            rows.add(1, [(zero, first, program.gpus[self.job[first]])], first_gpus, first_gpus)
        lower, upper = self.mixed.lower.copy(), self.mixed.upper.copy()
        lower[X:] = upper[X:] = np.isin(self.options, option)
        mixed = replace(self.mixed, cost=cost, lower=lower, upper=upper)
        return replace(self, mixed=mixed.with_rows(*rows.collected) if rows.count else mixed)


def keep_bonus(program: LeaseProgram) -> float:
    """What keeping a job counts, so that the most are kept."""
    return float(program.option_values.max(initial=0.0)) * program.n_jobs + 2.0


def state(program: LeaseProgram, *, may_drop: bool = False) -> Statement:
    """The rows of `LeaseProgram`; with `may_drop` at most one option of each job, and first the most jobs."""
    J, T = program.n_jobs, program.n_slots
    options = np.flatnonzero(program.possible)
    of, due = program.job[options], np.clip(program.deadline[options], 0, T)
    last, first_due = np.zeros(J, dtype=np.int64), np.full(J, T)
    np.maximum.at(last, of, due)
    np.minimum.at(first_due, of, due)
    start = np.cumsum(last) - last
    job = np.repeat(np.arange(J), last)
    slot = np.arange(len(job)) - start[job]
    X, S = np.arange(len(job)), len(job) + np.arange(len(options))
    rows = RowBuilder(len(job) + len(options))
    rows.add(T, [(slot, X, program.gpus[job])], -np.inf, program.capacity)
    rows.add(J, [(job, X, 1.0), (of, S, -program.needed[of])], 0.0, 0.0)
    rows.add(J, [(of, S, 1.0)], 0.0 if may_drop else 1.0, 1.0)
    # before the first deadline of a job all its options allow the slot
    late = np.flatnonzero(slot >= first_due[job])
    row, option = _pairs_of_job(job[late], of, J)
    allowed = due[option] > slot[late[row]]
    links = (row[allowed], S[option[allowed]], -1.0)
    rows.add(len(late), [(np.arange(len(late)), X[late], 1.0), links], -np.inf, 0.0)
    keep = keep_bonus(program) if may_drop else 0.0
    cost = np.zeros(len(job) + len(options))
    cost[X[slot == 0]] = -program.weight * program.gpus[job[slot == 0]]
    cost[S] = -(program.option_values[options] + keep)
    whole = np.ones(len(cost), dtype=np.bool_)
    whole[X] = program.gpus[job] > 1
    mixed = rows.program(cost, np.zeros(len(cost)), np.ones(len(cost)), whole)
    return Statement(program, mixed, job, slot, options, keep)


def _pairs_of_job(jobs: Ints, of: Ints, n_jobs: int) -> tuple[Ints, Ints]:
    """All pairs of an entry of `jobs` and an option (ascending `of`) of that job, by position."""
    begin = np.searchsorted(of, np.arange(n_jobs + 1))
    count = (begin[1:] - begin[:-1])[jobs]
    entry = np.repeat(np.arange(len(jobs)), count)
    within = np.arange(len(entry)) - np.repeat(np.cumsum(count) - count, count)
    return entry, begin[jobs[entry]] + within
