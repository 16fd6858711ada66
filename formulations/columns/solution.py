"""What a column program returns: the shares, and for each objective the proof that comes with it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from formulations.core.solution import Attempt
from throughputs import Configurations
from throughputs.arrays import Floats

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, eq=False)
class Stage:
    """What is proven of one objective, given those before it.

    Attributes
    ----------
    status : "optimal" when `gap` is within the tolerance, else "feasible".
    objective : its value at the shares that are returned.
    bound : no allowed shares are better, as far as those before it are held: by weak duality from the multipliers,
        for whole columns the better of that and of what branch and bound proved.
    gap : relative distance between the two.
    prices : (M,) or (M, S) improvement of the objective per additional GPU; of the relaxation for whole columns, nan
        where the solver has none.
    multipliers : (N,) improvement per unit by which the floor of a job is lowered, per steps/s.
    row_prices : (R,) improvement per unit by which the limit of a coupling row is raised; of a lower limit it is at
        most 0.
    solver : what answered.
    """

    status: str
    objective: float
    bound: float
    gap: float
    prices: Floats
    multipliers: Floats
    row_prices: Floats
    solver: str


@dataclass(frozen=True, eq=False)
class ColumnSolution:
    """Certified shares, or a certified choice, of columns.

    Attributes
    ----------
    x : (C,) or (C, S) share of time of each column; for a whole one 0 or 1.
    stages : for each objective, in order, what is proven of it.
    columns : the configurations.
    throughput : (N,) effective throughput u, steps/s, summed over slots.
    generated : coupling rows that were generated.
    seconds : time for everything.
    attempts : every engine that was tried, in order.
    """

    x: Floats
    stages: tuple[Stage, ...]
    columns: Configurations
    throughput: Floats
    generated: int
    seconds: float
    attempts: tuple[Attempt, ...]

    @property
    def status(self) -> str:
        """ "optimal" when every stage is proven to be, else "feasible"."""
        return "optimal" if all(stage.status == "optimal" for stage in self.stages) else "feasible"

    @property
    def objective(self) -> float:
        """Value of the first objective."""
        return self.stages[0].objective

    @property
    def bound(self) -> float:
        """Proven bound on the first objective."""
        return self.stages[0].bound

    @property
    def gap(self) -> float:
        """Relative gap of the first objective."""
        return self.stages[0].gap

    @property
    def prices(self) -> Floats:
        """(M,) or (M, S) prices of the first objective per GPU."""
        return self.stages[0].prices

    @property
    def solver(self) -> str:
        """What answered."""
        return self.stages[-1].solver

    def to_frame(self) -> pd.DataFrame:
        """The columns with a share, as `Configurations.to_frame` has them, with the share (one slot) behind them."""
        by_slot = self.x[:, None] if self.x.ndim == 1 else self.x
        chosen = np.flatnonzero((by_slot > 0).any(axis=1))
        names = ["share"] if self.x.ndim == 1 else [f"share {slot}" for slot in range(by_slot.shape[1])]
        return self.columns.take(chosen).to_frame().assign(**dict(zip(names, by_slot[chosen].T, strict=True)))
