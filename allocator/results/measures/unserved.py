"""Why jobs of a run were never served, in words."""

from __future__ import annotations

from itertools import compress
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from allocator.results.outcomes import OPEN
from throughputs.trace import allowed_types

if TYPE_CHECKING:
    from allocator.cluster import Cluster
    from allocator.results.record import RunRecord

_MOST_PLACES = 5


def unserved_reasons(record: RunRecord) -> list[str]:
    """A line for each reason for which jobs are "unserved", with how many they are and where they might have run.

    A job that no type can run asks for more GPUs than any type that it may use has; or on every type that is large
    enough it has no throughput. The types that it may use are those that its GPU type names, else its partition,
    if there are any.
    """
    jobs, cluster = record.jobs, record.cluster
    unserved = np.flatnonzero((jobs.columns["outcome"] == OPEN) & ~jobs.runnable)
    gpus = jobs.scale_factor[unserved]
    allowed = allowed_types(jobs.gpu_type[unserved], jobs.partition[unserved], cluster.accelerators)
    anywhere = np.ones((len(unserved), len(cluster.accelerators)), dtype=np.bool_)
    kinds, of = np.unique(anywhere if allowed is None else allowed, axis=0, return_inverse=True)
    places = [tuple(compress(cluster.accelerators, kind)) for kind in kinds]
    most = np.array([max(cluster.gpus[name] for name in place) for place in places], dtype=np.int64)[of]
    large = gpus > most
    lines = []
    if large.any():
        where = _by_place(places, of[large], cluster, gpus[large])
        who = "that ask for more GPUs than any type that they may use has"
        lines.append(f"never served: {_counted(large, who)} ({where})")
    if not large.all():
        where = _by_place(places, of[~large], cluster)
        who = "that have no throughput on any type that they may use and that is large enough"
        lines.append(f"never served: {_counted(~large, who)} ({where})")
    return lines


def _counted(jobs: NDArray[np.bool_], who: str) -> str:
    count = int(jobs.sum())
    if count == 1:
        who = who.replace("ask ", "asks ").replace("have ", "has ").replace("they", "it")
        return f"1 job {who}"
    return f"{count:,} jobs {who}"


def _by_place(
    places: list[tuple[str, ...]], of: NDArray[np.intp], cluster: Cluster, gpus: NDArray[np.int64] | None = None
) -> str:
    """Jobs by the types that they may use, most first, with the GPUs of these beside the most that are asked for."""
    groups: dict[tuple[str, ...], list[int]] = {}
    for row, position in enumerate(of.tolist()):
        groups.setdefault(places[position], []).append(row)
    texts = []
    for place, rows in sorted(groups.items(), key=lambda group: -len(group[1]))[:_MOST_PLACES]:
        name = "any type" if place == cluster.accelerators and len(place) > 1 else " or ".join(place)
        text = f"{len(rows):,} on {name}"
        if gpus is not None:
            asked, there = int(gpus[rows].max()), max(cluster.gpus[name] for name in place)
            text += f", up to {asked:,} of {there:,} GPUs"
        texts.append(text)
    if len(groups) > _MOST_PLACES:
        texts.append("...")
    return "; ".join(texts)
