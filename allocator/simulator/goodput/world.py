"""The job table and the truth of jobs with goodput."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from allocator.cluster import Cluster
from allocator.protocol.entities import Entities
from allocator.protocol.goodput.ledger import GoodputLedger
from allocator.protocol.jobs import JobTable
from allocator.protocol.policy import Policy
from allocator.simulator.truth import Truth
from throughputs import InputError, Trace
from throughputs.goodput.trainings import Trainings
from throughputs.goodput.trainings.jobs import training_jobs

if TYPE_CHECKING:
    from allocator.presets import Preset

__all__ = ["goodput_world"]


def goodput_world(
    trace: Trace, trainings: Trainings, cluster: Cluster, policy: Policy, preset: Preset, entities: Entities | None
) -> tuple[JobTable, Truth]:
    """What is known of the jobs of a trace that train, and what is so.

    Under policies that decide at events goodput follows the training. In rounds jobs run with the GPUs and the batch
    size that they asked for, and steps are with that batch size.

    Raises
    ------
    InputError
        A model or an accelerator type without figures, or a run without placement.
    """
    trainings.check_types(cluster.accelerators)
    jobs, types = training_jobs(trace, trainings), (cluster.accelerators, cluster.gpus_per_server)
    slowdown = dict(preset.simulator.goodput_slowdown)
    by_model = np.array([slowdown.get(one.name, 1.0) for one in jobs.trainings])[:, None]
    if policy.answers != "plan" or policy.in_rounds:
        rates = jobs.gang_rates(*types, asked_for=True) / by_model
        table = JobTable.from_trace(jobs.as_asked_for(), rates, cluster, needs=policy.needs, entities=entities)
        return table, Truth(table.rates, table.scale_factor)
    if preset.mechanism.placement == "off":
        raise InputError("settings", field="placement", found="off", expected="on: steps depend on nodes")
    table = JobTable.from_trace(jobs.trace, jobs.gang_rates(*types) / by_model, cluster, entities=entities)
    rules = preset.simulator.goodput_rules
    table.goodput = GoodputLedger(jobs.trainings, jobs.batch_size, trace.scale_factor, trace.category, cluster, rules)
    return table, Truth(table.rates, table.scale_factor, trainings=jobs.trainings)
