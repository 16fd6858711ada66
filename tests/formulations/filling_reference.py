"""Water filling as its rules say: time is handed on until a job is full or held, one linear program for each event."""

from __future__ import annotations

import numpy as np
from scipy.optimize import linprog

FULL, HELD = 1e-9, 1e-7
"""Relative difference up to which a job is at its most, and relative gain or multiplier up to which it is held."""


def rising_rates(entities, of_job, rank, weights, live):
    """(N,) time per unit of level that each job is handed; `entities`: (parent, weight, fifo) of each."""
    rates = np.zeros(len(live))

    def members(entity):
        jobs = sorted(np.flatnonzero((of_job == entity) & live), key=lambda i: rank[i])
        inner = [e for e, (parent, _, _) in enumerate(entities) if parent == entity and members(e)]
        return [(False, i, weights[i]) for i in jobs] + [(True, e, entities[e][1]) for e in inner]

    def hand_on(entity, rate):
        parts = members(entity)
        if entity >= 0 and entities[entity][2]:
            parts = parts[:1]
        total = 1.0 if entity < 0 else sum(weight for _, _, weight in parts)
        for is_entity, which, weight in parts:
            if is_entity:
                hand_on(which, rate * weight / total)
            else:
                rates[which] = rate * weight / total

    hand_on(-1, 1.0)
    return rates


def best(cost, rows, limits):
    """Maximum of a linear program, and the multipliers of its rows."""
    tolerance = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}
    for method in ("highs", "highs-ds", "highs-ipm"):
        result = linprog(-cost, A_ub=rows, b_ub=limits, bounds=(0, None), method=method, options=tolerance)
        if result.status == 0:
            return -float(result.fun), -result.ineqlin.marginals
    raise AssertionError(result.message)


def reference_filling(columns, capacity, units, weights, entities=(), of_job=None, rank=None):
    """(N,) normalised throughputs over columns written out; jobs that gain nothing must be left out."""
    N = len(units)
    of_job, rank = np.full(N, -1) if of_job is None else of_job, np.arange(N) if rank is None else rank
    kept, open_ = capacity[columns.accelerator] > 0, capacity > 0
    usage = columns.usage[:, kept].toarray()[open_] / capacity[open_, None]
    # shares in units of what capacity allows of them, throughputs in units of `units`: all figures are near 1
    unit = 1.0 / np.maximum(usage.max(axis=0), 1.0)
    base = np.vstack([columns.time[:, kept].toarray(), usage]) * unit
    rate = columns.rate[:, kept].toarray() / units[:, None]
    full, time = rate.max(axis=1), rate * unit
    size, ones = time.max(axis=1), np.ones(len(base))

    def is_held(job):
        """Whether a job cannot rise while the others keep what they have."""
        others = (np.arange(N) != job) & (have > 0)
        rows = np.vstack([base, -time[others] / have[others, None]])
        limits = np.concatenate([ones, -np.full(int(others.sum()), 1 - 1e-13)])
        gained, multipliers = best(time[job] / max(have[job], 1e-9 * size[job]), rows, limits)
        # what the rounding of the others' rows may give the job is no gain
        return gained <= 1 + HELD + 1e-12 * float(multipliers.sum())

    have, held = np.zeros(N), np.zeros(N, dtype=bool)
    while (live := ~held & (have < full * (1 - FULL))).any():
        rising = rising_rates(entities, of_job, rank, weights, live)
        up = rising > 0
        rising *= float((size[up] / rising[up]).min())
        most = float(((full - have)[up] / rising[up]).min())
        rows = np.hstack([-time / size[:, None], (rising / size)[:, None]])
        rows = np.vstack([np.hstack([base, np.zeros((len(base), 1))]), rows])
        limits = np.concatenate([ones, -have / size * (1 - 1e-13)])
        level, multipliers = best(np.append(np.zeros(time.shape[1]), 1.0), rows, limits)
        have = np.minimum(have + min(max(level, 0.0), most) * rising, full)
        if level < most * (1 - FULL):
            owed = multipliers[len(base) :] * rising / size
            now = up & (owed > HELD * owed.max())
            for job in np.flatnonzero(up & ~now):
                now[job] = is_held(job)
            assert now.any(), "nobody is held, and nobody rises"
            held |= now
    return have
