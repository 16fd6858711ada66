"""Plans of whole rounds: the program of Shockwave, stated once and solved in several ways.

>>> import numpy as np
>>> from formulations.shockwave import PlanningProgram, solve_plan
>>> program = PlanningProgram(
...     gpus=2, rounds=4, round_seconds=120.0, widths=np.array([2, 1]), epochs=np.array([10, 10]),
...     epochs_done=np.array([0, 5]), epoch_seconds=np.array([60.0, 60.0]), remaining_seconds=np.array([600.0, 300.0]),
...     target_seconds=np.array([2000.0, 2000.0]), now_seconds=0.0, share=1.0,
... )
>>> plan = solve_plan(program)
>>> plan.stage, plan.status, plan.rounds_per_job.tolist()
(1, 'optimal', [3, 1])
"""

from formulations.shockwave.program import FAIRNESS_ROWS, PlanningProgram
from formulations.shockwave.solver import FORMS, ORDERINGS, SOLVERS, PlanSolution, solve_plan

__all__ = ["FAIRNESS_ROWS", "FORMS", "ORDERINGS", "SOLVERS", "PlanSolution", "PlanningProgram", "solve_plan"]
