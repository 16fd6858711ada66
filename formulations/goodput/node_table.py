"""What GPUs on nodes are worth, looked up for many matrices of jobs and nodes at once."""

from __future__ import annotations

from typing import Literal

import numpy as np

from formulations.goodput.pollux_nodes import NodeProgram
from throughputs import InputError
from throughputs.arrays import Floats, Ints


class NodeTable:
    """The columns of a `NodeProgram` as a table by job, number of nodes and number of GPUs.

    A number of GPUs without a column counts as the best smaller one on as many nodes.

    Parameters
    ----------
    program : the jobs, their columns and what they hold.
    worth : (C,) figures of the columns that utility counts; the speedups if omitted.

    Attributes
    ----------
    held : (n, g) the job on each GPU now, N for none, ascending on each node.
    most : (N + 1,) GPUs of the largest column of each job; of N, which stands for none, any number.
    """

    def __init__(self, program: NodeProgram, worth: Floats | None = None) -> None:
        ways, N, n, g = program.ways, program.ways.n_jobs, program.n_nodes, program.gpus_per_node
        worth = program.speedup if worth is None else np.asarray(worth, dtype=np.float64)
        if worth.shape != program.speedup.shape:
            expected = f"{ways.n_columns} figures"
            raise InputError("genetic search", field="without_restarts", found=worth.shape, expected=expected)
        self.n_jobs, self.n_nodes, self.gpus_per_node = N, n, g
        self.program = program
        most = int(max(ways.gpus.max(initial=0), program.held.sum(axis=1).max(initial=0)))
        # nobody is on more nodes than it has GPUs
        shape = N, min(n, most) + 1, most + 1
        speedup, figures, use = np.zeros(shape), np.zeros(shape), np.zeros(shape, dtype=np.int64)
        at = ways.job, program.nodes, ways.gpus
        speedup[at], figures[at], use[at] = program.speedup, worth, ways.gpus
        for r in range(1, most + 1):
            better = speedup[:, :, r - 1] > speedup[:, :, r]
            for table in (speedup, figures, use):
                table[:, :, r] = np.where(better, table[:, :, r - 1], table[:, :, r])
        self.use = use
        self._terms, self._worth = program.mean.terms(speedup), figures
        self._job = np.arange(N)
        # who holds GPUs keeps them even where it has no column for as many
        self.most = np.full(N + 1, n * g * max(N, 1))
        self.most[:N] = program.held.sum(axis=1)
        np.maximum.at(self.most, ways.job, ways.gpus)
        self._base = np.zeros((n, N + 1), dtype=np.int64)
        self._base[:, :N] = program.held.T
        self._holds = program.held.sum(axis=1)
        self._held_terms = program.mean.terms(program.held_speedup)
        self.held = self.on_gpus(program.held)

    def on_gpus(self, gpus: Ints) -> Ints:
        """(n, g) the job on each GPU, N for none, from GPUs by job and node (N, n)."""
        free = self.gpus_per_node - gpus.sum(axis=0)
        if (free < 0).any():
            expected = f"at most {self.gpus_per_node} GPUs on each node"
            raise InputError("program on nodes", field="held", found=int((-free).max()), expected=expected)
        counts = np.concatenate([gpus, free[None]]).T
        jobs = np.tile(np.arange(self.n_jobs + 1), (self.n_nodes, 1))
        return np.repeat(jobs.ravel(), counts.ravel()).reshape(self.n_nodes, self.gpus_per_node)

    def scores(self, members: Ints, second: Literal["utility", "nodes"]) -> Floats:
        """(P, 2) the sum that fitness rises with, and the second figure, of members (P, n, g); the more the better."""
        P, (N, n, g) = len(members), (self.n_jobs, self.n_nodes, self.gpus_per_node)
        places = np.arange(g)
        starts = np.ones(members.shape, dtype=np.bool_)
        starts[..., 1:] = members[..., 1:] != members[..., :-1]
        nth = places - np.maximum.accumulate(np.where(starts, places, 0), axis=-1)
        row = members + np.arange(P)[:, None, None] * (N + 1)
        as_held = nth < self._base[np.arange(n)[:, None], members]

        def counted(chosen: Ints) -> Ints:
            return np.bincount(chosen, minlength=P * (N + 1)).reshape(P, N + 1)[:, :N]

        total, spread, same = counted(row.ravel()), counted(row[starts]), counted(row[as_held])
        kept = (same == self._holds) & (total == self._holds) & (total > 0)
        terms = np.where(kept, self._held_terms, self._terms[self._job, spread, total])
        score = np.empty((P, 2))
        score[:, 0] = np.add.reduce(terms, axis=1)
        used = (members[..., 0] < N).sum(axis=1) if g else np.zeros(P)
        if second == "nodes":
            score[:, 1] = -used
        else:
            worth = np.add.reduce(self._worth[self._job, spread, total], axis=1)
            score[:, 1] = worth / np.maximum(used * g, 1)
        return score

    def matrix(self, member: Ints) -> Ints:
        """(N, n) GPUs by job and node of one member, without those that a job would leave idle."""
        N, n = self.n_jobs, self.n_nodes
        key = member + np.arange(n)[:, None] * (N + 1)
        gpus = np.bincount(key.ravel(), minlength=n * (N + 1)).reshape(n, N + 1)[:, :N].T.copy()
        spread, total = (gpus > 0).sum(axis=1), gpus.sum(axis=1)
        wanted = self.use[self._job, spread, total]
        wanted = np.where((gpus == self.program.held).all(axis=1), total, wanted)
        for i in np.flatnonzero(total > wanted).tolist():
            for _ in range(int(total[i] - wanted[i])):
                gpus[i, gpus[i].argmax()] -= 1
        return gpus
