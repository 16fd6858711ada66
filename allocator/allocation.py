"""An allocation: the share of time each job gets on each accelerator type, with its proof."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from throughputs import ThroughputMatrix

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Allocation"]


@dataclass(frozen=True, eq=False)
class Allocation:
    """What a policy decided for N jobs on M accelerator types.

    Attributes
    ----------
    policy : name of the policy.
    throughputs : (N, M) true throughputs of the jobs, with their labels.
    shares : (N, M) share of time of each job on each type, in [0, 1].
    status : "optimal" when the gap is proven to be within tolerance, "feasible" when it is not, "closed form" or
        "order" when the policy is not a program, "empty" when there was nothing to decide.
    objective : value of the policy's objective in `objective_unit`; nan for a policy without one.
    bound : proven bound on the objective; nan without one.
    gap : relative gap between the two; nan without one.
    prices : (M,) value of one more GPU of each type, in `objective_unit` per GPU; zeros where no program was solved.
    unserved : labels of the jobs that no type of the cluster can run.
    solver : what solved the program; empty for none.
    seconds : time the decision took.
    fallbacks : backends that were tried before `solver` and missed the tolerance.
    """

    policy: str
    throughputs: ThroughputMatrix
    shares: NDArray[np.float64]
    status: str
    objective: float = np.nan
    objective_unit: str = ""
    bound: float = np.nan
    gap: float = np.nan
    prices: NDArray[np.float64] | None = None
    unserved: tuple[Any, ...] = ()
    solver: str = ""
    seconds: float = 0.0
    fallbacks: tuple[str, ...] = ()

    @cached_property
    def effective_throughput(self) -> NDArray[np.float64]:
        """(N,) steps/s each job gets on average."""
        return np.asarray((self.throughputs.rates * self.shares).sum(axis=1))

    def to_frame(self) -> pd.DataFrame:
        """Shares as a table: one row per job, one column per accelerator type."""
        import pandas as pd

        return pd.DataFrame(self.shares, index=list(self.throughputs.jobs), columns=list(self.throughputs.accelerators))

    def price_series(self) -> pd.Series[float]:
        """Price of each accelerator type, in `objective_unit` per GPU."""
        import pandas as pd

        accelerators = list(self.throughputs.accelerators)
        values = np.zeros(len(accelerators)) if self.prices is None else self.prices
        return pd.Series(values, index=accelerators, name=f"price ({self.objective_unit or '-'} per GPU)")
