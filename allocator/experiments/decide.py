"""One decision about jobs that have all just arrived: what it gives to whom, and how long it takes."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from allocator.cluster import Cluster
from allocator.experiments.run import Materials, Run
from allocator.protocol.jobs import JobTable
from allocator.results.measures.cost import price_table
from formulations import proportional_throughput
from throughputs.arrays import Floats, Positions
from throughputs.estimator.believed import BelievedColocation
from throughputs.goodput.trainings import Trainings

if TYPE_CHECKING:
    import pandas as pd

    from allocator.protocol.allocation import Allocation
    from throughputs import Trace

Report = Callable[[float], None]


def decide(
    run: Run, trace: Trace, materials: Materials, report: Report
) -> tuple[dict[str, Any], str, str, pd.DataFrame]:
    """Ask the policy of a run once about the jobs of a trace, all at time 0, and measure how long it takes.

    The first of several repetitions is not measured. `report` takes the share of them that is over.

    Returns
    -------
    (figures, status, detail, jobs). Figures by name, as docs/sweeps.md describes them; ready for JSON. The status is
    "completed", or "saturated" when it took longer than it may: the detail says how long. One row per job: job_id,
    job_type, scale_factor, priority_weight, entity (where there are any), throughput (steps/s), normalised_throughput
    (in units of the proportional share's), paired_share (share of time beside another job) and, for each accelerator
    type, share_NAME (share of time alone).
    """
    cluster, table = run.gpus, materials.speeds_of(run)
    assert not isinstance(table, Trainings)
    policy, prices = run.make_policy(), materials.prices_of(run)
    jobs = JobTable.from_trace(trace, table, cluster, needs=policy.needs, entities=run.owners(trace))
    estimation = run.estimation
    if estimation is not None and jobs.colocation is not None:
        jobs.believed = BelievedColocation(jobs.colocation, estimation, run.seed)
    names = cluster.accelerators
    priced: dict[str, Any] = {} if prices is None else {"gpu_prices": price_table(prices, names).price_at(0, names)}
    policy.prepare()
    seconds: list[float] = []
    unmeasured = int(run.repetitions > 1)
    for done in range(run.repetitions + unmeasured):
        # A new state for each: nothing that a decision works out about it is there for the next one.
        state = jobs.snapshot(np.arange(len(jobs)), 0.0, cluster, policy.needs, **priced)
        state.read_all()
        started = time.process_time()
        allocation = policy.allocate(state)
        seconds.append(time.process_time() - started)
        report((done + 1) / (run.repetitions + unmeasured))
        if _too_long(run, seconds[-1]):
            break
    measured = seconds[unmeasured:] or seconds
    throughput = _throughput(allocation, jobs)
    normalised = _normalised(throughput, jobs, cluster)
    figures: dict[str, Any] = {"jobs": len(jobs), "unserved_jobs": int((~jobs.runnable).sum())}
    figures |= _figures(allocation, normalised, statistics.median(measured), len(measured))
    if jobs.believed is not None:
        figures["estimation_error"] = jobs.believed.error
    if jobs.membership is not None:
        names, of_job = jobs.membership.entities.names, jobs.membership.of_job
        figures["by_entity"] = _by_entity(names, of_job, normalised)
    limit = run.max_decision_seconds
    late = _too_long(run, seconds[-1])
    detail = f"a decision took {seconds[-1]:.3g} s, more than {limit:g}" if late else ""
    return figures, "saturated" if late else "completed", detail, _jobs(allocation, jobs, throughput, normalised)


def _too_long(run: Run, seconds: float) -> bool:
    return run.max_decision_seconds is not None and seconds > run.max_decision_seconds


def _normalised(throughput: Floats, jobs: JobTable, cluster: Cluster) -> Floats:
    """(N,) throughput in units of that under the proportional share; 0 for jobs that no type can run."""
    unit = proportional_throughput(jobs.rates, cluster.capacity)
    return np.divide(throughput, unit, out=np.zeros(len(unit)), where=unit > 0)


def _figures(allocation: Allocation, normalised: Floats, seconds: float, repetitions: int) -> dict[str, Any]:
    """Figures of the whole decision; None where the policy has none."""

    def known(value: float) -> float | None:
        return float(value) if np.isfinite(value) else None

    return {
        "decision_seconds": seconds,
        "measured_decisions": repetitions,
        "decision_status": allocation.status,
        "decision_solver": allocation.solver or None,
        "objective": known(allocation.objective),
        "bound": known(allocation.bound),
        "gap": known(allocation.gap),
        "least_normalised_throughput": float(normalised.min(initial=np.inf)) if len(normalised) else None,
        "total_normalised_throughput": float(normalised.sum()),
    }


def _by_entity(names: tuple[str, ...], of_job: Positions, normalised: Floats) -> list[dict[str, Any]]:
    """Jobs of each entity itself, and its part of the normalised throughput of all jobs."""
    total = max(float(normalised.sum()), 1e-300)
    return [
        {
            "entity": name,
            "jobs": int((of_job == i).sum()),
            "throughput_share": float(normalised[of_job == i].sum()) / total,
        }
        for i, name in enumerate(names)
    ]


def _throughput(allocation: Allocation, jobs: JobTable) -> Floats:
    """(N,) steps/s that jobs really make, whatever is believed of pairs."""
    alone = np.asarray((jobs.rates * allocation.shares).sum(axis=1))
    pairs, columns = allocation.pairs, jobs.colocation
    if pairs is None or columns is None or not len(pairs):
        return alone
    return alone + pairs.throughput(pairs.rates(columns), len(alone))


def _jobs(allocation: Allocation, jobs: JobTable, throughput: Floats, normalised: Floats) -> pd.DataFrame:
    import pandas as pd

    n = len(jobs)
    paired, pairs = np.zeros(n), allocation.pairs
    if pairs is not None and len(pairs):
        paired = pairs.time(n)
    columns: dict[str, Any] = {
        "job_id": np.arange(n),
        "job_type": jobs.job_type,
        "scale_factor": jobs.scale_factor,
        "priority_weight": jobs.priority_weight,
        **({} if jobs.membership is None else {"entity": jobs.entity}),
        "throughput": throughput,
        "normalised_throughput": normalised,
        "paired_share": paired,
    }
    for j, name in enumerate(allocation.throughputs.accelerators):
        columns[f"share_{name}"] = allocation.shares[:, j]
    return pd.DataFrame(columns)
