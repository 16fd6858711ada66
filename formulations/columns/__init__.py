"""Programs over configurations: shares of time, or a choice of columns, of the most value.

>>> from throughputs import Configurations
>>> from formulations.columns import ColumnProgram, Total, solve_columns
>>> ways = Configurations([0, 0, 1, 1], [0, 0, 0, 0], [1, 2, 1, 2], [1.0, 1.9, 1.0, 1.2], jobs=["a", "b"])
>>> best = solve_columns(ColumnProgram(ways, [3], whole=True), Total(ways.rate))
>>> best.status, round(best.objective, 6), best.to_frame().gpus.tolist()
('optimal', 2.9, [2, 1])
"""

from formulations.columns.objectives import Least, MostFloors, Objective, Ratio, Total
from formulations.columns.program import ColumnProgram, Rows
from formulations.columns.solution import ColumnSolution, Stage
from formulations.columns.solver import solve_columns
from formulations.core.solution import InfeasibleError

__all__ = [
    "ColumnProgram",
    "ColumnSolution",
    "InfeasibleError",
    "Least",
    "MostFloors",
    "Objective",
    "Ratio",
    "Rows",
    "Stage",
    "Total",
    "solve_columns",
]
