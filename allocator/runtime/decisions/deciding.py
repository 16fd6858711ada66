"""When the world is asked, with what news, and what of its answers holds at a moment.

Plans of policies that decide at events hold until something happens. Shares become rounds: the next round is decided
before it begins, so that whoever keeps its GPUs runs on without a break, and as late as decisions have time to be made:
what is known then of progress and arrivals is fresher. That is twice what the slowest of the last ones took before the
end of the round, but not before half time, at which the first one begins. A round whose successor is late lasts until
it is there. A job whose GPUs are free before its round begins may start early.
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter, deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from math import inf
from pathlib import Path

from allocator.protocol.policy import Need
from allocator.runtime.adapters.base import Placed
from allocator.runtime.decisions.hardware import Hardware, free_for, held, owners
from allocator.runtime.decisions.knowledge import Prospects, Ways
from allocator.runtime.decisions.world import Memory, News, Verdict, World
from allocator.runtime.records.book import QUEUED, RUNNING, Book, Job
from allocator.runtime.settings import ServiceSettings
from throughputs import InputError

_MARGIN = 2.0
"""Times the slowest of so many last decisions that the next one is given."""

_LAST_DECISIONS = 20
"""Most rounds ask no policy and are decided at once; the one that does must not be late for that."""

_AFTER_TROUBLE = 5.0
"""Seconds after which a policy that failed is asked again."""

_TRIALS_OF_MEMORY = 2
"""Decisions that may fail in a row before what the policy remembers is taken to be the cause."""


class Deciding:
    """The verdict that holds, the one that is coming, and the news for the next.

    Parameters
    ----------
    make_world : for the first decision, and again after one that failed: nobody knows what that has left undone.
    hardware, settings : of the service. memory : file of what the policy remembers.
    clock : of the service, seconds, by which decisions are found to be slow.

    Attributes
    ----------
    trouble : why the last decision failed, "" if it did not.
    prices : of one more GPU of each type, by the last decision. last_seconds : that it took.
    prospects : of jobs on the nodes that there are now. world : that is asked.
    """

    def __init__(
        self,
        make_world: Callable[[Hardware], World],
        hardware: Hardware,
        settings: ServiceSettings,
        memory: Path,
        clock: Callable[[], float],
    ) -> None:
        self._make_world, self._settings, self._clock = make_world, settings, clock
        self._hardware = hardware
        self._begin_world()
        self.policy = self.world.policy
        self.trouble = ""
        self.prices: Mapping[str, float] = {}
        self.last_seconds = 0.0
        self._failures = 0
        self._now: Verdict | None = None
        self._coming: Verdict | None = None
        self._task: asyncio.Future[Verdict | Exception] | None = None
        self._memory = Memory(memory, clock)
        self._took: deque[float] = deque(maxlen=_LAST_DECISIONS)
        self._retry_at = -inf
        # jobs that are held back, as their user has asked for too many GPUs
        self.over_limit: set[str] = set()
        # jobs of the world as it was told of them
        self._known: dict[str, Job] = {}
        self._returning: set[str] = set()
        self._clear_news()

    def _begin_world(self) -> None:
        self.world = self._make_world(self._hardware)
        self._look_ahead()

    def _look_ahead(self) -> None:
        elastic = Need.CONFIGURATIONS in self.world.policy.needs
        self.prospects = Prospects(self.world.knowledge, self._hardware, elastic)

    def _clear_news(self) -> None:
        self._measured: dict[str, Ways] = {}
        self._ended: dict[str, tuple[Job, float]] = {}
        self._news = self._failed = False

    def check(self) -> None:
        """Raise InputError where the policy cannot decide about this cluster, with all of its nodes in use."""
        self._make_world(self._hardware.in_full).check()

    # -- news ---------------------------------------------------------------------------------------------------------

    def take_up(self, book: Book) -> None:
        """Jobs that were there before the service was, the GPUs that they hold, and what their policy remembers."""
        self._known = {uuid: replace(job) for uuid, job in self._let_in(book).items()}
        jobs = book.jobs | self._known
        # a memory by which no decision can be made is none
        state = self._memory.recall(self.world, jobs) if self._failures < _TRIALS_OF_MEMORY else None
        if state is not None:
            try:
                self.world.resume(state, jobs, {uuid: job.steps for uuid, job in self._known.items()})
            except Exception:
                self._begin_world()

    def _renew(self, book: Book) -> None:
        """Another world, as after a restart; the plan of the one before holds until it decides."""
        self._begin_world()
        self._coming = None
        self._clear_news()
        self.take_up(book)

    def _decides(self, job: Job) -> bool:
        """Whether a job is the policy's: it waits for none, fits the nodes in use, ends on no drained one."""
        return not job.blocked and self.fits(job) and not self._stays(job)

    def _too_wide(self, job: Job) -> bool:
        """Whether a job that waits asks for more than a user may, by a limit that is lower than when it came."""
        return 0 < self._settings.user_gpus < job.gpus and job.state == QUEUED

    def _let_in(self, book: Book) -> dict[str, Job]:
        """By UUID the jobs that the policy decides about, as many of each user as may ask for GPUs at a time.

        Who holds GPUs comes first, then who was submitted first; behind one that has to wait all of its user's wait.
        """
        there = {uuid: job for uuid, job in book.active.items() if self._decides(job)}
        self.over_limit = set()
        most, asked = self._settings.user_gpus, Counter[str]()
        if most:
            for uuid, job in sorted(there.items(), key=lambda one: (one[0] not in book.holding, one[1].id)):
                asked[job.user] += job.gpus
                if asked[job.user] > most and uuid not in book.holding:
                    self.over_limit.add(uuid)
        return {uuid: job for uuid, job in there.items() if uuid not in self.over_limit}

    def fits(self, job: Job) -> bool:
        """Whether a job has room on the nodes in use, or runs to its end where it is."""
        return (self.prospects.fits(job) and not self._too_wide(job)) or self._stays(job)

    @property
    def all_fit(self) -> bool:
        """Whether it is known without a look at each that all jobs fit."""
        return self.prospects.all_fit and not self._settings.user_gpus

    def _stays(self, job: Job) -> bool:
        return job.state == RUNNING and self._hardware.stays(job.placed)

    def arrived(self, job: Job) -> None:
        """A job was submitted, or waits for no other any more."""
        self._news |= self._decides(job)

    def left(self, job: Job) -> None:
        """A job is through."""
        self._news |= job.uuid in self._known or job.uuid in self.over_limit

    def ended(self, job: Job, clock: float, *, failed: bool) -> None:
        """A start of a job has ended, whatever becomes of the job."""
        self._ended[job.uuid] = job, clock
        self._failed |= failed
        # of one that ran to its end on a drained node the world does not know
        self._news |= failed or (job.state == QUEUED and job.uuid not in self._known and self._decides(job))

    def started(self, job: Job) -> None:
        """A job is started, perhaps after it made room for its own move: then its round goes on where it had stopped.

        One that has saved nothing begins anew: the round counts for nothing, so that it is not moved again and again.
        """
        if job.saved_steps > 0:
            self._ended.pop(job.uuid, None)

    def resized(self) -> None:
        """A job asked for other GPUs, or another batch size: for the world it is another job from now on."""
        self._news = True

    def measured(self, job: Job) -> None:
        """The speed of a job was measured."""
        self._measured[job.uuid] = dict(job.measured)

    def capacity_changed(self, hardware: Hardware, book: Book) -> None:
        """Nodes came or went."""
        stayed = {uuid: job.placed for uuid, job in book.holding.items() if self._stays(job)}
        self._hardware = hardware
        self._look_ahead()
        if hardware.cluster.accelerators != self.world.cluster.accelerators:
            self._failures = max(self._failures, 1)
        # until the world decides about those whose node is back they stay
        self._returning |= {uuid for uuid, placed in stayed.items() if hardware.numbers(placed)}
        for job in book.active.values():
            self.prospects.fits(job)

    @property
    def _changed_hardware(self) -> bool:
        """Whether the world has not heard of the nodes that there are now."""
        return self._hardware is not self.world.hardware

    def why_unfit(self, job: Job) -> str:
        """Why a job cannot run on any nodes there are, "" if it can."""
        if self._too_wide(job) and self.prospects.fits(job):
            limit = self._settings.user_gpus
            return f"it asks for {job.gpus} GPUs, and a user may ask for {limit}: cancel it, or raise --user-gpus"
        return "" if self.fits(job) else self.prospects.why_unfit(job)

    def passed_over(self, job: Job) -> bool:
        """Whether the policy knows a job, and gives it no GPUs now."""
        known = self._now is not None and job.uuid in self._known
        return known and not self.trouble and job.uuid not in self.wanted()

    def why_waiting(self, job: Job, book: Book) -> str:
        """Why a job that fits does not run."""
        if self.trouble:
            return f"no decision: {self.trouble}"
        if job.uuid in self.over_limit:
            most = self._settings.user_gpus
            return f"jobs of {job.user or 'one user'} may ask for {most} GPU{'s' * (most > 1)} at a time"
        target = self.wanted().get(job.uuid)
        if target is None:
            return f"not its turn under {self.policy.name}" if self.passed_over(job) else "waits for the next decision"
        there = owners(held(book.holding), target)
        if there:
            ids = ", ".join(map(str, sorted(book.jobs[uuid].id for uuid in there)[:5]))
            return f"starts on {target.pool} when job {ids} has made room"
        return f"starts on {target.pool} shortly"

    def believed_rate(self, job: Job) -> float:
        """Steps/s of a job where it runs."""
        return self.world.knowledge.of(job).get(job.placed.way, 0.0)

    @property
    def round(self) -> Verdict | None:
        """The round that holds; None where decisions are taken when something happens."""
        return None if self._now is None or self._now.interruptible else self._now

    def round_left(self, now: float) -> float | None:
        """Seconds to the end of the round, None where there is none."""
        return None if self.round is None else max(self.round.end - now, 0.0)

    # -- decisions ----------------------------------------------------------------------------------------------------

    def due(self, now: float, book: Book) -> bool:
        """Whether the world is to be asked now."""
        if self._task is not None or now < self._retry_at:
            return False
        active, plan = book.active, self._now
        if self._changed_hardware or plan is None:
            return bool(active) or bool(self._known)
        if plan.interruptible:
            return self._news or now >= plan.end
        if not active:
            return False
        if self._coming is not None:
            shares = self.policy.answers == "shares"
            return self._settings.early_dispatch and shares and self._news and self._idles(book)
        if not book.holding and not plan.wanted.keys() & active.keys():
            return self._news or now >= plan.end
        early = self._settings.early_dispatch and self._news and self._idles(book)
        return early or now >= plan.end - self._lead(plan.seconds)

    def _lead(self, round_seconds: float) -> float:
        """Seconds before the end of a round at which the next one is decided; that it is time is seen at a look."""
        known = _MARGIN * max(self._took) + self._settings.poll_seconds if self._took else inf
        return min(known, round_seconds / 2)

    def _idles(self, book: Book) -> bool:
        """Whether GPUs idle that a waiting job could use which has none in sight, or only those of somebody else."""
        holders = held(book.holding)
        targets = {
            uuid: target
            for uuid, target in self.wanted().items()
            if uuid in book.active and (uuid in book.holding or free_for(uuid, target, holders))
        }
        waiting = [job.gpus for job in book.active.values() if job.state == QUEUED and job.uuid not in targets]
        taken = set(holders).union(*(target.gpus for target in targets.values()))
        free = Counter(self._hardware.cluster.gpus)
        for node in self._hardware.nodes:
            if waiting and self._hardware.usable(node):
                free[node.accelerator] -= sum((node.name, at) in taken for at in range(node.gpus))
        return min(waiting, default=inf) <= max(free.values(), default=0)

    def begin(self, now: float, book: Book, expected: Callable[[Job, float], float], done: Callable[[], None]) -> None:
        """Ask the world, in a thread.

        Parameters
        ----------
        expected : steps of a job that holds GPUs in so many seconds. done : called when the world has answered.
        """
        if self._failures:
            try:
                self._renew(book)
            except Exception as error:
                self._fail(error, now)
                return
        plan, moved, clock = self._now, self._changed_hardware, now
        if self.round is not None and (book.holding or self._coming is not None):
            # it holds from the end of this one on, unless GPUs came that nobody is on, or went
            clock = now if moved and not self._returning else max(self.round.end, now)
        before = self._known
        self._known = {
            uuid: before[uuid] if uuid in before and _alike(before[uuid], job) else replace(job)
            for uuid, job in self._let_in(book).items()
        }
        news = News(clock, self._known, measured=self._measured, trouble=self._failed)
        news.steps = {uuid: job.steps for uuid, (job, _) in self._ended.items()}
        news.steps |= {uuid: expected(job, clock - now) for uuid, job in book.holding.items()}
        if plan is not None:
            # what a decision cost those that it has started
            news.lost_seconds = {uuid: job.start_cost * (job.since >= plan.clock) for uuid, job in book.holding.items()}
            if self._coming is None:
                ends = {uuid: min(at, clock) for uuid, (_, at) in self._ended.items()}
                news.seconds = {uuid: ends.get(uuid, clock) - plan.clock for uuid in plan.wanted}
        if self._coming is not None or moved or self.world.fresh:
            news.holding = {uuid: job.placed for uuid, job in book.holding.items()}
        self._clear_news()
        began = self._clock()
        self._task = _in_thread(partial(self._ask, news, self._hardware))

        def finished(_: object) -> None:
            self.last_seconds = round(self._clock() - began, 6)
            self._took.append(self.last_seconds)
            done()

        self._task.add_done_callback(finished)

    def _ask(self, news: News, hardware: Hardware) -> Verdict:
        if hardware is not self.world.hardware:
            self.world = self.world.on(hardware)
        verdict = self.world.decide(news)
        self._memory.write(self.world)
        return verdict

    def ready(self, now: float) -> Verdict | None:
        """A verdict that has come since the last call."""
        if self._task is None or not self._task.done():
            return None
        verdict, self._task = self._task.result(), None
        if isinstance(verdict, Exception):
            self._fail(verdict, now)
            return None
        self.trouble, self._failures = "", 0
        if verdict.told["asked"]:
            self.prices = verdict.told["prices"]
        self._coming = verdict
        if verdict.interruptible or verdict.clock <= now:
            self._take_over()
        return verdict

    def _fail(self, error: Exception, now: float) -> None:
        """There is no decision: another world is asked in a while."""
        told = str(error) if isinstance(error, InputError) else f"policy {self.policy.name}: {error!r}"
        self.trouble, self._retry_at = told, now + _AFTER_TROUBLE
        self._failures += 1
        self._news = True

    def _take_over(self) -> None:
        self._now, self._coming = self._coming, None
        self._returning = {uuid for uuid in self._returning if uuid not in self.world.ids}

    # -- what holds ---------------------------------------------------------------------------------------------------

    def wanted(self) -> dict[str, Placed]:
        """Targets of the verdict that holds and, behind them, of the one that is coming."""
        wanted = dict(self._now.wanted) if self._now is not None else {}
        if self._coming is not None and self._settings.early_dispatch:
            for uuid, target in self._coming.wanted.items():
                wanted.setdefault(uuid, target)
        return wanted

    def targets(self, now: float, book: Book) -> dict[str, Placed]:
        """Where jobs are wanted now.

        Before the first verdict everybody stays where it is. Nobody is wanted on nodes that cannot be used but those
        who run there to their end.
        """
        if self._coming is not None and now >= self._coming.clock:
            self._take_over()
        there = {uuid: job.placed for uuid, job in book.holding.items()}
        stays = {u: placed for u, placed in there.items() if u in self._returning or self._stays(book.holding[u])}
        now_wanted = there if self._now is None else self._now.wanted
        targets, holders = dict(stays), held(book.holding)
        for uuid, target in {**now_wanted, **self.wanted()}.items():
            usable = uuid in book.active and uuid not in stays and self._hardware.numbers(target) is not None
            # one of the round to come starts before that where it need not wait for anybody
            if usable and (uuid in now_wanted or free_for(uuid, target, holders)):
                targets[uuid] = target
                holders |= dict.fromkeys(target.gpus, uuid)
        return targets

    def abandon(self) -> None:
        """A decision that is under way is not waited for, and what its policy remembers no longer matters."""
        self._memory.closed = True
        if self._task is not None:
            self._task.cancel()


def _alike(one: Job, other: Job) -> bool:
    """Whether a job is still the one that the world was told of: it asks for the same GPUs and batch size."""
    return (one.gpus, one.job_type, one.batch_size) == (other.gpus, other.job_type, other.batch_size)


def _in_thread(decide: Callable[[], Verdict]) -> asyncio.Future[Verdict | Exception]:
    """What comes out in a thread of its own, for which nobody waits when the process ends."""
    told: Future[Verdict | Exception] = Future()
    told.set_running_or_notify_cancel()

    def work() -> None:
        try:
            told.set_result(decide())
        except Exception as error:
            told.set_result(error)

    threading.Thread(target=work, name="decision", daemon=True).start()
    return asyncio.wrap_future(told)
