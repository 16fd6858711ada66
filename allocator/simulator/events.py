"""Time from event to event: jobs run at their true rates until something happens.

Two kinds of decision last until the next event: plans of policies that decide at events, in which every job runs as
one thing, and the shares of the ideal world, in which job i goes at sum_c x_c T_ic steps/s over all its rows. What the
round mechanism costs is the difference between the ideal world and rounds (Gavel, OSDI'20, sec. 7.4: "ideal" beside
the mechanism). The published simulator's mode of this name differs: there, jobs complete only when another one arrives.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from allocator.protocol.assignment import NOBODY, Assignment, among_ids
from allocator.protocol.decision import Decision
from allocator.protocol.policy import Trigger
from allocator.results.observers import StretchOutcome
from allocator.simulator.leases import Leases
from allocator.simulator.rules.base import Stretch, hooks, seconds_between
from throughputs.arrays import Flags, Floats, Ints
from throughputs.numerics import quotient

if TYPE_CHECKING:
    from allocator.simulator.world import World

# Relative to a job's total steps: what rounding leaves of a job that completes together with another.
STEP_TOLERANCE = 1e-9


class EventExecution:
    """Lets time pass until the next event.

    Parameters
    ----------
    world : the world; its clock and its jobs are moved on.
    """

    def __init__(self, world: World) -> None:
        self.world = world
        self.leases = Leases(world.core)
        self._any = False
        self._table, self._truth = world.jobs, world.truth
        self._hooks = world.hooks
        # Rows as they went last, with their rates.
        self._known: tuple[Assignment, Floats] | None = None
        self._ends_said = any(
            rule.says_ends and hooks([rule], hook) for rule in world.running for hook in ("stop", "begin", "shape")
        )
        if self._ends_said:
            world.jobs.register("judged_time", np.nan)

    def rates_changed(self) -> None:
        """Look all rates up anew."""
        self._known = None

    def _horizon(self, decision: Decision) -> float:
        """When the core is to be asked again at the latest, seconds."""
        world = self.world
        return min(world.clock + decision.seconds, world.arrivals.next_time, world.core.next_price_change)

    def seen_at(self, time: float) -> float:
        """When the world sees what happens at `time` (seconds): at once, if no rule puts it off."""
        for seen_at in self._hooks.seen_at:
            time = seen_at(time)
        return time

    def wait(self, decision: Decision) -> None:
        """Nobody runs until the next event."""
        world = self.world
        self._follow(decision, self._table.rows(decision.assignment.jobs))
        until = min(self.seen_at(self._horizon(decision)), world.next_event)
        self._note_standstill(until, trouble=until == np.inf)
        if until < np.inf:
            world.clock = until

    def run(self, decision: Decision) -> None:
        """Run the rows of a decision until the first event."""
        if decision.shares is not None:
            if not self._measured(decision):
                self._run_shares(decision, decision.shares)
            return
        world, table, rows = self.world, self._table, decision.assignment
        at = table.rows(rows.jobs)
        self._follow(decision, at)
        if self._known is None or self._known[0] is not rows:
            self._known = rows, self._truth.rates_of(rows, table.colocation_group)
        rates = self._known[1]
        for changed in self._hooks.rates:
            rates = changed(decision, at, rates)
        stretch = Stretch(world.clock, decision, at, world.clock, rates)
        for begin in self._hooks.begin:
            begin(stretch)
        self._pass_time(stretch, stretch.rates, rows.jobs, stretch.rates)

    def _follow(self, decision: Decision, at: Ints) -> None:
        """Note who starts and who stops by a decision; `at` is where the jobs of its rows are."""
        self._any = True
        self.leases.follow(decision, self.world.clock, self._table)
        for follow in self._hooks.follow:
            follow(decision.assignment, at)
        if not self._hooks.stop or not len(decision.transition.stop):
            return
        stopped = decision.before.take(among_ids(decision.before.jobs, decision.transition.stop))
        stopped = stopped.take(among_ids(stopped.jobs, self.world.core.active))
        if len(stopped):
            at, rates = self._table.rows(stopped.jobs), self._truth.rates_of(stopped, self._table.colocation_group)
            for stop in self._hooks.stop:
                stop(stopped, at, rates)

    def _end(self, first: float, finish: Floats, jobs: Ints, horizon: float) -> float:
        """When the world looks next: the first of `jobs`, which are through at `finish` (n,), is, or the `horizon`."""
        if first <= horizon and any(at_once(first, finish, jobs) for at_once in self._hooks.seen_at_once):
            return first
        return self.seen_at(min(first, horizon))

    def _note_standstill(self, until: float, *, trouble: bool, starting: bool = False) -> None:
        """Nobody does a step up to `until` (seconds), planned or not; in `trouble` only another answer helps.

        Where jobs are still `starting` that began to before, they will run if they are let: that is no stall, however
        often the world looks meanwhile. A start counts when it begins, so that a policy that starts one job after the
        other and lets none of them run is stalled in the end.
        """
        world = self.world
        waits = starting or world.gpus_may_return
        if until <= world.clock or (world.arrivals.next_time == np.inf and not waits):
            world.note_stall()
        if trouble:
            world.core.tell(Trigger.TROUBLE)

    def _goes_on_starting(self, stretch: Stretch, running: Flags) -> bool:
        """Whether a row that will run has begun to start before, and does not train yet."""
        if stretch.starts is None or isinstance(stretch.begin, float):
            return False
        return bool((running & (stretch.begin > stretch.clock) & ~stretch.starts).any())

    def _pass_time(self, stretch: Stretch, rates: Floats, jobs: Ints, speed: Floats) -> None:
        """Let time pass until the first event.

        Parameters
        ----------
        stretch : says where the jobs are in the table, and when they begin to train.
        rates : (K,) steps/s of the rows of the decision, all the time.
        jobs : (n,) ids of the jobs that have a row.
        speed : (n,) steps/s of each of them.
        """
        world, table, clock = self.world, self._table, self.world.clock
        decision, at, begin, hooks = stretch.decision, stretch.at, stretch.begin, self._hooks
        total, done = table.total_steps.take(at), table.steps_done.take(at)
        stretch.done = done
        left, running = total - done, speed > 0
        n_running = int(np.count_nonzero(running))
        seconds = left / speed if n_running == len(speed) else quotient(left, speed, np.inf)
        stretch.finish = stretch.judged = begin + seconds
        for shape in hooks.shape:
            shape(stretch)
        finish = stretch.finish
        first = float(finish[finish.argmin()])
        if decision.interruptible:
            end = self._end(first, finish, jobs, self._horizon(decision))
            end = max(min([end, world.next_event, *[change(stretch) for change in hooks.next_change]]), clock)
        else:
            end = min(clock + decision.seconds, world.next_event)
        if end == np.inf:
            self._note_standstill(end, trouble=True)
            return
        steps, through = self._steps(stretch, speed, end, left), NOBODY
        if stretch.finish is not finish:
            finish = stretch.finish
            first = float(finish[finish.argmin()])
        if first <= end:
            through = (finish <= end).nonzero()[0]
            steps[through] = left[through]
        if steps[steps.argmax()] > 0:
            world.note_progress()
        else:
            self._note_standstill(end, trouble=not n_running, starting=self._goes_on_starting(stretch, running))
        if not self._ends_said:
            through = (running & (left - steps <= STEP_TOLERANCE * total)).nonzero()[0]
            if len(through):
                steps[through] = left[through]
        elif stretch.trained is not None:
            early = running & (finish > end) & (steps >= left)
            finish = np.where(early, stretch.trained, finish)
            through = (early | (finish <= end)).nonzero()[0]
            steps[through] = left[through]
        table.steps_done[at] = done + steps
        for did in hooks.did if decision.shares is None else ():
            did(decision, at, steps, seconds_between(begin, np.minimum(finish, end)))
        if not decision.interruptible:
            world.core.record(decision, np.full(len(jobs), end - clock))
        elif decision.shares is None and world.core.keeps_service:
            until = np.minimum(finish, end) if first <= end else end
            served = begin if stretch.served is None else stretch.served
            world.core.record_service(decision.assignment, at, seconds_between(served, until))
        if decision.shares is not None:
            self._tell_shares(decision, decision.shares, rates, jobs, steps, speed, end)
        active = len(world.core.active)
        if len(through):
            self.leases.end(jobs[through], end, table)
            if self._ends_said:
                table.columns["judged_time"][at[through]] = stretch.judged[through]
            world.complete(jobs[through], np.minimum(finish[through], end), None)
        if decision.shares is None:
            running_now = len(jobs), decision.assignment.busy_gpus
            world.tell_stretch(self.leases.stretch(world.round, clock, end, active, running_now))
        world.round += 1
        world.clock = end
        world.watch_limits(active - n_running)

    def _steps(self, stretch: Stretch, speed: Floats, end: float, left: Floats) -> Floats:
        """(n,) steps that jobs at `speed` (n,) do up to `end` (seconds), of so many `left` (n,)."""
        for train in self._hooks.train:
            steps: Floats | None = train(stretch, end)
            if steps is not None:
                return steps
        until = stretch.until
        until = min(until, end) if isinstance(until, float) else np.minimum(until, end)
        return np.asarray(np.minimum(speed * seconds_between(stretch.begin, until), left))

    def _measured(self, decision: Decision) -> bool:
        """Learn what pairs that have a share do together; whether the policy wants to decide anew at once."""
        rows = decision.assignment
        first = np.flatnonzero(rows.firsts & (rows.partner >= 0))
        if not len(first):
            return False
        return self.world.core.measured_together(rows.jobs[first], rows.partner[first], rows.pool[first])

    def _run_shares(self, decision: Decision, shares: Floats) -> None:
        """Every active job goes at the sum of its rows."""
        rows, active = decision.assignment, self.world.core.active
        at = self._table.rows(active)
        rates = self._truth.rates_of(rows, self._table.colocation_group)
        for changed in self._hooks.rates:
            rates = changed(decision, self._table.rows(rows.jobs), rates)
        speed: Floats = np.bincount(active.searchsorted(rows.jobs), rates * shares, len(active)).astype(np.float64)
        self._pass_time(Stretch(self.world.clock, decision, at, self.world.clock, rates), rates, active, speed)

    def _tell_shares(
        self,
        decision: Decision,
        shares: Floats,
        rates: Floats,
        jobs: Ints,
        steps: Floats,
        speed: Floats,
        end: float,
    ) -> None:
        """One row per job and type with a share, two per pair; the steps of a job are split as its throughput is."""
        world, rows = self.world, decision.assignment
        at = jobs.searchsorted(rows.jobs)
        part = quotient(rates * shares, speed[at], 0.0)
        finish, active = np.full(len(rows), end), len(world.core.active)
        world.tell_stretch(
            StretchOutcome(world.round, world.clock, end, rows, (), finish, steps[at] * part, active, shares)
        )

    def leave(self, jobs: Ints) -> None:
        """Jobs are gone; so are their leases, even when nobody runs next."""
        self.leases.end(jobs, self.world.clock, self._table)

    def close(self) -> None:
        """The run is over: leases that are still open end with it."""
        world = self.world
        # jobs that ran already have leases in runs by rounds, too
        if self._any and self.leases.end_all(world.clock, self._table):
            world.tell_stretch(
                self.leases.stretch(world.round, world.clock, world.clock, len(world.core.active), (0, 0))
            )
