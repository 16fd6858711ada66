"""When the world is asked, with what news, and what of its answers holds at a moment.

Plans of policies that decide at events hold until something happens. Shares become rounds: the next round is decided
before it begins, so that whoever keeps its GPUs runs on without a break, and as late as decisions have time to be made:
what is known then of progress and arrivals is fresher. That is twice what the slowest of the last ones took before the
end of the round, but not before half time, at which the first one begins. A round whose successor is late lasts until
it is there. A job whose GPUs are free before its round begins may start early.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path

from allocator.protocol.policy import Need
from allocator.runtime.decisions.hardware import Hardware, Placed, free_for, gpus_of, held
from allocator.runtime.decisions.knowledge import Prospects, Ways
from allocator.runtime.decisions.world import Memory, News, Verdict, World
from allocator.runtime.records.book import COMPLETED, QUEUED, RUNNING, Book, Job
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


@dataclass(frozen=True)
class Outlook:
    """What is known of the near future.

    Attributes
    ----------
    ends : when the present round ends, seconds on the clock; inf: decisions are taken when something happens.
    seconds : that a round takes. targets : who is wanted where, now and in the round that comes.
    """

    ends: float
    seconds: float
    targets: Mapping[str, Placed]


class Deciding:
    """The verdict that holds, the one that is coming, and the news for the next.

    Parameters
    ----------
    make_world : for the first decision, and again after one that failed: nobody knows what that has left undone.
    hardware, settings : of the service. memory : file of what the policy remembers.
    clock : of the service, seconds, by which decisions are found to be slow.

    Attributes
    ----------
    serial : counts the verdicts that were taken over; leases are renewed with each.
    trouble : why the last decision failed, "" if it did not.
    prices : of one more GPU of each type, by the last decision. last_seconds : that it took.
    start_seconds : what the dearest of the last starts of the jobs there cost; 0: nothing is known of any.
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
        self._world = make_world(hardware)
        self.policy = self._world.policy
        self.serial, self.trouble = 0, ""
        self.prices: Mapping[str, float] = {}
        self.start_seconds = 0.0
        self.last_seconds = 0.0
        self._hardware = hardware
        self._failures = 0
        self._now: Verdict | None = None
        self._coming: Verdict | None = None
        self._task: asyncio.Future[Verdict | Exception] | None = None
        self._memory = Memory(memory, clock)
        self._took: deque[float] = deque(maxlen=_LAST_DECISIONS)
        self._retry_at = -inf
        self._clear_news()
        self._unfit: dict[str, Job] = {}
        self._staying: dict[str, Job] = {}
        self._returning: dict[str, Job] = {}

    def _clear_news(self) -> None:
        self._arrived: dict[str, Job] = {}
        self._left: list[str] = []
        self._measured: dict[str, Ways] = {}
        self._ended: dict[str, tuple[Job, float]] = {}
        self._news = self._failed = False

    def check(self) -> None:
        """Raise InputError where the policy cannot decide about this cluster, with all of its nodes in use."""
        self._make_world(self._hardware.in_full).check()

    def check_entity(self, name: str) -> None:
        """Raise InputError where a job belongs to an entity that there is not."""
        self._world.check_entity(name)

    # -- news ---------------------------------------------------------------------------------------------------------

    def take_up(self, book: Book) -> None:
        """Jobs that were there before the service was, the GPUs that they hold, and what their policy remembers."""
        for job in book.active.values():
            self.arrived(job)
        # for the world those are through that have no room, or stay where it does not decide
        apart = self._unfit.keys() | self._staying.keys()
        jobs = {u: replace(job, state=COMPLETED) if u in apart else replace(job) for u, job in book.jobs.items()}
        if not book.jobs:
            return
        # a memory by which no decision can be made is none
        state = self._memory.recall(self._world, jobs) if self._failures < _TRIALS_OF_MEMORY else None
        restored = state is not None
        if state is not None:
            try:
                self._world.restore(state, jobs)
            except Exception:
                restored, self._world = False, self._make_world(self._hardware)
        if not restored:
            self._world.take_up([jobs[uuid] for uuid in self._arrived])
        self._arrived = {}

    def _renew(self, book: Book) -> None:
        """Another world, as after a restart; the plan of the one before holds until it decides."""
        self._world = self._make_world(self._hardware)
        self._coming = None
        self._clear_news()
        self._unfit, self._staying = {}, {}
        self.take_up(book)

    def arrived(self, job: Job) -> None:
        """A job was submitted, or is there again to be decided about."""
        if self._stays(job):
            self._staying[job.uuid] = job
            return
        if not self.prospects.fits(job):
            self._unfit[job.uuid] = job
            return
        self._arrived[job.uuid] = job
        self._news = True

    def left(self, job: Job) -> None:
        """A job is through, or is not to be decided about."""
        self._arrived.pop(job.uuid, None)
        apart = job.uuid in self._unfit or job.uuid in self._staying
        self._unfit.pop(job.uuid, None)
        self._staying.pop(job.uuid, None)
        if not apart:
            self._left.append(job.uuid)
            self._news = True

    def _stays(self, job: Job) -> bool:
        """Whether a job runs to its end where it is, as its node is drained."""
        return job.state == RUNNING and self._hardware.stays(job.places)

    def ended(self, job: Job, clock: float, *, failed: bool) -> None:
        """A start of a job has ended, whatever becomes of the job."""
        self._ended[job.uuid] = job, clock
        self._returning.pop(job.uuid, None)
        if self._staying.pop(job.uuid, None) is not None and job.state == QUEUED:
            self.arrived(job)
        self._failed |= failed
        self._news |= failed

    def started(self, job: Job) -> None:
        """A job is started, perhaps after it made room for its own move: then its round goes on where it had stopped.

        One that has saved nothing begins anew: the round counts for nothing, so that it is not moved again and again.
        """
        if job.saved_steps > 0:
            self._ended.pop(job.uuid, None)

    def resized(self, job: Job) -> None:
        """A job asked for other GPUs, or another batch size: for the world it is another job from now on."""
        self.left(job)
        self.arrived(job)

    def type_at(self, job: Job, batch_size: int | None) -> str:
        """What a job is in the throughput table at another batch size."""
        return self._world.knowledge.type_at(job.job_type, batch_size)

    def measured(self, job: Job) -> None:
        """The speed of a job was measured."""
        self._measured[job.uuid] = dict(job.measured)

    def capacity_changed(self, hardware: Hardware, jobs: Iterable[Job]) -> None:
        """Nodes came or went."""
        self._hardware = hardware
        if hardware.cluster.accelerators != self._world.cluster.accelerators:
            self._failures = max(self._failures, 1)
        fits = self.prospects.fits
        for job in jobs:
            stays, stayed = self._stays(job), job.uuid in self._staying
            if stays == stayed and (stays or fits(job) == (job.uuid not in self._unfit)):
                continue
            self.left(job)
            self.arrived(job)
            if stayed and hardware.numbers(job.places):
                # only another world takes up who runs already, and until it decides they stay
                self._failures = max(self._failures, 1)
                self._returning[job.uuid] = job

    @property
    def _changed_hardware(self) -> bool:
        """Whether the world has not heard of the nodes that there are now."""
        return self._hardware is not self._world.hardware

    def why_unfit(self, job: Job) -> str:
        """Why a job cannot run on any nodes there are, "" if it can."""
        return self.prospects.why_unfit(job) if job.uuid in self._unfit else ""

    @property
    def prospects(self) -> Prospects:
        """Of jobs on the nodes that there are now."""
        return Prospects(self._world.knowledge, self._hardware, Need.CONFIGURATIONS in self.policy.needs)

    @property
    def unfit(self) -> list[int]:
        """Numbers of the jobs that have no room on the nodes in use."""
        return sorted(job.id for job in self._unfit.values())

    def why_waiting(self, job: Job, book: Book) -> str:
        """Why a job that fits does not run."""
        if self.trouble:
            return f"no decision: {self.trouble}"
        target = self._wanted().get(job.uuid)
        if target is None:
            known = self._now is not None and job.uuid not in self._arrived
            return f"not its turn under {self.policy.name}" if known else "waits for the next decision"
        holders = held(book.holding.values())
        owners = {uuid for gpu in gpus_of(target.places) for uuid in holders.get(gpu, ())}
        if owners:
            ids = ", ".join(str(book.jobs[uuid].id) for uuid in sorted(owners, key=lambda u: book.jobs[u].id)[:5])
            return f"starts on {target.pool} when job {ids} has made room"
        return f"starts on {target.pool} shortly"

    def believed_rate(self, job: Job) -> float:
        """Steps/s of a job where it runs."""
        ways = self._world.knowledge.believed(job.job_type, job.gpus, job.measured)
        return ways.get((job.pool, job.held_gpus), 0.0)

    def known_rate(self, job: Job) -> float | None:
        """The same where it rests on a measurement or on the throughput table, else None."""
        known = self._world.knowledge.known(job.job_type, job.gpus, job.measured)
        return known.get((job.pool, job.held_gpus))

    def ways(self, job: Job, measured: bool = True) -> Ways | None:
        """Steps/s by type and GPUs of a job, with what was `measured` of it; None where nothing is known."""
        own = job.measured if measured else {}
        knowledge = self._world.knowledge
        if not own and not knowledge.knows(job.job_type, job.gpus):
            return None
        return knowledge.believed(job.job_type, job.gpus, own)

    def outlook(self) -> Outlook:
        """Rounds and targets, as far as they are decided."""
        plan = self._now
        if plan is None or plan.interruptible:
            return Outlook(inf, inf, self._wanted())
        return Outlook(plan.end, plan.seconds, self._wanted())

    # -- decisions ----------------------------------------------------------------------------------------------------

    def due(self, now: float, book: Book) -> bool:
        """Whether the world is to be asked now."""
        if self._task is not None or now < self._retry_at:
            return False
        active, plan = book.active, self._now
        if self._changed_hardware or plan is None:
            return bool(active) or bool(self._left)
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
        """Whether GPUs idle that a waiting job could use which has none in sight."""
        targets = {uuid: target for uuid, target in self._wanted().items() if uuid in book.active}
        waiting = [job.gpus for job in book.active.values() if job.state == QUEUED and job.uuid not in targets]
        taken = set(held(book.holding.values())).union(*(gpus_of(target.places) for target in targets.values()))
        free = Counter(self._hardware.cluster.gpus)
        for node in self._hardware.nodes:
            if waiting and self._hardware.usable(node):
                free[node.accelerator] -= sum((node.name, at) in taken for at in range(node.gpus))
        return min(waiting, default=inf) <= max(free.values(), default=0)

    def begins(self, now: float, busy: bool) -> float:
        """From when on a decision that is begun now is to hold, seconds: in rounds, from the end of this one on."""
        plan = self._now
        in_rounds = plan is not None and not plan.interruptible
        if plan is None or not in_rounds or self._changed_hardware:
            return now
        return max(plan.end, now) if busy or self._coming is not None else now

    def begin(self, now: float, steps: Mapping[str, float], book: Book, done: Callable[[], None]) -> None:
        """Ask the world, in a thread; `done` is called when it has answered."""
        if self._failures:
            try:
                self._renew(book)
            except Exception as error:
                self._fail(error, now)
                return
        again = self._coming is not None
        plan = self._now
        clock = self.begins(now, bool(book.holding))
        seconds = None
        if plan is not None and not again:
            since = plan.clock
            ends = {uuid: min(at, clock) for uuid, (_, at) in self._ended.items()}
            seconds = {uuid: ends.get(uuid, clock) - since for uuid in plan.wanted}
        known = {uuid: job.steps for uuid, (job, _) in self._ended.items()} | dict(steps)
        lost = {} if plan is None else {u: _cost(job, plan.clock) for u, job in book.holding.items()}
        arrived = [replace(job) for job in self._arrived.values()]
        news = News(clock, arrived, tuple(self._left), known, self._measured, seconds, lost, self._failed)
        hardware = self._hardware
        running = [replace(job) for job in book.holding.values()] if self._changed_hardware else []
        self._clear_news()
        began = self._clock()
        self._task = _in_thread(lambda: self._ask(news, hardware, running))

        def finished(_: object) -> None:
            self.last_seconds = round(self._clock() - began, 6)
            self._took.append(self.last_seconds)
            done()

        self._task.add_done_callback(finished)

    def _ask(self, news: News, hardware: Hardware, running: Sequence[Job]) -> Verdict:
        if hardware is not self._world.hardware:
            self._world = self._world.continued(hardware, running)
        verdict = self._world.decide(news)
        self._memory.write(self._world)
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
        if verdict.recomputed:
            self.prices = verdict.prices
        self.start_seconds = verdict.start_seconds
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
        self._returning = {u: job for u, job in self._returning.items() if u not in self._world.ids}
        self.serial += 1

    # -- what holds ---------------------------------------------------------------------------------------------------

    def _wanted(self) -> dict[str, Placed]:
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
        there, wanted = book.active, _placed(book.holding) if self._now is None else self._now.wanted
        back = {uuid: target for uuid, target in _placed(self._returning).items() if self._usable(target)}
        targets = {uuid: target for uuid, target in wanted.items() if uuid in there and self._usable(target)} | back
        targets |= _placed({uuid: job for uuid, job in self._staying.items() if self._stays(job)})
        if self._now is None or self._coming is None or not self._settings.early_dispatch:
            return targets
        holders = held(book.holding.values())
        for uuid, target in targets.items():
            for gpu in gpus_of(target.places):
                holders.setdefault(gpu, set()).add(uuid)
        for uuid, target in self._coming.wanted.items():
            if uuid in there and uuid not in targets and self._usable(target) and free_for(uuid, target, holders):
                targets[uuid] = target
        return targets

    def _usable(self, target: Placed) -> bool:
        return self._hardware.numbers(target.places) is not None

    def abandon(self) -> None:
        """A decision that is under way is not waited for, and what its policy remembers no longer matters."""
        self._memory.close()


def _placed(jobs: Mapping[str, Job]) -> dict[str, Placed]:
    """Jobs where they are."""
    return {uuid: Placed(job.pool, job.places) for uuid, job in jobs.items()}


def _in_thread(decide: Callable[[], Verdict]) -> asyncio.Future[Verdict | Exception]:
    """What comes out in a thread of its own, for which nobody waits when the process ends."""
    loop = asyncio.get_running_loop()
    told: asyncio.Future[Verdict | Exception] = loop.create_future()

    def tell(outcome: Verdict | Exception) -> None:
        if not told.done():
            told.set_result(outcome)

    def work() -> None:
        outcome: Verdict | Exception
        try:
            outcome = decide()
        except Exception as error:
            outcome = error
        # the loop is closed when the service has ended meanwhile
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(tell, outcome)

    threading.Thread(target=work, name="decision", daemon=True).start()
    return told


def _cost(job: Job, decided_at: float) -> float:
    """Seconds that a decision at `decided_at` cost a job that runs: its start, and the checkpoint before it."""
    return job.start_seconds + job.save_seconds if job.since >= decided_at else 0.0
