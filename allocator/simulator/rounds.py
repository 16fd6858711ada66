"""Time in whole rounds.

A job runs at its true rate and completes inside a round; its GPUs are free for others at the next round. Two jobs that
share GPUs go at their co-located rates for the whole round, even when one of them completes before its end.

Many equal rounds are one step. Where nothing can change, every round adds the same to every sum that the world keeps:
to the clock, to the steps of each job, to the time that it received. In floating point that holds exactly as long as no
sum passes a power of two: between two of them every addition of the same number is rounded in the same way. So two
rounds are run to see what they add, and then as many at once as stay below the next power of two of every sum; the
result is that of running them one by one, to the last digit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from allocator.protocol.decision import Decision
from allocator.protocol.policy import Trigger
from allocator.results.observers import StretchOutcome
from allocator.simulator.rules.base import Round, seconds_between
from throughputs.arrays import Floats, Ints

if TYPE_CHECKING:
    from allocator.simulator.world import World

# Relative to the steps of one round: fractional steps add up to the total only nearly, and a round must not be spent on
# the residue.
_STEP_TOLERANCE = 1e-9

LEAST_ROUNDS = 4096
"""Fewer equal rounds are run one by one, and are told apart in the tables."""


def equal_increments(first: Sequence[Floats], second: Sequence[Floats], third: Sequence[Floats]) -> list[Floats]:
    """What a round added to every sum, by the sums before, between and after two rounds.

    Zeros where the two did not add the same, or where a sum passed a power of two in them.
    """
    added = [b - a for a, b in zip(second, third, strict=True)]
    for a, b, c, step in zip(first, second, third, added, strict=True):
        if not (np.array_equal(b - a, step) and np.array_equal(np.frexp(a)[1], np.frexp(c)[1])):
            return [np.zeros_like(values) for values in added]
    return added


def rounds_ahead(sums: Sequence[Floats], added: Sequence[Floats]) -> int:
    """How many more rounds can be taken at once before a sum passes a power of two.

    Parameters
    ----------
    sums : as they are now.
    added : what each of the last two rounds added to them.
    """
    least = np.inf
    for values, step in zip(sums, added, strict=True):
        moving = step != 0
        if not moving.any():
            continue
        x, d = values[moving], step[moving]
        if not (np.isfinite(x).all() and (d > 0).all() and (x > 0).all()):
            return 0
        bound = np.ldexp(1.0, np.frexp(x)[1])
        least = min(least, float(np.floor((bound - x) / d).min()) - 1)
    return int(max(least, 0)) if np.isfinite(least) else 0


def advance(sums: Sequence[Floats], added: Sequence[Floats], rounds: int) -> None:
    """Add what so many rounds add, in place."""
    for values, step in zip(sums, added, strict=True):
        values += rounds * step


# So many equal rounds in a row are run before it is looked whether there are many more.
_TRY_AFTER = 16

# Rounds that are run to see what one adds: a first one, in which a sum may have passed a power of two, and two that are
# compared.
_PROBED = 3


@dataclass(frozen=True, eq=False)
class _Rows:
    """What is known of the rows of a decision for as long as it is repeated.

    Attributes
    ----------
    jobs : the array of the decision, by which it is recognised.
    rates, full : (K,) steps/s, and steps of a whole round.
    pairs : positions of the first of each two rows that share GPUs; None under policies that do not pack.
    moving : whether every row does a step in a round, as long as it has one left.
    """

    jobs: Ints
    rates: Floats
    full: Floats
    pairs: Ints | None
    moving: bool


class RoundExecution:
    """Runs the rounds that the core decides on.

    Parameters
    ----------
    world : the world; its clock and its jobs are moved on.
    """

    def __init__(self, world: World) -> None:
        self.world = world
        self.seconds = world.core.settings.round_seconds
        self.last_end = 0.0
        self._table, self._truth = world.jobs, world.truth
        rules, self._hooks = world.running, world.hooks
        self._whole_steps = any(rule.whole_steps for rule in rules)
        # A job is through when its steps times this reach what it had left.
        self._nearly = 1.0 if self._whole_steps else 1.0 + _STEP_TOLERANCE
        self._full_length = not any(rule.ends_round for rule in rules)
        self._lets_idle = any(rule.lets_idle for rule in rules)
        world.jobs.register("steps_trained", 0.0)
        self._packs = world.jobs.colocation is not None
        self._rows: _Rows | None = None
        self._repeated = 0

    def rates_changed(self) -> None:
        """Look all rates up anew."""
        self._rows = None

    def _look_up(self, decision: Decision) -> _Rows:
        """Rates and full steps of the rows of a decision."""
        rows = decision.assignment
        rates = self._truth.rates_of(rows, self._table.colocation_group)
        for changed in self._hooks.rates:
            rates = changed(decision, self._table.rows(rows.jobs), rates)
        full = np.floor(rates * self.seconds) if self._whole_steps else rates * self.seconds
        # Who stands still, on spread servers or beside a job that was wrongly believed to fit, does no step; what
        # that is divided by does not matter.
        rates = np.where(rates > 0, rates, 1.0)
        pairs = np.flatnonzero(rows.partner >= 0)[::2] if self._packs else None
        moving = not self._lets_idle and bool(full.min() > 0)
        self._rows = _Rows(rows.jobs, rates, full, pairs, moving)
        return self._rows

    def run(self, decision: Decision) -> None:
        """One round; of equal ones, every now and then as many as can be taken at once."""
        rows = self._rows
        # A round that repeats the one before comes with the same arrays.
        if rows is None or rows.jobs is not decision.jobs:
            rows, self._repeated = self._look_up(decision), 0
        if self._run_one(decision, rows):
            self._repeated = 0
            return
        self._repeated += 1
        if self._repeated >= _TRY_AFTER:
            self._take_many(decision, rows)

    def _rounds_to_event(self, rows: _Rows) -> float:
        """Rounds before anything can happen: an arrival, the end of a job, of the run, of a tolerated overtime."""
        world, at = self.world, self._table.rows(rows.jobs)
        wake_up = min(world.arrivals.next_time, world.core.next_price_change, world.next_event)
        left = (self._table.total_steps[at] - self._table.steps_done[at]) / rows.full
        bounds: list[float] = [left_of(rows.jobs, self.seconds) for left_of in self._hooks.rounds_left]
        return min((wake_up - world.clock) / self.seconds, float(left.min()), *bounds) - 2

    def _take_many(self, decision: Decision, rows: _Rows) -> None:
        """Take as many equal rounds at once as there are before something happens."""
        self._repeated = 0
        world, core = self.world, self.world.core
        if np.isfinite(core.period_seconds) or not (rows.full > 0).all() or not core.steady_rounds():
            return
        while (ahead := self._rounds_to_event(rows)) >= LEAST_ROUNDS:
            added = self._increments_of_a_round(decision, rows)
            if added is None:
                return
            sums = self._sums()
            rounds = min(rounds_ahead(sums, added), int(ahead) - _PROBED)
            if rounds < 1:
                continue
            start, steps = world.clock, added[1][self._table.rows(rows.jobs)] * rounds
            advance(sums, added, rounds)
            for did in self._hooks.did:
                did(decision, self._table.rows(rows.jobs), steps, rounds * (rows.full / rows.rates))
            world.clock, self.last_end = sums[0].tolist()
            # Who is done before the others in every round is put down as busy at a stretch, and then no more.
            finish = np.minimum(start + rounds * (rows.full / rows.rates), world.clock)
            outcome = StretchOutcome(
                world.round, start, world.clock, decision.assignment, decision.gpus, finish, steps, len(core.active),
                rounds=rounds,
            )  # fmt: skip
            world.tell_stretch(outcome)
            world.round += rounds
            core.record_rounds(rounds)

    def _increments_of_a_round(self, decision: Decision, rows: _Rows) -> list[Floats] | None:
        """What each round adds to every sum; zeros if the last two did not add the same, None if something happened."""
        seen = [[values.copy() for values in self._sums()]]
        for _ in range(_PROBED):
            again = self.world.core.next(self.world.clock)
            if again.assignment is not decision.assignment or self._run_one(again, rows):
                return None
            seen.append([values.copy() for values in self._sums()])
        return equal_increments(*seen[-3:])

    def _sums(self) -> list[Floats]:
        """Everything to which rounds add; all but the first are changed in place."""
        times = np.array([self.world.clock, self.last_end])
        kept = [values for sums in self._hooks.sums for values in sums()]
        return [times, self._table.steps_done, *self.world.core.sums(), *kept]

    def _run_one(self, decision: Decision, rows: _Rows) -> bool:
        """Run a round; returns whether something happened in it that changes who may run."""
        world, table, core = self.world, self._table, self.world.core
        jobs, clock = rows.jobs, world.clock
        at = table.rows(jobs)
        left = table.total_steps.take(at) - table.steps_done.take(at)
        np.maximum(left, 0.0, out=left)
        steps = np.minimum(rows.full, left)
        finish = clock + steps / rows.rates
        r = Round(
            world.round,
            clock,
            self.seconds,
            decision,
            self._whole_steps,
            jobs,
            rows.pairs,
            rows.rates,
            left,
            steps,
            finish,
            clock,
            self.last_end,
            clock,
            clock,
        )
        if self._full_length:
            r.end = clock + self.seconds
            np.minimum(r.finish, r.end, out=r.finish)
        for in_round in self._hooks.in_round:
            in_round(r)
        active = len(core.active)
        core.record(decision, r.finish - r.counted_from)
        if rows.pairs is not None and table.believed is not None:
            first = rows.pairs
            core.measured_together(jobs[first], jobs[first + 1], decision.assignment.pool[first])
        table.steps_done[at] += r.steps
        for did in self._hooks.did:
            did(decision, at, r.steps, seconds_between(r.begin, r.finish))
        r.done = r.steps * self._nearly >= left
        for settle in self._hooks.settle:
            settle(r)
        through = bool(r.done.any())
        if through:
            cut_off = None if r.cut_off is None else r.cut_off[r.done]
            world.complete(jobs[r.done], r.finish[r.done], cut_off)
        idle = not rows.moving and self._note_idle(r)
        if rows.moving and r.steps.any():
            world.note_progress()
        elif rows.moving:
            world.note_stall("starts take all of the round (round_seconds)")
        for after in self._hooks.after:
            after(r)
        outcome = StretchOutcome(
            world.round, clock, r.end, decision.assignment, decision.gpus, r.finish, r.steps, active
        )
        world.tell_stretch(outcome)
        world.round += 1
        world.clock = self.last_end = r.end
        world.watch_limits(active - len(jobs))
        return through or idle

    def _note_idle(self, r: Round) -> bool:
        """Tell who did no step; returns whether anybody did none."""
        r.idle = r.steps <= 0
        if not r.idle.any():
            self.world.note_progress()
            return False
        if r.idle.all():
            self.world.note_stall()
        else:
            self.world.note_progress()
        self.world.core.tell(Trigger.TROUBLE)
        return True
