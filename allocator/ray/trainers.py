"""Elastic trainers as jobs with configurations: who asks, how fast each is with so many workers, what each may have.

Nothing here knows a cluster: nodes, requests and reports are told, and shares are asked for.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import numpy as np

from allocator.mechanism.settings import MechanismSettings
from allocator.protocol import Policy
from allocator.protocol.policy import Need
from allocator.runtime.adapters.base import Node, Placed
from allocator.runtime.decisions.hardware import Hardware
from allocator.runtime.decisions.knowledge import Knowledge, Ways
from allocator.runtime.decisions.world import News, Verdict, World
from allocator.runtime.records.book import Job
from throughputs.goodput.fit import fit_model
from throughputs.goodput.samples import SHORTEST_STEP, Samples

_TYPE = "ray.io/accelerator-type"
_RESOURCE = "accelerator_type:"

_BATCH = 64.0
"""Samples of a step in the fitted models, divided among the workers: only their ratios count."""

_LEAST_SECONDS, _LEAST_WORK = 2.0, 2.0
"""Of a measurement of speed."""

_NOTICED = 0.05
"""Part of its speed by which a trainer must have changed for that to be news."""


@dataclass
class Trainer:
    """A trainer that asks for workers.

    Attributes
    ----------
    job : as the decision core has it; its GPUs are units of resources.
    worker : resources of each worker. selectors : labels of their nodes. units : of a job's GPUs that each takes.
    fewest, most : workers.
    until : when its request ends.
    workers, since, began : how many reported last; when they first did, and the work done by then.
    share : what it may have.
    """

    job: Job
    worker: Mapping[str, float]
    selectors: Sequence[Any]
    units: int
    fewest: int
    most: int
    until: float
    label: str = ""
    workers: int = 0
    since: float = 0.0
    began: float = 0.0
    share: Placed = field(default_factory=Placed)

    @property
    def kinds(self) -> frozenset[str]:
        """Accelerator types that it names, by a label or as a resource; none: it runs on all."""
        named = {name.removeprefix(_RESOURCE) for name in self.worker if name.startswith(_RESOURCE)}
        wanted = str(self.selectors[0].get(_TYPE, "")) if self.selectors else ""
        if wanted.startswith("in("):
            named |= {part.strip() for part in wanted[3:-1].split(",")}
        elif wanted and not wanted.startswith("!"):
            named.add(wanted)
        return frozenset(named)


class _Curves(Knowledge):
    """Speeds of trainers with any number of workers: a throughput model that is fitted to those that were measured."""

    def __init__(self, accelerators: Sequence[str], trainers: Mapping[str, Trainer]) -> None:
        super().__init__(accelerators, None)
        self._trainers, self._fitted = trainers, {}  # type: ignore[var-annotated]

    def of(self, job: Job) -> Ways:
        """Work per second by type and units."""
        trainer = self._trainers.get(job.uuid)
        if trainer is None:
            return super().of(job)
        ways: Ways = {}
        for kind in self._accelerators:
            if not trainer.kinds or kind in trainer.kinds:
                here = {units // trainer.units: rate for (name, units), rate in job.measured.items() if name == kind}
                anywhere = {units // trainer.units: rate for (_, units), rate in job.measured.items()}
                sizes = np.arange(trainer.fewest, trainer.most + 1)
                speeds = self._curve(tuple(sorted((here or anywhere or {1: 1.0}).items())), sizes)
                ways |= {(kind, int(n) * trainer.units): float(rate) for n, rate in zip(sizes, speeds, strict=True)}
        return ways

    def _curve(self, measured: tuple[tuple[int, float], ...], sizes: Any) -> Any:
        """Speeds by number of workers; as long as there is one measurement, in proportion to their number."""
        gpus, rates = np.array([n for n, _ in measured]), np.array([rate for _, rate in measured])
        if len(measured) == 1:
            return rates[0] * sizes / gpus[0]
        if measured not in self._fitted:
            seconds = 1.0 / rates
            alone = np.clip(seconds[0] * gpus[0] / gpus, SHORTEST_STEP, seconds)
            samples = Samples(np.ones_like(gpus), gpus, _BATCH / gpus, gradient_time=alone, step_time=seconds)
            self._fitted = {**self._fitted, measured: fit_model(samples).model}
        fitted = self._fitted[measured].step_time(np.ones_like(sizes), sizes, _BATCH / sizes)[0]
        return 1.0 / fitted

    def learn(self, job: Job) -> None:
        """Nothing of a trainer is taken for another one."""


class Trainers:
    """The elastic trainers of a cluster under a policy.

    Parameters
    ----------
    policy : who decides. round_seconds : see `allocator.ray.Coordinator`. clock : seconds.
    """

    def __init__(self, policy: Policy, round_seconds: float, clock: Callable[[], float]) -> None:
        self.policy, self._clock = policy, clock
        self._settings = MechanismSettings(round_seconds=round_seconds, decide_every_seconds=round_seconds)
        self._elastic = Need.CONFIGURATIONS in policy.needs
        self._trainers: dict[str, Trainer] = {}
        self._expected: dict[str, dict[str, Any]] = {}
        self._unit = "GPU"
        self._nodes: tuple[Node, ...] = ()
        self._world: World | None = None
        self._last: Verdict | None = None
        self._numbers = count()
        self._came_or_left = False
        self._measured: dict[str, Ways] = {}
        policy.prepare()

    # -- what is told -------------------------------------------------------------------------------------------------

    def see(self, nodes: Sequence[Mapping[str, Any]], held: Mapping[str, float] | None = None) -> None:
        """The nodes as Ray tells of them: their GPUs are divided, or their CPUs where nobody has a GPU.

        GPUs that are `held`, by id of the node, are not.
        """
        alive = [node for node in nodes if node["Alive"]]
        self._unit = "GPU" if any(node["Resources"].get("GPU") for node in alive) else "CPU"
        found = []
        for node in alive:
            kinds = [name.removeprefix(_RESOURCE) for name in node["Resources"] if name.startswith(_RESOURCE)]
            kind = (node.get("Labels") or {}).get(_TYPE) or (kinds or ["any"])[0]
            taken = (held or {}).get(node["NodeID"], 0.0) if self._unit == "GPU" else 0.0
            if (size := math.floor(node["Resources"].get(self._unit, 0) - taken)) > 0:
                found.append(Node(node["NodeID"], kind, size))
        found.sort(key=lambda node: node.name)
        if tuple(found) != self._nodes:
            self._nodes, self._world = tuple(found), None

    def expect(self, name: str, **told: Any) -> None:
        """What a trainer says of itself: fewest and most workers, total work, and seconds for it."""
        self._expected[name] = told
        known = self._trainers.pop(name, None)
        if known is not None:
            self.ask(name, [known.worker] * known.most, known.selectors, known.until)

    def ask(self, name: str, bundles: Sequence[Mapping[str, float]], selectors: Sequence[Any], until: float) -> None:
        """A trainer asks for as many workers as it may have, or says that it still does."""
        if name in self._trainers:
            self._trainers[name].until = until
            return
        worker = bundles[-1] if bundles else {}
        units = worker.get(self._unit, 0.0)
        if units < 1 or units != int(units):
            # Ray's own answer stands
            return
        told, now = self._expected.pop(name, {}), self._clock()
        fewest, most = int(told.get("fewest") or 1), int(told.get("most") or len(bundles))
        room = max((self._room(kind) for kind in {node.accelerator for node in self._nodes}), default=1) // int(units)
        within, total = told.get("within"), float(told.get("total") or 0.0)
        own = fewest if self._elastic else max(min(most, room), fewest)
        deadline = None if within is None else now + within
        job = Job(next(self._numbers), name, ("train",), gpus=own * int(units), total_steps=total, deadline=deadline)
        job.submitted_at = now
        label = str(told.get("label", ""))
        self._trainers[name] = Trainer(job, worker, selectors, int(units), fewest, most, until, label)
        self._came_or_left = True
        self.decide()

    def _room(self, kind: str) -> int:
        return sum(node.gpus for node in self._nodes if node.accelerator == kind)

    def leave(self, name: str) -> None:
        """A trainer is through."""
        if self._trainers.pop(name, None) is not None:
            self._came_or_left = True
            self.decide()

    def report(self, name: str, workers: int, work: float) -> None:
        """A trainer has done so much work so far, with so many workers now."""
        trainer, now = self._trainers.get(name), self._clock()
        if trainer is None:
            return
        trainer.job.steps = work
        if workers != trainer.workers or work < trainer.began:
            trainer.workers, trainer.since, trainer.began = workers, now, work
            return
        seconds, done = now - trainer.since, work - trainer.began
        pool = trainer.share.pool
        if seconds < _LEAST_SECONDS or done < _LEAST_WORK or not pool:
            return
        way, rate = (pool, workers * trainer.units), done / seconds
        known = trainer.job.measured.get(way)
        if known is None or abs(rate - known) > _NOTICED * known:
            trainer.job.measured = {**trainer.job.measured, way: rate}
            self._measured[name] = trainer.job.measured

    # -- what is decided ----------------------------------------------------------------------------------------------

    def decide(self) -> None:
        """Ask the policy, if something has happened that it may want to know, or it is time."""
        now = self._clock()
        for name in [name for name, trainer in self._trainers.items() if trainer.until < now]:
            del self._trainers[name]
            self._came_or_left = True
        jobs = {name: trainer.job for name, trainer in self._trainers.items()}
        last, fresh = self._last, self._world is None
        happened = self._came_or_left or bool(self._measured)
        due = fresh or last is None or now >= last.end or (happened and last.interruptible)
        # whoever waits is not kept waiting for a round to end
        due |= any(not trainer.share.pool for trainer in self._trainers.values()) and self._came_or_left
        if not due or not (jobs or self._came_or_left) or not self._nodes:
            return
        if self._world is None:
            self._world = World(Hardware(self._nodes), self.policy, self._settings)
            self._world.knowledge = _Curves(self._world.cluster.accelerators, self._trainers)
            last = None
        seconds = None if last is None else dict.fromkeys(last.wanted, now - last.clock)
        steps = {name: job.steps for name, job in jobs.items()}
        news = News(now, jobs, steps, self._measured, seconds)
        self._came_or_left, self._measured = False, {}
        self._last = self._world.decide(news)
        for name, trainer in self._trainers.items():
            wanted = self._last.wanted.get(name)
            # Ray Train does not take the last workers of a trainer that runs
            if wanted is not None or not trainer.workers:
                trainer.share = wanted or Placed()

    def share(self, name: str) -> dict[str, dict[str, float]] | None:
        """By node the resources that a trainer may have; None: it is not one of those that are decided about."""
        trainer = self._trainers.get(name)
        if trainer is None:
            return None
        workers = {node: len(positions) // trainer.units for node, positions in trainer.share.places.items()}
        # a worker whose units are on two nodes is put where there is room
        missing = len(trainer.share.gpus) // trainer.units - sum(workers.values())
        for node in list(workers)[:1]:
            workers[node] += missing
        return {node: {kind: amount * n for kind, amount in trainer.worker.items()} for node, n in workers.items() if n}

    def kind(self, name: str) -> str:
        """The accelerator type on which a trainer is to run; "" where there is no choice."""
        trainer = self._trainers.get(name)
        several = len({node.accelerator for node in self._nodes}) > 1
        return trainer.share.pool if trainer is not None and several else ""

    def status(self) -> list[dict[str, Any]]:
        """A row for each trainer."""
        return [
            {
                "id": name,
                "name": trainer.label,
                "workers": len(trainer.share.gpus) // trainer.units,
                "running": trainer.workers,
                "fewest": trainer.fewest,
                "most": trainer.most,
                "type": trainer.share.pool,
                "work": trainer.job.steps,
                "speeds": {f"{n // trainer.units} {kind}": rate for (kind, n), rate in trainer.job.measured.items()},
            }
            for name, trainer in self._trainers.items()
        ]
