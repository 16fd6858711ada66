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

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from allocator.cluster import Cluster
from allocator.conversion import is_number
from allocator.protocol import ClusterState
from allocator.protocol.allocation import Allocation
from allocator.protocol.colocated import from_json
from allocator.protocol.entities import Entities, Membership, arrival_ranks
from allocator.protocol.views import columns_of_jobs, file_columns
from throughputs import InputError, ThroughputMatrix
from throughputs.files import read_json, source_of
from throughputs.limits import LARGEST_WHOLE_NUMBER


def read_instance(path: str | Path) -> ClusterState:
    """State of the instance in a JSON file (``.json`` or ``.json.gz``; ``-``: standard input).

    Raises
    ------
    InputError
        The file is missing or is not JSON, or a field is missing or of the wrong kind; says which.
    """
    path = Path(path)
    try:
        data = read_json(path)
    except FileNotFoundError:
        raise InputError(path, found="no such file", expected="an instance in JSON") from None
    except OSError as error:
        raise InputError(path, found=str(error), expected="a readable file of JSON") from None
    return state_from_json(data, source=source_of(path))


def state_from_json(data: Any, *, source: str = "instance") -> ClusterState:
    """State of an instance object; field names as in the module's example."""
    if not isinstance(data, dict):
        raise InputError(source, found=type(data).__name__, expected="an object with 'cluster' and 'jobs'")
    counts = _field(data, "cluster", dict, source, "an object of GPU counts by accelerator type")
    jobs = _field(data, "jobs", list, source, "a list of jobs")
    cluster = Cluster({str(name): _number(count, f"cluster.{name}", source) for name, count in counts.items()})
    rows = [_job(job, index, cluster, source) for index, job in enumerate(jobs)]
    ids = [row["job_id"] for row in rows]
    if len(set(map(str, ids))) != len(ids):
        repeated = next(i for i in ids if list(map(str, ids)).count(str(i)) > 1)
        raise InputError(source, field="jobs[].job_id", found=repeated, expected="distinct job ids")
    matrix = ThroughputMatrix(
        np.array([row["rates"] for row in rows], dtype=float).reshape(len(rows), len(cluster.accelerators)),
        ids,
        cluster.accelerators,
        np.array([row["scale_factor"] for row in rows], dtype=np.int64),
    )
    columns = columns_of_jobs(
        [name for name in file_columns() if any(name in job for job in jobs)],
        lambda name: [job.get(name) for job in jobs],
        lambda name, i: f"jobs[{i}].{name}",
        source,
    )
    return ClusterState(
        cluster,
        matrix,
        **columns,
        gpu_prices=_gpu_prices(data, cluster, source),
        membership=_membership(data, rows, columns.get("elapsed_seconds", np.zeros(len(rows))), source),
        colocation=None if data.get("pairs") is None else from_json(data["pairs"], matrix, source),
    )


def _gpu_prices(data: dict[str, Any], cluster: Cluster, source: str) -> NDArray[np.float64] | None:
    """(M,) dollars per GPU hour; None where the instance tells none."""
    if data.get("gpu_prices") is None:
        return None
    prices = _field(data, "gpu_prices", dict, source, "an object of dollars per GPU hour by accelerator type")
    missing = [name for name in cluster.accelerators if name not in prices]
    if missing:
        raise InputError(source, field="gpu_prices", found=sorted(prices), expected=f"also a price of {missing[0]}")
    return np.array([_number(prices[name], f"gpu_prices.{name}", source) for name in cluster.accelerators], dtype=float)


def _membership(
    data: dict[str, Any], rows: list[dict[str, Any]], elapsed_seconds: NDArray[np.float64], source: str
) -> Membership | None:
    """Entities of the jobs; jobs without an entity stand at the top."""
    names = [row["entity"] for row in rows]
    if data.get("entities") is None:
        named = next((i for i, name in enumerate(names) if name is not None), None)
        if named is None:
            return None
        raise InputError(
            source, field=f"jobs[{named}].entity", found=names[named], expected="none, as there are no entities"
        )
    stated = _field(data, "entities", list | dict, source, "a list or an object of entities")
    if isinstance(stated, dict):
        stated, names = _with_jobs(stated, names, [row["job_id"] for row in rows], source)
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
    ranks = [row["rank"] for row in rows]
    given = [i for i, rank in enumerate(ranks) if rank is not None]
    if given and len(given) < len(ranks):
        missing = ranks.index(None)
        raise InputError(source, field=f"jobs[{missing}].arrival_rank", expected="a rank, as other jobs have one")
    by_time = arrival_ranks(elapsed_seconds, [row["job_id"] for row in rows])
    return Membership(entities, of_job, ranks if given else by_time)


def _with_jobs(
    stated: dict[str, Any], names: list[Any], ids: list[Any], source: str
) -> tuple[dict[str, Any], list[Any]]:
    """Entities without their ``jobs`` lists, and the entity of each job: its own, or that whose list it is in."""
    names, place, rest = list(names), {str(job): i for i, job in enumerate(ids)}, {}
    for entity, fields in stated.items():
        listed = fields.get("jobs", []) if isinstance(fields, dict) else []
        for job in listed if isinstance(listed, list) else [listed]:
            if str(job) not in place:
                raise InputError(source, field=f"entities.{entity}.jobs", found=job, expected="the id of a job")
            names[place[str(job)]] = entity
        rest[entity] = {k: v for k, v in fields.items() if k != "jobs"} if isinstance(fields, dict) else fields
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


def _job(job: Any, index: int, cluster: Cluster, source: str) -> dict[str, Any]:
    where = f"jobs[{index}]"
    if not isinstance(job, dict):
        raise InputError(source, field=where, found=type(job).__name__, expected="an object")
    rates = _field(job, "throughputs", dict, source, "an object of steps/s by accelerator type", where)
    missing = [name for name in cluster.accelerators if name not in rates]
    if missing:
        raise InputError(
            source,
            field=f"{where}.throughputs",
            found=sorted(rates),
            expected=f"also a throughput on {missing[0]}",
        )
    scale = _number(job.get("scale_factor", 1), f"{where}.scale_factor", source)
    if scale != int(scale) or not 1 <= scale <= LARGEST_WHOLE_NUMBER:
        raise InputError(
            source, field=f"{where}.scale_factor", found=scale, expected="a whole number of GPUs, at least 1"
        )
    return {
        "job_id": _job_id(job.get("job_id", index), f"{where}.job_id", source),
        "scale_factor": int(scale),
        "entity": job.get("entity"),
        "rank": None
        if job.get("arrival_rank") is None
        else _number(job["arrival_rank"], f"{where}.arrival_rank", source),
        "rates": [_number(rates[name], f"{where}.throughputs.{name}", source) for name in cluster.accelerators],
    }


def _field(data: dict[str, Any], name: str, kind: Any, source: str, expected: str, where: str = "") -> Any:
    value = data.get(name)
    if not isinstance(value, kind):
        shown = None if value is None else type(value).__name__
        raise InputError(source, field=f"{where}.{name}" if where else name, found=shown, expected=expected)
    return value


def _job_id(value: Any, field: str, source: str) -> int | float | str:
    if isinstance(value, bool) or not isinstance(value, int | float | str) or value != value:
        raise InputError(source, field=field, found=value, expected="a number or text")
    return value


def _number(value: Any, field: str, source: str) -> Any:
    if not is_number(value) or value < 0:
        raise InputError(source, field=field, found=value, expected="a finite number, at least 0")
    return value


def _finite(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None
