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
from numpy.typing import NDArray

from throughputs.limits import require_all
from throughputs.ragged import row_offsets
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
    offsets = row_offsets(epochs)
    epoch = np.arange(len(job)) - offsets[:-1][job]
    rate = initial[np.arange(len(trace)), column]
    samples = np.maximum(np.rint(iterations * batch_size), 1).astype(np.int64)
    steps = iterations.copy()
    # An epoch is a pass over the samples, but for jobs of unknown data sets and those with too many epochs.
    passes = (kind >= 0) & ((epochs < MOST_STEADY_EPOCHS) | ladders.adapts(kind))
    samples[passes] = ladders.samples_per_epoch[kind[passes]]
    steps[passes] = samples[passes] / batch_size[passes]
    sizes, seconds = batch_size[job], (steps / rate)[job]

    adapts = np.flatnonzero(ladders.adapts(kind)[job])
    of, at = job[adapts], epoch[adapts]
    start = rules.accordion_start if view == "profile" else 0.0
    rung = _rungs(ladders, kind[of], column[of], at, epochs[of], start, published)
    sizes[adapts] = ladders.batch_size[kind[of], rung]
    seconds[adapts] = samples[of] / sizes[adapts] / ladders.rates[kind[of], rung, column[of]]
    return Profiles(offsets, sizes, seconds, samples)


def _profiled_column(
    trace: Trace, table: ThroughputTable, rates: NDArray[np.float64], wanted: str | None
) -> NDArray[np.int64]:
    """(N,) the accelerator type of each job, as a position in the table."""
    require_all(
        np.asarray(rates.any(axis=1)),
        np.zeros(len(trace)),
        table.source,
        lambda job: f"{trace.job_type[job]!r} with {trace.scale_factor[job]} GPUs",
        "a throughput above 0 on some accelerator type",
    )
    column = rates.argmax(axis=1) if rates.size else np.zeros(len(trace), dtype=np.int64)
    if wanted is not None:
        table.rates([], [], [wanted])  # says what is wrong with an unknown name
        position = table.accelerators.index(wanted)
        column = np.where(rates[:, position] > 0, position, column)
    return column


def _rungs(
    ladders: Ladders,
    kind: NDArray[np.int64],
    column: NDArray[np.int64],
    epoch: NDArray[np.int64],
    epochs: NDArray[np.int64],
    start: float,
    published: bool,
) -> NDArray[np.int64]:
    """(T,) rung of each epoch of jobs that adapt, below the first one without a throughput on the type of the job."""
    rung = ladders.rung(kind, epoch)
    doubles = ladders.doubles[kind]
    rung[~doubles & (epoch <= start * epochs) & (start > 0)] = 0
    if published:
        rung[doubles & (epoch == epochs - 1) & (rung > 1)] = 0
    runs = np.logical_and.accumulate(ladders.rates > 0, axis=1).sum(axis=1) - 1  # (K, M) highest rung that runs
    lowest: NDArray[np.int64] = np.minimum(rung, runs[kind, column])
    return lowest
