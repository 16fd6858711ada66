"""The throughput table that comes with the package.

Isolated throughput of 26 deep-learning job types on v100, p100 and k80 GPUs, with gangs of 1, 2, 4 and 8 GPUs
for the 19 types that train distributed. Figures: D. Narayanan et al., "Heterogeneity-Aware Cluster Scheduling
Policies for Deep Learning Workloads", OSDI 2020, public artifact stanford-futuredata/gavel (MIT).
"""

from __future__ import annotations

import csv
from functools import cache
from importlib.resources import files

from throughputs.tables.table import ThroughputTable


@cache
def default_table() -> ThroughputTable:
    """The embedded table: 83 (job type, scale factor) keys, 3 accelerator types, steps/s; no co-location.

    >>> default_table().rates(["A3C"], [1], ["v100", "k80"]).shape
    (1, 2)
    """
    resource = files("throughputs") / "data" / "default_throughputs.csv"
    with resource.open(encoding="utf-8") as lines:
        rows = list(csv.reader(line for line in lines if not line.startswith("#")))
    header, figures = rows[0], rows[1:]
    return ThroughputTable(
        keys=[(row[0], int(row[1])) for row in figures],
        accelerators=header[2:],
        isolated=[[float(value) for value in row[2:]] for row in figures],
        source="default throughput table",
    )
