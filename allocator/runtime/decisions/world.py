"""The real world around the decision core: what happened goes in, who is to run where comes out.

The same core as in the simulator, told of the same things: arrivals, completions, time received, rates, capacity. A
world is not a thread's: the service hands it to a worker for each decision, with all that has happened meanwhile, so
that a solver that takes its time holds nothing else up.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from math import inf
from pathlib import Path
from typing import Any

import numpy as np

from allocator.checkpoint.state_file import StateFile
from allocator.mechanism.core import DecisionCore
from allocator.mechanism.settings import MechanismSettings
from allocator.protocol.assignment import Assignment
from allocator.protocol.decision import Decision
from allocator.protocol.entities import Entities
from allocator.protocol.jobs import JobTable
from allocator.protocol.policy import Need, Policy, Trigger
from allocator.protocol.training import TrainingLedger
from allocator.runtime.adapters.base import Placed
from allocator.runtime.decisions.hardware import Hardware
from allocator.runtime.decisions.knowledge import Knowledge, Ways
from allocator.runtime.records.book import Job
from throughputs import InputError, ThroughputTable
from throughputs.arrays import Floats, Ints

_NOTICED_CHANGE = 0.01
"""Part of its speed by which a job must have changed for the policy to be asked again. No two measurements agree to the
last digit, and shares that are decided anew in every round start from what is owed then."""


@dataclass
class News:
    """What happened since the last decision.

    Attributes
    ----------
    clock : from when on the next decision is to hold, seconds.
    jobs : those that there are, by UUID, each the same object as long as it asks for the same. What the world does not
        have arrives; what it has and is not among them has left.
    steps : done so far, by UUID.
    measured : steps/s by (type, GPUs), by UUID of jobs whose speed was measured anew.
    seconds : that the rows of the last decision ran, or will have run when the next begins, by UUID; None where that
        was told before.
    lost_seconds : what the last start cost, by UUID.
    trouble : whether a job failed.
    holding : who holds GPUs, and where, by UUID, where that does not follow from the last decision: this is the first
        one, or the last has not begun, and is taken back.
    """

    clock: float
    jobs: Mapping[str, Job] = field(default_factory=dict)
    steps: Mapping[str, float] = field(default_factory=dict)
    measured: dict[str, Ways] = field(default_factory=dict)
    seconds: Mapping[str, float] | None = None
    lost_seconds: Mapping[str, float] = field(default_factory=dict)
    trouble: bool = False
    holding: Mapping[str, Placed] | None = None


@dataclass(frozen=True)
class Verdict:
    """What the core decided.

    Attributes
    ----------
    clock : when it is to begin, seconds. seconds : until the core wants to be asked again, inf: when something happens.
    interruptible : whether it ends when something happens; otherwise it is a round.
    wanted : who is to run, by UUID; nobody else is.
    rejected : UUIDs of jobs that are not let in.
    told : of it to the journal: how many jobs are to run, whether the policy was asked, the seconds that it took, the
        status of its program ("" where it has none), and prices of one more GPU of each type, where it knows.
    """

    clock: float
    seconds: float
    interruptible: bool
    wanted: Mapping[str, Placed]
    rejected: tuple[str, ...] = ()
    told: Mapping[str, Any] = field(default_factory=lambda: {"asked": False})

    @property
    def end(self) -> float:
        """Until when it holds, seconds."""
        return self.clock + self.seconds


class World:
    """Active jobs on a cluster under a policy; those that are through are forgotten with the decision that sees it.

    Parameters
    ----------
    hardware : its GPUs; the types stay, their numbers may be changed by making another world (`on`).
    policy, settings, seed : as in the simulator.
    table : throughputs of job types; None: none are known.
    entities : that jobs may belong to; None: what they name is ignored.

    Raises
    ------
    InputError
        A policy that packs.
    """

    def __init__(
        self,
        hardware: Hardware,
        policy: Policy,
        settings: MechanismSettings,
        table: ThroughputTable | None = None,
        entities: Entities | None = None,
        seed: int = 0,
    ) -> None:
        if Need.COLOCATION in policy.needs:
            expected = "a policy that does not pack: nothing is known of jobs that share GPUs"
            raise InputError("service", field="policy", found=policy.name, expected=expected)
        self.hardware, self.policy, self._settings = hardware, policy, settings
        self.cluster = cluster = hardware.cluster
        self._entities, self._of = entities, (policy, settings, table, entities, seed)
        self.knowledge = Knowledge(cluster.accelerators, table)
        self._jobs: dict[int, Job] = {}
        self._ways: dict[int, Ways] = {}
        self.ids: dict[str, int] = {}
        self._table = self._table_of([])
        self._table.least_steps_remaining = 1.0
        self._table.register("lost_seconds", 0.0)
        self.core = DecisionCore(policy, cluster, self._table, settings, seed)
        self._last: Decision | None = None

    def on(self, hardware: Hardware) -> World:
        """The same world on other nodes of the same types."""
        made = type(self)(hardware, *self._of)
        made.knowledge = self.knowledge
        made.resume(self.state(), {job.uuid: job for job in self._jobs.values()})
        return made

    @property
    def fresh(self) -> bool:
        """Whether it has decided nothing so far."""
        return self._last is None

    def state(self) -> dict[str, Any]:
        """What another world of the same policy can go on from."""
        return {
            "jobs": [job.uuid for job in self._jobs.values()],
            "ids": list(self._jobs),
            "next_id": self._table.next_id,
            "arrivals": self._table.arrival_time.tolist(),
            "table": self._table.state(),
            "core": self.core.state() | {"placement": None},
        }

    @property
    def identity(self) -> dict[str, str]:
        """Worlds that can go on from each other's states are equal in these."""
        settings = sorted((name, repr(value)) for name, value in self.policy.settings().items())
        return {
            "policy": self.policy.name,
            "settings": repr(settings),
            "mechanism": repr(self._settings),
            "types": ",".join(self.cluster.accelerators),
        }

    def resume(
        self, state: Mapping[str, Any], jobs: Mapping[str, Job], steps: Mapping[str, float] | None = None
    ) -> None:
        """Go on from the `state` of another world: what the policy remembers and what jobs are owed stays.

        Parameters
        ----------
        jobs : by UUID, those of that state at least. steps : that jobs have done since.
        """
        numbered = state["ids"], state["next_id"]
        self._submit([jobs[uuid] for uuid in state["jobs"]], state["arrivals"], numbered=numbered)
        progress = {name: values for name, values in state["table"]["progress"].items() if name != "rates"}
        self._table.restore(state["table"] | {"progress": progress})
        self._advance(steps or {})
        self.core.resume(state["core"], Assignment.none(), ())

    def check(self) -> None:
        """Ask the policy about a job that nobody submitted, in a world of its own.

        Raises
        ------
        InputError
            It cannot decide on this cluster.
        """
        World(self.hardware, *self._of).decide(News(0.0, {"trial": Job(0, "trial", ("trial",))}))

    def check_entity(self, name: str) -> None:
        """Raise InputError where a job belongs to an entity that there is not."""
        if self._entities is not None and name:
            self._entities.positions([name], "submit")

    def decide(self, news: News) -> Verdict:
        """Take the news in, and decide.

        Raises
        ------
        Exception
            Whatever the policy raises; the world can be asked again.
        """
        self._tell(news)
        core, calls, seconds = self.core, self.core.policy_calls, self.core.policy_seconds
        if news.holding is not None:
            core.adopt(*self._rows_of(news.holding))
        decision = self._last = core.next(news.clock)
        types = self.cluster.accelerators
        names, gpus = self._names(decision.jobs), decision.gpus or map(core.gpus_of, decision.jobs.tolist())
        placed = [
            Placed(types[pool], self.hardware.places(held))
            for held, pool in zip(gpus, decision.assignment.pool.tolist(), strict=True)
        ]
        rejected = tuple(self._names(decision.rejected))
        self._forget()
        told = {
            "jobs": len(names),
            "asked": core.policy_calls != calls,
            "seconds": round(core.policy_seconds - seconds, 6),
            "status": "" if core.allocation is None else str(core.allocation.status),
            "prices": _prices(core.allocation, types),
        }
        return Verdict(
            news.clock,
            decision.seconds,
            decision.interruptible,
            dict(zip(names, placed, strict=True)),
            rejected,
            told,
        )

    def _names(self, ids: Ints) -> list[str]:
        return [self._jobs[job].uuid for job in ids.tolist()]

    def _tell(self, news: News) -> None:
        core = self.core
        self._advance(news.steps)
        rows, lost_seconds = self._rows(news.lost_seconds)
        self._table.columns["lost_seconds"][rows] = lost_seconds
        self._record(news)
        self._measure(news)
        left = [i for uuid, i in self.ids.items() if news.jobs.get(uuid) is not self._jobs[i]]
        gone = {self._jobs[i].uuid for i in left}
        core.complete([job for job in left if (core.active == job).any()])
        for uuid in gone:
            self.knowledge.learn(self._jobs[self.ids[uuid]])
        arrived = [job for uuid, job in news.jobs.items() if uuid not in self.ids or uuid in gone]
        if arrived:
            core.arrive(self._submit(arrived, self._arrivals(arrived), news.clock))
        if news.trouble:
            core.tell(Trigger.TROUBLE)

    def _rows(self, told: Mapping[str, float]) -> tuple[Ints, Floats]:
        """What was told of jobs that are in the table, and where they are."""
        known = [uuid for uuid in told if uuid in self.ids]
        ids = np.array([self.ids[uuid] for uuid in known], dtype=np.int64)
        return self._table.rows(ids), np.array([told[uuid] for uuid in known], dtype=np.float64)

    def _advance(self, steps: Mapping[str, float]) -> None:
        """Jobs have done so many steps."""
        rows, done = self._rows(steps)
        self._table.steps_done[rows] = np.minimum(done, self._table.total_steps[rows])

    def _forget(self) -> None:
        """Nothing is asked any more of jobs that are through: what a decision costs does not grow with them."""
        gone = self._table.ids[~np.isin(self._table.ids, self.core.active)]
        if not len(gone):
            return
        self._table.retire(gone)
        for job in gone.tolist():
            del self._ways[job]
            uuid = self._jobs.pop(job).uuid
            # one that came again, with another number of GPUs, has another id by now
            if self.ids[uuid] == job:
                del self.ids[uuid]

    def _record(self, news: News) -> None:
        """Time that the rows of the last decision ran."""
        last = self._last
        if last is None or news.seconds is None or not len(last.jobs):
            return
        ran = np.array([max(news.seconds.get(uuid, 0.0), 0.0) for uuid in self._names(last.jobs)])
        if last.interruptible:
            self.core.record_service(last.assignment, self._table.rows(last.jobs), ran)
            return
        self.core.record(last, ran)
        training = self._table.training
        if training is not None:
            rows = self._table.rows(last.jobs)
            epochs = training.profiles.epochs[rows]
            done = self._table.steps_done[rows] / self._table.total_steps[rows]
            rate = self._table.rates[rows, last.assignment.pool]
            training.measure(rows, rate, news.clock)
            training.epochs_done[rows] = np.minimum(np.floor(done * epochs + 1e-9), epochs)

    def _measure(self, news: News) -> None:
        """Speeds that were measured take the place of those that were believed."""
        changed = []
        for i, measured in [(self.ids[uuid], told) for uuid, told in news.measured.items() if uuid in self.ids]:
            self._jobs[i].measured = dict(measured)
            believed = self.knowledge.of(self._jobs[i])
            if _differs(self._ways[i], believed):
                self._ways[i] = believed
                changed.append(i)
        if not changed:
            return
        changed.sort()
        ids = np.array(changed, dtype=np.int64)
        rates = self.knowledge.rates([self._ways[i] for i in changed], [self._jobs[i].gpus for i in changed])
        rows = self._table.rows(ids)
        fits = self._table.scale_factor[rows][:, None] <= self.cluster.capacity[None, :]
        self._table.rates[rows] = np.where(fits, rates, 0.0)
        if self._table.configurations is not None:
            self._table.configurations = self._configurations(list(self._ways.values()))
        self.core.rates_changed(ids)

    def _arrivals(self, jobs: Sequence[Job]) -> list[float]:
        """When jobs arrived; one that comes again, with another number of GPUs, is no earlier than those before it."""
        known = self._table.arrival_time
        last = float(known[-1]) if len(known) else 0.0
        return list(accumulate([max(job.submitted_at, last) for job in jobs], max))

    def _submit(
        self,
        jobs: Sequence[Job],
        arrivals: Sequence[float],
        admitted_at: float = 0.0,
        numbered: tuple[Sequence[int], int] | None = None,
    ) -> Ints:
        """Add jobs to the table, admitted when they arrive, or at a later decision if they have not run; their ids.

        In a table that goes on from another they are `numbered` as there: their ids, and that of the next job.
        """
        ways = [self.knowledge.of(job) for job in jobs]
        ids = self._table.submit(self._table_of(jobs, ways, arrivals))
        if numbered is not None:
            ids = self._table.renumber(*numbered)
        for number, job, of in zip(ids.tolist(), jobs, ways, strict=True):
            self.ids[job.uuid], self._jobs[number], self._ways[number] = number, job, of
        rows = self._table.rows(ids)
        done = np.array([job.steps for job in jobs], dtype=np.float64)
        self._table.steps_done[rows] = np.minimum(done, self._table.total_steps[rows])
        if self._table.training is not None:
            admitted = [at if job.epoch else max(at, admitted_at) for job, at in zip(jobs, arrivals, strict=True)]
            self._table.training.admit(rows, np.array(admitted))
        return ids

    def _table_of(self, jobs: Sequence[Job], ways: Sequence[Ways] = (), arrivals: Sequence[float] = ()) -> JobTable:
        needs, sizes = self.policy.needs, [job.gpus for job in jobs]
        steps = [
            self.knowledge.expected_steps(job.total_steps, job.duration, of, job.gpus)
            for job, of in zip(jobs, ways, strict=True)
        ]
        # one that comes again, with another number of GPUs, may be late already
        deadline = [
            np.nan if job.deadline is None else max(job.deadline, arrival)
            for job, arrival in zip(jobs, arrivals, strict=True)
        ]
        submitted = {
            "job_type": [job.job_type or "unknown" for job in jobs],
            "scale_factor": sizes,
            "total_steps": steps,
            "arrival_time": arrivals,
            "priority_weight": [job.weight for job in jobs],
            "deadline": deadline,
            "predicted_seconds": [job.time_limit or np.nan for job in jobs],
            "entity": [job.entity for job in jobs],
        }
        table = JobTable(
            submitted,
            self.knowledge.rates(ways, sizes),
            self.cluster,
            entities=self._entities,
            configurations=self._configurations(ways) if Need.CONFIGURATIONS in needs else None,
            source="jobs of the service",
        )
        if Need.TRAINING in needs:
            table.training = TrainingLedger.steady(table.total_steps, table.rates)
        return table

    def _configurations(self, ways: Sequence[Ways]) -> Any:
        return self.knowledge.configurations(ways).fitting(self.cluster.capacity)

    def _rows_of(self, holding: Mapping[str, Placed]) -> tuple[Assignment, list[tuple[int, ...]]]:
        """Those of the jobs, by UUID, that hold GPUs which are in use, as rows."""
        active = set(self.core.active.tolist())
        known = [(self.ids[uuid], placed) for uuid, placed in holding.items() if self.ids.get(uuid) in active]
        rows = [(job, placed, gpus) for job, placed in known if (gpus := self.hardware.numbers(placed))]
        assignment = Assignment.of(
            [job for job, _, _ in rows],
            [self.cluster.accelerators.index(placed.pool) for _, placed, _ in rows],
            [len(gpus) for _, _, gpus in rows],
        )
        return assignment, [gpus for _, _, gpus in rows]


def _differs(before: Ways, after: Ways) -> bool:
    """Whether a policy would want to know."""
    return before.keys() != after.keys() or any(
        abs(after[way] - rate) > _NOTICED_CHANGE * rate for way, rate in before.items()
    )


def _prices(allocation: Any, types: Sequence[str]) -> dict[str, float]:
    prices = getattr(allocation, "prices", None)
    if prices is None:
        return {}
    return {name: float(price) for name, price in zip(types, prices, strict=True) if np.isfinite(price)}


# ----------------------------------------------------------------------------------------------------------------------
# What a policy remembers between two lives of the service: promises, and time that is owed.
# ----------------------------------------------------------------------------------------------------------------------


_QUICK = 0.05
_SHARE_OF_SAVING = 20.0
"""The memory is written after each decision where that takes less than so many seconds; otherwise not before so many
times as long as it took have passed."""


class Memory:
    """A file that holds the last state of a world.

    Parameters
    ----------
    path : of the file. clock : of the service, seconds.

    Attributes
    ----------
    closed : set once another policy decides: what comes late is not written.
    """

    def __init__(self, path: Path, clock: Callable[[], float]) -> None:
        self._file, self._clock, self._not_before = StateFile(path, 0o600), clock, -inf
        self.closed = False

    def recall(self, world: World, jobs: Collection[str]) -> dict[str, Any] | None:
        """The state, if it is of the policy of `world` and of none but these `jobs`; else None."""
        try:
            saved = self._file.read()
        except InputError:
            # a file that was cut off, or of another version: the journal has all that must not be lost
            return None
        if saved is None or saved.header != world.identity or not isinstance(saved.state, dict):
            return None
        state: dict[str, Any] = saved.state
        return state if all(uuid in jobs for uuid in state.get("jobs", ())) else None

    def write(self, world: World) -> None:
        """Write down what a world has decided by, before anything is done about it; seldom where that takes long."""
        began = self._clock()
        if self.closed or began < self._not_before:
            return
        # a full disk hinders the journal, too, and nothing is done without that
        with contextlib.suppress(InputError):
            self._file.write(world.identity, world.state())
        now = self._clock()
        taken = now - began
        self._not_before = now + (0.0 if taken < _QUICK else _SHARE_OF_SAVING * taken)
