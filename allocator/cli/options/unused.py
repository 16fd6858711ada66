"""Columns of a trace that a run makes nothing of, said once instead of passed over."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from throughputs.trace import named_types

if TYPE_CHECKING:
    from allocator.cluster import Cluster
    from throughputs import Trace


def unused_columns(trace: Trace, cluster: Cluster, entities_by: str | None, *, by_name: bool) -> list[str]:
    """A line on the columns that are ignored, and one on GPU types and partitions that are no type of the cluster where
    others are.

    `entities_by` is the column whose names are entities; `by_name`: whether the run has entities at all.
    """
    unused = []
    if (trace.user != "").any() and entities_by != "user":
        unused.append("user (--entities-by user shares the cluster among users)")
    if (trace.entity != "").any() and not by_name:
        unused.append("entity (--entities FILE)")
    places = np.where(trace.gpu_type == "", trace.partition, trace.gpu_type)
    named = named_types(trace.gpu_type, trace.partition, cluster.accelerators).any(axis=1)
    elsewhere, types = (places != "") & ~named, bool(named.any())
    if elsewhere.any() and not types:
        columns = {"gpu_type": trace.gpu_type, "partition": trace.partition}
        unused += [
            f"{name} (none is the name of an accelerator type of the cluster)"
            for name, column in columns.items()
            if (column != "").any() and entities_by != name
        ]
    lines = [f"{trace.source}: not used: {', '.join(unused)}"] if unused else []
    if elsewhere.any() and types:
        names = ", ".join(map(repr, dict.fromkeys(places[elsewhere].tolist())))
        lines.append(f"{trace.source}: {elsewhere.sum()} jobs run anywhere, as the cluster has no type named {names}")
    return lines
