"""The true course of jobs that change their batch size as they train: what a simulator does, round by round.

A policy knows jobs by their profile (`throughputs.training.profile_trace`), drawn before they ran. Their course decides
when a change really takes place, and what it does to steps and throughput. After every round:

    change = course.book(ran, steps_done)   # the batch sizes that change now
    steps_done[change.jobs] = change.steps_done
    course.observe(active, steps_done)      # the changes that are asked for

Source: P. Zheng et al., "Shockwave: Fair and Efficient Cluster Scheduling for Dynamic Adaptation in Machine Learning",
NSDI 2023, sec. 2 and public artifact.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from throughputs.arrays import Floats, Ints, Names, Numbers, Rowed, Sizes, Values
from throughputs.errors import expect
from throughputs.tables.table import ThroughputTable
from throughputs.training.ladders import Ladders
from throughputs.training.profiles import MOST_STEADY_EPOCHS, STEADY_EPOCHS
from throughputs.training.rules import AdaptationRules, default_rules, stated_batch_size

# A whole number of epochs, reached through products of fractions, counts as reached.
_EPOCH_TOLERANCE = 1e-9

_COLUMNS = ("batch_size", "iterations_per_epoch", "epochs", "total_steps", "initial_steps", "_initial_iterations")

_CHANGING = ("batch_size", "iterations_per_epoch", "total_steps", "_rung", "_asked")


@dataclass(frozen=True, eq=False)
class CourseChange(Rowed):
    """The n jobs that changed their batch size.

    Attributes
    ----------
    jobs : (n,) their positions.
    total_steps : (n,) steps of the whole job, counted in the new batch size.
    steps_done : (n,) those of them that are done.
    rates : (n, M) throughput with the new batch size on the M accelerator types of the course, steps/s.
    """

    jobs: Ints
    total_steps: Floats
    steps_done: Floats
    rates: Floats


class Course:
    """Batch sizes of N jobs while they train.

    Epochs are what stays: a job trains for as many as it had at the start, whatever its batch size.

    Parameters
    ----------
    job_type, scale_factor, mode, total_steps : (N,) of the jobs, as in a trace.
    table : throughputs; a job keeps a batch size if the next one has none.
    accelerators : M accelerator types, in the order in which rates are wanted.
    rules : when batch sizes change; `default_rules` when omitted.
    published : follow the public artifact. A change that is noticed after one round is made at the end of the next one
        that the job runs in, and progress is rounded up to whole epochs. Otherwise the batch size is that of the epoch
        the job is in at the end of a round, and progress keeps its fraction of the whole.
    past_the_end : whether that rounding may take a job to its end and beyond, as it did. Otherwise progress then keeps
        its fraction, and nothing but training ends a job.

    Attributes
    ----------
    batch_size : (N,) samples; 1 for jobs whose type does not tell.
    iterations_per_epoch : (N,) steps of an epoch with this batch size.
    epochs : (N,) epochs that a job trains for.
    total_steps, initial_steps : (N,) the same in steps of this batch size, and of the one at the start.
    adaptive : (N,) bool, the jobs that may change their batch size at all.

    Raises
    ------
    InputError
        Columns of different length, or a job type, scale factor or accelerator type that the table does not know.
    """

    def __init__(
        self,
        job_type: Names,
        scale_factor: Sizes,
        mode: Names,
        total_steps: Numbers,
        table: ThroughputTable,
        accelerators: Sequence[str],
        rules: AdaptationRules | None = None,
        *,
        published: bool = False,
        past_the_end: bool = False,
    ) -> None:
        n = len(job_type)
        for name, column in (("scale_factor", scale_factor), ("mode", mode), ("total_steps", total_steps)):
            expect(len(column) == n, "course", name, f"{len(column)} jobs", f"{n}, as job types")
        rules = default_rules() if rules is None else rules
        self.accelerators = tuple(accelerators)
        self.published = published
        self.past_the_end = past_the_end
        self._ladders, self._kind = Ladders.of_jobs(
            job_type, scale_factor, mode, table, self.accelerators, rules, "course"
        )
        self.total_steps = np.array(total_steps, dtype=float)
        self.batch_size, self.iterations_per_epoch, self.epochs = training_start(
            job_type, self.total_steps, self._ladders, self._kind
        )
        self.initial_steps = self.total_steps.copy()
        self._initial_iterations = self.iterations_per_epoch.copy()
        self._rung = np.zeros(n, dtype=np.int64)
        self._asked = np.zeros(n, dtype=np.int64)  # rungs to climb at the next completed round, or to climb down
        self.adaptive = np.append(self._ladders.top > 0, False)[self._kind]  # kind -1, the last: not known

    def __len__(self) -> int:
        return len(self._kind)

    def epochs_done(self, steps_done: Floats) -> Ints:
        """(N,) whole epochs behind each job, of `steps_done` (N,) steps of its present batch size."""
        if self.published:
            return np.floor(steps_done / self.iterations_per_epoch + _EPOCH_TOLERANCE).astype(np.int64)
        return self._position(np.arange(len(self)), steps_done)

    def book(self, ran: Ints, steps_done: Floats) -> CourseChange:
        """Make the changes that are due at the end of a round; called before `observe` of the same round.

        Parameters
        ----------
        ran : (n,) positions of the jobs that ran to the end of the round; those that are done are left alone.
        steps_done : (N,) steps done by all jobs, this round included.
        """
        jobs = ran[self.adaptive[ran]]
        jobs = jobs[steps_done[jobs] < self.total_steps[jobs]]
        if not len(jobs):
            return self._unchanged()
        if self.published:
            jobs = jobs[self._asked[jobs] != 0]
            rung = self._rung[jobs] + self._asked[jobs]
        else:
            rung = self._ladders.rung(self._kind[jobs], self._position(jobs, steps_done))
            changes = rung != self._rung[jobs]
            jobs, rung = jobs[changes], rung[changes]
        return self._change(jobs, rung, steps_done[jobs])

    def observe(self, active: Ints, steps_done: Floats) -> None:
        """Note which of the `active` jobs (positions) ask for a change, whether they ran in this round or not.

        Only where changes come late, as published: otherwise `book` sees by itself what is due.
        """
        if not self.published:
            return
        jobs = active[self.adaptive[active]]
        if not len(jobs):
            return
        kind, rung = self._kind[jobs], self._rung[jobs]
        epoch = np.ceil(steps_done[jobs] / self.iterations_per_epoch[jobs]).astype(np.int64)
        climbs = self._ladders.doublings(kind, epoch + 1) > rung
        critical = self._ladders.critical(kind, epoch)
        jumps = np.where(rung == 0, ~critical, -critical.astype(np.int64))
        self._asked[jobs] = np.where(self._ladders.doubles[kind], climbs, jumps)

    def append(self, later: Course) -> None:
        """Add the jobs of another course, of the same accelerator types and kind, at the end."""
        kind = np.where(later._kind >= 0, later._kind + len(self._ladders), -1)
        self._kind = np.concatenate([self._kind, kind])
        self._ladders = self._ladders.joined(later._ladders)
        for name in (*_COLUMNS, "adaptive", "_rung", "_asked"):
            setattr(self, name, np.concatenate([getattr(self, name), getattr(later, name)]))

    def state(self) -> dict[str, Values]:
        """What changes as the jobs train, for a checkpoint."""
        return {name: getattr(self, name) for name in _CHANGING}

    def restore(self, state: dict[str, Values]) -> None:
        """Go on from `state`, of a course of the same jobs."""
        for name in _CHANGING:
            setattr(self, name, state[name])

    def _position(self, jobs: Ints, steps_done: Floats) -> Ints:
        """(n,) the epoch that jobs are in: their fraction of the whole in epochs of the initial batch size."""
        fraction = steps_done[jobs] / self.total_steps[jobs]
        epochs: Floats = fraction * (self.initial_steps[jobs] / self._initial_iterations[jobs])
        return np.floor(epochs + _EPOCH_TOLERANCE).astype(np.int64)

    def _unchanged(self) -> CourseChange:
        return CourseChange(
            np.zeros(0, dtype=np.int64), np.zeros(0), np.zeros(0), np.zeros((0, len(self.accelerators)))
        )

    def _change(self, jobs: Ints, rung: Ints, steps: Floats) -> CourseChange:
        if not len(jobs):  # in most rounds
            return self._unchanged()
        kind = self._kind[jobs]
        size = self._ladders.batch_size[kind, rung]
        iterations = np.ceil(self._ladders.samples_per_epoch[kind] / size)
        if self.published:
            total = np.ceil(self.total_steps[jobs] * self.batch_size[jobs] / size)
            whole = self.epochs[jobs] * iterations
            total = np.where(np.ceil(total / iterations) == self.epochs[jobs], total, whole)
            done = np.ceil(steps / self.iterations_per_epoch[jobs]) * iterations
            if not self.past_the_end:
                done = np.where(done < total, done, steps * total / self.total_steps[jobs])
        else:
            # from the start each time, so that changes back and forth leave nothing behind
            initial = self.initial_steps[jobs]
            total = np.where(rung == 0, initial, np.ceil(initial * iterations / self._initial_iterations[jobs]))
            # what is left may be tiny; it must not be rounded away, for only a round can finish a job
            done = np.minimum(steps * total / self.total_steps[jobs], np.nextafter(total, 0.0))
        self._rung[jobs], self._asked[jobs] = rung, 0
        self.batch_size[jobs], self.iterations_per_epoch[jobs], self.total_steps[jobs] = size, iterations, total
        return CourseChange(jobs, total, done, self._ladders.rates[kind, rung])


def training_start(
    job_type: Names,
    total_steps: Floats,
    ladders: Ladders,
    kind: Ints,
) -> tuple[Ints, Floats, Ints]:
    """(N,) batch size, steps of an epoch, and epochs that N jobs begin with.

    Jobs that never change their batch size have at most `MOST_STEADY_EPOCHS`, longer ones instead.
    """
    known = kind >= 0
    batch_size = np.array([stated_batch_size(name) or 1 for name in job_type], dtype=np.int64)
    epochs = np.minimum(np.ceil(total_steps), STEADY_EPOCHS)
    iterations = total_steps / epochs
    batch_size[known] = ladders.batch_size[kind[known], 0]
    iterations[known] = np.ceil(ladders.samples_per_epoch[kind[known]] / batch_size[known])
    epochs[known] = np.ceil(total_steps[known] / iterations[known])
    long = np.flatnonzero(known & (epochs > MOST_STEADY_EPOCHS))
    long = long[ladders.top[kind[long]] == 0]
    epochs[long] = MOST_STEADY_EPOCHS
    iterations[long] = total_steps[long] / MOST_STEADY_EPOCHS
    return batch_size, iterations, epochs.astype(np.int64)
