"""The ideal world: no rounds, every job gets exactly its shares at every moment.

Between two events (arrivals, completions) job i goes at sum_j x_ij T_ij steps/s; the policy decides at every event. It
is what the round mechanism approximates (Gavel, OSDI'20, sec. 7.4: "ideal" beside the mechanism).

The published simulator's mode of this name differs: there, jobs complete only when another one arrives.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from allocator.protocol import RoundDecision
from allocator.simulator.observers import RoundOutcome
from allocator.simulator.world import World

__all__ = ["FluidWorld"]

# Relative to a job's total steps: what rounding leaves of a job that completes together with another.
STEP_TOLERANCE = 1e-9


class FluidWorld(World):
    """Runs the jobs at the shares of the allocation from event to event; parameters as in `World`.

    Of the settings of the mechanism only those of the policy's call matter; a policy is asked at every event. Shares
    that take more GPUs of a type than there are, as published baselines may return them, are cut in proportion.
    """

    def _step(self) -> bool:
        core = self.core
        if not len(core.active):
            if self._arrivals.next_time == np.inf:
                return False
            self._clock = self._arrivals.next_time
            return True
        calls = core.policy_calls
        shares = self._feasible(core.shares(self._clock))
        if core.policy_calls != calls:
            self._tell_decision()
        self._run_interval(core.active, shares)
        return True

    def _feasible(self, shares: NDArray[np.float64]) -> NDArray[np.float64]:
        """(n, M) `shares` with what is beyond the GPUs of a type cut in proportion, and none where a job cannot run."""
        active, cluster = self.core.active, self.core.cluster
        shares = np.where(self.jobs.rates[active] > 0, shares, 0.0)
        used = self.jobs.scale_factor[active] @ shares
        shares = shares * np.minimum(1.0, cluster.capacity / np.maximum(used, 1e-300))
        shares /= np.maximum(shares.sum(axis=1, keepdims=True), 1.0)
        return shares

    def _run_interval(self, active: NDArray[np.int64], shares: NDArray[np.float64]) -> None:
        table, clock = self.jobs, self._clock
        rates = table.rates[active]
        speed = (rates * shares).sum(axis=1)
        left = table.total_steps[active] - table.steps_done[active]
        running = speed > 0
        finish = np.full(len(active), np.inf)
        finish[running] = clock + left[running] / speed[running]
        end = min(float(finish.min()), self._arrivals.next_time, self.core.next_price_change)
        if end == np.inf:
            self._note_stall()
            self.core.note_trouble()
            return
        self._stalled_rounds = 0
        steps = np.where(finish <= end, left, np.minimum(speed * (end - clock), left))
        done = running & (left - steps <= STEP_TOLERANCE * table.total_steps[active])
        steps[done] = left[done]
        table.steps_done[active] += steps
        self._tell_interval(active, shares, rates, steps, speed, end)
        if done.any():
            self._complete(active[done], np.full(int(done.sum()), end))
        self.round += 1
        self._clock = end
        waiting = int((~running).sum())
        if waiting > self._max_waiting:
            self._saturate(waiting)

    def _tell_interval(
        self,
        active: NDArray[np.int64],
        shares: NDArray[np.float64],
        rates: NDArray[np.float64],
        steps: NDArray[np.float64],
        speed: NDArray[np.float64],
        end: float,
    ) -> None:
        """One row per job and type with a share; the steps of a job are split as its throughput is."""
        row, accelerator = np.nonzero(shares)
        share = shares[row, accelerator]
        part = rates[row, accelerator] * share / speed[row]
        decision = RoundDecision(active[row], accelerator.astype(np.int64))
        finish = np.full(len(row), end)
        outcome = RoundOutcome(self.round, self._clock, end, decision, finish, steps[row] * part, len(active), share)
        for observer in self.observers:
            observer.round_ended(outcome)
