"""The planning program as rows and columns, for solvers of mixed-integer programs."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from formulations.reference.mixed_integer import MixedProgram, RowBuilder, at_vertex
from formulations.shockwave.rounds import Objective
from throughputs.arrays import Flags, Floats, Ints, Positions


def columns_of(*shapes: tuple[int, int]) -> list[Positions]:
    """Positions of columns in blocks of these shapes, one after the other."""
    ends = np.cumsum([rows * each for rows, each in shapes])
    return [
        np.arange(end - rows * each, end).reshape(rows, each) for end, (rows, each) in zip(ends, shapes, strict=True)
    ]


@dataclass(frozen=True, eq=False)
class Places:
    """Rows of the jobs' places.

    Attributes
    ----------
    widths, gpus : of the jobs, of the cluster.
    s : (N, R) columns that say whether a job runs in a round.
    wider : (W,) widths of which the numbers of jobs in each round have columns of their own.
    u : (W, R) these. Once they are settled, the rest is a transportation problem, whose vertices are whole.
    """

    widths: Ints
    gpus: int
    s: Positions
    wider: Ints
    u: Positions

    def add_room(self, rows: RowBuilder) -> None:
        """``sum_j w_j s_jr <= G``, by the numbers of jobs where there are columns of them."""
        at, direct = np.arange(self.s.shape[1]), ~np.isin(self.widths, self.wider)
        blocks = [(at, self.s[direct], self.widths[direct, None]), (at, self.u, self.wider[:, None])]
        rows.add(len(at), blocks, -np.inf, self.gpus)

    def add_counts(self, rows: RowBuilder) -> None:
        """``sum_{j of width w} s_jr <= u_wr``."""
        at = np.arange(self.s.shape[1])
        for width, count in zip(self.wider, self.u, strict=True):
            rows.add(len(at), [(at, self.s[self.widths == width], 1.0), (at, count, -1.0)], -np.inf, 0.0)

    def add_early(self, rows: RowBuilder, needed: Ints, until: Ints) -> None:
        """``sum_{r <= until_j} s_jr >= needed_j`` of the jobs that need any."""
        held = np.flatnonzero(needed > 0)
        if len(held):
            early = (np.arange(self.s.shape[1]) < until[held, None]).astype(np.float64)
            rows.add(len(held), [(np.arange(len(held))[:, None], self.s[held], early)], needed[held], np.inf)


def state(objective: Objective, floors: Ints, form: str) -> MixedProgram:
    """``min k L - sum_j weight_j U_j`` over the rows of `PlanningProgram`, with ``n_j >= floors`` (N,) for fairness.

    In one of three forms:

    - "binaries": as published, whole are the N R ``s_jr``, but without binaries that keep the pieces of the logarithm
      next to each other, as a concave utility does by itself;
    - "counts": whole are the ``n_j``, and the numbers ``u_wr`` of jobs of each width above 1 in each round. Once these
      are settled the rest is a transportation problem, so the optimum is that of "binaries";
    - "rounds": without ``s_jr`` and ``u_wr``, a relaxation.

    By the ``n_j`` stand rows that follow from room in every round, for every width w that occurs:
    ``sum_j floor(w_j / w) n_j <= R floor(G / w)``.
    """
    program = objective.program
    N, R, widths, gpus, d = program.n_jobs, program.rounds, program.widths, program.gpus, program.epoch_seconds[:, None]
    placed = form != "rounds"
    wider = np.unique(widths[widths > 1]) if placed else widths[:0]
    s, n, p, z, longest, u = columns_of(
        (N * placed, R), (N, 1), (N, 1), (N, len(program.bases)), (1, 1), (len(wider), R)
    )
    rows, jobs, places = (
        RowBuilder(u.size + longest.item() + 1),
        np.arange(N)[:, None],
        Places(widths, gpus, s, wider, u),
    )
    if placed:
        places.add_room(rows)
        places.add_counts(rows)
    rows.add(1, [(0, n, widths[:, None])], -np.inf, R * gpus)
    for width in np.unique(widths):
        rows.add(1, [(0, n, widths[:, None] // width)], -np.inf, R * (gpus // width))
    if placed:
        rows.add(N, [(jobs, s, 1.0), (jobs, n, -1.0)], 0.0, 0.0)
    rows.add(N, [(jobs, p, d), (jobs, n, -program.round_seconds)], -np.inf, 0.0)
    done = program.epochs_done / program.epochs
    rows.add(N, [(jobs, z, np.asarray(program.bases)), (jobs, p, -1.0 / program.epochs[:, None])], done, done)
    rows.add(N, [(jobs, z, 1.0)], 1.0, 1.0)
    rows.add(N, [(jobs, longest, 1.0), (jobs, p, d)], program.remaining_seconds, np.inf)
    if placed:
        places.add_early(rows, *program.deadlines)
    cost, lower, upper = np.zeros(rows.n_columns), np.zeros(rows.n_columns), np.full(rows.n_columns, np.inf)
    cost[z], cost[longest] = -objective.weights[:, None] * program.log_bases, program.makespan_weight
    lower[n] = floors[:, None]
    upper[s], upper[n], upper[u] = 1.0, R, (gpus // wider)[:, None]
    whole = np.zeros(rows.n_columns, dtype=np.bool_)
    whole[n] = whole[u] = form != "binaries"
    whole[s] = form == "binaries"
    return rows.program(cost, lower, upper, whole)


def schedule_of(statement: MixedProgram, columns: Floats, shape: tuple[int, ...]) -> Flags:
    """The schedule (N, R) of an answer whose first columns are s."""
    size = math.prod(shape)
    vertex = at_vertex(statement, columns, size)
    return np.asarray((columns if vertex is None else vertex)[:size].reshape(shape) > 0.5)
