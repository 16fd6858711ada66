"""The profile of each job of a trace: batch size and duration of every epoch, as drawn up before it runs.

>>> from throughputs import Trace, default_table
>>> job = Trace(["LM (batch size 40)"], [1], [60_000], [0.0], mode=["gns"])
>>> profiles = profile_trace(job, default_table())
>>> profiles.batch_size[[0, 10, 11, 40]], profiles.total_seconds.round()
(array([40, 40, 80, 80]), array([1155.]))
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from throughputs.arrays import Floats, Ints, offsets_of
from throughputs.errors import InputError
from throughputs.training.course import training_start
from throughputs.training.ladders import Ladders
from throughputs.training.profiles import MOST_STEADY_EPOCHS, Profiles
from throughputs.training.rules import AdaptationRules, View, default_rules

if TYPE_CHECKING:
    from throughputs.tables.table import ThroughputTable
    from throughputs.trace import Trace

_PREFERRED = "v100"


def profile_trace(
    trace: Trace,
    table: ThroughputTable,
    accelerator: str | None = None,
    rules: AdaptationRules | None = None,
    *,
    published: bool = False,
    view: View = "profile",
) -> Profiles:
    """Profiles of the N jobs of a trace.

    A job has ceil(steps / ceil(samples / batch size)) epochs; one of them takes samples / batch size / throughput
    seconds. Jobs whose model the rules do not know have `throughputs.training.STEADY_EPOCHS` equal epochs, and no more
    than steps, in which nothing changes; jobs that never change their batch size have at most
    `throughputs.training.MOST_STEADY_EPOCHS`, which are longer than a pass over the samples where there would be more.
    Nothing changes either for jobs whose next batch size has no throughput.

    Parameters
    ----------
    trace : the jobs; their column ``mode`` says how they adapt.
    table : throughputs of all job types and, for jobs that adapt, of the batch sizes they come to.
    accelerator : type on which the jobs were profiled. When omitted, "v100" if the table knows it, else for each job
        the type on which it is fastest, which also stands in for a type on which the job cannot run.
    rules : when batch sizes change; `default_rules` when omitted.
    published : as the public artifact has it: a gns job that has doubled its batch size more than once trains its
        last epoch with the initial one.
    view : the critical windows of accordion jobs: "profile", those of the published profiles, or "course", those that
        jobs follow in the end, so that the profile tells the future.

    Raises
    ------
    InputError
        The table does not know a job type, scale factor or `accelerator`, or a job cannot run on any type.

    References
    ----------
    P. Zheng et al., "Shockwave", NSDI 2023, public artifact (profiles of the shipped traces).
    """
    rules = default_rules() if rules is None else rules
    wanted = _PREFERRED if accelerator is None and _PREFERRED in table.accelerators else accelerator
    accelerators = list(table.accelerators)
    ladders, kind = Ladders.of_jobs(trace.job_type, trace.scale_factor, trace.mode, table, accelerators, rules, view)
    initial = table.rates(trace.job_type, trace.scale_factor, accelerators)
    batch_size, iterations, epochs = training_start(trace.job_type, trace.total_steps, ladders, kind)
    column = _profiled_column(trace, table, initial, wanted)

    job = np.repeat(np.arange(len(trace)), epochs)
    offsets = offsets_of(epochs)
    epoch = np.arange(len(job)) - offsets[:-1][job]
    rate = initial[np.arange(len(trace)), column]
    samples = np.maximum(np.rint(iterations * batch_size), 1).astype(np.int64)
    steps = iterations.copy()
    # An epoch is a pass over the samples, but for jobs of unknown data sets and those with too many epochs.
    passes = np.flatnonzero(kind >= 0)
    passes = passes[(epochs[passes] < MOST_STEADY_EPOCHS) | (ladders.top[kind[passes]] > 0)]
    samples[passes] = ladders.samples_per_epoch[kind[passes]]
    steps[passes] = samples[passes] / batch_size[passes]
    sizes, seconds = batch_size[job], (steps / rate)[job]

    adapts = np.flatnonzero((kind >= 0)[job])
    adapts = adapts[ladders.top[kind[job[adapts]]] > 0]
    of, at = job[adapts], epoch[adapts]
    rung, doubles = ladders.rung(kind[of], at), ladders.doubles[kind[of]]
    if view == "profile" and rules.accordion_start > 0:
        rung[~doubles & (at <= rules.accordion_start * epochs[of])] = 0
    if published:
        rung[doubles & (at == epochs[of] - 1) & (rung > 1)] = 0
    # not beyond the highest rung that runs on the type of the job, of (K, M)
    highest = np.logical_and.accumulate(ladders.rates > 0, axis=1).sum(axis=1) - 1
    rung = np.minimum(rung, highest[kind[of], column[of]])
    sizes[adapts] = ladders.batch_size[kind[of], rung]
    seconds[adapts] = samples[of] / sizes[adapts] / ladders.rates[kind[of], rung, column[of]]
    return Profiles(offsets, sizes, seconds, samples)


def _profiled_column(trace: Trace, table: ThroughputTable, rates: Floats, wanted: str | None) -> Ints:
    """(N,) the accelerator type of each job, as a position in the table."""
    if len(trace) and not rates.any(axis=1).all():
        job = int(np.argmin(rates.any(axis=1)))
        where = f"{trace.job_type[job]!r} with {trace.scale_factor[job]} GPUs"
        raise InputError(table.source, field=where, found=0.0, expected="a throughput above 0 on some accelerator type")
    column = rates.argmax(axis=1) if rates.size else np.zeros(len(trace), dtype=np.int64)
    if wanted is not None:
        table.rates([], [], [wanted])  # says what is wrong with an unknown name
        position = table.accelerators.index(wanted)
        column = np.where(rates[:, position] > 0, position, column)
    return column
