"""Choices: one configuration for each job (Sia, Pollux, Optimus), a place in line (AlloX), a partner (Lucid)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from formulations.columns import ColumnProgram
from formulations.goodput.pollux import PowerMean
from formulations.goodput.sia import SiaProgram
from formulations.statements import cp
from throughputs import Configurations
from throughputs.arrays import Floats


def columns(program: ColumnProgram, values: Floats) -> Any:
    """The most value of columns, ``max_x v.x``, as `ColumnProgram` allows them; in one slot of time."""
    ways, counts = program.columns, program.counts
    x = cp.Variable(ways.n_columns, boolean=bool(program.whole.all()), name="x")
    time, used = ways.time @ x, ways.usage @ cp.multiply(counts[ways.job], x)
    rows = [x >= 0, x <= program.most, time <= 1, time >= program.exactly]
    rows += [used <= program.capacity, ways.rates @ x >= program.floors]
    if program.rows is not None:
        upper, lower = np.isfinite(program.rows.upper), np.isfinite(program.rows.lower)
        coupled = program.rows.matrix @ x
        rows += [coupled[upper] <= program.rows.upper[upper], coupled[lower] >= program.rows.lower[lower]]
    return cp.Problem(cp.Maximize(values @ x), rows)


def _one_each(ways: Configurations, capacity: ArrayLike) -> tuple[Any, list[Any]]:
    """One column for each job or none, ``x_c`` 0 or 1, on the GPUs that there are."""
    x = cp.Variable(ways.n_columns, boolean=True, name="x")
    return x, [ways.time @ x <= 1, ways.usage @ x <= capacity]


def sia(program: SiaProgram) -> Any:
    """``min_x sum_i w_i (sum_c A_c x_c + l (1 - sum_c x_c))``; for p > 0 the most, less l. Subramanya, SOSP 2023."""
    x, rows = _one_each(program.ways, program.capacity)
    weights, pinned, held = (np.asarray(each) for each in (program.weights, program.pinned, program.held))
    chosen, nothing = program.ways.time @ cp.multiply(program.costs, x), 1 - program.ways.time @ x
    rows.append(x >= np.isin(np.arange(program.ways.n_columns), held[pinned]).astype(float))
    if program.power > 0:
        return cp.Problem(cp.Maximize(weights @ (chosen - program.penalty * nothing)), rows)
    return cp.Problem(cp.Minimize(weights @ (chosen + program.penalty * nothing)), rows)


def optimus(ways: Configurations, remaining_seconds: Floats, capacity: ArrayLike, n_served: int | None = None) -> Any:
    """``max_x sum_c x_c``; then, with so many served, ``min_x sum_c T_c x_c``. Peng et al., EuroSys 2018."""
    x, rows = _one_each(ways, capacity)
    if n_served is None:
        return cp.Problem(cp.Maximize(cp.sum(x)), rows)
    return cp.Problem(cp.Minimize(remaining_seconds @ x), [*rows, cp.sum(x) == n_served])


def pollux(ways: Configurations, speedup: Floats, capacity: ArrayLike, mean: PowerMean) -> Any:
    """``max_x sum_i f(sum_c s_c x_c)``, f(s) = sign(p) (s + e)^p: the power mean rises with the sum.

    Qiao et al., OSDI 2021. One column of a job is chosen, or none: its f is ``f(0) + sum_c (f(s_c) - f(0)) x_c``.
    """
    x, rows = _one_each(ways, capacity)
    nothing = mean.terms(0.0)
    return cp.Problem(cp.Maximize(ways.n_jobs * nothing + (mean.terms(speedup) - nothing) @ x), rows)


def lines(seconds: Floats, gpus: Floats, sizes: Floats) -> Any:
    """``min_y sum_ijk k p_ij y_ijk``: one type and position from the end for each job. Le et al., EuroSys 2020."""
    runs = np.isfinite(seconds) & (sizes[:, None] <= gpus)
    length = np.where(runs, seconds, 0.0)
    y = [cp.Variable(seconds.shape, boolean=True, name=f"y{k}") for k in range(1, len(seconds) + 1)]
    rows = [cp.sum(sum(y[1:], y[0]), axis=1) == 1]
    rows += [row for each in y for row in (sizes @ each <= gpus, each <= runs)]
    return cp.Problem(cp.Minimize(sum(k * cp.sum(cp.multiply(length, each)) for k, each in enumerate(y, 1))), rows)


def pairs(savings: Floats) -> Any:
    """``max_z sum_ij b_ij z_ij``: one guest a host and back; -inf for two that may not. Hu et al., ASPLOS 2023."""
    z = cp.Variable(savings.shape, boolean=True, name="z")
    may = np.isfinite(savings)
    rows = [cp.sum(z, axis=0) <= 1, cp.sum(z, axis=1) <= 1, z <= may]
    return cp.Problem(cp.Maximize(cp.sum(cp.multiply(np.where(may, savings, 0.0), z))), rows)
