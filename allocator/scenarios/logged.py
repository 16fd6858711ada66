"""The schedule that the trace of scenarios records, as a row beside theirs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from allocator.api import load_throughputs
from allocator.protocol.entities import Entities
from allocator.recorded import RECORDED, recorded_schedule
from allocator.scenarios.definition import Scenarios
from allocator.scenarios.result import Row
from throughputs import InputError, read_prices, read_trace
from throughputs.goodput.trainings.finding import find_trainings

_OF_ROW = ("policy", "label", "cluster", "status", "status_detail")


def recorded_row(scenarios: Scenarios, first: Row) -> tuple[Row | None, str]:
    """What was recorded on the cluster of the `first` row, and what one must know of it.

    Returns
    -------
    (row, told). The row stands where the first one does, but for policy and load. None where the trace records
    nothing, where models of goodput say how fast jobs are, or where of no job it is known on which type it ran: `told`.
    """
    speeds = scenarios.workload.get("throughputs")
    trace = read_trace(scenarios.trace)
    if (speeds is not None and find_trainings(speeds) is not None) or np.isnan(trace.recorded_end_seconds).all():
        return None, ""
    owners = scenarios.workload.get("entities_by")
    prices = scenarios.workload.get("prices")
    try:
        owned = trace if owners is None else trace.owned_by(owners)
        result = recorded_schedule(
            owned,
            first.cluster,
            load_throughputs(speeds),
            preset=first.varied.get("preset", scenarios.settings.get("preset", "default")),
            prices=read_prices(prices) if isinstance(prices, str) else prices,
            entities=None if owners is None else Entities.named(owned.entity, owned.source),
        )
    except InputError as error:
        return None, f"the recorded schedule is left out: {error}"
    figures = {name: value for name, value in result.summary().to_dict().items() if name not in _OF_ROW}
    row = replace(
        first,
        label=RECORDED,
        load=1.0,
        policy=RECORDED,
        status=result.status,
        status_detail=result.status_detail,
        figures=figures,
        prices={},
        price_unit="",
        next_gpus=(),
        jobs=result.jobs,
    )
    most, gpus = int(result.timeline["busy_gpus"].max()), first.cluster.total_gpus
    told = [f"left out of the recorded schedule: {result.status_detail}"] if result.status_detail else []
    if most > gpus:
        told.append(f"the recorded schedule has up to {most} GPUs in use, {first.cluster} has {gpus}")
    return row, "; ".join(told)
