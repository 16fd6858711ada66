"""Fitting the interference model to measured pairs, and its error."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from throughputs.arrays import Flags, Floats
from throughputs.colocation.model import ColocationModel, InterferenceModel, retained_fractions
from throughputs.errors import InputError
from throughputs.tables.table import ThroughputTable

if TYPE_CHECKING:
    import pandas as pd
    from scipy.optimize import OptimizeResult

_LOSS_SCALE = 0.05  # residuals of the retained fraction above this count linearly: outliers are many on v100
_LEAST_SHARE = 0.02  # of memory, for any job: one whose share is 1 then fits with nobody


def fit_interference(
    table: ThroughputTable,
    accelerators: Sequence[str],
    *,
    scale_factor: int = 1,
    resources: int = 2,
    ridge: float = 0.05,
    restarts: int = 8,
    rng: np.random.Generator | None = None,
) -> InterferenceModel:
    """The interference model nearest to the measured pairs of a table.

    Accelerator types are fitted one by one: `fit_slowdowns` to the pairs that ran, `fit_memory_shares` to which
    pairs ran at all.

    Parameters
    ----------
    table : with co-located throughput for gangs of `scale_factor` GPUs.
    accelerators : M names; job types without any pair on one of them are unknown to the model there.
    resources : K, at least 1.
    ridge, restarts, rng : see `fit_slowdowns`; by default the generator starts from 0.

    Raises
    ------
    InputError
        The table has no measured pair for an accelerator type, or does not know one.
    """
    rng = np.random.default_rng(0) if rng is None else rng
    job_types = [name for name, size in table.keys if size == scale_factor]
    measured = retained_fractions(table, job_types, accelerators, scale_factor)
    G, M = len(job_types), len(accelerators)
    sensitivity, pressure = np.full((2, G, M, resources), np.nan)
    memory = np.full((G, M), np.nan)
    for m, accelerator in enumerate(accelerators):
        known = ~np.isnan(measured[:, :, m])
        rows = np.flatnonzero(known.any(axis=1))
        if not len(rows):
            raise InputError(table.source, field=accelerator, expected="measured pairs of jobs")
        fractions = measured[:, :, m][np.ix_(rows, rows)]
        ran = np.nan_to_num(fractions) > 0
        sensitivity[rows, m], pressure[rows, m] = fit_slowdowns(
            fractions, ran, resources=resources, ridge=ridge, restarts=restarts, rng=rng
        )
        memory[rows, m] = fit_memory_shares(ran & ran.T, known[np.ix_(rows, rows)])
    return InterferenceModel(job_types, accelerators, sensitivity, pressure, memory, f"fit to {table.source}")


def fit_slowdowns(
    fractions: Floats,
    counted: Flags,
    *,
    resources: int,
    ridge: float,
    restarts: int,
    rng: np.random.Generator,
) -> tuple[Floats, Floats]:
    """(G, K) sensitivities S and (G, K) pressures P of one accelerator type.

        min_{S, P >= 0}  sum_{counted (a, b)} h(R_ab - 1 / (1 + S_a . P_b)) + sum h(ridge S) + sum h(ridge P)

    with h(e) = 2 c^2 (sqrt(1 + (e/c)^2) - 1), which is e^2 near 0 and linear in the tails (c = 0.05), by a
    trust-region method from `restarts` random starts, of which the best end counts. Resources come in the order
    of the slowdown they explain, scaled so that the greatest pressure on each is 1.

    Parameters
    ----------
    fractions : (G, G) retained fraction R_ab of row beside column.
    counted : (G, G) which of them to fit.
    """
    from scipy.optimize import least_squares

    G, K = len(fractions), resources
    a, b = np.nonzero(counted)
    target, entry = fractions[counted], np.arange(len(a))
    penalty = ridge * np.eye(2 * G * K)

    def parts(p: Floats) -> tuple[Floats, Floats, Floats]:
        S, P = p.reshape(2, G, K)
        return S, P, 1.0 / (1.0 + np.einsum("ek,ek->e", S[a], P[b]))

    def residuals(p: Floats) -> Floats:
        return np.concatenate([parts(p)[2] - target, ridge * p])

    def jacobian(p: Floats) -> Floats:
        S, P, R = parts(p)
        J = np.zeros((len(a), 2 * G * K))
        for k in range(K):
            J[entry, a * K + k] = -(R**2) * P[b, k]
            J[entry, (G + b) * K + k] = -(R**2) * S[a, k]
        return np.concatenate([J, penalty])

    starts = rng.uniform(0.2, 1.2, (restarts, 2 * G * K)) / np.sqrt(K)
    ends = [
        least_squares(residuals, p, jacobian, bounds=(0.0, np.inf), loss="soft_l1", f_scale=_LOSS_SCALE, max_nfev=400)
        for p in starts
    ]
    S, P = min(ends, key=lambda end: float(end.cost)).x.reshape(2, G, K)
    scale = np.maximum(P.max(axis=0), 1e-12)
    S, P = S * scale, P / scale
    order = np.argsort(-S.sum(axis=0) * P.sum(axis=0), kind="stable")
    return S[:, order], P[:, order]


def fit_memory_shares(fits: Flags, known: Flags) -> Floats:
    """(G,) shares of memory under which the fewest pairs are told wrongly.

        min  number of wrong pairs   s.t.  w_a + w_b <= 1 - t  for the others that fit together,
                                           w_a + w_b >= 1 + t  for the others that do not,    0.02 <= w <= 1

    as an integer program with a small margin t, then the greatest t with the same pairs told wrongly. Where no
    pair fails, every share is 0.02: nothing is known about it but that it is small enough.

    Parameters
    ----------
    fits : (G, G) symmetric, whether the two ran together.
    known : (G, G) symmetric, whether it was tried.
    """
    from scipy.optimize import Bounds, LinearConstraint, milp
    from scipy.sparse import csr_array, hstack

    G = len(fits)
    one, other = np.nonzero(np.triu(known))
    sign = np.where(fits[one, other], 1.0, -1.0)
    if (sign > 0).all():
        return np.full(G, _LEAST_SHARE)
    C = len(one)
    # a job beside itself takes its share twice: entries at the same place add up
    both = csr_array((np.tile(sign, 2), (np.tile(np.arange(C), 2), np.concatenate([one, other]))), shape=(C, G))
    margin = 0.01
    wrong = csr_array((np.full(C, -(1.0 + margin)), (np.arange(C), np.arange(C))), shape=(C, C))
    fewest = milp(
        np.concatenate([np.zeros(G), np.ones(C)]),
        constraints=LinearConstraint(hstack([both, wrong]), ub=sign - margin),
        integrality=np.concatenate([np.zeros(G), np.ones(C)]),
        bounds=Bounds(np.concatenate([np.full(G, _LEAST_SHARE), np.zeros(C)]), 1.0),
    )
    right = _solution(fewest)[G:] < 0.5
    widest = milp(
        np.append(np.zeros(G), -1.0),
        constraints=LinearConstraint(hstack([both[right], csr_array(np.ones((right.sum(), 1)))]), ub=sign[right]),
        bounds=Bounds(np.append(np.full(G, _LEAST_SHARE), 0.0), 1.0),
    )
    return _solution(widest)[:G]


def _solution(answer: OptimizeResult) -> Floats:
    if answer.x is None:
        raise RuntimeError(f"memory shares: {answer.message}")  # every job may be told wrongly, so there is a solution
    return np.asarray(answer.x, dtype=float)


def colocation_errors(
    model: ColocationModel, table: ThroughputTable, accelerators: Sequence[str], scale_factor: int = 1
) -> pd.DataFrame:
    """How far a model is from the measured pairs of a table, one row per accelerator type.

    Columns: ``accelerator``; ``pairs`` measured, ``sharing`` those that ran, ``wrongly_allowed`` pairs that did
    not run and that the model lets share, ``wrongly_refused`` the reverse; over both jobs of each pair that ran
    and may: ``median``, ``p90``, ``mean`` of the absolute error of the retained fraction, ``relative_median`` and
    ``relative_p90`` of the relative error of the throughput; ``sum_median`` and ``sum_p90`` of the absolute error
    of the sum of the two retained fractions, which decides whether sharing pays; ``verdict_wrong`` the share of
    pairs for which that sum lies on the wrong side of 1.

    Raises
    ------
    InputError
        The table does not know an accelerator type or the scale factor.
    """
    import pandas as pd

    job_types = [name for name, size in table.keys if size == scale_factor]
    truth = retained_fractions(table, job_types, accelerators, scale_factor)
    guess = model.retained(job_types, accelerators)
    upper = np.triu(np.ones(truth.shape[:2], dtype=bool))
    rows = []
    for m, accelerator in enumerate(accelerators):
        measured, modelled = truth[:, :, m], guess[:, :, m]
        counted = upper & ~np.isnan(measured) & ~np.isnan(modelled)
        ran, may = (measured > 0) & (measured.T > 0), modelled > 0
        one, other = np.nonzero(counted & ran & may)
        error = np.abs(modelled - measured)
        both = np.concatenate([error[one, other], error[other, one][one != other]])
        throughput = np.concatenate([measured[one, other], measured[other, one][one != other]])
        total, told = measured + measured.T, modelled + modelled.T
        sums = np.abs(told - total)[one, other]
        rows.append(
            {
                "accelerator": accelerator,
                "pairs": int(counted.sum()),
                "sharing": int((counted & ran).sum()),
                "wrongly_allowed": int((counted & ~ran & may).sum()),
                "wrongly_refused": int((counted & ran & ~may).sum()),
                "median": _quantile(both, 0.5),
                "p90": _quantile(both, 0.9),
                "mean": float(both.mean()) if len(both) else np.nan,
                "relative_median": _quantile(both / throughput, 0.5),
                "relative_p90": _quantile(both / throughput, 0.9),
                "sum_median": _quantile(sums, 0.5),
                "sum_p90": _quantile(sums, 0.9),
                "verdict_wrong": float(np.mean((told > 1)[one, other] != (total > 1)[one, other])),
            }
        )
    return pd.DataFrame(rows)


def _quantile(values: Floats, q: float) -> float:
    return float(np.quantile(values, q)) if len(values) else float("nan")
