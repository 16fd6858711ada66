"""What a simulation leaves behind, as tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from allocator.explanations.explain import explain
from allocator.results.efficiency import efficiency_table
from allocator.results.measures.fragmentation import GANG, fragmentation_table
from allocator.results.measures.parts import SIZE_CLASSES
from allocator.results.metrics import summarize
from allocator.results.shown import html_lines
from allocator.results.tables import jobs_table, rounds_table, timeline_table
from throughputs.files import JsonObject

if TYPE_CHECKING:
    import pandas as pd

    from allocator.cluster import Cluster
    from allocator.explanations.explanation import Explanation, Overview
    from allocator.protocol.allocation import Allocation
    from allocator.results.record import RunRecord
    from allocator.results.summary import Summary


@dataclass(frozen=True, eq=False)
class SimulationResult:
    """One simulated run. The tables are built from the run's record when first asked for.

    Attributes
    ----------
    policy : name of the policy.
    label : what the run is called beside others; the name of the policy where nothing else was said.
    cluster : the cluster it ran on.
    settings : every named setting of the run, ready for JSON.
    makespan : clock when the last job completed, seconds.
    utilization : busy GPU time divided by GPU time up to the makespan.
    policy_calls : how often the policy was asked.
    policy_seconds, wall_seconds : time spent in the policy, and in the whole simulation, imports left out.
    decisions : (round, clock in seconds, Allocation) for each time the policy was asked; job labels are job ids.
    not_told : figures of the summary that the run says nothing of: a schedule out of a job log has no preemptions.
    status : "completed", or "saturated" when a limit of the settings cut the run short; `status_detail` says which.
    record : the run as arrays.
    jobs : one row per job of the trace: job_id, job_type, scale_factor, priority_weight, total_steps, arrival_time,
        start_time (nan: never ran), completion_time (nan: not completed), jct, isolated_jct, rho (finish-time
        fairness: jct / isolated_jct), gpu_seconds (shared GPUs count half), rounds_run, preemptions (times it
        was not given the GPUs it had before), status (category: "completed", "cut_off" (taken off by a rule of the
        preset before its last step), "dropped" (given up), "rejected" (not admitted), "unserved", "unfinished"). Times
        in seconds.
        Where the run has them also: promised_time, what running_time would be if jobs had their shares of time;
        steps_done, where a rule may cut jobs off; rho_static, rho_themis and
        scheduled_fraction (rounds in which it ran, of those in which it was there), where profiles are known; entity
        (empty: none), user, partition, gpu_type and trace_id, which is what the job is called where it was logged
        (empty: not told), arrival_date, start_date and completion_date where the trace has dates (ISO 8601, UTC),
        gpu_fraction (below 1 for one that shares its GPU),
        deadline (seconds on the clock) and met, last_deadline and value_kept where jobs have several
        (`deadlines.deadline_columns`), cost (dollars), measured (whether the job is in the window).
    rounds : one row per job and round in which it ran: round, start_time, end_time (of this job in this round),
        job_id, accelerator (category), gpus (a tuple of the ids of its GPUs; empty: placement off), steps. Under
        policies that pack also partner, the job on the same GPUs. Without rounds: one row per job (and partner), type
        and interval between events, with the share of time as one more column. Under a policy that decides at events:
        one row per lease. gpu_count where it is not always the scale factor; rounds where a row stands for many equal
        ones.
    timeline : one row per round in which a job ran: round, start_time, end_time, active_jobs, running_jobs,
        queued_jobs, busy_gpus.
    efficiency : cluster efficiency over time, see `efficiency.efficiency_table`; empty without deadlines, and where
        throughput by number of GPUs is not known.
    fragmentation : free GPUs over time, see `measures.fragmentation.fragmentation_table`; empty where servers have one
        GPU, or placement is not known.

    >>> import allocator
    >>> trace = allocator.Trace(["a", "b"], scale_factor=[1, 1], total_steps=[360.0, 720.0], arrival_time=[0.0, 0.0])
    >>> result = allocator.simulate(trace, "v100:2", allocator.get_policy("fifo"), [[1.0], [1.0]])
    >>> print(str(result).splitlines()[0])
    fifo on v100:2: completed, 2 of 2 jobs completed
    >>> result.summary().completed_jobs, result.rounds["job_id"].nunique()
    (2, 2)
    """

    policy: str
    settings: JsonObject
    record: RunRecord
    label: str = ""
    status: str = "completed"
    status_detail: str = ""
    policy_calls: int = 0
    policy_seconds: float = 0.0
    wall_seconds: float = 0.0
    decisions: tuple[tuple[int, float, Allocation], ...] = ()
    not_told: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.label:
            object.__setattr__(self, "label", self.policy)

    @cached_property
    def cluster(self) -> Cluster:
        """The cluster it ran on."""
        return self.record.cluster

    @cached_property
    def makespan(self) -> float:
        """Clock when the last job completed, seconds."""
        return self.record.makespan

    @cached_property
    def utilization(self) -> float:
        """Busy GPU time divided by GPU time up to the makespan."""
        return self.record.utilization

    @cached_property
    def jobs(self) -> pd.DataFrame:
        """One row per job of the trace."""
        return jobs_table(self.record)

    @cached_property
    def rounds(self) -> pd.DataFrame:
        """One row per job and round in which it ran."""
        return rounds_table(self.record)

    @cached_property
    def timeline(self) -> pd.DataFrame:
        """One row per round in which a job ran."""
        return timeline_table(self.record)

    @cached_property
    def efficiency(self) -> pd.DataFrame:
        """One row for each time at which it changed."""
        return efficiency_table(self.record)

    @cached_property
    def fragmentation(self) -> pd.DataFrame:
        """One row per accelerator type and time at which its free GPUs changed."""
        return fragmentation_table(self.record)

    def summary(self, *, size_classes: Sequence[int] = SIZE_CLASSES, gang: int = GANG) -> Summary:
        """The figures of the run; with other classes of size, and another gang to be started, see `summarize`."""
        return summarize(self, size_classes=size_classes, gang=gang)

    def explain(self, job: int | str | None = None, **when: float | None) -> Explanation | Overview:
        """Why a job waited, who ran instead, and what would have let it run, see `allocator.explain`."""
        return explain(self, job, **when)

    def __str__(self) -> str:
        """The figures that matter most, in a few lines."""
        return str(self.summary())

    def _repr_html_(self) -> str:
        return html_lines(str(self))
