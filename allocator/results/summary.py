"""The figures of a run as one typed object, and decisions that were left to another solver, said in a line."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from allocator.results.shown import html_lines
from throughputs.files import JsonObject

if TYPE_CHECKING:
    from allocator.protocol.allocation import Allocation

_HOUR = 3600.0
_MISSING = "-"


# A figure that not every run has.
Number = float | None
Count = int | None
Rows = list[JsonObject] | None


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class Summary(Mapping[str, Any]):
    """What a run comes down to: `result.summary()`.

    A figure is an attribute, ``summary.average_jct``. A summary is also a mapping from the names of the figures that
    the run has to their values, for programs that choose figures by name, and for tables of several runs:
    ``pandas.DataFrame([result.summary() for result in results])``. A figure is None where there is nothing to measure
    or the run does not have it; the mapping leaves out those that it does not have. Printed, it is ten lines.

    rho is the completion time of a job over that on its isolated share (finish-time fairness; Mahajan et al., NSDI
    2020). Figures that end in ``_static`` and ``_themis`` use the denominators of Shockwave, where profiles of the
    jobs are known (`fairness.static_contention`, `fairness.round_contention`); those that end in ``_isolated`` the
    completion times of a run in which every job has its fair share, where `compare` has one (`isolated_plus`).

    With a window all figures but makespan, utilization, leases and cost are of its jobs, and of the time from the first
    arrival among them to the last completion. Beside a schedule out of a log no figure counts a job
    of which the log does not say where it ran.

    Attributes
    ----------
    policy, label, cluster : names of the policy, of the run (that of the policy where it has no other) and the cluster.
    status, status_detail : "completed", or "saturated" with the reason.
    completed_jobs : jobs that completed, those that were cut off included.
    average_jct, median_jct, p90_jct, p95_jct, p99_jct, p99_9_jct, geometric_mean_jct, harmonic_mean_jct : completion
        times of the completed jobs, seconds.
    average_queueing_time, average_running_time : parts of the average JCT, seconds: without GPUs, from arrival on and
        whenever the job was preempted, and on GPUs, with what starts took.
    median_queueing_time, p90_queueing_time, p95_queueing_time, p99_queueing_time, p99_9_queueing_time : percentiles of
        the first of them, seconds.
    average_rho, worst_rho : of the completed jobs.
    unfair_fraction, very_unfair_fraction : share of the completed jobs with rho above 1.05, and above 1.1.
    average_rho_static, worst_rho_static, unfair_fraction_static, very_unfair_fraction_static : by static contention.
    average_rho_themis, worst_rho_themis, unfair_fraction_themis, very_unfair_fraction_themis : by the contention of the
        rounds of the job.
    average_rho_isolated, worst_rho_isolated, unfair_fraction_isolated, very_unfair_fraction_isolated : by a run on
        isolated shares.
    average_bounded_slowdown, median_bounded_slowdown, p90_bounded_slowdown, p95_bounded_slowdown,
    p99_bounded_slowdown, p99_9_bounded_slowdown : of the jobs of a log: completion time over that alone, a start of the
        gang included, of which at least ten minutes count.
    failed_jobs, cancelled_jobs, timed_out_jobs : completed jobs that ended so where they were logged.
    makespan : clock when the last job completed, seconds.
    utilization : busy GPU time over GPU time up to the makespan.
    loaded_utilization : the same from the first arrival to the last.
    average_queue, largest_queue : jobs that waited: time average, and the most at a time.
    average_active : jobs in the cluster, time average.
    average_contention, largest_contention : jobs in the cluster per GPU: time average, and the most at a time.
    jobs : jobs measured.
    unserved_jobs, dropped_jobs, rejected_jobs, cut_off_jobs, unfinished_jobs : that no accelerator type can run; given
        up; not admitted; taken off by a rule before their last step; left when the run was cut short.
    preemptions, migrations : times a job was not given the GPUs it had before; those in which it went on at once with
        others.
    restart_gpu_hours : GPU hours that starts took, first ones and those after preemptions; 0 where they are free.
    failures, lost_gpu_hours : times a job was stopped by the failure of a node, and GPU hours of training since
        the last checkpoint that were lost with it; where nodes fail.
    restarts_per_job : starts after the first, preemptions that were made up for, on average over jobs that ran.
    gpu_hours_per_job : GPU hours of a completed job, on average.
    beyond_shares_fraction : part of the GPU time of jobs that was beyond their shares of time, as it is where idle GPUs
        are filled; under policies that decide on shares.
    exceeded_jobs : jobs that had more beyond their shares than rounds explain, under a policy that leaves GPUs idle on
        purpose (`SharePolicy.fills_idle_gpus`): its rows, or what its theorem says, do not hold for what they received.
    lease_extensions, lease_opportunities, lease_extension_rate : rounds in which a job kept the GPUs of the round
        before, rounds in which it could have, and their ratio.
    mean_envy, largest_envy : difference between two jobs in the fraction of their rounds in which they ran, over all
        pairs; where profiles are known.
    deadline_jobs : jobs with a deadline.
    deadline_ratio : share of them that were in time (deadline satisfactory ratio), by the measure of the run.
    value_miss_rate : 1 less the average share of the first deadline's value that was kept.
    admitted, rejected, met, late : jobs with a deadline that were admitted, were not, were in time, and completed late.
    best_effort_jobs, best_effort_average_jct : jobs without a deadline beside those with one, and their average JCT,
        seconds.
    wasted_gpu_hours : GPU hours spent on jobs with a deadline that were not in time.
    cluster_efficiency : time average of the cluster's efficiency (ElasticFlow, ASPLOS 2023, sec. 6).
    cost, owned_cost : dollars for busy GPUs, and for all of them as long as the run took.
    rounds, policy_calls : rounds (between events: stretches) in which a job ran, and decisions of the policy.
    fallback_decisions : decisions that the solver asked first failed to make, or to prove: another one or a rule did.
    policy_seconds, wall_seconds : time spent in the policy, and in the whole simulation, imports left out.
    window_start, window_end, window_utilization : of a run with a window: seconds, seconds, and the utilisation of all
        GPUs in between.
    fragmentation : GPU time that was free on partly used servers, over all that was free, while jobs arrived.
    gang_fits_fraction, gang_blocked_fraction : part of that time in which a gang of 8 GPUs could have started, and in
        which it could not though 8 GPUs of the type were free; see `measures.fragmentation`.
    gpu_utilization, busy_gpu_utilization, known_gpu_utilization : what jobs were measured to use of the GPUs, mean over
        all GPUs while jobs arrived, and over those that jobs had; and the part of these of which it is known. Only
        where the trace says it of a job; see `measures.gpu_utilization`.
    by_priority : one row per priority weight, heaviest first, where jobs differ in it.
    by_size : one row per number of GPUs (1, 2-4, 5-8, 9-16, 17+), where jobs differ in it.
    by_user, by_partition : one row per user, and per partition (virtual cluster), where the jobs name theirs.
    by_accelerator : one row per accelerator type, where there are several: GPU hours, those of a completed job,
        utilisation, fragmentation.
    by_entity : one row per entity, parents first, with all that is inside it, where the run has entities; the last
        row, if any, is of jobs outside entities. throughput_share is its part of the work done.

    >>> import allocator
    >>> trace = allocator.Trace(["one", "other"], [1, 1], [100.0, 100.0], [0.0, 0.0])
    >>> policy = allocator.get_policy("max_min_fairness")
    >>> summary = allocator.simulate(trace, {"v100": 1}, policy, [[1.0], [1.0]]).summary()
    >>> summary.makespan, summary.completed_jobs, summary.cost is None
    (490.0, 2, True)
    """

    policy: str
    label: str
    cluster: str
    status: str
    status_detail: str
    completed_jobs: int
    average_jct: Number = None
    median_jct: Number = None
    p90_jct: Number = None
    p95_jct: Number = None
    p99_jct: Number = None
    p99_9_jct: Number = None
    geometric_mean_jct: Number = None
    harmonic_mean_jct: Number = None
    average_queueing_time: Number = None
    median_queueing_time: Number = None
    p90_queueing_time: Number = None
    p95_queueing_time: Number = None
    p99_queueing_time: Number = None
    p99_9_queueing_time: Number = None
    average_running_time: Number = None
    average_rho: Number = None
    worst_rho: Number = None
    unfair_fraction: Number = None
    very_unfair_fraction: Number = None
    average_rho_static: Number = None
    worst_rho_static: Number = None
    unfair_fraction_static: Number = None
    very_unfair_fraction_static: Number = None
    average_rho_themis: Number = None
    worst_rho_themis: Number = None
    unfair_fraction_themis: Number = None
    very_unfair_fraction_themis: Number = None
    average_rho_isolated: Number = None
    worst_rho_isolated: Number = None
    unfair_fraction_isolated: Number = None
    very_unfair_fraction_isolated: Number = None
    average_bounded_slowdown: Number = None
    median_bounded_slowdown: Number = None
    p90_bounded_slowdown: Number = None
    p95_bounded_slowdown: Number = None
    p99_bounded_slowdown: Number = None
    p99_9_bounded_slowdown: Number = None
    failed_jobs: Count = None
    cancelled_jobs: Count = None
    timed_out_jobs: Count = None
    makespan: float
    utilization: float
    loaded_utilization: Number = None
    average_queue: Number = None
    largest_queue: Count = None
    average_active: Number = None
    average_contention: Number = None
    largest_contention: Number = None
    jobs: int
    unserved_jobs: int
    dropped_jobs: int
    rejected_jobs: int
    cut_off_jobs: int
    unfinished_jobs: int
    preemptions: Count = None
    migrations: Count = None
    restart_gpu_hours: Number = None
    failures: Count = None
    lost_gpu_hours: Number = None
    restarts_per_job: Number = None
    gpu_hours_per_job: Number = None
    beyond_shares_fraction: Number = None
    exceeded_jobs: Count = None
    lease_extensions: Count = None
    lease_opportunities: Count = None
    lease_extension_rate: Number = None
    mean_envy: Number = None
    largest_envy: Number = None
    deadline_jobs: Count = None
    deadline_ratio: Number = None
    value_miss_rate: Number = None
    admitted: Count = None
    rejected: Count = None
    met: Count = None
    late: Count = None
    best_effort_jobs: Count = None
    best_effort_average_jct: Number = None
    wasted_gpu_hours: Number = None
    cluster_efficiency: Number = None
    cost: Number = None
    owned_cost: Number = None
    rounds: int
    policy_calls: int
    fallback_decisions: int
    policy_seconds: Number = None
    wall_seconds: Number = None
    window_start: Number = None
    window_end: Number = None
    window_utilization: Number = None
    fragmentation: Number = None
    gang_fits_fraction: Number = None
    gang_blocked_fraction: Number = None
    gpu_utilization: Number = None
    busy_gpu_utilization: Number = None
    known_gpu_utilization: Number = None
    by_priority: Rows = None
    by_size: Rows = None
    by_user: Rows = None
    by_partition: Rows = None
    by_accelerator: Rows = None
    by_entity: Rows = None
    _names: tuple[str, ...] = ()

    @classmethod
    def of(cls, figures: Mapping[str, Any]) -> Summary:
        """The summary with these figures; the mapping has them in this order.

        Without a label a run is called what its policy is called.
        """
        return cls(**({"label": figures["policy"]} | dict(figures)), _names=tuple(figures))

    def __getitem__(self, name: str) -> Any:
        if name not in self._names:
            raise KeyError(name)
        return getattr(self, name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def __repr__(self) -> str:
        return f"Summary({', '.join(f'{name}={value!r}' for name, value in self.items())})"

    def _repr_html_(self) -> str:
        return html_lines(str(self))

    def __str__(self) -> str:
        """The figures that matter most, in at most ten lines."""
        rho = _MISSING if self.worst_rho is None else f"{self.worst_rho:.2f}"
        fairness = f"worst rho {rho}, {percent(self.unfair_fraction)} of jobs unfairly treated"
        if self.average_bounded_slowdown is not None and self.p99_bounded_slowdown is not None:
            fairness = (
                f"bounded slowdown {self.average_bounded_slowdown:.2f}, 99th percentile {self.p99_bounded_slowdown:.1f}"
            )
        lines = [
            f"{self.label} on {self.cluster}: {self.status}, {self.completed_jobs:,} of {self.jobs:,} jobs completed",
            f"average JCT {_hours(self.average_jct)}, median {_hours(self.median_jct)}, "
            f"99th percentile {_hours(self.p99_jct)}",
            f"on average {_hours(self.average_queueing_time)} without GPUs, "
            f"{_hours(self.average_running_time)} on them",
            f"makespan {_hours(self.makespan)}, GPUs busy {percent(self.utilization)} of it, "
            f"{percent(self.loaded_utilization)} up to the last arrival",
            fairness,
        ]
        if self.preemptions is not None:
            lines.append(f"{self.preemptions:,} preemptions, {self.restart_gpu_hours or 0.0:,.1f} GPU hours for starts")
        if self.failures is not None:
            lines.append(
                f"{self.failures:,} jobs stopped by failures, {self.lost_gpu_hours or 0.0:,.1f} GPU hours lost"
            )
        if self.deadline_jobs:
            lines.append(f"{percent(self.deadline_ratio)} of {self.deadline_jobs:,} jobs with a deadline in time")
        if self.cost is not None:
            lines.append(f"${self.cost:,.2f} for busy GPUs")
        if self.policy_seconds is not None:
            lines.append(f"{self.policy_calls:,} decisions in {self.policy_seconds:.2f} s")
        return "\n".join(lines)


NUMBERS = tuple(each.name for each in fields(Summary) if each.type in ("int", "float", "Number", "Count"))
"""Names of the figures that are numbers, in their order."""

OF_COMPLETED = re.compile(
    "jct|rho|unfair|_time$|slowdown|makespan|window_start|window_end|cost|deadline_ratio|value_miss|gpu_hours|failures|"
    "per_job"
)
"""In names of figures that a saturated run does not have: there is no steady state to measure, and what had completed
by then is the lucky part of the jobs."""


def _hours(seconds: float | None) -> str:
    return _MISSING if seconds is None else f"{seconds / _HOUR:,.2f} h"


def percent(share: float | None) -> str:
    """A share as a line has it."""
    return _MISSING if share is None else f"{100 * share:.1f} %"


def fallbacks_told(label: str, decisions: Sequence[Allocation], calls: int) -> str:
    """How many decisions of a run were left to another solver or rule, and why; empty where none was.

    Parameters
    ----------
    label : what the run is called.
    decisions : of the policy.
    calls : how often the policy was asked.
    """
    left = [each for each in decisions if each.fallbacks]
    if not left:
        return ""
    tried = ", ".join(dict.fromkeys(name for each in left for name in each.fallbacks))
    made = Counter(each.solver or each.status for each in left)
    by = ", ".join(f"{solver} ({count})" if len(made) > 1 else solver for solver, count in made.most_common())
    unproven = sum(each.status != "optimal" for each in left)
    proof = "all proven optimal" if not unproven else f"{unproven} of them without a proof"
    return (
        f"{label}: {len(left):,} of {calls:,} decision{'s' * (calls != 1)} left by {tried}, which failed or missed the "
        f"tolerance of the proof, to {by}; {proof}"
    )
