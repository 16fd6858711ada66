"""Settings of the simulated world: what happens inside a round."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from allocator.simulator.restarts import RestartCost
from throughputs import InputError

__all__ = ["SimulatorSettings"]


@dataclass(frozen=True)
class SimulatorSettings:
    """How the simulated world carries a round out. The length of a round is a setting of the mechanism.

    Attributes
    ----------
    round_end : "fixed": rounds have their full length; "slowest": a round ends when the slowest of its jobs has done
        its steps of this round, which is a little earlier when steps are whole.
    whole_steps : a job does a whole number of steps per round, so a job slower than one step per round never
        progresses; otherwise it uses the whole round.
    idle_gap_counts_as_service : time in which the cluster stood idle before a round counts as time received by the
        jobs of that round.
    pairs_end_together : of two jobs that share GPUs in a round, the one that has done its steps first counts as busy
        until the other has too, and completes then.
    max_zero_step_rounds : a job is given up after so many of its rounds in a row without a step; None: never.
    max_rounds_without_progress : the simulation stops with an error after so many rounds in a row in which no job did
        a step although some are active and no arrival is to come.
    ideal : no rounds; at every moment each job gets exactly its shares, and the policy decides at every arrival and
        completion (`allocator.simulator.fluid`). The settings of rounds and queues then mean nothing.
    unconsolidated_throughputs : a gang whose GPUs are on more than one server goes at the throughput that the table
        has for that. Policies reckon with the consolidated one.
    restart_penalty_seconds : a gang that did not run the round before trains so much less; not in the first round.
    restart_penalty_slack_seconds : a gang that is done more than this before a full round is over pays no penalty;
        None: every gang pays.
    restart_penalty_per_doubling_seconds : as much more for each time that its number of GPUs doubles from 1.
    restart_penalty_by_gpus : pairs (GPUs, seconds), ascending: what it costs to start a gang of so many GPUs or more,
        instead of restart_penalty_seconds; that is for gangs of fewer.
    restart_penalty_by_job_type : pairs (job type, seconds), instead of the others for these types.
    restart_when_moved : a job that goes on with other GPUs, or another number of them, starts anew too.
    batch_size_adaptation : whether jobs of mode accordion and gns change their batch size. "off": never; "exact": as
        their rule says, keeping their progress; "published": as the simulator of Shockwave does, one of their rounds
        late and with progress rounded up to a whole epoch.
    finished_jobs_linger_rounds : with "published", progress may be rounded to the end of a job and beyond, and the job
        keeps its GPUs for so many rounds then; 0: progress is never rounded that far.
    overtime_factor : a job counts as completed when it has run for so many times its profiled duration; None: never.
    max_waiting_jobs : the run is cut short as saturated when more jobs wait in a round; None: no limit.
    max_clock_seconds : the run is cut short as saturated when the clock passes this time; None: no limit.

    Raises
    ------
    InputError
        A setting outside its range.
    """

    round_end: Literal["fixed", "slowest"] = "fixed"
    whole_steps: bool = False
    idle_gap_counts_as_service: bool = False
    pairs_end_together: bool = False
    max_zero_step_rounds: int | None = None
    max_rounds_without_progress: int = 100
    ideal: bool = False
    unconsolidated_throughputs: bool = False
    restart_penalty_seconds: float = 0.0
    restart_penalty_slack_seconds: float | None = None
    restart_penalty_per_doubling_seconds: float = 0.0
    restart_penalty_by_gpus: tuple[tuple[int, float], ...] = ()
    restart_penalty_by_job_type: tuple[tuple[str, float], ...] = ()
    restart_when_moved: bool = False
    batch_size_adaptation: Literal["off", "exact", "published"] = "exact"
    finished_jobs_linger_rounds: int = 0
    overtime_factor: float | None = None
    max_waiting_jobs: int | None = None
    max_clock_seconds: float | None = None

    @property
    def restart_cost(self) -> RestartCost:
        """What it costs to start a gang."""
        return RestartCost(
            self.restart_penalty_seconds,
            self.restart_penalty_per_doubling_seconds,
            self.restart_penalty_by_gpus,
            self.restart_penalty_by_job_type,
            self.restart_when_moved,
        )

    def __post_init__(self) -> None:
        if self.round_end not in ("fixed", "slowest"):
            raise InputError("simulator settings", field="round_end", found=self.round_end, expected="fixed or slowest")
        if self.batch_size_adaptation not in ("off", "exact", "published"):
            found = self.batch_size_adaptation
            expected = "off, exact or published"
            raise InputError("simulator settings", field="batch_size_adaptation", found=found, expected=expected)
        for name in ("max_zero_step_rounds", "max_rounds_without_progress"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise InputError("simulator settings", field=name, found=value, expected="at least 1")
        for name in (
            "max_waiting_jobs",
            "max_clock_seconds",
            "restart_penalty_seconds",
            "restart_penalty_slack_seconds",
            "restart_penalty_per_doubling_seconds",
            "finished_jobs_linger_rounds",
            "overtime_factor",
        ):
            value = getattr(self, name)
            if value is not None and not value >= 0:
                raise InputError("simulator settings", field=name, found=value, expected="at least 0")
        for name in ("ideal", "unconsolidated_throughputs", "whole_steps", "pairs_end_together", "restart_when_moved"):
            if not isinstance(getattr(self, name), bool):
                raise InputError("simulator settings", field=name, found=getattr(self, name), expected="true or false")
        counts = [gpus for gpus, _ in self.restart_penalty_by_gpus]
        costs = [cost for _, cost in (*self.restart_penalty_by_gpus, *self.restart_penalty_by_job_type)]
        if counts != sorted(set(counts)) or any(not cost >= 0 for cost in costs):
            given = (self.restart_penalty_by_gpus, self.restart_penalty_by_job_type)
            expected = "pairs with seconds of at least 0, numbers of GPUs ascending"
            raise InputError("simulator settings", field="restart_penalty_by_gpus", found=given, expected=expected)
