"""The programs: one polytope, many objectives, several open solvers, one certificate.

>>> import numpy as np
>>> from throughputs import PlainColumns, ThroughputMatrix
>>> from formulations import MaxMin, Polytope, solve
>>> matrix = ThroughputMatrix([[4.0, 1.0], [2.0, 1.0]], jobs=["a", "b"], accelerators=["v100", "k80"])
>>> solution = solve(Polytope(PlainColumns(matrix), [1, 1]), MaxMin(np.array([4.0, 2.0])))
>>> solution.status, round(solution.objective, 6)
('optimal', 0.7)
"""

from formulations.closed_forms import (
    isolated_shares,
    isolated_throughput,
    proportional_shares,
    proportional_throughput,
)
from formulations.filling import Hierarchy
from formulations.objectives import FinishTimeFairness, Makespan, MaxMin, MaxSum, NashWelfare, Objective, Threshold
from formulations.packed import PackedPolytope, PackedSolution, Pairs, solve_packed
from formulations.polytope import Polytope
from formulations.selection import CHOICES
from formulations.solution import Solution, SolverError
from formulations.solver import TOLERANCE, solve
from formulations.water_filling import WaterFilling

__all__ = [
    "CHOICES",
    "TOLERANCE",
    "FinishTimeFairness",
    "Hierarchy",
    "Makespan",
    "MaxMin",
    "MaxSum",
    "NashWelfare",
    "Objective",
    "PackedPolytope",
    "PackedSolution",
    "Pairs",
    "Polytope",
    "Solution",
    "SolverError",
    "Threshold",
    "WaterFilling",
    "isolated_shares",
    "isolated_throughput",
    "proportional_shares",
    "proportional_throughput",
    "solve",
    "solve_packed",
]
