"""The published fit of throughput models: bounded L-BFGS-B of SciPy, from one start for all.

It ends where the loss falls by less than a tolerance, which is often well before the minimum of `log_errors`, and
schedulers that rest on such models choose otherwise. So published schedules are met with this fit, and not with a
better one. Its digits are those of SciPy's linear algebra, which depend on the processor.

Source: the fits of the public artifacts of Pollux (OSDI 2021), with SciPy's own tolerances, and of Sia (SOSP 2023).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from throughputs.goodput.log_errors import Cells, Loss

Array = NDArray[np.float64]

_START = np.array([0.1, 0.01, 0.1, 0.01, 0.1, 0.01, 1.001])


def descended(cells: Cells, tolerance: float | None = None) -> tuple[Array, Array]:
    """(P, 7) parameters at which the published descent ends, each problem by itself, and their losses (P,).

    Parameters
    ----------
    cells : the problems.
    tolerance : of the loss, relative, and of its derivatives; None: those of SciPy.
    """
    from scipy.optimize import Bounds, minimize

    theta, best = np.empty(cells.lower.shape), np.empty(len(cells.lower))
    for p in range(len(theta)):
        loss = Loss(cells.take(np.array([p])))
        lower, upper = loss.cells.lower[0], loss.cells.upper[0]

        def value_and_slope(x: Array, loss: Loss = loss) -> tuple[float, Array]:
            value, slope = loss.slope(x[None])
            return float(value[0]), slope[0]

        found = minimize(
            value_and_slope,
            np.minimum(np.maximum(_START, lower), upper),
            jac=True,
            method="L-BFGS-B",
            bounds=Bounds(lower, upper),
            tol=tolerance,
        )
        theta[p], best[p] = found.x, found.fun
    return theta, best
