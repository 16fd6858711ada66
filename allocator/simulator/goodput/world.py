"""The job table and the truth of jobs with goodput."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np

from allocator.cluster import Cluster
from allocator.protocol.entities import Entities
from allocator.protocol.jobs import JobTable
from allocator.protocol.policy import Policy
from allocator.simulator.goodput.ledger import GoodputLedger
from allocator.simulator.goodput.rule import Goodput
from allocator.simulator.rules.base import rule_of
from allocator.simulator.rules.general import IdealShares
from allocator.simulator.truth import Truth
from throughputs import InputError, Trace
from throughputs.arrays import Flags
from throughputs.errors import one_of
from throughputs.goodput.profiles import default_profiles
from throughputs.goodput.trainings import Trainings
from throughputs.goodput.trainings.jobs import TrainingJobs, training_jobs

if TYPE_CHECKING:
    from allocator.presets import Preset


def goodput_world(
    trace: Trace, trainings: Trainings, cluster: Cluster, policy: Policy, preset: Preset, entities: Entities | None
) -> tuple[JobTable, Truth]:
    """What is known of the jobs of a trace that train, and what is so.

    Under policies that decide at events goodput follows the training. In rounds jobs run with the GPUs and the batch
    size that they asked for, and steps are with that batch size (`goodput_in_rounds`).

    Raises
    ------
    InputError
        A model or an accelerator type without figures, a batch size beyond limits, or a run without placement.
    """
    trainings.check_types(cluster.accelerators)
    settings, ideal = rule_of(preset.world, Goodput), rule_of(preset.world, IdealShares).ideal
    in_rounds = policy.answers != "plan" or policy.in_rounds
    _check_models(trainings, settings)
    jobs, types = training_jobs(trace, trainings), (cluster.accelerators, cluster.gpus_per_server)
    slowdown = dict(settings.goodput_slowdown)
    by_model = np.array([slowdown.get(one.name, 1.0) for one in jobs.trainings])[:, None]
    whole, of_samples = jobs.as_asked_for(), settings.goodput_work == "samples"
    if in_rounds and (settings.goodput_in_rounds == "mean" or ideal):
        if of_samples:
            whole = dataclasses.replace(whole, total_steps=np.minimum(whole.total_steps, trace.total_steps))
        rates = jobs.gang_rates(*types, asked_for=True) / by_model
        table = JobTable.from_trace(whole, rates, cluster, needs=policy.needs, entities=entities)
        return table, Truth(table.rates, table.scale_factor)
    if ideal:
        expected = f"false under policy {policy.name}: steps depend on nodes, which nobody has without placement"
        raise InputError("settings", field="ideal", found=True, expected=expected)
    if preset.mechanism.placement == "off":
        raise InputError("settings", field="placement", found="off", expected="on: steps depend on nodes")
    own_gangs = in_rounds or getattr(policy, "own_gangs", False)
    gangs = (trace.category.astype(str) == "rigid") | own_gangs
    _check_gangs(jobs, gangs & (trace.scale_factor <= cluster.capacity.max(initial=0)), submitted=in_rounds)
    # who may run with fewer GPUs than asked for has at most all
    asked = np.where(gangs, trace.scale_factor, np.minimum(trace.scale_factor, cluster.capacity.max(initial=1)))
    jobs = dataclasses.replace(jobs, trace=dataclasses.replace(jobs.trace, scale_factor=asked))
    kinds = jobs.trainings
    if in_rounds:
        # policies count with steps as they were measured, on packed nodes
        rates, kinds = jobs.gang_rates(*types, asked_for=True, always_two=True), jobs.submitted()
        settings = dataclasses.replace(
            settings, goodput_knowledge="true", goodput_batch_size="submitted", goodput_counts="progress"
        )
        table = JobTable.from_trace(whole, rates, cluster, needs=policy.needs, entities=entities)
    else:
        table = JobTable.from_trace(jobs.trace, jobs.gang_rates(*types) / by_model, cluster, entities=entities)
    table.goodput = GoodputLedger(kinds, jobs.batch_size, asked, trace.category, cluster, settings, own_gangs=own_gangs)
    truth = Truth(table.rates, table.scale_factor, trainings=kinds)
    if of_samples:
        truth.samples = trace.total_steps * jobs.batch_size
        truth.work = table.total_steps * np.minimum(trace.total_steps / whole.total_steps, 1.0)
    return table, truth


def _check_models(trainings: Trainings, settings: Goodput) -> None:
    """Raise InputError where a setting is about a model that neither these jobs nor the embedded profiles have.

    Presets name all models of their system, of which a run may lack some.
    """
    known = {*trainings.models, *default_profiles().models}
    for name in ("goodput_slowdown", "goodput_most_gpus_of_model", "goodput_batch_size_of_model"):
        for model, _ in getattr(settings, name):
            if model not in known:
                raise InputError("settings", field=name, found=model, expected=one_of(model, trainings.models))
    for model, size in settings.goodput_batch_size_of_model:
        one = trainings.models.get(model)
        if one is not None and not one.initial_batch_size <= size <= one.largest_batch_size:
            where, expected = f"goodput_batch_size_of_model of {model}", f"{one.initial_batch_size} to"
            raise InputError("settings", field=where, found=size, expected=f"{expected} {one.largest_batch_size}")


def _check_gangs(jobs: TrainingJobs, gangs: Flags, *, submitted: bool) -> None:
    """Raise InputError where a job that runs with the GPUs that it asked for has too few samples for them.

    `submitted`: all keep the batch size that they asked for.
    """
    rigid = np.isin(jobs.trace.category.astype(str), ("rigid", "scale-gpus")) | submitted
    for job in np.flatnonzero(gangs).tolist():
        training, gpus = jobs.trainings[job], int(jobs.trace.scale_factor[job])
        batch = jobs.batch_size[job] if rigid[job] else training.largest_batch_size
        unit = min((training.replica(kind) for kind in training.largest_local), default=1)
        if batch // training.least_local < gpus // unit:
            expected = (
                f"at most {int(batch // training.least_local) * unit}, with {training.least_local} samples on each"
            )
            raise InputError(jobs.trace.source, field=f"scale_factor of job {job}", found=gpus, expected=expected)
