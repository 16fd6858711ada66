"""Shockwave: a market over the coming rounds, for jobs whose batch size changes as they train."""

from __future__ import annotations

from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np

from allocator.conversion import AtLeastOne, NotNegative, Part, Positive, PositiveSeconds
from allocator.policies.base.programs import Prepared
from allocator.policies.shockwave.memory import ShockwaveMemory
from allocator.protocol import Assignment, ClusterState, Need, Plan, PlanPolicy, PlanStep, Trigger, UpcomingRounds
from allocator.protocol.allocation import Allocation
from allocator.protocol.state import the_one_type
from allocator.registry import register
from formulations.shockwave import PlanningProgram, solve_plan
from throughputs.arrays import Positions
from throughputs.numerics import tie_order
from throughputs.training import ForecastMode, Profiles, Regimes, forecast_jobs
from throughputs.training.forecast import CALIBRATION_BAND

if TYPE_CHECKING:
    from formulations.shockwave import PlanSolution


@register(
    "shockwave",
    paper="Zheng et al., NSDI 2023, sec. 4 and 5",
    program="max_s sum_j pr_j U_j / (N R) - k max_j L_j, s_jr in {0, 1}, sum_j w_j s_jr <= c in each of R rounds",
)
@dataclass(frozen=True)
class Shockwave(Prepared, PlanPolicy):
    """Plan the coming rounds for the welfare of all, fairness of finish times and a short makespan.

        max_s   sum_j pr_j U_j / (N R)  -  k max_j L_j            s_jr in {0, 1}: job j runs in round r
        with    sum_j w_j s_jr <= c                               in each of the R rounds
                d_j p_j <= D sum_r s_jr                           p_j: epochs that j gets through in the window
                U_j = log((e_j + p_j) / E_j), piecewise linear    L_j = max(0, Rem_j - d_j p_j), seconds left after it

    E_j epochs, e_j of them over; d_j seconds per epoch, the mean of those so far; Rem_j the run time left as forecast
    (`throughputs.training.forecast`). Jobs shall finish by T_j, when they would have on a fair share of the cluster,
    s = min(1, c / N)::

        F_j = admitted_j + (seconds of the e_j epochs + Rem_j) / s        at each change of the set of jobs
        T_j = momentum * mean of all F_j, each weighted by the rounds for which it was the latest
              + (1 - momentum) * latest F_j

    Asked for first is a plan with ``pr_j = 1`` that keeps every job to its T_j (`fairness_rows`). If there is none,
    jobs whose estimate ``rho_j = (now - admitted_j + Rem_j / s) / (T_j - admitted_j)`` exceeds `largest_rho` are given
    more weight, ``pr_j = rho_j^lambda``, and the urgent ones come early in the window. GPUs that are left go to the
    jobs with the longest run time left. See `formulations.shockwave.PlanningProgram`.

    For clusters with one type of accelerator. Where nothing is known of how jobs train, a job is taken to have one
    regime of a hundred epochs between its first plan and its end.

    Parameters
    ----------
    future_rounds : R, length of the window.
    makespan_weight : k, per second.
    fairness_exponent : lambda.
    largest_rho : finish-time fairness up to which a job counts as served fairly.
    bases : shares of a job's epochs between which the logarithm is replaced by straight pieces.
    forecast : what may be known of the batch sizes to come, "oracle", "causal" or "true"
        (`throughputs.training.forecast.ForecastMode`).
    calibration_band : relative distance of measured from profiled progress up to which profiles are believed; None:
        always.
    whole_seconds : whether profiled epochs last whole seconds, and at least one.
    fairness_rows : "own_finish": a job that has to finish inside the window is held to its own finish. "published":
        every job is held to its T_j as if it ran to the end of the window. "off": no such plan is asked for.
    priority_cap : most that pr_j may be; None: no limit, beyond what double precision can tell apart.
    relative_gap, time_limit_seconds : when the search for a better plan ends.
    form, solver, ordering : "rounds": a number of rounds for each job, which are given their places then; "binaries":
        every s_jr, as published. These three, and the two before, are those of `formulations.shockwave.solve_plan`.
    momentum : see above; 0.9 as published. The mean is slow to take in better forecasts, the latest estimate swings
        with the number of jobs.
    replan_rounds : a plan is replaced after so many rounds.
    round_seconds : D where no round is about to start (`allocate`).
    """

    future_rounds: AtLeastOne = 20
    makespan_weight: float = 1e-3
    fairness_exponent: float = 12.0
    largest_rho: float = 1.0
    bases: tuple[float, ...] = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
    forecast: ForecastMode = "causal"
    calibration_band: NotNegative | None = CALIBRATION_BAND
    whole_seconds: bool = True
    fairness_rows: str = "own_finish"
    priority_cap: float | None = 1e5
    relative_gap: Positive = 1e-3
    time_limit_seconds: Positive = 15.0
    form: str = "rounds"
    solver: Literal["auto", "highs", "cbc"] = "auto"
    ordering: str = "auto"
    momentum: Part = 0.5
    replan_rounds: AtLeastOne = 8
    round_seconds: PositiveSeconds = 120.0

    needs = Need.TRAINING | Need.LENGTHS
    triggers: ClassVar[Trigger] = Trigger.ARRIVAL | Trigger.COMPLETION
    heterogeneity_aware: ClassVar[bool] = False
    in_rounds: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "replan_steps", self.replan_rounds)

    def new_memory(self) -> ShockwaveMemory:
        """An empty memory."""
        return ShockwaveMemory()

    def plan(self, state: ClusterState, memory: ShockwaveMemory) -> Plan:
        """Who runs in each of the coming rounds.

        Raises
        ------
        InputError
            More than one type of the cluster has GPUs.
        """
        started = perf_counter()
        upcoming = state.upcoming or UpcomingRounds(int(state.clock // self.round_seconds), self.round_seconds)
        kind = the_one_type(state, self.name)
        gpus = int(state.capacity[kind])
        runs = (state.rates[:, kind] > 0) & (state.scale_factors <= gpus) & (state.steps_remaining > 0)
        # of jobs alike in everything, the order of labels decides
        order = tie_order(state.throughputs.jobs)
        jobs = order[runs[order]]
        if not len(jobs):
            memory.align(())
            memory.regimes = None
            return self._idle(state, perf_counter() - started)
        program = self._program(state, jobs, kind, upcoming, memory)
        solution = solve_plan(
            program,
            form=self.form,
            solver=self.solver,
            relative_gap=self.relative_gap,
            time_limit_seconds=self.time_limit_seconds,
            ordering=self.ordering,
        )
        return self._as_plan(state, jobs, kind, solution, started)

    def _program(
        self,
        state: ClusterState,
        jobs: Positions,
        kind: int,
        upcoming: UpcomingRounds,
        memory: ShockwaveMemory,
    ) -> PlanningProgram:
        """The program of the coming rounds for some of the jobs (positions); `memory` is brought up to date."""
        view, gpus = state.training, int(state.capacity[kind])
        left = state.steps_remaining[jobs] / state.rates[jobs, kind]

        def regimes_of(new: Positions) -> Regimes:
            if view is None:
                return Regimes.of(Profiles.steady(state.steps_remaining[jobs[new]], left[new]), whole_seconds=False)
            return Regimes.of(view.take(jobs[new]).profiles, whole_seconds=self.whole_seconds)

        labels = tuple(state.throughputs.jobs[i] for i in jobs)
        regimes, changed = memory.recall(labels, upcoming.number, regimes_of)
        if view is None:
            done = ((1.0 - left / regimes.finished_seconds(regimes.epochs)) * regimes.epochs).astype(np.int64)
        else:
            done = view.epochs_done[jobs]
        # a job that is still here is in its last epoch at the latest
        done = np.clip(done, 0, regimes.epochs - 1)
        ahead = forecast_jobs(
            regimes,
            done,
            mode=self.forecast,
            measured_samples=None if view is None else view.measured_samples[jobs],
            measured_seconds=None if view is None else view.measured_seconds[jobs],
            factor=memory.factor,
            band=self.calibration_band,
        )
        memory.factor = ahead.factor
        share = min(1.0, gpus / len(jobs))
        arrived = np.maximum(state.clock - state.elapsed_seconds[jobs], 0.0)
        start = arrived if view is None else view.admitted_seconds[jobs]
        if changed:
            memory.estimate(start + (ahead.finished_seconds + ahead.remaining_seconds) / share, upcoming.number)
        return PlanningProgram(
            gpus=gpus,
            rounds=self.future_rounds,
            round_seconds=upcoming.seconds,
            widths=state.scale_factors[jobs],
            epochs=regimes.epochs.astype(np.float64),
            epochs_done=done.astype(np.float64),
            epoch_seconds=ahead.epoch_seconds,
            remaining_seconds=ahead.remaining_seconds,
            target_seconds=memory.target(upcoming.number, self.momentum),
            now_seconds=state.clock,
            share=share,
            makespan_weight=self.makespan_weight,
            fairness_exponent=self.fairness_exponent,
            largest_rho=self.largest_rho,
            bases=self.bases,
            priority_cap=self.priority_cap,
            fairness_rows=self.fairness_rows,
            start_seconds=start,
        )

    def _as_plan(self, state: ClusterState, jobs: Positions, kind: int, solution: PlanSolution, started: float) -> Plan:
        """The plan of a solution for some of the jobs (positions), those that were planned before those that fill."""
        steps = []
        for planned, filled in zip(solution.schedule.T, solution.backfilled.T, strict=True):
            chosen = np.concatenate([jobs[planned], jobs[filled & ~planned]])
            pool = np.full(len(chosen), kind, dtype=np.int64)
            steps.append(PlanStep(Assignment.of(chosen, pool, state.scale_factors[chosen]), self.round_seconds))
        shares = np.zeros(state.rates.shape)
        shares[jobs, kind] = solution.backfilled.mean(axis=1)
        left_out = np.ones(state.n_jobs, dtype=bool)
        left_out[jobs] = False
        allocation = Allocation(
            policy=self.name,
            throughputs=state.throughputs,
            shares=shares,
            status=solution.status,
            objective=solution.objective,
            bound=solution.bound,
            certified=True,
            gap=solution.gap,
            unserved=tuple(state.throughputs.jobs[i] for i in np.flatnonzero(left_out)),
            solver=solution.solver,
            stage=solution.stage,
            seconds=perf_counter() - started,
        )
        return Plan(tuple(steps), allocation=allocation)

    def _idle(self, state: ClusterState, seconds: float) -> Plan:
        """A plan for no job."""
        allocation = Allocation(
            policy=self.name,
            throughputs=state.throughputs,
            shares=np.zeros(state.rates.shape),
            status="empty",
            unserved=tuple(state.throughputs.jobs),
            seconds=seconds,
        )
        return Plan((PlanStep(Assignment.none(), self.round_seconds),) * self.future_rounds, allocation=allocation)
