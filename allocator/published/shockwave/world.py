"""What the simulator of Shockwave does that Gavel's does not, and its planner as published, solved in our form.

Source: Zheng et al., NSDI 2023, public artifact.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from allocator.conversion import NotNegative, NotNegativeWhole, Seconds
from allocator.policies.shockwave.memory import ShockwaveMemory
from allocator.policies.shockwave.policy import Shockwave
from allocator.protocol import ClusterState
from allocator.protocol.jobs import JobTable
from allocator.protocol.plan import UpcomingRounds
from allocator.protocol.views import Need, Needs
from allocator.published.gavel.world import IdleTime
from allocator.simulator.rules.base import Round, Rules, RunningRule, rule_of
from allocator.simulator.rules.general import BatchSizes
from allocator.simulator.rules.starts import Starts, StartsTakeTime
from formulations.shockwave import PlanningProgram
from throughputs.arrays import Floats, Ints, Positions
from throughputs.training.forecast import ForecastMode

if TYPE_CHECKING:
    from allocator.simulator.world import World

# What a job whose end is not noticed yet is taken to have left.
_UNNOTICED_STEPS = 1e-6


@dataclass(frozen=True)
class ShortRoundsStartFree(StartsTakeTime):
    """Gangs that are done early pay nothing for their start.

    Attributes
    ----------
    restart_penalty_slack_seconds : a gang that is done more than this before a full round is over pays no penalty;
        None: every gang pays.
    """

    restart_penalty_slack_seconds: Seconds | None = None

    def in_a_run(self, world: World) -> Starts:
        """Who starts, and is not spared."""
        return _Starts(self, world)


class _Starts(Starts):
    def __init__(self, rule: ShortRoundsStartFree, world: World) -> None:
        super().__init__(rule, world)
        self._slack = rule.restart_penalty_slack_seconds

    def spared_below(self, r: Round, lost: Floats) -> Floats:
        """With slack."""
        return lost if self._slack is None else np.maximum(r.seconds - self._slack, lost)


@dataclass(frozen=True)
class RoundedBatchSizes(BatchSizes):
    """Jobs of mode accordion and gns.

    Attributes
    ----------
    batch_size_adaptation : as in `BatchSizes`, and "published": one of their rounds late, and with progress rounded up
        to a whole epoch.
    """

    batch_size_adaptation: Literal["off", "exact", "published"] = "exact"  # type: ignore[assignment]

    @property
    def about_jobs(self) -> Mapping[str, Any]:
        """Profiles are rounded, too."""
        return {"published_profiles": True} if self.batch_size_adaptation == "published" else {}

    def course(self, world: Rules) -> Mapping[str, Any]:
        """Progress may be rounded beyond the end only where jobs linger then."""
        linger = rule_of(world, UnnoticedEnds).finished_jobs_linger_rounds > 0
        return {"published": self.batch_size_adaptation == "published", "past_the_end": linger}


@dataclass(frozen=True)
class UnnoticedEnds(IdleTime):
    """Jobs that are through, or should be by their profiles, and are not seen to be.

    Attributes
    ----------
    idle_gap_counts_as_service, max_zero_step_rounds : as in `IdleTime`.
    finished_jobs_linger_rounds : with `batch_size_adaptation` "published", progress may be rounded to the end of a job
        and beyond, and the job keeps its GPUs for so many rounds then; 0: progress is never rounded that far.
    overtime_factor : a job counts as completed when it has run for so many times its profiled duration; None: never.
    """

    finished_jobs_linger_rounds: NotNegativeWhole = 0
    overtime_factor: NotNegative | None = None

    @property
    def needs(self) -> Needs:
        """Profiles, for overtime."""
        return Need.NOTHING if self.overtime_factor is None else Need.TRAINING

    def start(self, world: World) -> Iterator[RunningRule]:
        """Who lingers first."""
        if self.finished_jobs_linger_rounds:
            yield _EndsUnnoticed(self.finished_jobs_linger_rounds, world.jobs)
        if self.overtime_factor is not None:
            yield _CutsOffOvertime(self.overtime_factor, world.jobs)
        yield from super().start(world)

    @property
    def counts_idle_rounds(self) -> bool:
        """Those who linger are told by that."""
        return super().counts_idle_rounds or self.finished_jobs_linger_rounds > 0


class _EndsUnnoticed(RunningRule):
    """A job whose rounded progress reached its end keeps its GPUs for some rounds without a step."""

    lets_idle = True

    def __init__(self, rounds: int, jobs: JobTable) -> None:
        self._rounds, self._table = rounds, jobs
        jobs.least_steps_remaining = _UNNOTICED_STEPS

    def settle(self, r: Round) -> None:
        """Through only after these rounds, which `_CountsIdleRounds` counts."""
        idle = self._table.columns["rounds_without_step"][self._table.rows(r.jobs)]
        r.done &= (r.left > 0) | (idle + 1 >= self._rounds)


class _CutsOffOvertime(RunningRule):
    """A job that has run for so many times its profiled duration is taken off, whatever it has left."""

    def __init__(self, factor: float, jobs: JobTable) -> None:
        self._factor, self._table = factor, jobs
        jobs.register("run_seconds", 0.0)

    def settle(self, r: Round) -> None:
        """Those beyond their time are done, as they are."""
        table = self._table
        at, run = table.rows(r.jobs), table.columns["run_seconds"]
        run[at] += r.finish - r.clock
        assert table.training is not None
        profiled = table.training.profiles.total_seconds[at]
        late = run[at] > np.floor(self._factor * np.floor(profiled))
        r.cut_off = late & ~r.done
        r.done |= late

    def sums(self) -> list[Floats]:
        """How long each job has run."""
        return [self._table.columns["run_seconds"]]

    def rounds_left(self, jobs: Ints, seconds: float) -> float:
        """Until the first of them is beyond its time."""
        at = self._table.rows(jobs)
        assert self._table.training is not None
        allowed = self._factor * np.floor(self._table.training.profiles.total_seconds[at])
        return float(((allowed - self._table.columns["run_seconds"][at]) / seconds).min(initial=np.inf)) - 1


@dataclass(frozen=True)
class PublishedShockwave(Shockwave):
    """Time is the number of the round times D, whatever the rounds lasted, and rho counts from the start of the clock.

    So rho is the closer to 1 the later a job arrives, whatever happens to it. The code knows the batch sizes to come.
    """

    forecast: ForecastMode = "oracle"
    fairness_rows: str = "published"
    priority_cap: float | None = None
    momentum: float = 0.9

    def _program(
        self,
        state: ClusterState,
        jobs: Positions,
        kind: int,
        upcoming: UpcomingRounds,
        memory: ShockwaveMemory,
    ) -> PlanningProgram:
        """The program of the coming rounds by that clock."""
        program = super()._program(state, jobs, kind, upcoming, memory)
        return replace(program, now_seconds=upcoming.number * upcoming.seconds, start_seconds=0.0)
