"""Jobs whose goodput changes as they train: what a simulated world does with them from one event to the next.

A job runs with a batch size of its own choice (`GoodputLedger.batch_sizes`). Its progress is that of its true step
times, on the nodes where its GPUs are, and of the true statistics of its gradients, both of which change with the batch
size and with the epoch; and both are reported to the ledger as they are met.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from allocator.simulator.rules.base import RunningRule, Stretch
from throughputs.arrays import Floats, Ints

if TYPE_CHECKING:
    from allocator.protocol.assignment import Assignment
    from allocator.protocol.decision import Decision
    from allocator.simulator.world import World
    from throughputs.goodput.trainings.training import Shape, Training


_ROUNDING = 1e-9
"""Relative: what rounding leaves of an epoch whose end was waited for."""


class GoodputRuns(RunningRule):
    """The state of N jobs as they train, which is how fast they go.

    Parameters
    ----------
    world : its truth says how the jobs train, its ledger of goodput what is known of it, and its core where they run.
    slowdown : by model, how much longer steps take than they were measured.
    whole_seconds : epochs end in whole seconds, by rounding, and time passes through their ends; otherwise these are
        events.

    Attributes
    ----------
    rate : (N,) progress/s of jobs where they run now.
    alike : (K,) which rows of the decision go on on the same type with as many GPUs on each node.
    """

    keeps = ("rate", "_atomic", "_steps", "_samples_left", "_batch", "_step_seconds", "_news", "_place")
    in_stretches = True

    def __init__(self, world: World, slowdown: Mapping[str, float], whole_seconds: bool) -> None:
        assert world.jobs.goodput is not None
        self._world, self._core, self._truth, self._ledger = world, world.core, world.truth, world.jobs.goodput
        self._table = world.jobs
        self._server = world.core.cluster.servers
        self._slowdown_of, self._whole_seconds = slowdown, whole_seconds
        self.alike = np.zeros(0, dtype=np.bool_)
        self.rate = self._samples_left = self._slowdown = np.zeros(0)
        self._batch, self._step_seconds, self._atomic, self._steps = (np.zeros(0) for _ in range(4))
        self._place: dict[int, tuple[int, Shape]] = {}
        # What the rate of a job was worked out for, and whether it has learnt something since its last choice.
        self._rate_is_of: dict[int, tuple[Any, ...]] = {}
        self._known: dict[tuple[Any, ...], tuple[float, ...]] = {}
        self._news = np.zeros(0, dtype=np.bool_)
        self.lengthen()

    @property
    def _trainings(self) -> tuple[Training, ...]:
        assert self._truth.trainings is not None
        return self._truth.trainings

    def lengthen(self) -> None:
        """Take in the jobs by which the truth has grown."""
        known, fresh = len(self.rate), self._trainings[len(self.rate) :]
        samples = np.full(len(fresh), np.inf) if self._truth.samples is None else self._truth.samples[known:]
        slowdown = np.array([self._slowdown_of.get(one.name, 1.0) for one in fresh])
        zeros, ones = np.zeros(len(fresh)), np.ones(len(fresh))
        self.rate = np.concatenate([self.rate, zeros])
        self._samples_left = np.concatenate([self._samples_left, samples])
        self._slowdown = np.concatenate([self._slowdown, slowdown])
        self._batch = np.concatenate([self._batch, ones])
        self._step_seconds = np.concatenate([self._step_seconds, ones])
        self._atomic = np.concatenate([self._atomic, zeros])
        self._steps = np.concatenate([self._steps, zeros])
        self._news = np.concatenate([self._news, zeros.astype(np.bool_)])

    def follow(self, rows: Assignment, at: Ints) -> None:
        """Those whose nodes are others choose their batch sizes anew."""
        new: dict[int, tuple[int, Shape]] = {}
        self.alike = alike = np.zeros(len(rows), dtype=np.bool_)
        columns = zip(at.tolist(), rows.jobs.tolist(), rows.pool.tolist(), strict=True)
        for row, (job, name, pool) in enumerate(columns):
            new[job] = pool, self._nodes_of(name)
            alike[row] = self._place.get(job) == new[job]
        self._place = new
        changed = at[~alike]
        if len(changed):
            self._choose_batch_sizes(changed)
            self._look(changed)

    def _nodes_of(self, name: int) -> Shape:
        """GPUs of a job, given by its id, on each of its nodes, most first."""
        count: dict[int, int] = {}
        for gpu in self._core.gpus_of(name):
            count[self._server[gpu]] = count.get(self._server[gpu], 0) + 1
        return tuple(sorted(count.values(), reverse=True))

    def rates(self, decision: Decision, at: Ints, rates: Floats) -> Floats:  # noqa: ARG002
        """(K,) progress/s."""
        return self.rate.take(at)

    def next_change(self, s: Stretch) -> float:
        """When the world sees that the next epoch of a job has ended, or its samples; inf where that is no event."""
        at = s.at
        if self._whole_seconds or not len(at):
            return np.inf
        seconds = np.maximum(self._targets(at) - s.done, 0.0) / self.rate[at]
        change = float(np.min(s.begin + np.minimum(seconds, self._seconds_of_samples(at))))
        for seen_at in self._world.hooks.seen_at:
            change = seen_at(change)
        return change

    def _seconds_of_samples(self, jobs: Ints) -> Floats:
        """(K,) seconds that jobs need for the samples that they have left; in whole steps where seconds are whole."""
        steps = self._samples_left[jobs] / self._batch[jobs]
        return np.asarray((np.ceil(steps - _ROUNDING) if self._whole_seconds else steps) * self._step_seconds[jobs])

    def _targets(self, jobs: Ints) -> Floats:
        epochs = self._ledger.epoch
        return np.array([self._trainings[job].epoch_ends[epochs[job]] for job in jobs.tolist()])

    def train(self, s: Stretch, end: float) -> Floats:
        """(K,) progress that jobs make up to `end` (seconds), through their epochs."""
        reached, s.finish, changed = self._train(s.at, s.begin, end, s.done)
        if changed:
            self._core.rates_changed(s.decision.assignment.jobs)
        return np.asarray(reached - s.done)

    def set_back(self, at: Ints, steps: Floats) -> None:
        """Samples are to be done again, and the epochs that they were in."""
        seconds = np.divide(steps, self.rate[at], out=np.zeros(len(at)), where=self.rate[at] > 0)
        self._samples_left[at] += seconds / self._step_seconds[at] * self._batch[at]
        for job in at.tolist():
            done = self._table.steps_done[job] * (1.0 + _ROUNDING)
            ends = self._trainings[job].epoch_ends
            self._ledger.epoch[job] = min(int(np.searchsorted(ends, done, side="right")), len(ends) - 1)
        self._look(at)

    def _train(self, at: Ints, begin: Floats | float, end: float, progress: Floats) -> tuple[Floats, Floats, bool]:
        """Let jobs train from `begin` (seconds, of each or of all) until `end`.

        Parameters
        ----------
        at : (K,) where they are in the job table.
        progress : (K,) that they have made so far.

        Returns
        -------
        Progress at the end (K,), when they are through (K,), inf for those who are not, and whether the goodput of any
        has changed, or what is known of it.
        """
        clock = np.array(np.broadcast_to(begin, len(at)), dtype=np.float64)
        left, done = np.maximum(end - clock, 0.0), progress.copy()
        finish, changed = np.full(len(at), np.inf), False
        rows = np.flatnonzero(left > 0)
        while len(rows):
            jobs = at[rows]
            self._look(jobs, learn=True)
            crossed = self._advance(rows, jobs, clock, left, done, finish)
            changed |= bool(len(crossed)) or bool(self._news[jobs].any())
            if not self._whole_seconds and len(crossed):
                # the statistics of an epoch are known as it begins
                self._look(crossed, learn=True)
            self._choose_batch_sizes(jobs[self._news[jobs] & np.isinf(finish[rows])])
            rows = rows[left[rows] > 0]
        through = np.isfinite(finish)
        self._look(at[~through])
        # a sum of times may come out an ulp beyond the end
        finish[through] = np.minimum(finish[through], end)
        return done, finish, changed

    def _advance(self, rows: Ints, jobs: Ints, clock: Floats, left: Floats, done: Floats, finish: Floats) -> Ints:
        """Let jobs in these rows train to the end of the epoch, of their samples, or of the time left.

        Returns who began another epoch.
        """
        there, needed = left[rows], self._seconds_of_samples(jobs)
        enough = needed <= there * (1.0 + _ROUNDING)
        left[rows] = limited = np.where(enough, np.minimum(needed, there), there)
        epoch, target, rate = self._ledger.epoch, self._targets(jobs), self.rate[jobs]
        reached = done[rows] + rate * left[rows]
        within = reached < (target if self._whole_seconds else target * (1.0 - _ROUNDING))
        inside, ends = rows[within], rows[~within]
        done[inside], clock[inside], left[inside] = reached[within], clock[inside] + left[inside], 0.0
        passed = np.maximum(target[~within] - done[ends], 0.0) / rate[~within]
        passed = np.minimum(np.rint(passed) if self._whole_seconds else passed, left[ends])
        done[ends], clock[ends], left[ends] = target[~within], clock[ends] + passed, left[ends] - passed
        crossed = jobs[~within]
        last = np.array([len(self._trainings[job].epoch_ends) - 1 for job in crossed.tolist()], dtype=np.int64)
        over = epoch[crossed] >= last
        finish[ends[over]], left[ends[over]] = clock[ends[over]], 0.0
        epoch[crossed[~over]] += 1
        spent = limited - left[rows]
        steps = spent / self._step_seconds[jobs]
        self._samples_left[jobs] -= (np.rint(steps) if self._whole_seconds else steps) * self._batch[jobs]
        through = enough & (left[rows] <= 0)
        finish[rows[through]] = np.minimum(finish[rows[through]], clock[rows[through]])
        going_on = enough & ~through
        left[rows[going_on]] = (there - spent)[going_on]
        return crossed[~over]

    def _choose_batch_sizes(self, jobs: Ints) -> None:
        """Jobs choose their batch sizes by what they know now."""
        self._news[jobs] = False
        if not len(jobs):
            return
        places = [self._place[job] for job in jobs.tolist()]
        pool = np.array([pool for pool, _ in places], dtype=np.int64)
        nodes = np.array([len(shape) for _, shape in places], dtype=np.int64)
        gpus = np.array([sum(shape) for _, shape in places], dtype=np.int64)
        atomic, self._steps[jobs] = self._ledger.batch_sizes(jobs, pool, nodes, gpus)
        names = self._ledger.pools
        most = [self._trainings[j].largest_atomic(names[p], s) for j, (p, s) in zip(jobs.tolist(), places, strict=True)]
        self._atomic[jobs] = np.minimum(atomic, most)

    def _look(self, jobs: Ints, *, learn: bool = False) -> None:
        """Work out what jobs do where they run, in their epoch and with their batch size, which they may `learn`."""
        ledger = self._ledger
        for job in jobs.tolist():
            atomic, steps, epoch = float(self._atomic[job]), float(self._steps[job]), int(ledger.epoch[job])
            key = self._place[job], atomic, steps, epoch
            if self._rate_is_of.get(job) == (*key, True):
                continue
            training = self._trainings[job]
            # jobs of one model do the same
            alike = training.name, *key
            if alike not in self._known:
                self._known[alike] = self._what_it_does(training, *key, float(self._slowdown[job]))
            (pool, shape), (rate, batch, seconds, step, sync, square, variance) = key[0], self._known[alike]
            self.rate[job], self._batch[job], self._step_seconds[job] = rate, batch, seconds
            if learn:
                news = ledger.observe(job, pool, len(shape), sum(shape), atomic, step, sync)
                self._news[job] |= ledger.observe_gradients(job, square, variance) or news
            self._rate_is_of[job] = (*key, learn)

    def _what_it_does(
        self, training: Training, place: tuple[int, Shape], atomic: float, steps: float, epoch: int, slowdown: float
    ) -> tuple[float, ...]:
        """Progress/s, samples and seconds of a step, what `Training.step_time` has, and statistics of gradients."""
        pool, shape = place
        kind = self._ledger.pools[pool]
        step, sync = training.step_time(kind, shape, atomic)
        batch = sum(shape) // training.replica(kind) * atomic * (steps + 1.0)
        seconds = (step + (step - sync) * steps) * slowdown
        rate = training.worth_in(batch, epoch) / seconds
        return rate, batch, seconds, step, sync, *training.statistics(batch, epoch)

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from `state`, of the same jobs."""
        super().restore(state)
        self._rate_is_of = {}
