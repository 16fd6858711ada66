"""The programs: one polytope, many objectives, several open solvers, one certificate.

>>> import numpy as np
>>> from throughputs import PlainColumns, ThroughputMatrix
>>> from formulations import MaxMin, Polytope, solve
>>> matrix = ThroughputMatrix([[4.0, 1.0], [2.0, 1.0]], jobs=["a", "b"], accelerators=["v100", "k80"])
>>> solution = solve(Polytope(PlainColumns(matrix), [1, 1]), MaxMin(np.array([4.0, 2.0])))
>>> solution.status, round(solution.objective, 6)
('optimal', 0.7)
"""

from typing import TYPE_CHECKING, Any

from formulations.assignment import Line, assign_to_lines
from formulations.core.closed_forms import (
    isolated_shares,
    isolated_throughput,
    proportional_shares,
    proportional_throughput,
)
from formulations.core.objectives import FinishTimeFairness, Makespan, MaxMin, MaxSum, NashWelfare, Objective, Threshold
from formulations.core.polytope import Polytope
from formulations.core.solution import Solution, SolverError
from formulations.core.warm_start import WarmStart
from formulations.floors.attainable import KeptFloors, keep_most_floors
from formulations.floors.linear_fractional import maximise_ratio
from formulations.floors.packed import maximise_packed_ratio, maximise_packed_worth
from formulations.floors.packed_attainable import keep_most_packed_floors
from formulations.floors.worth import maximise_worth
from formulations.levels.hierarchy import Hierarchy
from formulations.levels.water_filling import WaterFilling
from formulations.packed import PackedPolytope, PackedSolution, Pairs, solve_packed
from formulations.solving.choice import CHOICES
from formulations.solving.solver import TOLERANCE, solve

if TYPE_CHECKING:
    from formulations.planning import PlanningProgram, PlanSolution, solve_plan

__all__ = [
    "CHOICES",
    "TOLERANCE",
    "FinishTimeFairness",
    "Hierarchy",
    "KeptFloors",
    "Line",
    "Makespan",
    "MaxMin",
    "MaxSum",
    "NashWelfare",
    "Objective",
    "PackedPolytope",
    "PackedSolution",
    "Pairs",
    "PlanSolution",
    "PlanningProgram",
    "Polytope",
    "Solution",
    "SolverError",
    "Threshold",
    "WarmStart",
    "WaterFilling",
    "assign_to_lines",
    "isolated_shares",
    "isolated_throughput",
    "keep_most_floors",
    "keep_most_packed_floors",
    "maximise_packed_ratio",
    "maximise_packed_worth",
    "maximise_ratio",
    "maximise_worth",
    "proportional_shares",
    "proportional_throughput",
    "solve",
    "solve_packed",
    "solve_plan",
]


def __getattr__(name: str) -> Any:
    """The planning program, which few programs need, is read when it is asked for."""
    if name in ("PlanSolution", "PlanningProgram", "solve_plan"):
        from formulations import planning

        return getattr(planning, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
