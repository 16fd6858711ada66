"""Would one more job meet its deadline, and would all others still meet theirs?

The question that a user of a cluster asks before submitting. It is answered as `elasticflow` answers it: minimum
satisfactory shares by progressive filling, in the order of deadlines (D. Gu et al., "ElasticFlow", ASPLOS 2023, sec.
4), and with repair in other orders. Where the answer is no, a later deadline and a larger cluster are looked for that
would do.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil, inf
from typing import Annotated

import numpy as np

from allocator.cluster import MOST_GPUS, Cluster
from allocator.conversion import convert
from allocator.policies.deadlines.base import PlannedJob
from allocator.policies.deadlines.promises import NO_REPAIR, Promises, Repair
from allocator.protocol.elastic import Throughputs, of_table
from formulations.deadlines import Filling, JobPlan, ScalingCurve, earliest_share
from throughputs import InputError, Trace
from throughputs.configurations import Configurations
from throughputs.limits import LARGEST_WHOLE_NUMBER, Range

_END_OF_TIME = LARGEST_WHOLE_NUMBER
_Time = Annotated[float, Range(0.0, _END_OF_TIME - 1)]
_BEFORE_THAT = f"a time before {_END_OF_TIME} s, from which on whole seconds are not told apart"


@dataclass(frozen=True)
class Admission:
    """What can be promised to a job.

    Attributes
    ----------
    admitted : whether it would meet its deadline, and all others theirs.
    deadline : seconds on the clock.
    plan : (start in seconds on the clock, GPUs from then on), up to `end`: what the job would have at least. Of a job
        that is not admitted, the plan for `earliest_deadline`.
    end : when it would be through, seconds on the clock.
    gpu_hours : that the plan takes.
    earliest_deadline : of a job that is not admitted: a deadline in whole seconds that could be promised.
    fewest_gpus : of a job that is not admitted: GPUs of a larger cluster that could promise its deadline; None where no
        number of GPUs would do.
    late : positions of the jobs there are that cannot meet their own deadlines, newcomer or not; they are planned
        behind all others.
    best_effort : how many of them have no deadline. They make room for jobs that have one.
    """

    admitted: bool
    deadline: float
    plan: tuple[tuple[float, int], ...]
    end: float
    gpu_hours: float
    earliest_deadline: float | None
    fewest_gpus: int | None
    late: tuple[int, ...]
    best_effort: int


class AdmissionTest:
    """A cluster with the jobs that are in it, which may be asked about newcomers.

    Parameters
    ----------
    jobs : those that run or wait, admitted before; their steps are those left, their scale factors the GPUs that they
        have now. Arrivals are not looked at.
    cluster : of one accelerator type, in any form that `Cluster.of` takes.
    throughputs : steps/s by number of GPUs.
    clock : now, seconds.
    slot_seconds : GPUs of a job that ends are free at the end of its slot; 0: at once.
    restart_seconds : what it takes a job to go on with another number of GPUs.
    margin_seconds : how long before its deadline a job is to end.
    repair : when a job is let in by plans in other orders, and how many are tried; those that are there have been let
        in before, whatever GPU time they need.

    Raises
    ------
    InputError
        A cluster of several types, or a job without figures by number of GPUs.

    >>> from allocator import load_throughputs
    >>> from throughputs import Trace
    >>> test = AdmissionTest(Trace(["A3C"], [1], [1e6], [0.0], deadline=[1e6]), "v100:4", load_throughputs())
    >>> newcomer = Trace(["A3C"], [1], [1000.0], [0.0], deadline=[5e5])
    >>> answer = test.ask(newcomer)
    >>> answer.admitted, answer.plan
    (True, ((0.0, 1),))
    """

    def __init__(
        self,
        jobs: Trace,
        cluster: Cluster | str | Mapping[str, int],
        throughputs: Throughputs,
        *,
        clock: float = 0.0,
        slot_seconds: float = 0.0,
        restart_seconds: float = 0.0,
        margin_seconds: float = 0.0,
        repair: Repair = NO_REPAIR,
    ) -> None:
        cluster = Cluster.of(cluster)
        if len(cluster.accelerators) != 1:
            raise InputError("cluster", found=str(cluster), expected="GPUs of one accelerator type")
        times = {"slot_seconds": slot_seconds, "restart_seconds": restart_seconds, "margin_seconds": margin_seconds}
        for name, seconds in {**times, "clock": abs(clock)}.items():
            convert(seconds, _Time, source="admission", field=name)
        self.jobs, self.cluster, self.throughputs, self.clock = jobs, cluster, throughputs, clock
        self.filling = Filling(slot_seconds=slot_seconds, restart_seconds=restart_seconds)
        self.margin_seconds, self.repair = margin_seconds, repair

    def ask(self, newcomer: Trace, most_gpus: int | None = None) -> Admission:
        """What can be promised to a newcomer, the one job of a trace, that is given `most_gpus` at most.

        Raises
        ------
        InputError
            Not one job, one without a deadline or figures for numbers of GPUs that the cluster has, or one that is due
            or would end so late that whole seconds are not told apart.
        """
        if len(newcomer) != 1 or np.isnan(newcomer.deadline).any():
            found = f"{len(newcomer)} jobs, {int((~np.isnan(newcomer.deadline)).sum())} with a deadline"
            raise InputError(newcomer.source, found=found, expected="one job with a deadline on the clock")
        deadline, most = float(newcomer.deadline[0]), inf if most_gpus is None else most_gpus
        if not deadline < _END_OF_TIME:
            raise InputError(newcomer.source, field="deadline", found=deadline, expected=_BEFORE_THAT)
        here = self._filled(self.jobs, self.cluster.total_gpus)
        job = here.job(newcomer, 0, deadline, most)
        if job is None:
            expected = f"figures for up to {min(most, self.cluster.total_gpus)} GPUs"
            raise InputError("throughputs", field=str(newcomer.job_type[0]), found="none", expected=expected)
        plan, later, fewest = here.plan_of(job), None, None
        admitted = plan is not None
        if plan is None:
            due, plan = here.earliest(job)
            later = due + self.margin_seconds
            fewest = self._fewest(newcomer, deadline, most)
        gpu_hours = plan.gpu_seconds(plan.real_end) / 3600.0
        steps = tuple(zip(plan.starts, plan.gpus, strict=True))
        best_effort = int(np.isnan(self.jobs.deadline).sum())
        return Admission(admitted, deadline, steps, plan.real_end, gpu_hours, later, fewest, here.late, best_effort)

    def _filled(self, jobs: Trace, gpus: int) -> _Filled:
        cluster = Cluster({self.cluster.accelerators[0]: gpus})
        return _Filled(self, jobs, cluster)

    def _fewest(self, newcomer: Trace, deadline: float, most: float) -> int | None:
        """The GPUs of a larger cluster that admits the newcomer, the least that halving finds; None where none does."""

        def admits(gpus: int, jobs: Trace = self.jobs) -> bool:
            filled = self._filled(jobs, gpus)
            job = filled.job(newcomer, 0, deadline, most)
            return job is not None and filled.plan_of(job) is not None

        ways = of_table(newcomer, self.throughputs, Cluster({self.cluster.accelerators[0]: MOST_GPUS}))
        widest = int(ways.gpus[ways.gpus <= most].max(initial=0))
        if not admits(widest, self.jobs.head(0)):
            return None
        too_few = self.cluster.total_gpus
        enough = max(2 * too_few, widest)
        while not admits(enough):
            too_few, enough = enough, 2 * enough
            if enough > MOST_GPUS:
                return None
        while enough - too_few > 1:
            middle = (too_few + enough) // 2
            too_few, enough = (too_few, middle) if admits(middle) else (middle, enough)
        return enough


class _Filled:
    """A cluster with the plans of the jobs there are."""

    def __init__(self, test: AdmissionTest, jobs: Trace, cluster: Cluster) -> None:
        self.test, self.jobs, self.cluster, self.clock = test, jobs, cluster, test.clock
        # jobs of one type have one
        self._curves: dict[tuple[tuple[int, ...], tuple[float, ...], float], ScalingCurve] = {}
        ways = of_table(jobs, test.throughputs, cluster)
        repair, late = test.repair._replace(quantile=None), []
        self._there = Promises(test.filling, self.clock, cluster.total_gpus, repair=repair)
        for i in np.argsort(jobs.deadline, kind="stable").tolist():
            if np.isnan(jobs.deadline[i]):
                continue
            job = self._job(ways, jobs, i, float(jobs.deadline[i]), inf, int(jobs.scale_factor[i]))
            if job is None or not self._there.admit([job]):
                late.append(i)
        self.late = tuple(sorted(late))

    def job(self, newcomer: Trace, i: int, deadline: float, most: float) -> PlannedJob | None:
        """The newcomer for the planner; None where it can run on no number of GPUs."""
        return self._job(of_table(newcomer, self.test.throughputs, self.cluster), newcomer, i, deadline, most, 0)

    def _job(
        self, ways: Configurations, jobs: Trace, i: int, deadline: float, most: float, held: int
    ) -> PlannedJob | None:
        columns = slice(ways.offsets[i], ways.offsets[i + 1])
        levels, rates = tuple(ways.gpus[columns].tolist()), tuple(ways.rate[columns].tolist())
        curve = self._curves.get((levels, rates, most))
        if curve is None:
            curve = ScalingCurve(levels, rates, self.cluster.total_gpus, most, useful_only=True)
            self._curves[levels, rates, most] = curve
        due = deadline - self.test.margin_seconds
        return PlannedJob(curve, float(jobs.total_steps[i]), due, held, 0.0, i, i) if curve.levels else None

    def plan_of(self, job: PlannedJob) -> JobPlan | None:
        """The plan of a newcomer, if all meet their deadlines; else None."""
        promises = self._there.copy(self.test.repair)
        return promises.plans[promises.jobs.index(job)] if promises.admit([job]) else None

    def earliest(self, job: PlannedJob) -> tuple[float, JobPlan]:
        """The earliest deadline, in whole seconds, that halving finds for a newcomer, and the plan for it."""
        filling = self.test.filling
        soonest = earliest_share(filling, self._there.left_over, job).real_end
        # behind all others, and due after them, it has the cluster to itself
        last = max([self.clock, *(plan.end for plan in self._there.plans)])
        alone = last + job.work / job.curve.best_rates[-1] + filling.restart_seconds
        _check_end(max(soonest, alone))
        deadline = float(ceil(soonest))
        plan = self.plan_of(_due(job, deadline))
        if plan is None:
            behind = max([alone, soonest, *(other.deadline for other in self._there.jobs)])
            _check_end(behind)
            deadline = float(ceil(behind) + 1)
            plan = self.plan_of(_due(job, deadline))
        assert plan is not None
        too_early = job.deadline
        while deadline - too_early > 1:
            middle = (deadline + too_early) // 2
            found = self.plan_of(_due(job, middle))
            if found is None:
                too_early = middle
            else:
                deadline, plan = middle, found
        return deadline, plan


def _check_end(end: float) -> None:
    if not end < _END_OF_TIME:
        raise InputError("admission", found=f"an end at {end:g} s", expected=_BEFORE_THAT)


def _due(job: PlannedJob, due: float) -> PlannedJob:
    return PlannedJob(job.curve, job.work, due, job.held, job.starting, job.label, job.position)
