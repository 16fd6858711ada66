"""Sweeps: many simulations, of every combination of policies, seeds, loads, clusters and settings.

>>> from allocator.sweep import Sweep
>>> sweep = Sweep.from_dict({
...     "kind": "static", "policies": ["fifo_perf"], "seeds": [0, 1], "jobs": [10], "clusters": ["v100:2,k80:2"],
... })
>>> [point.seed for point in sweep.points()]
[0, 1]

`run(sweep, out)` simulates the points that `out` does not hold yet, `load(out)` returns what it holds, one row per run.
"""

from allocator.sweep.definition.point import Point, Workload
from allocator.sweep.definition.specification import Sweep
from allocator.sweep.runner import run
from allocator.sweep.store import load, load_jobs

__all__ = ["Point", "Sweep", "Workload", "load", "load_jobs", "run"]
