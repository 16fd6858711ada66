"""What would happen to a cluster if it had more GPUs, more work, another policy: scenarios over one trace.

>>> from throughputs import TraceGenerator
>>> trace = TraceGenerator(n_jobs=10, mean_interarrival=600, seed=1).generate()
>>> answer = whatif(trace, ["v100:4", "v100:8"], next_gpus=0)
>>> [row.label for row in answer.rows]
['v100:4', 'v100:8']

The rows are runs of a sweep, which makes them side by side and keeps them; this room says which runs are asked for,
sets them beside the first, and shows them.
"""

from allocator.experiments.whatif.rows import Row, WhatIf
from allocator.experiments.whatif.scenarios import Scenarios, whatif

__all__ = ["Row", "Scenarios", "WhatIf", "whatif"]
