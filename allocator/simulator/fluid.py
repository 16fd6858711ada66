"""The ideal world: no rounds, every job gets exactly its shares at every moment.

Between two events (arrivals, completions) job i goes at sum_j x_ij T_ij steps/s; the policy decides at every event. It
is what the round mechanism approximates (Gavel, OSDI'20, sec. 7.4: "ideal" beside the mechanism).

The published simulator's mode of this name differs: there, jobs complete only when another one arrives.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from allocator.protocol import RoundDecision
from allocator.simulator.observers import RoundOutcome
from allocator.simulator.world import World
from throughputs.numerics import matmul

if TYPE_CHECKING:
    from formulations import Pairs

__all__ = ["FluidWorld"]

# Relative to a job's total steps: what rounding leaves of a job that completes together with another.
STEP_TOLERANCE = 1e-9

_Floats = NDArray[np.float64]
_Ids = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class _SharedTime:
    """P pairs of active jobs (positions), the lower one first.

    Attributes
    ----------
    first, second, accelerator : (P,) positions.
    share : (P,) share of time.
    rates : (P, 2) steps/s of the two.
    """

    first: _Ids
    second: _Ids
    accelerator: _Ids
    share: _Floats
    rates: _Floats

    @classmethod
    def of(cls, pairs: Pairs, group: _Ids, together: _Floats) -> _SharedTime:
        """The pairs that have a share and make progress; `group` is by active job."""
        first, second = np.minimum(pairs.first, pairs.second), np.maximum(pairs.first, pairs.second)
        one, other, j = group[first], group[second], pairs.accelerator
        rates = np.stack([together[one, other, j], together[other, one, j]], axis=1)
        kept = (pairs.share > 0) & (rates > 0).all(axis=1)
        return cls(first[kept], second[kept], j[kept], pairs.share[kept], rates[kept])

    def scaled(self, factor: _Floats) -> _SharedTime:
        """The same with other shares."""
        return replace(self, share=self.share * factor)

    def per_job(self, values: _Floats, n: int) -> _Floats:
        """(n,) sum over the pairs of each job of `values` (P, 2) times the share."""
        weighted = values * self.share[:, None]
        of_first = np.bincount(self.first, weighted[:, 0], minlength=n)
        return np.asarray(of_first + np.bincount(self.second, weighted[:, 1], minlength=n))

    def beside(self, active: _Ids) -> _Ids:
        """(2P,) ids of the partners, of both jobs of a pair in turn."""
        return np.asarray(active[np.stack([self.second, self.first], axis=1).ravel()])


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
        shares = core.shares(self._clock)
        if core.policy_calls != calls:
            self._tell_decision()
        if self._measure(core.pairs):
            return True  # the policy decides anew before any time has passed
        shares, pairs = self._feasible(shares, core.pairs)
        self._run_interval(core.active, shares, pairs)
        return True

    def _measure(self, pairs: Pairs | None) -> bool:
        """Learn what pairs that have a share do together; answers whether it is news."""
        if pairs is None or self.jobs.believed is None:
            return False
        shared, active = pairs.share > 0, self.core.active
        one, other = active[pairs.first[shared]], active[pairs.second[shared]]
        return self.core.measured_together(one, other, pairs.accelerator[shared])

    def _feasible(self, shares: _Floats, pairs: Pairs | None) -> tuple[_Floats, _SharedTime | None]:
        """(n, M) `shares` with what is beyond the GPUs of a type cut in proportion, and none where a job cannot run.

        The same for `pairs`; None where there are none.
        """
        active, cluster = self.core.active, self.core.cluster
        shares = np.where(self.jobs.rates[active] > 0, shares, 0.0)
        sizes = self.jobs.scale_factor[active]
        used = matmul(sizes, shares)
        if pairs is None or not len(pairs) or self.jobs.colocation is None:
            shares = shares * np.minimum(1.0, cluster.capacity / np.maximum(used, 1e-300))
            shares /= np.maximum(shares.sum(axis=1, keepdims=True), 1.0)
            return shares, None
        time = _SharedTime.of(pairs, self.jobs.colocation.group[active], self.jobs.colocation.together)
        used = used + np.bincount(time.accelerator, sizes[time.first] * time.share, minlength=len(used))
        kept = np.minimum(1.0, cluster.capacity / np.maximum(used, 1e-300))
        time = time.scaled(kept[time.accelerator])
        shares = shares * kept
        busy = np.maximum(shares.sum(axis=1) + time.per_job(np.ones((len(time.share), 2)), len(active)), 1.0)
        return shares / busy[:, None], time.scaled(1.0 / np.maximum(busy[time.first], busy[time.second]))

    def _run_interval(self, active: NDArray[np.int64], shares: _Floats, pairs: _SharedTime | None) -> None:
        table, clock = self.jobs, self._clock
        rates = table.rates[active]
        speed = (rates * shares).sum(axis=1)
        if pairs is not None:
            speed = speed + pairs.per_job(pairs.rates, len(active))
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
        self._tell_interval(active, shares, rates, steps, speed, end, pairs)
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
        shares: _Floats,
        rates: _Floats,
        steps: _Floats,
        speed: _Floats,
        end: float,
        pairs: _SharedTime | None,
    ) -> None:
        """One row per job and type with a share, two per pair; the steps of a job are split as its throughput is."""
        row, accelerator = np.nonzero(shares)
        share = shares[row, accelerator]
        part = rates[row, accelerator] * share / speed[row]
        partner = None if self.core.pairs is None else np.full(len(row), -1, dtype=np.int64)
        if pairs is not None and partner is not None:
            both, beside = np.stack([pairs.first, pairs.second], axis=1).ravel(), pairs.beside(active)
            row, partner = np.concatenate([row, both]), np.concatenate([partner, beside])
            accelerator = np.concatenate([accelerator, np.repeat(pairs.accelerator, 2)])
            share = np.concatenate([share, np.repeat(pairs.share, 2)])
            part = np.concatenate([part, (pairs.rates * pairs.share[:, None]).ravel() / speed[both]])
        decision = RoundDecision(active[row], accelerator.astype(np.int64), partner=partner)
        finish = np.full(len(row), end)
        outcome = RoundOutcome(self.round, self._clock, end, decision, finish, steps[row] * part, len(active), share)
        for observer in self.observers:
            observer.round_ended(outcome)
