"""Workloads of jobs that train, drawn as those that Pollux was evaluated with.

>>> import numpy as np
>>> from throughputs.goodput.profiles import default_profiles
>>> from throughputs.goodput.trainings import trainings_of
>>> trace = training_trace(3, 600.0, rng=np.random.default_rng(1), trainings=trainings_of(default_profiles()))
>>> len(trace), set(trace.category.tolist())
(3, {'adaptive'})

Each job asks for GPUs and a batch size that its user might have found by trying: numbers of GPUs that are used to
between 50 % and 80 %, counted by goodput in the middle of the training, each with the batch size that is best there.
Source: A. Qiao et al., "Pollux", OSDI 2021, sec. 5.1 and public artifact (the shares of the models in its workloads).
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np

from throughputs.errors import expect
from throughputs.goodput.profiles import Profiles
from throughputs.goodput.trainings.jobs import step_time_with
from throughputs.goodput.trainings.profiled import trainings_of
from throughputs.goodput.trainings.training import Training, Trainings, packed_shape
from throughputs.trace import Trace
from throughputs.traces.drawing import check_arrivals, poisson_arrivals

SHARES_OF_MODELS: Mapping[str, float] = MappingProxyType(
    {"cifar10": 0.39, "ncf": 0.39, "deepspeech2": 0.09, "bert": 0.07, "yolov3": 0.04, "imagenet": 0.02}
)
"""Share of the jobs by model in the eight workloads of Pollux' evaluation."""

_SOURCE = "training_trace"
_USED = (0.5, 0.8)
"""Speedup over one GPU, by GPUs, that users find worth while."""
_MOST_GPUS = 64
"""GPUs beyond which no drawn job asks, unless the caller says otherwise."""


def training_trace(
    n_jobs: int,
    mean_interarrival: float,
    *,
    rng: np.random.Generator,
    trainings: Trainings | Profiles,
    accelerator: str | None = None,
    gpus_per_node: int = 4,
    most_gpus: int = _MOST_GPUS,
    shares: Mapping[str, float] | None = None,
) -> Trace:
    """Adaptive jobs.

    Every kind of figure has a stream of its own, derived from `rng`, so that a longer trace begins with a shorter one.

    Parameters
    ----------
    n_jobs : number of jobs.
    mean_interarrival : mean time between arrivals in seconds, Poisson, the first job at 0.
    rng : the generator that the streams are derived from.
    trainings : of the models; or their profiles.
    accelerator : type by which GPUs and batch sizes are chosen; None: the first that there are figures for.
    gpus_per_node : of that type.
    most_gpus : that a job asks for.
    shares : of the jobs by model, in proportion; None: `SHARES_OF_MODELS` of those that `trainings` has, and equal
        ones if it has none of these.

    Raises
    ------
    InputError
        A setting is out of range, or no model has figures for the type.
    """
    check_arrivals(n_jobs, mean_interarrival, _SOURCE)
    trainings = trainings_of(trainings) if isinstance(trainings, Profiles) else trainings
    kind = trainings.accelerators[0] if accelerator is None else accelerator
    trainings.check_types([kind])
    there = [name for name, model in trainings.models.items() if kind in model.largest_local]
    given = SHARES_OF_MODELS if shares is None else shares
    if shares is not None:
        for name in shares:
            trainings.find(name)
    parts = np.array([float(given.get(name, 0.0)) for name in there])
    if shares is None and not parts.any():
        parts = np.ones(len(there))
    expect((parts >= 0).all() and parts.any(), _SOURCE, "shares", dict(given), "shares of models on that type, above 0")
    asked = [_asked_for(trainings.models[name], kind, gpus_per_node, most_gpus) for name in there]
    arrivals, models, choices = rng.spawn(3)
    which = np.searchsorted(np.cumsum(parts) / parts.sum(), models.random(n_jobs), side="right")
    which = np.minimum(which, len(there) - 1)
    chosen = choices.random(n_jobs)
    pairs = [asked[m][int(u * len(asked[m]))] for m, u in zip(which.tolist(), chosen.tolist(), strict=True)]
    return Trace(
        [f"{there[m]} (batch size {batch})" for m, (_, batch) in zip(which.tolist(), pairs, strict=True)],
        [gpus for gpus, _ in pairs],
        [trainings.models[there[m]].total_progress for m in which.tolist()],
        poisson_arrivals(arrivals, n_jobs, mean_interarrival),
        category=["adaptive"] * n_jobs,
        source=_SOURCE,
    )


def _asked_for(training: Training, kind: str, per_node: int, most: int) -> list[tuple[int, int]]:
    """Pairs of GPUs and batch size that a user may ask for."""
    unit = training.replica(kind)
    most = min(most, unit * (training.largest_batch_size // training.least_local))
    counts = list(range(unit, most + 1, unit)) or [unit]
    best = [_best(training, kind, gpus, per_node) for gpus in counts]
    used = [rate * unit / (best[0][0] * gpus) for gpus, (rate, _) in zip(counts, best, strict=True)]
    fitting = [k for k, share in enumerate(used) if _USED[0] < share < _USED[1]]
    return [(counts[k], best[k][1]) for k in fitting] or [(unit, best[0][1])]


def _best(training: Training, kind: str, gpus: int, per_node: int) -> tuple[float, int]:
    """Goodput, and the batch size of the greatest, of those that are the initial one doubled again and again."""
    epoch, shape = len(training.epoch_ends) // 2, packed_shape(gpus, per_node)
    found = []
    size = training.initial_batch_size
    while size <= training.largest_batch_size:
        if size >= gpus // training.replica(kind) * training.least_local:
            seconds, batch = step_time_with(training, kind, shape, float(size), as_it_fits=True)
            found.append((training.worth_in(batch, epoch) / seconds, size))
        size *= 2
    return max(found, default=(0.0, training.largest_batch_size))
