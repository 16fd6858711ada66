"""The world in rounds.

A job runs at its true rate and completes inside a round; its GPUs are free for others at the next round. Two jobs that
share GPUs go at their co-located rates for the whole round, even when one of them completes before its end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from allocator.cluster import Cluster
from allocator.protocol.jobs import JobTable
from allocator.protocol import Policy, RoundDecision
from allocator.simulator.observers import RoundOutcome
from allocator.simulator.presets import Preset
from allocator.simulator.training import Restarts, TrainingRounds
from allocator.simulator.world import World
from throughputs import InputError

if TYPE_CHECKING:
    from throughputs.prices import PriceTable

__all__ = ["RoundWorld"]

# Relative to the steps of one round.
STEP_TOLERANCE = 1e-9

# What a job whose end is not noticed yet is taken to have left.
_UNNOTICED_STEPS = 1e-6

_Floats = NDArray[np.float64]


class RoundWorld(World):
    """Asks the core for the coming round and runs it; parameters as in `World`.

    Raises
    ------
    InputError
        Unconsolidated throughputs are wanted and there is no placement.
    """

    def __init__(
        self,
        jobs: JobTable,
        cluster: Cluster,
        policy: Policy,
        settings: Preset,
        seed: int,
        window: tuple[int, int] | None = None,
        prices: PriceTable | None = None,
    ) -> None:
        super().__init__(jobs, cluster, policy, settings, seed, window, prices)
        self.round_seconds = settings.mechanism.round_seconds
        self._last_end = 0.0
        self._n_types = len(cluster.accelerators)
        # Fractional steps add up to the total only nearly; a round must not be spent on the residue.
        self._nearly = 1.0 if self.settings.whole_steps else 1.0 + STEP_TOLERANCE
        self._zero_step_rounds = np.zeros(len(jobs), dtype=np.int64)
        self._spread: _SpreadGangs | None = None
        if self.settings.unconsolidated_throughputs:
            if settings.mechanism.placement == "off":
                raise InputError("settings", field="placement", found="off", expected="on, to know which gangs spread")
            self._spread = _SpreadGangs(cluster)
        own = self.settings
        self._restarts = Restarts(own, self.round_seconds, len(jobs)) if own.restart_penalty_seconds else None
        self._training = None if jobs.training is None else TrainingRounds(jobs, self._n_types)
        self._run_seconds = np.zeros(len(jobs))
        if own.finished_jobs_linger_rounds:
            jobs.least_steps_remaining = _UNNOTICED_STEPS
        self._set_rates()

    def _set_rates(self) -> None:
        """Rates and steps per round of all jobs, flat; rounds pick theirs by row number."""
        jobs = self.jobs
        self._rates = jobs.rates.ravel()
        self._steps_per_round = self._steps_of(self._rates)
        slowest = [jobs.rates] if jobs.unconsolidated_rates is None else [jobs.rates, jobs.unconsolidated_rates]
        self._may_stand_still = any(bool((self._steps_of(rates)[jobs.rates > 0] <= 0).any()) for rates in slowest)
        self._may_stand_still |= self.settings.finished_jobs_linger_rounds > 0
        self._known_jobs: NDArray[np.int64] | None = None
        self._known_full: _Floats = self._steps_per_round
        self._known_rates: _Floats = self._rates
        self._known_pairs: NDArray[np.int64] | None = None
        if jobs.colocation is not None:
            shared = jobs.colocation.together
            self._may_stand_still |= jobs.believed is not None
            self._may_stand_still |= bool((self._steps_of(shared)[shared > 0] <= 0).any())

    def _steps_of(self, rates: _Floats) -> _Floats:
        per_round: _Floats = rates * self.round_seconds
        return np.floor(per_round) if self.settings.whole_steps else per_round

    def _jobs_appended(self) -> None:
        new = len(self.jobs) - len(self._zero_step_rounds)
        self._zero_step_rounds = np.concatenate([self._zero_step_rounds, np.zeros(new, dtype=np.int64)])
        self._run_seconds = np.concatenate([self._run_seconds, np.zeros(new)])
        if self._restarts is not None:
            self._restarts.jobs_appended(len(self.jobs))
        self._set_rates()

    def _step(self) -> bool:
        decision = self._ask()
        if len(decision.jobs):
            self._run_round(decision)
        elif self._arrivals.next_time < np.inf:
            self._clock = self._arrivals.next_time
        elif len(self.core.active):
            self._run_out()
        else:
            return False
        return True

    def _ask(self, waive_interval: bool = False) -> RoundDecision:
        calls = self.core.policy_calls
        decision = self.core.next_round(self._clock, waive_interval=waive_interval)
        if self.core.policy_calls != calls:
            self._tell_decision()
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

    def _look_up(self, decision: RoundDecision) -> None:
        """Rates and full steps of the rows of a decision."""
        jobs = decision.jobs
        rows = jobs * self._n_types + decision.accelerator
        self._known_jobs = jobs
        self._known_full, self._known_rates = self._steps_per_round.take(rows), self._rates.take(rows)
        if decision.partner is not None:
            self._look_up_pairs(decision, decision.partner)
        spread_rates = self.jobs.unconsolidated_rates
        if self._spread is not None and spread_rates is not None:
            spread = self._spread.rows(decision)
            rates = np.where(spread, spread_rates.ravel().take(rows), self._known_rates)
            if self._known_pairs is not None:
                # Beside another a gang loses what it loses alone.
                lost = spread_rates.ravel().take(rows) / self._rates.take(rows)
                rates = np.where(spread, lost * self._known_rates, self._known_rates)
            self._known_full = np.where(spread, self._steps_of(rates), self._known_full)
            # A gang that stands still when it is spread does no step; what it is divided by does not matter.
            self._known_rates = np.where(rates > 0, rates, 1.0)

    def _look_up_pairs(self, decision: RoundDecision, partner: NDArray[np.int64]) -> None:
        """Rates of the rows that share GPUs, and where the first of each two is."""
        columns = self.jobs.colocation
        assert columns is not None
        shared = np.flatnonzero(partner >= 0)
        self._known_pairs = shared[::2]
        if not len(shared):
            return
        one, other = columns.group[decision.jobs[shared]], columns.group[partner[shared]]
        rates = self._known_rates.copy()
        rates[shared] = columns.together[one, other, decision.accelerator[shared]]
        # Two jobs that were wrongly believed to fit do no step; what that is divided by does not matter.
        self._known_rates, self._known_full = np.where(rates > 0, rates, 1.0), self._steps_of(rates)

    def _run_round(self, decision: RoundDecision) -> None:
        jobs, clock = decision.jobs, self._clock
        table = self.jobs
        if jobs is not self._known_jobs:
            # A round that repeats the one before comes with the same arrays.
            self._look_up(decision)
        full = self._known_full
        left = table.total_steps.take(jobs) - table.steps_done.take(jobs)
        np.maximum(left, 0.0, out=left)
        steps = np.minimum(full, left)
        finish = clock + steps / self._known_rates
        if self._known_pairs is not None and self.settings.pairs_end_together:
            first = self._known_pairs
            finish[first] = finish[first + 1] = np.maximum(finish[first], finish[first + 1])
        if self.settings.round_end == "slowest":
            end = float(finish.max())
        else:
            end = clock + self.round_seconds
            np.minimum(finish, end, out=finish)
        if self._restarts is not None:
            steps, trained = self._restarts.charge(jobs, steps, finish - clock, self.round)
            finish = clock + trained
        counted_from = self._last_end if self.settings.idle_gap_counts_as_service else clock
        active = len(self.core.active)
        self.core.record(decision, finish - counted_from)
        if self._known_pairs is not None and table.believed is not None:
            first = self._known_pairs
            self.core.measured_together(jobs[first], jobs[first + 1], decision.accelerator[first])
        table.steps_done[jobs] += steps
        done = steps * self._nearly >= left
        if self.settings.finished_jobs_linger_rounds:
            limit = self.settings.finished_jobs_linger_rounds
            done &= (left > 0) | (self._zero_step_rounds[jobs] + 1 >= limit)
        if self.settings.overtime_factor is not None:
            self._run_seconds[jobs] += finish - clock
            done |= self._in_overtime(jobs)
        if done.any():
            self._complete(jobs[done], finish[done])
        if self._may_stand_still:
            self._note_zero_steps(jobs, steps, done)
        else:
            self._stalled_rounds = 0
        if self._training is not None:
            self._follow_training(jobs[~done], self._known_rates[~done])
        outcome = RoundOutcome(self.round, clock, end, decision, finish, steps, active)
        for observer in self.observers:
            observer.round_ended(outcome)
        self.round += 1
        self._clock = self._last_end = end
        if active - len(jobs) > self._max_waiting:
            self._saturate(active - len(jobs))

    def _in_overtime(self, jobs: NDArray[np.int64]) -> NDArray[np.bool_]:
        """(K,) whether the job has run for longer than is tolerated."""
        assert self.settings.overtime_factor is not None
        assert self.jobs.training is not None
        profiled = self.jobs.training.profiles.total_seconds[jobs]
        late: NDArray[np.bool_] = self._run_seconds[jobs] > np.floor(self.settings.overtime_factor * np.floor(profiled))
        return late

    def _follow_training(self, ran: NDArray[np.int64], rates: _Floats) -> None:
        """Report the round to the ledger of training, and take over the rates of batch sizes that changed."""
        assert self._training is not None
        elapsed = (self.round + 1) * self.round_seconds
        changed, step_factor = self._training.round_ended(ran, rates, self.core.active, elapsed)
        if len(changed):
            exact = self.settings.batch_size_adaptation == "exact"
            self.core.rates_changed(changed, step_factor if exact else None)
            self._set_rates()

    def _note_zero_steps(self, jobs: NDArray[np.int64], steps: _Floats, done: NDArray[np.bool_]) -> None:
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
            self._give_up(jobs[(self._zero_step_rounds[jobs] >= limit) & ~done])


class _SpreadGangs:
    """Tells the gangs whose GPUs are on more than one server."""

    def __init__(self, cluster: Cluster) -> None:
        self._server: list[int] = []
        for name, gpus in cluster.gpus.items():
            first = self._server[-1] + 1 if self._server else 0
            per_server = int(cluster.gpus_per_server[name])
            self._server += [first + gpu // per_server for gpu in range(gpus)]

    def rows(self, decision: RoundDecision) -> NDArray[np.bool_]:
        """(K,) whether the gang of each row is spread."""
        server = self._server
        # GPU ids of a gang need not be sorted, so every one is looked at.
        spread = [len(ids) > 1 and len({server[gpu] for gpu in ids}) > 1 for ids in decision.gpus]
        return np.array(spread, dtype=np.bool_)
