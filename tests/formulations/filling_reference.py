"""Water filling as the paper tells it, one linear program after the other, over columns written out.

No multipliers are used: whether a job can rise further is tried, by a program of its own.
"""

from __future__ import annotations

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import csr_array, hstack, vstack

TOLERANCE = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}
SLACK, CAN_RISE = 1e-9, 1e-4
"""Part by which floors give way, and the rise that counts: what one job gives up may be worth far more to another."""


def effective_weights(entities, of_job, rank, weights, active):
    """How fast each job rises when the top's level does; `entities`: list of (parent, weight, fifo), parents first."""

    def members(entity):
        jobs = [i for i in np.flatnonzero(of_job == entity) if active[i]]
        inner = [e for e, (parent, _, _) in enumerate(entities) if parent == entity and members(e) != ([], [])]
        return sorted(jobs, key=lambda i: rank[i]), inner

    speeds = np.zeros(len(active))

    def hand_on(entity, speed):
        jobs, inner = members(entity)
        parts = [(False, i, weights[i]) for i in jobs] + [(True, e, entities[e][1]) for e in inner]
        if entity >= 0 and entities[entity][2]:
            parts = [(kind, which, 1.0) for kind, which, _ in parts[:1]]
        total = 1.0 if entity < 0 else sum(weight for _, _, weight in parts)
        for is_entity, which, weight in parts:
            if is_entity:
                hand_on(which, speed * weight / total)
            else:
                speeds[which] = speed * weight / total

    hand_on(-1, 1.0)
    return speeds


def reference_filling(columns, capacity, units, weights, entities=(), of_job=None, rank=None):
    """(N,) normalised throughputs, `units` positive; jobs that gain nothing must be left out."""
    N = len(units)
    of_job = np.full(N, -1) if of_job is None else of_job
    rank = np.arange(N) if rank is None else rank
    kept = capacity[columns.accelerator] > 0
    use = columns.usage[:, kept].multiply(1.0 / np.where(capacity > 0, capacity, 1.0)[:, None])
    limits = np.concatenate([np.ones(N), np.ones(len(capacity))])
    matrix = vstack([columns.time[:, kept], use])
    rate = csr_array(columns.rate[:, kept].multiply(1.0 / units[:, None]))
    C = rate.shape[1]
    base, active = np.zeros(N), np.ones(N, dtype=bool)

    def best(floors, goal, slopes):
        """Most of `goal` . rates, or with slopes of the level, above the floors."""
        demand = hstack([-rate, csr_array(slopes[:, None])])
        rows = vstack([hstack([matrix, csr_array((matrix.shape[0], 1))]), demand])
        cost = np.append(-(goal @ rate), -1.0 if slopes.any() else 0.0)
        bounds = [(0, None)] * C + [(0, None if slopes.any() else 0)]
        result = linprog(cost, A_ub=rows, b_ub=np.append(limits, -floors), bounds=bounds, options=TOLERANCE)
        assert result.status == 0, result.message
        return -result.fun

    none = np.zeros(N)
    while active.any():
        speeds = effective_weights(entities, of_job, rank, weights, active)
        level = best(base * (1 - SLACK), none, speeds)
        base = base + level * speeds
        before, floors = active.sum(), base * (1 - SLACK)
        for i in np.flatnonzero(active & (speeds > 0)):
            alone = none.copy()
            alone[i] = 1.0
            if best(floors, alone, none) <= base[i] + CAN_RISE:
                active[i] = False
        assert active.sum() < before, "nobody is held, and nobody rises"
    return base
