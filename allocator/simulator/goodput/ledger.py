"""What is known of the goodput of jobs: models fitted to what they have run, job by job and type by type.

The world reports the steps of a job as it runs them (`GoodputLedger.observe`); from those follow the job's throughput
model on each accelerator type, its own choice of batch sizes, and the columns that policies choose from. Nobody sees
the tables behind the world, unless the rules say so.

Sources: A. Qiao et al., "Pollux", OSDI 2021, sec. 4; S. Jayaram Subramanya et al., "Sia", SOSP 2023, sec. 3.2 and 3.3.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from allocator.checkpoint.kept import Kept
from allocator.cluster import Cluster
from throughputs.arrays import Flags, Floats, Ints, Texts
from throughputs.configurations import Configurations
from throughputs.goodput import (
    GoodputModels,
    GradientStatistics,
    Samples,
    ThroughputModels,
    best_batch_sizes,
    fit_models,
)
from throughputs.goodput.batch_size import BatchSizeLimits
from throughputs.goodput.trainings import Training
from throughputs.goodput.trainings.jobs import step_time_with
from throughputs.goodput.trainings.training import packed_shape

if TYPE_CHECKING:
    from allocator.simulator.goodput.rule import Goodput


ROUNDED = 1e-8
"""What a number may exceed a whole one by and still count as that: the published rounding up."""

_PARAMETERS = 7
_NO_LIMIT = 1 << 31

_LEARNT = ("square", "variance", "profiled", "parameters", "epoch")
"""Arrays with a row for each job of what was learnt."""

_BY_JOB = (
    *("batch_size", "scale_factor", "fixed", "gang", "_at_most_asked_for", "_unit", "_first", "_most"),
    *("initial", "_top", *_LEARNT),
)
"""All arrays with a row for each job, also of what was submitted."""


@dataclass(frozen=True, eq=False)
class NumbersOfGpus:
    """The numbers of GPUs that may be chosen on one type.

    Attributes
    ----------
    gpus, nodes : (C,) of each.
    per_node : GPUs of a node of the type.
    only_gangs : (C,) whether these are for jobs alone that run with this number and no other.
    """

    gpus: Ints
    nodes: Ints
    per_node: int
    only_gangs: Flags


def numbers_of_gpus(capacity: int, per_node: int, columns: str, gangs: Iterable[int] = ()) -> NumbersOfGpus:
    """Numbers of GPUs to choose from on a type with so many, `per_node` on a node, and those of fixed `gangs`."""
    if columns == "all":
        gpus = np.arange(1, capacity + 1)
    else:
        within = [1 << k for k in range(per_node.bit_length()) if 1 << k <= min(per_node, capacity)]
        gpus = np.array(sorted({*within, *range(per_node, capacity + 1, per_node)}), dtype=np.int64)
    every = np.union1d(gpus, np.array([gang for gang in gangs if gang <= capacity], dtype=np.int64))
    return NumbersOfGpus(every, -(-every // per_node), per_node, ~np.isin(every, gpus))


class GoodputLedger(Kept):
    """Models, gradient statistics and columns of N jobs on M types.

    Parameters
    ----------
    trainings : (N,) of each job; what is read of them are limits of batch sizes, and the rest as far as `rules` say.
    batch_size : (N,) that each asked for, samples.
    scale_factor : (N,) GPUs that each asked for.
    category : (N,) as in `throughputs.Trace`; empty counts as adaptive.
    cluster : its types and nodes.
    rules : what is known, and what may be chosen.
    own_gangs : whether all jobs run with the GPUs that they asked for, as those of category "rigid" do.
    """

    keeps = (*_LEARNT, "_seen", "_changed")

    def __init__(
        self,
        trainings: Sequence[Training],
        batch_size: Floats,
        scale_factor: Ints,
        category: Texts,
        cluster: Cluster,
        rules: Goodput,
        *,
        own_gangs: bool = False,
    ) -> None:
        N, M = len(trainings), len(cluster.accelerators)
        self.trainings, self.rules, self._cluster = tuple(trainings), rules, cluster
        kept = dict(rules.goodput_batch_size_of_model)
        keeps = np.array([one.name in kept for one in self.trainings], dtype=np.bool_)
        self.batch_size = np.array([kept.get(one.name, 0.0) for one in self.trainings], dtype=np.float64)
        self.batch_size[~keeps] = batch_size[~keeps]
        self.scale_factor = scale_factor
        self._at_most_asked_for = np.isin(category.astype(str), ("scale-gpus", "rigid"))
        self.fixed = self._at_most_asked_for | (rules.goodput_batch_size == "submitted") | keeps
        self.gang = (category.astype(str) == "rigid") | own_gangs
        self.pools = cluster.accelerators
        # GPUs of a replica, and those that a job starts with
        self._unit = np.array([[one.replica(name) for name in self.pools] for one in self.trainings]).reshape(N, M)
        self._first = np.where(self.gang[:, None], scale_factor[:, None], self._unit)
        of_model, most = dict(rules.goodput_most_gpus_of_model), rules.goodput_most_gpus or _NO_LIMIT
        self._most = np.array([min(of_model.get(one.name, most), most) for one in self.trainings], dtype=np.int64)
        self.initial = np.array([one.initial_batch_size for one in self.trainings], dtype=np.float64)
        self._top = np.array([one.largest_batch_size for one in self.trainings], dtype=np.float64)
        self.square, self.variance = np.full(N, np.nan), np.full(N, np.nan)
        self.profiled = np.zeros((N, M), dtype=np.int64)
        self.parameters = np.full((N, M, _PARAMETERS), np.nan)
        self.epoch = np.zeros(N, dtype=np.int64)
        self._seen: dict[tuple[int, int], dict[tuple[int, int, float], tuple[float, float]]] = {}
        self._changed: set[tuple[int, int]] = set()
        self._lay_out()
        if rules.goodput_knowledge == "profiled":
            self._profile()

    def _profile(self) -> None:
        """Measure every job on one replica of each type; of its gradients nothing is known by that."""
        measured: dict[tuple[str, str], list[tuple[float, float, float]]] = {}
        for job, training in enumerate(self.trainings):
            for m, name in enumerate(self.pools):
                if not self._has_figures(job, m):
                    continue
                gpus = int(self._unit[job, m])
                if (training.name, name) not in measured:
                    shape, sizes = packed_shape(gpus, self._columns[m].per_node), training.micro_batches(name)
                    measured[training.name, name] = [(size, *training.step_time(name, shape, size)) for size in sizes]
                for size, step, sync in measured[training.name, name]:
                    self.observe(job, m, -(-gpus // self._columns[m].per_node), gpus, size, step, sync)

    def _lay_out(self) -> None:
        """Make columns for the gangs of the jobs that there are; their rates are to be worked out."""
        cluster, gangs = self._cluster, sorted(set(self.scale_factor[self.gang].tolist()))
        self._columns = [
            numbers_of_gpus(int(count), int(cluster.gpus_per_server[name]), self.rules.goodput_columns, gangs)
            for name, count in zip(cluster.accelerators, cluster.capacity.tolist(), strict=True)
        ]
        self._ends = np.cumsum([0, *(len(columns.gpus) for columns in self._columns)])
        self._of_type = [slice(*ends) for ends in itertools.pairwise(self._ends.tolist())]
        self._rate = np.zeros((len(self), int(self._ends[-1])))
        self._stale = np.ones(len(self), dtype=np.bool_)
        self._limits = [_limits(self, m) for m in range(len(self.pools))]
        self._curves: dict[tuple[str, int, float], Floats] = {}

    def __len__(self) -> int:
        return len(self.trainings)

    def append(self, later: GoodputLedger) -> None:
        """Add the jobs of another ledger of the same cluster and rules, of which none has run yet, at the end."""
        known = len(self)
        # what was measured before a first run
        self._seen |= {(known + job, pool): found for (job, pool), found in later._seen.items()}
        self._changed |= {(known + job, pool) for job, pool in later._changed}
        self.trainings += later.trainings
        for name in _BY_JOB:
            setattr(self, name, np.concatenate([getattr(self, name), getattr(later, name)]))
        self._lay_out()

    # What the world reports.

    def observe(
        self, job: int, pool: int, nodes: int, gpus: int, atomic: float, step_time: float, sync_time: float
    ) -> bool:
        """A job runs steps with so many samples on each replica; whether that is news."""
        if self.rules.goodput_models == "merged":
            known = [m for m in range(len(self.pools)) if self._has_figures(job, m)]
            news = [self._observe(job, m, nodes, gpus, atomic, step_time, sync_time) for m in known]
            return any(news)
        return self._observe(job, pool, nodes, gpus, atomic, step_time, sync_time)

    def _observe(
        self, job: int, pool: int, nodes: int, gpus: int, atomic: float, step_time: float, sync_time: float
    ) -> bool:
        seen = self._seen.setdefault((job, pool), {})
        replicas = gpus // int(self._unit[job, pool])
        key = min(nodes, replicas), replicas, atomic
        if key in seen:
            return False
        seen[key] = step_time - sync_time, step_time
        self._changed.add((job, pool))
        self._stale[job] = True
        if gpus > self.profiled[job, pool]:
            self.profiled[job, pool] = gpus
        return True

    def observe_gradients(self, job: int, square: float, variance: float) -> bool:
        """The statistics of a job's gradients are these; whether that is news."""
        if self.square[job] == square and self.variance[job] == variance:
            return False
        self.square[job], self.variance[job] = square, variance
        self._stale[job] = True
        return True

    def _refit(self) -> None:
        """Fit the models of those who have run something new."""
        if not self._changed:
            return
        keys = sorted(self._changed)
        self._changed = set()
        samples = []
        for key in keys:
            seen = self._seen[key]
            columns = np.array([(*where, *times) for where, times in seen.items()]).T
            samples.append(Samples(columns[0], columns[1], columns[2], columns[3], columns[4]))
        for (job, pool), fit in zip(keys, fit_models(samples, self.rules.goodput_fit), strict=True):
            self.parameters[job, pool] = fit.parameters

    # What a job chooses.

    def batch_sizes(self, jobs: Ints, pool: Ints, nodes: Ints, gpus: Ints) -> tuple[Floats, Floats]:
        """(K,) samples of a micro-batch on a replica, and accumulation steps, that jobs choose where they run."""
        if not self.fixed[jobs].all():
            self._refit()
        gpus = gpus // self._unit[jobs, pool]
        nodes = np.minimum(nodes, gpus)
        atomic, steps = np.ones(len(jobs)), np.zeros(len(jobs))
        modelled = ~self.fixed[jobs] & ~np.isnan(self.parameters[jobs, pool, 0]) & ~np.isnan(self.variance[jobs])
        for m in np.unique(pool).tolist():
            on = pool == m
            rows = np.flatnonzero(on & modelled)
            if len(rows):
                best = best_batch_sizes(self._models(jobs[rows], m), nodes[rows][:, None], gpus[rows][:, None])
                atomic[rows], steps[rows] = best.atomic_batch_size[:, 0], best.accumulation_steps[:, 0]
            rows = np.flatnonzero(on & (~modelled | (atomic < 1)))
            if len(rows):
                atomic[rows], steps[rows] = self._untuned(jobs[rows], m, gpus[rows].astype(np.float64))
        most = np.floor(self._top[jobs] / (gpus * (steps + 1.0)))
        return np.maximum(np.minimum(atomic, most), 1.0), steps

    def _untuned(self, jobs: Ints, pool: int, gpus: Floats) -> tuple[Floats, Floats]:
        """The batch size asked for, or the smallest one of jobs without a model, in as few micro-batches as fit."""
        limits = self._limits[pool]
        least = np.maximum(limits.initial[jobs], limits.least_local[jobs] * gpus)
        batch = np.where(self.fixed[jobs], self.batch_size[jobs], least)
        local = np.ceil(batch / gpus - ROUNDED)
        steps = np.ceil(local / limits.largest_local[jobs] - ROUNDED) - 1.0
        single = (gpus == 1) & (batch > limits.initial[jobs]) & (self._unit[jobs, pool] == 1)
        steps = np.where(single, np.maximum(steps, 1.0), steps)
        return np.ceil(local / (steps + 1.0) - ROUNDED), steps

    def _models(self, jobs: Ints, pool: int) -> GoodputModels:
        """Goodput models of jobs on a type, as far as they are fitted."""
        statistics = GradientStatistics(self.square[jobs], self.variance[jobs])
        return GoodputModels(ThroughputModels(self.parameters[jobs, pool]), statistics, self._limits[pool].take(jobs))

    # What policies choose from.

    def configurations(self, jobs: Ints, labels: Sequence[Any]) -> Configurations:
        """What jobs (K rows) may run as, and how fast: initial steps a second, or iterations."""
        self._refit()
        stale = jobs[self._stale[jobs]]
        if len(stale):
            self._update(stale)
            self._stale[stale] = False
        rate = self._rate[jobs]
        row, column = np.nonzero(rate > 0)
        pool = np.searchsorted(self._ends, column, side="right") - 1
        gpus = np.concatenate([columns.gpus for columns in self._columns])[column]
        return Configurations(row, pool, gpus, rate[row, column], jobs=labels, pools=self.pools)

    def steps_remaining(self, jobs: Ints, progress: Floats) -> Floats:
        """(K,) what jobs have left, of which `progress` is the exact amount, in the unit of the rules."""
        if self.rules.goodput_counts == "progress":
            return progress
        left = np.ones(len(jobs))
        for k, job in enumerate(jobs.tolist()):
            training, size = self.trainings[job], float(self.batch_size[job])
            epochs = len(training.epoch_ends)
            # the epoch that a job is in counts as over
            left[k] = max(training.steps(size, epochs) - training.steps(size, int(self.epoch[job]) + 1), 1.0)
        return left

    def _update(self, jobs: Ints) -> None:
        """Work out the rates of jobs anew."""
        self._rate[jobs] = 0.0
        if self.rules.goodput_knowledge == "true":
            known = self.fixed[jobs]
            for job in jobs[known].tolist():
                self._rate[job] = self._true_rates(job)
            jobs = jobs[~known]
        modelled = ~np.isnan(self.parameters[jobs, :, 0]) & ~np.isnan(self.variance[jobs])[:, None]
        allowed = self._allowed(jobs)
        # without projection a job's least goodput on any number of GPUs counts elsewhere
        asked = allowed | ~(modelled.all(axis=1, keepdims=True) | self.rules.goodput_projection)
        for m, (columns, at) in enumerate(zip(self._columns, self._of_type, strict=True)):
            for tuned in (True, False):
                here = np.flatnonzero(modelled[:, m] & (self.fixed[jobs] != tuned))
                units = self._unit[jobs[here], m]
                for unit in np.unique(units).tolist():
                    some = here[units == unit]
                    model = 0 if self.rules.goodput_models == "merged" else m
                    found = self._on_replicas(jobs[some], model, columns, unit, asked[some, at], tune=tuned)
                    self._rate[jobs[some], at] = found
        self._fill_unknown(jobs, modelled, allowed)
        self._rate[jobs] = np.where(allowed, self._rate[jobs], 0.0)

    def _allowed(self, jobs: Ints) -> Flags:
        """(K, C) columns that jobs may have, by what they have run and what they asked for."""
        # in replicas
        caps = np.maximum(2 * self.profiled[jobs], self._first[jobs]) // self._unit[jobs]
        if self.rules.goodput_projection:
            caps = np.broadcast_to(caps.max(axis=1, keepdims=True), caps.shape)
        allowed = []
        for m, columns in enumerate(self._columns):
            most = np.minimum(caps[:, m], self._limits[m].largest[jobs] // self._limits[m].least_local[jobs])
            most = np.minimum(most * self._unit[jobs, m], self._most[jobs])
            most = np.where(self._at_most_asked_for[jobs], np.minimum(most, self.scale_factor[jobs]), most)
            own = columns.gpus[None, :] == self.scale_factor[jobs][:, None]
            of_kind = np.where(self.gang[jobs][:, None], own, ~columns.only_gangs[None, :])
            allowed.append(of_kind & (columns.gpus[None, :] <= most[:, None]))
        return np.concatenate(allowed, axis=1)

    def _on_replicas(
        self, jobs: Ints, model: int, columns: NumbersOfGpus, unit: int, asked: Flags, *, tune: bool
    ) -> Floats:
        """(K, C) initial steps/s by the model of a type, with replicas of `unit` GPUs, where `asked` (K, C) for.

        0 elsewhere, and where GPUs are left over.
        """
        replicas = columns.gpus // unit
        as_submitted = self.rules.goodput_values == "submitted"
        of_model = as_submitted or self.rules.goodput_models == "merged"
        nodes = -(-columns.gpus // self._columns[model].per_node) if of_model else columns.nodes
        row, column = np.nonzero(asked & (replicas * unit == columns.gpus))
        each, some = jobs[row], replicas[column]
        models = self._up_to_submitted(each, model, some) if tune and as_submitted else self._models(each, model)
        on = np.minimum(nodes[column], some)[:, None], some[:, None]
        rate = np.zeros(asked.shape)
        rate[row, column] = best_batch_sizes(models, *on, tune=tune).goodput[:, 0] / self.initial[each]
        return rate

    def _up_to_submitted(self, jobs: Ints, pool: int, replicas: Ints) -> GoodputModels:
        """Cap the batch size at max(requested, minimum per replica x replicas)."""
        models = self._models(jobs, pool)
        least = np.maximum(models.limits.initial, models.limits.least_local * replicas)
        asked = np.minimum(self.batch_size[jobs], models.limits.largest)
        return replace(models, limits=replace(models.limits, largest=np.maximum(asked, least)))

    def _fill_unknown(self, jobs: Ints, modelled: Flags, allowed: Flags) -> None:
        """Columns on types that jobs have not run on."""
        M = len(self._columns)
        for k, job in enumerate(jobs.tolist()):
            if modelled[k].all():
                continue
            known = np.flatnonzero(modelled[k])
            fits = [self._has_figures(job, m) for m in range(M)]
            if not len(known) and self.rules.goodput_knowledge == "profiled":
                self._rate_by_speed(job)
                continue
            # the least goodput counts as many as a replica has GPUs
            least = 1.0
            rates = {m: self._rate[job, self._of_type[m]] for m in known.tolist()}
            leasts = [float(found[found > 0].min()) / self._unit[job, m] for m, found in rates.items() if found.any()]
            if leasts:
                least = min(leasts)
            for m in np.flatnonzero(~modelled[k]).tolist():
                if not fits[m]:
                    continue
                at, columns = self._of_type[m], self._columns[m]
                if len(known) and self.rules.goodput_projection:
                    self._rate[job, at] = self._projected(job, int(known[0]), m, allowed[k : k + 1, at])
                else:
                    self._rate[job, at] = np.where(columns.gpus == self._first[job, m], least * self._unit[job, m], 0.0)

    def _rate_by_speed(self, job: int) -> None:
        """Of a job that was profiled and has not run: what one replica does on each type, and no more of them."""
        for m, columns in enumerate(self._columns):
            if self._has_figures(job, m):
                speed = self.trainings[job].speed_of_replica(self.pools[m], columns.per_node)
                alone = columns.gpus == self._first[job, m]
                self._rate[job, self._of_type[m]] = np.where(alone, speed / self.initial[job], 0.0)

    def _has_figures(self, job: int, pool: int) -> bool:
        return self.pools[pool] in self.trainings[job].largest_local

    def _projected(self, job: int, source: int, pool: int, asked: Flags) -> Floats:
        """(C,) rates on a type, from the model of another."""
        columns, training = self._columns[pool], self.trainings[job]
        unit, tune = int(self._unit[job, pool]), not self.fixed[job]
        found = self._on_replicas(np.array([job]), source, columns, unit, asked, tune=tune)[0]
        speeds = [training.speed_of_replica(self.pools[m], self._columns[m].per_node) for m in (source, pool)]
        return np.asarray(found * speeds[1] / speeds[0])

    def _true_rates(self, job: int) -> Floats:
        """(C,) steps of the batch size asked for per second, packed on nodes; 0 where there is less than a sample."""
        training, batch = self.trainings[job], float(self.batch_size[job])
        rates = []
        for m, columns in enumerate(self._columns):
            key = training.name, m, batch
            if key not in self._curves:
                self._curves[key] = _true_curve(training, self.pools[m], columns, batch, int(self._most[job]))
            curve = self._curves[key]
            asked = int(self.scale_factor[job])
            allowed = (columns.gpus <= asked) | ~self._at_most_asked_for[job]
            allowed &= (columns.gpus == asked) if self.gang[job] else ~columns.only_gangs
            rates.append(np.where(allowed, curve, 0.0))
        return np.concatenate(rates)

    # What a checkpoint keeps.

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from `state`, of a ledger of the same jobs."""
        super().restore(state)
        self._stale[:] = True


def _limits(ledger: GoodputLedger, pool: int) -> BatchSizeLimits:
    """(N,) bounds of batch sizes on a type; where a model has no figures for it those of another, which is not used."""
    name, jobs = ledger.pools[pool], ledger.trainings
    top = np.array([one.largest_batch_size for one in jobs], dtype=np.float64)
    top = np.where(ledger.fixed, np.maximum(ledger.batch_size, ledger.initial), top)
    local = [one.largest_local.get(name, next(iter(one.largest_local.values()))) for one in jobs]
    least = np.minimum([one.least_local for one in jobs], local)
    return BatchSizeLimits(ledger.initial, top, least, local, [one.accumulation for one in jobs])


def _true_curve(training: Training, accelerator: str, columns: NumbersOfGpus, batch: float, most: int) -> Floats:
    """(C,) steps/s with a fixed batch size."""
    rate = np.zeros(len(columns.gpus))
    if accelerator not in training.largest_local:
        return rate
    unit = training.replica(accelerator)
    top = min(columns.gpus.max(initial=0), unit * int(batch // training.least_local), most)
    for c, gpus in enumerate(columns.gpus.tolist()):
        if gpus <= top and gpus % unit == 0:
            shape = packed_shape(gpus, columns.per_node)
            rate[c] = 1.0 / step_time_with(training, accelerator, shape, batch, always_two=True)[0]
    return rate
