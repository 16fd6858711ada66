"""Sweeps: many simulations, of every combination of policies, seeds, loads, clusters and settings.

>>> from allocator.sweep import Sweep
>>> sweep = Sweep.from_dict({
...     "kind": "static", "policies": ["fifo_perf"], "seeds": [0, 1], "jobs": [10], "clusters": ["v100:2,k80:2"],
... })
>>> [run.seed for run in sweep.points()]
[0, 1]

`run(sweep, out)` simulates the runs that `out` does not hold yet, `load(out)` returns what it holds, one row per run.
"""

from allocator.experiments.definition import Sweep
from allocator.experiments.run import Run
from allocator.experiments.runner import run
from allocator.experiments.store import load, load_jobs

Point = Run

__all__ = ["Point", "Run", "Sweep", "load", "load_jobs", "run"]
