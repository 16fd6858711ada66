"""Programs with space sharing: two jobs may have the same GPUs at the same time.

>>> import numpy as np
>>> from formulations import MaxMin, PackedPolytope, solve
>>> from throughputs.packed import PackedColumns
>>> columns = PackedColumns([0, 0, 1], [[4.0], [2.0]], [[[2.0], [3.0]], [[1.5], [1.0]]], accelerators=["v100"])
>>> solution = solve(PackedPolytope(columns, [1]), MaxMin(np.array([4.0, 4.0, 2.0])))
>>> solution.status, round(solution.objective, 6), len(solution.pairs)
('optimal', 0.428571, 2)
"""

from formulations.packed.polytope import PackedPolytope

__all__ = ["PackedPolytope"]
