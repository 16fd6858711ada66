"""The simulator: a world of jobs and GPUs around the decision core.

    while jobs are left:
        admit arrivals; ask the core for the coming round; run it; note completions

A job runs at its true rate and completes inside a round; its GPUs are free for others at the next round.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from allocator.cluster import Cluster
from allocator.jobs import JobTable
from allocator.mechanism.core import DecisionCore
from allocator.protocol import Policy, RoundDecision
from allocator.simulator.observers import Observer, Recorder, RoundOutcome
from allocator.simulator.presets import Preset
from allocator.simulator.presets import preset as find_preset
from allocator.simulator.record import RunRecord
from allocator.simulator.result import SimulationResult
from throughputs import Trace

if TYPE_CHECKING:
    from throughputs import ThroughputTable

__all__ = ["SimulationStalledError", "simulate"]

# Relative to the steps of one round.
STEP_TOLERANCE = 1e-9

Progress = Callable[[float, int, int], None]


class SimulationStalledError(RuntimeError):
    """The policy left all active jobs without progress for too many rounds."""


def simulate(
    trace: Trace,
    cluster: Cluster,
    policy: Policy,
    throughputs: ThroughputTable | ArrayLike,
    *,
    preset: str | Preset = "default",
    seed: int = 0,
    progress: Progress | None = None,
    observers: Sequence[Observer] = (),
) -> SimulationResult:
    """Run the jobs of `trace` on `cluster` under `policy` until all that can run have completed.

    Parameters
    ----------
    trace : N jobs in the order of their arrival.
    cluster : the GPUs, M types.
    policy : decides on shares of time.
    throughputs : a throughput table, or the (N, M) true rates in steps/s, types in the order of the cluster.
    preset : "default", "gavel", or a `Preset` of your own: ``preset("gavel").replace(round_seconds=720)``.
    seed : of all random draws of the run.
    progress : called as ``progress(clock, completed, jobs)`` when jobs complete; clock in seconds.
    observers : watch the run, see `allocator.simulator.observers`.

    Returns
    -------
    SimulationResult
        Tables of jobs, rounds and decisions. Jobs that no type can run are left uncompleted (status "unserved").

    Raises
    ------
    InputError
        Throughputs that do not fit trace and cluster, an unknown preset, or bad shares from the policy.
    SimulationStalledError
        No job made progress for `max_rounds_without_progress` rounds.
    """
    prepare = getattr(policy, "prepare", None)
    if prepare is not None:
        prepare()
    started = time.perf_counter()
    chosen = find_preset(preset)
    jobs = JobTable.from_trace(trace, throughputs, cluster)
    recorder = Recorder()
    world = _World(jobs, cluster, policy, chosen, seed, progress, (recorder, *observers))
    world.run()
    record = RunRecord(jobs, cluster, recorder.outcomes, frozenset(world.dropped))
    return SimulationResult(
        policy=policy.name,
        cluster=cluster,
        settings=chosen.as_dict() | {"seed": seed, "trace": trace.source},
        makespan=record.makespan,
        utilization=record.utilization,
        policy_seconds=world.core.policy_seconds,
        wall_seconds=time.perf_counter() - started,
        decisions=tuple(recorder.decisions),
        record=record,
    )


class _World:
    """Clock, arrivals and progress of the jobs."""

    def __init__(
        self,
        jobs: JobTable,
        cluster: Cluster,
        policy: Policy,
        settings: Preset,
        seed: int,
        progress: Progress | None,
        observers: Sequence[Observer],
    ) -> None:
        self.jobs = jobs
        self.core = DecisionCore(policy, cluster, jobs, settings.mechanism, seed)
        self.settings = settings.simulator
        self.round_seconds = settings.mechanism.round_seconds
        self.progress = progress
        self.observers = observers
        self.dropped: set[int] = set()
        self.completed = 0
        self._clock = 0.0
        self._last_end = 0.0
        self._round = 0
        self._stalled_rounds = 0
        # Jobs that no type can run are not shown to the core: they would never leave it.
        self._queue: NDArray[np.int64] = np.flatnonzero(jobs.runnable)
        self._arrivals = jobs.arrival_time[self._queue]
        self._admitted = 0
        self._next_arrival = self._arrivals[0] if len(self._arrivals) else np.inf
        self._n_types = len(cluster.accelerators)
        self._rates = jobs.rates.ravel()
        per_round = self._rates * self.round_seconds
        self._steps_per_round = np.floor(per_round) if self.settings.whole_steps else per_round
        # Fractional steps add up to the total only nearly; a round must not be spent on the residue.
        self._nearly = 1.0 if self.settings.whole_steps else 1.0 + STEP_TOLERANCE
        self._may_stand_still = bool((self._steps_per_round[self._rates > 0] <= 0).any())
        self._known_jobs: NDArray[np.int64] | None = None
        self._known_full: NDArray[np.float64] = per_round
        self._known_rates: NDArray[np.float64] = per_round
        self._zero_step_rounds = np.zeros(len(jobs), dtype=np.int64)

    def run(self) -> None:
        """Run until no job is left that can run."""
        core = self.core
        while True:
            if self._next_arrival <= self._clock:
                self._admit()
            decision = self._ask()
            if len(decision.jobs):
                self._run_round(decision)
            elif self._next_arrival < np.inf:
                self._clock = self._next_arrival
            elif len(core.active):
                self._run_out()
            else:
                return

    def _admit(self) -> None:
        upto = int(self._arrivals.searchsorted(self._clock, side="right"))
        self.core.arrive(self._queue[self._admitted : upto])
        self._admitted = upto
        self._next_arrival = self._arrivals[upto] if upto < len(self._arrivals) else np.inf

    def _ask(self, waive_interval: bool = False) -> RoundDecision:
        calls = self.core.policy_calls
        decision = self.core.next_round(self._clock, waive_interval=waive_interval)
        if self.core.policy_calls != calls and self.core.allocation is not None:
            for observer in self.observers:
                observer.decided(self._round, self._clock, self.core.allocation)
        return decision

    def _run_out(self) -> None:
        """Nothing runs and nothing will arrive: only a new decision can help."""
        decision = self._ask(waive_interval=True)
        if len(decision.jobs):
            self._run_round(decision)
        else:
            self._note_stall()
            self._clock += self.round_seconds
            self.core.note_trouble()

    def _run_round(self, decision: RoundDecision) -> None:
        jobs, clock = decision.jobs, self._clock
        table = self.jobs
        if jobs is not self._known_jobs:
            # A round that repeats the one before comes with the same arrays.
            rows = jobs * self._n_types + decision.accelerator
            self._known_jobs = jobs
            self._known_full, self._known_rates = self._steps_per_round.take(rows), self._rates.take(rows)
        full = self._known_full
        left = table.total_steps.take(jobs) - table.steps_done.take(jobs)
        steps = np.minimum(full, left)
        finish = clock + steps / self._known_rates
        if self.settings.round_end == "slowest":
            end = float(finish.max())
        else:
            end = clock + self.round_seconds
            np.minimum(finish, end, out=finish)
        counted_from = self._last_end if self.settings.idle_gap_counts_as_service else clock
        active = len(self.core.active)
        self.core.record(decision, finish - counted_from)
        table.steps_done[jobs] += steps
        done = steps * self._nearly >= left
        if done.any():
            self._complete(jobs[done], finish[done])
        if self._may_stand_still:
            self._note_zero_steps(jobs, steps)
        else:
            self._stalled_rounds = 0
        outcome = RoundOutcome(self._round, clock, end, decision, finish, steps, active)
        for observer in self.observers:
            observer.round_ended(outcome)
        self._round += 1
        self._clock = self._last_end = end

    def _complete(self, jobs: NDArray[np.int64], finish: NDArray[np.float64]) -> None:
        table = self.jobs
        table.steps_done[jobs] = table.total_steps[jobs]
        table.completion_time[jobs] = finish
        self.core.complete(jobs)
        self.completed += len(jobs)
        if self.progress is not None:
            self.progress(float(finish.max()), self.completed, len(table))

    def _note_zero_steps(self, jobs: NDArray[np.int64], steps: NDArray[np.float64]) -> None:
        idle = steps <= 0
        if idle.all():
            self._note_stall()
        else:
            self._stalled_rounds = 0
        self._zero_step_rounds[jobs] = np.where(idle, self._zero_step_rounds[jobs] + 1, 0)
        if idle.any():
            self.core.note_trouble()
        limit = self.settings.max_zero_step_rounds
        if limit is not None:
            given_up = jobs[self._zero_step_rounds[jobs] >= limit]
            self.core.complete(given_up)
            self.dropped.update(given_up.tolist())

    def _note_stall(self) -> None:
        self._stalled_rounds += 1
        if self._stalled_rounds >= self.settings.max_rounds_without_progress:
            waiting = self.core.active.tolist()
            shown = ", ".join(map(str, waiting[:5])) + (", ..." if len(waiting) > 5 else "")
            raise SimulationStalledError(
                f"policy {self.core.policy.name}: no job made progress in {self._stalled_rounds} rounds up to "
                f"{self._clock:.0f} s; {len(waiting)} active jobs: {shown}"
            )
