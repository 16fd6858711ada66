"""What is wanted against what is: which jobs are to stop, and which can start."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from allocator.runtime.records.book import QUEUED, STOPPING, Job

Places = Mapping[str, tuple[int, ...]]
"""GPUs: by node their positions."""


@dataclass(frozen=True)
class Target:
    """Where a job is wanted.

    Attributes
    ----------
    pool : accelerator type. places : its GPUs. partner : UUID of the job that shares them, "" for none.
    """

    pool: str
    places: Places
    partner: str = ""


def orders(
    targets: Mapping[str, Target], holding: Iterable[Job], active: Mapping[str, Job]
) -> tuple[list[Job], list[Job]]:
    """Jobs to stop, of those `holding` GPUs, and jobs to start now, which are wanted on GPUs that nobody holds.

    Who is wanted where it is goes on; who is wanted elsewhere, or on other GPUs, stops first and starts when it has.
    """
    there = list(holding)
    stops = [job for job in there if job.state != STOPPING and not _stays(job, targets)]
    holders = held(there)
    starts = []
    for uuid, target in targets.items():
        job = active[uuid]
        if job.state != QUEUED or not free_for(uuid, target, holders):
            continue
        starts.append(job)
        for gpu in gpus_of(target.places):
            holders.setdefault(gpu, set()).add(uuid)
    return stops, starts


def _stays(job: Job, targets: Mapping[str, Target]) -> bool:
    target = targets.get(job.uuid)
    return target is not None and set(gpus_of(target.places)) == set(gpus_of(job.places))


def held(jobs: Iterable[Job]) -> dict[tuple[str, int], set[str]]:
    """Who holds each GPU (node, position)."""
    holders: dict[tuple[str, int], set[str]] = {}
    for job in jobs:
        for gpu in gpus_of(job.places):
            holders.setdefault(gpu, set()).add(job.uuid)
    return holders


def free_for(uuid: str, target: Target, holders: Mapping[tuple[str, int], set[str]]) -> bool:
    """Whether nobody but the job itself and a partner holds any of the GPUs of its target."""
    return all(holders.get(gpu, set()) <= {uuid, target.partner} for gpu in gpus_of(target.places))


def gpus_of(places: Places) -> Iterator[tuple[str, int]]:
    """(Node, position) of each GPU."""
    return ((node, position) for node, positions in places.items() for position in positions)
