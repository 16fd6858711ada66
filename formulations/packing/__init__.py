"""Packing two jobs on the same GPUs: who may share with whom, the published greedy, and the best pairs.

>>> import numpy as np
>>> from formulations.packing import PackingJobs, PackingLimits, best_pairs, first_hosts
>>> waiting = PackingJobs(gpus=[1, 1], score=[0, 1], length=[600.0, 900.0], kind=[0, 1])
>>> running = PackingJobs(gpus=[1, 1], score=[1, 1], length=[800.0, 5000.0], kind=[1, 1])
>>> retained = np.array([[1.0, 0.9], [0.8, 0.7]])
>>> first_hosts(waiting, running, retained, PackingLimits()).host.tolist()
[0, 1]
>>> best_pairs(
...     waiting, running, retained, PackingLimits(),
...     remaining=[600.0, 900.0], host_remaining=[800.0, 5000.0], wait=[3600.0, 3600.0],
... ).host.tolist()
[1, 0]
"""

from formulations.packing.greedy import Greedy, first_hosts
from formulations.packing.jobs import PackingJobs, PackingLimits, admissible_pairs
from formulations.packing.program import PairSolution, best_pairs, pair_savings

__all__ = [
    "Greedy",
    "PackingJobs",
    "PackingLimits",
    "PairSolution",
    "admissible_pairs",
    "best_pairs",
    "first_hosts",
    "pair_savings",
]
