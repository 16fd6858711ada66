"""Why jobs were never served: by reason, by where they might have run, and as the commands say it."""

from __future__ import annotations

import numpy as np

from allocator import Cluster, get_policy, simulate
from allocator.results.outcomes import unserved_reasons
from throughputs import Trace

CLUSTER = Cluster({"red": 16, "blue": 8}, {"red": 8, "blue": 8})


def reasons(gpus: list[int], partition: list[str], rates: list[list[float]]) -> list[str]:
    n = len(gpus)
    trace = Trace([f"job {k}" for k in range(n)], gpus, [60.0] * n, [0.0] * n, partition=partition)
    return unserved_reasons(simulate(trace, CLUSTER, get_policy("fifo"), np.array(rates)).record)


def test_each_reason_has_a_line_with_counts_by_where_jobs_might_have_run() -> None:
    found = reasons(
        [64, 32, 24, 16, 4, 1, 1],
        ["", "red", "red", "blue", "blue", "", "red"],
        [[1.0, 1.0]] * 4 + [[1.0, 0.0], [0.0, 0.0], [1.0, 1.0]],
    )
    assert found == [
        "never served: 4 jobs that ask for more GPUs than any type that they may use has "
        "(2 on red, up to 32 of 16 GPUs; 1 on any type, up to 64 of 16 GPUs; 1 on blue, up to 16 of 8 GPUs)",
        "never served: 2 jobs that have no throughput on any type that they may use and that is large enough "
        "(1 on blue; 1 on any type)",
    ]
