"""Programs that are composed: an objective over the polytope, with rows of one's own.

>>> import numpy as np
>>> from throughputs import PlainColumns, ThroughputMatrix
>>> from formulations import MaxMin, Polytope
>>> matrix = ThroughputMatrix([[4.0, 1.0], [2.0, 1.0]], jobs=["a", "b"], accelerators=["v100", "k80"])
>>> program = Program(Polytope(PlainColumns(matrix), [1, 1]), MaxMin(np.array([4.0, 2.0])))
>>> capped = program.where(watts=np.array([300.0, 150.0]) @ program.gpus_used <= 330.0)
>>> solution = capped.solve()
>>> solution.status, round(solution.objective, 6), solution.prices["watts"].round(6).tolist()
('optimal', 0.52, 0.00125)
"""

from formulations.composed.expressions import Linear, Row
from formulations.composed.program import Program, ProgramSolution

__all__ = ["Linear", "Program", "ProgramSolution", "Row"]
