"""The programs: one polytope, many objectives, several open solvers, one certificate.

>>> import numpy as np
>>> from throughputs import PlainColumns, ThroughputMatrix
>>> from formulations import MaxMin, Polytope, solve
>>> matrix = ThroughputMatrix([[4.0, 1.0], [2.0, 1.0]], jobs=["a", "b"], accelerators=["v100", "k80"])
>>> solution = solve(Polytope(PlainColumns(matrix), [1, 1]), MaxMin(np.array([4.0, 2.0])))
>>> solution.status, round(solution.objective, 6)
('optimal', 0.7)
"""

from difflib import get_close_matches
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from formulations.assignment import Line, assign_to_lines
    from formulations.composed import Program, ProgramSolution
    from formulations.core.objectives import (
        FinishTimeFairness,
        Makespan,
        MaxMin,
        MaxSum,
        NashWelfare,
        Objective,
        Threshold,
    )
    from formulations.core.polytope import (
        Polytope,
        isolated_shares,
        isolated_throughput,
        proportional_shares,
        proportional_throughput,
    )
    from formulations.core.solution import TOLERANCE, Pairs, Solution, SolverError
    from formulations.floors.attainable import KeptFloors, keep_most_floors
    from formulations.floors.worth import maximise_ratio, maximise_worth
    from formulations.levels.hierarchy import Hierarchy
    from formulations.levels.water_filling import WaterFilling
    from formulations.packed.polytope import PackedPolytope
    from formulations.shockwave import PlanningProgram, PlanSolution, solve_plan
    from formulations.solving.choice import choices
    from formulations.solving.solver import solve
    from formulations.stated import solve_stated

__all__ = [
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
    "Pairs",
    "PlanSolution",
    "PlanningProgram",
    "Polytope",
    "Program",
    "ProgramSolution",
    "Solution",
    "SolverError",
    "Threshold",
    "WaterFilling",
    "assign_to_lines",
    "choices",
    "isolated_shares",
    "isolated_throughput",
    "keep_most_floors",
    "maximise_ratio",
    "maximise_worth",
    "proportional_shares",
    "proportional_throughput",
    "solve",
    "solve_plan",
    "solve_stated",
]

# Names are imported at first use: few programs need all rooms.
_NAMES = {
    "formulations.assignment": "Line assign_to_lines",
    "formulations.composed": "Program ProgramSolution",
    "formulations.core.objectives": "FinishTimeFairness Makespan MaxMin MaxSum NashWelfare Objective Threshold",
    "formulations.core.polytope": "Polytope isolated_shares isolated_throughput "
    "proportional_shares proportional_throughput",
    "formulations.core.solution": "TOLERANCE Pairs Solution SolverError",
    "formulations.floors.attainable": "KeptFloors keep_most_floors",
    "formulations.floors.worth": "maximise_ratio maximise_worth",
    "formulations.levels.hierarchy": "Hierarchy",
    "formulations.levels.water_filling": "WaterFilling",
    "formulations.packed.polytope": "PackedPolytope",
    "formulations.shockwave": "PlanSolution PlanningProgram solve_plan",
    "formulations.solving.choice": "choices",
    "formulations.solving.solver": "solve",
    "formulations.stated": "solve_stated",
}
_HOME = {name: room for room, names in _NAMES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    near = get_close_matches(name, __all__, n=1)
    hint = f" (did you mean {near[0]!r}?)" if near else ""
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}{hint}")


def __dir__() -> list[str]:
    return sorted(__all__)
