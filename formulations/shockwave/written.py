"""The planning program as rows and columns, for solvers of mixed-integer programs."""

from __future__ import annotations

import numpy as np

from formulations.reference.mixed_integer import MixedProgram, RowBuilder, at_vertex
from formulations.shockwave.program import PlanningProgram
from throughputs.arrays import Flags, Floats, Ints, Positions


def state(program: PlanningProgram, weights: Floats, *, fairness: bool, form: str) -> MixedProgram:
    """``min k L - sum_j weight_j U_j`` over the rows of `PlanningProgram`, in one of three forms.

    - "binaries": as published, with N R binaries ``s_jr``, but without those that keep the pieces of the logarithm next
      to each other, as a concave utility does by itself;
    - "counts": ``s_jr`` from 0 to 1, whole ``n_j``, and whole numbers ``u_wr`` of jobs of each width above 1 in each
      round. Once these are settled the rest is a transportation problem, so the optimum is that of "binaries";
    - "rounds": whole ``n_j`` alone, a relaxation.

    Where there are ``n_j``, these rows that follow from room in every round stand by them, for every width w that
    occurs: ``sum_j floor(w_j / w) n_j <= R floor(G / w)``.
    """
    columns = _Columns(program, form)
    rows = RowBuilder(columns.n_columns)
    N, jobs = program.n_jobs, np.arange(program.n_jobs)
    _add_room(rows, program, columns)
    d = program.epoch_seconds
    spent = columns.rounds if form == "binaries" else columns.numbers[:, None]
    rows.add(N, [(jobs, columns.p, d), (jobs[:, None], spent, -program.round_seconds)], -np.inf, 0.0)
    done = program.epochs_done / program.epochs
    progress = (jobs, columns.p, -1.0 / program.epochs)
    rows.add(N, [(jobs[:, None], columns.z, np.asarray(program.bases)), progress], done, done)
    rows.add(N, [(jobs[:, None], columns.z, 1.0)], 1.0, 1.0)
    rows.add(N, [(jobs, columns.longest, 1.0), (jobs, columns.p, d)], program.remaining_seconds, np.inf)
    if fairness:
        _add_fairness(rows, program, columns)
    cost = np.zeros(columns.n_columns)
    cost[columns.z] = -weights[:, None] * program.log_bases
    cost[columns.longest] = program.makespan_weight
    upper = np.full(columns.n_columns, np.inf)
    upper[columns.rounds] = 1.0
    upper[columns.numbers] = program.rounds
    upper[columns.u] = (program.gpus // columns.wider)[:, None]
    whole = np.zeros(columns.n_columns, dtype=np.bool_)
    whole[columns.numbers] = whole[columns.u] = True
    whole[columns.rounds] = form == "binaries"
    return rows.program(cost, np.zeros(columns.n_columns), upper, whole)


class _Columns:
    """Positions of the columns: s (N, R), n (N,), p (N,), z (N, B), L (1,), u (W, R); those absent are empty.

    `wider` (W,) are the widths above 1.
    """

    def __init__(self, program: PlanningProgram, form: str) -> None:
        N, R, B = program.n_jobs, program.rounds, len(program.bases)
        self.n_columns = 0
        self.wider = np.unique(program.widths[program.widths > 1]) if form == "counts" else program.widths[:0]
        self.rounds = self._next(0 if form == "rounds" else N, R)
        self.numbers = self._next(0 if form == "binaries" else N, 1)[:, 0]
        self.p = self._next(N, 1)[:, 0]
        self.z = self._next(N, B)
        self.longest = self._next(1, 1)[:, 0]
        self.u = self._next(len(self.wider), R)

    def _next(self, n_rows: int, n_each: int) -> Positions:
        start = self.n_columns
        self.n_columns += n_rows * n_each
        return np.arange(start, self.n_columns).reshape(n_rows, n_each)


def _add_room(rows: RowBuilder, program: PlanningProgram, columns: _Columns) -> None:
    widths, R, at = program.widths, program.rounds, np.arange(program.rounds)
    if columns.rounds.size:
        direct = ~np.isin(widths, columns.wider)
        counted = (at, columns.u, columns.wider[:, None])
        rows.add(R, [(at, columns.rounds[direct], widths[direct, None]), counted], -np.inf, program.gpus)
        for width, count in zip(columns.wider, columns.u, strict=True):
            rows.add(R, [(at, columns.rounds[widths == width], 1.0), (at, count, -1.0)], -np.inf, 0.0)
    if columns.numbers.size:
        zero = np.zeros(1, dtype=np.intp)
        rows.add(1, [(zero, columns.numbers, widths)], -np.inf, R * program.gpus)
        for width in np.unique(widths):
            rows.add(1, [(zero, columns.numbers, widths // width)], -np.inf, R * (program.gpus // width))
    if columns.rounds.size and columns.numbers.size:
        jobs = np.arange(len(widths))
        rows.add(len(widths), [(jobs[:, None], columns.rounds, 1.0), (jobs, columns.numbers, -1.0)], 0.0, 0.0)


def _add_fairness(rows: RowBuilder, program: PlanningProgram, columns: _Columns) -> None:
    held = np.flatnonzero(np.isfinite(program.longest_remaining))
    least = (program.remaining_seconds - program.longest_remaining)[held]
    rows.add(len(held), [(np.arange(len(held)), columns.p[held], program.epoch_seconds[held])], least, np.inf)
    needed, until = program.deadlines
    due = np.flatnonzero(needed > 0)
    in_time = (np.arange(program.rounds) < until[due, None]).astype(np.float64)
    if columns.rounds.size:
        blocks = [(np.arange(len(due))[:, None], columns.rounds[due], in_time)]
    else:
        blocks = [(np.arange(len(due)), columns.numbers[due], np.ones(len(due)))]
    rows.add(len(due), blocks, needed[due], np.inf)


def rounds_of(
    statement: MixedProgram, columns: Floats, program: PlanningProgram, form: str
) -> tuple[Ints, Flags | None]:
    """Numbers of rounds, and but in form "rounds" the schedule (N, R), of an answer's columns."""
    if form == "rounds":
        return np.round(columns[: program.n_jobs]).astype(np.int64), None
    size = program.n_jobs * program.rounds
    vertex = at_vertex(statement, columns, size)
    schedule = (columns if vertex is None else vertex)[:size].reshape(program.n_jobs, program.rounds) > 0.5
    return schedule.sum(axis=1), schedule


def significant(table: Floats, rounds_per_job: Ints) -> Floats:
    """(N,) entries of a table (N, R + 1) at each job's number of rounds."""
    return table[np.arange(len(rounds_per_job)), rounds_per_job]
