"""Two throughput tables as one."""

from __future__ import annotations

import numpy as np

from throughputs.tables.builder import TableBuilder
from throughputs.tables.table import ThroughputTable


def merged_tables(table: ThroughputTable, other: ThroughputTable) -> ThroughputTable:
    """All figures of two tables; where both have one, that of `other`.

    The order is that of `table`, with what only `other` has behind it.
    """
    builder = TableBuilder()
    for one in (table, other):
        for key in one.keys:
            builder.key(key)
        for name in one.accelerators:
            builder.accelerator(name)
    # a figure that is there already is not replaced: what is to stay comes first
    for one in (other, table):
        for k, m in np.argwhere(~np.isnan(one.isolated)).tolist():
            builder.add_isolated(one.accelerators[m], one.keys[k], float(one.isolated[k, m]))
        for p, m in np.argwhere(~np.isnan(one.colocated[:, :, 0])).tolist():
            a, b = one.pairs[p].tolist()
            first, second = one.colocated[p, m].tolist()
            builder.add_pair(one.accelerators[m], one.keys[a], one.keys[b], (first, second))
    return ThroughputTable(*builder.figures(), other.source)
