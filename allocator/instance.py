"""Allocation problems and their answers as JSON, for scripts and for `allocator solve`.

An instance holds the cluster and the jobs of one decision::

    {"cluster": {"v100": 4, "k80": 8},
     "jobs": [{"job_id": 0, "throughputs": {"v100": 3.1, "k80": 0.9}, "scale_factor": 1,
               "priority_weight": 1.0, "num_steps_remaining": 5000, "time_since_start": 120.0,
               "slo_seconds": 3600.0, "entity": "vision"}],
     "gpu_prices": {"v100": 0.74, "k80": 0.135},
     "entities": {"vision": {"weight": 2, "policy": "fifo"}}}
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from allocator.cluster import Cluster
from allocator.conversion import AtLeastOne, NotNegative, NotNegativeWhole, convert
from allocator.protocol import ClusterState
from allocator.protocol.allocation import Allocation
from allocator.protocol.colocated import from_json
from allocator.protocol.entities import Entities, Membership, arrival_ranks
from allocator.protocol.views import columns_of_jobs, file_columns
from throughputs import InputError, ThroughputMatrix
from throughputs.arrays import Floats
from throughputs.errors import expect
from throughputs.files import read_json, source_of


def read_instance(path: str | Path) -> ClusterState:
    """State of the instance in a JSON file (``.json`` or ``.json.gz``; ``-``: standard input).

    Raises
    ------
    InputError
        The file is missing or is not JSON, or a field is missing or of the wrong kind; says which.
    """
    path = Path(path)
    try:
        return state_from_json(read_json(path), source=source_of(path))
    except OSError as error:
        found = error.strerror or str(error)
        raise InputError(path, found=found.lower(), expected="an instance in JSON") from None


def state_from_json(data: Any, *, source: str = "instance") -> ClusterState:
    """State of an instance object; field names as in the module's example."""
    read = partial(convert, source=source)
    data = _object(data, None, "an object with 'cluster' and 'jobs'", source)
    counts = _object(data.get("cluster"), "cluster", "an object of GPU counts by accelerator type", source)
    cluster = Cluster({t: read(_whole(c), NotNegativeWhole, field=f"cluster.{t}") for t, c in counts.items()})
    jobs = data.get("jobs")
    expect(isinstance(jobs, list), source, "jobs", _shown(jobs), "a list of jobs")
    jobs = [_object(job, f"jobs[{i}]", "an object with the fields of a job", source) for i, job in enumerate(jobs)]
    names, rows = cluster.accelerators, list(enumerate(jobs))
    ids = [read(job.get("job_id", i), int | float | str, field=f"jobs[{i}].job_id") for i, job in rows]
    times = Counter(map(str, ids))
    for job in ids:
        if times[str(job)] > 1:
            raise InputError(source, field="jobs[].job_id", found=job, expected="distinct job ids")
    rates = [_by_type(job.get("throughputs"), names, f"jobs[{i}].throughputs", source) for i, job in rows]
    gangs = [read(_whole(job.get("scale_factor", 1)), AtLeastOne, field=f"jobs[{i}].scale_factor") for i, job in rows]
    matrix = ThroughputMatrix(np.array(rates).reshape(len(jobs), len(names)), ids, names, np.array(gangs, np.int64))
    columns = columns_of_jobs(
        [name for name in file_columns() if any(name in job for job in jobs)],
        lambda name: [job.get(name) for job in jobs],
        lambda name, i: f"jobs[{i}].{name}",
        source,
    )
    prices = data.get("gpu_prices")
    return ClusterState(
        cluster,
        matrix,
        **columns,
        gpu_prices=None if prices is None else _by_type(prices, names, "gpu_prices", source),
        membership=_membership(data, jobs, ids, columns.get("elapsed_seconds", np.zeros(len(jobs))), source),
        colocation=None if data.get("pairs") is None else from_json(data["pairs"], matrix, source),
    )


def _object(value: Any, place: str | None, expected: str, source: str) -> dict[str, Any]:
    """An object of JSON."""
    if not isinstance(value, dict):
        raise InputError(source, field=place, found=_shown(value), expected=expected)
    return value


def _shown(value: Any) -> str | None:
    """The kind of a value that may be long."""
    return None if value is None else type(value).__name__


def _whole(value: Any) -> Any:
    """2.0, as tables write it, as 2."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _by_type(stated: Any, names: Sequence[str], place: str, source: str) -> Floats:
    """(M,) numbers of an object that has one for each accelerator type."""
    known = _object(stated, place, "an object of numbers by accelerator type", source)
    numbers = [convert(known.get(name), NotNegative, source=source, field=f"{place}.{name}") for name in names]
    return np.array(numbers, dtype=np.float64)


def _membership(
    data: Mapping[str, Any],
    jobs: Sequence[Mapping[str, Any]],
    ids: Sequence[Any],
    elapsed_seconds: Floats,
    source: str,
) -> Membership | None:
    """Entities of the jobs; jobs without an entity stand at the top."""
    names, stated = [job.get("entity") for job in jobs], data.get("entities")
    if stated is None:
        for i, name in enumerate(names):
            if name is not None:
                raise InputError(
                    source, field=f"jobs[{i}].entity", found=name, expected="none, as there are no entities"
                )
        return None
    if isinstance(stated, dict):
        stated, names = _with_jobs(stated, names, ids, source)
    try:
        entities = Entities.parse(stated)
    except InputError as error:
        field = "entities" if error.field is None else f"entities.{error.field}"
        raise InputError(source, field=field, found=error.found, expected=error.expected) from None
    try:
        of_job = entities.positions(names)
    except InputError as error:
        field = f"jobs[{(error.line or 1) - 1}].entity"
        raise InputError(source, field=field, found=error.found, expected=error.expected) from None
    if any(job.get("arrival_rank") is not None for job in jobs):
        places = (f"jobs[{i}].arrival_rank" for i in range(len(jobs)))
        ranks = [
            convert(job.get("arrival_rank"), NotNegative, source=source, field=place)
            for job, place in zip(jobs, places, strict=True)
        ]
        return Membership(entities, of_job, ranks)
    return Membership(entities, of_job, arrival_ranks(elapsed_seconds, ids))


def _with_jobs(
    stated: dict[str, Any], names: list[Any], ids: Sequence[Any], source: str
) -> tuple[dict[str, Any], list[Any]]:
    """Entities without their ``jobs`` lists, and the entity of each job: its own, or that whose list it is in."""
    names, place, rest = list(names), {str(job): i for i, job in enumerate(ids)}, {}
    for entity, fields in stated.items():
        rest[entity] = dict(fields) if isinstance(fields, dict) else fields
        listed = rest[entity].pop("jobs", []) if isinstance(fields, dict) else []
        for job in listed if isinstance(listed, list) else [listed]:
            if str(job) not in place:
                raise InputError(source, field=f"entities.{entity}.jobs", found=job, expected="the id of a job")
            names[place[str(job)]] = entity
    return rest, names


def allocation_to_json(allocation: Allocation) -> dict[str, Any]:
    """Answer ready for JSON; numbers that do not exist (no program, no bound) are null."""
    matrix = allocation.throughputs
    prices = np.full(matrix.n_accelerators, np.nan) if allocation.prices is None else allocation.prices
    used = np.argwhere(allocation.shares > 0)
    return {
        "policy": allocation.policy,
        "status": allocation.status,
        "objective": _finite(allocation.objective),
        "objective_unit": allocation.objective_unit,
        "bound": _finite(allocation.bound),
        "gap": _finite(allocation.gap),
        "prices": {name: _finite(price) for name, price in zip(matrix.accelerators, prices, strict=True)},
        **({"row_prices": dict(allocation.row_prices)} if allocation.row_prices else {}),
        "allocation": [
            {
                "jobs": [matrix.jobs[i]],
                "accelerator": matrix.accelerators[j],
                "share": float(allocation.shares[i, j]),
            }
            for i, j in used
        ]
        + _pairs_to_json(allocation),
        "effective_throughput": {
            str(job): float(rate) for job, rate in zip(matrix.jobs, allocation.effective_throughput, strict=True)
        },
        "unserved": list(allocation.unserved),
        "dropped_slos": list(allocation.dropped_slos),
        "solver": allocation.solver,
        "fallbacks": list(allocation.fallbacks),
        "seconds": allocation.seconds,
    }


def _pairs_to_json(allocation: Allocation) -> list[dict[str, Any]]:
    """Pairs of jobs with a share, each with what the two do on their GPUs."""
    frame = allocation.pairs_frame()
    columns = (frame[name].tolist() for name in ("first", "second", "accelerator", "share"))
    rates = frame[["first_rate", "second_rate"]].to_numpy().tolist()
    return [
        {"jobs": [first, second], "accelerator": name, "share": share, "throughputs": speeds}
        for first, second, name, share, speeds in zip(*columns, rates, strict=True)
    ]


def _finite(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None
