"""Columns of a trace that a run makes nothing of, said once instead of passed over."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from throughputs.trace import partition_names

if TYPE_CHECKING:
    from allocator.cluster import Cluster
    from throughputs import Trace

__all__ = ["unused_columns"]


def unused_columns(trace: Trace, cluster: Cluster, entities_by: str | None, *, by_name: bool) -> list[str]:
    """A line on the columns that are ignored, and one on partitions that are no type of the cluster where others are.

    `entities_by` is the column whose names are entities; `by_name`: whether the run has entities at all.
    """
    unused = []
    if (trace.user != "").any() and entities_by != "user":
        unused.append("user (--entities-by user shares the cluster among users)")
    if (trace.entity != "").any() and not by_name:
        unused.append("entity (--entities FILE)")
    known = {"", *cluster.accelerators}
    partitions, of = np.unique(trace.partition.astype(str), return_inverse=True)
    unknown = [known.isdisjoint(partition_names(name) or [""]) for name in partitions.tolist()]
    elsewhere = np.array(unknown, dtype=np.bool_)[of]
    types = bool((~elsewhere & (trace.partition != "")).any())
    if elsewhere.any() and not types and entities_by != "partition":
        unused.append("partition (none is the name of an accelerator type of the cluster)")
    lines = [f"{trace.source}: not used: {', '.join(unused)}"] if unused else []
    if elsewhere.any() and types:
        names = ", ".join(map(repr, dict.fromkeys(trace.partition[elsewhere].tolist())))
        lines.append(f"{trace.source}: {elsewhere.sum()} jobs run anywhere, as the cluster has no type named {names}")
    return lines
