"""Plans in time: rounds (Shockwave), leases (Chronus), and work before deadlines (ElasticFlow's question)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from formulations.deadlines.program import DeadlineProgram
from formulations.leases.program import LeaseProgram
from formulations.shockwave.program import PlanningProgram
from formulations.statements import cp

Array = NDArray[np.float64]


def rounds(program: PlanningProgram, stage: int) -> Any:
    """Who runs in each of R rounds: stage 1, with the fairness rows, or 2, with priorities (`PlanningProgram`)::

        max_(s, p)  sum_j pr_j U_j / (N R) - k max_j L_j        s_jr 0 or 1, sum_j w_j s_jr <= G, d_j p_j <= D n_j

    Zheng et al., NSDI 2023.
    """
    N, R = program.n_jobs, program.rounds
    s = cp.Variable((N, R), boolean=True, name="s")
    p = cp.Variable(N, nonneg=True, name="p")
    progress = cp.multiply(1.0 / program.epochs, program.epochs_done + p)
    bases, logs = np.asarray(program.bases), program.log_bases
    slopes = np.diff(logs) / np.diff(bases)
    utility = cp.min(cp.vstack([logs[b] + slopes[b] * (progress - bases[b]) for b in range(len(slopes))]), axis=0)
    left = cp.pos(program.remaining_seconds - cp.multiply(program.epoch_seconds, p))
    rows = [
        program.widths @ s <= program.gpus,
        cp.multiply(program.epoch_seconds, p) <= program.round_seconds * cp.sum(s, axis=1),
        p <= program.epochs - program.epochs_done,
    ]
    if stage == 1:
        held, (needed, until) = np.isfinite(program.longest_remaining), program.deadlines
        rows += [left[j] <= program.longest_remaining[j] for j in np.flatnonzero(held)]
        rows += [cp.sum(s[j, : max(until[j], 0)]) >= needed[j] for j in np.flatnonzero(needed)]
    priority = program.priorities if stage == 2 else np.ones(N)
    return cp.Problem(cp.Maximize(priority @ utility / (N * R) - program.makespan_weight * cp.max(left)), rows)


def leases(program: LeaseProgram, *, keep: float = 0.0) -> Any:
    """Which deadlines are promised, and in which leases each job runs (`LeaseProgram`)::

        max_(x, S)  sum_r v_r S_r + sigma w sum_j g_j x_j0      x_jt <= sum_{r of j, D_r > t} S_r,  sum_t x_jt = n_j

    Where `keep` is above 0 a job may be dropped, and each that is kept counts so much more. Gao et al., SoCC 2021.
    """
    J, T, due = program.n_jobs, program.n_slots, program.deadline
    x = cp.Variable((J, T), boolean=True, name="x")
    S = cp.Variable(len(due), boolean=True, name="S")
    of_job = np.equal.outer(np.arange(J), program.job).astype(float)
    promised = of_job @ S
    rows = [
        *(x[:, t] <= (of_job * (due > t)) @ S for t in range(T)),
        cp.sum(x, axis=1) == cp.multiply(program.needed, promised),
        promised <= 1 if keep else promised == 1,
        program.gpus @ x <= program.capacity,
    ]
    value = (program.option_values + keep) @ S + program.weight * (program.gpus @ x[:, 0])
    return cp.Problem(cp.Maximize(value), rows)


def deadlines(program: DeadlineProgram, *, all_met: bool = False) -> Any:
    """The value of the deadlines that can be met, or with `all_met` the least GPU time that meets all of them::

        max_(x, y)  sum_j v_j y_j      sum_sg T_j(g) tau_js x_jgs >= W_j y_j,  sum_jg g x_jgs <= G,  y_j 0 or 1

    The columns of jobs and levels are those of `program`, the slots lie between deadlines.
    """
    columns, lengths = program.columns, np.diff(program.borders)
    x = cp.Variable((columns.n_columns, len(lengths)), nonneg=True, name="x")
    done = cp.sum(columns.time @ cp.multiply(program.done(), x), axis=1)
    rows = [columns.time @ x <= 1, columns.usage @ x <= program.gpus]
    if all_met:
        return cp.Problem(cp.Minimize(columns.gpus @ x @ lengths), [*rows, done >= 1])
    y = cp.Variable(columns.n_jobs, boolean=True, name="y")
    return cp.Problem(cp.Maximize(program.values @ y), [*rows, done >= y, y >= program.let_in.astype(float)])
