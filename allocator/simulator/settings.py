"""Settings of the simulated world: what happens inside a round."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from allocator.protocol.goodput.rules import GoodputRules
from allocator.simulator.restarts import RestartCost
from throughputs import InputError

_CHOICES = {
    "round_end": ("fixed", "slowest"),
    "batch_size_adaptation": ("off", "exact", "published"),
    "ends": ("exact", "second", "counted", "slot"),
    "deadlines_judged_by": ("end", "training"),
    "overhead": ("off", "starts", "running", "active"),
    "overhead_delays_end": ("always", "restarts"),
    "gang_rates": ("table", "duration"),
    "goodput_knowledge": ("grown", "profiled", "true"),
    "goodput_batch_size": ("tuned", "submitted"),
    "goodput_columns": ("powers", "all"),
    "goodput_counts": ("progress", "iterations"),
    "goodput_values": ("model", "sia"),
    "goodput_models": ("by_type", "merged"),
    "goodput_fit": ("least_loss", "pollux", "sia"),
    "goodput_work": ("training", "samples"),
    "goodput_in_rounds": ("mean", "trained"),
    "epoch_ends": ("exact", "second"),
}

_FLAGS = (
    "ideal",
    "unconsolidated_throughputs",
    "whole_steps",
    "pairs_end_together",
    "restart_when_moved",
    "restart_delays",
    "restart_keeps_shape",
    "starts_count_as_service",
    "goodput_projection",
    "slot_grid",
    "slot_spares_last_arrival",
    "slot_spares_last_end",
    "late_jobs_wait",
    "overhead_while_arrivals",
    "overhead_reuses_groups",
    "guests_stay_slow",
)

_LEAST_ABOVE_0 = 5e-324
"""The smallest number above 0."""


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
    deadline_measure : which jobs the deadline ratio of the results counts as in time: "first": those that completed by
        their first deadline, as in ElasticFlow; "last": by any of their deadlines; "value": each in part, by the value
        of the deadline that it kept over that of its first, one less Chronus' miss rate. For jobs with one deadline all
        are the same.
    restart_penalty_seconds : a gang that did not run the round before trains so much less; not in the first round.
    restart_penalty_slack_seconds : a gang that is done more than this before a full round is over pays no penalty;
        None: every gang pays.
    restart_penalty_per_doubling_seconds : as much more for each time that its number of GPUs doubles from 1.
    restart_penalty_by_gpus : pairs (GPUs, seconds), ascending: what it costs to start a gang of so many GPUs or more,
        instead of restart_penalty_seconds; that is for gangs of fewer.
    restart_penalty_by_job_type : pairs (job type, seconds), instead of the others for these types.
    restart_when_moved : a job that goes on with other GPUs, or another number of them, starts anew too.
    restart_keeps_shape : of jobs with goodput, one that goes on with as many GPUs on each node of the same type does
        not start anew, whichever nodes these are.
    starts_count_as_service : outside rounds, time in which a job starts counts as time that it was served.
    restart_delays : in rounds, a gang that starts is busy with that first, in the first round too, and trains in what
        is left of the round; otherwise it trains so much less than it would have, and is done the earlier.
    batch_size_adaptation : whether jobs of mode accordion and gns change their batch size. "off": never; "exact": as
        their rule says, keeping their progress; "published": as the simulator of Shockwave does, one of their rounds
        late and with progress rounded up to a whole epoch.
    finished_jobs_linger_rounds : with "published", progress may be rounded to the end of a job and beyond, and the job
        keeps its GPUs for so many rounds then; 0: progress is never rounded that far.
    overtime_factor : a job counts as completed when it has run for so many times its profiled duration; None: never.
    max_waiting_jobs : the run is cut short as saturated when more jobs wait in a round; None: no limit.
    max_clock_seconds : the run is cut short as saturated when the clock passes this time; None: no limit.
    slot_seconds : after a decision at an event the next one comes so many seconds later at the earliest: whatever
        happens in between waits, and the GPUs of a job that ends are free only then; 0: everything is seen at once.
    slot_grid : slots begin at multiples of slot_seconds from the first arrival on; otherwise with each decision.
    slot_spares_last_arrival : the last arrival of a trace does not wait for the end of a slot.
    slot_spares_last_end : nor does an end after which nobody is left who has run before, once no more jobs are to
        arrive: jobs that still wait for their first GPUs get them at once instead of with the next slot.
    ends : when a job that has done its last step is through: "exact": then; "second": at the next whole second;
        "counted": at the second at which nothing is left if each takes the rate off in floating point;
        "slot": at the end of that slot of its present stretch (with slot_seconds above 0).
    late_jobs_wait : with ends "slot", a job whose deadline passes in a stretch stands still from its deadline to the
        end of the slot in which that lies, and is through so much later, as the published loop looks at late jobs at
        ends of slots only. A decision before it is through takes that back: up to then it has trained without a wait.
    deadlines_judged_by : what a deadline is compared with: "end": the end of the job, as in its completion time;
        "training": the second of its last step, without the overhead of its last stretch and the rest of the slot.
    overhead : which jobs lose time at each decision at an event: "off": nobody; "starts": those that start;
        "running": everybody who has GPUs, whether or not anything changes; "active": those who wait as well, for whom
        it counts when they run. A job of n GPUs loses `overhead_base_seconds` +
        `overhead_doubling_seconds` (1 + log2 n) in the stretch that follows.
    overhead_base_seconds, overhead_doubling_seconds : see `overhead`.
    overhead_reuses_groups : a set of GPUs on which a job has run before costs the base only.
    overhead_restart_decisions : everything is started anew at every so many decisions; "slot": as many as a slot has
        seconds, which is what the published simulator compares with; None: never.
    overhead_restart_seconds : what that costs everybody in addition, and known sets of GPUs are forgotten.
    overhead_while_arrivals : time is lost only as long as more jobs are to arrive.
    overhead_delays_end : whether time lost in a stretch delays an end in it: "always", or at "restarts" only.
    end_delay_seconds : a job keeps its GPUs for so long after its last step, and is through only then: simulators that
        go second by second may look for those who have ended before they count the second.
    preemption_penalty_by_gpus : pairs (GPUs, seconds), ascending: a job that has so many GPUs or more and is stopped
        by a decision at an event has so much more to do; that counts into the time that policies see it needs. Between
        events only.
    guests_stay_slow : a job that joined another one on its GPUs keeps the rate that it had there when the other one is
        through and it has the GPUs to itself. Between events only.
    pairs_of_one_type : (job type, fraction, fraction): what a job keeps of its throughput that joined one of its own
        type, and what that one keeps, where a table has two figures. Between events only.
    gang_rates : how fast a job goes with its own number of GPUs: "table": as the throughputs say; "duration": as the
        trace says, its steps over its duration.
    slot_origin_seconds : with slot_grid, where slots begin; None: with the first arrival.
    goodput_knowledge, goodput_batch_size, goodput_columns, goodput_projection, goodput_counts, goodput_most_gpus,
        goodput_most_gpus_of_model, goodput_batch_size_of_model, goodput_values, goodput_models, goodput_fit : what is
        known of jobs with goodput, and what may be chosen for them, see `allocator.protocol.goodput.GoodputRules`.
    goodput_slowdown : pairs (model, factor): how much longer steps take than they were measured.
    goodput_work : when a job with goodput is through: "training": when it is trained; "samples": after the samples that
        its trace asks for, its steps times its batch size, however large its batches are and whatever they are worth,
        or when it is trained, if that comes first.
    goodput_in_rounds : how jobs with goodput train under policies in rounds, with the GPUs and the batch size that they
        asked for: "mean": at the mean throughput on packed nodes; "trained": as under policies at events, epoch by
        epoch, on the nodes where they are. Then policies reckon with steps as they were measured, time received is
        whole rounds, a start is busy first, and with slot_grid rounds begin with the slots.
    epoch_ends : when jobs with goodput begin another epoch, with another batch size: "exact": then, which is an event;
        "second": at a whole second, unnoticed until the next event.

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
    deadline_measure: Literal["first", "last", "value"] = "first"
    restart_penalty_seconds: float = 0.0
    restart_penalty_slack_seconds: float | None = None
    restart_penalty_per_doubling_seconds: float = 0.0
    restart_penalty_by_gpus: tuple[tuple[int, float], ...] = ()
    restart_penalty_by_job_type: tuple[tuple[str, float], ...] = ()
    restart_when_moved: bool = False
    restart_delays: bool = False
    batch_size_adaptation: Literal["off", "exact", "published"] = "exact"
    finished_jobs_linger_rounds: int = 0
    overtime_factor: float | None = None
    max_waiting_jobs: int | None = None
    max_clock_seconds: float | None = None
    slot_seconds: float = 0.0
    slot_grid: bool = False
    slot_spares_last_arrival: bool = False
    slot_spares_last_end: bool = False
    ends: Literal["exact", "second", "counted", "slot"] = "exact"
    late_jobs_wait: bool = False
    deadlines_judged_by: Literal["end", "training"] = "end"
    overhead: Literal["off", "starts", "running", "active"] = "off"
    overhead_base_seconds: float = 0.0
    overhead_doubling_seconds: float = 0.0
    overhead_reuses_groups: bool = False
    overhead_restart_decisions: int | Literal["slot"] | None = None
    overhead_restart_seconds: float = 0.0
    overhead_while_arrivals: bool = False
    overhead_delays_end: Literal["always", "restarts"] = "always"
    end_delay_seconds: float = 0.0
    preemption_penalty_by_gpus: tuple[tuple[int, float], ...] = ()
    guests_stay_slow: bool = False
    pairs_of_one_type: tuple[tuple[str, float, float], ...] = ()
    gang_rates: Literal["table", "duration"] = "table"
    restart_keeps_shape: bool = False
    starts_count_as_service: bool = False
    slot_origin_seconds: float | None = None
    goodput_knowledge: Literal["grown", "profiled", "true"] = "grown"
    goodput_batch_size: Literal["tuned", "submitted"] = "tuned"
    goodput_columns: Literal["powers", "all"] = "powers"
    goodput_projection: bool = True
    goodput_counts: Literal["progress", "iterations"] = "progress"
    goodput_most_gpus: int | None = None
    goodput_most_gpus_of_model: tuple[tuple[str, int], ...] = ()
    goodput_batch_size_of_model: tuple[tuple[str, int], ...] = ()
    goodput_values: Literal["model", "sia"] = "model"
    goodput_models: Literal["by_type", "merged"] = "by_type"
    goodput_fit: Literal["least_loss", "pollux", "sia"] = "least_loss"
    goodput_slowdown: tuple[tuple[str, float], ...] = ()
    goodput_work: Literal["training", "samples"] = "training"
    goodput_in_rounds: Literal["mean", "trained"] = "mean"
    epoch_ends: Literal["exact", "second"] = "exact"

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

    @property
    def goodput_rules(self) -> GoodputRules:
        """What is known of jobs with goodput, and what may be chosen for them."""
        return GoodputRules(
            self.goodput_knowledge,
            self.goodput_batch_size,
            self.goodput_columns,
            self.goodput_projection,
            self.goodput_counts,
            self.goodput_most_gpus,
            self.goodput_most_gpus_of_model,
            self.goodput_batch_size_of_model,
            self.goodput_values,
            self.goodput_models,
            self.goodput_fit,
        )

    def __post_init__(self) -> None:
        for name, choices in _CHOICES.items():
            if getattr(self, name) not in choices:
                expected = ", ".join(choices[:-1]) + f" or {choices[-1]}"
                raise InputError("simulator settings", field=name, found=getattr(self, name), expected=expected)
        for name in (
            "max_zero_step_rounds",
            "max_rounds_without_progress",
            "overhead_restart_decisions",
            "goodput_most_gpus",
        ):
            value = getattr(self, name)
            if value is not None and value != "slot" and value < 1:
                raise InputError("simulator settings", field=name, found=value, expected="at least 1")
        for name in (
            "max_waiting_jobs",
            "slot_origin_seconds",
            "max_clock_seconds",
            "restart_penalty_seconds",
            "restart_penalty_slack_seconds",
            "restart_penalty_per_doubling_seconds",
            "finished_jobs_linger_rounds",
            "overtime_factor",
            "slot_seconds",
            "overhead_base_seconds",
            "overhead_doubling_seconds",
            "overhead_restart_seconds",
            "end_delay_seconds",
        ):
            value = getattr(self, name)
            if value is not None and not value >= 0:
                raise InputError("simulator settings", field=name, found=value, expected="at least 0")
        for name in _FLAGS:
            if not isinstance(getattr(self, name), bool):
                raise InputError("simulator settings", field=name, found=getattr(self, name), expected="true or false")
        if "slot" in (self.ends, self.overhead_restart_decisions) and not self.slot_seconds >= 1:
            expected = "at least 1 where ends or overhead_restart_decisions go by the slot"
            raise InputError("simulator settings", field="slot_seconds", found=self.slot_seconds, expected=expected)
        for name in ("restart_penalty_by_gpus", "preemption_penalty_by_gpus"):
            by_gpus = getattr(self, name)
            counts = [gpus for gpus, _ in by_gpus]
            if counts != sorted(set(counts)) or any(not cost >= 0 for _, cost in by_gpus):
                expected = "pairs with seconds of at least 0, numbers of GPUs ascending"
                raise InputError("simulator settings", field=name, found=by_gpus, expected=expected)
        for name, expected, at_least in (
            ("restart_penalty_by_job_type", "seconds of at least 0", 0.0),
            ("goodput_slowdown", "a factor above 0", _LEAST_ABOVE_0),
            ("goodput_most_gpus_of_model", "at least 1 GPU", 1),
            ("goodput_batch_size_of_model", "at least 1 sample", 1),
        ):
            seen = set()
            for model, value in getattr(self, name):
                if not value >= at_least:
                    raise InputError("simulator settings", field=f"{name} of {model}", found=value, expected=expected)
                if model in seen:
                    raise InputError("simulator settings", field=name, found=model, expected="each name once")
                seen.add(model)
        if self.deadline_measure not in ("first", "last", "value"):
            measure, expected = self.deadline_measure, "first, last or value"
            raise InputError("simulator settings", field="deadline_measure", found=measure, expected=expected)


def constant_restart_penalty(seconds: float) -> dict[str, Any]:
    """The settings by which every start costs so much, whatever the size and the type of its job."""
    others = ("restart_penalty_by_gpus", "restart_penalty_by_job_type")
    return {"restart_penalty_seconds": seconds, "restart_penalty_per_doubling_seconds": 0.0} | dict.fromkeys(others, ())
