"""The lease program as rows and columns, for solvers of mixed-integer programs."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from formulations.leases.program import Array, Integers, LeaseProgram
from formulations.reference.mixed_integer import MixedProgram, RowBuilder

__all__ = ["Demands", "Statement", "demands", "state"]


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
    job: Integers
    slot: Integers
    options: Integers
    keep: float

    @property
    def in_binaries(self) -> MixedProgram:
        """The same with all columns whole."""
        return replace(self.mixed, whole=np.ones(len(self.mixed.cost), dtype=np.bool_))

    def read(self, columns: Array) -> tuple[Integers, NDArray[np.bool_]]:
        """Options (J,) and schedule (J, T) of an answer."""
        program, X = self.program, len(self.job)
        option = np.full(program.n_jobs, -1, dtype=np.int64)
        chosen = self.options[columns[X:] > 0.5]
        option[program.job[chosen]] = chosen
        schedule = np.zeros((program.n_jobs, program.n_slots), dtype=np.bool_)
        runs = columns[:X] > 0.5
        schedule[self.job[runs], self.slot[runs]] = True
        return option, schedule

    def near(self, option: Integers) -> Statement:
        """The same with two options of each job at most: the one of `option` (J,), and the next one."""
        chosen = option[self.program.job[self.options]]
        upper = self.mixed.upper.copy()
        upper[len(self.job) :] = (self.options >= chosen) & (self.options <= chosen + 1)
        return replace(self, mixed=replace(self.mixed, upper=upper))

    def ranked(self, option: Integers, first_gpus: int) -> Statement:
        """The program of least ranks in slot 0, with options (J,) and the GPUs of slot 0 held."""
        program, X = self.program, len(self.job)
        first = np.flatnonzero(self.slot == 0)
        jobs = self.job[first]
        slack = np.where(option >= 0, program.deadline[np.maximum(option, 0)], program.n_slots) - program.needed
        order = np.lexsort((-program.needed[jobs], -program.gpus[jobs], slack[jobs]))
        cost = np.zeros(len(self.mixed.cost))
        cost[first[order]] = np.arange(len(jobs))
        rows = RowBuilder(len(cost))
        if program.weight:
            zero = np.zeros(1, dtype=np.intp)
            rows.add(1, [(zero, first, program.gpus[jobs])], first_gpus, first_gpus)
        lower, upper = self.mixed.lower.copy(), self.mixed.upper.copy()
        lower[X:] = upper[X:] = np.isin(self.options, option)
        if not rows.count:
            return replace(self, mixed=replace(self.mixed, cost=cost, lower=lower, upper=upper))
        held = rows.program(cost, lower, upper, self.mixed.whole)
        return replace(self, mixed=_with_rows(self.mixed, held))


@dataclass(frozen=True, eq=False)
class Demands:
    """What options ask of the first a slots, for every a: a relaxation, in which no schedule is made.

    An option with deadline D leaves ``max(D - a, 0)`` slots after the first a, so that ``n - max(D - a, 0)`` of the
    job's leases, if that is positive, are among these. Over all jobs they cannot be more than the GPUs there; nor can,
    for any w, the whole w-fold gangs that jobs of at least w GPUs hold be more than fit. Where slots have equal numbers
    of GPUs and jobs one GPU, these rows are all there is to feasibility (the windows of all jobs begin at slot 0, so
    the tightest set of slots is a prefix).

    Attributes
    ----------
    options : (P,) options that have a column; J columns y of jobs in slot 0 follow.
    """

    program: LeaseProgram
    mixed: MixedProgram
    options: Integers
    keep: float

    def read(self, columns: Array) -> tuple[Integers, int]:
        """Options (J,) and GPUs of slot 0 of an answer."""
        program, P = self.program, len(self.options)
        option = np.full(program.n_jobs, -1, dtype=np.int64)
        chosen = self.options[columns[:P] > 0.5]
        option[program.job[chosen]] = chosen
        return option, int(program.gpus[columns[P:] > 0.5].sum())


def demands(program: LeaseProgram, *, may_drop: bool = False) -> Demands:
    """The rows of `Demands`, with the objective of the lease program."""
    J, T = program.n_jobs, program.n_slots
    options = np.flatnonzero(program.possible)
    of, due = program.job[options], np.clip(program.deadline[options], 0, T)
    P, slots = len(options), np.arange(1, T + 1)
    asked = np.clip(program.needed[of][:, None] - np.maximum(due[:, None] - slots, 0), 0, slots)
    rows = RowBuilder(P + J)
    jobs = np.arange(J)
    rows.add(J, [(of, np.arange(P), 1.0)], 0.0 if may_drop else 1.0, 1.0)
    rows.add(J, [(jobs, P + jobs, 1.0), (of, np.arange(P), -1.0)], -np.inf, 0.0)
    rows.add(1, [(np.zeros(J, dtype=np.intp), P + jobs, program.gpus)], -np.inf, program.capacity[:1])
    for width in np.unique(program.gpus).tolist():
        wide = np.flatnonzero(program.gpus[of] >= width)
        gangs = (program.gpus[of[wide]] // width)[:, None] * asked[wide]
        row, slot = np.nonzero(gangs)
        block = (slot, wide[row], gangs[row, slot])
        room = np.cumsum(program.capacity // width)
        rows.add(T, [block], -np.inf, room)
        if width == 1:
            # without the GPUs of slot 0 that stay idle
            idle = (slots[:, None] - 1, P + jobs, -program.gpus)
            rows.add(T, [block, idle], -np.inf, room - program.capacity[0])
    keep = _keep(program) if may_drop else 0.0
    cost = np.concatenate([-(program.option_values[options] + keep), -program.weight * program.gpus])
    mixed = rows.program(cost, np.zeros(P + J), np.ones(P + J), np.ones(P + J, dtype=np.bool_))
    return Demands(program, mixed, options, keep)


def _keep(program: LeaseProgram) -> float:
    """What keeping a job counts, so that the most are kept."""
    return float(program.option_values.max(initial=0.0)) * program.n_jobs + 2.0


def _with_rows(mixed: MixedProgram, more: MixedProgram) -> MixedProgram:
    from scipy import sparse

    return replace(
        more,
        matrix=sparse.vstack([mixed.matrix, more.matrix], format="csr"),
        row_lower=np.concatenate([mixed.row_lower, more.row_lower]),
        row_upper=np.concatenate([mixed.row_upper, more.row_upper]),
    )


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
    keep = _keep(program) if may_drop else 0.0
    cost = np.zeros(len(job) + len(options))
    cost[X[slot == 0]] = -program.weight * program.gpus[job[slot == 0]]
    cost[S] = -(program.option_values[options] + keep)
    whole = np.ones(len(cost), dtype=np.bool_)
    whole[X] = program.gpus[job] > 1
    mixed = rows.program(cost, np.zeros(len(cost)), np.ones(len(cost)), whole)
    return Statement(program, mixed, job, slot, options, keep)


def _pairs_of_job(jobs: Integers, of: Integers, n_jobs: int) -> tuple[Integers, Integers]:
    """All pairs of an entry of `jobs` and an option (ascending `of`) of that job, by position."""
    begin = np.searchsorted(of, np.arange(n_jobs + 1))
    count = (begin[1:] - begin[:-1])[jobs]
    entry = np.repeat(np.arange(len(jobs)), count)
    within = np.arange(len(entry)) - np.repeat(np.cumsum(count) - count, count)
    return entry, begin[jobs[entry]] + within
