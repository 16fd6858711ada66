"""Leases for jobs with deadlines: the program of Chronus, solved by open solvers, and its greedy.

>>> import numpy as np
>>> from formulations.leases import LeaseProgram, solve_leases
>>> program = LeaseProgram(
...     gpus=np.array([2, 1]), needed=np.array([2, 1]), job=np.array([0, 1, 1]), deadline=np.array([3, 1, 3]),
...     value=np.array([10.0, 10.0, 8.0]), capacity=np.array([2, 2, 2]), objective="minimize",
... )
>>> leases = solve_leases(program)
>>> leases.status, leases.objective, leases.schedule.astype(int).tolist()
('optimal', 19.5, [[0, 1, 1], [1, 0, 0]])
"""

from formulations.leases.packing import greedy_choice, latest_slots, packs, slot_by_slot
from formulations.leases.program import SIGNS, LeaseProgram
from formulations.leases.solver import METHODS, TIE_BREAKS, LeaseSolution, solve_leases

__all__ = [
    "METHODS",
    "SIGNS",
    "TIE_BREAKS",
    "LeaseProgram",
    "LeaseSolution",
    "greedy_choice",
    "latest_slots",
    "packs",
    "slot_by_slot",
    "solve_leases",
]
