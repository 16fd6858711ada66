"""Nodes fail and are repaired, and jobs lose what they did since their last checkpoint."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Annotated

import numpy as np

from allocator.conversion import NotNegative, NotNegativeWhole, Range
from allocator.protocol.assignment import Assignment, among_ids
from allocator.protocol.decision import Decision
from allocator.simulator.rules.base import Round, Rule, Rules, RunningRule, rule_of
from allocator.simulator.rules.general import IdealShares
from throughputs import InputError
from throughputs.arrays import Floats, Ints
from throughputs.numerics import log

if TYPE_CHECKING:
    from allocator.simulator.world import World

_SECONDS_PER_HOUR = 3600.0

_Gpus = tuple[int, ...]


@dataclass(frozen=True)
class NodesFail(Rule):
    """Servers fail, independently of each other and of what runs on them, and come back when they are repaired.

    The policy is told at once. A job that had a GPU of the server is stopped, and goes on from its last checkpoint: it
    writes one every so many seconds of training, and when it is stopped or moved by a decision. In rounds its GPUs
    stand idle to the end of the round. Without placement the GPUs of a type are taken to be filled in the order in
    which its jobs were chosen.

    Attributes
    ----------
    mtbf_hours : mean time that a server is up before it fails; the times are exponential. None: never.
    repair_hours : until it is back.
    checkpoint_seconds : training between two checkpoints of a job.
    failure_seed : of the times, which are the same under every policy; None: that of the run.
    """

    mtbf_hours: Annotated[float, Range(0.001)] | None = None
    repair_hours: NotNegative = 2.0
    checkpoint_seconds: Annotated[float, Range(1)] = 1800.0
    failure_seed: NotNegativeWhole | None = None

    def check(self, world: Rules) -> None:
        """Shares of all GPUs at a time are on no server."""
        if self.mtbf_hours is not None and rule_of(world, IdealShares).ideal:
            expected = "none in a run without rounds (ideal), where no job is on a server"
            raise InputError("simulator settings", field="mtbf_hours", found=self.mtbf_hours, expected=expected)

    def start(self, world: World) -> Iterable[RunningRule]:
        """Nothing where nobody fails."""
        return () if self.mtbf_hours is None else (_Nodes(self, self.mtbf_hours * _SECONDS_PER_HOUR, world),)


class _Nodes(RunningRule):
    """When each server fails or is back next; what each job has done since its last checkpoint."""

    keeps = ("_next", "_down", "_drawn")

    def __init__(self, rule: NodesFail, mean_seconds: float, world: World) -> None:
        self._rule, self._mean, self._world, self._table = rule, mean_seconds, world, world.jobs
        cluster = world.core.cluster
        self._server = np.array(cluster.servers, dtype=np.int64)
        self._pool = np.repeat(np.arange(len(cluster.accelerators)), cluster.capacity)
        n = int(self._server[-1]) + 1 if len(self._server) else 0
        self._down, self._drawn = np.zeros(n, dtype=np.bool_), np.zeros(n, dtype=np.int64)
        self._next = np.array([self._uptime(server) for server in range(n)])
        for name in ("saved_steps", "unsaved_seconds"):
            world.jobs.register(name, 0.0)
        world.jobs.register("failures", 0, told=True)
        world.jobs.register("lost_gpu_seconds", 0.0, told=True)

    def _uptime(self, server: int) -> float:
        """The next draw of a server: seconds until it fails."""
        seed = self._world.seed if self._rule.failure_seed is None else self._rule.failure_seed
        draw = np.random.default_rng((seed, server, int(self._drawn[server]))).random()
        self._drawn[server] += 1
        return float(-self._mean * log(np.array([1.0 - draw]))[0])

    def next_event(self) -> float:
        """The first of all servers."""
        return float(self._next.min(initial=np.inf))

    def rounds_left(self, jobs: Ints, seconds: float) -> float:  # noqa: ARG002
        """Until then."""
        return (self.next_event() - self._world.clock) / seconds

    def in_round(self, r: Round) -> None:
        """Who is on a server that fails in the round trains up to then only."""
        if not (self._next[~self._down] < r.finish.max()).any():
            return
        gpus = self._gpus_of(r.decision.assignment, r.decision.gpus)
        until = np.array([self._next[self._server[list(ids)]].min() for ids in gpus])
        cut = until < r.finish
        part = np.maximum(until[cut] - r.clock, 0.0) / (r.finish[cut] - r.clock)
        r.steps[cut], r.finish[cut] = r.counted(r.steps[cut] * part), np.maximum(until[cut], r.clock)

    def did(self, decision: Decision, at: Ints, steps: Floats, seconds: Floats | float) -> None:
        """Note the last checkpoint of each job."""
        saved, unsaved = self._table.columns["saved_steps"], self._table.columns["unsaved_seconds"]
        done = self._table.steps_done.take(at)
        anew = among_ids(np.arange(len(at)), decision.transition.rows)
        saved[at] = np.where(anew, done - steps, saved[at])
        trained = np.where(anew, 0.0, unsaved[at]) + seconds
        since = np.where(trained >= self._rule.checkpoint_seconds, trained % self._rule.checkpoint_seconds, trained)
        back = np.divide(steps * since, seconds, out=np.zeros(len(at)), where=np.broadcast_to(seconds, len(at)) > 0)
        saved[at] = np.where(since < trained, done - back, saved[at])
        unsaved[at] = since

    def happen(self) -> None:
        """Servers fail and are back up to now; who was on one that failed is stopped."""
        world, fallen = self._world, np.zeros(len(self._down), dtype=np.bool_)
        if self.next_event() > world.clock:
            return
        rows = world.core.running
        rows = rows.take(among_ids(rows.jobs, world.core.active).nonzero()[0])
        gpus = self._gpus_of(rows, tuple(map(world.core.gpus_of, rows.jobs.tolist())))
        while self.next_event() <= world.clock:
            server = int(self._next.argmin())
            self._down[server] = not self._down[server]
            if self._down[server]:
                fallen[server] = True
                self._next[server] += self._rule.repair_hours * _SECONDS_PER_HOUR
            else:
                self._next[server] += self._uptime(server)
        hit = np.array([fallen[self._server[list(ids)]].any() for ids in gpus], dtype=np.bool_)
        world.withhold(self, self._down[self._server].nonzero()[0].tolist(), rows.jobs[hit].tolist())
        self._lose(self._table.rows(rows.jobs[hit]), rows.gpus_taken[hit])

    def _lose(self, at: Ints, gpus: Floats) -> None:
        """Jobs `at` these rows of the table, which had so many GPUs, go back to their last checkpoints."""
        columns = self._table.columns
        lost = self._table.steps_done[at] - columns["saved_steps"][at]
        columns["lost_gpu_seconds"][at] += columns["unsaved_seconds"][at] * gpus
        columns["unsaved_seconds"][at] = 0.0
        columns["failures"][at] += 1
        self._world.set_back(at, lost)

    def _gpus_of(self, rows: Assignment, placed: tuple[_Gpus, ...]) -> tuple[_Gpus, ...]:
        """The GPUs of each row where they are `placed`; else the next ones of its type that are up."""
        if any(placed):
            return placed
        up = ~self._down[self._server]
        free = [iter((up & (self._pool == pool)).nonzero()[0].tolist()) for pool in range(self._pool.max() + 1)]
        found: dict[int, _Gpus] = {}
        columns = rows.jobs, rows.pool, rows.gpus, rows.partner
        for job, pool, gpus, partner in zip(*(column.tolist() for column in columns), strict=True):
            found[job] = found[partner] if partner in found else tuple(islice(free[pool], gpus))
        return tuple(found.values())
