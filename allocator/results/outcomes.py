"""How a job can end, as numbers in a column of the job table and as words, and why some were never served."""

from __future__ import annotations

from itertools import compress
from typing import TYPE_CHECKING

import numpy as np

from throughputs.arrays import Ints
from throughputs.shown import counted
from throughputs.trace import allowed_types

if TYPE_CHECKING:
    from allocator.cluster import Cluster
    from allocator.results.record import RunRecord

OPEN, COMPLETED, CUT_OFF, DROPPED, REJECTED = range(5)

UNSERVED = "unserved"

RECORDED = "recorded"
"""What the schedule that a trace records is called beside policies."""

STATUSES = ("unfinished", "completed", "cut_off", "dropped", "rejected")
"""By number: still there at the end of the run; all steps done; taken off by a rule before its last step; given up
because it got nowhere; not admitted by the policy. A job that no accelerator type can run is "unserved"."""

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
    anywhere = np.ones((len(unserved), len(cluster.accelerators)), dtype=bool)
    allowed = anywhere if allowed is None else allowed
    most = (allowed * cluster.capacity).max(axis=1, initial=0)
    lines = []
    for rows, who in (
        (gpus > most, "that ask for more GPUs than any type that they may use has"),
        (gpus <= most, "that have no throughput on any type that they may use and that is large enough"),
    ):
        if not rows.any():
            continue
        places: dict[tuple[str, ...], list[int]] = {}
        for row in np.flatnonzero(rows).tolist():
            places.setdefault(tuple(compress(cluster.accelerators, allowed[row])), []).append(row)
        first = sorted(places.items(), key=lambda place: -len(place[1]))
        texts = [_at(place, of, gpus, most, cluster) for place, of in first[:_MOST_PLACES]]
        where = "; ".join(texts + ["..."] * (len(places) > _MOST_PLACES))
        count = int(rows.sum())
        if count == 1:
            who = who.replace("ask ", "asks ").replace("have ", "has ").replace("they", "it")
        lines.append(f"never served: {counted(count, 'job')} {who} ({where})")
    return lines


def _at(place: tuple[str, ...], rows: list[int], gpus: Ints, most: Ints, cluster: Cluster) -> str:
    """How many may use these types alone, and where they ask for more GPUs than there are, the most of them."""
    name = "any type" if place == cluster.accelerators and len(place) > 1 else " or ".join(place)
    asked, there = int(gpus[rows].max()), int(most[rows[0]])
    return f"{len(rows):,} on {name}" + (f", up to {asked:,} of {there:,} GPUs" if asked > there else "")
